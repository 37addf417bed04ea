"""The rules of ``migration check``.  Each yields hits in the view; ``RULES_OF_STEP`` says which apply before a step.

All are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import chain

from aiocontroller.check import rules as of_check
from aiocontroller.check.findings import Hit
from aiocontroller.migration.answers import AUTHORIZER, IBP, VOTERS, Node
from aiocontroller.migration.carried import What
from aiocontroller.migration.kinds import OF_HEALTH
from aiocontroller.migration.view import DUAL_WRITES, METADATA_VERSIONS, MigrationPhase, MigrationView, differences
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import SOFTWARE

Rule = Callable[[MigrationView], Iterator[Hit]]

OLDEST_METADATA_VERSION = 8
SEVERAL_LOG_DIRS_FROM = 17
BRIDGE = (3, 9)
"""The last release with ZooKeeper, from which Kafka recommends migrating."""
OLDEST = (3, 4)
LEADER_AND_ISR_OF_3_4 = 7
MOST_BEHIND = 100
"""How many records of the metadata log may be missing: those of 50 s in an idle cluster."""
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_BESIDE_TOPICS = {
    What.ACLS: (paths.ACL, "kafka-acls --list"),
    What.SCRAM: ("/config/users", "kafka-configs --describe --entity-type users"),
    What.QUOTAS: ("/config/users", "kafka-configs --describe --entity-type users"),
    What.TOKENS: (paths.DELEGATION_TOKENS, "kafka-delegation-tokens --describe"),
}
"""What is carried over beside topics -> its znode, and Kafka's tool for it."""


class MigrationStep(StrEnum):
    """A step of Kafka's migration, by what an operator does."""

    PROVISION = "provisioning"
    """Start the KRaft controllers."""
    CLAIM = "migration-mode"
    """Restart the brokers in migration mode; the claim follows by itself."""
    KRAFT = "kraft-mode"
    """Restart the brokers in KRaft mode."""
    FINALIZE = "finalizing"
    """Restart the KRaft controllers without ZooKeeper."""
    ROLLBACK = "rollback"
    """Go back to ZooKeeper."""


NEXT = {
    MigrationPhase.NOT_BEGUN: MigrationStep.PROVISION,
    MigrationPhase.WAITING: MigrationStep.CLAIM,
    MigrationPhase.COPYING: MigrationStep.KRAFT,
    MigrationPhase.DUAL_WRITE: MigrationStep.KRAFT,
    MigrationPhase.MOVING_BROKERS: MigrationStep.FINALIZE,
    MigrationPhase.READY_TO_FINALIZE: MigrationStep.FINALIZE,
    MigrationPhase.FINALIZED: None,
    MigrationPhase.ROLLED_BACK: MigrationStep.ROLLBACK,
}
"""Phase -> the step that follows; None: no step is left."""


_WAIT = "wait for it: aiocontroller migration watch --until dual-write"
_PHASES: dict[MigrationStep, tuple[frozenset[MigrationPhase], str]] = {
    MigrationStep.CLAIM: (frozenset(MigrationPhase) - {MigrationPhase.NOT_BEGUN}, "start the KRaft controllers first"),
    MigrationStep.KRAFT: (DUAL_WRITES | {MigrationPhase.FINALIZED}, _WAIT),
    MigrationStep.FINALIZE: (DUAL_WRITES | {MigrationPhase.FINALIZED}, _WAIT),
    MigrationStep.ROLLBACK: (
        DUAL_WRITES | {MigrationPhase.COPYING, MigrationPhase.ROLLED_BACK},
        "leave it: only a claim is rolled back, before it is finalized",
    ),
}
"""The phases in which a step may be taken, and what to do in the others."""


def all_hits(view: MigrationView, step: MigrationStep | None) -> list[Hit]:
    """Return all reasons against this step now."""
    return [*out_of_order(view, step), *faults(view, step)]


def faults(view: MigrationView, step: MigrationStep | None) -> list[Hit]:
    """Return what has to be fixed before this step."""
    return list(chain.from_iterable(rule(view) for rule in RULES_OF_STEP[step]))


def out_of_order(view: MigrationView, step: MigrationStep | None) -> Iterator[Hit]:
    """The step, if it does not belong to the present phase."""
    if step in _PHASES:
        phases, remedy = _PHASES[step]
        if view.phase not in phases:
            yield Hit(
                "out-of-order",
                f"the step {step.value}",
                paths.MIGRATION,
                f"the migration is {view.phase.value}",
                remedy,
            )


def health(view: MigrationView) -> Iterator[Hit]:
    """Findings of ``aiocontroller check`` that are reasons against any step.

    Once the last broker has left ZooKeeper, the address of a broker must be given.
    """
    if view.kraft_is_active and not view.tree.live and not view.kraft_brokers:
        remedy = "name brokers by --bootstrap-server"
        yield Hit("does-not-answer", "the brokers", paths.BROKER_IDS, "ZooKeeper knows none of them", remedy)
        return
    controllers = {f"broker {number}" for number in view.tree.known_controllers - view.tree.live}
    for hit in of_check.all_hits(view.with_all_brokers()):
        of_a_controller = hit.subject in controllers or hit.why.removesuffix(" is not registered") in controllers
        if hit.kind in OF_HEALTH and not of_a_controller:  # ``replicas`` reports those, with their remedy
            yield hit


# -- brokers -----------------------------------------------------------------------------------------------------------


def replicas(view: MigrationView) -> Iterator[Hit]:
    """Replicas on ids without a live broker; the KRaft controller waits as long as there is a single one."""
    there = view.tree.live | view.kraft_brokers
    for partition in view.tree.partitions:
        for broker in partition.assignment.replicas:
            if broker in there:
                continue
            if broker in view.tree.known_controllers:
                why, remedy = f"{broker} is an aiocontroller, not a broker", "aiocontroller migration move-replicas"
            else:
                why = f"broker {broker} is not registered"
                remedy = f"start broker {broker}, or move its replicas: aiocontroller reassign"
            yield Hit("replica-on-no-broker", str(partition.name), paths.topic(partition.name.topic), why, remedy)


def releases(view: MigrationView) -> Iterator[Hit]:
    """Releases and protocol versions of brokers."""
    for number, node in _of_zookeeper(view):
        versions = node.versions.get(ApiKey.LEADER_AND_ISR)
        if versions is not None and versions.max < LEADER_AND_ISR_OF_3_4:
            yield _of_broker(
                "broker-too-old", number, "its release is older than 3.4", "upgrade it to 3.9 before anything else"
            )
            continue
        text = node.settings.get(IBP)
        version = _version(text)
        if version is None:
            continue
        if version < OLDEST:
            remedy = f"set {IBP}=3.9 and restart it"
            yield _of_broker("broker-too-old", number, f"its {IBP} is {text}, and a migration needs 3.4", remedy)
        elif version < BRIDGE:
            yield _of_broker("protocol-version", number, f"it is {text}", f"set {IBP}=3.9 and restart it")


def settings(view: MigrationView) -> Iterator[Hit]:
    """Brokers' settings that a migration depends on."""
    voters: dict[str, list[int]] = {}
    for number, node in _of_zookeeper(view):
        if not node.settings:
            yield _of_broker(
                "settings-not-told", number, "it refuses DescribeConfigs", "allow DescribeConfigs on the cluster"
            )
            continue
        if text := node.settings.get(VOTERS):
            voters.setdefault(text, []).append(number)
        if name := node.settings.get("control.plane.listener.name"):
            yield _of_broker("control-plane-listener", number, f"it is {name}", "leave it out in KRaft mode")
        directories = [each for each in (node.settings.get("log.dirs") or "").split(",") if each.strip()]
        level = view.metadata_version
        if len(directories) > 1 and level is not None and level < SEVERAL_LOG_DIRS_FROM:
            why = f"{len(directories)} log directories, and metadata.version is {metadata_version_name(level)}"
            yield _of_broker("several-log-directories", number, why, "format the quorum with --release-version 3.9")
        if (node.settings.get(AUTHORIZER) or "").endswith("AclAuthorizer"):
            yield _of_broker(
                "authorizer-of-zookeeper",
                number,
                f"{AUTHORIZER} is AclAuthorizer",
                f"in KRaft mode, and on the KRaft controllers: {STANDARD_AUTHORIZER}",
            )
    if len(voters) > 1:
        for text, numbers in voters.items():
            for number in numbers:
                yield _of_broker("settings-differ", number, f"{VOTERS} is {text}", "give all brokers the same")


def migration_mode(view: MigrationView) -> Iterator[Hit]:
    """Registered brokers that the claim waits for."""
    for number, node in _of_zookeeper(view):
        if not node.ready:
            yield _of_broker(
                "not-in-migration-mode",
                number,
                "it is registered, and not ready to migrate",
                f"restart broker {number} with zookeeper.metadata.migration.enable=true, {VOTERS} and "
                "controller.listener.names",
            )


def silent(view: MigrationView) -> Iterator[Hit]:
    """Nodes that did not answer."""
    for who, why in view.answers.silent.items():
        kind = "controller-does-not-answer" if who.startswith("controller ") else "does-not-answer"
        yield Hit(kind, who, paths.BROKER_IDS, why, "start it, or read its log; name credentials in AIOCONTROLLER_…")


def zookeeper_mode(view: MigrationView) -> Iterator[Hit]:
    """Brokers that must be in KRaft mode before the migration is finalized."""
    for number in sorted(view.tree.live - view.kraft_brokers):
        remedy = f"restart broker {number} with process.roles=broker and node.id={number}, without zookeeper.*"
        yield _of_broker("still-in-zookeeper-mode", number, "it is registered in ZooKeeper", remedy)


def kraft_mode(view: MigrationView) -> Iterator[Hit]:
    """Brokers that must leave KRaft mode before a rollback to ZooKeeper."""
    for number in sorted(view.kraft_brokers):
        remedy = f"restart broker {number} in migration mode, with broker.id={number} and zookeeper.connect"
        yield _of_broker("kraft-broker-in-the-way", number, "it is in KRaft mode", remedy)


def left_behind(view: MigrationView) -> Iterator[Hit]:
    """Brokers and voters that do not follow the metadata log."""
    quorum = view.quorum
    if quorum is None:
        return
    following = {replica.id: replica for replica in (*quorum.voters, *quorum.observers)}
    expected = view.migrating_brokers | view.kraft_brokers
    for number in sorted(expected | {voter.id for voter in quorum.voters}):
        who = "broker" if number in expected else "controller"
        replica = following.get(number)
        if replica is None:
            why = "it does not fetch the metadata log"
        elif quorum.high_watermark - replica.log_end_offset > MOST_BEHIND:
            why = f"it has the metadata log up to {replica.log_end_offset}, of {quorum.high_watermark}"
        else:
            continue
        remedy = f"read the log of {who} {number}; its network to the KRaft controllers; restart it"
        yield Hit("broker-left-behind", f"{who} {number}", paths.broker_id(number), why, remedy)


# -- KRaft controllers -------------------------------------------------------------------------------------------------


def quorum(view: MigrationView) -> Iterator[Hit]:
    """The KRaft controllers' ids, number, leader and metadata.version."""
    brokers = view.tree.live | view.kraft_brokers
    known = {number for node in view.answers.brokers.values() for number in node.voters}
    known |= {voter.id for voter in view.quorum.voters} if view.quorum is not None else set()
    for number in sorted(known | view.answers.controllers.keys()):
        if number in brokers or number in view.tree.known_controllers:
            why = "a broker has this id" if number in brokers else "an aiocontroller has this id"
            yield _of_controller("id-of-a-broker", number, why, "give it another node.id, and format it again")
    if len(known) == 1:
        yield _of_controller("one-controller", next(iter(known)), "it is the only voter", "have three of them")
    if view.answers.controllers and view.quorum is None:
        yield _of_controller(
            "no-quorum-leader",
            min(view.answers.controllers),
            "no controller knows a leader",
            "start a majority of the KRaft controllers; read their logs",
        )
    level = view.metadata_version
    if level is not None and level < OLDEST_METADATA_VERSION:
        yield _of_controller(
            "metadata-version-too-low",
            min(view.answers.controllers),
            f"it is {metadata_version_name(level)}, and a migration needs 3.4-IV0",
            "format the quorum again, with --release-version 3.9",
        )


def controllers_migrate(view: MigrationView) -> Iterator[Hit]:
    """KRaft controllers that do not take part in the migration."""
    for number, node in sorted(view.answers.controllers.items()):
        if not node.ready:
            yield _of_controller(
                "controller-does-not-migrate",
                number,
                "it is not ready to migrate",
                "restart it with zookeeper.metadata.migration.enable=true and zookeeper.connect",
            )


def quorum_runs(view: MigrationView) -> Iterator[Hit]:
    """KRaft controllers that must be stopped before a rollback."""
    for number in sorted(view.answers.controllers):
        yield _of_controller("quorum-still-runs", number, "it answers", f"stop controller {number}")


# -- what is in ZooKeeper ----------------------------------------------------------------------------------------------


def topics_in_motion(view: MigrationView) -> Iterator[Hit]:
    """Deletions and reassignments in progress."""
    for name in view.tree.deletions:
        why = "the topic is being deleted"
        yield Hit("under-way", name, paths.delete_topics_topic(name), why, "wait until it is gone")
    for partition in view.tree.partitions:
        if partition.assignment.being_reassigned:
            path = paths.topic(partition.name.topic)
            why = "its replicas are being moved"
            yield Hit("under-way", str(partition.name), path, why, "wait for it, or: aiocontroller reassign --cancel")


def zookeeper_in_step(view: MigrationView) -> Iterator[Hit]:
    """Differences between ZooKeeper, the quorum and the brokers."""
    behind = view.behind_records
    if behind is not None and behind > MOST_BEHIND:
        why = f"{behind:,} records of the metadata log are missing"
        remedy = "read the log of the active KRaft controller; its network to ZooKeeper"
        yield Hit("zookeeper-behind", "the cluster", paths.MIGRATION, why, remedy)
    for found in differences(view):
        yield Hit(
            "differs",
            str(found.partition),
            paths.topic_partition_state(*found.partition),
            f"broker {found.broker} says {found.on_broker}; ZooKeeper says {found.in_zookeeper}",
            f"wait; if it stays: read the logs of broker {found.broker} and of the active KRaft controller",
        )


def epochs(view: MigrationView) -> Iterator[Hit]:
    """States with higher epochs than that of a controller that is elected if ``/controller`` is deleted."""
    tree = view.tree
    if not view.kraft_is_active:
        yield from (hit for hit in of_check.epochs(tree))
        return
    for partition in tree.partitions:
        state = partition.state
        if state is not None and state.controller_epoch > tree.controller_epoch:
            why = f"up to {view.highest_state_epoch}, and {paths.CONTROLLER_EPOCH} is {tree.controller_epoch}"
            path = paths.topic_partition_state(*partition.name)
            remedy = "do not delete /controller; go back by: aiocontroller migration rollback"
            yield Hit("epochs-above", str(partition.name), path, why, remedy)


def left_over(view: MigrationView) -> Iterator[Hit]:
    """A ``/migration`` that a rollback by hand has left behind."""
    if view.phase is MigrationPhase.ROLLED_BACK:
        assert view.tree.migration is not None
        why = f"it names KRaft controller {view.tree.migration.controller_id}, which does not hold the role"
        yield Hit("left-over", "the cluster", paths.MIGRATION, why, "aiocontroller migration rollback")


def aiocontroller_active(view: MigrationView) -> Iterator[Hit]:
    """An aiocontroller that is active; the claim will depose it."""
    holder = view.tree.holder
    if holder is not None and holder.software == SOFTWARE:
        why = f"it is controller {holder.controller_id}"
        remedy = "aiocontroller migration hand-over, or give the role back before: aiocontroller release"
        yield Hit("aiocontroller-in-office", "the cluster", paths.CONTROLLER, why, remedy)


def carried(view: MigrationView) -> Iterator[Hit]:
    """Differences between ZooKeeper and KRaft in what is carried over beside topics, such as ACLs."""
    if view.stored is None:
        remedy = "name credentials in AIOCONTROLLER_ZOOKEEPER_…, as for a controller"
        yield Hit("not-shown", "users and ACLs", "/config/users", "ZooKeeper does not show them", remedy)
        return
    otherwise = "no node reported it" if view.kraft_is_active else "the claim has not been made"
    for what, (path, tool) in _BESIDE_TOPICS.items():
        stored, reported = view.stored[what], view.reported.get(what, otherwise)
        if isinstance(reported, str):
            if stored:
                why = f"{len(stored):,} in ZooKeeper, not compared: {reported}"
                yield Hit("carried-over", f"{what}s", path, why, f"{tool}, before and after")
            continue
        for entry in sorted(stored ^ reported):
            where = "ZooKeeper" if entry in stored else "KRaft"
            remedy = f"wait; if it stays: {tool}, and put it right there; read the log of the active KRaft controller"
            yield Hit("not-carried-over", f"{what}: {entry}", path, f"it is only in {where}", remedy)


def authorizers(view: MigrationView) -> Iterator[Hit]:
    """Nodes that do not enforce the existing ACLs."""
    if not view.stored or not view.stored[What.ACLS]:
        return
    for who, nodes in (("broker", view.answers.brokers), ("controller", view.answers.controllers)):
        for number, node in sorted(nodes.items()):
            if node.in_kraft_mode and node.settings and not node.settings.get(AUTHORIZER):
                why = f"{len(view.stored[What.ACLS]):,} ACLs, and it has no {AUTHORIZER}"
                remedy = f"restart {who} {number} with {AUTHORIZER}={STANDARD_AUTHORIZER}"
                yield Hit("no-authorizer", f"{who} {number}", paths.ACL, why, remedy)


# -- helpers -----------------------------------------------------------------------------------------------------------


def metadata_version_name(level: int) -> str:
    """Return ``21 (3.9-IV0)``, or the bare level if its name is unknown."""
    return f"{level} ({METADATA_VERSIONS[level]})" if level in METADATA_VERSIONS else str(level)


def _of_zookeeper(view: MigrationView) -> Iterator[tuple[int, Node]]:
    """Return the brokers that answered and are not in KRaft mode."""
    return ((n, node) for n, node in sorted(view.answers.brokers.items()) if not node.in_kraft_mode)


def _of_broker(kind: str, number: int, why: str, remedy: str) -> Hit:
    return Hit(kind, f"broker {number}", paths.broker_id(number), why, remedy)


def _of_controller(kind: str, number: int, why: str, remedy: str) -> Hit:
    return Hit(kind, f"controller {number}", paths.MIGRATION, why, remedy)


def _version(text: str | None) -> tuple[int, int] | None:
    """``3.9-IV0`` -> (3, 9); None if it is not of that form."""
    major, _, rest = (text or "").partition(".")
    minor = rest.partition("-")[0].partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


_RULES_BEFORE_CLAIM = (
    health, releases, settings, silent, replicas, quorum, controllers_migrate, topics_in_motion, left_over, epochs,
    aiocontroller_active, authorizers, carried,
)  # fmt: skip
_RULES_AFTER_CLAIM = (
    health, silent, quorum, controllers_migrate, left_behind, zookeeper_in_step, topics_in_motion, epochs,
    authorizers, carried,
)  # fmt: skip

RULES_OF_STEP: dict[MigrationStep | None, tuple[Rule, ...]] = {
    MigrationStep.PROVISION: _RULES_BEFORE_CLAIM,
    MigrationStep.CLAIM: (*_RULES_BEFORE_CLAIM, migration_mode),
    MigrationStep.KRAFT: (*_RULES_AFTER_CLAIM, settings),
    MigrationStep.FINALIZE: (*_RULES_AFTER_CLAIM, zookeeper_mode),
    MigrationStep.ROLLBACK: (health, quorum_runs, kraft_mode, epochs, left_over),
    None: (silent, quorum, left_behind),
}
"""The rules that apply before each step; None: no step is left."""
