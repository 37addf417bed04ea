"""The steps of a plan on a simulated cluster."""
