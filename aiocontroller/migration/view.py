"""The state of a migration, from what ZooKeeper holds and what brokers and KRaft controllers answered.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from aiocontroller.core.ids import TopicPartition
from aiocontroller.migration.answers import METADATA_VERSION, MigrationAnswers, Node
from aiocontroller.migration.carried import Reported, Stored
from aiocontroller.wire.quorum import DescribedQuorum
from aiocontroller.zookeeper.cluster_tree import ClusterTree

METADATA_VERSIONS = {
    8: "3.4-IV0", 9: "3.5-IV0", 10: "3.5-IV1", 11: "3.5-IV2", 12: "3.6-IV0", 13: "3.6-IV1", 14: "3.6-IV2",
    15: "3.7-IV0", 16: "3.7-IV1", 17: "3.7-IV2", 18: "3.7-IV3", 19: "3.7-IV4", 20: "3.8-IV0", 21: "3.9-IV0",
}  # fmt: skip
"""Level of ``metadata.version`` -> its name; a migration needs 8."""


class MigrationPhase(StrEnum):
    """Where the migration stands."""

    NOT_BEGUN = "not begun"
    WAITING = "provisioned, waiting for the brokers"
    COPYING = "claimed, copying to KRaft"
    DUAL_WRITE = "dual write"
    MOVING_BROKERS = "dual write, brokers are moving to KRaft mode"
    READY_TO_FINALIZE = "dual write, all brokers in KRaft mode"
    FINALIZED = "finalized"
    ROLLED_BACK = "rolled back by hand, and /migration is left"


CLAIMED = frozenset(
    {
        MigrationPhase.COPYING,
        MigrationPhase.DUAL_WRITE,
        MigrationPhase.MOVING_BROKERS,
        MigrationPhase.READY_TO_FINALIZE,
        MigrationPhase.FINALIZED,
    }
)
DUAL_WRITES = frozenset({MigrationPhase.DUAL_WRITE, MigrationPhase.MOVING_BROKERS, MigrationPhase.READY_TO_FINALIZE})


class MigrationView(msgspec.Struct, frozen=True):
    """One look."""

    tree: ClusterTree
    answers: MigrationAnswers
    stored: Stored | None
    """What ZooKeeper holds beside topics; None if its ACLs hide that."""
    reported: Reported = {}
    """What ``node_to_ask`` reported about that; empty without such a node."""

    @property
    def kraft_brokers(self) -> frozenset[int]:
        """Brokers that were found in KRaft mode."""
        return frozenset(n for n, node in self.answers.brokers.items() if node.in_kraft_mode)

    @property
    def migrating_brokers(self) -> frozenset[int]:
        """Registered brokers in migration mode."""
        return frozenset(
            n
            for n, node in self.answers.brokers.items()
            if node.ready and n in self.tree.live and not node.in_kraft_mode
        )

    @property
    def quorum(self) -> DescribedQuorum | None:
        """The quorum as its leader describes it; None if no node described it."""
        nodes = (*self.answers.controllers.values(), *self.answers.brokers.values())
        described = [node.quorum for node in nodes if node.quorum is not None and node.quorum.leader >= 0]
        return max(described, key=lambda quorum: (quorum.leader_epoch, quorum.high_watermark), default=None)

    @property
    def node_to_ask(self) -> Node | None:
        """The node to ask for what KRaft has beside topics: a broker in KRaft mode, otherwise the active controller.

        Brokers in migration mode would answer with what ZooKeeper has.
        """
        if not self.kraft_is_active:
            return None
        if self.kraft_brokers:
            return self.answers.brokers[min(self.kraft_brokers)]
        return None if self.quorum is None else self.answers.controllers.get(self.quorum.leader)

    @property
    def metadata_version(self) -> int | None:
        """The quorum's level; None if no controller reported it."""
        levels = (node.features.get(METADATA_VERSION) for node in self.answers.controllers.values())
        return max((level for level in levels if level is not None), default=None)

    @property
    def kraft_is_active(self) -> bool:
        """Whether ``/controller`` names a KRaft controller."""
        return self.tree.holder is not None and self.tree.holder.kraft_controller_epoch > 0

    @property
    def behind_records(self) -> int | None:
        """Records of the metadata log that ZooKeeper lacks; None outside dual write, or if it is unknown."""
        quorum, migration = self.quorum, self.tree.migration
        if quorum is None or migration is None or self.phase not in DUAL_WRITES:
            return None
        return max(0, quorum.high_watermark - 1 - migration.kraft_metadata_offset)

    @property
    def highest_state_epoch(self) -> int:
        """The highest controller epoch of all partition states; -1 without states."""
        return max((p.state.controller_epoch for p in self.tree.partitions if p.state is not None), default=-1)

    @property
    def phase(self) -> MigrationPhase:
        """The phase, by ZooKeeper; nodes' answers only decide on ``FINALIZED`` and ``MOVING_BROKERS``."""
        migration = self.tree.migration
        if not self.kraft_is_active:
            if migration is None:
                return MigrationPhase.NOT_BEGUN
            return MigrationPhase.ROLLED_BACK if migration.claimed else MigrationPhase.WAITING
        controllers = self.answers.controllers.values()
        if controllers and not any(node.ready for node in controllers):
            return MigrationPhase.FINALIZED
        if migration is None or migration.kraft_metadata_offset <= 0:
            return MigrationPhase.COPYING
        if not self.tree.live:
            return MigrationPhase.READY_TO_FINALIZE
        return MigrationPhase.MOVING_BROKERS if self.kraft_brokers else MigrationPhase.DUAL_WRITE

    def with_all_brokers(self) -> ClusterTree:
        """Return the tree as if brokers in KRaft mode were registered: they are live, but not in ZooKeeper."""
        others = self.tree.unreadable_brokers | self.kraft_brokers
        return msgspec.structs.replace(self.tree, unreadable_brokers=others)


class Difference(NamedTuple):
    """A partition on which a broker and ZooKeeper disagree."""

    broker: int
    partition: TopicPartition
    on_broker: str
    in_zookeeper: str


def differences(view: MigrationView) -> Iterator[Difference]:
    """Compare leaders, epochs and ISRs in the brokers' Metadata, which comes from the quorum, with the state znodes."""
    deleting = set(view.tree.deletions)
    states = {
        each.name: (each.state.leader, each.state.leader_epoch, frozenset(each.state.isr))
        for each in view.tree.partitions
        if each.state is not None and each.name.topic not in deleting
    }
    for number, node in sorted(view.answers.brokers.items()):
        if node.metadata is not None:
            yield from _of_broker(number, node, states, deleting)


def _of_broker(
    number: int, node: Node, states: Mapping[TopicPartition, tuple[int, int, frozenset[int]]], deleting: set[str]
) -> Iterator[Difference]:
    assert node.metadata is not None
    seen = set()
    for topic in node.metadata.topics:
        for partition in topic.partitions:
            name = TopicPartition(topic.name or "", partition.partition)
            seen.add(name)
            reported = partition.leader, partition.leader_epoch, frozenset(partition.isr)
            stored = states.get(name)
            if partition.error_code == 0 and reported != stored and name.topic not in deleting:
                yield Difference(number, name, _text(reported), "nothing" if stored is None else _text(stored))
    for name, stored in states.items():
        if name not in seen:
            yield Difference(number, name, "nothing", _text(stored))


def _text(leadership: tuple[int, int, frozenset[int]]) -> str:
    leader, epoch, isr = leadership
    return f"leader {leader}, leader epoch {epoch}, ISR {sorted(isr)}"
