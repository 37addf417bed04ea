"""What an operator knows about the files that they do not contain, in a small TOML or JSON file.

    [[files]]
    glob = "berlin/broker-1/*"       # for the file's name as the program shows it; * also matches slashes
    time_zone = "Europe/Berlin"      # of times without a zone; default UTC
    broker = 1                       # the writer, unless the file names it
    cluster = "berlin"               # default "default"
    version = "2.4"                  # of Kafka; a note for readers
    date = "2024-05-01"              # for a log whose lines have only a time (default: from the file's name)
    source = "state-change.log"      # the kind of log, unless its name or its lines show it

Every key except ``glob`` is optional.  For each file and key, the first matching entry with the key counts.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

from aiocontroller.analytics.schema import SOURCES
from aiocontroller.core.errors import BadInputError


def _zone(value: Any) -> str:
    if not re.fullmatch(r"[+-]\d\d:\d\d", str(value)):
        ZoneInfo(str(value))
    return str(value)


def _broker(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value


def _source(value: Any) -> str:
    if value not in SOURCES:
        raise ValueError
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


KEYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "glob": (_text, "a pattern"),
    "time_zone": (_zone, 'a name such as "Europe/Berlin", or "+02:00"'),
    "broker": (_broker, "a broker's number"),
    "cluster": (_text, "a name"),
    "version": (_text, 'a version such as "2.4"'),
    "date": (lambda value: date.fromisoformat(str(value)).isoformat(), 'a day such as "2024-05-01"'),
    "source": (_source, " or ".join(SOURCES)),
}


class Manifest:
    """``about(name)`` returns everything known of a file; ``unused`` has the globs that matched no file."""

    def __init__(self, entries: Iterable[dict[str, Any]] = ()) -> None:
        self._entries = list(entries)
        self._used: set[str] = set()

    def about(self, name: str, path: str = "") -> dict[str, Any]:
        """Return the known keys of the file by its shown ``name`` or its full ``path``; empty if no glob matches."""
        known: dict[str, Any] = {}
        for entry in self._entries:
            if fnmatchcase(name, entry["glob"]) or fnmatchcase(path, entry["glob"]):
                self._used.add(entry["glob"])
                known = entry | known
        return {key: value for key, value in known.items() if key != "glob"}

    @property
    def unused(self) -> list[str]:
        """The globs that matched no file asked ``about`` so far, in the manifest's order."""
        return [entry["glob"] for entry in self._entries if entry["glob"] not in self._used]


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.  Raises ``BadInputError``, which names the faulty entry."""

    def bad(words: str) -> NoReturn:
        raise BadInputError(f"manifest {path}: {words}")

    try:
        text = path.read_text("utf-8")
        whole = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        bad(str(error))
    entries = whole.get("files") if isinstance(whole, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        bad('expected a list of entries, "files"')
    checked = []
    for number, entry in enumerate(entries, 1):
        if "glob" not in entry:
            bad(f"entry {number} has no glob")
        fields = {}
        for key, value in entry.items():
            if key not in KEYS:
                bad(f"entry {number}: no such key: {key}; there are {', '.join(KEYS)}")
            check, expected = KEYS[key]
            try:
                fields[key] = check(value)
            except (ValueError, KeyError, OSError):
                bad(f"entry {number}: {key} is {value!r}, expected {expected}")
        checked.append(fields)
    return Manifest(checked)
