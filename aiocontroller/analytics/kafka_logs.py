r"""The log messages of Kafka's brokers and controllers, 0.10 to 3.9, as a table of patterns.

The patterns come from the sources of Kafka's releases (never from web pages, which contain invented lines).  Wording
was added but hardly ever reused, so one table serves all versions; ``since`` and ``until`` name the releases that write
such a line.

Each pattern becomes one ``regexp_replace`` whose replacement is the whole row, with each group at its column's place in
``SLOTS``.  (A ``regexp_extract`` per field would run the regex once for each field, which is five times slower.)  The
regexes use what Java and Python have in common, except for ``(?<name>`` (Python: ``(?P<name>``).  A group has its
column's name in camelCase, with a capital letter at the end where two alternatives fill one column.

A line without a matching pattern keeps its text under the kind ``other``; no line is dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

SLOTS: Final = (
    "kind", "event", "topic", "partition", "replica", "from_state", "to_state", "leader", "leader_epoch", "isr",
    "replicas", "recovery_state", "epoch", "controller_epoch", "partition_epoch", "broker", "brokers", "api",
    "correlation_id", "partitions", "more_partitions", "count", "code", "duration_ms", "detail",
)  # fmt: skip
"""The columns that a message can fill, as text.  (The time, the node and usually the epoch precede the message.)"""
SEPARATOR: Final = "\x01"
"""Separates the slots; no log contains it."""
SELF: Final = "@node"
"""In ``broker`` or ``leader``: the broker that wrote the line."""
EVENT_THREAD: Final = "start of the controller thread"
"""The ``event`` of a line that every broker writes to controller.log when it starts, right after its registration."""
FETCHERS: Final = "change of fetchers"
"""The ``event`` of a line that every broker writes to server.log when it becomes a leader or a follower."""

_TP = r"\[?(?<topic>[\w.-]+)[-,](?<partition>\d+)\]?"
"""``topic-0``, whose topic may contain dashes too, or ``[topic,0]`` (to 0.11)."""
_LEADER_AND_ISR = (
    r"LeaderAndIsr\(leader=(?<leaderA>-?\d+), leaderEpoch=(?<leaderEpoch>\d+), "
    r"isr(?:WithBrokerEpoch)?=\w+\((?<isr>.*?)\)(?:, leaderRecoveryState=(?<recoveryState>\w+))?, "
    r"(?:zkVersion|partitionEpoch)=(?<partitionEpoch>-?\d+)\)"
)
_LEADERSHIP_OLD = (
    r"\(Leader:(?<leader>-?\d+),ISR:(?<isr>[\d,]*)(?:,LeaderRecoveryState:(?<recoveryState>\w+))?"
    r",LeaderEpoch:(?<leaderEpoch>\d+)(?:,ZkVersion:(?<partitionEpoch>-?\d+))?,ControllerEpoch:(?<controllerEpoch>\d+)\)"
)
"""``LeaderIsrAndControllerEpoch``."""
_NAMED = r"topicName='(?<topic>[^']*)', partitionIndex=(?<partition>\d+), "
_PARTITION_STATE = (
    r"PartitionState\((?:topicName='[^']*', partitionIndex=\d+, )?"
    r"controllerEpoch=(?<controllerEpoch>\d+), leader=(?<leader>-?\d+), leaderEpoch=(?<leaderEpoch>-?\d+), "
    r"isr=\[?(?<isr>[\d, ]*?)\]?, (?:zkVersion|partitionEpoch)=(?<partitionEpoch>-?\d+), "
    r"replicas=\[?(?<replicas>[\d, ]*?)\]?(?:, \w+=.*?)?\)"
)
_PARTITION_STATE_NAMED = _PARTITION_STATE.replace(r"topicName='[^']*', partitionIndex=\d+, ", _NAMED)
_FOR_PARTITION = r" for partition \[?(?<topicA>[\w.-]+)[-,](?<partitionA>\d+)\]?"
_FROM_CONTROLLER = r"from controller (?<detail>\d+)"


@dataclass(frozen=True, eq=False)
class Pattern:
    """``needle`` is a literal that the line must contain (a cheap check); ``always`` fills slots without a group."""

    kind: str
    needle: str
    regex: str
    since: str
    until: str = "3.9"
    always: dict[str, str] = field(default_factory=dict)


def _p(kind: str, needle: str, regex: str, since: str, until: str = "3.9", **always: str) -> Pattern:
    return Pattern(kind, needle, regex, since, until, always)


_LISR, _UMR, _STOP = "LEADER_AND_ISR", "UPDATE_METADATA", "STOP_REPLICA"

STATE_CHANGES: Final = (
    _p(
        "partition",
        "hanged partition ",
        rf"[Cc]hanged partition {_TP} (?:state )?from (?<fromState>\w+) to (?<toState>\w+)"
        rf"(?: with (?:assigned replicas (?<replicas>[\d,]*)|leader (?<leaderB>-?\d+)|state {_LEADER_AND_ISR}))?",
        "0.10",
    ),
    _p("partition", " state changed to (Leader:", rf"Partition {_TP} state changed to {_LEADERSHIP_OLD} "
       r"after removing replica (?<replica>\d+) from the ISR", "2.6"),
    _p("partition", "New leader and ISR for partition ", rf"New leader and ISR for partition {_TP} is "
       r'\{"leader":(?<leader>-?\d+),"leader_epoch":(?<leaderEpoch>\d+),"isr":\[(?<isr>[\d,]*)\]\}', "0.10", "0.11"),
    _p("replica", "hanged state of replica ", rf"[Cc]hanged state of replica (?<replica>\d+) for partition {_TP} "
       r"from (?<fromState>\w+) to (?<toState>\w+)", "0.10"),
    _p("failed", " failed to change state for partition ", rf"failed to change state for partition {_TP} "
       r"from (?<fromState>\w+) to (?<toState>\w+)", "1.0"),
    _p("failed", " initiated state change ", r"initiated state change (?:of replica (?<replica>\d+) )?for partition "
       rf"{_TP} from (?<fromState>\w+) to (?<toState>\w+) failed", "0.10"),
    _p("failed", "encountered error while electing leader", rf"encountered error while electing leader for partition "
       rf"{_TP} due to: (?<detail>.*?)\.?(?: \(state\.change\.logger\).*)?$", "0.10", "0.11"),
    _p("other", "elected leader ", rf"elected leader (?<leader>-?\d+) for Offline partition {_TP}", "0.10", "0.11",
       event="elected leader"),
    _p("reassigning", " with new replica assignment ", rf"Sent LeaderAndIsr request {_LEADERSHIP_OLD} with new replica "
       r"assignment ReplicaAssignment\(replicas=(?<replicas>[\d,]*), addingReplicas=(?<detail>[\d,]*), "
       rf"removingReplicas=[\d,]*\) to leader -?\d+ for partition being reassigned {_TP}", "2.4"),
)  # fmt: skip
"""Messages of the controller; ``failed`` and ``elected leader`` show why a partition has no leader, or has one again.

In ``reassigning``, ``detail`` has the replicas being added; when they are in sync, the line is logged again without
any.
"""

REQUESTS: Final = (
    _p("told", "LeaderAndIsr request (Leader:", rf"[Ss]ending become-\w+ LeaderAndIsr request {_LEADERSHIP_OLD} "
       r"to broker (?<broker>\d+) for partition \[?(?<topic>[\w.-]+)[-,](?<partition>\d+)\]?", "0.10", "0.11",
       api=_LISR),
    _p("told", "ending become-", rf"[Ss]ending become-\w+ LeaderAndIsr request (?:LeaderAndIsr)?{_PARTITION_STATE} "
       rf"to broker (?<broker>\d+){_FOR_PARTITION}", "1.0", api=_LISR),
    _p("request", "Sending LeaderAndIsr request to broker ", r"Sending LeaderAndIsr request to broker (?<broker>\d+) "
       r"with (?<partitions>\d+) become-leader and (?<morePartitions>\d+) become-follower", "2.6", api=_LISR),
    _p("request", "Sending UpdateMetadata request to brokers ", r"Sending UpdateMetadata request to brokers "
       r"\w+\((?<brokers>[\d, ]*)\) for (?<partitions>\d+) partitions", "2.6", api=_UMR),
    _p("told", "ending UpdateMetadata request (Leader:", rf"[Ss]ending UpdateMetadata request {_LEADERSHIP_OLD} "
       r"to brokers \w+\((?<brokers>[\d, ]*)\) for partition \[?(?<topic>[\w.-]+)[-,](?<partition>\d+)\]?", "0.10",
       "0.11", api=_UMR),
    _p("told", "ending UpdateMetadata request ", rf"[Ss]ending UpdateMetadata request (?:\w*?){_PARTITION_STATE} "
       rf"to brokers \w+\((?<brokers>[\d, ]*)\){_FOR_PARTITION}", "1.0", "2.5", api=_UMR),
    _p("request", "Sending StopReplica request ", r"Sending StopReplica request (?:\(delete = (?<detail>\w+)\) )?"
       r"for (?<partitions>\d+) replicas to broker (?<broker>\d+)", "2.6", api=_STOP),
    _p("response", "eceived response ", r"[Rr]eceived response .{0,80}?error_?[cC]ode=(?<code>\d+).* "
       r"for (?:a request|request (?<api>\w+) with correlation id (?<correlationId>\d+)) sent to broker \S+ "
       r"\(id: (?<broker>\d+) ", "0.10"),
)  # fmt: skip
"""Messages of the controller.  ``told`` is one partition of a request (TRACE), ``request`` a whole request."""

AT_BROKERS: Final = (
    _p("received", "eceived LeaderAndIsr request ", rf"[Rr]eceived LeaderAndIsr request (?:LeaderAndIsr)?"
       rf"{_PARTITION_STATE_NAMED} correlation id (?<correlationId>\d+) {_FROM_CONTROLLER} epoch (?<epoch>\d+)"
       rf"(?:{_FOR_PARTITION})?",
       "0.10", api=_LISR, broker=SELF),
    _p("received", " partitions and deleted ", r"Add (?<partitions>\d+) partitions and deleted (?<morePartitions>\d+) "
       r"partitions from metadata cache in response to UpdateMetadata request sent by controller (?<detail>\d+) "
       r"epoch (?<controllerEpoch>\d+) with correlation id (?<correlationId>\d+)", "2.6", api=_UMR, broker=SELF),
    _p("received", "ached leader info (LeaderAndIsrInfo:", rf"[Cc]ached leader info \(LeaderAndIsrInfo:"
       rf"{_LEADERSHIP_OLD},.*?AllReplicas:(?<replicas>[\d,]*)\) for partition {_TP} in response to UpdateMetadata "
       r"request sent by controller (?<detail>\d+) epoch (?<epoch>\d+) with correlation id (?<correlationId>\d+)",
       "0.10", "0.11", api=_UMR, broker=SELF),
    _p("received", "ached leader info ", rf"[Cc]ached leader info \w*?{_PARTITION_STATE}{_FOR_PARTITION} in response "
       r"to UpdateMetadata request sent by controller (?<detail>\d+) epoch (?<epoch>\d+) with correlation id "
       r"(?<correlationId>\d+)", "1.0", api=_UMR, broker=SELF),
    _p("received", "Handling ", r"Handling (?<api>LeaderAndIsr|StopReplica) request correlationId "
       rf"(?<correlationId>\d+) {_FROM_CONTROLLER} for (?<partitions>\d+) partitions", "2.6", broker=SELF),
    _p("handled", "Finished LeaderAndIsr request in ", r"Finished LeaderAndIsr request in (?<durationMs>\d+) ?ms "
       rf"correlationId (?<correlationId>\d+) {_FROM_CONTROLLER} for (?<partitions>\d+) partitions", "2.6", api=_LISR,
       broker=SELF),
    _p("handled", "ompleted LeaderAndIsr request ", r"[Cc]ompleted LeaderAndIsr request correlationId "
       rf"(?<correlationId>\d+) {_FROM_CONTROLLER} epoch (?<controllerEpoch>\d+) for the (?<event>become-\w+) "
       rf"transition for partition {_TP}", "0.10", api=_LISR, broker=SELF),
    _p("handled", " starts at ", rf"(?<event>Leader|Follower)? ?{_TP} "
       r"(?:with topic id (?:Some\((?<detail>[\w-]+)\)|\S+) )?starts at "
       r"[Ll]eader [Ee]poch (?<leaderEpoch>\d+) from offset \d+(?: with partition epoch (?<partitionEpoch>\d+))?"
       r"(?:.*? ISR \[(?<isr>[\d,]*)\])?(?:.*Current leader is (?<leader>-?\d+))?", "0.11", broker=SELF),
    _p("deleted", "eleted partition ", r"[Dd]eleted partition (?<detail>[\w.-]+-\d+) from metadata cache in response "
       r"to UpdateMetadata request sent by controller \d+ epoch (?<epoch>\d+)", "0.10", broker=SELF),
    _p("deleted", " offsets associated with deleted partitions: ", r"Removed (?<count>\d+) offsets associated with "
       r"deleted partitions: (?<detail>[\w., -]*-\d+)\.(?:\s|$)", "2.0", broker=SELF),
    _p("stale", " from an old controller ", r"[Rr]eceived (?<api>update ?metadata|UpdateMetadata) request with "
       r"correlation id (?<correlationId>\d+) from an old controller (?<detail>\d+) with epoch "
       r"(?<controllerEpoch>\d+)\. Latest known controller epoch is \d+", "0.10", broker=SELF),
    _p("stale", " is old. Latest known controller epoch", r"[Ii]gnoring (?<api>LeaderAndIsr|StopReplica) request "
       rf"{_FROM_CONTROLLER} with correlation id (?<correlationId>\d+) since its controller epoch "
       r"(?<controllerEpoch>\d+) is old\.", "0.10", broker=SELF),
    _p("isr", "ISR updated to ", rf"\[Partition {_TP} broker=\d+\] ISR updated to \[?(?<isr>[\d,]+)\]? "
       r"(?:\(under-min-isr\) )? ?and (?:zkVersion|version) updated to \[?(?<partitionEpoch>\d+)\]?", "1.0",
       event="updated", leader=SELF),
    _p("isr", "Shrinking ISR ", rf"\[?Partition {_TP} (?:on )?broker[ =]\d+[\]:]+ Shrinking ISR (?:for partition \S+ )?"
       r"from (?<detail>[\d,]*) to (?<isr>[\d,]+)", "0.10", event="shrink", leader=SELF),
    _p("isr", "Expanding ISR ", rf"\[?Partition {_TP} (?:on )?broker[ =]\d+[\]:]+ Expanding ISR (?:for partition \S+ )?"
       r"from (?<detail>[\d,]*) to (?<isr>[\d,]+)", "0.10", event="expand", leader=SELF),
)  # fmt: skip
"""Messages in the brokers' state-change.log and server.log; in received, handled and stale, ``detail`` is the
controller.  In received, ``epoch`` is the controller's own, and ``controller_epoch`` the one in a partition's state.
In the line of a leader that starts at a leader epoch, ``detail`` is the topic's id (releases after 3.0).

In deleted, ``detail`` has the partitions that an UpdateMetadata request names as deleted, by the leader -2.
"""

FAILOVER_STEPS: Final = (
    "starting become controller state transition", "Reading controller epoch from ZooKeeper",
    "Incrementing controller epoch in ZooKeeper", "Creating FeatureZNode", "Registering handlers",
    "Deleting log dir event notifications", "Deleting isr change notifications", "Initializing controller context",
    "Fetching topic deletions in progress", "Initializing topic deletion manager", "Sending update metadata request",
    "Starting the controller scheduler",
)  # fmt: skip
"""Each line is the start of a step, in the order of a failover; most exist since 1.1."""

CONTROLLER: Final = (
    _p("elected", " successfully elected as ", r"\d+ successfully elected as (?:the controller|leader)"
       r"(?:\. Epoch incremented to (?<controllerEpoch>\d+))?", "0.10"),
    _p("failover", " incremented epoch to ", r"Controller \d+ (?<event>incremented epoch) to "
       r"(?<controllerEpoch>\d+)", "0.10", "1.0"),
    *(_p("failover", step, rf"(?<event>{re.escape(step)})".replace(r"\ ", " "), "0.10" if step[0] == "s" else "1.1")
      for step in FAILOVER_STEPS),
    _p("loaded", "eady to serve as the new controller", r"(?:is r|R)eady to serve as the new controller with epoch "
       r"(?<controllerEpoch>\d+)", "0.10"),
    _p("resigned", "esigned", r"(?:Resigned|resigned as the controller)", "0.10"),
    _p("broker", "New broker startup callback for ", r"New broker startup callback for (?<brokers>[\d,]+)", "0.10",
       detail="added"),
    _p("broker", "Broker failure callback for ", r"Broker failure callback for (?<brokers>[\d,]+)", "0.10",
       detail="dead"),
    _p("broker", "Newly added brokers: ", r"Newly added brokers: [\d,]*, deleted brokers: [\d,]*, bounced "
       r"brokers: (?<brokers>\d[\d,]*), all live brokers", "2.2",
       detail="bounced"),
    _p("other", "[ControllerEventThread controllerId=", r"\[ControllerEventThread controllerId=\d+\] Starting", "1.1",
       event=EVENT_THREAD),
    _p("broker", "Shutting down broker ", r"Shutting down broker (?<broker>\d+)", "0.10",
       detail="controlled shutdown"),
    _p("active", "active brokers in the cluster: ", r"Currently active brokers in the cluster: "
       r"\w+\((?<brokers>[\d, ]*)\)", "0.10"),
    _p("topic_deleted", " successfully completed", r"Deletion of topic (?<topic>\S+) successfully completed", "0.10"),
    _p("other", "preferred replica leader election. ", rf"Partition {_TP} completed preferred replica leader "
       r"election\. New leader is (?<leader>\d+)", "0.10", event="preferred replica leader election"),
    _p("session", "ZK expired", r"ZK expired; shut down all controller components", "0.10", "1.0", detail="EXPIRED"),
    _p("session", "state changed (Expired)", r"zookeeper state changed \(Expired\)", "0.10", "1.0", detail="EXPIRED"),
    _p("session", "Session expired.", r"Session expired\.", "1.0", detail="EXPIRED"),
)  # fmt: skip

LIFE: Final = (
    _p("broker", "Starting controlled shutdown", r"Starting controlled shutdown", "0.10",
       detail="asks for a controlled shutdown", broker=SELF),
    _p("broker", "Controlled shutdown ", r"Controlled shutdown (?:succeeded|request returned (?:successfully )?after)",
       "0.10", detail="was allowed to shut down", broker=SELF),
    _p("broker", "shut down completed", r"\[Kafka ?Server (?:id=)?\d+\],? shut down completed", "0.10",
       detail="shut down", broker=SELF),
    _p("broker", "Registered broker ", r"Registered broker \d+ at path", "0.10", detail="registered", broker=SELF),
    _p("broker", " started", r"\[Kafka ?Server (?:id=)?\d+\],? started", "0.10", detail="started", broker=SELF),
)  # fmt: skip
"""Messages in server.log; the controller's messages about a broker have the details ``added``, ``dead``, ``bounced``
and ``controlled shutdown``."""

_NEAR = r".{0,300}?"
"""A client chooses its group's name, which may be a text as long as 32 KB that looks like many beginnings of a message.
With ``.*``, such a line would take minutes."""
_GROUP = r"(?<detail>.{1,1000}?)"
_FETCHER = r"\[ReplicaFetcher replicaId=\d+, leaderId=(?<broker>\d+)"

GROUPS: Final = (
    _p("group_rebalance", "reparing to re", rf"Preparing to re(?:balance|stabilize) group {_GROUP} "
       r"(?:in state \w+ )?with old generation \d+", "0.10", broker=SELF),
    _p("group_stable", "Stabilized group ", rf"Stabilized group {_GROUP} generation \d+ \(__consumer_offsets-\d+\) "
       r"with (?<count>\d+) members", "2.8", broker=SELF),
)  # fmt: skip
"""Messages in server.log with a group's name, which may look like any other message: they are looked for first."""

EVIDENCE: Final = (
    _p("peer_lost", "Error sending fetch request ", rf"\[ReplicaFetcher {_NEAR}Error sending fetch request "
       rf"{_NEAR} to node (?<broker>\d+):", "1.1", event="fetch failed"),
    _p("peer_lost", "could not be established", rf"{_FETCHER}{_NEAR}Connection to node \d+ \({_NEAR}could not be "
       r"established", "1.1", event="connection refused"),
    _p("peer_lost", " disconnected.", rf"{_FETCHER}{_NEAR}Node \d+ disconnected\.", "2.8", event="disconnected"),
    _p("peer_lost", "Error in fetch ", r"\[ReplicaFetcherThread-\d+-(?<broker>\d+)\]:?,? Error in fetch ", "0.10",
       "1.0", event="fetch failed"),
    _p("session", "have not heard from server in ", r"(?:Client session timed out, have|Have|have) not heard from "
       r"server in (?<durationMs>\d+) ?ms", "0.10", detail="TIMED_OUT"),
    _p("session", "Session establishment complete", r"Session establishment complete .{0,300}?"
       r"negotiated timeout = (?<durationMs>\d+)", "0.10",
       detail="ESTABLISHED"),
    _p("cluster_id", "Cluster ID = ", r"Cluster ID = (?<detail>[\w-]+)", "0.10"),
    _p("broker", "Controller MBean", r"Registered .?kafka:type=kafka\.Log4jController.? MBean", "1.1",
       detail="starting", broker=SELF),
    _p("other", "Removed fetcher for partitions ", r"\[ReplicaFetcherManager on broker \d+\] Removed fetcher "
       "for partitions ", "0.10", event=FETCHERS),
    _p("known_bug", "Cached zkVersion ", rf"\[?Partition {_TP} (?:on )?broker[ =]\d+[\]:]+ Cached zkVersion \[?\d+\]? "
       r"not equal to that in zookeeper, skip updating ISR", "0.10", "2.7", event="KAFKA-2729", broker=SELF),
    _p("known_bug", "node already exists and owner ", r"Error while creating ephemeral at /brokers/ids/(?<broker>\d+), "
       r"node already exists and owner", "1.1", event="KAFKA-7165"),
)  # fmt: skip
"""Messages in server.log.

``peer_lost``: a replica's fetcher found that its leader, ``broker``, does not answer.  Connections of controllers and
clients are not used, since they also end when they are idle.
"""

PATTERNS: Final = (*GROUPS, *STATE_CHANGES, *REQUESTS, *AT_BROKERS, *CONTROLLER, *LIFE, *EVIDENCE)
"""The first pattern whose needle is in the line is the only one that is tried, where the message begins (``whole``)."""

_LEVEL = r"(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)"
_DATE = r"(?:20)?(?<date>\d\d-\d\d-\d\d)[ T]"
"""The first two digits of the year may be missing, since they may be part of what separates a file's records."""
_TIME = r"(?<time>\d\d:\d\d:\d\d)(?:[,.](?<fraction>\d{1,9}))? ?(?<zone>Z|UTC|[+-]\d\d:?\d\d)?"
_LOGGER = r"[A-Za-z]\w*(?:[.][\w$]+)+(?::\d+)?:?(?=[\s\])])"
BEFORE: Final = (
    rf"(?:(?:\S+\s+){{0,2}}?{_LEVEL}\b)?"
    rf"(?:[\s:,|\]-]|\[[^\]]*\]|\({_LOGGER}\)|{_LOGGER}|(?:Controller|Broker) \d+(?: epoch \d+)?:? ){{0,100}}?"
)
"""What may precede a message: a level after a thread's name, what is in brackets, a logger, the writer.

No client chooses any of it, and a name that it chooses comes later.  So nothing is looked for beyond.
"""
_WRITER = (
    r"\[[^\]=]*?(?:[Cc]ontroller|[Bb]roker|Manager|Server|Coordinator|controllerId|replicaId|id)[ =](?<nodeA>\d+)"
    r"(?:,? epoch=(?<epochA>\d+))?"
    r"|\[Controller-(?<nodeB>\d+)-to-broker"
    r"|Partition \[[^\]]*\] on broker (?<nodeC>\d+): "
    rf"|(?:{_LEVEL}|-) +(?:Controller|Broker) (?<nodeD>\d+)(?: epoch (?<epochD>\d+))? "
)
HEADER: Final = rf"\[?(?:{_LEVEL} +\[?)?{_DATE}{_TIME}(?=[\], ])\]?,? *(?=(?:{BEFORE}(?:{_WRITER}))?)(?<rest>.*)$"
"""The time, the writer (if it is named) and the rest of the line, after the wrapper, if there is one."""
HEADER_WITHOUT_DATE: Final = HEADER.replace(_DATE, "(?<date>)")
HEADER_SLOTS: Final = ("date", "time", "fraction", "zone", "node", "epoch", "rest")


def replacement(pattern: Pattern) -> str:
    """Return the row of a match (``SLOTS``) as a replacement for ``regexp_replace``."""
    groups: dict[str, list[str]] = {}
    for name in re.findall(r"\(\?<(\w+)>", pattern.regex):
        groups.setdefault(slot_of(name), []).append(f"${{{name}}}")
    always = {"kind": pattern.kind, **pattern.always}
    return SEPARATOR.join(always.get(slot, "") + "".join(groups.get(slot, ())) for slot in SLOTS)


def header_replacement() -> str:
    """Return the same for ``HEADER`` and ``HEADER_SLOTS``."""
    names = re.findall(r"\(\?<(\w+)>", HEADER)
    of = {slot: "".join(f"${{{n}}}" for n in names if slot_of(n) == slot) for slot in HEADER_SLOTS}
    return SEPARATOR.join(of[slot] for slot in HEADER_SLOTS)


def whole(regex: str) -> str:
    """Extend a pattern's regex so that it matches, and thus replaces, the whole message; it must begin there."""
    return rf"(?s)^{BEFORE}(?:{regex}).*$"


def slot_of(group: str) -> str:
    """Return the column of a group: ``leaderEpoch`` -> ``leader_epoch``; ``leaderB`` -> ``leader``."""
    return re.sub(r"[A-Z](?=[a-z])", lambda m: "_" + m.group().lower(), re.sub(r"[A-Z]$", "", group))


def as_python(regex: str) -> str:
    """Return a Java regex of this module in Python's syntax, which differs in named groups."""
    return regex.replace("(?<", "(?P<")
