"""Two answers as plain values, what may differ by nature taken out, and where they differ."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED
from aiocontroller.wire.errors import FrameError
from tests.authorization.asking import Cell
from tests.authorization.client import Outcome
from tests.comparing_answers import Comparison, Difference

IDENTITIES = (
    "name", "topic", "topic_name", "partition_index", "partition", "index", "partition_id", "group_id",
    "group", "transactional_id", "resource_type", "resource_name", "node_id", "id_", "key", "user", "api_key",
    "principal", "host", "operation", "permission_type", "pattern_type", "resource_pattern_type", "mechanism",
    "entity_type", "entity_name", "broker_id", "feature", "listener",
)  # fmt: skip
"""Fields that say which element of an array one is."""
BY_NATURE = {
    "throttle_time": "by the node's load",
    "issue_timestamp": "the clock",
    "expiry_timestamp": "the clock",
    "max_timestamp": "the clock",
    "token_id": "chance",
    "hmac": "chance",
    "producer_id": "a block of ids that each node takes for itself",
    "producer_id_start": "the next block",
    "total_bytes": "the disk",
    "usable_bytes": "the disk",
}
"""Not compared but for whether there is a value (none, -1, empty), and why."""
TEXTS = ("error_message",)
"""For people: compared is whether there is one."""
UNORDERED = frozenset(
    """
    responses topics brokers coordinators groups results resources acls configs synonyms api_keys entries entity
    results_by_topic replica_election_results tokens renewers matching_acls transaction_states partitions
    partition_responses filter_results finalized_features supported_features entries values credential_infos
    partition_errors topic_states errors topic_results results_by_partition results_by_topic_v3_and_below""".split()
)
"""Arrays that Kafka fills from hash maps, or sorts as it likes."""


def differences(api: int, kafka_cell: Cell, kafka: Outcome, our_cell: Cell, ours: Outcome) -> list[Difference]:
    theirs, own = plain(api, kafka_cell, kafka), plain(api, our_cell, ours)
    return list(Comparison(_identity, unordered=UNORDERED, text=_short).differences(theirs, own))


def plain(api: int, cell: Cell, outcome: Outcome) -> Any:
    """A mapping of the answer's fields, or a word when there was none."""
    if outcome.what != "answered":
        return f"({outcome.what})"
    if api not in SUPPORTED:
        return f"(answered {len(outcome.body)} bytes)"
    version = cell.version
    try:
        return _plain(cold.decode_response(api, version, outcome.body), cell, "")
    except FrameError as error:
        try:
            # Kafka answers ApiVersions of a version that it does not know in the oldest form
            return {"in the oldest form": _plain(cold.decode_response(api, 0, outcome.body), cell, "")}
        except FrameError:
            return f"(garbled: {error})"


def _plain(value: Any, cell: Cell, name: str) -> Any:
    if name in BY_NATURE:
        return "(given)" if _given(value) else "(none)"
    if name in TEXTS:
        return "(text)" if value else "(none)"
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name), cell, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(each, cell, "") for each in value]
    if isinstance(value, str):
        return "(own id)" if name == "resource_name" and value == str(cell.node_id) else value.replace(cell.fresh, "zz")
    if isinstance(value, UUID):
        names = [name for name, known in cell.topic_ids.items() if known == value.bytes]
        return f"id of {names[0]}".replace(cell.fresh, "zz") if names else "some id"
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return "(given)" if _given(value) else "(none)"
    if name == "error_code" and hasattr(value, "name"):
        return f"{value.name}({int(value)})"
    return value


def _given(value: Any) -> bool:
    if isinstance(value, datetime):
        return value.timestamp() > 0
    return value not in (None, -1, "", b"") and value != timedelta()


def _identity(value: Any) -> str:
    """The id of a topic only where it has no name: answers tell them to some only."""
    if not isinstance(value, dict):
        return str(value)
    parts = [str(value[name]) for name in IDENTITIES if value.get(name) is not None]
    return " ".join(parts) or str(value.get("topic_id", "#"))


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 160 else f"{text[:157]}…"
