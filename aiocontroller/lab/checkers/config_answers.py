"""Judges answers to requests that change znodes below ``/config`` (topics' settings, client quotas, SCRAM credentials),
and those of ACLs.

Each request asks for a value of its own.  A value that an answer confirms must have been there after the request; a
refused one must never be there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.checkers.timeline import Timeline

CONFIG = "/config/"
ACLS = "/kafka-acl/"
"""A znode below it counts as settings: principal -> the operation of its last ACL."""
UNCERTAIN = frozenset(
    {KafkaErrorCode.REQUEST_TIMED_OUT, KafkaErrorCode.UNKNOWN_SERVER_ERROR, KafkaErrorCode.NOT_CONTROLLER}
)
"""The change may have been made nevertheless, if the answer to a write was lost."""

Configs = Mapping[str, str]


class Wanted(NamedTuple):
    """A value of one key of a znode; ``part`` is part of the value, None if the key should be absent."""

    path: str
    key: str
    part: str | None

    def holds(self, configs: Configs | None) -> bool:
        value = (configs or {}).get(self.key)
        return value is None if self.part is None else value is not None and self.part in value.split(",")

    def __str__(self) -> str:
        return f"{self.key} {self.part}"


class ConfigAnswers:
    """``complain`` takes an invariant, its subject and what is wrong."""

    def __init__(self, now_s: Callable[[], float], complain: Callable[[str, str, str], None]) -> None:
        self._now_s = now_s
        self._complain = complain
        self._configs: defaultdict[str, Timeline[Configs | None]] = defaultdict(lambda: Timeline(None))
        self._refused: defaultdict[str, list[Wanted]] = defaultdict(list)

    def changed(self, path: str, data: bytes | None) -> None:
        """Take in a znode; None: it was deleted."""
        if not path.startswith((CONFIG, ACLS)):
            return  # it may be large
        try:
            decoded = msgspec.json.decode(data or b"null")
        except msgspec.DecodeError:
            decoded = None  # a foreign write
        configs = decoded.get("config") if isinstance(decoded, dict) else None
        if isinstance(decoded, dict) and path.startswith(ACLS):
            configs = {acl["principal"]: acl["operation"] for acl in decoded["acls"]}
        self._configs[path].put(self._now_s(), configs)
        for wanted in self._refused[path]:
            if wanted.holds(configs):
                self._complain("answers", path, f"has {wanted}, which was refused")

    def answered(self, asked_s: float, wanted: Wanted, code: int) -> None:
        """A client that asked for this value was answered with this code."""
        found = [wanted.holds(configs) for configs in self._configs[wanted.path].since(asked_s)]
        if code == KafkaErrorCode.NONE and not any(found):
            self._complain("answers", wanted.path, f"is said to have {wanted}")
        if code == KafkaErrorCode.NONE or code in UNCERTAIN or wanted.part is None:
            return
        self._refused[wanted.path].append(wanted)
        if any(found):
            self._complain("answers", wanted.path, f"has {wanted}, which was refused with {code}")
