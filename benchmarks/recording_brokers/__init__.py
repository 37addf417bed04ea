"""Brokers that only listen, many in one process: they answer at once, keep the bytes, and read them when asked.

``broker`` is one of them, ``views`` what it has been told, ``isr`` what it asks of the controller by AlterPartition,
``__main__`` the process with its commands.  ``benchmarks.controller.preloaded_cluster`` drives it.
"""
