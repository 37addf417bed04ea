"""The shell around the core: takes events one at a time, lets the core decide, writes, and informs the brokers."""
