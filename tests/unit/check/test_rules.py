"""Each kind of finding is found in a cluster that has just that fault, and a healthy cluster has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from aiocontroller.check.findings import Severity
from aiocontroller.check.kinds import KINDS
from aiocontroller.check.rules import all_hits
from aiocontroller.core.ids import RECOVERING, Broker, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.zookeeper.cluster_tree import ClusterTree, Partition
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode
from aiocontroller.zookeeper.debts import Owed
from aiocontroller.zookeeper.znode_access import SHOWN
from aiocontroller.zookeeper.znode_json import BadZNode
from aiocontroller.zookeeper.znodes import ControllerZNode

STATE = LeaderAndIsr(1, 4, (1, 2), 7, 0)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)

Change = Callable[[ClusterTree], ClusterTree]


def tree() -> ClusterTree:
    """Topic a has two partitions on brokers 1 and 2, topic b one on broker 2 and 3; all is well."""
    partitions = {
        A0: (ReplicaAssignment((1, 2)), STATE),
        A1: (ReplicaAssignment((2, 1)), LeaderAndIsr(2, 1, (2, 1), 7, 0)),
        TopicPartition("b", 0): (ReplicaAssignment((2, 3)), LeaderAndIsr(2, 0, (2, 3), 7, 0)),
    }
    topics: dict[str, dict[int, ReplicaAssignment]] = {}
    for name, (assignment, _) in partitions.items():
        topics.setdefault(name.topic, {})[name.partition] = assignment
    return ClusterTree(
        holder=ControllerZNode(1, 1, 0, 0),
        controller_epoch=7,
        cluster_id="Mr3tGq0zTbmN0dr5bUUY8w",
        brokers={number: Broker(number, number, ()) for number in (1, 2, 3)},
        unreadable_brokers=frozenset(),
        topics={name: TopicAssignment(name, name.encode() * 16, own) for name, own in topics.items()},
        partitions=[Partition(name, assignment, state) for name, (assignment, state) in partitions.items()],
        without_state=frozenset(),
        znodes_below={name: tuple(map(str, own)) for name, own in topics.items()},
        deletions=[],
        reassignment=None,
        preferred_election=None,
        isr_notifications=[],
        topic_configs={"b": {"min.insync.replicas": "1"}},
        broker_configs={"<default>": {"min.insync.replicas": "1"}},
        known_controllers=frozenset({1_000_001}),
        debts=[],
        migration=MigrationZNode(-1, -1, -1, -1),
        bad=[],
    )


def with_(**fields: object) -> Change:
    return lambda tree: msgspec.structs.replace(tree, **fields)


def state(**fields: object) -> Change:
    """Of partition a-0."""

    def change(tree: ClusterTree) -> ClusterTree:
        first = tree.partitions[0]
        there = first._replace(state=msgspec.structs.replace(STATE, **fields) if fields else None)
        without = frozenset() if fields else frozenset({A0})
        return msgspec.structs.replace(tree, partitions=[there, *tree.partitions[1:]], without_state=without)

    return change


def assigned(assignment: ReplicaAssignment, **fields: object) -> Change:
    """Of partition a-0, and of its topic's znode."""

    def change(tree: ClusterTree) -> ClusterTree:
        first = tree.partitions[0]._replace(assignment=assignment)
        if fields:
            first = first._replace(state=msgspec.structs.replace(STATE, **fields))
        topic = tree.topics["a"]
        topic = msgspec.structs.replace(topic, partitions={**topic.partitions, 0: assignment})
        topics = {**tree.topics, "a": topic}
        return msgspec.structs.replace(tree, partitions=[first, *tree.partitions[1:]], topics=topics)

    return change


def without_broker(number: int) -> Change:
    def change(tree: ClusterTree) -> ClusterTree:
        return msgspec.structs.replace(tree, brokers={b: v for b, v in tree.brokers.items() if b != number})

    return change


def renamed(name: str, **fields: object) -> Change:
    def change(tree: ClusterTree) -> ClusterTree:
        topics = {**tree.topics, name: msgspec.structs.replace(tree.topics[name], **fields)}
        return msgspec.structs.replace(tree, topics=topics)

    return change


def numbered_anew(tree: ClusterTree) -> ClusterTree:
    """Partition b-0 is b-1."""
    *others, last = tree.partitions
    return msgspec.structs.replace(tree, partitions=[*others, last._replace(name=TopicPartition("b", 1))])


def racked(racks: Sequence[str | None]) -> Change:
    return with_(brokers={b: Broker(b, b, (), racks[b - 1]) for b in (1, 2, 3)})


def both(*changes: Change) -> Change:
    def change(tree: ClusterTree) -> ClusterTree:
        for each in changes:
            tree = each(tree)
        return tree

    return change


OF_BROKERS = {"settings-differ", "settings-not-told", "takeover-changes", "takeover-needs"}
"""What brokers must be asked for; ``test_broker_settings`` finds them."""
MIN_2 = with_(broker_configs={"<default>": {"min.insync.replicas": "2"}}, topic_configs={})
CASES: list[tuple[Change, set[tuple[str, str]]]] = [
    (with_(holder=None), {("no-controller", "the cluster")}),
    (with_(holder=ControllerZNode(1, 0, 0, 0)), {("controller-without-session", "the cluster")}),
    (with_(holder=ControllerZNode(3000, 0, 0, 0, 5), migration=None), {("controller-without-session", "the cluster")}),
    (
        with_(holder=ControllerZNode(3000, 0, 0, 0, 5), migration=MigrationZNode(3000, 1, 1, 1)),
        {("migration-running", "the cluster")},
    ),
    (state(controller_epoch=8), {("epoch-regression", "a-0")}),
    (
        with_(controller_epoch=0, bad=[BadZNode("/controller_epoch", "x", "a number")]),
        {("unreadable", "/controller_epoch")},
    ),
    (with_(bad=[BadZNode("/config/topics/a", "refused", SHOWN)]), {("not-shown", "/config/topics/a")}),
    (with_(bad=[BadZNode("/config/brokers", "refused", SHOWN)]), {("defaults-not-shown", "/config/brokers")}),
    (with_(bad=[BadZNode("/controller", "x", "JSON")]), {("unreadable", "/controller")}),
    (
        both(state(leader=-1, isr=(3,)), assigned(ReplicaAssignment((1, 3)), leader=-1, isr=(3,)), without_broker(3)),
        {("offline", "a-0"), ("broker-away", "broker 3"), ("under-replicated", "b-0"), ("lost-with-a-broker", "b-0")},
    ),
    (
        both(state(leader=3, isr=(3,)), assigned(ReplicaAssignment((1, 3)), leader=3, isr=(3,)), without_broker(3)),
        {("offline", "a-0"), ("broker-away", "broker 3"), ("under-replicated", "b-0"), ("lost-with-a-broker", "b-0")},
    ),
    (state(leader=-1, isr=(1, 2)), {("not-elected", "a-0")}),
    (state(), {("never-led", "a-0")}),
    (
        both(MIN_2, state(isr=(1,))),
        {("under-min-isr", "a-0"), ("under-replicated", "a-0"), ("lost-with-a-broker", "a-0")},
    ),
    (with_(topic_configs={"b": {"min.insync.replicas": "3"}}), {("min-isr-above-replicas", "b")}),
    (
        state(leader=1, isr=(2,)),
        {("leader-outside-isr", "a-0"), ("under-replicated", "a-0"), ("lost-with-a-broker", "a-0")},
    ),
    (state(isr=(1, 2, 3)), {("isr-outside-replicas", "a-0")}),
    (assigned(ReplicaAssignment((1, 2, 1))), {("damaged-assignment", "a-0")}),
    (
        with_(topics={"a": TopicAssignment("a", b"a" * 16, {})}, partitions=[], znodes_below={}, topic_configs={}),
        {("damaged-assignment", "a")},
    ),
    (renamed("b", topic_id=b"a" * 16), {("duplicate-topic-id", "b")}),
    (
        both(MIN_2, assigned(ReplicaAssignment((1, 2, 3)))),
        {("at-min-isr", "a-0"), ("under-replicated", "a-0")},
    ),
    (
        both(assigned(ReplicaAssignment((1, 4)), isr=(1,))),
        {("broker-away", "broker 4"), ("under-replicated", "a-0"), ("lost-with-a-broker", "a-0")},
    ),
    (with_(deletions=["a"]), {("deletion-stuck", "a"), ("migration-blocked", "a")}),
    (with_(deletions=["gone"]), {("deletion-stuck", "gone"), ("migration-blocked", "gone")}),
    (assigned(ReplicaAssignment((1, 2, 3), (3,), (1,))), {("moving", "a-0")}),
    (
        both(assigned(ReplicaAssignment((3, 1), (3,), (1,)), isr=(1,)), with_(reassignment={A0: (3,)})),
        {("moving", "a-0"), ("single-replica", "a-0")},
    ),
    (assigned(ReplicaAssignment((1, 3, 2), (3,), (2,)), isr=(1, 3)), {("reassignment-stuck", "a-0")}),
    (
        assigned(ReplicaAssignment((1, 2, 3), (3,), (2,)), isr=(1,)),
        {("moving", "a-0"), ("under-replicated", "a-0"), ("lost-with-a-broker", "a-0")},
    ),
    (
        assigned(ReplicaAssignment((1, 2, 4), (4,), (2,))),
        {("reassignment-stuck", "a-0"), ("broker-away", "broker 4")},
    ),
    (
        with_(reassignment={A0: (3,), A1: (2, 1)}),
        {("request-left", "/admin/reassign_partitions")},
    ),
    (  # a controller before 2.4 moves a-0 to 3
        both(assigned(ReplicaAssignment((3, 1, 2))), with_(reassignment={A0: (3, 1)})),
        {("moving", "a-0")},
    ),
    (
        both(assigned(ReplicaAssignment((4, 1, 2))), with_(reassignment={A0: (4,)})),
        {("reassignment-stuck", "a-0"), ("broker-away", "broker 4"), ("single-replica", "a-0")},
    ),
    (
        both(state(leader=-1, isr=(1,)), with_(deletions=["a"])),
        {("deletion-stuck", "a"), ("migration-blocked", "a")},
    ),
    (
        both(state(isr=(1,)), with_(deletions=["a"])),
        {("deletion-stuck", "a"), ("migration-blocked", "a")},
    ),
    (with_(reassignment={A0: (3, 2)}), {("request-left", "/admin/reassign_partitions")}),
    (with_(preferred_election=[A0]), {("request-left", "/admin/preferred_replica_election")}),
    (with_(isr_notifications=["x"] * 101), {("notifications-pile-up", "/isr_change_notification")}),
    (with_(isr_notifications=["x"] * 100), set()),
    (with_(debts=[Owed(3, "old", {0: bytes(16)}, 1)]), {("debts", "broker 3: old")}),
    (
        with_(znodes_below={"a": ("0", "1", "7"), "b": ("0", "x")}),
        {("stray-partition", "a-7"), ("stray-partition", "b-x")},
    ),
    (
        with_(znodes_below={"a": ("00", "\u0661", "9" * 5000)}),
        {("stray-partition", f"a-{child}") for child in ("00", "\u0661", "9" * 5000)},
    ),
    *(
        (with_(topic_configs={"a": {key: value}}), {("invalid-setting", "a")})
        for key, value in (
            ("min.insync.replicas", "abc"),
            ("min.insync.replicas", "-3"),
            ("min.insync.replicas", "0"),
            ("min.insync.replicas", "9" * 5000),
            ("unclean.leader.election.enable", "yes"),
            ("retention.ms", "a week"),
        )
    ),
    (with_(topic_configs={"a": {"of.a.plugin": "abc", "min.insync.replicas": " 1 "}}), set()),
    (with_(topic_configs={"a": {"unclean.leader.election.enable": " TRUE"}}), {("unclean-elections", "a")}),
    (
        both(renamed("b", partitions={1: ReplicaAssignment((2, 3))}), numbered_anew),
        {("partition-gap", "b"), ("stray-partition", "b-0")},
    ),
    (with_(topic_configs={"gone": {"retention.ms": "1"}, "empty": {}}), {("stray-config", "gone")}),
    (renamed("b", topic_id=bytes(16)), {("topic-without-id", "b")}),
    (with_(topic_configs={"a": {"unclean.leader.election.enable": "true"}}), {("unclean-elections", "a")}),
    (
        with_(broker_configs={"<default>": {"unclean.leader.election.enable": "true"}}),
        {("unclean-elections", "all topics without a setting of their own")},
    ),
    (assigned(ReplicaAssignment((1,)), isr=(1,)), {("single-replica", "a-0")}),
    (state(recovery_state=RECOVERING), {("recovering", "a-0")}),
    (state(leader=2), {("not-preferred", "a-0")}),
    (
        assigned(ReplicaAssignment((1, 1_000_001)), isr=(1,)),
        {
            ("migration-blocked", "a-0"),
            ("broker-away", "broker 1000001"),
            ("under-replicated", "a-0"),
            ("lost-with-a-broker", "a-0"),
        },
    ),
    (
        lambda tree: state(controller_epoch=9)(with_(holder=ControllerZNode(3000, 0, 0, 0, 9))(tree)),
        set(),  # a KRaft controller's epoch is its own
    ),
    (with_(migration=MigrationZNode(3000, 1, 1, 1)), {("migration-running", "the cluster")}),
    (racked("xxy"), {("lost-with-a-rack", "a-0"), ("lost-with-a-rack", "a-1")}),
    (racked("xyx"), set()),
    (racked("xxx"), set()),
    (racked(("x", "x", None)), set()),
]
"""A change of the healthy cluster, and what is found."""


@pytest.mark.parametrize("change, expected", CASES)
def test_what_is_found(change: Change, expected: set[tuple[str, str]]) -> None:
    assert {(hit.kind, hit.subject) for hit in all_hits(change(tree()))} == expected


def test_a_healthy_cluster_has_none() -> None:
    assert not all_hits(tree())


def test_every_kind_is_found_by_a_case() -> None:
    found = {kind for _, expected in CASES for kind, _ in expected}
    assert found | OF_BROKERS == set(KINDS)
    assert not found & OF_BROKERS


def test_every_hit_says_why_and_what_to_do() -> None:
    for change, _ in CASES:
        for hit in all_hits(change(tree())):
            assert hit.why, hit
            assert hit.remedy, hit
            assert hit.path.startswith("/"), hit


def test_nobody_is_asked_to_start_an_aiocontroller_as_a_broker() -> None:
    change = assigned(ReplicaAssignment((1, 4, 1_000_001)), isr=(1,))
    remedies = {hit.kind: hit.remedy for hit in all_hits(change(tree()))}
    assert remedies["broker-away"] == "1000001 is an aiocontroller, not a broker: aiocontroller migration move-replicas"
    assert remedies["under-replicated"].startswith("start broker 4, or move its replicas: ")
    assert remedies["under-replicated"].endswith("; " + remedies["broker-away"])


def test_what_clients_cannot_use_is_critical() -> None:
    assert {KINDS[kind].severity for kind in ("offline", "not-elected", "never-led")} == {Severity.CRITICAL}


def test_a_topics_name_cannot_add_a_command_to_the_remedy() -> None:
    topics = {"$(reboot)": {"min.insync.replicas": "abc", "unclean.leader.election.enable": "true"}}
    healthy = tree()
    changed = msgspec.structs.replace(
        healthy, topic_configs=topics, topics={"$(reboot)": healthy.topics["a"]}, partitions=[], znodes_below={}
    )
    assert {hit.remedy.split(" --")[0] for hit in all_hits(changed)} == {"aiocontroller topics alter '$(reboot)'"}
