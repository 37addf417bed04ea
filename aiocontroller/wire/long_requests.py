"""Shared code of the codecs for requests that may name very many topics or partitions.

Such a request and its response may have 50,000 elements, and each is coded in one step of the event loop.  So both
codecs are hand-written: numbers go through one compiled form, and every distinct outcome is encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire.apis import ApiKey, api_name, check_supported, is_flexible
from aiocontroller.wire.primitives import INT16, NO_TAGS, Buffer, Cursor, array_length, nullable_string, string

CodeAndMessage = tuple[int, str]
"""(error code, message), "" without a message."""

DEFAULT_TIMEOUT_MS = 60_000

MAX_NAMED = 50_000
"""Limit on the topics, partitions and settings of one request together."""

_PARTITION = Struct(">i")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Topic -> its partitions; both in the order of their first mention."""
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped


def request_cursor(api: ApiKey, version: int, body: Buffer) -> Cursor:
    """A cursor that reads at most ``MAX_NAMED`` counted elements; UnsupportedApiError for an unknown version."""
    check_supported(api, version)
    cursor = Cursor(f"{api_name(api)} version {version} request", body, flexible=is_flexible(api, version))
    cursor.elements_left = MAX_NAMED
    return cursor


class OutcomeWriter(dict[CodeAndMessage, bytes]):
    """Encodes error code and message; caches each distinct outcome."""

    def __init__(self, *, flexible: bool, with_message: bool = True) -> None:
        super().__init__()
        self.flexible = flexible
        self.end = NO_TAGS if flexible else b""
        self._with_message = with_message

    def __missing__(self, outcome: CodeAndMessage) -> bytes:
        code, message = outcome
        written = INT16.pack(code)
        if self._with_message:
            written += nullable_string(message or None, flexible=self.flexible)
        self[outcome] = written
        return written


def partition_outcomes(results: Mapping[TopicPartition, CodeAndMessage], *, flexible: bool) -> bytes:
    """An array of topics, each with an array of (partition, error code, message)."""
    tails = OutcomeWriter(flexible=flexible)
    number, end = _PARTITION.pack, tails.end
    topics = by_topic(results)
    out = [array_length(len(topics), flexible=flexible)]
    for topic, partitions in topics.items():
        out += (string(topic, flexible=flexible), array_length(len(partitions), flexible=flexible))
        for tp in partitions:
            out += (number(tp.partition), tails[results[tp]], end)
        out.append(end)
    return b"".join(out)
