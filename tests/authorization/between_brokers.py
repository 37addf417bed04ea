"""What brokers and controllers say to each other, and what no node offers."""

from __future__ import annotations

from aiocontroller.wire.apis import ApiKey
from tests.authorization.asking import Ask, Cell, Fields, When

LEADER, ORACLE = 1, 2
UNKNOWN_BROKER = 77
_TOPIC = "orders"


def _alter_partition(cell: Cell, broker: int, epoch: int) -> Fields:
    partition = {
        "partition_index": 0,
        "leader_epoch": 0,
        "new_isr": [LEADER],
        "new_isr_with_epochs": [{"broker_id": LEADER, "broker_epoch": cell.broker_epochs[LEADER]}],
        "partition_epoch": 0,
    }
    topic: Fields = {"partitions": [partition]}
    if cell.version >= 2:
        topic["topic_id"] = cell.topic_id(_TOPIC)
    else:
        topic["topic_name"] = _TOPIC
    if cell.version >= 3:
        del partition["new_isr"]
    else:
        del partition["new_isr_with_epochs"]
    return {"broker_id": broker, "broker_epoch": epoch, "topics": [topic]}


def _stale(**more: object) -> Fields:
    """Of a controller that was deposed long ago."""
    return {"controller_id": LEADER, "controller_epoch": 0, "broker_epoch": -1, **more}


def _markers(cell: Cell) -> Fields:
    marker = {
        "producer_id": 1,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": _TOPIC, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    return {"markers": [marker]}


BETWEEN_BROKERS: tuple[Ask, ...] = (
    Ask(
        ApiKey.ALTER_PARTITION,
        "",
        lambda cell: _alter_partition(cell, LEADER, cell.broker_epochs[LEADER]),
        When.CONTROLLER,
    ),
    Ask(ApiKey.ALTER_PARTITION, "of an earlier life", lambda cell: _alter_partition(cell, LEADER, 0), When.CONTROLLER),
    Ask(
        ApiKey.ALTER_PARTITION,
        "of an unknown broker",
        lambda cell: _alter_partition(cell, UNKNOWN_BROKER, 0),
        When.CONTROLLER,
    ),
    Ask(
        ApiKey.CONTROLLED_SHUTDOWN,
        "of an earlier life",
        lambda cell: {"broker_id": LEADER, "broker_epoch": 1},
        When.CONTROLLER,
        since=2,
    ),
    Ask(
        ApiKey.CONTROLLED_SHUTDOWN,
        "of an unknown broker",
        lambda cell: {"broker_id": UNKNOWN_BROKER, "broker_epoch": 0},
        When.CONTROLLER,
    ),
    Ask(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        "",
        lambda cell: {"broker_id": LEADER, "broker_epoch": cell.broker_epochs[LEADER]},
        When.CONTROLLER,
    ),
    Ask(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        "of an earlier life",
        lambda cell: {"broker_id": LEADER, "broker_epoch": 0},
        When.CONTROLLER,
    ),
    Ask(ApiKey.LEADER_AND_ISR, "", lambda cell: _stale(live_leaders=[])),
    Ask(ApiKey.STOP_REPLICA, "", lambda cell: _stale()),
    Ask(ApiKey.UPDATE_METADATA, "", lambda cell: _stale()),
    Ask(ApiKey.WRITE_TXN_MARKERS, "", _markers),
    Ask(ApiKey.ENVELOPE, "", lambda cell: {"request_data": b"x", "client_host_address": b"\x7f\0\0\1"}),
)

UNKNOWN_APIS = (52, 55, 59, 62, 63, 64, 68, 69, 71, 72, 75, 500, -1)
"""KRaft's, and unknown ones."""
