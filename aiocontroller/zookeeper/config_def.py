"""The types and rules of settings, and Java's text form of values (Kafka's ``ConfigDef``).  Pure functions.

A value is text, as in znodes and requests.  ``text_of`` gives the form in which brokers show it after reading it:
without surrounding spaces, ``true`` for ``TRUE``, ``1.0E-4`` for ``0.0001``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple

Rule = Callable[[str], str | None]
"""Describes the expected value, or returns None for a valid one."""

KafkaRelease = tuple[int, int]
"""A Kafka release: (major, minor)."""
NEWEST_RELEASE: KafkaRelease = (3, 9)

INT_MAX, LONG_MIN, LONG_MAX = 2**31 - 1, -(2**63), 2**63 - 1
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[dDfF]?")
_LIST_SEPARATOR = re.compile(r"\s*,\s*")


class ConfigType(IntEnum):
    """The types in DescribeConfigs, by their numbers on the wire."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigKey(NamedTuple):
    """One setting.  ``default`` is Kafka's; ``synonyms`` are the brokers' settings that provide a topic's default, the
    first being the name that DescribeConfigs shows."""

    type: ConfigType
    default: str | None
    rule: Rule
    synonyms: tuple[str, ...] = ()


# -- rules -------------------------------------------------------------------------------------------------------------


def whole(low: int, high: int, *, also: int | None = None) -> Rule:
    """Whole numbers from ``low`` to ``high``, and ``also``."""

    def rule(value: str) -> str | None:
        text = value.strip()
        if _NUMBER.fullmatch(text) and (low <= int(text) <= high or int(text) == also):
            return None
        return f"a whole number from {low} to {high}" + (f" or {also}" if also is not None else "")

    return rule


def int_from(low: int) -> Rule:
    """Whole numbers from ``low`` to the largest of 32 bits."""
    return whole(low, INT_MAX)


def long_from(low: int) -> Rule:
    """Whole numbers from ``low`` to the largest of 64 bits."""
    return whole(low, LONG_MAX)


def decimal(value: str) -> str | None:
    """Numbers with or without a fraction, as Java reads them."""
    return None if _DECIMAL.fullmatch(value.strip()) else "a number"


def ratio(value: str) -> str | None:
    """Numbers from 0 to 1."""
    return None if decimal(value) is None and 0 <= _float(value) <= 1 else "a number from 0 to 1"


def boolean(value: str) -> str | None:
    """``true`` or ``false``, in capitals or not."""
    return None if value.strip().lower() in ("true", "false") else "true or false"


def one_of(*names: str) -> Rule:
    """One of these names."""
    return lambda value: None if value in names else f"one of {', '.join(names)}"


def some_of(*names: str) -> Rule:
    """A list of these names, separated by commas."""

    def rule(value: str) -> str | None:
        return None if all(name in names for name in elements(value)) else f"a list of {', '.join(names)}"

    return rule


def throttled_replicas(value: str) -> str | None:
    """``*``, or a list of ``partition:broker``."""
    given = elements(value)
    if given == ["*"] or all(re.fullmatch(r"[0-9]+:[0-9]+", part) for part in given):
        return None
    return "* or a list of partition:broker"


_RELEASES = re.compile(r"(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.[0-9]|4\.0)(\.[0-9]+)*(-IV[0-9])?")


def release(value: str) -> str | None:
    """A version of ``inter.broker.protocol.version`` or ``log.message.format.version``."""
    return None if _RELEASES.fullmatch(value) else "a version of Kafka such as 2.8 or 3.0-IV1"


def release_up_to(newest: KafkaRelease) -> Rule:
    """A version up to ``newest``: Kafka accepts no version newer than itself."""

    def rule(value: str) -> str | None:
        if release(value) is None and _release_of(value) <= newest:
            return None
        return f"a version of Kafka up to {newest[0]}.{newest[1]}"

    return rule


def _release_of(value: str) -> KafkaRelease:
    major, minor = value.partition("-")[0].split(".")[:2]
    return int(major), int(minor)


def anything(_value: str) -> str | None:
    """Any value."""
    return None


# -- values ------------------------------------------------------------------------------------------------------------


def elements(value: str) -> list[str]:
    """The elements of a list; an empty text has none, and nothing between two commas is an empty element."""
    text = value.strip()
    return _LIST_SEPARATOR.split(text) if text else []


def text_of(kind: ConfigType, value: str) -> str:
    """A value as a broker shows it; an invalid value is shown unchanged."""
    text = value.strip()
    if kind is ConfigType.BOOLEAN:
        return text.lower() if boolean(text) is None else value
    if kind in (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT):
        return str(int(text)) if _NUMBER.fullmatch(text) else value
    if kind is ConfigType.DOUBLE:
        return java_double(_float(text)) if decimal(text) is None else value
    if kind is ConfigType.LIST:
        return ",".join(elements(value))
    return value


def _float(text: str) -> float:
    return float(text.strip().rstrip("dDfF"))


def java_double(number: float) -> str:
    """As ``Double.toString`` writes it: plain from 0.001 to 10,000,000, else ``1.0E-4``."""
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent + len(text) - 1}"
