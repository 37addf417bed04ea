"""Bugs that are not hand-written: mutants that ``scripts/mutate`` makes (docs/mutation.md).

Each is one small change of one function.  A test compares it with the mutant of the same key.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from aiocontroller.controller import topics
from aiocontroller.controller.event_handlers import HANDLERS
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.core import alter_partition, election
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.events import TopicChange
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.lab.simulation.zoo import MACHINE_MADE, Bug, Patch


class Mutation:
    """A changed function: ``after`` replaces ``before``, which must occur once in the function's source.

    ``key`` is the mutant's key in ``scripts/mutate``; ``handles`` is the event whose handler the function is.
    """

    def __init__(self, owner: Any, key: str, before: str, after: str, handles: Any = None) -> None:
        self.owner = owner
        self.handles = handles
        self.key = key
        self.name = key.split(":")[1].rsplit(".", maxsplit=1)[-1]
        self._before = before
        self._after = after

    def source(self) -> str:
        """Return the changed function's source.  Raises ValueError unless the text to replace occurs exactly once."""
        source = textwrap.dedent(inspect.getsource(vars(self.owner)[self.name]))
        if source.count(self._before) != 1:
            raise ValueError(f"{self.key}: found {source.count(self._before)} times {self._before!r}, expected once")
        return source.replace(self._before, self._after)

    def patches(self) -> list[Patch]:
        original = vars(self.owner)[self.name]
        flags = __future__.annotations.compiler_flag
        made: dict[str, Callable[..., Any]] = {}
        code = compile(self.source(), f"<{self.key}>", "exec", flags)
        exec(code, original.__globals__, made)
        wrong = made[self.name]
        in_table = [] if self.handles is None else [(HANDLERS, self.handles, wrong)]
        return [(self.owner, self.name, wrong), *in_table]


MUTATIONS = (
    Mutation(
        election,
        "core/election.py:offline_partition_leader_election: compare: leader in candidates",
        "if leader in candidates:",
        "if leader not in candidates:",
    ),
    Mutation(
        election,
        "core/election.py:reassign_partition_leader_election: filter removed: r in candidates",
        "(r for r in target if r in candidates)",
        "(r for r in target)",
    ),
    Mutation(
        election,
        "core/election.py:controlled_shutdown_partition_leader_election: compare: r not in shutting_down #2",
        "tuple(r for r in isr if r not in shutting_down)",
        "tuple(r for r in isr if r in shutting_down)",
    ),
    Mutation(
        alter_partition,
        "core/alter_partition.py:check_request: compare: broker.epoch != request.broker_epoch",
        "broker.epoch != request.broker_epoch",
        "broker.epoch == request.broker_epoch",
    ),
    Mutation(
        rsm,
        "core/replica_state_machine.py:plan_offline: operator: leader_epoch + 1",
        "leader_epoch + 1",
        "leader_epoch - 1",
    ),
    Mutation(
        ControllerContext,
        "core/context.py:ControllerContext.hold_back: compare: debt.topic_id != topic.id",
        "debt.topic_id != topic.id",
        "debt.topic_id == topic.id",
    ),
    Mutation(
        RequestBatch,
        "core/request_batch.py:RequestBatch._is_due: and/or: self._context.debts.holds(debt) and "
        "self._context.may_be_deleted(debt)",
        "holds(debt) and",
        "holds(debt) or",
    ),
    Mutation(
        EventQueue,
        "controller/event_queue.py:EventQueue.clear_and_put: statement removed: self.append(event)",
        "self.append(event)",
        "pass",
    ),
    Mutation(
        topics,
        "controller/topics.py:topic_change: statement removed: shell.queue.append(TopicDeletion())",
        "shell.queue.append(TopicDeletion())",
        "pass",
        handles=TopicChange,
    ),
)
MUTANT_BUGS = tuple(
    Bug(f"mutant: {each.name}: {each.key.split(': ', 1)[1]}", f"{MACHINE_MADE} {each.key}", each.patches)
    for each in MUTATIONS
)
