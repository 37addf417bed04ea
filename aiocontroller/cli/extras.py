"""What the plain install leaves out, and what is said where it is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from aiocontroller.core.errors import AioControllerError


class Extra(NamedTuple):
    package: str
    name: str
    """In sentences."""


EXTRAS = {"lab": Extra("aiocontroller.lab", "laboratory"), "pipeline": Extra("aiocontroller.analytics", "pipeline")}


class ExtraMissingError(AioControllerError):
    """A command or an option needs what is not installed."""


def missing(extra: str) -> bool:
    return find_spec(EXTRAS[extra].package) is None


def refusal(extra: str, subject: str = "this command") -> str:
    return f'{subject} needs the {EXTRAS[extra].name}: pip install "aiocontroller[{extra}]"'
