"""Answers as Kafka's own classes read them (``ReadAnswers.java``), and where two of them differ.

What belongs to a side by nature gets a name first: ports, topic ids, the cluster's id.  What clock or chance decide is
compared for whether there is a value.  Everything else must be equal, texts for people too.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from tests.admin_answers.player import Answer, Player
from tests.comparing_answers import Comparison, Difference
from tests.java import answers as java_answers
from tests.java import java_program

READER = Path(__file__).parent / "java" / "ReadAnswers.java"

BY_NATURE = {
    **dict.fromkeys(("issueTimestampMs", "expiryTimestampMs", "maxTimestampMs"), "the clock"),
    **dict.fromkeys(("issueTimestamp", "expiryTimestamp", "maxTimestamp"), "the clock"),
    "throttleTimeMs": "the clock",
    "tokenId": "chance",
    "hmac": "chance",
    "producerIdStart": "which blocks the brokers have taken before",
    "totalBytes": "the disk",
    "usableBytes": "the disk",
}
"""Fields that are only compared for whether there is a value (none, -1, empty), and why."""
IDENTITIES = (
    "name", "topic", "topicName", "partitionIndex", "partition", "partitionId", "groupId", "key", "user",
    "transactionalId", "resourceType", "resourceName", "nodeId", "brokerId", "apiKey", "principal", "principalName",
    "host", "operation", "permissionType", "patternType", "resourcePatternType", "mechanism", "entityType",
    "entityName", "feature", "tokenRequesterPrincipalName",
)  # fmt: skip
"""Fields that say which element of an array one is."""
ORDERED = frozenset(("replicas", "replicaNodes", "isrNodes", "addingReplicas", "removingReplicas", "isr"))
"""Arrays whose order says something.  Kafka fills the others from hash maps, or sorts them as it likes."""


def read(sides: Sequence[Sequence[tuple[Player, Answer]]]) -> tuple[list[Any], list[Any]]:
    """The answers of both sides as plain values; a word where there was none."""
    everything = [pair for side in sides for pair in side]
    answered = [answer for _, answer in everything if answer.outcome.what == "answered"]
    lines = [f"{a.api:d} {a.version} {base64.b64encode(a.outcome.body).decode()}" for a in answered]
    texts = iter(java_answers(java_program(READER), lines, timeout_s=300))
    values = []
    for player, answer in everything:
        if answer.outcome.what != "answered":
            values.append(f"({answer.outcome.what})")
        else:
            values.append(_named(msgspec.json.decode(next(texts)), player))
    return values[: len(sides[0])], values[len(sides[0]) :]


def _named(value: Any, player: Player, field: str = "") -> Any:
    """With names in the place of what belongs to one side."""
    if field in BY_NATURE:
        return "(none)" if value in (None, -1, "", 0) else "(given)"
    if isinstance(value, dict):
        found = {name: _named(each, player, name) for name, each in value.items()}
        if "port" in value:
            found["port"] = _port(player, value["port"])
        return found
    if isinstance(value, list):
        return [_named(each, player) for each in value]
    if isinstance(value, str):
        if value == player.cluster.cluster_id:
            return "(cluster id)"
        if field == "resourceName" and value == str(player.cluster.side.node_id):
            return "(own id)"
        if field == "topicId":
            return _topic(player, value)
        return value
    return value


def _port(player: Player, port: int) -> Any:
    for node, ports in player.cluster.ports.items():
        for listener, known in ports.items():
            if port == known:
                return f"{listener} of {node}"
    return "of broker 3" if port == player.cluster.listening_port else port


def _topic(player: Player, text: str) -> str:
    """``text`` is Kafka's base64 form of an id."""
    raw = base64.urlsafe_b64decode(text + "==")
    if raw in (bytes(16), bytes(15) + b"\1"):
        return str(UUID(bytes=raw))
    known = player.cluster.topic_ids.get(raw)
    return f"(id of {known})" if known else "(some id)"


def differences(kafka: Any, ours: Any) -> list[Difference]:
    return list(Comparison(_identity, single=ORDERED).differences(kafka, ours))


def _identity(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    parts = [str(value[name]) for name in IDENTITIES if value.get(name) is not None]
    if "entity" in value:  # client quotas: a list says which one it is
        parts.append(" ".join(sorted(_identity(each) for each in value["entity"])))
    return (" ".join(parts) or str(value.get("topicId", ""))).replace("[", "(").replace("]", ")")
