"""Authorization, as in brokers with an authorizer: pure, no I/O."""
