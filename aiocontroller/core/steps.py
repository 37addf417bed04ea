"""A handler's steps as values, for the driver that carries them out (``controller/steps.py``).

A decision that depends on what came of an earlier one is a generator of steps: it reads the context, yields the next
step, and gets back what came of it, by ``result = yield from step``.  It changes nothing itself.  When it goes on, the
driver has written to ZooKeeper, and has applied to the context what ZooKeeper accepted.  So a test needs no event loop:
it compares the steps, and answers them itself.

Requests to brokers are collected in a batch, which ``SendRequests`` sends; the next step that adds one begins another.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from aiocontroller.core.context_changes import ContextChange
from aiocontroller.core.effects import Effects, Replicas
from aiocontroller.core.election import Strategy
from aiocontroller.core.event_kinds import Event
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.core.states import ReplicaState

R = TypeVar("R")


@dataclass(frozen=True)
class Step(Generic[R]):
    """One step; ``R`` is the type of what comes of it."""

    def __iter__(self) -> Generator[Step[Any], Any, R]:
        return (yield self)  # type: ignore[no-any-return]


Steps: TypeAlias = Generator[Step[Any], Any, R]
"""Steps that end with a result of type R."""


# -- the context, and requests to brokers ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Apply(Step[None]):
    """Change the context; no request follows."""

    change: Effects | ContextChange


@dataclass(frozen=True)
class CarryOut(Step[None]):
    """Record the effects, apply them to the context, add their requests to the batch, and give their answers."""

    effects: Effects


@dataclass(frozen=True)
class HoldRequests(Step[None]):
    """Send nothing of what follows before ``SendRequests``: ZooKeeper does not yet hold what the context will hold."""


@dataclass(frozen=True)
class SendRequests(Step[None]):
    """Send the batch, even an empty one."""


@dataclass(frozen=True)
class SendMetadata(Step[None]):
    """Send brokers an UpdateMetadata at once, with the live brokers and these partitions."""

    brokers: Sequence[int]
    rows: Sequence[int] = ()


@dataclass(frozen=True)
class Breathe(Step[None]):
    """Let other tasks run; the context stays the same."""


# -- leaderships and replicas ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ElectLeaders(Step[frozenset[int]]):
    """Move partitions to OnlinePartition.  Returns the rows that got a leader by an election among their replicas."""

    rows: Sequence[int]
    strategy: Strategy


@dataclass(frozen=True)
class MoveReplicas(Step[None]):
    """Move replicas to a state; illegal transitions are logged and skipped."""

    replicas: Replicas
    state: ReplicaState


@dataclass(frozen=True)
class ShrinkIsrs(Step[Mapping[int, str]]):
    """Remove replicas, broker -> rows, from ISRs.  Returns row -> why they stay."""

    replicas: Replicas


@dataclass(frozen=True)
class RaiseLeaderEpochs(Step[Sequence[int]]):
    """Raise leader epochs by one.  Returns the rows whose epochs were raised."""

    rows: Sequence[int]


@dataclass(frozen=True)
class FollowIsrs(Step[None]):
    """Read and watch these partitions' states where leaders write ISRs themselves."""

    rows: Sequence[int]


# -- assignments, debts and deletions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class WriteAssignments(Step[Mapping[int, str]]):
    """Write the assignments of rows, and the debts of replicas (row -> brokers) that they remove.

    Returns row -> why its assignment was not written.
    """

    wanted: Mapping[int, ReplicaAssignment]
    removed: Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class ReasonAgainstSize(Step["str | None"]):
    """Returns why the topic's znode would be too large with this assignment; None if it fits."""

    assignment: TopicAssignment
    reassigned: int
    """Number of partitions with a new assignment."""


@dataclass(frozen=True)
class OweDeletions(Step[None]):
    """Record the debts of brokers, row -> brokers, that are not replicas."""

    removed: Mapping[int, Sequence[int]]
    why: str


@dataclass(frozen=True)
class AskForDebts(Step[None]):
    """Ask a broker for the deletions that it owes, except those that an operator has given up meanwhile."""

    broker: int


@dataclass(frozen=True)
class HaltDeletions(Step[None]):
    """Queued deletions of these topics wait until they are resumed."""

    topics: Sequence[str]
    why: str


@dataclass(frozen=True)
class ResumeDeletions(Step[None]):
    """Nothing blocks the deletion of these topics any longer, if one is queued."""

    topics: Sequence[str]


# -- what ZooKeeper holds besides --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadRequestedReassignments(Step["Mapping[TopicPartition, Sequence[int]] | None"]):
    """Returns what ``/admin/reassign_partitions`` asks for; None if it does not exist or cannot be read."""

    watch: bool


@dataclass(frozen=True)
class WriteRequestedReassignments(Step[None]):
    """Write the entries into ``/admin/reassign_partitions``; without entries, the znode is deleted."""

    entries: Mapping[TopicPartition, Sequence[int]]


@dataclass(frozen=True)
class LoadKnownControllers(Step[None]):
    """Read which broker ids are controllers', and drop those of registered brokers."""


# -- later, and for people ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Enqueue(Step[None]):
    """Put an event into the queue."""

    event: Event


@dataclass(frozen=True)
class Schedule(Step[None]):
    """Enqueue the event after a delay; a timer of the same name is replaced."""

    name: str
    delay_s: float
    event: Event


@dataclass(frozen=True)
class RecordReassigned(Step[None]):
    """Reassignments are complete."""

    cancelled: Mapping[int, bool]
    """row -> whether it went back to where it was before."""


@dataclass(frozen=True)
class WriteToLog(Step[None]):
    """Write a line into the log."""

    severity: Literal["info", "warning", "error"]
    text: str
