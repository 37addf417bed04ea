"""The seam to the world: network, clock and chance as ports, with their real (and, later, simulated) form."""
