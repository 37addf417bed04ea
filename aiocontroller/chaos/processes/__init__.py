"""Clusters of real processes that break by the words of the simulation, and are judged by its checkers."""
