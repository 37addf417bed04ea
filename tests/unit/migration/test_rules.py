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
from aiocontroller.migration.rules import NEXT, MigrationStep, _version, all_hits
from aiocontroller.migration.view import MigrationPhase, MigrationView
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


def as_is(it: MigrationView) -> MigrationView:
    return it


def quiet(it: MigrationView) -> MigrationView:
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
    (NOT_BEGUN, MigrationStep.PROVISION),
    (WAITING, MigrationStep.CLAIM),
    (COPYING, MigrationStep.CLAIM),
    (as_is, MigrationStep.KRAFT),
    (all_of(in_kraft_mode(2)), MigrationStep.KRAFT),
    (READY, MigrationStep.FINALIZE),
    (FINALIZED, None),
]
OLD = OF_ZOOKEEPER | {int(ApiKey.LEADER_AND_ISR): VersionRange(0, 6)}
FAULTS: list[tuple[Change, MigrationStep, set[tuple[str, str]]]] = [
    (all_of(WAITING, on(1, 1_000_001)), MigrationStep.CLAIM, {("replica-on-no-broker", "a-0"),
        ("isr-outside-replicas", "a-0")}),
    (all_of(NOT_BEGUN, on(1, 2, 9)), MigrationStep.PROVISION,
        {("replica-on-no-broker", "a-0"), ("broker-away", "broker 9"),
        ("under-replicated", "a-0")}),
    (all_of(NOT_BEGUN, nodes({2: broker(2, ready=False, versions=OLD)})), MigrationStep.PROVISION, {
        ("broker-too-old", "broker 2")}),
    (all_of(NOT_BEGUN, setting(inter_broker_protocol_version="3.3", controller_quorum_voters="")),
        MigrationStep.PROVISION, {("broker-too-old", "broker 2")}),
    (all_of(WAITING, setting(inter_broker_protocol_version="3.8-IV0")),
        MigrationStep.CLAIM, {("protocol-version", "broker 2")}),
    (all_of(WAITING, nodes({2: broker(2, ready=False)})), MigrationStep.CLAIM, {("not-in-migration-mode", "broker 2")}),
    (all_of(WAITING, nodes({2: broker(2, settings={})})), MigrationStep.CLAIM, {("settings-not-told", "broker 2")}),
    (all_of(WAITING, setting(controller_quorum_voters=SETTINGS[VOTERS].replace("h:3002", "i:3002"))),
        MigrationStep.CLAIM,
        {("settings-differ", "broker 1"), ("settings-differ", "broker 2")}),
    (setting(control_plane_listener_name="CONTROL"), MigrationStep.KRAFT, {("control-plane-listener", "broker 2")}),
    (all_of(setting(log_dirs="/a,/b"), nodes(controllers={n: controller(n, features={"metadata.version": 16})
        for n in VOTER_IDS})), MigrationStep.KRAFT, {("several-log-directories", "broker 2")}),
    (setting(log_dirs="/a,/b"), MigrationStep.KRAFT, set()),
    (setting(authorizer_class_name="kafka.security.authorizer.AclAuthorizer"), MigrationStep.KRAFT,
        {("authorizer-of-zookeeper", "broker 2")}),
    (lambda it: msgspec.structs.replace(it, answers=it.answers._replace(silent={
        "broker 2": "refused", "controller 3000": "refused"})), MigrationStep.KRAFT,
        {("does-not-answer", "broker 2"), ("controller-does-not-answer", "controller 3000")}),
    (all_of(WAITING, nodes({n: broker(n, settings=SETTINGS | {VOTERS: "2@h:1,3000@h:2,1000001@h:3"}) for n in (1, 2)})),
        MigrationStep.CLAIM, {("id-of-a-broker", "controller 2"), ("id-of-a-broker", "controller 1000001")}),
    (all_of(WAITING, nodes({n: broker(n, settings=SETTINGS | {VOTERS: "3000@h:2"}) for n in (1, 2)},
        {n: controller(n, quorum=ALONE) for n in VOTER_IDS})),
        MigrationStep.CLAIM, {("one-controller", "controller 3000")}),
    (all_of(NOT_BEGUN, nodes(controllers={3000: controller(3000, quorum=ALONE)})), MigrationStep.PROVISION,
        {("one-controller", "controller 3000")}),
    (all_of(WAITING, nodes(controllers={n: controller(n, quorum=None) for n in VOTER_IDS})), MigrationStep.CLAIM,
        {("no-quorum-leader", "controller 3000")}),
    (all_of(WAITING, nodes(controllers={n: controller(n, features={"metadata.version": 7}) for n in VOTER_IDS})),
        MigrationStep.CLAIM, {("metadata-version-too-low", "controller 3000")}),
    (all_of(WAITING, nodes(controllers={3001: controller(3001, ready=False)})), MigrationStep.CLAIM,
        {("controller-does-not-migrate", "controller 3001")}),
    (tree(deletions=["a"]), MigrationStep.KRAFT, {("under-way", "a")}),
    (all_of(on(1, 2, adding=(2,))), MigrationStep.KRAFT, {("under-way", "a-0")}),
    (tree(migration=MigrationZNode(3000, 5, 500, 5)), MigrationStep.FINALIZE, {("zookeeper-behind", "the cluster"),
        ("still-in-zookeeper-mode", "broker 1"), ("still-in-zookeeper-mode", "broker 2")}),
    (all_of(in_kraft_mode(1)), MigrationStep.FINALIZE, {("still-in-zookeeper-mode", "broker 2")}),
    (in_metadata(MetadataPartition(0, 2, 5, (1, 2), (1, 2))), MigrationStep.KRAFT, {("differs", "a-0")}),
    (in_metadata(MetadataPartition(0, 1, 4, (1, 2), (1,))), MigrationStep.KRAFT, {("differs", "a-0")}),
    (in_metadata(), MigrationStep.KRAFT, {("differs", "a-0")}),
    (in_metadata(MetadataPartition(0, 1, 4, (1, 2), (1, 2)), MetadataPartition(1, 1, 4, (1, 2), (1, 2))),
        MigrationStep.KRAFT,
        {("differs", "a-1")}),
    (in_metadata(MetadataPartition(0, -1, 4, (1, 2), (1, 2), error_code=5)), MigrationStep.KRAFT, set()),
    (all_of(in_metadata(), tree(deletions=["a"])), MigrationStep.KRAFT, {("under-way", "a")}),
    (nodes(controllers={n: controller(n, quorum=msgspec.structs.replace(QUORUM, observers=(QuorumReplica(1, 1000),)))
        for n in VOTER_IDS}), MigrationStep.KRAFT, {("broker-left-behind", "broker 2")}),
    (nodes(controllers={n: controller(n, quorum=msgspec.structs.replace(QUORUM, voters=(
        *QUORUM.voters[:2], QuorumReplica(3002, 10)))) for n in VOTER_IDS}), MigrationStep.FINALIZE,
        {("broker-left-behind", "controller 3002"), ("still-in-zookeeper-mode", "broker 1"),
            ("still-in-zookeeper-mode", "broker 2")}),
    (with_state(controller_epoch=52), MigrationStep.KRAFT, {("epochs-above", "a-0")}),
    (all_of(quiet, with_state(controller_epoch=52)), MigrationStep.ROLLBACK, {("epochs-above", "a-0")}),
    (all_of(ROLLED_BACK, quiet, with_state(controller_epoch=52)), MigrationStep.ROLLBACK, {("epoch-regression", "a-0"),
        ("left-over", "the cluster")}),
    (quiet, MigrationStep.ROLLBACK, set()),
    (all_of(in_kraft_mode(2)), MigrationStep.ROLLBACK, {("kraft-broker-in-the-way", "broker 2"),
        *(("quorum-still-runs", f"controller {n}") for n in VOTER_IDS)}),
    (all_of(WAITING, tree(holder=ControllerZNode(1_000_001, 1, 0, 0, software="aiocontroller"))), MigrationStep.CLAIM,
        {("aiocontroller-in-office", "the cluster")}),
    (all_of(NOT_BEGUN, holding(dict.fromkeys(What, frozenset("ab")))),
        MigrationStep.PROVISION, {("carried-over", what) for what
        in ("ACLs", "SCRAM credentials", "quotas", "delegation tokens")}),
    (all_of(holding({What.SCRAM: frozenset("ab"), What.QUOTAS: frozenset("a")}, {What.SCRAM: frozenset("bc"),
        What.QUOTAS: "it refuses"})), MigrationStep.FINALIZE, {("not-carried-over", "SCRAM credential: a"),
        ("not-carried-over", "SCRAM credential: c"), ("carried-over", "quotas"),
        ("still-in-zookeeper-mode", "broker 1"), ("still-in-zookeeper-mode", "broker 2")}),
    (all_of(in_kraft_mode(1), holding({What.ACLS: frozenset("a")}, {What.ACLS: frozenset("a")}),
        nodes({1: broker(1, versions=OF_KRAFT, ready=False)}, {3000: controller(3000, settings={AUTHORIZER: "x"}),
        3001: controller(3001, settings={VOTERS: ""})})), MigrationStep.FINALIZE, {("no-authorizer", "broker 1"),
        ("no-authorizer", "controller 3001"), ("still-in-zookeeper-mode", "broker 2")}),
    (all_of(tree(brokers={}), lambda it: msgspec.structs.replace(it, answers=it.answers._replace(brokers={}))),
        MigrationStep.FINALIZE, {("does-not-answer", "the brokers")}),
    (lambda it: msgspec.structs.replace(it, stored=None), MigrationStep.KRAFT, {("not-shown", "users and ACLs")}),
    (tree(holder=None), MigrationStep.KRAFT,
        {("no-controller", "the cluster"), ("out-of-order", "the step kraft-mode")}),
    (all_of(NOT_BEGUN, nodes({n: broker(n) for n in (1, 2)})), MigrationStep.CLAIM,
        {("out-of-order", "the step migration-mode")}),
    *((phase, MigrationStep.KRAFT,
        {("out-of-order", "the step kraft-mode")}) for phase in (NOT_BEGUN, WAITING, COPYING)),
    *((all_of(in_kraft_mode(1, 2), phase), MigrationStep.FINALIZE,
        {("out-of-order", "the step finalizing")}) for phase in
        (WAITING, COPYING)),
    *((all_of(phase, quiet), MigrationStep.ROLLBACK,
        {("out-of-order", "the step rollback")}) for phase in (NOT_BEGUN, WAITING)),
    (FINALIZED, MigrationStep.ROLLBACK, {("out-of-order", "the step rollback"),
        *(("quorum-still-runs", f"controller {n}") for n in VOTER_IDS),
        *(("kraft-broker-in-the-way", f"broker {n}") for n in (1, 2))}),
    (all_of(gone(2)), MigrationStep.KRAFT, {("broker-away", "broker 2"), ("under-replicated", "a-0")}),
]  # fmt: skip


@pytest.mark.parametrize("change, step", WELL)
def test_a_healthy_cluster_has_no_findings(change: Change, step: MigrationStep | None) -> None:
    assert all_hits(change(view()), step) == []


@pytest.mark.parametrize("change, step, expected", FAULTS)
def test_each_fault_is_found_and_nothing_else(
    change: Change, step: MigrationStep, expected: set[tuple[str, str]]
) -> None:
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
    hits = all_hits(all_of(WAITING, on(1, 1_000_001))(view()), MigrationStep.CLAIM)
    (hit,) = (hit for hit in hits if hit.kind == "replica-on-no-broker")
    assert (hit.why, hit.remedy) == (
        "1000001 is an aiocontroller, not a broker",
        "aiocontroller migration move-replicas",
    )
    assert KINDS["replica-on-no-broker"].severity is Severity.CRITICAL


def test_each_phase_has_a_next_step_and_a_way_back_unless_there_is_none() -> None:
    assert set(NEXT) == set(NEXT_STEPS) == set(WAY_BACK) == set(MigrationPhase)
    assert [phase for phase, steps in WAY_BACK.items() if not steps] == [
        MigrationPhase.NOT_BEGUN,
        MigrationPhase.FINALIZED,
        MigrationPhase.ROLLED_BACK,
    ]
    for phase in (MigrationPhase.DUAL_WRITE, MigrationPhase.MOVING_BROKERS, MigrationPhase.READY_TO_FINALIZE):
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
