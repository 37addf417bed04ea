"""ZooKeeper for tests: a model of the server, byte for byte, and faults between clients and a real one."""
