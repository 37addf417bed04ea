"""The simulation: the whole program on virtual time, many seeds of it, and known bugs to test the checkers by."""
