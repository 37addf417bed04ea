"""Changes a cluster step by step from outside, whichever controller it has: plans, moves of replicas, restarts."""
