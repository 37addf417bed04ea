"""ZooKeeper, made safe and fast on aiozk: session, bulk reads and writes, znode paths and their JSON."""
