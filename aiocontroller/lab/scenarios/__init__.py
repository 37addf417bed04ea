"""Scenarios: the plan that a seed draws or a person writes, its steps' arguments, and the facts that it expects."""
