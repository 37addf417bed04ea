"""Codes every message that is not hot by kio's schemas: the only module that uses kio.

kio 0.6.2 is the last release that has the messages between a ZooKeeper-mode controller and its brokers; its versions
are those of Kafka 3.9.  We use its writers as they are, but not its native readers: they reserve memory for as many
elements as a message announces before they look for them, so thirteen bytes from any peer abort the process.  The
readers here are built from kio's schemas over our checked ``Cursor``; a wrong length closes the sender's connection.

Entities are kio's frozen dataclasses.  Field names are Kafka's in snake_case, with kio's quirks: ``type_``, ``id_``,
``is_k_raft_controller``, ``throttle_time`` (no ``_ms``).  ``request`` and ``response`` make them from plain values
(error codes and milliseconds as ints, ids as 16 bytes, nested messages as mappings) and hide what a version lacks.

Importing kio takes 0.2 s, and each version of a message 4 ms more.  Both happen at first use, or in ``preload``, which
a process calls before it starts its event loop.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal

from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange, api_name, check_supported, is_flexible
from aiocontroller.wire.errors import UnsupportedApiError
from aiocontroller.wire.primitives import FLOAT64, UINT16, UNLIMITED, Buffer, Cursor

Entity = Any
"""One of kio's dataclasses."""

EntityClass = Any
"""Its class."""

Kind = Literal["request", "response"]
MAX_REQUEST_ELEMENTS = 5000
"""Limit on the elements of all arrays of a request together, except arrays of numbers: an element takes up to 8
microseconds to read, but as little as one byte.  Requests that may have more elements have hand-written codecs."""

_KINDS: tuple[Kind, ...] = ("request", "response")
_Read = Callable[[Cursor], Any]


def encode_request(api_key: int, version: int, entity: Entity) -> bytes:
    """The body, without a header; ``entity`` is of the class for this API and version."""
    return _encode(api_key, version, "request", entity)


def encode_response(api_key: int, version: int, entity: Entity) -> bytes:
    """The body, without a header; ``entity`` is of the class for this API and version."""
    return _encode(api_key, version, "response", entity)


def decode_request(api_key: int, version: int, body: Buffer, most_elements: int = MAX_REQUEST_ELEMENTS) -> Entity:
    """Decode a body.  Raises FrameError if it is truncated or malformed, or its arrays are too long;
    UnsupportedApiError for an unknown API or version.

    Ignores trailing bytes, as brokers do: librdkafka sends some in Metadata and other requests.
    """
    return _decode(api_key, version, "request", body, most_elements)


def decode_response(api_key: int, version: int, body: Buffer) -> Entity:
    """Like ``decode_request``, but raises FrameError for trailing bytes; ``version`` is that of the request."""
    return _decode(api_key, version, "response", body)


def request(api_key: int, version: int, **fields: Any) -> Entity:
    """A request from plain values.

    Missing fields take the schema's default, or zero, empty or null.  Fields that only other versions have are left
    out; raises TypeError for a field that no version has.
    """
    return _build(_entity_class(api_key, version, "request"), fields)


def response(api_key: int, version: int, **fields: Any) -> Entity:
    """A response from plain values; missing fields and errors as for ``request``."""
    return _build(_entity_class(api_key, version, "response"), fields)


def request_class(api_key: int, version: int) -> EntityClass:
    """The dataclass of a request, for callers that need its fields."""
    return _entity_class(api_key, version, "request")


def preload(api_keys: Iterable[int]) -> None:
    """Import kio and prepare every version of these APIs, so that a first message does not delay others."""
    for _ in preloading({api_key: SUPPORTED[ApiKey(api_key)] for api_key in api_keys}):
        pass


def preloading(offered: Mapping[int, VersionRange]) -> Iterator[None]:
    """Like ``preload``, in steps of some milliseconds each, so that an event loop can run other work in between."""
    for api_key, versions in offered.items():
        for version in range(versions.min, versions.max + 1):
            for kind in _KINDS:
                try:
                    entity_class = _entity_class(api_key, version, kind)
                except UnsupportedApiError:
                    continue  # written by hand
                _reader(entity_class)
                _writer(entity_class)
                yield


@cache
def _load_kio() -> None:
    """Import kio without hypothesis, which kio imports if installed and which creates a folder ``.hypothesis``.

    Hypothesis is hidden during the import, unless it is already loaded.
    """
    hidden = "hypothesis" not in sys.modules
    if hidden:
        sys.modules["hypothesis"] = typing.cast(typing.Any, None)
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        if hidden:
            del sys.modules["hypothesis"]


def _encode(api_key: int, version: int, kind: Kind, entity: Entity) -> bytes:
    expected = _entity_class(api_key, version, kind)
    if not isinstance(entity, expected):
        raise TypeError(f"{api_name(api_key)} version {version} {kind}: found {type(entity)}, expected {expected}")
    out = _Out()
    _writer(expected)(out, entity)
    return b"".join(out)


def _decode(api_key: int, version: int, kind: Kind, body: Buffer, most_elements: int = UNLIMITED) -> Entity:
    entity_class = _entity_class(api_key, version, kind)
    subject = f"{api_name(api_key)} version {version} {kind}"
    cursor = Cursor(subject, body, flexible=is_flexible(api_key, version))
    cursor.elements_left = most_elements
    if kind == "response":
        cursor.tags_left = UNLIMITED  # CreateTopics has one for each topic
    entity = _reader(entity_class)(cursor)
    if kind == "response":
        cursor.end()
    return entity


class _Out(list[bytes]):
    """The output buffer for kio's writers."""

    write = list.append


# -- schemas -----------------------------------------------------------------------------------------------------------


@cache
def _entity_class(api_key: int, version: int, kind: Kind) -> EntityClass:
    check_supported(api_key, version)
    _load_kio()
    from kio.index import KioIndexError, load_request_schema, load_response_schema

    try:
        return (load_request_schema if kind == "request" else load_response_schema)(api_key, version)
    except KioIndexError:
        message = f"{api_name(api_key)} version {version} {kind}: no codec for it"
        raise UnsupportedApiError(api_key, version, message) from None


@cache
def _writer(entity_class: EntityClass) -> Callable[[Any, Any], None]:
    from kio.serial import entity_writer

    return entity_writer(entity_class)


class _Field:
    """The properties of one field of a kio schema."""

    def __init__(self, field: dataclasses.Field[Any], hint: Any) -> None:
        self.name = field.name
        self.tag: int | None = field.metadata.get("tag")
        alternatives = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
        present = [a for a in alternatives if a is not type(None)]
        self.nullable = len(present) < len(alternatives)
        self.is_array = typing.get_origin(present[0]) is tuple
        element = typing.get_args(present[0])[0] if self.is_array else present[0]
        self.nested: EntityClass = element if dataclasses.is_dataclass(element) else None
        self.kafka_type: str = field.metadata.get("kafka_type", "")
        self.has_default = field.default is not dataclasses.MISSING
        self.default = field.default if self.has_default else self._zero()

    def _zero(self) -> Any:
        if self.is_array:
            return ()
        if self.nullable:
            return None
        if self.nested:
            return _build(self.nested, {})
        return _convert(self.kafka_type, "" if self.kafka_type == "string" else 0)


@cache
def _fields(entity_class: EntityClass) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(entity_class)
    return tuple(_Field(field, hints[field.name]) for field in dataclasses.fields(entity_class))


# -- building ----------------------------------------------------------------------------------------------------------


def _convert(kafka_type: str, value: Any) -> Any:
    """Convert a plain value to kio's type."""
    match kafka_type:
        case "error_code":
            from kio.schema.errors import ErrorCode

            return ErrorCode(int(value))
        case "uuid" if isinstance(value, bytes):
            from uuid import UUID

            return UUID(bytes=value) if any(value) else None
        case "timedelta_i32" | "timedelta_i64" if isinstance(value, int):
            from datetime import timedelta

            return timedelta(milliseconds=value)
        case "datetime_i64" if isinstance(value, int):
            from datetime import UTC, datetime, timedelta

            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
        case "bool":
            return bool(value)
        case "bytes" | "records" if value == 0:
            return b""
        case _:
            return value


def _build(entity_class: EntityClass, given: Mapping[str, Any]) -> Entity:
    values = {}
    for field in _fields(entity_class):
        name = field.name
        if name not in given:
            values[name] = field.default
        elif (value := given[name]) is None and field.nullable:
            values[name] = None
        elif field.nested:
            values[name] = _nest(field.nested, value) if field.is_array else _nest(field.nested, (value,))[0]
        elif field.is_array:
            values[name] = tuple(_convert(field.kafka_type, v) for v in value)
        else:
            values[name] = _convert(field.kafka_type, value)
    if not given.keys() <= values.keys():
        _refuse_unknown(entity_class, given.keys() - values.keys())
    return entity_class(**values)


def _nest(entity_class: EntityClass, values: Iterable[Any]) -> tuple[Entity, ...]:
    return tuple(_build(entity_class, v) if isinstance(v, Mapping) else v for v in values)


def _refuse_unknown(entity_class: EntityClass, names: Iterable[str]) -> None:
    """Raise TypeError for a name that no version has: it must be a typing error."""
    if unknown := sorted(set(names) - _names(entity_class.__api_key__, entity_class.__type__.name == "request")):
        raise TypeError(f"{entity_class.__name__}: found unknown fields {', '.join(unknown)}")


@cache
def _names(api_key: int, of_requests: bool) -> frozenset[str]:
    """Every field name in any version of the message, including nested fields."""
    names: set[str] = set()

    def visit(entity_class: EntityClass) -> None:
        for field in _fields(entity_class):
            names.add(field.name)
            if field.nested:
                visit(field.nested)

    versions = SUPPORTED[ApiKey(api_key)]
    for version in range(versions.min, versions.max + 1):
        for kind in _KINDS:
            visit(_entity_class(api_key, version, kind))
    return frozenset(names)


# -- reading -----------------------------------------------------------------------------------------------------------


def _bool(cursor: Cursor, name: str) -> bool:
    return cursor.int8(name) != 0


def _uuid(cursor: Cursor, name: str) -> Any:
    return _convert("uuid", cursor.uuid(name))


def _error_code(cursor: Cursor, name: str) -> Any:
    code = cursor.int16(name)
    try:
        return _convert("error_code", code)
    except ValueError:  # a newer broker's code: still an error
        return _convert("error_code", -1)


def _milliseconds(cursor: Cursor, name: str) -> Any:
    return _convert("timedelta_i32", cursor.int32(name))


_LONGEST_MS = 999_999_999 * 86_400_000
"""The maximum of Python's ``timedelta``, 2.7 million years; longer times from clients are cut to this."""


def _long_milliseconds(cursor: Cursor, name: str) -> Any:
    return _convert("timedelta_i64", max(-_LONGEST_MS, min(cursor.int64(name), _LONGEST_MS)))


def _timestamp(cursor: Cursor, name: str) -> Any:
    at_ms = cursor.int64(name)
    try:
        return _convert("datetime_i64", at_ms)
    except OverflowError:
        raise cursor.error(name, at_ms, "milliseconds since 1970, before the year 10000") from None


def _nullable_timestamp(cursor: Cursor, name: str) -> Any:
    at = _timestamp(cursor, name)
    return None if at == _convert("datetime_i64", -1) else at


_PRIMITIVES: dict[str, Callable[[Cursor, str], Any]] = {
    "int8": Cursor.int8,
    "int16": Cursor.int16,
    "int32": Cursor.int32,
    "int64": Cursor.int64,
    "uint16": lambda cursor, name: cursor.unpack(UINT16, name)[0],
    "float64": lambda cursor, name: cursor.unpack(FLOAT64, name)[0],
    "bool": _bool,
    "uuid": _uuid,
    "error_code": _error_code,
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _long_milliseconds,
}
_STRINGS = {
    ("string", False): Cursor.string,
    ("string", True): Cursor.nullable_string,
    ("bytes", False): Cursor.bytes,
    ("bytes", True): Cursor.nullable_bytes,
    ("records", False): Cursor.bytes,
    ("records", True): Cursor.nullable_bytes,
    ("datetime_i64", False): _timestamp,
    ("datetime_i64", True): _nullable_timestamp,
}


def _read_one(field: _Field, *, nullable: bool) -> _Read:
    """The reader of one value, or of one element of an array."""
    name = field.name
    if field.nested:
        read_nested = _reader(field.nested)
        if nullable:  # KIP-893: a byte says whether the struct is present
            return lambda cursor: None if cursor.int8(name) < 0 else read_nested(cursor)
        return read_nested
    read = _PRIMITIVES.get(field.kafka_type) or _STRINGS.get((field.kafka_type, nullable))
    if read is None:
        raise NotImplementedError(f"field {name}: reading type {field.kafka_type!r}")
    return lambda cursor: read(cursor, name)


def _read_field(field: _Field) -> _Read:
    if not field.is_array:
        return _read_one(field, nullable=field.nullable)
    read, name, null = _read_one(field, nullable=False), field.name, field.nullable
    if field.kafka_type == "int32" and not null:
        return lambda cursor: cursor.int32_array(name)

    def read_array(cursor: Cursor) -> Any:
        n = cursor.nullable_array_length(name, 1) if null else cursor.array_length(name, 1)
        cursor.count(name, max(n, 0))
        return None if n < 0 else tuple([read(cursor) for _ in range(n)])

    return read_array


@cache
def _reader(entity_class: EntityClass) -> _Read:
    fields = _fields(entity_class)
    untagged = [(f.name, _read_field(f)) for f in fields if f.tag is None]
    tagged = {f.tag: (f.name, _read_field(f)) for f in fields if f.tag is not None}
    defaults = {f.name: f.default for f in fields if f.tag is not None}

    def read_entity(cursor: Cursor) -> Entity:
        values = dict(defaults)
        for name, read in untagged:
            values[name] = read(cursor)
        if tagged:
            _read_tagged(cursor, tagged, values)
        else:
            cursor.tags()
        return entity_class(**values)

    return read_entity


def _read_tagged(cursor: Cursor, tagged: Mapping[int, tuple[str, _Read]], values: dict[str, Any]) -> None:
    for _ in range(cursor.tag_count()):
        tag, size = cursor.varint("tag"), cursor.varint("size of a tagged field")
        known = tagged.get(tag)
        if known is None:
            cursor.skip(size, f"tagged field {tag}")
            continue
        name, read = known
        end = cursor.at + size
        values[name] = read(cursor)
        if cursor.at != end:
            raise cursor.error(f"tagged field {name}", f"its end at byte {cursor.at}", f"byte {end}")
