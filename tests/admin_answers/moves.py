"""Elections and reassignments: ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.wire.apis import ApiKey
from tests.admin_answers.player import Fields, Player
from tests.admin_answers.registry import one, scenario
from tests.admin_answers.topics import PLENTY_MS, seen, start_deletion, start_move
from tests.admin_answers.two_clusters import LISTENING, NOWHERE

E, A, L = ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS
PREFERRED, UNCLEAN = 0, 1


# -- ElectLeaders ------------------------------------------------------------------------------------------------------


def elect(p: Player, *names: str, kind: int = PREFERRED, partitions: Sequence[int] = (0,)) -> Fields:
    topics = [{"topic": p.topic(name), "partitions": list(partitions)} for name in names]
    return {"election_type": kind, "topic_partitions": topics, "timeout": PLENTY_MS}


one(E, "not needed", lambda p: elect(p, "a"), topics={"a": [[1, 2]]})
one(E, "preferred leader gone", lambda p: elect(p, "a"), topics={"a": [[NOWHERE, 1]]})
one(E, "preferred leader not in sync", lambda p: elect(p, "a", "b"), topics={"a": [[NOWHERE, 1]], "b": [[1]]})
one(E, "no replica alive", lambda p: elect(p, "a"), topics={"a": [[NOWHERE]]}, unanswered=True)
one(E, "unclean, not needed", lambda p: elect(p, "a", kind=UNCLEAN), topics={"a": [[1, 2]]}, since=1)
one(
    E,
    "unclean, none alive",
    lambda p: elect(p, "a", kind=UNCLEAN),
    topics={"a": [[NOWHERE]]},
    since=1,
    unanswered=True,
)
one(E, "unknown", lambda p: elect(p, "a", "b", partitions=[0, 7]), topics={"b": [[1]]})
one(E, "none", lambda p: elect(p))
one(E, "no partitions", lambda p: elect(p, "a", partitions=[]), topics={"a": [[1]]})
one(E, "twice", lambda p: elect(p, "a", "a", partitions=[0, 0]), topics={"a": [[1]]})
one(E, "an unknown kind", lambda p: elect(p, "a", kind=9), topics={"a": [[1]]}, since=1)
one(E, "a kind below zero", lambda p: elect(p, "a", kind=-1), topics={"a": [[1]]}, since=1)
one(E, "no time", lambda p: elect(p, "a") | {"timeout": 0}, topics={"a": [[1]]})


@scenario(E, "needed", topics={"a": [[1, 2]]})
async def _(p: Player) -> None:
    """Broker 2 becomes the preferred leader by a reassignment that only changes the order."""
    await reorder(p, "a", [2, 1])
    await p.ask(**elect(p, "a"))
    await p.ask(ApiKey.METADATA, **seen(p, "a"))


@scenario(E, "all", topics={"a": [[1, 2]]})
async def _(p: Player) -> None:
    """Only what was elected or failed is answered, so both tell of many scenarios' partitions without leaders."""
    await reorder(p, "a", [2, 1])
    await p.ask(election_type=PREFERRED, topic_partitions=None, timeout=PLENTY_MS)


@scenario(E, "while it is deleted", topics={"a": [[1, NOWHERE]]})
async def _(p: Player) -> None:
    await start_deletion(p, "a")
    await p.ask(**elect(p, "a"))


@scenario(E, "while it moves", topics={"a": [[1, 2]]})
async def _(p: Player) -> None:
    await start_move(p, "a", [LISTENING, 1])
    await p.ask(**elect(p, "a"))


async def reorder(p: Player, name: str, replicas: list[int]) -> None:
    await start_move(p, name, replicas)

    async def reordered() -> bool:
        answer = await p.request(ApiKey.METADATA, **seen(p, name))
        return [list(each.replica_nodes) for each in answer.topics[0].partitions] == [replicas]

    await p.until(reordered, f"{name} to have the replicas {replicas}")


# -- reassignments -----------------------------------------------------------------------------------------------------


def move(p: Player, name: str, replicas: Sequence[int] | None, partition: int = 0) -> Fields:
    return {
        "name": p.topic(name),
        "partitions": [{"partition_index": partition, "replicas": None if replicas is None else list(replicas)}],
    }


def moves(*topics: Fields) -> Fields:
    return {"timeout": PLENTY_MS, "topics": list(topics)}


def listed(p: Player, *names: str, partitions: Sequence[int] = (0,)) -> Fields:
    topics = [{"name": p.topic(name), "partition_indexes": list(partitions)} for name in names]
    return {"timeout": PLENTY_MS, "topics": topics}


async def wholly_moved(p: Player, name: str) -> None:
    async def none_is_ongoing() -> bool:
        return not (await p.request(L, **listed(p, name))).topics

    async def known() -> bool:
        """A broker hears of the end after the controller has forgotten the move, even when it is the controller."""
        (partition, *_) = (await p.request(ApiKey.METADATA, **seen(p, name))).topics[0].partitions
        return (partition.leader_epoch, list(partition.isr_nodes)) == await p.cluster.leadership(p.topic(name))

    await p.until(none_is_ongoing, f"{name} to have moved")
    await p.until(known, f"the metadata of {name} to say so")


@scenario(A, topics={"a": [[1]]})
async def _(p: Player) -> None:
    await p.ask(**moves(move(p, "a", [2])))
    await wholly_moved(p, "a")
    await p.ask(L, **listed(p, "a"))
    await p.ask(ApiKey.METADATA, **seen(p, "a"))


@scenario(A, "to where it is", topics={"a": [[1]]})
async def _(p: Player) -> None:
    await p.ask(**moves(move(p, "a", [1])))
    await wholly_moved(p, "a")
    await p.ask(ApiKey.METADATA, **seen(p, "a"))


@scenario(A, "overridden and taken back", topics={"a": [[1]]})
async def _(p: Player) -> None:
    await p.ask(**moves(move(p, "a", [LISTENING])))
    await p.ask(L, **listed(p, "a"), what="under way")
    await p.ask(**moves(move(p, "a", [LISTENING, 1])), what="another target")
    await p.ask(L, **listed(p, "a"), what="overridden")
    await p.ask(**moves(move(p, "a", None)), what="taken back")
    await wholly_moved(p, "a")
    await p.ask(**moves(move(p, "a", None)), what="taken back again")
    await p.ask(L, **listed(p, "a"), what="over")
    await p.ask(ApiKey.METADATA, **seen(p, "a"))


one(A, "none", lambda p: moves())
one(A, "no partitions", lambda p: moves({"name": p.topic("a"), "partitions": []}), topics={"a": [[1]]})
one(A, "nothing to take back", lambda p: moves(move(p, "a", None)), topics={"a": [[1]]})
one(A, "to an unknown broker", lambda p: moves(move(p, "a", [77])), topics={"a": [[1]]})
one(A, "to a broker that is gone", lambda p: moves(move(p, "a", [NOWHERE, 1])), topics={"a": [[1, NOWHERE]]})
one(A, "to no broker", lambda p: moves(move(p, "a", [])), topics={"a": [[1]]})
one(A, "to the same twice", lambda p: moves(move(p, "a", [2, 2])), topics={"a": [[1]]})
one(A, "to a negative broker", lambda p: moves(move(p, "a", [-1])), topics={"a": [[1]]})
one(A, "of an unknown topic", lambda p: moves(move(p, "b", [1])))
one(A, "of an unknown partition", lambda p: moves(move(p, "a", [1], 7)), topics={"a": [[1]]})
one(A, "of an unknown topic, taken back", lambda p: moves(move(p, "b", None)))
one(A, "of an unknown topic, to no broker", lambda p: moves(move(p, "b", [])))
one(A, "of a bad name", lambda p: moves({"name": "bad/name", "partitions": []}, move(p, "", [1])))
one(A, "some", lambda p: moves(move(p, "a", [-1]), move(p, "b", None)), topics={"a": [[1]], "b": [[1]]})
one(A, "twice", lambda p: moves(move(p, "a", [-1]), move(p, "a", [])), topics={"a": [[1]]})


@scenario(A, "while it is deleted", topics={"a": [[1, NOWHERE]]})
async def _(p: Player) -> None:
    await start_deletion(p, "a")
    await p.ask(**moves(move(p, "a", [2])))
    await p.ask(**moves(move(p, "a", None)), what="taken back")


@scenario(L, "under way", topics={"a": [[1, 2], [2, 1]], "b": [[2]], "c": [[1]]})
async def _(p: Player) -> None:
    await start_move(p, "a", [LISTENING, 2])
    await start_move(p, "b", [2, LISTENING])
    await p.ask(**listed(p, "a", "b", "c", "d", partitions=[0, 1, 7]))
    await p.ask(**listed(p, "a", "a", partitions=[0, 0]), what="twice")
    for name in ("a", "b"):
        await p.request(A, **moves(move(p, name, None)))
        await wholly_moved(p, name)


one(L, "none", lambda p: listed(p))
one(L, "no partitions", lambda p: listed(p, "a", partitions=[]), topics={"a": [[1]]})
one(L, "unknown", lambda p: listed(p, "a"))


@scenario(L, "all", topics={"a": [[1, 2]]})
async def _(p: Player) -> None:
    await start_move(p, "a", [LISTENING, 2])
    await p.ask(timeout=PLENTY_MS, topics=None)
    await p.request(A, **moves(move(p, "a", None)))
    await wholly_moved(p, "a")
