"""The controller against Kafka's own: ``scripts/bench controller`` and ``scripts/bench failovers``.

``preloaded_cluster`` sets up ZooKeeper, the znodes of a cluster and recording brokers; ``subjects`` are the command
lines that can be controller; ``cases`` make something happen and time it; ``figures`` turn seconds into rows, tables
and a history; ``page`` draws them.
"""
