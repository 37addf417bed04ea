"""Each kind of finding is found in a cluster that has just that fault, and a healthy one has none at any step."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from aiocontroller.check.findings import Severity
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.migration.answers import AUTHORIZER, VOTERS
from aiocontroller.migration.carried import Reported, What
from aiocontroller.migration.kinds import KINDS, OF_HEALTH
from aiocontroller.migration.rules import NEXT, Step, _version, all_hits
from aiocontroller.migration.view import Phase, View
from aiocontroller.migration.ways import NEXT_STEPS, WAY_BACK
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.messages import MetadataPartition, MetadataResponse, MetadataTopic
from aiocontroller.wire.quorum import QuorumReplica
from aiocontroller.zookeeper.cluster_tree import Partition
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode
from aiocontroller.zookeeper.znodes import ControllerZNode
from tests.unit.migration.views import (
    A0,
    COPYING,
    FINALIZED,
    NOT_BEGUN,
    NOTHING,
    OF_KRAFT,
    OF_ZOOKEEPER,
    QUORUM,
    READY,
    ROLLED_BACK,
    SETTINGS,
    STATE,
    VOTER_IDS,
    WAITING,
    Change,
    all_of,
    broker,
    controller,
    gone,
    in_kraft_mode,
    nodes,
    tree,
    view,
)  # fmt: skip

ALONE = msgspec.structs.replace(QUORUM, voters=QUORUM.voters[:1])


def as_is(it: View) -> View:
    return it


def quiet(it: View) -> View:
    """No KRaft controller answers."""
    return msgspec.structs.replace(it, answers=it.answers._replace(controllers={}))


def on(*replicas: int, adding: tuple[int, ...] = ()) -> Change:
    return tree(partitions=[Partition(A0, ReplicaAssignment(replicas, adding), STATE)])


def with_state(**fields: object) -> Change:
    state = msgspec.structs.replace(STATE, **fields)
    return tree(partitions=[Partition(A0, ReplicaAssignment((1, 2)), state)])


def holding(stored: Mapping[What, frozenset[str]], reported: Reported | None = None) -> Change:
    """What is beside topics in ZooKeeper, and what a node in KRaft mode tells of it."""
    reported = NOTHING | (reported or {}) if reported is not None else {}
    return lambda view: msgspec.structs.replace(view, stored=NOTHING | stored, reported=reported)


def setting(**changes: str | None) -> Change:
    """Of broker 2."""
    return nodes({2: broker(2, settings=SETTINGS | {key.replace("_", "."): value for key, value in changes.items()})})


def in_metadata(*partitions: MetadataPartition, topic: str = "a") -> Change:
    """By broker 2, in its Metadata."""
    return nodes({2: broker(2, metadata=MetadataResponse((), (MetadataTopic(topic, partitions=partitions),)))})


WELL = [
    (NOT_BEGUN, Step.PROVISION),
    (WAITING, Step.CLAIM),
    (COPYING, Step.CLAIM),
    (as_is, Step.KRAFT),
    (all_of(in_kraft_mode(2)), Step.KRAFT),
    (READY, Step.FINALIZE),
    (FINALIZED, None),
]
OLD = OF_ZOOKEEPER | {int(ApiKey.LEADER_AND_ISR): VersionRange(0, 6)}
FAULTS: list[tuple[Change, Step, set[tuple[str, str]]]] = [
    (all_of(WAITING, on(1, 1_000_001)), Step.CLAIM, {("replica-on-no-broker", "a-0"),
        ("isr-outside-replicas", "a-0")}),
    (all_of(NOT_BEGUN, on(1, 2, 9)), Step.PROVISION, {("replica-on-no-broker", "a-0"), ("broker-away", "broker 9"),
        ("under-replicated", "a-0")}),
    (all_of(NOT_BEGUN, nodes({2: broker(2, ready=False, versions=OLD)})), Step.PROVISION, {
        ("broker-too-old", "broker 2")}),
    (all_of(NOT_BEGUN, setting(inter_broker_protocol_version="3.3", controller_quorum_voters="")),
        Step.PROVISION, {("broker-too-old", "broker 2")}),
    (all_of(WAITING, setting(inter_broker_protocol_version="3.8-IV0")), Step.CLAIM, {("protocol-version", "broker 2")}),
    (all_of(WAITING, nodes({2: broker(2, ready=False)})), Step.CLAIM, {("not-in-migration-mode", "broker 2")}),
    (all_of(WAITING, nodes({2: broker(2, settings={})})), Step.CLAIM, {("settings-not-told", "broker 2")}),
    (all_of(WAITING, setting(controller_quorum_voters=SETTINGS[VOTERS].replace("h:3002", "i:3002"))), Step.CLAIM,
        {("settings-differ", "broker 1"), ("settings-differ", "broker 2")}),
    (setting(control_plane_listener_name="CONTROL"), Step.KRAFT, {("control-plane-listener", "broker 2")}),
    (all_of(setting(log_dirs="/a,/b"), nodes(controllers={n: controller(n, features={"metadata.version": 16})
        for n in VOTER_IDS})), Step.KRAFT, {("several-log-directories", "broker 2")}),
    (setting(log_dirs="/a,/b"), Step.KRAFT, set()),
    (setting(authorizer_class_name="kafka.security.authorizer.AclAuthorizer"), Step.KRAFT,
        {("authorizer-of-zookeeper", "broker 2")}),
    (lambda it: msgspec.structs.replace(it, answers=it.answers._replace(silent={
        "broker 2": "refused", "controller 3000": "refused"})), Step.KRAFT,
        {("does-not-answer", "broker 2"), ("controller-does-not-answer", "controller 3000")}),
    (all_of(WAITING, nodes({n: broker(n, settings=SETTINGS | {VOTERS: "2@h:1,3000@h:2,1000001@h:3"}) for n in (1, 2)})),
        Step.CLAIM, {("id-of-a-broker", "controller 2"), ("id-of-a-broker", "controller 1000001")}),
    (all_of(WAITING, nodes({n: broker(n, settings=SETTINGS | {VOTERS: "3000@h:2"}) for n in (1, 2)},
        {n: controller(n, quorum=ALONE) for n in VOTER_IDS})), Step.CLAIM, {("one-controller", "controller 3000")}),
    (all_of(NOT_BEGUN, nodes(controllers={3000: controller(3000, quorum=ALONE)})), Step.PROVISION,
        {("one-controller", "controller 3000")}),
    (all_of(WAITING, nodes(controllers={n: controller(n, quorum=None) for n in VOTER_IDS})), Step.CLAIM,
        {("no-quorum-leader", "controller 3000")}),
    (all_of(WAITING, nodes(controllers={n: controller(n, features={"metadata.version": 7}) for n in VOTER_IDS})),
        Step.CLAIM, {("metadata-version-too-low", "controller 3000")}),
    (all_of(WAITING, nodes(controllers={3001: controller(3001, ready=False)})), Step.CLAIM,
        {("controller-does-not-migrate", "controller 3001")}),
    (tree(deletions=["a"]), Step.KRAFT, {("under-way", "a")}),
    (all_of(on(1, 2, adding=(2,))), Step.KRAFT, {("under-way", "a-0")}),
    (tree(migration=MigrationZNode(3000, 5, 500, 5)), Step.FINALIZE, {("zookeeper-behind", "the cluster"),
        ("still-in-zookeeper-mode", "broker 1"), ("still-in-zookeeper-mode", "broker 2")}),
    (all_of(in_kraft_mode(1)), Step.FINALIZE, {("still-in-zookeeper-mode", "broker 2")}),
    (in_metadata(MetadataPartition(0, 2, 5, (1, 2), (1, 2))), Step.KRAFT, {("differs", "a-0")}),
    (in_metadata(MetadataPartition(0, 1, 4, (1, 2), (1,))), Step.KRAFT, {("differs", "a-0")}),
    (in_metadata(), Step.KRAFT, {("differs", "a-0")}),
    (in_metadata(MetadataPartition(0, 1, 4, (1, 2), (1, 2)), MetadataPartition(1, 1, 4, (1, 2), (1, 2))), Step.KRAFT,
        {("differs", "a-1")}),
    (in_metadata(MetadataPartition(0, -1, 4, (1, 2), (1, 2), error_code=5)), Step.KRAFT, set()),
    (all_of(in_metadata(), tree(deletions=["a"])), Step.KRAFT, {("under-way", "a")}),
    (nodes(controllers={n: controller(n, quorum=msgspec.structs.replace(QUORUM, observers=(QuorumReplica(1, 1000),)))
        for n in VOTER_IDS}), Step.KRAFT, {("broker-left-behind", "broker 2")}),
    (nodes(controllers={n: controller(n, quorum=msgspec.structs.replace(QUORUM, voters=(
        *QUORUM.voters[:2], QuorumReplica(3002, 10)))) for n in VOTER_IDS}), Step.FINALIZE,
        {("broker-left-behind", "controller 3002"), ("still-in-zookeeper-mode", "broker 1"),
            ("still-in-zookeeper-mode", "broker 2")}),
    (with_state(controller_epoch=52), Step.KRAFT, {("epochs-above", "a-0")}),
    (all_of(quiet, with_state(controller_epoch=52)), Step.ROLLBACK, {("epochs-above", "a-0")}),
    (all_of(ROLLED_BACK, quiet, with_state(controller_epoch=52)), Step.ROLLBACK, {("epoch-regression", "a-0"),
        ("left-over", "the cluster")}),
    (quiet, Step.ROLLBACK, set()),
    (all_of(in_kraft_mode(2)), Step.ROLLBACK, {("kraft-broker-in-the-way", "broker 2"),
        *(("quorum-still-runs", f"controller {n}") for n in VOTER_IDS)}),
    (all_of(WAITING, tree(holder=ControllerZNode(1_000_001, 1, 0, 0, software="aiocontroller"))), Step.CLAIM,
        {("aiocontroller-in-office", "the cluster")}),
    (all_of(NOT_BEGUN, holding(dict.fromkeys(What, frozenset("ab")))), Step.PROVISION, {("carried-over", what) for what
        in ("ACLs", "SCRAM credentials", "quotas", "delegation tokens")}),
    (all_of(holding({What.SCRAM: frozenset("ab"), What.QUOTAS: frozenset("a")}, {What.SCRAM: frozenset("bc"),
        What.QUOTAS: "it refuses"})), Step.FINALIZE, {("not-carried-over", "SCRAM credential: a"),
        ("not-carried-over", "SCRAM credential: c"), ("carried-over", "quotas"),
        ("still-in-zookeeper-mode", "broker 1"), ("still-in-zookeeper-mode", "broker 2")}),
    (all_of(in_kraft_mode(1), holding({What.ACLS: frozenset("a")}, {What.ACLS: frozenset("a")}),
        nodes({1: broker(1, versions=OF_KRAFT, ready=False)}, {3000: controller(3000, settings={AUTHORIZER: "x"}),
        3001: controller(3001, settings={VOTERS: ""})})), Step.FINALIZE, {("no-authorizer", "broker 1"),
        ("no-authorizer", "controller 3001"), ("still-in-zookeeper-mode", "broker 2")}),
    (all_of(tree(brokers={}), lambda it: msgspec.structs.replace(it, answers=it.answers._replace(brokers={}))),
        Step.FINALIZE, {("does-not-answer", "the brokers")}),
    (lambda it: msgspec.structs.replace(it, stored=None), Step.KRAFT, {("not-shown", "users and ACLs")}),
    (tree(holder=None), Step.KRAFT, {("no-controller", "the cluster"), ("out-of-order", "the step kraft-mode")}),
    (all_of(NOT_BEGUN, nodes({n: broker(n) for n in (1, 2)})), Step.CLAIM,
        {("out-of-order", "the step migration-mode")}),
    *((phase, Step.KRAFT, {("out-of-order", "the step kraft-mode")}) for phase in (NOT_BEGUN, WAITING, COPYING)),
    *((all_of(in_kraft_mode(1, 2), phase), Step.FINALIZE, {("out-of-order", "the step finalizing")}) for phase in
        (WAITING, COPYING)),
    *((all_of(phase, quiet), Step.ROLLBACK, {("out-of-order", "the step rollback")}) for phase in (NOT_BEGUN, WAITING)),
    (FINALIZED, Step.ROLLBACK, {("out-of-order", "the step rollback"),
        *(("quorum-still-runs", f"controller {n}") for n in VOTER_IDS),
        *(("kraft-broker-in-the-way", f"broker {n}") for n in (1, 2))}),
    (all_of(gone(2)), Step.KRAFT, {("broker-away", "broker 2"), ("under-replicated", "a-0")}),
]  # fmt: skip


@pytest.mark.parametrize("change, step", WELL)
def test_a_healthy_cluster_has_no_findings(change: Change, step: Step | None) -> None:
    assert all_hits(change(view()), step) == []


@pytest.mark.parametrize("change, step, expected", FAULTS)
def test_each_fault_is_found_and_nothing_else(change: Change, step: Step, expected: set[tuple[str, str]]) -> None:
    found = [hit for hit in all_hits(change(view()), step) if hit.kind != "lost-with-a-broker"]
    assert {(hit.kind, hit.subject) for hit in found} == expected
    for hit in found:
        assert hit.why, hit
        assert hit.remedy, hit
        assert hit.path.startswith("/"), hit


def test_every_kind_of_a_migration_is_found_by_a_case() -> None:
    found = {kind for _, _, expected in FAULTS for kind, _ in expected}
    assert set(KINDS) - set(OF_HEALTH) - found == set()


def test_replica_that_names_an_aiocontroller_is_told_with_its_remedy() -> None:
    hits = all_hits(all_of(WAITING, on(1, 1_000_001))(view()), Step.CLAIM)
    (hit,) = (hit for hit in hits if hit.kind == "replica-on-no-broker")
    assert (hit.why, hit.remedy) == (
        "1000001 is an aiocontroller, not a broker",
        "aiocontroller migration move-replicas",
    )
    assert KINDS["replica-on-no-broker"].severity is Severity.CRITICAL


def test_each_phase_has_a_next_step_and_a_way_back_unless_there_is_none() -> None:
    assert set(NEXT) == set(NEXT_STEPS) == set(WAY_BACK) == set(Phase)
    assert [phase for phase, steps in WAY_BACK.items() if not steps] == [
        Phase.NOT_BEGUN,
        Phase.FINALIZED,
        Phase.ROLLED_BACK,
    ]
    for phase in (Phase.DUAL_WRITE, Phase.MOVING_BROKERS, Phase.READY_TO_FINALIZE):
        assert "aiocontroller migration rollback" in WAY_BACK[phase]


@pytest.mark.parametrize(
    "text, version",
    [
        ("3.9", (3, 9)),
        ("3.9-IV0", (3, 9)),
        ("2.8.1", (2, 8)),
        ("3.10-IV1", (3, 10)),
        ("", None),
        (None, None),
        ("x", None),
    ],
)
def test_protocol_versions_are_compared_as_numbers(text: str | None, version: tuple[int, int] | None) -> None:
    assert _version(text) == version
