"""What a change of leaderships consists of, for the driver that carries it out (``controller/leadership_writes``).

The driver takes four steps with each piece of a change.  *Plan*: ``LeadershipChange.plan``, a pure function of the
context and of the facts that the driver has read, returns a plan, whose decisions say what to write.  *Write*:
ZooKeeper accepts some of it.  *Apply*: ``LeadershipPlan.effects``, a pure function of what was written, says what
follows, and the context takes it in.  *Send*: the effects fill the request batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.effects import Effects
from aiocontroller.core.election import NEVER_UNCLEAN, NO_MIN_ISRS, UncleanPolicy
from aiocontroller.core.ids import MinIsr


class LeadershipFacts(NamedTuple):
    """What a plan depends on besides the context; read just before it is made."""

    unclean: UncleanPolicy = NEVER_UNCLEAN
    recovery_supported: bool = True
    """Brokers know the leader recovery state (inter.broker.protocol.version >= 3.2)."""
    min_isrs: Mapping[str, MinIsr] = NO_MIN_ISRS
    """``min.insync.replicas`` of topics whose partitions have eligible replicas."""


class Written(NamedTuple):
    """What became of a plan's decisions."""

    done: Decisions
    """Those that ZooKeeper has accepted; the context holds them, too."""
    conflicts: Sequence[int] = ()
    """Rows whose state znode has another version than expected: another process wrote it."""
    again: Sequence[int] = ()
    """Those of them whose new state the context has adopted, so that the change is decided again."""


class LeadershipPlan(Protocol):
    """The decisions about a piece of a change."""

    @property
    def decisions(self) -> Decisions:
        """The states to write."""

    def effects(self, context: ControllerContext, written: Written) -> Effects:
        """What follows from the states that were written."""


P = TypeVar("P", bound=LeadershipPlan)


class LeadershipChange(ABC, Generic[P]):
    """New leaderships for partitions.  Changes nothing itself; keeps account of what the driver has achieved."""

    creates: ClassVar[bool] = False
    """The partitions' state znodes do not exist yet."""
    recorded: ClassVar[bool] = True
    """Whether the journal has a record of each write."""
    at_once: int | None = None
    """The most rows of one plan; None: as many as one step has."""

    def __init__(self, rows: Sequence[int] = ()) -> None:
        self.undecided = rows
        """rows still to be decided, or to be decided again after a foreign write that the context has adopted."""
        self.done: list[int] = []
        self.failed: dict[int, str] = {}
        """row -> why it stays unchanged."""

    def topics_asked_for(self, context: ControllerContext, rows: Sequence[int]) -> list[str]:
        """Topics on whose settings (``LeadershipFacts``) the plan depends."""
        return []

    @abstractmethod
    def plan(self, context: ControllerContext, rows: Sequence[int], facts: LeadershipFacts) -> P:
        """Plan a piece without changing anything: an earlier piece may still be in flight."""

    def needs_confirmation(self, plan: P) -> bool:
        """Whether the effects hold only for the active controller, although nothing is written under the fence."""
        return False

    def carried_out(self, plan: P, effects: Effects) -> None:  # most changes need nothing of it
        """Called when a piece has been written, with what follows."""

    def doubtful(self, context: ControllerContext) -> list[int]:
        """Called when nothing is undecided or in flight: rows that stale memory may have decided wrongly.

        Their states are read, and those that have changed become undecided again.
        """
        return []

    def reopen(self, changed: Sequence[int]) -> None:
        """Rows have become undecided again."""
        self.undecided = [*self.undecided, *changed]
        for row in changed:
            self.failed.pop(row, None)
