"""The interface to the outside: network, clock and chance as ports, in a real and a simulated form."""
