"""A safe and fast ZooKeeper client, with aiozk's messages: session, bulk reads and writes, znode paths and JSON."""
