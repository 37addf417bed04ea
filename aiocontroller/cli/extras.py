"""The parts that the plain install leaves out, and the message where one is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from aiocontroller.core.errors import AioControllerError


class Extra(NamedTuple):
    """A distribution beside the controller's."""

    package: str
    name: str
    """As messages name it."""


EXTRAS = {"lab": Extra("aiocontroller.lab", "laboratory"), "pipeline": Extra("aiocontroller.analytics", "pipeline")}


class ExtraMissingError(AioControllerError):
    """A command or an option needs an extra that is not installed."""


def missing(extra: str) -> bool:
    """Whether the extra's package cannot be imported; looks it up without importing it."""
    return find_spec(EXTRAS[extra].package) is None


def refusal(extra: str, subject: str = "this command") -> str:
    """The message that says what to install; it begins with ``subject``."""
    return f'{subject} needs the {EXTRAS[extra].name}: pip install "aiocontroller[{extra}]"'
