"""Storms: faults for a while, then a verdict; one module per ``scripts/storm NAME``."""
