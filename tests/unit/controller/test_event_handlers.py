"""An event type that lacks what each must have is named at import, not when it first comes."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.controller.event_handlers import GATHERED, HANDLERS, check_event_types, event_types
from aiocontroller.controller.kafka_controller import ELECTION_HANDLERS, RELOADS
from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import ControllerState, Event, Request, Signal


class Documented(Signal, frozen=True, gc=False):
    """Something happened."""

    state = ControllerState.TopicChange


class Undocumented(Signal, frozen=True, gc=False):
    state = ControllerState.TopicChange


class Stateless(Request, frozen=True, gc=False, kw_only=True):
    """Something is asked for."""


class Kindless(Event, frozen=True, gc=False):
    """Something."""

    state = ControllerState.TopicChange


@pytest.mark.parametrize(
    "kind, tables, lacking",
    [
        (Documented, [{}], r"lacks one handler \(it has 0\)"),
        (Documented, [{Documented}, {Documented}], r"lacks one handler \(it has 2\)"),
        (Undocumented, [{Undocumented}], "lacks a docstring"),
        (Stateless, [{Stateless}], "lacks a controller state"),
        (Kindless, [{Kindless}], "lacks a kind"),
    ],
)
def test_what_is_lacking_is_named(kind: type[Event], tables: list[Any], lacking: str) -> None:
    with pytest.raises(TypeError, match=f"event type {kind.__name__} {lacking}"):
        check_event_types(tables, [kind])


def test_a_complete_one_passes() -> None:
    check_event_types([{Documented}], [Documented])


def test_all_types_are_known() -> None:
    """The tables hold all event types, and nothing else."""
    known = list(event_types())
    assert len(known) == len(set(known)) == len(ELECTION_HANDLERS) + len(RELOADS) + len(HANDLERS) + len(GATHERED)
    assert {ev.Startup, ev.TopicChange, ev.AlterPartitionReceived, ev.CreateTopics} <= set(known)
