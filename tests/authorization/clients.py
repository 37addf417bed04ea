"""What producers and consumers ask."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from aiocontroller.wire.apis import ApiKey
from tests.authorization.asking import Ask, Cell, Fields, When
from tests.authorization.principals import GROUPS, MISSING_TOPICS, TOPICS, TRANSACTIONAL_IDS

EVERY_TOPIC = (*TOPICS, *MISSING_TOPICS)
UNKNOWN_ID = b"an unknown topic"
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _batch(producer_id: int = -1, producer_epoch: int = -1, sequence: int = -1, transactional: bool = False) -> bytes:
    """A record batch of one record with the value ``x``."""
    record = b"\x00\x00\x00\x01\x02x\x00"  # attributes, deltas of time and offset, no key, a value, no headers
    head = struct.pack(
        ">hiqqqhii", 16 if transactional else 0, 0, 1_000, 1_000, producer_id, producer_epoch, sequence, 1
    )
    checked = head + bytes((len(record) * 2,)) + record
    return struct.pack(">qiibI", 0, len(checked) + 9, 0, 2, _crc32c(checked)) + checked


def _produce(topics: Iterable[str], batch: bytes, transactional_id: str | None = None) -> Fields:
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch}]} for name in topics]
    return {"transactional_id": transactional_id, "acks": 1, "timeout": 1000, "topic_data": data}


def _fetch(cell: Cell, replica_id: int = -1, names: Iterable[str] = EVERY_TOPIC) -> Fields:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1024,
    }
    topics: list[Fields] = [
        {"topic": name, "topic_id": cell.topic_id(name), "partitions": [partition]} for name in names
    ]
    found: Fields = {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id, "replica_epoch": cell.broker_epochs.get(replica_id, -1)},
        "max_wait": 10,
        "min_bytes": 0,
        "max_bytes": 1024,
        "session_id": 0,
        "session_epoch": -1,
        "topics": topics,
        "rack_id": "",
    }
    if cell.version >= 15:
        del found["replica_id"]
    return found


def _list_offsets(cell: Cell) -> Fields:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1, "max_num_offsets": 1}
    return {"replica_id": -1, "topics": [{"name": name, "partitions": [partition]} for name in EVERY_TOPIC]}


def _metadata(cell: Cell, names: Iterable[str] | None, create: bool = False) -> Fields:
    topics = None if names is None else [{"name": name, "topic_id": None} for name in names]
    if names is None and cell.version == 0:
        topics = []
    return {
        "topics": topics,
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }


def _metadata_by_id(cell: Cell) -> Fields:
    ids = [*(cell.topic_id(name) for name in TOPICS), UNKNOWN_ID]
    return _metadata(cell, ()) | {"topics": [{"name": None, "topic_id": each} for each in ids]}


def _of_group(group: str, **more: object) -> Fields:
    return {"group_id": group, "member_id": "", "generation_id": -1, "group_instance_id": None, **more}


def _commit_topics(**more: object) -> list[Fields]:
    partition = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    return [{"name": name, "partitions": [partition | more]} for name in EVERY_TOPIC]


def _offset_commit(group: str) -> Fields:
    more = {"generation_id_or_member_epoch": -1, "retention_time": -1, "topics": _commit_topics(commit_timestamp=-1)}
    found = _of_group(group, **more)
    del found["generation_id"]
    return found


def _offset_fetch(cell: Cell, every_topic: bool) -> Fields:
    topics = None if every_topic else [{"name": name, "partition_indexes": [0]} for name in EVERY_TOPIC]
    if cell.version >= 8:
        groups = [{"group_id": g, "member_id": None, "member_epoch": -1, "topics": topics} for g in GROUPS]
        return {"groups": groups, "require_stable": False}
    return {"group_id": GROUPS[cell.number % len(GROUPS)], "topics": topics, "require_stable": False}


def _add_partitions(cell: Cell) -> Fields:
    topics = [{"name": name, "partitions": [0]} for name in EVERY_TOPIC]
    if cell.version >= 4:
        transactions = [
            {"transactional_id": each, "producer_id": 1, "producer_epoch": 0, "verify_only": False, "topics": topics}
            for each in TRANSACTIONAL_IDS
        ]
        return {"transactions": transactions}
    prefix = "v3_and_below_"
    return {
        f"{prefix}transactional_id": TRANSACTIONAL_IDS[cell.number % len(TRANSACTIONAL_IDS)],
        f"{prefix}producer_id": 1,
        f"{prefix}producer_epoch": 0,
        f"{prefix}topics": topics,
    }


def _find(cell: Cell, key_type: int, keys: Iterable[str]) -> Fields:
    wanted = list(keys)
    return {"key_type": key_type, "key": wanted[0], "coordinator_keys": wanted}


def _leave(group: str) -> Fields:
    return {"group_id": group, "member_id": "m", "members": [{"member_id": "m", "group_instance_id": None}]}


def _join(group: str) -> Fields:
    protocol = {"name": "range", "metadata": b""}
    return {
        "group_id": group,
        "member_id": "",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": [protocol],
    }


def _txn_offset_commit(tx: str, group: str) -> Fields:
    more = {"transactional_id": tx, "producer_id": 1, "producer_epoch": 0, "topics": _commit_topics()}
    return _of_group(group, **more)


def _epochs(replica_id: int) -> Fields:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": replica_id, "topics": [{"topic": t, "partitions": [partition]} for t in EVERY_TOPIC]}


def _init_producer(tx: str | None) -> Fields:
    return {"transactional_id": tx, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}


def _of_each_group(api: ApiKey, make: object, names: Iterable[str] = GROUPS, **more: object) -> list[Ask]:
    return [Ask(api, name, lambda cell, name=name: make(name), **more) for name in names]  # type: ignore[operator,misc]


_TX = [(tx, group) for tx, group in zip(TRANSACTIONAL_IDS, GROUPS, strict=False)]

CLIENTS: tuple[Ask, ...] = (
    Ask(ApiKey.PRODUCE, "", lambda cell: _produce(EVERY_TOPIC, _batch())),
    Ask(ApiKey.PRODUCE, "idempotent", lambda cell: _produce(("orders", "open"), _batch(1, 0, 0)), since=3),
    *(
        Ask(ApiKey.PRODUCE, f"in {tx}", lambda cell, tx=tx: _produce(("orders",), _batch(1, 0, 0, True), tx), since=3)
        for tx in TRANSACTIONAL_IDS
    ),
    Ask(ApiKey.FETCH, "", _fetch),
    Ask(ApiKey.FETCH, "as a replica", lambda cell: _fetch(cell, replica_id=2)),
    Ask(ApiKey.FETCH, "unknown id", lambda cell: _fetch(cell, names=("orders", "unknown")), since=13),
    Ask(ApiKey.LIST_OFFSETS, "", _list_offsets),
    # before version 4 a topic that is missing is always created
    Ask(ApiKey.METADATA, "", lambda cell: _metadata(cell, EVERY_TOPIC if cell.version >= 4 else TOPICS)),
    Ask(ApiKey.METADATA, "all", lambda cell: _metadata(cell, None)),
    Ask(ApiKey.METADATA, "no topics", lambda cell: _metadata(cell, ()), since=1),
    Ask(ApiKey.METADATA, "by id", _metadata_by_id, since=12),
    Ask(
        ApiKey.METADATA,
        "creates",
        lambda cell: _metadata(cell, cell.fresh_topics, create=True),
        When.WRITES,
        ends_only=True,
    ),
    Ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, "", lambda cell: _epochs(-2)),
    Ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, "as a replica", lambda cell: _epochs(2)),
    *(Ask(ApiKey.OFFSET_COMMIT, group, lambda cell, g=group: _offset_commit(g)) for group in GROUPS),
    Ask(ApiKey.OFFSET_FETCH, "", lambda cell: _offset_fetch(cell, False)),
    Ask(ApiKey.OFFSET_FETCH, "every topic", lambda cell: _offset_fetch(cell, True), since=2),
    Ask(ApiKey.FIND_COORDINATOR, "groups", lambda cell: _find(cell, GROUP, GROUPS), since=4),
    Ask(ApiKey.FIND_COORDINATOR, "transactions", lambda cell: _find(cell, TRANSACTION, TRANSACTIONAL_IDS), since=4),
    *(
        Ask(ApiKey.FIND_COORDINATOR, f"of {group}", lambda cell, g=group: _find(cell, GROUP, (g,)), until=3)
        for group in GROUPS
    ),
    *(
        Ask(ApiKey.FIND_COORDINATOR, f"of {tx}", lambda cell, t=tx: _find(cell, TRANSACTION, (t,)), since=1, until=3)
        for tx in TRANSACTIONAL_IDS
    ),
    Ask(ApiKey.FIND_COORDINATOR, "of an unknown type", lambda cell: _find(cell, 9, ("app",)), since=1),
    *_of_each_group(ApiKey.JOIN_GROUP, _join),
    *_of_each_group(ApiKey.HEARTBEAT, _of_group),
    *_of_each_group(ApiKey.LEAVE_GROUP, _leave),
    *_of_each_group(ApiKey.SYNC_GROUP, _of_group),
    Ask(ApiKey.DESCRIBE_GROUPS, "", lambda cell: {"groups": list(GROUPS), "include_authorized_operations": True}),
    Ask(ApiKey.LIST_GROUPS, "", lambda cell: {"states_filter": [], "types_filter": []}),
    Ask(ApiKey.DELETE_GROUPS, "", lambda cell: {"groups_names": list(GROUPS)}),
    *(
        Ask(
            ApiKey.OFFSET_DELETE,
            group,
            lambda cell, g=group: {
                "group_id": g,
                "topics": [{"name": name, "partitions": [{"partition_index": 0}]} for name in EVERY_TOPIC],
            },
        )
        for group in GROUPS
    ),
    Ask(ApiKey.INIT_PRODUCER_ID, "idempotent", lambda cell: _init_producer(None)),
    *(Ask(ApiKey.INIT_PRODUCER_ID, tx, lambda cell, t=tx: _init_producer(t)) for tx in TRANSACTIONAL_IDS),
    Ask(ApiKey.ADD_PARTITIONS_TO_TXN, "", _add_partitions),
    *(
        Ask(
            ApiKey.ADD_OFFSETS_TO_TXN,
            tx,
            lambda cell, t=tx, g=group: {
                "transactional_id": t,
                "producer_id": 1,
                "producer_epoch": 0,
                "group_id": g,
            },
        )
        for tx, group in _TX
    ),
    *(
        Ask(
            ApiKey.END_TXN,
            tx,
            lambda cell, t=tx: {"transactional_id": t, "producer_id": 1, "producer_epoch": 0, "committed": True},
        )
        for tx in TRANSACTIONAL_IDS
    ),
    *(Ask(ApiKey.TXN_OFFSET_COMMIT, tx, lambda cell, t=tx, g=group: _txn_offset_commit(t, g)) for tx, group in _TX),
    Ask(
        ApiKey.DELETE_RECORDS,
        "",
        lambda cell: {
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in EVERY_TOPIC],
            "timeout": 1000,
        },
    ),
    Ask(
        ApiKey.DESCRIBE_PRODUCERS,
        "",
        lambda cell: {"topics": [{"name": name, "partition_indexes": [0]} for name in EVERY_TOPIC]},
    ),
    Ask(ApiKey.DESCRIBE_TRANSACTIONS, "", lambda cell: {"transactional_ids": list(TRANSACTIONAL_IDS)}),
    Ask(ApiKey.LIST_TRANSACTIONS, "", lambda cell: {"state_filters": [], "producer_id_filters": []}),
    Ask(ApiKey.API_VERSIONS, "", lambda cell: {"client_software_name": "oracle", "client_software_version": "1.0"}),
    Ask(
        ApiKey.API_VERSIONS,
        "of a nameless client",
        lambda cell: {"client_software_name": "", "client_software_version": ""},
        since=3,
    ),
    Ask(ApiKey.SASL_HANDSHAKE, "", lambda cell: {"mechanism": "PLAIN"}),
    Ask(ApiKey.SASL_AUTHENTICATE, "", lambda cell: {"auth_bytes": b"\0super\0super-secret"}),
)
