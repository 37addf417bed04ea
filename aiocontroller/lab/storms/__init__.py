"""Storms: faults for some time, then a verdict.  Each module is a ``scripts/storm NAME``."""
