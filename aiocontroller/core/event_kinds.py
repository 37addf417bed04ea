"""What all events are: a controller state, one of three kinds, and for a request the ``Reply`` that answers it.

A *signal* carries at most the name of what changed: its handler reads ZooKeeper again, which re-arms the watch; one
that equals a queued one is dropped.  A *request* is always answered by its ``Reply``: with NOT_CONTROLLER when it is
preempted, UNKNOWN_SERVER_ERROR when its handler fails.  A *response* has a broker's answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any, ClassVar

import msgspec

from aiocontroller.core.errors import KafkaErrorCode


class ControllerState(IntEnum):
    """The controller's current activity, with Kafka's byte values; ``timer`` is the metric that records its time."""

    Idle = 0
    ControllerChange = 1
    BrokerChange = 2
    TopicChange = 3
    TopicDeletion = 4
    AlterPartitionReassignment = 5
    AutoLeaderBalance = 6
    ManualLeaderBalance = 7
    ControlledShutdown = 8
    IsrChange = 9
    LeaderAndIsrResponseReceived = 10
    LogDirChange = 11
    ControllerShutdown = 12
    UncleanLeaderElectionEnable = 13
    TopicUncleanLeaderElectionEnable = 14
    ListPartitionReassignment = 15
    UpdateMetadataResponseReceived = 16
    UpdateFeatures = 17

    @property
    def timer(self) -> str | None:
        """Name of the timer in ``kafka.controller:type=ControllerStats``; None where Kafka has none."""
        if self in (ControllerState.Idle, ControllerState.UpdateMetadataResponseReceived):
            return None
        named = {"BrokerChange": "LeaderElection", "AlterPartitionReassignment": "PartitionReassignment"}
        return f"{named.get(self.name, self.name)}RateAndTimeMs"


class Reply:
    """Returns one answer to the requester, whatever happens to the event.

    ``callback`` gets the answer: the request's own result type, or a ``KafkaErrorCode`` for the whole request.
    """

    __slots__ = ("_callback", "_watcher", "deferred")

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self._callback: Callable[[Any], None] | None = callback
        self._watcher: Callable[[], None] | None = None
        self.deferred = False
        """The answer comes after the event has been handled; a timer makes sure that it does."""

    @property
    def answered(self) -> bool:
        """Whether the answer was given."""
        return self._callback is None

    def answer(self, result: Any) -> None:
        """Give the answer, once."""
        assert self._callback is not None, "a request is answered once"
        callback, self._callback = self._callback, None
        callback(result)
        if self._watcher is not None:
            self._watcher()

    def defer(self) -> None:
        """The answer will come after the event was handled."""
        self.deferred = True
        if self._watcher is not None:
            self._watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call back when the answer is deferred, and when it is given."""
        self._watcher = watcher

    def ensure(self, result: Any) -> None:
        """Answer, unless the request has been answered."""
        if self._callback is not None:
            self.answer(result)


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened; its type has a row in the table of handlers."""

    state: ClassVar[ControllerState]
    is_routine: ClassVar[bool] = False
    """The event is frequent and routine: it gets no journal record of its own unless it fails."""


class Signal(Event, frozen=True, gc=False):
    """Says that something changed; equal signals in the queue are merged."""


class Request(Event, frozen=True, gc=True, kw_only=True):
    """Asks for something, and is answered once.  Tracked by the garbage collector: ``reply`` leads to its queue."""

    reply: Reply
    by: str = ""
    """Who asks, as principal and address, for the journal; empty for brokers, and for the controller itself."""
    holds: Callable[[], Awaitable[bool]] | None = None
    """Called when its turn comes: a request that no longer holds is answered INVALID_REQUEST, and nothing is done."""

    def preempt(self) -> None:
        """Answer NOT_CONTROLLER, so that the sender looks for the active controller; no effect after an answer."""
        self.reply.ensure(KafkaErrorCode.NOT_CONTROLLER)


class CertainRequest(Request, frozen=True, kw_only=True):
    """A request of a broker or an operator: a full queue accepts it, while it refuses a client's."""


class Response(Event, frozen=True, gc=False):
    """Names partitions by their rows in one term's table, so it is void in the next term."""
