"""Fault injection: the simulated cluster, its faults and its checkers, and storms against real processes."""
