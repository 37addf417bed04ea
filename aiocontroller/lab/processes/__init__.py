"""Clusters of real processes that take the steps of the simulation and are judged by its checkers."""
