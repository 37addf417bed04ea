"""What breaks things on purpose: the simulated world, its faults and its checkers."""
