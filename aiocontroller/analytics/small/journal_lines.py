"""Judges journal lines that are not one complete record each, as ``journal_reader.journal_records`` does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from aiocontroller.analytics import schema

_RECORD_BEGINS: Final = re.compile(r'(?=\{"v":\d+,"seq":\d+,"epoch":)', re.ASCII)
_KINDS: Final = {field.name: field.dataType for field in schema.JOURNAL}
_BITS: Final = {schema.INT: 31, schema.LONG: 63}


class _OddError(Exception):
    """A field has another type than the journal's."""


def journal_line(text: str) -> Iterator[tuple[dict[str, Any], str, str | None]]:
    """Yield (the record's fields, its text, the reason if it is rejected) for each record on the line."""
    pieces = _RECORD_BEGINS.split(text) if '{"v":' in text[1:] else [text]
    if pieces and not pieces[0]:
        pieces = pieces[1:]
    for nth, piece in enumerate(pieces):
        if piece.strip(" "):
            fields, corrupt = _parsed(piece)
            yield {**fields, "joined": nth > 0}, piece, _why_rejected(piece, fields, corrupt)


def _parsed(text: str) -> tuple[dict[str, Any], bool]:
    """Parse as Spark does: ignore what follows the first value, and keep the other fields of a record with one bad
    field."""
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        return {}, False
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
        raw = msgspec.json.decode(text[start:end], type=dict[str, msgspec.Raw])
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return {}, True
    fields: dict[str, Any] = {}
    corrupt = False
    for name, value in raw.items():
        if name in _KINDS:
            try:
                fields[name] = _typed(bytes(value), _KINDS[name])
            except _OddError:
                corrupt = True
    return fields, corrupt


def _typed(raw: bytes, kind: str) -> Any:
    if kind == schema.STRING and raw[:1] not in (b'"', b"n"):
        return raw.decode()
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:  # a number beyond any float: 1e999
        raise _OddError from None
    if value is None or kind == schema.STRING:
        return value
    if kind == schema.INTS:
        if not isinstance(value, list):
            raise _OddError
        return [None if each is None else _whole(each, 31) for each in value]
    return _whole(value, _BITS[kind])


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
        raise _OddError
    return value


def _why_rejected(text: str, fields: dict[str, Any], corrupt: bool) -> str | None:
    if "\0" in text:
        return "NUL bytes: a part of the file that was never written"
    version = fields.get("v")
    if version is not None and version not in schema.JOURNAL_VERSIONS:
        known = ", ".join(map(str, sorted(schema.JOURNAL_VERSIONS)))
        return f"format version {version}; this program reads {known}"
    if corrupt:
        if not text.rstrip(" ").endswith("}"):
            return "torn: it ends within a record"
        if not text.startswith("{"):
            return "torn: it begins within a record"
        return "not JSON, or a field of another type than the journal's"
    missing = [name for name in schema.JOURNAL_REQUIRED if fields.get(name) is None]
    return f"not a journal record: no {', '.join(missing)}" if missing else None
