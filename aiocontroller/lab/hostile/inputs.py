"""Fuzzing inputs: a few requests for one connection to the controller, made from Kafka's schemas and then damaged."""

from __future__ import annotations

import dataclasses
import random
import typing
from collections.abc import Sequence
from typing import Any

import msgspec

from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.wire.frames import request_frame

TOPIC_ID = bytes(range(1, 17))
TEXTS = (
    "orders",
    "payments",
    "new",
    "",
    "..",
    "a b",
    "x" * 249,
    "x" * 250,
    "ü",
    "__consumer_offsets",
    "__cluster_metadata",
    "1",
    "2",
    "1000001",
    "cleanup.policy",
    "compact",
    "retention.ms",
    "min.insync.replicas",
    "leader.replication.throttled.replicas",
    "-1",
    "true",
    "group",
    "User:alice",
    "User:*",
    "*",
    "kafka-cluster",
    "SCRAM-SHA-256",
    "user",
    "client-id",
    "ip",
    "127.0.0.1",
)
NUMBERS = (-2, -1, 0, 1, 2, 3, 4, 5, 6, 16, 100, 10_000, 2**15 - 1, 2**31 - 1, -(2**31))
LONG_NUMBERS = (*NUMBERS, 2**63 - 1, -(2**63))
APIS = tuple(sorted(SUPPORTED))


class Message(msgspec.Struct, frozen=True):
    api: int
    version: int
    body: bytes
    """The bytes after the header."""
    wait_s: float = 0.0
    """Virtual time before the next message."""

    def frame(self, correlation_id: int) -> bytes:
        try:
            return b"".join(request_frame(self.api, self.version, correlation_id, "fuzz", self.body))
        except Exception:  # an unknown API has no header of its own
            start = self.api.to_bytes(2, "big", signed=True) + self.version.to_bytes(2, "big", signed=True)
            frame = start + correlation_id.to_bytes(4, "big") + b"\x00\x04fuzz" + self.body
            return len(frame).to_bytes(4, "big") + frame


Input = list[Message]


class Maker:
    """Draws inputs; ``epochs`` are registration epochs of live brokers."""

    def __init__(self, chance: random.Random, epochs: Sequence[int] = ()) -> None:
        self._chance = chance
        self._epochs = tuple(epochs)

    def fresh(self) -> Input:
        return [self._message() for _ in range(self._chance.choice((1, 1, 1, 2, 3)))]

    def mutated(self, parent: Input, other: Input) -> Input:
        """Return a variation of ``parent``, or ``parent`` followed by ``other``."""
        chance = self._chance
        match chance.randrange(5):
            case 0:
                return [*parent, *other][:4]
            case 1:
                return [*parent, self._message()][-4:]
            case 2:
                at = chance.randrange(len(parent))
                remade = self._message(parent[at].api)
                return [*parent[:at], remade, *parent[at + 1 :]]
            case _:
                at = chance.randrange(len(parent))
                damaged = msgspec.structs.replace(parent[at], body=self._damaged(parent[at].body))
                return [*parent[:at], damaged, *parent[at + 1 :]]

    def _message(self, api: int | None = None) -> Message:
        chance = self._chance
        if api is None:
            api = chance.choice(APIS)
        if api not in SUPPORTED:
            return Message(api, 0, chance.randbytes(chance.randrange(40)))
        version = chance.randrange(SUPPORTED[ApiKey(api)].max + 1)
        try:
            fields = self._entity(cold.request_class(api, version))
            body = cold.encode_request(api, version, cold.request(api, version, **fields))
        except Exception:  # the schema cannot hold the value: send random bytes instead
            body = chance.randbytes(chance.randrange(60))
        if chance.random() < 0.2:
            body = self._damaged(body)
        return Message(api, version, body, chance.choice((0.0, 0.0, 0.5)))

    def _damaged(self, body: bytes) -> bytes:
        chance, data = self._chance, bytearray(body)
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(5):
                case 0:
                    data[at:at] = chance.randbytes(chance.randrange(1, 9))
                case 1:
                    del data[at : at + chance.randrange(1, 9)]
                case 2:
                    data[at : at + 1] = bytes((chance.choice((0, 1, 0x7F, 0x80, 0xFF)),))
                case 3:
                    data[at : at + 4] = chance.choice(NUMBERS).to_bytes(4, "big", signed=True)
                case _:
                    data[at:] = data[at:] * 2
        return bytes(data[:4096])

    def _entity(self, kind: type[Any]) -> dict[str, Any]:
        hints = typing.get_type_hints(kind)
        return {
            each.name: self._value(hints[each.name], each.metadata.get("kafka_type"))
            for each in dataclasses.fields(kind)
        }

    def _value(self, hint: Any, kafka_type: str | None) -> Any:
        chance, parts = self._chance, typing.get_args(hint)
        if type(None) in parts:
            if chance.random() < 0.2:
                return None
            (hint,) = (part for part in parts if part is not type(None))
            parts = typing.get_args(hint)
        if typing.get_origin(hint) is tuple:
            return [self._value(parts[0], kafka_type) for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))]
        if dataclasses.is_dataclass(hint):
            return self._entity(typing.cast(type[Any], hint))
        return self._plain(kafka_type)

    def _plain(self, kafka_type: str | None) -> Any:
        chance = self._chance
        match kafka_type:
            case "string":
                return chance.choice(TEXTS)
            case "bool":
                return chance.random() < 0.5
            case "int8":
                return chance.choice((-1, 0, 1, 2, 3, 4, 5, 7, 127, -128))
            case "int16" | "error_code":
                return chance.choice((-1, 0, 1, 2, 3, 9, 2**15 - 1, -(2**15)))
            case "int64" | "timedelta_i64" | "datetime_i64":
                return chance.choice((*LONG_NUMBERS, *self._epochs, *self._epochs))
            case "uuid":
                return chance.choice((TOPIC_ID, TOPIC_ID, bytes(16), chance.randbytes(16)))
            case "bytes" | "records":
                return chance.randbytes(chance.choice((0, 1, 16, 100)))
            case "float64":
                return chance.choice((0.0, -1.0, 1e300, float("nan"), 1024.0))
            case "uint16":
                return chance.choice((0, 1, 9092, 65535))
            case _:
                return chance.choice((1, 2, 3) if chance.random() < 0.5 else NUMBERS)
