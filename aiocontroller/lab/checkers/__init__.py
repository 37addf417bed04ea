"""Judges of a run: the znodes' history, requests, answers, leaders, and whether the cluster is whole afterwards."""
