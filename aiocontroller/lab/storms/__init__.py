"""Storms: faults for some time, then a verdict.  ``lab/cli/storm.py`` has the command of each.

============  ===================================================================================
processes     a cluster as processes, faults of all kinds, verdict from its records
zookeeper     the ZooKeeper client behind a faulty network, verdict from its history
hostile       hostile clients at a controller's ports, verdict from the effect on other clients
kafka         real brokers and clients, under aiocontroller and under Kafka's own controller
strikes       ``up --storm``: a broker or the controller dies now and then; no verdict
============  ===================================================================================
"""
