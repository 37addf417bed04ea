"""The kinds of findings; ``docs/check.md`` is made from this table."""

from __future__ import annotations

from aiocontroller.check.findings import FindingKind, Severity

_CRITICAL, _WARNING, _NOTICE = Severity.CRITICAL, Severity.WARNING, Severity.NOTICE

_TABLE = (
    # -- the cluster
    FindingKind(
        "no-controller", _CRITICAL, "No controller", "No leader is replaced, and nothing can be created or moved."
    ),
    FindingKind(
        "controller-without-session",
        _CRITICAL,
        "A controller that no session holds",
        "It may be gone: its znode stays, and no other controller is elected.",
    ),
    FindingKind(
        "epoch-regression",
        _CRITICAL,
        "States are newer than the controller epoch (KAFKA-20488)",
        "Kafka's controller cannot write these states, so the partitions get no new leader; brokers reject its epoch.",
    ),
    FindingKind(
        "unreadable",
        _CRITICAL,
        "A znode cannot be read",
        "Kafka's controller may fail over again and again, or ignore what the znode should say.",
    ),
    FindingKind(
        "not-shown",
        _WARNING,
        "A znode that ZooKeeper does not show us",
        "What is in it, and below it, was not checked.",
    ),
    FindingKind(
        "defaults-not-shown",
        _NOTICE,
        "Brokers' dynamic settings, which ZooKeeper does not show us",
        "Topics without a min.insync.replicas of their own count as having 1.",
    ),
    # -- brokers' settings
    FindingKind(
        "settings-differ",
        _WARNING,
        "Brokers have different values of a setting",
        "What happens depends on which broker is the controller, or leads.",
    ),
    FindingKind(
        "settings-not-told",
        _NOTICE,
        "Brokers that did not report their settings",
        "What they have in their files was not checked.",
    ),
    FindingKind(
        "takeover-changes",
        _NOTICE,
        "Settings whose effective values change if aiocontroller takes over",
        "A controller in a broker obeys that broker's value; aiocontroller obeys the value that most brokers have.",
    ),
    FindingKind(
        "takeover-needs",
        _NOTICE,
        "What a takeover needs first",
        "aiocontroller does not take the role until then.",
    ),
    # -- partitions without service
    FindingKind("offline", _CRITICAL, "Partitions without a live leader", "Clients can neither read nor write them."),
    FindingKind(
        "not-elected",
        _CRITICAL,
        "Partitions without a leader although a replica in sync is alive",
        "Clients can neither read nor write them, and no election may come until a broker starts or stops.",
    ),
    FindingKind(
        "never-led",
        _CRITICAL,
        "Partitions without a state",
        "They never had a leader: their creation did not end, or a client removed the state.",
    ),
    FindingKind(
        "under-min-isr",
        _CRITICAL,
        "Fewer replicas in sync than min.insync.replicas",
        "Producers with acks=all are refused (NOT_ENOUGH_REPLICAS).",
    ),
    FindingKind(
        "min-isr-above-replicas",
        _CRITICAL,
        "min.insync.replicas is larger than the number of replicas",
        "Producers with acks=all are always refused.",
    ),
    # -- states that contradict themselves
    FindingKind(
        "leader-outside-isr",
        _CRITICAL,
        "The leader is not in the ISR",
        "What it acknowledges may be lost at the next election.",
    ),
    FindingKind(
        "isr-outside-replicas",
        _WARNING,
        "The ISR names brokers that are not replicas",
        "They hold data that is not assigned to them, and cannot be elected.",
    ),
    FindingKind(
        "damaged-assignment",
        _CRITICAL,
        "An assignment without partitions or replicas, or with a replica twice",
        "Controllers and brokers may refuse the topic, or fail on it.",
    ),
    FindingKind(
        "duplicate-topic-id",
        _CRITICAL,
        "Two topics with one id",
        "Brokers of 2.8 and later confuse the two.",
    ),
    # -- one failure away
    FindingKind(
        "lost-with-a-broker",
        _WARNING,
        "One broker holds the only replica in sync of partitions that have several",
        "If it dies, they are offline until it returns, or lose what only it has.",
    ),
    FindingKind(
        "lost-with-a-rack",
        _WARNING,
        "All replicas of partitions are in one rack, of several",
        "If the rack fails, they are offline.",
    ),
    FindingKind(
        "at-min-isr",
        _WARNING,
        "Exactly min.insync.replicas are in sync",
        "After one more failure producers with acks=all are refused.",
    ),
    FindingKind(
        "under-replicated",
        _WARNING,
        "Replicas that are not in sync",
        "They do not protect the data, and cannot lead.",
    ),
    FindingKind(
        "broker-away",
        _WARNING,
        "A broker that has replicas is not registered",
        "Its replicas are not in sync.",
    ),
    # -- what never ends
    FindingKind(
        "deletion-stuck",
        _WARNING,
        "A deletion waits",
        "The topic stays, and Kafka's controller may neither move nor expand it.",
    ),
    FindingKind(
        "reassignment-stuck",
        _WARNING,
        "A reassignment waits for a broker that is away, or for a controller",
        "It holds its throttles and its space on disks, and blocks other changes of the partition.",
    ),
    FindingKind(
        "moving",
        _NOTICE,
        "Reassignments under way",
        "They end when the new replicas are in sync; --since shows whether they do.",
    ),
    FindingKind(
        "request-left",
        _WARNING,
        "A request of an operator's tool is still there",
        "Tools refuse the next one.",
    ),
    FindingKind(
        "notifications-pile-up",
        _WARNING,
        "Notifications that no controller takes",
        "The controller does not notice what brokers report, or is far behind.",
    ),
    FindingKind(
        "debts", _NOTICE, "Brokers still have replicas to delete", "Their disks hold data that is no longer needed."
    ),
    # -- strays
    FindingKind(
        "stray-partition",
        _WARNING,
        "Znodes of partitions that the topic does not have",
        "If the topic is expanded later, the new partition finds an old state.",
    ),
    FindingKind(
        "partition-gap",
        _WARNING,
        "Numbers of partitions are missing",
        "Producers that hash keys send to partitions that do not exist.",
    ),
    FindingKind(
        "invalid-setting",
        _WARNING,
        "Settings of a topic that brokers cannot read",
        "A broker that starts with them may fail; this check treats them as not set.",
    ),
    FindingKind(
        "stray-config",
        _NOTICE,
        "Settings of a topic that does not exist",
        "A topic created under this name gets them.",
    ),
    FindingKind(
        "topic-without-id",
        _NOTICE,
        "Topics without an id although others have one",
        "Brokers cannot tell such a topic from one that was deleted and created again.",
    ),
    # -- worth knowing
    FindingKind(
        "unclean-elections",
        _NOTICE,
        "Unclean elections are on",
        "A replica that is not in sync may lead, and acknowledged records are lost then.",
    ),
    FindingKind("single-replica", _NOTICE, "Partitions with one replica", "Each is offline while its broker is."),
    FindingKind(
        "recovering", _NOTICE, "Leaders after an unclean election that have not recovered", "Records may be missing."
    ),
    FindingKind(
        "not-preferred",
        _NOTICE,
        "Partitions not led by their preferred replica",
        "Brokers may carry uneven load.",
    ),
    # -- the way to KRaft
    FindingKind(
        "migration-blocked",
        _NOTICE,
        "Obstacles to a migration to KRaft",
        "Kafka's migration waits, or fails with no more than a line in the log.",
    ),
    FindingKind(
        "migration-running",
        _NOTICE,
        "The cluster is being migrated to KRaft, or was",
        "aiocontroller does not take over; brokers in KRaft mode are not in ZooKeeper, and seem to be down.",
    ),
)

KINDS = {kind.name: kind for kind in _TABLE}
"""By name, in the order in which they are shown within one severity."""
