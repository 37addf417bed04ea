"""Seeds on a Spark cluster: a seed is a pure function of its number, so a campaign is a map.

Workers need the laboratory installed, in the same version.  Results come back in batches of some seeds for each core;
an interrupted campaign loses the batch that is under way.
"""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import msgspec

from aiocontroller.lab.simulation.report import SimulationReport

RUNS_PER_CORE = 8
"""Runs of a batch for each core: so many that a long run hardly delays the others."""


T = TypeVar("T")


def on_spark(
    master: str, work: Callable[[T], list[SimulationReport]], items: Iterable[T], due: Callable[[], bool]
) -> Iterator[tuple[T, list[SimulationReport]]]:
    """Yield each item with its reports, batch by batch, until ``due``.  ``PipelineMissingError`` without PySpark."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    session = importlib.import_module("aiocontroller.analytics.session").spark_session(
        master, app_name="aiocontroller simulate", for_little=True
    )
    for number, handler in handlers.items():
        signal.signal(number, handler)  # Spark installs its own, which would lose the batch
    context: Any = session.sparkContext
    waiting = iter(items)
    while not due() and (batch := list(islice(waiting, RUNS_PER_CORE * context.defaultParallelism))):
        mapped = context.parallelize(batch, len(batch)).map(lambda item: msgspec.json.encode(work(item)))
        for item, line in zip(batch, mapped.collect(), strict=True):
            yield item, msgspec.json.decode(line, type=list[SimulationReport])
