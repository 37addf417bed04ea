"""DescribeConfigs 0-4, both sides, with hand-written codecs.

A topic has about three dozen settings, nearly all the same for every topic, and tools ask for all topics at once.  So
each entry is encoded once and reused in many answers, and a request is read without an object for each topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, is_flexible
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.long_requests import request_cursor
from aiocontroller.wire.primitives import INT8, INT16, INT32, NO_TAGS, Buffer, array_length, nullable_string
from aiocontroller.wire.primitives import string as text

_FALSE, _TRUE = b"\x00", b"\x01"
BROKER_RESOURCE = 4
"""Kafka's ``ConfigResource.Type``."""


class DescribedSynonym(NamedTuple):
    """Another source of a setting; ``source`` is its number in the protocol."""

    name: str
    value: str | None
    source: int


class DescribedSetting(NamedTuple):
    """A broker's description of one of its settings; secrets and their synonyms have the value None."""

    name: str
    value: str | None
    synonyms: Sequence[DescribedSynonym]
    """The setting's values by source, the effective one first."""


class ConfigEntry(NamedTuple):
    """One setting in DescribeConfigs; codes are Kafka's ``ConfigSource`` and ``ConfigType``."""

    name: str
    value: str | None
    source: int
    type: int
    read_only: bool = False
    sensitive: bool = False
    synonyms: Sequence[tuple[str, str | None, int]] = ()


class ResourceAsked(NamedTuple):
    """A resource that DescribeConfigs asks about; ``type`` is its number in the protocol."""

    type: int
    name: str
    keys: frozenset[str] | None
    """None: every setting."""


class ResourceDescribed(NamedTuple):
    """DescribeConfigs' answer for one resource."""

    type: int
    name: str
    error_code: int = 0
    error_message: str | None = ""
    """Null only for errors without a message, as in Kafka."""
    entries: Sequence[bytes] = ()
    """Results of ``encode_config_entry``."""


class DescribeConfigsQuestion:
    """A request that is read lazily by iterating; its flags are known at the end.

    Raises FrameError when it is malformed.  An empty list of names means every setting, as at brokers.
    """

    def __init__(self, version: int, body: Buffer) -> None:
        self._version = version
        self._cursor = request_cursor(ApiKey.DESCRIBE_CONFIGS, version, body)
        self.include_synonyms = False

    def __iter__(self) -> Iterator[ResourceAsked]:
        cursor = self._cursor
        n = cursor.array_length("resources", 4)
        cursor.count("resources", n)
        for _ in range(n):
            kind, name = cursor.int8("resource_type"), cursor.string("resource_name")
            count = cursor.nullable_array_length("configuration_keys", 1)
            cursor.count("configuration_keys", max(count, 0))
            keys = frozenset([cursor.string("configuration key") for _ in range(count)]) if count > 0 else None
            cursor.tags()
            yield ResourceAsked(kind, name, keys)
        self.include_synonyms = self._version >= 1 and cursor.int8("include_synonyms") != 0
        if self._version >= 3:
            cursor.int8("include_documentation")
        cursor.tags()


def encode_config_entry(version: int, entry: ConfigEntry) -> bytes:
    """Encode one setting of a resource for a DescribeConfigs response of this version."""
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
    """One resource of the response, in pieces."""
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
    """The response from the pieces that ``encode_described`` returned."""
    flexible = is_flexible(ApiKey.DESCRIBE_CONFIGS, version)
    pieces = [INT32.pack(0), array_length(len(results), flexible=flexible)]
    for result in results:
        pieces += result
    if flexible:
        pieces.append(NO_TAGS)
    return b"".join(pieces)


# -- the client's side -------------------------------------------------------------------------------------------------


def encode_describe_broker_request(version: int, broker: int, names: Iterable[str]) -> bytes:
    """Request a broker's own settings of these names, with their values from every source; from version 1 on."""
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": str(broker), "configuration_keys": list(names)}
    message = cold.request(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], include_synonyms=True)
    return cold.encode_request(ApiKey.DESCRIBE_CONFIGS, version, message)


def decode_describe_broker_response(version: int, body: Buffer) -> tuple[int, list[DescribedSetting]]:
    """(error code, settings) of the one resource requested; FrameError for more or fewer."""
    results = cold.decode_response(ApiKey.DESCRIBE_CONFIGS, version, body).results
    if len(results) != 1:
        raise FrameError(f"DescribeConfigs: found {len(results)} results, expected one")
    settings = [
        DescribedSetting(
            config.name, config.value, [DescribedSynonym(s.name, s.value, s.source) for s in config.synonyms]
        )
        for config in results[0].configs
    ]
    return int(results[0].error_code), settings
