"""What a plan's steps do to a simulated cluster."""
