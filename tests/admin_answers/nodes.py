"""What nodes say of themselves and to each other: features, metadata, coordinators, AlterPartition, shutdowns, ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiocontroller.wire.apis import ApiKey
from tests.admin_answers.player import Fields, Player
from tests.admin_answers.registry import one, scenario
from tests.admin_answers.topics import UNKNOWN_ID, start_deletion
from tests.admin_answers.two_clusters import ALICE, FIRST, LISTENING, NOWHERE

# -- UpdateFeatures ----------------------------------------------------------------------------------------------------

F = ApiKey.UPDATE_FEATURES
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def feature(name: str = "no.such", level: int = 1, kind: int = UPGRADE) -> Fields:
    return {
        "feature": name,
        "max_version_level": level,
        "upgrade_type": kind,
        "allow_downgrade": kind != UPGRADE,
    }


def features(*updates: Fields, validate_only: bool = False) -> Fields:
    return {"timeout": 5000, "feature_updates": list(updates), "validate_only": validate_only}


one(F, "none", lambda p: features())
one(F, "unknown", lambda p: features(feature()))
one(F, "unknown, validate only", lambda p: features(feature(), validate_only=True), since=1)
one(F, "of no name", lambda p: features(feature("")))
one(F, "deleted", lambda p: features(feature(level=0, kind=SAFE)))
one(F, "deleted without a word", lambda p: features(feature(level=0)))
one(F, "of a negative level", lambda p: features(feature(level=-1)))
one(F, "downgraded", lambda p: features(feature(level=1, kind=SAFE)))
one(F, "downgraded unsafely", lambda p: features(feature(level=1, kind=UNSAFE)), since=1)
one(F, "of an unknown kind", lambda p: features(feature(kind=0)), since=1)
one(F, "of kind 9", lambda p: features(feature(kind=9)), since=1)
one(F, "the brokers' own", lambda p: features(feature("metadata.version", 7), feature("kraft.version", 1)))
one(F, "some", lambda p: features(feature("a"), feature("b", 0), feature("c", 2)))


# -- what a node tells -------------------------------------------------------------------------------------------------

one(ApiKey.API_VERSIONS, "", lambda p: {"client_software_name": "oracle", "client_software_version": "1.0"})
one(
    ApiKey.API_VERSIONS,
    "of a nameless client",
    lambda p: {"client_software_name": "", "client_software_version": ""},
    since=3,
)
one(
    ApiKey.API_VERSIONS,
    "of a bad name",
    lambda p: {"client_software_name": "a b/c", "client_software_version": "-"},
    since=3,
)
one(
    ApiKey.DESCRIBE_CLUSTER,
    "",
    lambda p: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
)
one(ApiKey.DESCRIBE_CLUSTER, "of controllers", lambda p: {"endpoint_type": 2}, since=1)
one(ApiKey.DESCRIBE_CLUSTER, "of something else", lambda p: {"endpoint_type": 9}, since=1)

M = ApiKey.METADATA


def metadata(p: Player, *names: str, create: bool = False, **more: Any) -> Fields:
    wanted = {"topics": [{"name": p.topic(name)} for name in names], "allow_auto_topic_creation": create}
    return wanted | {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True} | more


one(M, "of topics", lambda p: metadata(p, "a", "b", "c"), topics={"a": [[1, 2], [2, 1]], "b": [[1, NOWHERE]]}, since=4)
one(M, "of a topic twice", lambda p: metadata(p, "a", "a"), topics={"a": [[1]]}, since=4)
one(M, "of a bad name", lambda p: {"topics": [{"name": "bad/name"}, {"name": ""}, {"name": "x" * 300}]}, since=4)
one(M, "of no topics", lambda p: metadata(p), since=1)
one(M, "by a login", lambda p: metadata(p, "a"), topics={"a": [[1]]}, since=4, way=ALICE)
one(M, "by id", lambda p: {"topics": [{"name": None, "topic_id": p.topic_id("a")}]}, topics={"a": [[1]]}, since=12)
one(M, "by an unknown id", lambda p: {"topics": [{"name": None, "topic_id": UNKNOWN_ID}]}, since=12)
one(M, "by id too early", lambda p: {"topics": [{"name": "a", "topic_id": UNKNOWN_ID}]}, since=10, until=11)
one(M, "by name and id", lambda p: {"topics": [{"name": "a", "topic_id": UNKNOWN_ID}]}, since=12)
one(M, "of a topic whose brokers are nowhere", lambda p: metadata(p, "a"), topics={"a": [[NOWHERE]]}, since=4)


@scenario(M, "of a topic that is deleted", topics={"a": [[1, NOWHERE]]}, since=4)
async def _(p: Player) -> None:
    await start_deletion(p, "a")
    await p.ask(**metadata(p, "a"))


GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(kind: int, *keys: str) -> Fields:
    return {"key_type": kind, "key": keys[0] if keys else "", "coordinator_keys": list(keys)}


one(ApiKey.FIND_COORDINATOR, "of groups", lambda p: find(GROUP, "g1", "g2"))
one(ApiKey.FIND_COORDINATOR, "of transactions", lambda p: find(TRANSACTION, "t1", "t2"), since=1)
one(ApiKey.FIND_COORDINATOR, "of no name", lambda p: find(GROUP, ""))
one(ApiKey.FIND_COORDINATOR, "of share groups", lambda p: find(SHARE, "s"), since=6)
one(ApiKey.FIND_COORDINATOR, "of something else", lambda p: find(9, "x"), since=1)
one(ApiKey.FIND_COORDINATOR, "of none", lambda p: find(GROUP), since=4)


# -- between brokers ---------------------------------------------------------------------------------------------------

A = ApiKey.ALTER_PARTITION


def alter_partition(
    p: Player,
    name: str = "a",
    isr: Sequence[int] = (FIRST,),
    *,
    broker: int = FIRST,
    broker_epoch: int | None = None,
    member_epochs: int | None = None,
    topic_id: bytes | None = None,
    **more: Any,
) -> Fields:
    """One broker's wish for the ISR of the first partition; in the form of the scenario's version."""
    epochs = p.cluster.broker_epochs
    partition: Fields = {"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0} | more
    if p.version >= 3:
        partition["new_isr_with_epochs"] = [
            {"broker_id": each, "broker_epoch": epochs.get(each, -1) if member_epochs is None else member_epochs}
            for each in isr
        ]
    else:
        partition["new_isr"] = list(isr)
    topic: Fields = {"partitions": [partition]}
    if p.version >= 2:
        topic["topic_id"] = topic_id or p.topic_id(name)
    else:
        topic["topic_name"] = p.topic(name)
    epoch = epochs.get(broker, -1) if broker_epoch is None else broker_epoch
    return {"broker_id": broker, "broker_epoch": epoch, "topics": [topic]}


TWO = {"a": [[FIRST, LISTENING]]}
one(A, "shrunk", lambda p: alter_partition(p), topics=TWO)
one(A, "as it is", lambda p: alter_partition(p, isr=[FIRST, LISTENING]), topics=TWO)
one(A, "of an earlier life", lambda p: alter_partition(p, broker_epoch=0), topics=TWO)
one(A, "of an unknown broker", lambda p: alter_partition(p, broker=NOWHERE, broker_epoch=0), topics=TWO)
one(A, "of an unknown topic", lambda p: alter_partition(p, "b", topic_id=UNKNOWN_ID))
one(A, "of an unknown partition", lambda p: alter_partition(p, partition_index=7), topics=TWO)
one(A, "of an old leader epoch", lambda p: alter_partition(p, leader_epoch=-1), topics=TWO)
one(A, "of a new leader epoch", lambda p: alter_partition(p, leader_epoch=5), topics=TWO)
one(A, "of an old partition epoch", lambda p: alter_partition(p, partition_epoch=-1), topics=TWO)
one(A, "of a new partition epoch", lambda p: alter_partition(p, partition_epoch=5), topics=TWO)
one(
    A,
    "with a broker that is gone",
    lambda p: alter_partition(p, isr=[FIRST, NOWHERE]),
    topics={"a": [[FIRST, NOWHERE]]},
)
one(A, "with a broker of an earlier life", lambda p: alter_partition(p, member_epochs=1), topics=TWO, since=3)
one(A, "with an unknown broker epoch", lambda p: alter_partition(p, member_epochs=-1), topics=TWO, since=3)
one(A, "recovering", lambda p: alter_partition(p, leader_recovery_state=1), topics={"a": [[FIRST]]}, since=1)
one(
    A,
    "recovering with two",
    lambda p: alter_partition(p, isr=[FIRST, LISTENING], leader_recovery_state=1),
    topics=TWO,
    since=1,
)
one(A, "by another than the leader", lambda p: alter_partition(p, broker=LISTENING, isr=[FIRST, LISTENING]), topics=TWO)
one(A, "of nothing", lambda p: alter_partition(p, isr=[]), topics=TWO)
one(A, "without the leader", lambda p: alter_partition(p, isr=[LISTENING]), topics=TWO)
one(A, "with no replica", lambda p: alter_partition(p, isr=[FIRST, LISTENING]), topics={"a": [[FIRST]]})
one(A, "none", lambda p: {"broker_id": FIRST, "broker_epoch": p.cluster.broker_epochs[FIRST], "topics": []})

IDS = ApiKey.ALLOCATE_PRODUCER_IDS


def of_broker(p: Player, broker: int, epoch: int | None = None) -> Fields:
    return {"broker_id": broker, "broker_epoch": p.cluster.broker_epochs.get(broker, -1) if epoch is None else epoch}


one(IDS, "", lambda p: of_broker(p, FIRST))
one(IDS, "of an earlier life", lambda p: of_broker(p, FIRST, 0))
one(IDS, "of a later life", lambda p: of_broker(p, FIRST, 1 << 60))
one(IDS, "of an unknown broker", lambda p: of_broker(p, NOWHERE, 1))

S = ApiKey.CONTROLLED_SHUTDOWN
one(S, "of an earlier life", lambda p: of_broker(p, LISTENING, 1), since=2)
one(S, "of an unknown broker", lambda p: of_broker(p, NOWHERE))
one(S, "of an unknown broker, of some life", lambda p: of_broker(p, NOWHERE, 5), since=2)


@scenario(S, topics={"a": [[LISTENING]], "b": [[LISTENING, 1]]})
async def _(p: Player) -> None:
    """What it leads alone stays with it, and is answered; the others of the table do too, whatever came of them.

    It is the last of all: the broker is shutting down afterwards.
    """
    await p.ask(**of_broker(p, LISTENING))

    async def heard() -> bool:
        answer = await p.request(M, **metadata(p, "b"))
        return bool(answer.topics[0].partitions[0].leader_id == FIRST)

    await p.until(heard, "the next leader of b in the metadata")
    await p.ask(M, **metadata(p, "b"))
