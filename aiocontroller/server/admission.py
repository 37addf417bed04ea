"""Limits the requests in the event queue, and orders those that wait to enter it.

Events of ZooKeeper and brokers never wait behind more than a few client requests.  Rules.
 * A request waits here undecoded until there is a place for it in its *lane*.
 * Clients share one lane.  A small request takes one place in it, a large one up to all of them, because handling time
   grows with the size.
 * Each broker has a lane of its own.  The broker epoch in a request identifies the registration; requests with the
   epoch of no registered broker (any client can send them on an open listener) share a lane.
 * In each lane, IP addresses take turns, and at one address the oldest request comes first.
 * A place is free when the handler has finished the event, even if the answer comes later (CreateTopics waits for
   brokers).  When too many answers are outstanding, the oldest request gets REQUEST_TIMED_OUT.
 * A request whose connection ends while it waits here is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from struct import Struct

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey, api_name
from aiocontroller.wire.errors import FrameError

log = logging.getLogger(__name__)

OF_BROKERS = frozenset({ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.CONTROLLED_SHUTDOWN})
PLACES_OF_A_BROKER = 4
PLACES_OF_UNKNOWN_BROKERS = 16
BYTES_PER_PLACE = 32 * 1024
MAX_DEFERRED = 1000
"""Requests whose event has been handled but which have not been answered."""

_BROKER = Struct(">iq")
"""Broker id and epoch, which start every request of a broker; ControlledShutdown before version 2 has no epoch."""


def broker_of(context: ControllerContext, body: bytes) -> int | None:
    """The registered broker that sent the request, identified by its epoch; None when there is none."""
    if len(body) < _BROKER.size:
        return None
    broker, epoch = _BROKER.unpack_from(body)
    known = context.brokers.get(broker)
    return broker if known is not None and known.epoch == epoch else None


Make = Callable[[], Request | None]
"""Decodes the request; None when it has been answered already, FrameError when it is malformed."""


class Lane:
    """Places in the queue, and the requests that wait for one."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.taken = 0
        self.waiting: OrderedDict[str, OrderedDict[KafkaRequest, Make]] = OrderedDict()
        """By IP address, in the order of their turns."""

    def cost(self, request: KafkaRequest) -> int:
        """The places that a request takes: more for a large one, at most all."""
        return min(self.places, 1 + len(request.body) // BYTES_PER_PLACE)

    def has_room(self, request: KafkaRequest) -> bool:
        """Whether its places are free."""
        return self.taken + self.cost(request) <= self.places

    def wait(self, request: KafkaRequest, make: Make) -> None:
        """Let the request wait behind others of its address."""
        self.waiting.setdefault(request.context.host, OrderedDict())[request] = make

    def forget(self, request: KafkaRequest) -> None:
        """Drop a waiting request, if it waits here."""
        at_address = self.waiting.get(request.context.host)
        if at_address is not None and at_address.pop(request, None) is not None and not at_address:
            del self.waiting[request.context.host]

    def next(self) -> tuple[KafkaRequest, Make] | None:
        """The request whose turn it is, if there is room for it."""
        for address, requests in self.waiting.items():
            request, make = next(iter(requests.items()))
            if not self.has_room(request):
                return None
            self.forget(request)
            if requests:
                self.waiting.move_to_end(address)
            return request, make
        return None


class RequestAdmission:
    """Lets few requests into the event queue at once; the others wait here, and their senders take turns."""

    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell
        self._clients = Lane(shell.config.aiocontroller_queued_max_client_requests)
        self._unknown_brokers = Lane(PLACES_OF_UNKNOWN_BROKERS)
        self._brokers: dict[int, Lane] = {}
        """By id of every broker that has been registered while this process ran."""
        self._deferred: dict[Reply, None] = {}
        self._pumping = False
        gauge = shell.metrics.gauge
        gauge("aiocontroller", "RequestAdmission", "WaitingRequests", lambda: self.waiting)
        gauge("aiocontroller", "RequestAdmission", "DeferredRequests", lambda: len(self._deferred))

    @property
    def waiting(self) -> int:
        """Number of requests not in the event queue yet."""
        return sum(len(requests) for lane in self._lanes() for requests in lane.waiting.values())

    def admit(self, request: KafkaRequest, make: Make) -> None:
        """Queue the event that ``make`` decodes from the request, now or when its turn comes."""
        lane = self._lane(request)
        if not lane.waiting and lane.has_room(request):
            self._queue(lane, request, make)
            return
        lane.wait(request, make)
        request.when_gone = lambda: lane.forget(request)

    def _lanes(self) -> list[Lane]:
        return [self._clients, self._unknown_brokers, *self._brokers.values()]

    def _lane(self, request: KafkaRequest) -> Lane:
        if request.context.api not in OF_BROKERS:
            return self._clients
        broker = broker_of(self._shell.context, request.body)
        if broker is None:
            return self._unknown_brokers
        found = self._brokers.get(broker)
        if found is None:
            found = self._brokers[broker] = Lane(PLACES_OF_A_BROKER)
        return found

    def _queue(self, lane: Lane, request: KafkaRequest, make: Make) -> None:
        request.when_gone = None
        try:
            event = make()
        except FrameError as error:
            request.refuse(str(error))
            return
        except Exception as error:
            name = api_name(request.context.api)
            log.error("%s from %s could not be decoded", name, request.context.host, exc_info=error)
            request.refuse(f"{name} could not be decoded")
            return
        if event is None:
            return
        cost, done = lane.cost(request), False
        lane.taken += cost

        def changed() -> None:
            nonlocal done
            if not done:
                done = True
                lane.taken -= cost
                if lane.waiting:
                    self._pump_soon()
            self._follow(event.reply)

        event.reply.watch(changed)
        self._shell.queue.append(event)

    def _follow(self, reply: Reply) -> None:
        if reply.answered:
            self._deferred.pop(reply, None)
            return
        self._deferred[reply] = None
        if len(self._deferred) > MAX_DEFERRED:
            next(iter(self._deferred)).ensure(KafkaErrorCode.REQUEST_TIMED_OUT)

    def _pump_soon(self) -> None:
        """Admit waiting requests in the next turn of the loop: a queue that is just being cleared must stay empty."""
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        for lane in self._lanes():
            while (found := lane.next()) is not None:
                self._queue(lane, *found)
