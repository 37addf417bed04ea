"""CreateTopics, CreatePartitions, DeleteTopics, and what can be seen of topics afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.topic_configs import TOPIC_CONFIGS
from tests.admin_answers.player import Fields, Player
from tests.admin_answers.registry import one, scenario
from tests.admin_answers.two_clusters import LISTENING, NOWHERE

UNKNOWN_ID = b"an unknown topic"
C, P, D = ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS
PLENTY_MS = 20_000
SOON_MS = 500


# -- CreateTopics ------------------------------------------------------------------------------------------------------


def new(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> Fields:
    counts = {"num_partitions": partitions, "replication_factor": factor}
    return {"name": name, **counts, "assignments": [], "configs": []} | more


def create(*topics: Fields, validate_only: bool = False, timeout: int = PLENTY_MS) -> Fields:
    return {"topics": list(topics), "timeout": timeout, "validate_only": validate_only}


def assigned(*replicas: Sequence[int], first: int = 0) -> Fields:
    found = [{"partition_index": first + i, "broker_ids": list(r)} for i, r in enumerate(replicas)]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": found}


def configs(**values: str | None) -> list[Fields]:
    return [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]


def seen(p: Player, *names: str) -> Fields:
    return {"topics": [{"name": p.topic(name)} for name in names], "allow_auto_topic_creation": False}


def _each_configured(p: Player) -> list[Fields]:
    """A topic for each setting, with Kafka's default."""
    return [
        new(p.topic(name), configs=[{"name": name, "value": key.default}])
        for name, key in TOPIC_CONFIGS.items()
        if name != "message.format.version"
    ]


def _of_formats(p: Player) -> list[Fields]:
    versions = (
        "0.8.2",
        "0.10.0-IV1",
        "1.1",
        "2.2",
        "2.3",
        "2.4",
        "2.5",
        "2.8",
        "3.0",
        "3.1",
        "3.3",
        "3.4",
        "3.7",
        "3.9",
    )
    return [new(p.topic(each), configs=configs(message_format_version=each)) for each in versions]


@scenario(C)
async def _(p: Player) -> None:
    """And what every client sees then."""
    await p.ask(**create(new(p.topic("a"), **assigned([2, 1], [1, 2]), configs=configs(retention_ms="1000"))))
    await p.ask(ApiKey.METADATA, **seen(p, "a"))
    resource = {"resource_type": 2, "resource_name": p.topic("a"), "configuration_keys": None}
    await p.ask(ApiKey.DESCRIBE_CONFIGS, resources=[resource], include_synonyms=True, include_documentation=False)


one(C, "placed by the controller", lambda p: create(new(p.topic("a"), 3, 3), new(p.topic("b"), 1, 1)))
one(C, "by default", lambda p: create(new(p.topic("a"), -1, -1)), since=4)
one(C, "by default, before there was one", lambda p: create(new(p.topic("a"), -1, -1)), until=3)
one(C, "partitions by default", lambda p: create(new(p.topic("a"), -1, 2)))
one(C, "replicas by default", lambda p: create(new(p.topic("a"), 2, -1)))
one(C, "none", lambda p: create())
one(C, "validate only", lambda p: create(new(p.topic("a"), 2, 2), validate_only=True), since=1)
one(
    C,
    "validate only, refused",
    lambda p: create(new(p.topic("a")), new(p.topic("b"), 0), new(p.topic("c"), 1, 9), validate_only=True),
    topics={"a": [[1]]},
    since=1,
)
one(C, "no time", lambda p: create(new(p.topic("a")), timeout=0))
one(C, "negative time", lambda p: create(new(p.topic("a")), timeout=-1))
one(C, "no leader in time", lambda p: create(new(p.topic("a"), **assigned([NOWHERE])), timeout=SOON_MS))
one(C, "twice", lambda p: create(new(p.topic("a")), new(p.topic("a")), new(p.topic("b"))))
one(C, "twice and wrong", lambda p: create(new("bad/name"), new("bad/name", 5)))
one(C, "exists", lambda p: create(new(p.topic("a"))), topics={"a": [[1]]})
one(C, "exists, and wrong", lambda p: create(new(p.topic("a"), 0, 9)), topics={"a": [[1]]})
one(C, "a name that collides", lambda p: create(new(p.topic("a_b"))), topics={"a.b": [[1]]})
one(C, "names that collide with each other", lambda p: create(*(new(p.topic(n)) for n in ("a.b", "a_b", "a_b.c"))))
one(
    C,
    "names that collide with each other, validate only",
    lambda p: create(new(p.topic("a.b")), new(p.topic("a_b")), validate_only=True),
    since=1,
)
one(C, "a bad name", lambda p: create(*map(new, ("bad/name", "", ".", "..", "x" * 250, "sp ace", "ümlaut"))))
one(C, "a name that is long enough", lambda p: create(new("y" * (249 - len(p.topic(""))) + p.topic(""))))
one(C, "internal topics", lambda p: create(new("__consumer_offsets"), new("__transaction_state")))
one(C, "the metadata topic", lambda p: create(new("__cluster_metadata"), validate_only=True), since=1)
one(C, "no partitions", lambda p: create(new(p.topic("a"), 0), new(p.topic("b"), -2)))
one(C, "no replicas", lambda p: create(new(p.topic("a"), 1, 0), new(p.topic("b"), 1, -2)))
one(C, "too many replicas", lambda p: create(new(p.topic("a"), factor=9)))
one(C, "assignment and count", lambda p: create(new(p.topic("a"), **assigned([1]) | {"num_partitions": 1})))
one(C, "assignment and factor", lambda p: create(new(p.topic("a"), **assigned([1]) | {"replication_factor": 1})))
one(C, "assignment with a gap", lambda p: create(new(p.topic("a"), **assigned([1], [2], first=1))))
one(C, "assignment of negative partitions", lambda p: create(new(p.topic("a"), **assigned([1], [2], first=-1))))
one(C, "assignment of different lengths", lambda p: create(new(p.topic("a"), **assigned([1], [1, 2]))))
one(C, "assignment to no broker", lambda p: create(new(p.topic("a"), **assigned([]))))
one(C, "assignment to the same twice", lambda p: create(new(p.topic("a"), **assigned([1, 1]))))
one(C, "assignment to an unknown broker", lambda p: create(new(p.topic("a"), **assigned([1, NOWHERE]))))
one(C, "assignment to a negative broker", lambda p: create(new(p.topic("a"), **assigned([1, -5])), validate_only=True))
one(
    C,
    "assignment of a partition twice",
    lambda p: create(
        new(
            p.topic("a"),
            num_partitions=-1,
            replication_factor=-1,
            assignments=[{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 0, "broker_ids": [2]}],
        )
    ),
)
one(C, "an unknown setting", lambda p: create(new(p.topic("a"), configs=configs(no_such="1"))))
one(C, "every setting", lambda p: create(*_each_configured(p), validate_only=True), since=1)
one(C, "remote storage", lambda p: create(new(p.topic("a"), configs=configs(remote_storage_enable="true"))))
one(C, "a version that may be too new", lambda p: create(*_of_formats(p), validate_only=True), since=1)
one(C, "a bad value", lambda p: create(new(p.topic("a"), configs=configs(retention_ms="many"))))
one(C, "a value out of range", lambda p: create(new(p.topic("a"), configs=configs(min_insync_replicas="0"))))
one(C, "no value", lambda p: create(new(p.topic("a"), configs=configs(retention_ms=None, no_such=None))))
one(
    C,
    "settings that contradict",
    lambda p: create(new(p.topic("a"), configs=configs(segment_bytes="14", cleanup_policy="none"))),
)
one(
    C,
    "the same setting twice",
    lambda p: create(new(p.topic("a"), configs=[*configs(retention_ms="5"), *configs(retention_ms="6")])),
)
one(C, "some", lambda p: create(new(p.topic("a")), new("bad/name"), new(p.topic("b"), 1, 9), new(p.topic("c"), 2, 2)))


# -- CreatePartitions --------------------------------------------------------------------------------------------------


def more(p: Player, name: str, count: int, *replicas: Sequence[int]) -> Fields:
    assignments = [{"broker_ids": list(each)} for each in replicas] or None
    return {"name": p.topic(name), "count": count, "assignments": assignments}


def grow(*topics: Fields, validate_only: bool = False, timeout: int = PLENTY_MS) -> Fields:
    return {"topics": list(topics), "timeout": timeout, "validate_only": validate_only}


@scenario(P, topics={"a": [[1, 2]], "b": [[1]]})
async def _(p: Player) -> None:
    await p.ask(**grow(more(p, "a", 3, [2, 1], [1, 2]), more(p, "b", 2, [1])))
    await p.ask(ApiKey.METADATA, **seen(p, "a", "b"))


one(P, "placed by the controller", lambda p: grow(more(p, "a", 4)), topics={"a": [[1, 2]]})
one(P, "none", lambda p: grow())
one(P, "validate only", lambda p: grow(more(p, "a", 4), validate_only=True), topics={"a": [[1, 2]]})
one(P, "no time", lambda p: grow(more(p, "a", 4), timeout=0), topics={"a": [[1, 2]]})
one(P, "negative time", lambda p: grow(more(p, "a", 4), timeout=-1), topics={"a": [[1, 2]]})
one(P, "no leader in time", lambda p: grow(more(p, "a", 2), timeout=SOON_MS), topics={"a": [[NOWHERE]]})
one(P, "twice", lambda p: grow(more(p, "a", 2), more(p, "a", 3), more(p, "b", 2)), topics={"a": [[1]], "b": [[1]]})
one(P, "unknown", lambda p: grow(more(p, "a", 2)))
one(P, "a bad name", lambda p: grow(*({"name": n, "count": 2, "assignments": None} for n in ("bad/name", "", "."))))
one(P, "as many", lambda p: grow(more(p, "a", 2)), topics={"a": [[1], [1]]})
one(P, "as many, with an assignment", lambda p: grow(more(p, "a", 2, [2])), topics={"a": [[1], [1]]})
one(P, "fewer", lambda p: grow(more(p, "a", 1), more(p, "b", 0)), topics={"a": [[1], [1]], "b": [[1]]})
# Without an assignment a broker would place 2,147,483,647 partitions, until its memory is full.
one(P, "the least number", lambda p: grow(more(p, "a", -(2**31), [1])), topics={"a": [[1]]})
one(P, "a negative number", lambda p: grow(more(p, "a", -1)), topics={"a": [[1], [1]]})
one(P, "too few assignments", lambda p: grow(more(p, "a", 3, [1])), topics={"a": [[1]]})
one(P, "too many assignments", lambda p: grow(more(p, "a", 2, [1], [2])), topics={"a": [[1]]})
one(P, "to an unknown broker", lambda p: grow(more(p, "a", 2, [NOWHERE])), topics={"a": [[1]]})
one(P, "to the same twice", lambda p: grow(more(p, "a", 2, [1, 1])), topics={"a": [[1, 2]]})
one(P, "to no broker", lambda p: grow(more(p, "a", 2, [])), topics={"a": [[1]]})
one(P, "with other numbers of replicas", lambda p: grow(more(p, "a", 2, [1, 2])), topics={"a": [[1]]})
one(
    P,
    "with too few replicas, validate only",
    lambda p: grow(more(p, "a", 2, [1]), validate_only=True),
    topics={"a": [[1, 2]]},
)
one(P, "too many replicas", lambda p: grow(more(p, "a", 2)), topics={"a": [[1, 2, LISTENING, NOWHERE]]})
one(P, "some", lambda p: grow(more(p, "a", 2), more(p, "c", 2), more(p, "b", 1)), topics={"a": [[1]], "b": [[1]]})


@scenario(P, "while it moves", topics={"a": [[1]]})
async def _(p: Player) -> None:
    await start_move(p, "a", [LISTENING])
    await p.ask(**grow(more(p, "a", 2)))
    await p.ask(**grow(more(p, "a", 2), validate_only=True), what="validate only")


@scenario(P, "while it is deleted", topics={"a": [[1, NOWHERE]]})
async def _(p: Player) -> None:
    await start_deletion(p, "a")
    await p.ask(**grow(more(p, "a", 2)))
    await p.ask(**grow(more(p, "a", 2), validate_only=True), what="validate only")


async def start_move(p: Player, name: str, replicas: Sequence[int]) -> None:
    """To a broker that never catches up: it stays under way."""
    partition = {"partition_index": 0, "replicas": list(replicas)}
    topics = [{"name": p.topic(name), "partitions": [partition]}]
    await p.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, timeout=PLENTY_MS, topics=topics)


async def start_deletion(p: Player, name: str) -> None:
    """Of a topic that has a replica on a broker that is nowhere: it stays under way."""
    topics = [{"name": p.topic(name), "topic_id": None}]
    await p.request(ApiKey.DELETE_TOPICS, topics=topics, topic_names=[p.topic(name)], timeout=SOON_MS)


# -- DeleteTopics ------------------------------------------------------------------------------------------------------


def delete(*names: str, ids: Sequence[bytes] = (), timeout: int = PLENTY_MS) -> Fields:
    topics = [{"name": name, "topic_id": None} for name in names] + [{"name": None, "topic_id": i} for i in ids]
    return {"topics": topics, "topic_names": list(names), "timeout": timeout}


@scenario(D, topics={"a": [[1, 2]], "b": [[1], [2]]})
async def _(p: Player) -> None:
    await p.ask(**delete(p.topic("a"), p.topic("b")))
    await p.ask(ApiKey.METADATA, **seen(p, "a", "b"))


@scenario(D, "and made anew", topics={"a": [[1, 2]]})
async def _(p: Player) -> None:
    """Kafka has forgotten the topic, but not deleted it, when it answers."""
    await p.ask(**delete(p.topic("a")))

    async def made() -> bool:
        answer = await p.request(C, **create(new(p.topic("a"), **assigned([2, 1]))))
        return not int(answer.topics[0].error_code)

    await p.until(made, "a topic of the same name")
    await p.ask(ApiKey.METADATA, **seen(p, "a"))


one(D, "none", lambda p: delete())
one(D, "unknown", lambda p: delete(p.topic("a"), "bad/name", ""))
one(D, "no time", lambda p: delete(p.topic("a"), timeout=0), topics={"a": [[1]]})
one(D, "negative time", lambda p: delete(p.topic("a"), timeout=-1), topics={"a": [[1]]})
one(D, "not in time", lambda p: delete(p.topic("a"), timeout=SOON_MS), topics={"a": [[1, NOWHERE]]})
one(D, "twice", lambda p: delete(p.topic("a"), p.topic("a")), topics={"a": [[1]]})
one(D, "by id", lambda p: delete(ids=[p.topic_id("a")]), topics={"a": [[1]]}, since=6)
one(D, "unknown ids", lambda p: delete(ids=[UNKNOWN_ID]), since=6)
one(D, "neither name nor id", lambda p: delete(ids=[bytes(16)]), since=6)
one(D, "the same id twice", lambda p: delete(ids=[p.topic_id("a")] * 2), topics={"a": [[1]]}, since=6)
one(D, "name and id", lambda p: delete(p.topic("a"), ids=[p.topic_id("a")]), topics={"a": [[1]]}, since=6)
one(
    D,
    "name beside id",
    lambda p: {"topics": [{"name": p.topic("a"), "topic_id": p.topic_id("a")}], "timeout": PLENTY_MS},
    topics={"a": [[1]]},
    since=6,
)
one(D, "some", lambda p: delete(p.topic("a"), p.topic("b")), topics={"a": [[1]]})


@scenario(D, "while it is deleted", topics={"a": [[1, NOWHERE]]})
async def _(p: Player) -> None:
    await start_deletion(p, "a")
    await p.ask(**delete(p.topic("a"), timeout=SOON_MS))
    await p.ask(C, **create(new(p.topic("a"))))
    await p.ask(ApiKey.METADATA, **seen(p, "a"))
