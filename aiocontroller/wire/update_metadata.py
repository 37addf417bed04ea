"""UpdateMetadata (API key 6), versions 0 to 8: our own encoder of the request and decoder of the answer.

version  adds
0        one flat list of partitions, each with its topic's name; a broker is host and port of its PLAINTEXT listener
1        endpoints with a security protocol
2        rack
3        listener names
4        offline replicas
5        broker epoch; partitions grouped by topic
6        flexible
7        topic ids
8        is a KRaft controller (never), and a tagged type that is not sent

Kafka's rules: a partition without leadership is left out; a partition of a topic being deleted has leader -2, leader
epoch 0 and partition epoch 0 and keeps its ISR; a replica is offline when its broker is not live or its log directory
failed.  The request differs between brokers only in the broker epoch, so it is encoded once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from struct import Struct

from aiocontroller.core.columns import take
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import INITIAL_LEADER_EPOCH, LEADER_DURING_DELETE, Broker, Endpoint
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.wire.apis import ApiKey, check_supported, is_flexible
from aiocontroller.wire.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    Buffer,
    Cursor,
    array_length,
    nullable_string,
    string,
)
from aiocontroller.wire.state_matrix import Used
from aiocontroller.wire.topic_states import (
    FORMS,
    ControlRequestBody,
    Cores,
    EncodedValues,
    Run,
    TopicStatesEncoder,
)

_KEY = ApiKey.UPDATE_METADATA
_START = Struct(">iBi")
_START_WITHOUT_KRAFT = Struct(">ii")

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Kafka's ids; brokers below UpdateMetadata version 3 use these names as listener names."""

UpdateMetadataBody = ControlRequestBody

INITIAL_PARTITION_EPOCH = 0


class UpdateMetadataEncoder(TopicStatesEncoder):
    """Encodes the request; see ``topic_states``.  ``body().for_broker(epoch)`` does the work.

    ``live_brokers``: all registered brokers, with their endpoints, whatever the rows.  ``live``: the ids of brokers
    whose replicas count as online.  ``offline_dirs``: by broker, the rows in its failed log directories.
    Raises BadInputError for a broker whose endpoints the version cannot express.
    """

    def __init__(
        self,
        version: int,
        *,
        controller_id: int,
        controller_epoch: int,
        table: PartitionTable,
        rows: Sequence[int],
        live_brokers: Sequence[Broker],
        live: Collection[int],
        offline_dirs: Mapping[int, Collection[int]] | None = None,
        kept: EncodedValues | None = None,
        cores: Cores | None = None,
    ) -> None:
        check_supported(_KEY, version)
        flexible = is_flexible(_KEY, version)
        super().__init__(
            table,
            rows,
            flexible=flexible,
            grouped=version >= 5,
            with_topic_ids=version >= 7,
            for_update_metadata=True,
            kept=kept,
            cores=cores,
        )
        self._version = version
        self._live = frozenset(live)
        self._offline_dirs = offline_dirs or {}
        self._in_offline_dir = frozenset().union(*self._offline_dirs.values())
        self._head = (
            _START.pack(controller_id, 0, controller_epoch)
            if version >= 8
            else _START_WITHOUT_KRAFT.pack(controller_id, controller_epoch)
        )
        self._end = b"".join(
            (
                array_length(len(live_brokers), flexible=flexible),
                *(encode_live_broker(version, broker) for broker in live_brokers),
                NO_TAGS if flexible else b"",
            )
        )

    def _ends(self, rows: Sequence[int], used: Used) -> bytes | list[bytes]:
        table, live, damaged = self._table, self._live, self._in_offline_dir
        assignments = table.assignments.values
        by_assignment = {
            a: self._offline([r for r in assignments[a].replicas if r not in live]) for a in used.assignments
        }
        if not damaged and len(set(by_assignment.values())) == 1:
            return next(iter(by_assignment.values()))
        [assigned] = take(rows, table.assignment_of)
        ends = list(map(by_assignment.__getitem__, assigned))
        if damaged:
            for at, row in enumerate(rows):
                if row in damaged:
                    ends[at] = self._offline_where_dirs_failed(row)
        return ends

    def _instead(self, rows: Sequence[int], runs: list[Run]) -> dict[int, bytes]:
        going = [(start, stop) for number, start, stop in runs if self._topic(number).deleting]
        return {at: self._core_during_delete(rows[at]) for start, stop in going for at in range(start, stop)}

    def _offline(self, replicas: Sequence[int]) -> bytes:
        return self._array(replicas) + (NO_TAGS if self._flexible else b"") if self._version >= 4 else b""

    def _offline_where_dirs_failed(self, row: int) -> bytes:
        """The end of a partition with a replica on a failed directory, which depends on the row."""
        live, dirs, replicas = self._live, self._offline_dirs, self._table.replicas(row)
        return self._offline([r for r in replicas if r not in live or row in dirs.get(r, ())])

    def _core_during_delete(self, row: int) -> bytes:
        table = self._table
        isr, replicas = self._array(table.isr(row)), self._array(table.replicas(row))
        return FORMS[len(isr), len(replicas)](
            table.index_of[row],
            table.controller_epoch[row],
            LEADER_DURING_DELETE,
            INITIAL_LEADER_EPOCH,
            isr,
            INITIAL_PARTITION_EPOCH,
            replicas,
        )

    def body(self) -> UpdateMetadataBody:
        """The body with all states that were added; call it once."""
        states, _ = self._states()
        if self._version < 5:
            return UpdateMetadataBody(b"".join((self._head, *states, self._end)), None)
        return UpdateMetadataBody(self._head, b"".join((*states, self._end)))


def encode_live_broker(version: int, broker: Broker) -> bytes:
    """One live broker; BadInputError if version 0 cannot express it, since it has no PLAINTEXT endpoint."""
    flexible = is_flexible(_KEY, version)
    end = NO_TAGS if flexible else b""
    parts = [INT32.pack(broker.id)]
    if version == 0:
        plain = next((e for e in broker.endpoints if _security_protocol(broker, e) == 0), None)
        if plain is None:
            raise _inexpressible(version, broker, "no PLAINTEXT endpoint", "one")
        return parts[0] + string(plain.host, flexible=False) + INT32.pack(plain.port)
    parts.append(array_length(len(broker.endpoints), flexible=flexible))
    for endpoint in broker.endpoints:
        protocol = _security_protocol(broker, endpoint)
        parts += (INT32.pack(endpoint.port), string(endpoint.host, flexible=flexible))
        if version >= 3:
            parts.append(string(endpoint.listener, flexible=flexible))
        elif endpoint.listener != endpoint.security_protocol:
            raise _inexpressible(version, broker, f"listener {endpoint.listener}", endpoint.security_protocol)
        parts += (INT16.pack(protocol), end)
    if version >= 2:
        parts.append(nullable_string(broker.rack, flexible=flexible))
    parts.append(end)
    return b"".join(parts)


def _security_protocol(broker: Broker, endpoint: Endpoint) -> int:
    protocol = SECURITY_PROTOCOLS.get(endpoint.security_protocol)
    if protocol is None:
        raise BadInputError(
            f"broker {broker.id}, listener {endpoint.listener}: found security protocol "
            f"{endpoint.security_protocol!r}, expected one of {', '.join(SECURITY_PROTOCOLS)}"
        )
    return protocol


def _inexpressible(version: int, broker: Broker, found: str, expected: str) -> BadInputError:
    return BadInputError(
        f"broker {broker.id} in UPDATE_METADATA(6) version {version}: found {found}, expected {expected}"
    )


def encode_update_metadata(
    version: int,
    *,
    controller_id: int,
    controller_epoch: int,
    broker_epoch: int,
    table: PartitionTable,
    rows: Sequence[int],
    live_brokers: Sequence[Broker],
    live: Collection[int],
    offline_dirs: Mapping[int, Collection[int]] | None = None,
) -> bytes:
    """The body in one call for one broker; the arguments are the encoder's."""
    encoder = UpdateMetadataEncoder(
        version,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        table=table,
        rows=rows,
        live_brokers=live_brokers,
        live=live,
        offline_dirs=offline_dirs,
    )
    return encoder.body().for_broker(broker_epoch)


def decode_update_metadata_response(version: int, body: Buffer) -> int:
    """The error code.  Raises FrameError when the body is truncated or too long."""
    check_supported(_KEY, version)
    cursor = Cursor(f"UPDATE_METADATA(6) version {version} response", body, flexible=is_flexible(_KEY, version))
    error_code = cursor.int16("error code")
    cursor.tags()
    cursor.end()
    return error_code
