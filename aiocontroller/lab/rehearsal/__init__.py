"""Rehearsals: what a recorded cluster goes through, in the simulation."""
