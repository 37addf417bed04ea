"""The kinds of findings of ``aiocontroller migration check``, beside those of ``aiocontroller check``."""

from __future__ import annotations

from aiocontroller.check.findings import FindingKind, Severity
from aiocontroller.check.kinds import KINDS as OF_CHECK

_CRITICAL, _WARNING, _NOTICE = Severity.CRITICAL, Severity.WARNING, Severity.NOTICE

_TABLE = (
    # -- what blocks the claim
    FindingKind(
        "replica-on-no-broker",
        _CRITICAL,
        "A replica on a broker that does not exist or is down",
        "The KRaft controller waits for this broker forever, and says so in one INFO line.",
    ),
    FindingKind(
        "id-of-a-broker",
        _CRITICAL,
        "A KRaft controller has the id of a broker",
        "One of the two cannot register.",
    ),
    FindingKind(
        "broker-too-old",
        _CRITICAL,
        "A broker that cannot take part in a migration",
        "The KRaft controller waits for it forever.",
    ),
    FindingKind(
        "controller-does-not-migrate",
        _CRITICAL,
        "A KRaft controller without zookeeper.metadata.migration.enable",
        "The migration does not begin, or ends when this controller becomes the leader.",
    ),
    FindingKind(
        "no-quorum-leader", _CRITICAL, "The KRaft quorum has no leader", "Nothing can be claimed, moved or elected."
    ),
    FindingKind(
        "metadata-version-too-low",
        _CRITICAL,
        "metadata.version is too low for a migration",
        "The KRaft controllers refuse to migrate.",
    ),
    FindingKind(
        "not-in-migration-mode",
        _WARNING,
        "Brokers that are not in migration mode",
        "The KRaft controller waits for them.",
    ),
    # -- what goes wrong later
    FindingKind(
        "out-of-order",
        _CRITICAL,
        "A step at the wrong time",
        "It depends on steps that have not been taken, and some steps cannot be undone.",
    ),
    FindingKind(
        "left-over",
        _CRITICAL,
        "/migration is left over from a migration that was rolled back",
        "The next migration begins in the middle, and aiocontroller does not take the role.",
    ),
    FindingKind(
        "epochs-above",
        _NOTICE,
        "States bear the KRaft controller's epoch, above /controller_epoch",
        "If /controller is deleted by hand, a broker is elected that cannot write them (KAFKA-20488).",
    ),
    FindingKind(
        "still-in-zookeeper-mode",
        _CRITICAL,
        "Brokers that still use ZooKeeper",
        "They are cut off when the KRaft controllers no longer connect to ZooKeeper.",
    ),
    FindingKind(
        "kraft-broker-in-the-way",
        _CRITICAL,
        "Brokers in KRaft mode",
        "After a rollback no controller knows them: they are not in ZooKeeper.",
    ),
    FindingKind(
        "quorum-still-runs",
        _CRITICAL,
        "KRaft controllers that still run",
        "They keep writing, and claim the cluster again.",
    ),
    FindingKind(
        "differs",
        _WARNING,
        "Brokers and ZooKeeper disagree on partitions",
        "One of the two is behind: a rollback now would lose the difference.",
    ),
    FindingKind(
        "no-authorizer",
        _CRITICAL,
        "Nodes in KRaft mode without an authorizer, though there are ACLs",
        "Every client is allowed everything there.",
    ),
    FindingKind(
        "not-carried-over",
        _WARNING,
        "ACLs, users or quotas differ between ZooKeeper and KRaft",
        "In KRaft mode KRaft's entries apply; a rollback brings back those of ZooKeeper.",
    ),
    FindingKind(
        "zookeeper-behind",
        _WARNING,
        "ZooKeeper is behind the metadata log",
        "The KRaft controller cannot write, or not fast enough: a rollback would lose what is missing.",
    ),
    FindingKind(
        "broker-left-behind",
        _WARNING,
        "Brokers that do not follow the metadata log",
        "They are fenced, or act on old metadata.",
    ),
    FindingKind(
        "does-not-answer",
        _WARNING,
        "A node that does not answer",
        "Its state was not checked.",
    ),
    FindingKind(
        "controller-does-not-answer",
        _WARNING,
        "A KRaft controller that does not answer",
        "One more failure may leave the quorum without a majority.",
    ),
    FindingKind(
        "settings-not-told",
        _WARNING,
        "A broker that does not report its settings",
        "They were not checked.",
    ),
    FindingKind(
        "protocol-version",
        _WARNING,
        "inter.broker.protocol.version is below 3.9",
        "Features of later releases are then enabled only after the migration, when there is no way back.",
    ),
    FindingKind(
        "settings-differ",
        _WARNING,
        "Brokers differ in a setting of the migration",
        "Some of them look for different controllers, or in a different way.",
    ),
    FindingKind(
        "control-plane-listener",
        _WARNING,
        "control.plane.listener.name is set",
        "Brokers do not start with it in KRaft mode.",
    ),
    FindingKind(
        "several-log-directories",
        _WARNING,
        "Brokers with several log directories",
        "They need metadata.version 3.7-IV2 or later in KRaft mode.",
    ),
    FindingKind(
        "one-controller",
        _WARNING,
        "A quorum of one",
        "If it dies, nothing can be elected until it returns; if its disk is lost, so is the metadata.",
    ),
    FindingKind(
        "under-way",
        _WARNING,
        "A deletion or a reassignment is under way",
        "It is carried over unfinished.",
    ),
    # -- worth knowing
    FindingKind(
        "authorizer-of-zookeeper",
        _NOTICE,
        "An authorizer that needs ZooKeeper",
        "In KRaft mode neither brokers nor controllers start with it.",
    ),
    FindingKind(
        "aiocontroller-in-office",
        _NOTICE,
        "aiocontroller holds the role",
        "The KRaft controller takes the role over when it claims the cluster.",
    ),
    FindingKind("carried-over", _NOTICE, "What is carried over beside topics", "Compare it by hand."),
)

OF_HEALTH = (
    "no-controller", "unreadable", "not-shown", "offline", "not-elected", "never-led", "under-min-isr",
    "leader-outside-isr", "isr-outside-replicas", "damaged-assignment", "duplicate-topic-id", "stray-partition",
    "under-replicated", "broker-away",
)  # fmt: skip
"""Kinds of ``aiocontroller check`` that are reasons against any step: a cluster should be healthy before a change."""

KINDS = {kind.name: kind for kind in _TABLE} | {name: OF_CHECK[name] for name in (*OF_HEALTH, "epoch-regression")}
"""By name, in the order in which they are shown within one severity."""
