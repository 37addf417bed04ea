"""One cell of the table: a request by one principal, way and version."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey, is_flexible
from tests.authorization.principals import FRESH, Way

Fields = dict[str, Any]


class When(enum.Enum):
    """Whom a request is for, and so when the broker is asked."""

    READS = "any node answers it, and nothing changes: both are asked at the same time"
    WRITES = "any node answers it, and something changes: each side has names of its own"
    CONTROLLER = "only the controller answers it: the broker is asked while it is the controller"


class Cell(msgspec.Struct, frozen=True):
    """What a request may be made of."""

    number: int
    side: str
    """``k`` for Kafka's broker, ``o`` for ours: in names, so that the two do not meet in the same cluster."""
    node_id: int
    """Of the node that is asked."""
    version: int
    way: Way
    topic_ids: Mapping[str, bytes]
    broker_epochs: Mapping[int, int]
    token_hmac: bytes

    @property
    def fresh(self) -> str:
        """A name that no other request uses; ``compare`` knows it."""
        return f"zz{self.number}{self.side}"

    @property
    def fresh_topics(self) -> list[str]:
        return [prefix + self.fresh for prefix in FRESH]

    def topic_id(self, name: str) -> bytes:
        return self.topic_ids.get(name, name.encode()[:16].rjust(16, b"?"))


class Ask(NamedTuple):
    """A request by its name: ``fields`` has more than any version knows, each takes what it has."""

    api: int
    name: str
    fields: Callable[[Cell], Fields]
    when: When = When.READS
    since: int = 0
    until: int = 99
    """The versions in which it makes sense."""
    needs_topics: bool = False
    """The cell's fresh topics exist before."""
    ends_only: bool = False
    """In the lowest and the highest version only: it is costly, or changes much."""
    unanswered_by_kafka: bool = False
    """A broker's handler fails over it, for some, and never answers: no use to wait long."""

    more: bytes = b""
    """Behind the end of the body."""

    def __str__(self) -> str:
        return f"{name_of(self.api)} ({self.name})" if self.name else name_of(self.api)

    def body(self, cell: Cell) -> bytes:
        return (
            cold.encode_request(self.api, cell.version, cold.request(self.api, cell.version, **self.fields(cell)))
            + self.more
        )


def name_of(api: int) -> str:
    return ApiKey(api).name if api in SUPPORTED else f"API_{api}"


def layouts(api: int) -> list[int]:
    """The versions in which the request or the answer has another form than in the one before, and the highest."""
    found: list[int] = []
    last: object = None
    highest = SUPPORTED[ApiKey(api)].max
    for version in range(highest + 1):
        form = [is_flexible(api, version)] + [
            [repr(each) for each in _form(cold._entity_class(api, version, kind))] for kind in ("request", "response")
        ]
        if form != last:
            found.append(version)
        last = form
    return sorted({*found, highest})


def _form(entity_class: Any) -> list[Any]:
    return [
        (field.name, field.is_array, field.nullable, _form(field.nested) if field.nested else field.kafka_type)
        for field in cold._fields(entity_class)
    ]
