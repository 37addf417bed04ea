"""Debts in ZooKeeper: replicas that brokers have yet to delete (``docs/debts.md``).

``/aiocontroller_debts``              the last controller epoch that maintained the debts
``/aiocontroller_debts/3``            parent of broker 3's debts; no data
``/aiocontroller_debts/3/orders``     its debts of topics of this name: partitions by topic id

A znode holds each partition number at most once, so it is smaller than the topic's own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from aiocontroller.core.ids import TopicAssignment
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.writes import WriteOp
from aiocontroller.zookeeper.znode_access import ZNodeAccess, refused
from aiocontroller.zookeeper.znode_json import (
    BadZNode,
    Id,
    PartitionNumber,
    bad,
    reading,
    topic_id_from_text,
    topic_id_to_text,
)

log = logging.getLogger(__name__)

_encode_json = msgspec.json.Encoder().encode


class Owed(NamedTuple):
    """One znode: a broker's debts of topics of one name."""

    broker: int
    topic: str
    partitions: Mapping[int, bytes]
    """Partition -> the topic's id; if empty, the znode is deleted."""
    version: int
    """The znode's known version; -1 if there is none."""

    @property
    def path(self) -> str:
        """The znode of this broker's debts of this topic."""
        return paths.debts(self.broker, self.topic)


class FoundDebts(NamedTuple):
    """All debts in ZooKeeper, and the znodes that could not be read."""

    epoch: int
    """The last controller epoch that maintained the debts; 0 if unknown."""
    owed: list[Owed]
    bad: list[BadZNode]


class _DebtsZNode(msgspec.Struct):
    version: int
    topics: dict[str, list[PartitionNumber]]


class _RootZNode(msgspec.Struct):
    version: int
    controller_epoch: Annotated[int, msgspec.Meta(ge=0)]


_debts_decoder = msgspec.json.Decoder(_DebtsZNode)
_root_decoder = msgspec.json.Decoder(_RootZNode)
_broker_decoder = msgspec.json.Decoder(Id)


def encode_debts(partitions: Mapping[int, bytes]) -> bytes:
    """The content of a znode of debts; ``partitions``: partition -> topic id."""
    by_id: dict[bytes, list[int]] = {}
    for partition, topic_id in sorted(partitions.items()):
        by_id.setdefault(topic_id, []).append(partition)
    topics = {topic_id_to_text(topic_id): numbers for topic_id, numbers in sorted(by_id.items())}
    return _encode_json({"version": 1, "topics": topics})


def decode_debts(path: str, data: bytes | None) -> dict[int, bytes] | BadZNode:
    """Partition -> topic id of 16 bytes, of a znode of debts."""

    def read(data: bytes) -> dict[int, bytes]:
        topics = _debts_decoder.decode(data).topics
        return {number: topic_id_from_text(text) for text, numbers in topics.items() for number in numbers}

    return reading(path, data, '"topics": lists of partitions by topic id', read)


def encode_root(epoch: int) -> bytes:
    """The content of the parent of all debts: the last controller epoch that maintained them."""
    return _encode_json({"version": 1, "controller_epoch": epoch})


def decode_root(data: bytes | None) -> int | BadZNode:
    """The last controller epoch that maintained the debts, of ``/aiocontroller_debts``."""
    return reading(
        paths.DEBTS, data, '"controller_epoch": a number', lambda d: _root_decoder.decode(d).controller_epoch
    )


def _op(owed: Owed) -> WriteOp:
    if not owed.partitions:
        return Delete(owed.path, owed.version)
    data = encode_debts(owed.partitions)
    return Create(owed.path, data) if owed.version < 0 else SetData(owed.path, data, owed.version)


class DebtZNodes:
    """Reads and writes the znodes of debts (``docs/debts.md``)."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._znodes = ZNodeAccess(client)

    async def load(self) -> FoundDebts:
        """Load all readable debts.  Costs one read if there have never been any."""
        bad: list[BadZNode] = []
        root = await self._znodes.read_present([paths.DEBTS], bad)
        if not root:
            return FoundDebts(0, [], bad)
        found = FoundDebts(_epoch(root[0][1]), [], bad)
        brokers = []
        for name in await self._znodes.children(paths.DEBTS):
            path = f"{paths.DEBTS}/{name}"
            broker = reading(path, name.encode(), "a broker's id as the name", _broker_decoder.decode)
            if isinstance(broker, BadZNode):
                found.bad.append(broker)
            else:
                brokers.append(broker)
        names, unreadable = await self.names(sorted(brokers))
        read, damaged = await self.read(names)
        return FoundDebts(found.epoch, read, [*found.bad, *unreadable, *damaged])

    async def names(self, brokers: Sequence[int]) -> tuple[list[tuple[int, str]], list[BadZNode]]:
        """(broker, topic) of each of these brokers' znodes; and the brokers' znodes that we may not read."""
        where = [paths.debts_of_broker(broker) for broker in brokers]
        children = await self._client.children_many(where)
        names = [(b, topic) for b, own in zip(brokers, children.names, strict=True) for topic in sorted(own or ())]
        codes = zip(where, children.code, strict=True)
        return names, [
            unreadable for path, code in codes if code != Code.NO_NODE and (unreadable := refused(path, code))
        ]

    async def give_up(self, broker: int, topic: str | None = None) -> int:
        """Delete the broker's debts, of one topic or of all; returns the number of znodes.  Not fenced."""
        where = paths.debts_of_broker(broker) if topic is None else paths.debts(broker, topic)
        return await self._client.delete_recursive(where)

    async def read(self, names: Sequence[tuple[int, str]]) -> tuple[list[Owed], list[BadZNode]]:
        """The znodes of these (broker, topic); missing ones are empty, with version -1.

        Unreadable ones count as empty too, and the next write overwrites them.
        """
        where = [paths.debts(*name) for name in names]
        reads = await self._client.get_many(where)
        owed: list[Owed] = []
        damaged: list[BadZNode] = []
        for (broker, topic), path, data, code, version in zip(
            names, where, reads.data, reads.code, reads.version, strict=True
        ):
            if code == Code.NO_NODE:
                owed.append(Owed(broker, topic, {}, -1))
                continue
            partitions = refused(path, code) or decode_debts(path, data)
            if isinstance(partitions, BadZNode):
                damaged.append(partitions)
                partitions = {}
            owed.append(Owed(broker, topic, partitions, version))
        return owed, damaged

    async def prepare(self, epoch: int, brokers: Sequence[int], *, fence: int) -> dict[int, int]:
        """Record that the controller of this epoch maintains the debts; create the parents.

        Returns broker -> 0, or the code with which its parent was refused.
        """
        parents = [paths.debts_of_broker(broker) for broker in brokers]
        codes = [int(Code.NO_AUTH)] * len(brokers)
        try:
            await self._znodes.set_or_create(paths.DEBTS, encode_root(epoch), fence)
            codes = await self._znodes.create_many([(parent, None) for parent in parents], fence)
        except exc.NoAuth as error:
            log.error("Cannot record which controller keeps the debts: %s", ", ".join(error.__notes__))
        found = (await self._client.exists_many(parents)).code  # creating an existing one may be refused, too
        return {b: code if missing else 0 for b, code, missing in zip(brokers, codes, found, strict=True)}

    async def write(self, changes: Sequence[Owed], *, fence: int) -> list[int]:
        """Write each znode independently; returns the codes (BAD_VERSION, NO_NODE, NODE_EXISTS: it has changed)."""
        return (await self._client.write_many([_op(owed) for owed in changes], fence=fence)).code

    async def write_with_topics(
        self, groups: Sequence[tuple[TopicAssignment, Sequence[Owed]]], *, fence: int
    ) -> list[int]:
        """Write each topic's assignment atomically with its debts; returns 0 or the error code for each."""
        ops = [
            [
                SetData(paths.topic(assignment.topic), znodes.encode_topic(assignment), assignment.version),
                *map(_op, changes),
            ]
            for assignment, changes in groups
        ]
        return await self._client.write_together(ops, fence=fence)


def _epoch(data: bytes | None) -> int:
    """The epoch; 0 if unreadable, since the last active controller is unknown then."""
    found = decode_root(data) if data else bad(paths.DEBTS, data, "an epoch")
    return 0 if isinstance(found, BadZNode) else found
