"""The verbs of scenarios: what each means, stated once.

Each place that plays scenarios (the simulation, storms of real processes, transcripts, the differential tests, the
brokers of benchmarks) has a method or a function ``step_VERB`` for the verbs that it can play, and may have no other.
A place that cannot play a verb refuses it.  ``docs/scenarios.md`` shows this table, and which place plays which verb.

A line of a scenario is a verb and its words: brokers are numbers, partitions ``orders-0``, lists of brokers ``1,2,3``,
options ``name=value``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.errors import BadInputError


class Verb(NamedTuple):
    name: str
    words: str
    meaning: str


class UnknownVerbError(BadInputError):
    """A line begins with a word that is no verb."""


_TABLE = (
    # -- topics and partitions -----------------------------------------------------------------------------------------
    Verb("create-topic", "topic, replicas of each partition", "an operator's tool writes the topic's znode"),
    Verb("add-partitions", "topic, replicas of each new partition", "a tool adds them to the topic's znode"),
    Verb("delete-topic", "topic", "a tool creates the topic's znode in `/admin/delete_topics`"),
    Verb("request-topics", "topic, replicas of each partition; `timeout-ms=`", "CreateTopics: a client asks"),
    Verb("request-partitions", "topic, replicas of each new partition", "CreatePartitions: a client asks"),
    Verb("request-deletion", "topic", "DeleteTopics: a client asks"),
    Verb("request-configs", "", "IncrementalAlterConfigs of a topic: a client asks"),
    Verb("request-credentials", "", "AlterUserScramCredentials: a client asks"),
    Verb("request-quotas", "", "AlterClientQuotas: a client asks"),
    Verb("request-features", "", "UpdateFeatures: a client asks, and must be refused"),
    Verb("request-acls", "", "CreateAcls: a client asks, and must be refused without an authorizer"),
    Verb("send-garbage", "", "damaged requests to the active controller"),
    Verb("auto-create-topic", "broker", "a broker creates a topic, perhaps with the controller among the replicas"),
    Verb("allow-unclean", "topic, `true` or `false`", "the topic's `unclean.leader.election.enable` changes"),
    Verb("alter-topic-configs", "topic, `name:value`, …", "settings of a topic change, as by `kafka-configs.sh`"),
    # -- reassignments and elections -----------------------------------------------------------------------------------
    Verb("reassign", "partition, replicas, …", "AlterPartitionReassignments (`cancel` for replicas cancels)"),
    Verb("reassign-by-znode", "partition, replicas, …", "the same by `/admin/reassign_partitions`"),
    Verb("cancel-reassignment", "partitions", "AlterPartitionReassignments without targets"),
    Verb("list-reassignments", "", "ListPartitionReassignments; the answer is judged"),
    Verb("elect-preferred", "partitions", "ElectLeaders of preferred replicas (drawn: now and then unclean)"),
    Verb("elect-unclean", "partitions", "ElectLeaders, of replicas outside the ISR where none in it lives"),
    Verb("elect-by-znode", "partitions", "the preferred election by `/admin/preferred_replica_election`"),
    Verb("elect-everywhere", "", "ElectLeaders of all partitions"),
    Verb("delete-while-moving", "", "a topic is deleted whose replicas are being moved"),
    Verb("move-and-fail", "", "a move is overridden or cancelled while the original replicas are dead"),
    Verb("undo-under-another", "", "a move that cannot end is overridden under another controller"),
    Verb("ask-much", "", "many requests at once, and perhaps the end of the controller's session"),
    Verb("allocate-producer-ids", "broker; `broker-epoch=`", "AllocateProducerIds"),
    # -- ISRs ----------------------------------------------------------------------------------------------------------
    Verb("notify-isr-change", "partitions", "an ISR change notification, without a change"),
    Verb(
        "alter-partition",
        "broker or `leader`, partition, `isr=`; `leader-epoch=`, `partition-epoch=`, `broker-epoch=`, `recovery=1`",
        "AlterPartition; epochs are those that are true unless given, with a sign relative to those. "
        "`isr=live`: all live replicas; `isr=leader`: the leader alone. Before 2.7 a leader does `write-isr` instead",
    ),
    Verb("write-isr", "partition, `isr=`", "the leader writes the state itself, and a notification, as before 2.7"),
    Verb(
        "catch-up",
        "partition; `until-leader=`",
        "all live replicas get in sync; brokers that only record are said to be at once, by their leader's request",
    ),
    # -- brokers -------------------------------------------------------------------------------------------------------
    Verb("start-broker", "brokers; `rack=`, `release=`, `protocol=`", "it registers as a new incarnation"),
    Verb(
        "kill-broker",
        "brokers",
        "SIGKILL; its registration goes when its session ends, which for brokers that only record is at once",
    ),
    Verb("stop-broker", "brokers", "SIGTERM: a controlled shutdown, then its registration goes"),
    Verb("controlled-shutdown", "broker; `broker-epoch=`", "ControlledShutdown: it asks, and stays up"),
    Verb(
        "bounce-broker",
        "brokers; `release=`, `protocol=`",
        "it is killed and registered anew before the controller looks again",
    ),
    Verb("expire-broker", "broker", "its session ends; it registers again"),
    Verb("cut-broker", "broker", "its connections break"),
    Verb("pause-broker", "broker, seconds", "SIGSTOP, then SIGCONT"),
    Verb("hang-broker", "broker", "it takes requests and does not answer them, until `wake-broker`"),
    Verb("wake-broker", "broker", "it goes on, and its connections break"),
    Verb("upgrade-broker", "broker, release, protocol", "it restarts as another release, if the fleet allows that"),
    Verb("configure-broker", "broker, `name:value`", "it restarts with another value in its file"),
    Verb("modify-broker", "broker; `host=`, `rack=`", "its registration changes within its session"),
    Verb("alter-broker-configs", "broker or `<default>`, `name:value`", "a dynamic setting; without a value, removed"),
    Verb("fail-log-dir", "broker, partitions", "the log directory that holds them fails, and the broker says so"),
    Verb("trap-broker", "broker, request", "the broker dies after it has received the request, before it answers"),
    Verb("power-cut", "brokers", "the same as `kill-broker`, and what the broker had not flushed is lost"),
    Verb("slow-disk", "broker, seconds", "its answers to LeaderAndIsr and StopReplica take long"),
    Verb("deafen-broker", "broker, seconds", "it lives, but its listener refuses connections; those that exist end"),
    Verb("flap-broker", "broker", "the same, again and again"),
    Verb("freeze-leader", "broker, seconds", "it pauses for longer than the silence limit, for less than a session"),
    Verb("freeze-all-brokers", "seconds", "the same for all"),
    Verb("hush-broker", "broker", "its packets do not reach the controllers, until `heal`"),
    # -- controllers ---------------------------------------------------------------------------------------------------
    Verb("start-controller", "controller; `kafka.property=value`", "it starts and contends for the role"),
    Verb("kill-controller", "controller", "SIGKILL; `/controller` goes when its session ends"),
    Verb("stop-controller", "controller", "SIGTERM: it gives the role up"),
    Verb("expire-controller", "controller", "its session ends; it contends again"),
    Verb("cut-controller", "controller", "its connections break"),
    Verb("pause-controller", "controller, seconds", "SIGSTOP, then SIGCONT"),
    Verb(
        "trap-controller",
        "`lose`, `kill`, `expire`, `freeze` or `depose`; at which write from now; `before`",
        "a fault at a write: its answer is lost, the writer dies, …; in storms fault and write are drawn",
    ),
    Verb("crash-at-await", "number", "the controller dies that reaches that await point of a handler"),
    Verb("hush-controller", "", "controllers' packets do not reach each other, until `heal`"),
    Verb("kill-controller-and-broker", "", "both at once"),
    Verb("win-again", "", "a controller loses the role and wins it again while answers to its term are under way"),
    Verb("expire-in-failover", "", "a new controller's session ends while it waits for a broker"),
    Verb("repeat-late", "", "a leader's late request contradicts a later one"),
    Verb("jump-clock", "controller", "its wall clock is set; storms need libfaketime"),
    Verb("fill-disk", "controller", "its journal cannot be written"),
    Verb("free-disk", "", "all journals can be written again"),
    Verb("release-controller", "", "the active controller gives the role back, as `aiocontroller release` does"),
    Verb("take-over", "controller", "a controller takes the role, as `aiocontroller takeover` does"),
    Verb("delete-controller-znode", "", "an operator's way to move the role"),
    Verb(
        "rewrite-controller-epoch", "number", "another process writes `/controller_epoch`; without a number, one more"
    ),
    Verb("end-term", "", "there is no controller until `begin-term`"),
    Verb("begin-term", "", "a controller may be elected again"),
    Verb("kraft-rollback", "epoch", "states and brokers have a higher epoch than `/controller_epoch`"),
    Verb("status", "", "what the active controller says of itself"),
    # -- what only the controller may write ----------------------------------------------------------------------------
    Verb("write-state", "topic", "another process writes a partition's state, perhaps without a notification"),
    Verb("delete-state", "topic", "… deletes it"),
    Verb("damage-znode", "topic; `topic`, `state` or `settings`", "… writes rubbish into that, and mends it later"),
    Verb("damage-state", "partition, text", "… writes the text into it"),
    Verb("damage-request", "path, text", "… creates the znode of a request with that text"),
    Verb("write-assignment", "topic", "… writes another assignment of the topic"),
    Verb("make-topic-anew", "topic", "… replaces the topic by another of the same name"),
    Verb("write-features", "status, `feature=level`, …", "… writes `/feature`; between two terms only"),
    # -- links and ZooKeeper -------------------------------------------------------------------------------------------
    Verb(
        "block",
        "one or two of broker, `active`, `standby`, `zookeeper`",
        "nothing passes between the two until `heal`; with one word (in storms always), between it and the active "
        "controller",
    ),
    Verb("block-brokers", "", "nothing passes between two brokers; in storms, a broker's connections freeze"),
    Verb("lag", "", "packets take long"),
    Verb("heal", "", "all links work again"),
    Verb("restart-zookeeper", "seconds", "ZooKeeper, of an ensemble its leader, is down for a time"),
    Verb("pause-zookeeper", "seconds", "ZooKeeper, of an ensemble its leader, is up but silent"),
    Verb("elect-zookeeper-leader", "seconds", "another ZooKeeper server leads; meanwhile none serves"),
    Verb("lag-followers", "seconds", "ZooKeeper's followers lag behind"),
    # -- for the reader ------------------------------------------------------------------------------------------------
    Verb("produce", "partition, batches, acks", "a client produces single records; the cluster has `data`"),
    Verb("wait", "seconds", "time goes by"),
    Verb("expect", "a fact (below)", "it must hold within 60 s"),
)


def _by_name(table: Sequence[Verb]) -> dict[str, Verb]:
    found: dict[str, Verb] = {}
    for verb in table:
        if verb.name in found:
            raise ValueError(f"{verb.name}: found two meanings, {found[verb.name].meaning!r} and {verb.meaning!r}")
        found[verb.name] = verb
    return found


VERBS: Mapping[str, Verb] = _by_name(_TABLE)
PREFIX = "step_"


def verb_of(kind: str) -> str:
    """Return the verb for a step's kind: ``kill-broker`` for ``kill_broker``."""
    return kind.replace("_", "-")


def method_of(verb: str) -> str:
    return PREFIX + verb.replace("-", "_")


def played_by(place: object) -> Iterator[str]:
    """Yield the verbs for which a class or a module has a ``step_VERB``."""
    for name in sorted(dir(place)):
        if name.startswith(PREFIX):
            yield verb_of(name.removeprefix(PREFIX))


class Line(NamedTuple):
    """One line of a scenario, as places read it that take options."""

    verb: str
    words: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def text(self) -> str:
        return " ".join((self.verb, *self.words, *(f"{name}={value}" for name, value in self.options.items())))


def parse_line(text: str) -> Line:
    """Raises UnknownVerbError."""
    verb, *rest = text.split() or [""]
    if verb not in VERBS:
        raise UnknownVerbError(f"found {verb!r}, expected a verb (docs/scenarios.md lists them)")
    words = tuple(word for word in rest if not _is_option(word))
    return Line(verb, words, dict(word.split("=", 1) for word in rest if _is_option(word)))


def _is_option(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.replace("-", "").replace(".", "").isalnum()
