"""Commands that need the laboratory: a cluster on this machine, simulations, storms, exploration."""
