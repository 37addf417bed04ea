"""Compares the controller with Kafka's own: ``scripts/bench controller`` and ``scripts/bench failovers``.

``preloaded_cluster`` sets up ZooKeeper, the znodes of a cluster and recording brokers; ``subjects`` runs the programs
that can be the controller; ``cases`` makes something happen and times it; ``figures`` turns seconds into rows, tables
and a history; ``page`` draws them.
"""
