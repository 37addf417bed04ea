"""The laboratory: a cluster in a box, test doubles, faults, checkers, and scenarios for all of them."""
