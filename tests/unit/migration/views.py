"""A cluster on its way to KRaft, in which all is well, and changes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.migration.answers import IBP, VOTERS, MigrationAnswers, Node
from aiocontroller.migration.carried import What
from aiocontroller.migration.view import MigrationView
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.messages import MetadataPartition, MetadataResponse, MetadataTopic
from aiocontroller.wire.quorum import DescribedQuorum, QuorumReplica
from aiocontroller.zookeeper.cluster_tree import ClusterTree, Partition
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode
from aiocontroller.zookeeper.znodes import ControllerZNode

VOTER_IDS = (3000, 3001, 3002)
A0 = TopicPartition("a", 0)
STATE = LeaderAndIsr(1, 4, (1, 2), 7, 0)
OF_ZOOKEEPER = {int(ApiKey.LEADER_AND_ISR): VersionRange(0, 7), int(ApiKey.FETCH): VersionRange(0, 17)}
OF_KRAFT = {int(ApiKey.DESCRIBE_QUORUM): VersionRange(0, 2), int(ApiKey.FETCH): VersionRange(0, 17)}
SETTINGS = {IBP: "3.9-IV0", VOTERS: ",".join(f"{n}@h:{n}" for n in VOTER_IDS), "log.dirs": "/a"}
METADATA = MetadataResponse((), (MetadataTopic("a", partitions=(MetadataPartition(0, 1, 4, (1, 2), (2, 1)),)),))
QUORUM = DescribedQuorum(
    0,
    3000,
    5,
    1000,
    tuple(QuorumReplica(n, 1000) for n in VOTER_IDS),
    tuple(QuorumReplica(n, 1000) for n in (1, 2)),
)
NOTHING: dict[What, frozenset[str]] = dict.fromkeys(What, frozenset())
"""Beside topics."""
AT = Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT")

Change = Callable[[MigrationView], MigrationView]


def broker(number: int, **changes: Any) -> Node:
    """In migration mode."""
    node = Node(number, AT, OF_ZOOKEEPER, True, {}, SETTINGS, METADATA)
    return msgspec.structs.replace(node, **changes)


def controller(number: int, **changes: Any) -> Node:
    node = Node(number, AT, OF_KRAFT, True, {"metadata.version": 21}, {}, None, QUORUM)
    return msgspec.structs.replace(node, **changes)


def view() -> MigrationView:
    """Dual write: brokers 1 and 2 are in migration mode, and have topic a."""
    assignment = ReplicaAssignment((1, 2))
    tree = ClusterTree(
        holder=ControllerZNode(3000, 0, 0, 0, 5),
        controller_epoch=7,
        brokers={number: Broker(number, number, ()) for number in (1, 2)},
        unreadable_brokers=frozenset(),
        topics={"a": TopicAssignment("a", b"a" * 16, {0: assignment})},
        partitions=[Partition(A0, assignment, STATE)],
        without_state=frozenset(),
        znodes_below={"a": ("0",)},
        deletions=[],
        reassignment=None,
        preferred_election=None,
        isr_notifications=[],
        topic_configs={},
        broker_configs={},
        known_controllers=frozenset({1_000_001}),
        debts=[],
        migration=MigrationZNode(3000, 5, 999, 5),
        cluster_id="c",
        bad=[],
    )
    return MigrationView(
        tree, MigrationAnswers({n: broker(n) for n in (1, 2)}, {n: controller(n) for n in VOTER_IDS}, {}), NOTHING
    )


def tree(**fields: object) -> Change:
    return lambda view: msgspec.structs.replace(view, tree=msgspec.structs.replace(view.tree, **fields))


def nodes(brokers: Mapping[int, Node] | None = None, controllers: Mapping[int, Node] | None = None) -> Change:
    """These in the place of those that there are."""

    def change(view: MigrationView) -> MigrationView:
        answers = view.answers._replace(
            brokers=view.answers.brokers | (brokers or {}), controllers=view.answers.controllers | (controllers or {})
        )
        return msgspec.structs.replace(view, answers=answers)

    return change


def gone(*numbers: int) -> Change:
    """Brokers that do not answer and are not registered."""

    def change(view: MigrationView) -> MigrationView:
        brokers = {n: node for n, node in view.answers.brokers.items() if n not in numbers}
        registered = {n: b for n, b in view.tree.brokers.items() if n not in numbers}
        return tree(brokers=registered)(msgspec.structs.replace(view, answers=view.answers._replace(brokers=brokers)))

    return change


def in_kraft_mode(*numbers: int) -> Change:
    """Brokers that were restarted in KRaft mode."""

    def change(view: MigrationView) -> MigrationView:
        registered = {n: b for n, b in view.tree.brokers.items() if n not in numbers}
        kraft = {n: broker(n, versions=OF_KRAFT, ready=False, settings={}) for n in numbers}
        return nodes(kraft)(tree(brokers=registered)(view))

    return change


def all_of(*changes: Change) -> Change:
    def change(view: MigrationView) -> MigrationView:
        for each in changes:
            view = each(view)
        return view

    return change


NOT_BEGUN = all_of(
    tree(holder=ControllerZNode(1, 1, 0, 0), migration=None),
    nodes({n: broker(n, ready=False, settings=SETTINGS | {VOTERS: ""}) for n in (1, 2)}),
    lambda view: msgspec.structs.replace(view, answers=view.answers._replace(controllers={})),
)
WAITING = all_of(tree(holder=ControllerZNode(1, 1, 0, 0), migration=MigrationZNode(-1, -1, -1, -1)))
COPYING = tree(migration=MigrationZNode(3000, 5, -1, -1))
READY = in_kraft_mode(1, 2)
FINALIZED = all_of(READY, nodes(controllers={n: controller(n, ready=False) for n in VOTER_IDS}))
ROLLED_BACK = tree(holder=ControllerZNode(1, 1, 0, 0))
