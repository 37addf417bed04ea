"""Bugs that lose data: found by the records alone, with every other check silent (I13, I14).

Some are bugs of the controller from ``zoo_bugs``, which other checks find sooner; here they must be found by what they
lose.  Most of the others are bugs of brokers, which show whether the checks of records would find one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiocontroller.core import election
from aiocontroller.core.election import ElectionOutcome
from aiocontroller.lab.cluster import replica_manager, replication
from aiocontroller.lab.cluster.client_requests import ClientRequests
from aiocontroller.lab.cluster.logs import Disk, Log
from aiocontroller.lab.cluster.partition import Partition
from aiocontroller.lab.cluster.replica_manager import ReplicaManager
from aiocontroller.lab.cluster.replication import FetchAnswer, Leading
from aiocontroller.lab.simulation.zoo import Bug, Patch
from aiocontroller.lab.simulation.zoo_bugs import BUGS
from aiocontroller.lab.simulation.zoo_eligible import ELIGIBLE_BUGS
from aiocontroller.lab.simulation.zoo_mutants import MUTANT_BUGS
from aiocontroller.lab.simulation.zoo_standby import STANDBY_BUGS


def _again(name: str) -> Bug:
    bug = next(bug for bug in BUGS if bug.name == name)
    return bug._replace(name=f"data: {name}", data=True)


def _prefers_replicas_out_of_sync() -> list[Patch]:
    def elect(replicas: Any, in_sync: Any, online: Any, *_: Any) -> ElectionOutcome | None:
        return ElectionOutcome(replicas[0], in_sync, replicas) if replicas and replicas[0] in online else None

    return [(election, "preferred_replica_partition_leader_election", elect)]


def _never_truncates() -> list[Patch]:
    original = replication.take_answer

    def take(log: Log, answer: FetchAnswer) -> tuple[bool, bool]:
        if answer.diverging is None:
            return original(log, answer)
        log.runs = [run._replace(epoch=min(run.epoch, answer.leader_epoch - 1)) for run in log.runs]
        return False, False

    return [(replica_manager, "take_answer", take)]


def _truncates_to_its_high_watermark() -> list[Patch]:
    """As before KIP-101."""
    original = ReplicaManager._make_follower

    def follow(self: ReplicaManager, partition: Partition) -> None:
        if partition.stored is not None:
            partition.stored.log.truncate(partition.stored.log.hw)
        original(self, partition)

    return [(ReplicaManager, "_make_follower", follow)]


def _pending_isr_ignored() -> list[Patch]:
    def raise_hw(self: ReplicaManager, partition: Partition) -> None:
        if partition.leading is not None and partition.leading.raise_hw(partition.isr, lambda _: False, self._now_ms):
            self.progressed(partition)

    return [(ReplicaManager, "raise_hw", raise_hw)]


def _commits_alone() -> list[Patch]:
    original = Leading.raise_hw

    def raise_hw(self: Leading, isr: Any, others: Any, now_ms: int) -> bool:
        return original(self, (self.leader,), lambda _: False, now_ms)

    return [(Leading, "raise_hw", raise_hw)]


async def _acknowledged_at_once(self: ClientRequests, *_: Any) -> int:
    return 0


def _all_that_a_follower_has_is_committed() -> list[Patch]:
    original = replication.take_answer

    def take(log: Log, answer: FetchAnswer) -> tuple[bool, bool]:
        taken = original(log, answer)
        log.hw = log.end
        return taken

    return [(replica_manager, "take_answer", take)]


def _live_replicas_join_the_isr() -> list[Patch]:
    original = election.offline_partition_leader_election

    def elect(*args: Any) -> ElectionOutcome | None:
        outcome = original(*args)
        return None if outcome is None else outcome._replace(isr=outcome.recipients)

    return [(election, "offline_partition_leader_election", elect)]


def _new(name: str, source: str, patches: Callable[[], list[Patch]]) -> Bug:
    return Bug(f"data: {name}", source, patches, data=True)


DATA_BUGS = [
    _again("a leader is elected from outside the ISR"),
    _again("unclean elections happen although they are off"),
    _again("an ISR shrinks within its leader epoch"),
    _again("writes carry no fence"),
    _again("AlterPartition: both epochs ignored"),
    _again("AlterPartition: answered but not written"),
    _again("reassignment ends before replicas are in sync"),
    _again("an override deletes all in-sync replicas"),
    _new("the preferred replica leads without being in sync", "KAFKA-9866", _prefers_replicas_out_of_sync),
    _new("a follower keeps what its leader does not have", "KIP-101", _never_truncates),
    _new("a follower truncates to its high watermark", "KIP-101", _truncates_to_its_high_watermark),
    _new(
        "a follower joins the ISR whatever it has",
        "KAFKA-7128",
        lambda: [(Leading, "may_join", lambda self, follower: True)],
    ),
    _new("the ISR that may be in force already does not count", "KIP-497", _pending_isr_ignored),
    _new("a leader commits what it has alone", "design", _commits_alone),
    _new(
        "a leader acknowledges acks=all at once",
        "design",
        lambda: [(ClientRequests, "_committed", _acknowledged_at_once)],
    ),
    _new("a follower takes all that it has for committed", "design", _all_that_a_follower_has_is_committed),
    _new("a broker starts with an empty disk", "KAFKA-15495", lambda: [(Disk, "reopen", lambda self: Disk())]),
    _new("an election puts all live replicas into the ISR", "design", _live_replicas_join_the_isr),
]
ALL_BUGS = [*BUGS, *DATA_BUGS, *ELIGIBLE_BUGS, *STANDBY_BUGS, *MUTANT_BUGS]
