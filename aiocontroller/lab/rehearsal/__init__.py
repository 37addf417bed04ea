"""Rehearsals: failures and operations of a recorded cluster, played in the simulation."""
