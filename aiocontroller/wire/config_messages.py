"""DescribeConfigs 0-4, both sides of it, written and read by hand.

A topic's settings are three dozen entries, nearly all the same for every topic, and tools ask for all topics at once.
So an entry is bytes that are made once and stand in many answers, and a question is read without an object for each
topic's request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, is_flexible
from aiocontroller.wire.cold import MAX_REQUEST_ELEMENTS
from aiocontroller.wire.primitives import INT8, INT16, INT32, NO_TAGS, Buffer, Cursor, array_length, nullable_string
from aiocontroller.wire.primitives import string as text

_FALSE, _TRUE = b"\x00", b"\x01"
BROKER_RESOURCE = 4
"""Kafka's ``ConfigResource.Type``."""


class DescribedSynonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One setting as DescribeConfigs tells it; codes are Kafka's ``ConfigSource`` and ``ConfigType``."""

    name: str
    value: str | None
    source: int
    type: int
    read_only: bool = False
    sensitive: bool = False
    synonyms: Sequence[tuple[str, str | None, int]] = ()


class ResourceAsked(NamedTuple):
    type: int
    name: str
    keys: frozenset[str] | None
    """None: every setting."""


class DescribeConfigsRequest(NamedTuple):
    resources: list[ResourceAsked]
    include_synonyms: bool


class ResourceDescribed(NamedTuple):
    type: int
    name: str
    error_code: int = 0
    error_message: str | None = None
    entries: Sequence[bytes] = ()
    """Of ``encode_config_entry``."""


def decode_describe_configs_request(version: int, body: Buffer) -> DescribeConfigsRequest:
    """FrameError when it cannot be understood.  No names of settings mean every setting, as brokers take it."""
    cursor = Cursor(f"DescribeConfigs version {version}", body, flexible=is_flexible(ApiKey.DESCRIBE_CONFIGS, version))
    cursor.elements_left = MAX_REQUEST_ELEMENTS
    resources = []
    n = cursor.array_length("resources", 4)
    cursor.count("resources", n)
    for _ in range(n):
        kind, name = cursor.int8("resource_type"), cursor.string("resource_name")
        count = cursor.nullable_array_length("configuration_keys", 1)
        cursor.count("configuration_keys", max(count, 0))
        keys = frozenset([cursor.string("configuration key") for _ in range(count)]) if count > 0 else None
        cursor.tags()
        resources.append(ResourceAsked(kind, name, keys))
    include_synonyms = version >= 1 and cursor.int8("include_synonyms") != 0
    if version >= 3:
        cursor.int8("include_documentation")
    cursor.tags()
    return DescribeConfigsRequest(resources, include_synonyms)


def encode_config_entry(version: int, entry: ConfigEntry) -> bytes:
    flexible = is_flexible(ApiKey.DESCRIBE_CONFIGS, version)
    tags = NO_TAGS if flexible else b""
    pieces = [
        text(entry.name, flexible=flexible),
        nullable_string(entry.value, flexible=flexible),
        _TRUE if entry.read_only else _FALSE,
        INT8.pack(entry.source) if version >= 1 else _FALSE,  # version 0: is_default, which brokers leave false
        _TRUE if entry.sensitive else _FALSE,
    ]
    if version >= 1:
        pieces.append(array_length(len(entry.synonyms), flexible=flexible))
        for name, value, source in entry.synonyms:
            pieces += text(name, flexible=flexible), nullable_string(value, flexible=flexible), INT8.pack(source), tags
    if version >= 3:
        pieces += INT8.pack(entry.type), nullable_string(None, flexible=flexible)
    return b"".join([*pieces, tags])


def encode_described(version: int, result: ResourceDescribed) -> list[bytes]:
    """One resource of the answer, in pieces."""
    flexible = is_flexible(ApiKey.DESCRIBE_CONFIGS, version)
    return [
        INT16.pack(result.error_code),
        nullable_string(result.error_message, flexible=flexible),
        INT8.pack(result.type),
        text(result.name, flexible=flexible),
        array_length(len(result.entries), flexible=flexible),
        *result.entries,
        NO_TAGS if flexible else b"",
    ]


def encode_describe_configs_response(version: int, results: Sequence[Sequence[bytes]]) -> bytes:
    """From what ``encode_described`` made."""
    flexible = is_flexible(ApiKey.DESCRIBE_CONFIGS, version)
    pieces = [INT32.pack(0), array_length(len(results), flexible=flexible)]
    for result in results:
        pieces += result
    if flexible:
        pieces.append(NO_TAGS)
    return b"".join(pieces)


# -- the side that asks ------------------------------------------------------------------------------------------------


def encode_describe_synonyms_request(version: int, broker: int, names: Iterable[str]) -> bytes:
    """A broker's own settings of these names, with all values that they have from everywhere; from version 1 on."""
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": str(broker), "configuration_keys": list(names)}
    message = cold.request(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], include_synonyms=True)
    return cold.encode_request(ApiKey.DESCRIBE_CONFIGS, version, message)


def decode_describe_synonyms_response(version: int, body: Buffer) -> tuple[int, list[DescribedSynonym]]:
    """(error code, every value of every setting)."""
    message = cold.decode_response(ApiKey.DESCRIBE_CONFIGS, version, body)
    code = next((int(result.error_code) for result in message.results if result.error_code), 0)
    told = [
        DescribedSynonym(synonym.name, synonym.value, synonym.source)
        for result in message.results
        for config in result.configs
        for synonym in config.synonyms
    ]
    return code, told
