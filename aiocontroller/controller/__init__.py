"""The shell round the core: takes events one at a time, lets the core decide, writes, tells the brokers."""
