"""Changes a cluster step by step from outside, whoever its controller is: plans, moves of replicas, restarts."""
