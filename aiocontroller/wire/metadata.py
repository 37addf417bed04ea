"""Metadata: decodes requests in pieces and encodes responses from the partition table; both can be very long.

Theory.  As in ``topic_states``, each pair of interned assignment and interned ISR is encoded once, so that a partition
costs one look-up and one call of a compiled form.  A response is made in pieces, so that other tasks can run between
them; nothing here reads the table between two calls.

The content is that of a broker's metadata cache (``ZkMetadataCache.getPartitionMetadata`` of Kafka 3.9): a leader that
is not alive or lacks the listener counts as none; version 0 leaves out replicas that are not alive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from struct import Struct

import msgspec

from aiocontroller.core.ids import NO_LEADER, NO_TOPIC_ID
from aiocontroller.core.partitions import NO_ISR, PartitionTable, Topic
from aiocontroller.wire.apis import ApiKey, check_supported, is_flexible
from aiocontroller.wire.messages import MetadataBroker
from aiocontroller.wire.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    Buffer,
    Cursor,
    array_length,
    int32_array,
    nullable_string,
    string,
)

_KEY = ApiKey.METADATA
_PARTITION = Struct(">hii")
_PARTITION_WITH_EPOCH = Struct(">hiii")
NONE, LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, LISTENER_NOT_FOUND = 0, 5, 9, 72
OPERATIONS_UNKNOWN = -(1 << 31)


class MetadataAsked:
    """A Metadata request whose topics are read in pieces, since there can be very many: ``read`` until it is done.

    All methods raise FrameError when the body is truncated or malformed.
    """

    def __init__(self, version: int, body: Buffer) -> None:
        check_supported(_KEY, version)
        self._version = version
        self._cursor = Cursor(f"METADATA(3) version {version} request", body, flexible=is_flexible(_KEY, version))
        least_bytes_each = 18 if version >= 10 else 1
        n = (
            self._cursor.nullable_array_length("topics", least_bytes_each)
            if version
            else self._cursor.array_length("topics", least_bytes_each)
        )
        self.all = n < 0 or (version == 0 and n == 0)
        """Version 0 has no null: an empty list means all."""
        self._left = max(0, n)
        self.topics: list[tuple[str | None, bytes]] = []
        """(name, id)."""
        self.allow_auto_topic_creation = True
        self.include_cluster_authorized_operations = False
        self.include_topic_authorized_operations = False

    def read(self, at_most: int) -> bool:
        """Read some more topics, and at the end the fields after them; returns whether it is done."""
        cursor, by_id = self._cursor, self._version >= 10
        for _ in range(min(at_most, self._left)):
            topic_id = cursor.uuid("topic id") if by_id else NO_TOPIC_ID
            name = cursor.nullable_string("name") if by_id else cursor.string("name")
            cursor.tags()
            self.topics.append((name, topic_id))
            self._left -= 1
        if self._left:
            return False
        if self._version >= 4:
            self.allow_auto_topic_creation = cursor.int8("allow auto topic creation") != 0
        if 8 <= self._version <= 10:
            self.include_cluster_authorized_operations = cursor.int8("include cluster authorized operations") != 0
        if self._version >= 8:
            self.include_topic_authorized_operations = cursor.int8("include topic authorized operations") != 0
        cursor.tags()
        return True  # trailing bytes are ignored: librdkafka sends three too many


class MetadataHead(msgspec.Struct, frozen=True):
    """The fields of the response outside the topics."""

    brokers: Sequence[MetadataBroker]
    cluster_id: str | None
    controller_id: int
    authorized_operations: int = OPERATIONS_UNKNOWN
    """Authorized operations on the cluster; in versions 8 to 10."""


def encode_metadata(version: int, head: MetadataHead, topics: Sequence[bytes], count: int) -> bytes:
    """The body; ``topics`` are the pieces of ``count`` topics."""
    check_supported(_KEY, version)
    flexible = is_flexible(_KEY, version)
    end = NO_TAGS if flexible else b""
    out = [INT32.pack(0)] if version >= 3 else []
    out.append(array_length(len(head.brokers), flexible=flexible))
    for broker in head.brokers:
        out += (INT32.pack(broker.id), string(broker.host, flexible=flexible), INT32.pack(broker.port))
        if version >= 1:
            out.append(nullable_string(broker.rack, flexible=flexible))
        out.append(end)
    if version >= 2:
        out.append(nullable_string(head.cluster_id, flexible=flexible))
    if version >= 1:
        out.append(INT32.pack(head.controller_id))
    out.append(array_length(count, flexible=flexible))
    out += topics
    if 8 <= version <= 10:
        out.append(INT32.pack(head.authorized_operations))
    out.append(end)
    return b"".join(out)


class MetadataTopicEncoder:
    """Encodes topics for one client.

    ``nodes``: the ids with an endpoint for the client; ``alive``: all registered ids; ``live``: the ids whose replicas
    count as online; ``offline_dirs``: by broker, the rows in its failed log directories.
    """

    def __init__(
        self,
        version: int,
        table: PartitionTable,
        *,
        nodes: Collection[int],
        alive: Collection[int],
        live: Collection[int],
        offline_dirs: Mapping[int, Collection[int]],
    ) -> None:
        check_supported(_KEY, version)
        self._version = version
        self._flexible = is_flexible(_KEY, version)
        self._end = NO_TAGS if self._flexible else b""
        self._table = table
        self._nodes, self._alive, self._live = frozenset(nodes), frozenset(alive), frozenset(live)
        self._offline_dirs = offline_dirs
        self._in_offline_dir = frozenset().union(*offline_dirs.values())
        self._tails: dict[tuple[int, int], bytes] = {}
        """The encoded replicas, ISR and following fields, by interned assignment and ISR."""
        self._short: dict[tuple[int, int], bool] = {}
        """Whether version 0 leaves out a replica."""

    def error(self, code: int, name: str | None, topic_id: bytes = NO_TOPIC_ID, *, internal: bool = False) -> bytes:
        """A topic without partitions."""
        return self.begin(code, name, topic_id, 0, internal=internal) + self.finish()

    def begin(self, code: int, name: str | None, topic_id: bytes, partitions: int, *, internal: bool) -> bytes:
        """The bytes before a topic's partitions; below version 12 its name must not be null."""
        version, flexible = self._version, self._flexible
        out = [
            INT16.pack(code),
            nullable_string(name, flexible=flexible) if version >= 12 else string(name or "", flexible=flexible),
        ]
        if version >= 10:
            out.append(topic_id)
        if version >= 1:
            out.append(b"\x01" if internal else b"\x00")
        out.append(array_length(partitions, flexible=flexible))
        return b"".join(out)

    def finish(self, authorized_operations: int = OPERATIONS_UNKNOWN) -> bytes:
        """The bytes after a topic's partitions; the operations are a bit field (KIP-430)."""
        return (INT32.pack(authorized_operations) if self._version >= 8 else b"") + self._end

    def led(self, topic: Topic) -> list[int]:
        """The rows that brokers know, by partition number."""
        isr_of = self._table.isr_of
        return [row for row in topic.rows if row >= 0 and isr_of[row] != NO_ISR]

    def partitions(self, rows: Sequence[int]) -> bytes:
        """The bytes of the partitions in these rows of the table, in their order."""
        table, nodes, tails = self._table, self._nodes, self._tails
        assignment_of, isr_of, index_of = table.assignment_of, table.isr_of, table.index_of
        leader_of, epoch_of, damaged = table.leader, table.leader_epoch, self._in_offline_dir
        with_epoch = self._version >= 7
        out = []
        for row in rows:
            key = assignment_of[row], isr_of[row]
            leader = leader_of[row]
            error = NONE if leader in nodes else self._why_not(leader)
            if error:
                leader = NO_LEADER
            tail = tails.get(key)
            if tail is None:
                tail = tails[key] = self._tail(*key)
            if row in damaged:
                tail = self._tail(*key, row)
            if self._version == 0 and not error and self._short[key]:
                error = REPLICA_NOT_AVAILABLE
            if with_epoch:
                out.append(_PARTITION_WITH_EPOCH.pack(error, index_of[row], leader, epoch_of[row]))
            else:
                out.append(_PARTITION.pack(error, index_of[row], leader))
            out.append(tail)
        return b"".join(out)

    def _why_not(self, leader: int) -> int:
        known = leader in self._alive and self._version >= 6
        return LISTENER_NOT_FOUND if known else LEADER_NOT_AVAILABLE

    def _tail(self, assignment: int, isr: int, damaged_row: int = -1) -> bytes:
        table, flexible, live = self._table, self._flexible, self._live
        replicas: Sequence[int] = table.assignments.values[assignment].replicas
        in_sync: Sequence[int] = table.isrs.values[isr]
        dirs = self._offline_dirs
        offline = [r for r in replicas if r not in live or damaged_row in dirs.get(r, ())]
        if self._version == 0:
            all_of_them = len(replicas), len(in_sync)
            replicas = [r for r in replicas if r in self._nodes]
            in_sync = [r for r in in_sync if r in self._nodes]
            self._short[assignment, isr] = (len(replicas), len(in_sync)) != all_of_them
        out = int32_array(replicas, flexible=flexible) + int32_array(in_sync, flexible=flexible)
        if self._version >= 5:
            out += int32_array(offline, flexible=flexible)
        return out + self._end
