"""The verbs of scenarios: what each means, stated once.

Each place that plays scenarios (the simulation, storms of real processes, transcripts, the differential tests, the
brokers of benchmarks) has a method or a function ``step_VERB`` for the verbs that it can play, and may have no other.
A place that cannot play a verb refuses it.  ``docs/scenarios.md`` shows this table, and which place plays which verb.

A line of a scenario is a verb and its words: brokers are numbers, partitions ``orders-0``, lists of brokers ``1,2,3``,
options ``name=value``.  Each verb has one shape (``shapes``), by which every place reads the words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.scenarios.shapes import (
    BROKER,
    CONTROLLER,
    EPOCH,
    HOST,
    ISR,
    NO_WORDS,
    NUMBER,
    PARTITION,
    REPLICAS,
    SECONDS,
    SETTING,
    TARGET,
    TEXT,
    TOPIC,
    Given,
    Shape,
    choice,
    each,
    or_else,
    text,
    words,
)


class Verb(NamedTuple):
    name: str
    shape: Shape
    meaning: str


class UnknownVerbError(BadInputError):
    """A line begins with a word that is not a verb."""


_TABLE = (
    # -- topics and partitions -----------------------------------------------------------------------------------------
    Verb("create-topic", words(topic=TOPIC, placed=each(REPLICAS)), "an operator's tool writes the topic's znode"),
    Verb("add-partitions", words(topic=TOPIC, placed=each(REPLICAS)), "a tool adds them to the topic's znode"),
    Verb("delete-topic", words(topic=TOPIC), "a tool creates the topic's znode in `/admin/delete_topics`"),
    Verb(
        "request-topics",
        words(topic=TOPIC, placed=each(REPLICAS)).options(timeout_ms=NUMBER),
        "a client sends CreateTopics",
    ),
    Verb("request-partitions", words(topic=TOPIC, placed=each(REPLICAS)), "a client sends CreatePartitions"),
    Verb("request-deletion", words(topic=TOPIC), "a client sends DeleteTopics"),
    Verb("request-configs", NO_WORDS, "a client sends IncrementalAlterConfigs of a topic"),
    Verb("request-credentials", NO_WORDS, "a client sends AlterUserScramCredentials"),
    Verb("request-quotas", NO_WORDS, "a client sends AlterClientQuotas"),
    Verb("request-features", NO_WORDS, "a client sends UpdateFeatures, which must be refused"),
    Verb("request-acls", NO_WORDS, "a client sends CreateAcls, which must be refused without an authorizer"),
    Verb("send-garbage", NO_WORDS, "damaged requests to the active controller"),
    Verb(
        "auto-create-topic",
        words(broker=BROKER),
        "a broker creates a topic, perhaps with the controller among the replicas",
    ),
    Verb(
        "allow-unclean",
        words(topic=TOPIC, value=choice("true", "false")),
        "the topic's `unclean.leader.election.enable` changes",
    ),
    Verb(
        "alter-topic-configs",
        words(topic=TOPIC, settings=each(SETTING)),
        "settings of a topic change, as by `kafka-configs.sh`",
    ),
    # -- reassignments and elections -----------------------------------------------------------------------------------
    Verb(
        "reassign", words(moves=each(PARTITION, TARGET)), "AlterPartitionReassignments (`cancel` for replicas cancels)"
    ),
    Verb("reassign-by-znode", words(moves=each(PARTITION, REPLICAS)), "the same by `/admin/reassign_partitions`"),
    Verb("cancel-reassignment", words(partitions=each(PARTITION)), "AlterPartitionReassignments without targets"),
    Verb("list-reassignments", NO_WORDS, "ListPartitionReassignments; the answer is judged"),
    Verb(
        "elect-preferred",
        words(partitions=each(PARTITION)),
        "ElectLeaders of preferred replicas (drawn: now and then unclean)",
    ),
    Verb(
        "elect-unclean",
        words(partitions=each(PARTITION)),
        "unclean ElectLeaders: a replica outside the ISR leads if no ISR member is live",
    ),
    Verb(
        "recover",
        words(partitions=each(PARTITION)).options(leader=BROKER),
        "`aiocontroller recover` of the first partition: the best log leads, or `leader=`, whatever its log holds",
    ),
    Verb(
        "elect-by-znode",
        words(partitions=each(PARTITION)),
        "the preferred election by `/admin/preferred_replica_election`",
    ),
    Verb("elect-everywhere", NO_WORDS, "ElectLeaders of all partitions"),
    Verb("delete-while-moving", NO_WORDS, "a topic is deleted whose replicas are being moved"),
    Verb("move-and-fail", NO_WORDS, "a move is overridden or cancelled while the original replicas are dead"),
    Verb("undo-under-another", NO_WORDS, "a move that cannot end is overridden under another controller"),
    Verb("ask-much", NO_WORDS, "many requests at once, and perhaps the end of the controller's session"),
    Verb("allocate-producer-ids", words(broker=BROKER).options(broker_epoch=EPOCH), "AllocateProducerIds"),
    # -- ISRs ----------------------------------------------------------------------------------------------------------
    Verb("notify-isr-change", words(partitions=each(PARTITION)), "an ISR change notification, without a change"),
    Verb(
        "alter-partition",
        words(by=or_else(BROKER, "leader"), partition=PARTITION).options(
            isr=ISR, leader_epoch=EPOCH, partition_epoch=EPOCH, broker_epoch=EPOCH, recovery=NUMBER
        ),
        "AlterPartition; epochs that are not given are the present ones, and those with a sign are relative to these. "
        "`isr=live`: all live replicas; `isr=leader`: the leader alone. Before 2.7 a leader does `write-isr` instead",
    ),
    Verb(
        "write-isr",
        words(partition=PARTITION).options(isr=ISR),
        "the leader writes the state itself, and a notification, as before 2.7",
    ),
    Verb(
        "catch-up",
        words(partition=PARTITION).options(until_leader=NUMBER),
        "all live replicas get in sync; if brokers only record, their leader reports this at once, by its request",
    ),
    # -- brokers -------------------------------------------------------------------------------------------------------
    Verb(
        "start-broker",
        words(brokers=each(BROKER)).options(rack=TEXT, release=TEXT, protocol=TEXT),
        "it registers as a new incarnation",
    ),
    Verb(
        "kill-broker",
        words(brokers=each(BROKER)),
        "SIGKILL; its registration goes when its session ends, which for brokers that only record is at once",
    ),
    Verb("stop-broker", words(brokers=each(BROKER)), "SIGTERM: a controlled shutdown, then its registration goes"),
    Verb(
        "controlled-shutdown",
        words(broker=BROKER).options(broker_epoch=EPOCH),
        "it sends ControlledShutdown, and stays up",
    ),
    Verb(
        "bounce-broker",
        words(brokers=each(BROKER)).options(release=TEXT, protocol=TEXT),
        "it is killed and registered anew before the controller looks again",
    ),
    Verb("expire-broker", words(broker=BROKER), "its session ends; it registers again"),
    Verb("cut-broker", words(broker=BROKER), "its connections break"),
    Verb("pause-broker", words(broker=BROKER, seconds=SECONDS), "SIGSTOP, then SIGCONT"),
    Verb("hang-broker", words(broker=BROKER), "it receives requests and does not answer them, until `wake-broker`"),
    Verb("wake-broker", words(broker=BROKER), "it continues, and its connections break"),
    Verb(
        "upgrade-broker",
        words(broker=BROKER, release=text("release"), protocol=text("protocol")),
        "it restarts as another release, if the fleet allows that",
    ),
    Verb("configure-broker", words(broker=BROKER, setting=SETTING), "it restarts with another value in its file"),
    Verb(
        "modify-broker",
        words(broker=BROKER).options(host=TEXT, rack=TEXT),
        "its registration changes within its session",
    ),
    Verb(
        "alter-broker-configs",
        words(broker=or_else(BROKER, "<default>"), setting=SETTING),
        "a dynamic setting; without a value, removed",
    ),
    Verb(
        "fail-log-dir",
        words(broker=BROKER, partitions=each(PARTITION)),
        "the log directory that holds them fails, and the broker reports it",
    ),
    Verb(
        "trap-broker",
        words(broker=BROKER, request=text("request")),
        "the broker dies after it has received the request, before it answers",
    ),
    Verb(
        "power-cut",
        words(brokers=each(BROKER)),
        "the same as `kill-broker`, and what the broker had not flushed is lost",
    ),
    Verb(
        "reboot-broker",
        words(brokers=each(BROKER)).options(unseen=SECONDS),
        "the same as `bounce-broker`, and what it had not flushed is lost; for `unseen=` the controller is paused",
    ),
    Verb(
        "slow-disk",
        words(broker=BROKER, seconds=SECONDS),
        "its answers to LeaderAndIsr and StopReplica, and its writes of records, take long",
    ),
    Verb("sick-disk", words(broker=BROKER, seconds=SECONDS), "the same, for so long that the broker seems sick"),
    Verb(
        "deafen-broker",
        words(broker=BROKER, seconds=SECONDS),
        "it is alive, but its listener refuses connections, and existing ones end",
    ),
    Verb("flap-broker", words(broker=BROKER), "the same, again and again"),
    Verb(
        "freeze-leader",
        words(broker=BROKER, seconds=SECONDS),
        "it pauses for longer than the silence limit, for less than a session",
    ),
    Verb("freeze-all-brokers", words(seconds=SECONDS), "the same for all"),
    Verb("hush-broker", words(broker=BROKER), "its packets do not reach the controllers, until `heal`"),
    # -- controllers ---------------------------------------------------------------------------------------------------
    Verb(
        "start-controller",
        words(controller=CONTROLLER).options(text("kafka.property=value")),
        "it starts and contends for the role",
    ),
    Verb("kill-controller", words(controller=CONTROLLER), "SIGKILL; `/controller` goes when its session ends"),
    Verb("stop-controller", words(controller=CONTROLLER), "SIGTERM: it gives the role up"),
    Verb("expire-controller", words(controller=CONTROLLER), "its session ends; it contends again"),
    Verb("cut-controller", words(controller=CONTROLLER), "its connections break"),
    Verb("pause-controller", words(controller=CONTROLLER, seconds=SECONDS), "SIGSTOP, then SIGCONT"),
    Verb(
        "trap-controller",
        words(fault=choice("lose", "kill", "expire", "freeze", "depose"), write=NUMBER, when=choice("before")),
        "a fault at a write: its answer is lost, the writer dies, …; in storms fault and write are drawn",
    ),
    Verb("crash-at-await", words(number=NUMBER), "the controller that reaches this await point of a handler dies"),
    Verb("hush-controller", NO_WORDS, "controllers' packets do not reach each other, until `heal`"),
    Verb("kill-controller-and-broker", NO_WORDS, "both at once"),
    Verb(
        "win-again", NO_WORDS, "a controller loses the role and wins it again while answers to its term are under way"
    ),
    Verb("expire-in-failover", NO_WORDS, "a new controller's session ends while it waits for a broker"),
    Verb("repeat-late", NO_WORDS, "a leader's late request contradicts a later one"),
    Verb("jump-clock", words(controller=CONTROLLER), "its wall clock is set; storms need libfaketime"),
    Verb("fill-disk", words(controller=CONTROLLER), "its journal cannot be written"),
    Verb("free-disk", NO_WORDS, "all journals can be written again"),
    Verb("release-controller", NO_WORDS, "the active controller gives the role back, as `aiocontroller release` does"),
    Verb("take-over", words(controller=CONTROLLER), "a controller takes the role, as `aiocontroller takeover` does"),
    Verb("delete-controller-znode", NO_WORDS, "an operator deletes `/controller`, to move the role"),
    Verb(
        "rewrite-controller-epoch",
        words(number=NUMBER),
        "another process writes `/controller_epoch`; without a number, it adds one",
    ),
    Verb("end-term", NO_WORDS, "there is no controller until `begin-term`"),
    Verb("begin-term", NO_WORDS, "a controller may be elected again"),
    Verb("kraft-rollback", words(epoch=NUMBER), "states and brokers have a higher epoch than `/controller_epoch`"),
    Verb("status", NO_WORDS, "what the active controller reports about itself"),
    # -- what only the controller may write ----------------------------------------------------------------------------
    Verb(
        "write-state", words(topic=TOPIC), "another process writes a partition's state, perhaps without a notification"
    ),
    Verb("delete-state", words(topic=TOPIC), "… deletes it"),
    Verb(
        "damage-znode",
        words(topic=TOPIC, place=choice("topic", "state", "settings")),
        "… writes garbage into it, and repairs it later",
    ),
    Verb("damage-state", words(partition=PARTITION, text=each(TEXT)), "… writes the text into it"),
    Verb(
        "damage-request", words(path=text("path"), text=each(TEXT)), "… creates the znode of a request with that text"
    ),
    Verb("write-assignment", words(topic=TOPIC), "… writes another assignment of the topic"),
    Verb("make-topic-anew", words(topic=TOPIC), "… replaces the topic by another of the same name"),
    Verb(
        "write-features",
        words(status=NUMBER).options(text("feature=level")),
        "… writes `/feature`; between two terms only",
    ),
    # -- links and ZooKeeper -------------------------------------------------------------------------------------------
    Verb(
        "block",
        words(host=HOST, other=HOST),
        "nothing passes between the two until `heal`; with one word (in storms always), between it and the active "
        "controller",
    ),
    Verb("block-brokers", NO_WORDS, "nothing passes between two brokers; in storms, a broker's connections freeze"),
    Verb("lag", words(host=HOST, other=HOST, seconds=SECONDS), "packets take long"),
    Verb("heal", NO_WORDS, "all links work again"),
    Verb("restart-zookeeper", words(seconds=SECONDS), "ZooKeeper, or the leader of an ensemble, is down for a time"),
    Verb("pause-zookeeper", words(seconds=SECONDS), "ZooKeeper, or the leader of an ensemble, is up but silent"),
    Verb(
        "refuse-connections",
        words(how=choice("connections", "handshakes", "strangers"), seconds=SECONDS),
        "ZooKeeper refuses connections: at once, at the handshake, or at the first request without a login",
    ),
    Verb(
        "refuse-login",
        words(controller=CONTROLLER, seconds=SECONDS),
        "ZooKeeper refuses a controller's SASL login; the cluster needs `login`",
    ),
    Verb(
        "deny-znode",
        words(path=text("path"), seconds=SECONDS),
        "a znode's ACL allows only an operator to write, or even to read it",
    ),
    Verb(
        "elect-zookeeper-leader",
        words(seconds=SECONDS),
        "another ZooKeeper server is elected leader; meanwhile none serves",
    ),
    Verb("lag-followers", words(seconds=SECONDS), "ZooKeeper's followers lag behind"),
    # -- for the reader ------------------------------------------------------------------------------------------------
    Verb(
        "produce",
        words(partition=PARTITION, batches=NUMBER, acks=choice("all", "1", "0")),
        "a client produces single records; the cluster needs `data`",
    ),
    Verb("wait", words(seconds=SECONDS), "time passes"),
    Verb("expect", words(fact=each(text("a fact (below)"))), "it must hold within 60 s"),
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
    """One line of a scenario."""

    verb: str
    given: Given
    text: str


def parse_line(text: str) -> Line:
    """Raises UnknownVerbError, and StepArgumentError for words that do not fit the verb's shape."""
    verb, *rest = text.split() or [""]
    if verb not in VERBS:
        raise UnknownVerbError(f"found {verb!r}, expected a verb (docs/scenarios.md lists them)")
    return Line(verb, VERBS[verb].shape.read(rest), text)
