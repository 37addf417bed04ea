"""The controller's decisions: plain functions and tables over many partitions; no I/O, clock, chance, logging or await.

Everything here is deterministic: the same state and the same input give the same output, in the same
order, under any hash seed.  State is mutable and has one owner, the controller's consumer coroutine.
"""
