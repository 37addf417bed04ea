"""Counts what runs have reached, to distinguish "no violation" from "nothing happened".

There are five kinds of marks, each with a count:
 * ``event/<event>/<outcome>/<fault>``: an event was processed while this fault was in force (``-``: no fault), and its
   outcome (done, session expired, controller moved);
 * ``partition/<from>/<to>`` and ``replica/<from>/<to>``: edges of the state machines; refused ones have a ``!``;
 * ``log/<module>: <message>``: every log statement of the controller and of the ZooKeeper session is a probe for its
   code path.  The list of log statements is read from the source;
 * ``sickness/<event>/<kind>``: the journal's records about sick brokers;
 * ``probe/<name>``: observations of the checkers (answers to AlterPartition by error code, ISRs that grew and shrank).
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

from aiocontroller.controller import event_handlers
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core import states
from aiocontroller.core.sickness import CPU, DISK, NETWORK_IN, NETWORK_OUT
from aiocontroller.lab.cluster.generations import GENERATIONS
from aiocontroller.lab.scenarios.fleet import PROTOCOLS
from aiocontroller.lab.simulation.bounces import AS_ONE_CHANGE, AS_TWO_CHANGES

Marks = Counter[str]

PROBED = ("aiocontroller.controller", "aiocontroller.zookeeper")
PROBES = (
    "ISR grows",
    "ISR shrinks",
    "unclean election",
    "debt paid",
    "stale read",
    "overtaken on another connection",
    "clocks of different speed",
    "small limits",
    "drawn order of tasks",
    "an authorizer",
    "wall clock set",
    "slow disk",
    "crash at an await point",
    "a controller named as a replica",
    "a broker's file is changed",
    "a dynamic setting is changed",
    AS_ONE_CHANGE,
    AS_TWO_CHANGES,
)
"""Marks that a campaign must reach; ``ZNodeHistory.probe`` and ``Simulation`` count them."""
PROBES_OF_DATA = (
    "acks=all",
    "acks=1",
    "records read",
    "records lost with the power",
    "old records deleted",
    "a follower begins where its leader's log begins",
    "I13 excused: an unclean election",
    "I13 excused: lost power or a lost disk",
)
"""Those of seeds whose brokers keep logs."""
PROBES_OF_RELEASES = (
    *(f"a broker of {release}" for release in GENERATIONS),
    *(f"inter-broker protocol {protocol}" for protocol in PROTOCOLS),
    "brokers of several releases",
    "an ISR written by its leader",
    "a broker's release is rolled",
    "a broker's protocol is rolled",
)
"""The same for the releases and protocols of the brokers."""
SICKNESS = (
    *(f"{event}/{kind}" for event in ("sick", "well again") for kind in (DISK, NETWORK_IN, NETWORK_OUT, CPU)),
    *(f"{event}/None" for event in ("held", "relieved", "unlisted", "taken back")),
)
"""Verdicts, and what follows; see ``sickness``."""
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR, "log": logging.INFO}


class _LogProbes(logging.Handler):
    def __init__(self, marks: Marks) -> None:
        super().__init__(logging.INFO)
        self._marks = marks

    def emit(self, record: logging.LogRecord) -> None:
        self._marks[f"log/{record.name.removeprefix('aiocontroller.')}: {record.msg}"] += 1


@contextmanager
def watching(marks: Marks) -> Iterator[None]:
    """Count the log statements and state machine edges of everything that runs in this context."""
    handler = _LogProbes(marks)
    loggers = [logging.getLogger(name) for name in PROBED]
    before = [(logger.level, logger.propagate) for logger in loggers]
    partition_check, replica_check = psm.check_valid_previous_states, rsm.check_valid_previous_states

    def partitions(table: Any, rows: Any, target: Any) -> Any:
        checked = partition_check(table, rows, target)
        for mark, found in (("", checked.valid), ("!", checked.refused)):
            for row in found:
                marks[f"partition/{states.PartitionState(table.state[row]).name}/{mark}{target.name}"] += 1
        return checked

    def replicas(table: Any, wanted: Any, target: Any) -> Any:
        checked = replica_check(table, wanted, target)
        for mark, found in (("", checked.valid), ("!", checked.refused)):
            for broker, rows in found.items():
                for row in rows:
                    marks[f"replica/{table.replica_state(row, broker).name}/{mark}{target.name}"] += 1
        return checked

    for logger in loggers:
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
    setattr(psm, "check_valid_previous_states", partitions)  # noqa: B010  (mypy refuses an assignment)
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
    """Return every mark that does not depend on a fault: events, legal edges, probes, log statements from INFO up."""
    marks = [f"event/{event.__name__}" for event in (*event_handlers.HANDLERS, *event_handlers.GATHERED)]
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
    marks += [f"probe/{name}" for name in (*PROBES, *PROBES_OF_DATA, *PROBES_OF_RELEASES)]
    marks += [f"sickness/{name}" for name in SICKNESS]
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
    """The marks of many runs, combined."""

    def __init__(self) -> None:
        self.marks: Marks = Counter()

    def add(self, marks: dict[str, int]) -> None:
        self.marks.update(marks)

    def reached(self) -> set[str]:
        """Return the marks in the form in which ``everything`` lists them."""
        events = {f"event/{mark.split('/')[1]}" for mark in self.marks if mark.startswith("event/")}
        return events | {mark for mark in self.marks if not mark.startswith("event/")}

    def never_reached(self) -> list[str]:
        reached = self.reached()
        return [mark for mark in everything() if mark not in reached]

    def tuples(self) -> int:
        """Return the number of different (event, outcome, fault) tuples."""
        return sum(mark.startswith("event/") for mark in self.marks)

    def refused(self) -> list[str]:
        """Return the illegal state changes that were requested."""
        return sorted(mark for mark in self.marks if "/!" in mark)
