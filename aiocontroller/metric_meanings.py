"""The meaning of each metric, for Prometheus's HELP lines and ``docs/reference/metrics.md``.  One line per metric."""

from __future__ import annotations

from typing import NamedTuple

from aiocontroller.core.event_kinds import ControllerState


class Meaning(NamedTuple):
    """What a metric means."""

    unit: str
    """What is counted, or the unit of a value."""
    text: str
    alert: str = ""
    """When to alert an operator; empty if the metric only serves investigations."""


_TYPES: dict[tuple[str, str], dict[str, Meaning]] = {
    ("kafka.controller", "KafkaController"): {
        "ActiveControllerCount": Meaning(
            "0 or 1", "This process is the controller.", "sum over processes and brokers is not 1"
        ),
        "OfflinePartitionsCount": Meaning("partitions", "Partitions without a leader.", "above 0 for a minute"),
        "PreferredReplicaImbalanceCount": Meaning(
            "partitions", "Partitions that their preferred replica does not lead.", "above 0 for hours"
        ),
        "ControllerState": Meaning(
            "Kafka's number", "What the controller is busy with; 0 is idle.", "the same number other than 0 for minutes"
        ),
        "GlobalTopicCount": Meaning("topics", "Topics of the cluster."),
        "GlobalPartitionCount": Meaning("partitions", "Partitions that have had a leader."),
        "TopicsToDeleteCount": Meaning("topics", "Topics that are being deleted."),
        "ReplicasToDeleteCount": Meaning("replicas", "Replicas that are being deleted."),
        "TopicsIneligibleToDeleteCount": Meaning(
            "topics", "Topics whose deletion is halted now.", "above 0 for an hour"
        ),
        "ReplicasIneligibleToDeleteCount": Meaning(
            "replicas", "Replicas whose deletion is halted now.", "above 0 for an hour"
        ),
        "ZkMigrationState": Meaning("Kafka's number", "Always 4: no migration to KRaft has begun."),
        "ActiveBrokerCount": Meaning("brokers", "Registered brokers.", "below the size of the cluster"),
        "FencedBrokerCount": Meaning("brokers", "Always 0: only KRaft fences brokers."),
    },
    ("kafka.controller", "ControllerStats"): {
        "UncleanLeaderElectionsPerSec": Meaning(
            "elections", "Leaders elected outside the ISR; each may lose records.", "rises"
        ),
    },
    ("kafka.controller", "ControllerEventManager"): {
        "EventQueueSize": Meaning("events", "Events that wait for the consumer.", "stays above 100 for a minute"),
        "EventQueueTimeMs": Meaning("ms", "How long events waited in the queue.", "p99 above 1 s"),
    },
    ("kafka.controller", "ControllerChannelManager"): {
        "TotalQueueSize": Meaning(
            "requests", "Requests that wait to be sent, to all brokers.", "stays above 0 for minutes"
        ),
        "QueueSize": Meaning("requests", "Requests that wait to be sent to the broker.", "stays above 0 for minutes"),
        "RequestRateAndQueueTimeMs": Meaning(
            "ms", "How long requests to the broker waited before they were sent.", "p99 above 1 s"
        ),
    },
    ("kafka.server", "ReplicaManager"): {
        "UnderReplicatedPartitions": Meaning(
            "partitions",
            "Partitions of the whole cluster whose ISR is smaller than their assignment; a broker's own metric of this "
            "name counts those that it leads.",
            "above 0 for minutes",
        ),
        "UnderMinIsrPartitionCount": Meaning(
            "partitions",
            "Partitions of the whole cluster whose ISR is smaller than `min.insync.replicas`: producers with acks=all "
            "are refused.",
            "above 0 for a minute",
        ),
    },
    ("kafka.server", "ControllerMutation"): {
        "ThrottledRequestsPerSec": Meaning("requests", "Requests refused or delayed by a controller mutation quota."),
        "tokens": Meaning("mutations", "What is left of a client's quota; negative while it is in debt."),
    },
    ("kafka.server", "SessionExpireListener"): {
        "ZooKeeperDisconnectsPerSec": Meaning("connections", "Lost connections to ZooKeeper.", "rises often"),
        "ZooKeeperSyncConnectsPerSec": Meaning("connections", "Connections to ZooKeeper."),
        "ZooKeeperAuthFailuresPerSec": Meaning("logins", "Logins that ZooKeeper refused.", "rises"),
        "ZooKeeperSaslAuthenticationsPerSec": Meaning("logins", "Logins to ZooKeeper by SASL."),
        "ZooKeeperReadOnlyConnectsPerSec": Meaning(
            "connections", "Connections to a ZooKeeper server that cannot write.", "rises"
        ),
        "ZooKeeperExpiresPerSec": Meaning("sessions", "Expired sessions; each costs the role.", "rises"),
    },
    ("kafka.server", "ZooKeeperClientMetrics"): {
        "ZooKeeperRequestLatencyMs": Meaning("ms", "Time from a request to ZooKeeper to its answer.", "p99 above 1 s"),
        "InFlight": Meaning("requests", "Requests to ZooKeeper without an answer yet."),
        "BytesInFlight": Meaning("bytes", "The total size of these requests."),
        "Waiting": Meaning(
            "requests", "Requests that wait for a connection to ZooKeeper, or to be sent.", "above 0 for a minute"
        ),
        "BytesSent": Meaning("bytes", "Sent to ZooKeeper in total."),
        "BytesReceived": Meaning("bytes", "Received from ZooKeeper in total."),
        "FailedAttempts": Meaning("attempts", "Failed attempts to connect, in total.", "rises"),
        "Watches": Meaning("watches", "Watches that are armed."),
    },
    ("kafka.server", "socket-server-metrics"): {
        "connection-count": Meaning(
            "connections", "Connections of brokers and clients, by listener.", "near `max.connections`"
        ),
        "successful-authentication": Meaning("logins", "Logins that succeeded."),
        "failed-authentication": Meaning("logins", "Logins that failed.", "rises steadily"),
        "successful-reauthentication": Meaning("logins", "Repeated logins (KIP-368) that succeeded."),
        "failed-reauthentication": Meaning("logins", "Repeated logins that failed."),
        "expired-connections-killed-count": Meaning(
            "connections", "Closed because their login had not been repeated in time."
        ),
    },
    ("kafka.network", "SocketServer"): {
        "MemoryPoolUsed": Meaning("bytes", "Held by requests that are received or answered."),
        "MemoryPoolAvailable": Meaning("bytes", "Left of `queued.max.request.bytes`.", "0 for a minute"),
        "ExpiredConnectionsKilled": Meaning("connections", "Closed because they were idle or too slow."),
    },
    ("aiocontroller", "SocketServer"): {
        "RefusedConnections": Meaning("connections", "Refused because a limit was reached.", "rises"),
        "EvictedConnections": Meaning("connections", "Closed to make room for others.", "rises"),
        "LoginMemoryUsed": Meaning(
            "bytes", "Held by requests of connections that have not logged in.", "near `aiocontroller.login.max.bytes`"
        ),
        "UnreadResponseBytes": Meaning(
            "bytes", "Answers that clients have not read.", "near `aiocontroller.queued.max.response.bytes`"
        ),
        "UnreadConnections": Meaning("connections", "Connections with such answers."),
        "ConnectionsWaitingForMemory": Meaning(
            "connections", "Not read from while requests use all the memory allowed.", "above 0 for a minute"
        ),
        "ConnectionsWaitingForTheirTurn": Meaning("connections", "With a request that waits for its turn in the loop."),
    },
    ("aiocontroller", "Partitions"): {
        "Offline": Meaning(
            "partitions",
            "Partitions without a leader, including those that never had one, by topic: the 20 topics with the most.",
            "above 0 for a minute",
        ),
        "UnreadTopics": Meaning(
            "topics",
            "Topics with small ISRs whose `min.insync.replicas` has yet to be read; until then "
            "UnderMinIsrPartitionCount may be too low.",
        ),
    },
    ("aiocontroller", "EventQueue"): {
        "Signals": Meaning("events", "Signals that wait for the consumer, one for each kind and name."),
        "ClientRequests": Meaning("requests", "Clients' requests in the event queue; it takes at most 1000."),
        "RefusedClientRequests": Meaning("requests", "Clients' requests that the full queue refused.", "rises"),
    },
    ("aiocontroller", "RequestAdmission"): {
        "WaitingRequests": Meaning(
            "requests", "Clients' requests that wait to enter the event queue.", "above 0 for a minute"
        ),
        "DeferredRequests": Meaning("requests", "Clients' requests whose answer comes later."),
    },
    ("aiocontroller", "HttpServer"): {
        "Connections": Meaning(
            "connections", "Connections to the HTTP server.", "near `aiocontroller.http.max.connections`"
        ),
        "EvictedConnections": Meaning("connections", "Closed to make room for others.", "rises"),
    },
    ("aiocontroller", "Authorizer"): {
        "BrokersRefused": Meaning("brokers", "Brokers refused because of their principal.", "above 0"),
        "RequestsRefused": Meaning("requests", "Requests refused by the authorizer, by API.", "rises steadily"),
    },
    ("aiocontroller", "Readiness"): {
        "Ready": Meaning("0 or 1", "This process is the controller, or can become it; as /readyz.", "0 for a minute"),
    },
    ("aiocontroller", "Guard"): {
        "Reasons": Meaning("reasons", "Reasons why this process must not be the controller, by kind.", "above 0"),
        "Refusals": Meaning("elections", "Elections in which this process did not stand, by kind of reason."),
        "Withdrawals": Meaning(
            "elections", "Elections that it won, and gave up for such a reason before the term began.", "rises"
        ),
        "BrokersUnanswered": Meaning(
            "brokers", "Registered brokers that have not answered the survey.", "above 0 for minutes"
        ),
    },
    ("aiocontroller", "Standby"): {
        "Warm": Meaning("0 or 1", "Whether this standby has a complete copy of the cluster.", "0 on a warm standby"),
        "Behind": Meaning("znodes", "Topics and partitions that have changed and must be read again."),
        "LagMs": Meaning("ms", "How long the copy has been out of date.", "above 1000"),
        "MemoryBytes": Meaning("bytes", "The approximate size of the copy in memory."),
        "Reloads": Meaning("reloads", "How often everything was read, at first and after lost connections.", "rises"),
    },
    ("aiocontroller", "Settings"): {
        "Differing": Meaning("settings", "Obeyed settings in which brokers differ.", "above 0"),
        "Contradicting": Meaning("settings", "Settings whose values here contradict the brokers'.", "above 0"),
    },
    ("aiocontroller", "Events"): {
        "Failed": Meaning("events", "Events whose handler failed: a bug.", "rises"),
        "Reloads": Meaning("reloads", "How often the cluster was read again after such a failure.", "rises"),
        "Refused": Meaning("requests", "Requests refused because the same kind keeps failing.", "rises"),
        "SetAside": Meaning("events", "Kinds of events that failed and wait to be tried again.", "above 0"),
    },
    ("aiocontroller", "Debts"): {
        "ReplicasToDelete": Meaning(
            "replicas", "Replicas that brokers still have to delete.", "does not fall for a day"
        ),
    },
    ("aiocontroller", "EligibleReplicas"): {
        "PartitionsWithLeader": Meaning(
            "partitions",
            "Partitions with a leader that commit nothing, because their ISR is smaller than min.insync.replicas, but "
            "have known eligible replicas.",
        ),
        "PartitionsWithoutLeader": Meaning(
            "partitions", "Partitions with known eligible replicas, but no live leader.", "above 0 for a minute"
        ),
    },
    ("aiocontroller", "Audit"): {
        "Findings": Meaning("findings", "Differences between memory and ZooKeeper, by kind.", "rises"),
        "Passes": Meaning("passes", "Complete audits."),
        "SliceTimeMs": Meaning("ms", "Time for one slice of an audit.", "p99 above 100 ms"),
        "LastPassTimestampMs": Meaning("ms since 1970", "When the last complete audit ended.", "hours ago"),
        "LastPassDurationMs": Meaning("ms", "How long the last complete audit took."),
        "Coverage": Meaning("0 to 1", "The part of the present audit that is done."),
        "Suspicions": Meaning("differences", "Differences that were seen once, and will be checked again."),
    },
    ("aiocontroller", "EarlyDetection"): {
        "Suspicions": Meaning("suspicions", "Peers that seemed to be dead, by kind."),
        "Held": Meaning("suspicions", "Suspicions that a limit held back, by kind of peer.", "rises"),
        "Alarms": Meaning("brokers", "Brokers whose leaders were moved before their session expired.", "rises"),
        "FenceCommands": Meaning("commands", "Fence commands that were run.", "rises"),
        "FailedFenceCommands": Meaning("commands", "Fence commands that failed, or could not be run.", "rises"),
        "FalseAlarms": Meaning("brokers", "Brokers counted in Alarms that were alive.", "rises"),
    },
    ("aiocontroller", "Sickness"): {
        "SickBrokers": Meaning("brokers", "Brokers that are judged sick now: 0 or 1.", "above 0"),
        "Verdicts": Meaning("verdicts", "How often a broker was judged sick.", "rises"),
        "Held": Meaning("times", "How often too many brokers seemed sick, or too often, to judge one.", "rises"),
    },
    ("aiocontroller", "ZooKeeper"): {
        "BadZNodes": Meaning("znodes", "Znodes that could not be read and were left out.", "rises"),
    },
    ("aiocontroller", "EventLoop"): {
        "LagMs": Meaning("ms", "How late the event loop runs its timers.", "p99 above 1 s"),
    },
    ("aiocontroller", "Journal"): {
        "Appended": Meaning("records", "Records handed to the journal."),
        "Written": Meaning("records", "Records written to its files."),
        "Dropped": Meaning("records", "Records lost because the disk was too slow or full.", "rises"),
        "Pending": Meaning("records", "Records that wait to be written.", "above 10000"),
        "WrittenBytes": Meaning("bytes", "Written in total."),
        "Failures": Meaning("attempts", "Writes that the operating system refused.", "rises"),
        "Segments": Meaning("files", "Files that were begun."),
        "Deleted": Meaning("files", "Files that were deleted by others while this process wrote them.", "rises"),
        "Expired": Meaning("files", "Old files that were deleted because the total size exceeded the limit.", ""),
    },
}

for _state in ControllerState:
    if _state.timer is not None:
        _TYPES["kafka.controller", "ControllerStats"][_state.timer] = Meaning(
            "ms", f"Time that events of the state {_state.name} took."
        )

MEANINGS: dict[tuple[str, str, str], Meaning] = {
    (group, type_, name): meaning for (group, type_), names in _TYPES.items() for name, meaning in names.items()
}
"""By group, type and name, as a metric is registered."""
