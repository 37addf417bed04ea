"""Who may do what, as brokers with an authorizer decide it: pure, no I/O."""
