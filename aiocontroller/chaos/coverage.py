"""What runs have reached, and what never: so that "no violation" can be told from "nothing happened".

Four kinds of marks, each counted:
 * ``event/<event>/<outcome>/<fault>``: an event was processed while this fault was in force (``-``: none was), and how
   it ended (done, session expired, controller moved);
 * ``partition/<from>/<to>`` and ``replica/<from>/<to>``: edges of the state machines, refused ones with ``!``;
 * ``log/<module>: <message>``: every log statement of the controller and of the ZooKeeper session is a probe for the
   path that it stands on.  The list of those that exist is read from the source;
 * ``probe/<name>``: what the checkers saw (answers of AlterPartition by code, ISRs that grew and shrank).
"""

from __future__ import annotations

import ast
import importlib
import logging
import pkgutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiocontroller.controller import kafka_controller
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core import states

Marks = Counter[str]

PROBED = ("aiocontroller.controller", "aiocontroller.zookeeper")
PROBES = (
    "ISR grows",
    "ISR shrinks",
    "unclean election",
    "stray replica",
    "stale read",
    "overtaken on another connection",
    "clocks of different speed",
    "wall clock set",
    "slow disk",
    "crash at an await point",
    "a controller named as a replica",
)
"""What a campaign must have seen, each named where it is counted (``ZNodeHistory.probe``, ``Simulation``)."""
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR, "log": logging.INFO}


class _LogProbes(logging.Handler):
    def __init__(self, marks: Marks) -> None:
        super().__init__(logging.INFO)
        self._marks = marks

    def emit(self, record: logging.LogRecord) -> None:
        self._marks[f"log/{record.name.removeprefix('aiocontroller.')}: {record.msg}"] += 1


@contextmanager
def watching(marks: Marks) -> Iterator[None]:
    """Count log statements and state machine edges of everything that runs inside."""
    handler = _LogProbes(marks)
    loggers = [logging.getLogger(name) for name in PROBED]
    before = [(logger.level, logger.propagate) for logger in loggers]
    partition_check, replica_check = psm.check_valid_previous_states, rsm.check_valid_previous_states

    def partitions(table: Any, pids: Any, target: Any) -> Any:
        checked = partition_check(table, pids, target)
        for mark, found in (("", checked.valid), ("!", checked.refused)):
            for pid in found:
                marks[f"partition/{states.PartitionState(table.state[pid]).name}/{mark}{target.name}"] += 1
        return checked

    def replicas(table: Any, wanted: Any, target: Any) -> Any:
        checked = replica_check(table, wanted, target)
        for mark, found in (("", checked.valid), ("!", checked.refused)):
            for broker, pids in found.items():
                for pid in pids:
                    marks[f"replica/{table.replica_state(pid, broker).name}/{mark}{target.name}"] += 1
        return checked

    for logger in loggers:
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
    setattr(psm, "check_valid_previous_states", partitions)  # noqa: B010  (mypy would not let a function be replaced)
    setattr(rsm, "check_valid_previous_states", replicas)  # noqa: B010
    try:
        yield
    finally:
        setattr(psm, "check_valid_previous_states", partition_check)  # noqa: B010
        setattr(rsm, "check_valid_previous_states", replica_check)  # noqa: B010
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


def everything() -> list[str]:
    """Every mark but the fault-dependent ones: events, legal edges, probes, log statements at INFO and above."""
    marks = [f"event/{event.__name__}" for event in (*kafka_controller.HANDLERS, *kafka_controller.GATHERED)]
    marks += [
        f"partition/{source.name}/{target.name}"
        for target, sources in states.VALID_PREVIOUS_PARTITION_STATES.items()
        for source in sorted(sources)
    ]
    marks += [
        f"replica/{source.name}/{target.name}"
        for target, sources in states.VALID_PREVIOUS_REPLICA_STATES.items()
        for source in sorted(sources)
    ]
    marks += [f"probe/{name}" for name in PROBES]
    return marks + sorted(_log_statements())


def _log_statements() -> Iterator[str]:
    for name in PROBED:
        package = importlib.import_module(name)
        for found in pkgutil.iter_modules(package.__path__):
            source = Path(package.__path__[0], f"{found.name}.py").read_text()
            module = f"{name.removeprefix('aiocontroller.')}.{found.name}"
            for node in ast.walk(ast.parse(source)):
                if _is_log_call(node):
                    assert isinstance(node, ast.Call)
                    text = next((a.value for a in node.args if isinstance(a, ast.Constant)), None)
                    if isinstance(text, str):
                        yield f"log/{module}: {text}"


def _is_log_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "log"
        and node.func.attr in _LEVELS
    )


class Coverage:
    """Marks of many runs together."""

    def __init__(self) -> None:
        self.marks: Marks = Counter()

    def add(self, marks: dict[str, int]) -> None:
        self.marks.update(marks)

    def reached(self) -> set[str]:
        """The marks in the form in which ``everything`` lists them."""
        events = {f"event/{mark.split('/')[1]}" for mark in self.marks if mark.startswith("event/")}
        return events | {mark for mark in self.marks if not mark.startswith("event/")}

    def never_reached(self) -> list[str]:
        reached = self.reached()
        return [mark for mark in everything() if mark not in reached]

    def tuples(self) -> int:
        """Different (event, outcome, fault)."""
        return sum(mark.startswith("event/") for mark in self.marks)

    def refused(self) -> list[str]:
        """State changes that were asked for and are not legal."""
        return sorted(mark for mark in self.marks if "/!" in mark)
