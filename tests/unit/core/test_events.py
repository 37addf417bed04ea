"""Events: each has a state and cannot change, and signals can be equal."""

from __future__ import annotations

import pytest

from aiocontroller.core import events
from aiocontroller.core.event_kinds import (
    CertainRequest,
    ControllerState,
    Event,
    Request,
    Response,
    Signal,
)


def subclasses(of: type[Event]) -> list[type[Event]]:
    return [c for c in vars(events).values() if isinstance(c, type) and issubclass(c, of) and c not in _ABSTRACT]


_ABSTRACT = (Event, Signal, Request, CertainRequest, Response)


@pytest.mark.parametrize("event", subclasses(Event))
def test_every_event_names_its_state_and_cannot_change(event: type[Event]) -> None:
    assert isinstance(event.state, ControllerState)
    assert event.__struct_config__.frozen


@pytest.mark.parametrize("signal", subclasses(Signal))
def test_equal_signals_are_one(signal: type[Signal]) -> None:
    """So that the queue can hold each of them once."""
    arguments = {"broker": 1, "broker_epoch": 7, "topic": "t", "partition": 0, "step": "s", "vacant": True}
    fields = [arguments[name] for name in signal.__struct_fields__]
    assert len({signal(*fields), signal(*fields)}) == 1


def test_signals_about_different_things_are_two() -> None:
    assert events.BrokerModifications(1) != events.BrokerModifications(2)
    assert len({events.ControllerChange(), events.Reelect(), events.Startup(), events.TopicChange()}) == 4
