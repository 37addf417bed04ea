"""One sender per broker: sends requests in order, one in flight, and retries them (``ControllerChannelManager``).

Rules.
 * A sender belongs to one incarnation of a broker (its epoch).  When the broker dies or registers again, the sender
   and its queue are dropped: no request to an old incarnation reaches the new one.
 * A request that fails is sent again after a pause, before all later ones, as long as the broker is registered.
 * Versions follow the cluster's inter.broker.protocol.version, as in Kafka, and are never newer than those the broker
   offers by ApiVersions at the start of each connection (Kafka does not ask).  A request queued before the first
   answer is encoded for the versions of the other brokers.
 * A barrier in a sender's queue holds back the requests behind it until it is opened or times out.
 * Requests that pile up for a slow broker are merged: see ``request_queue``.
 * An UpdateMetadata is encoded once per version and shared; only the broker epoch differs between brokers.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import anyio
import anyio.abc

from aiocontroller.config import Config, ConfigError
from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.controller.heartbeats import Heartbeats
from aiocontroller.controller.request_queue import Barrier, Body, Encode, EncodeCurrent, Outgoing, RequestQueue
from aiocontroller.core.debts import Deletions
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.failure_detector import Suspicion
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.journal.journal import Journal
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange, negotiate_api
from aiocontroller.wire.frames import FrameError, UnsupportedApiError, decode_response_header, encode_request_header
from aiocontroller.wire.messages import decode_api_versions_response
from aiocontroller.wire.protocol_versions import Protocol, control_request_versions

log = logging.getLogger(__name__)

RETRY_BACKOFF_S = 0.1
CLIENT_ID = "aiocontroller"
SENT = (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA)
"""The requests that the controller sends."""

Versions = dict[int, int]
"""Api key -> the newest version supported by both the broker and this controller."""


class BrokerResponse(NamedTuple):
    """A broker's answer, of the incarnation with this epoch."""

    broker: int
    broker_epoch: int
    api: ApiKey
    version: int
    body: bytes
    rows: Sequence[int]
    asked: Deletions | None = None
    silent: bool = False
    """The broker took the request but did not answer in time, and is not asked again; there is no body."""


class SenderStatistics(NamedTuple):
    """What one sender has queued, sent and repeated, and how its broker responds."""

    broker: int
    queued: int
    in_flight: bool
    sent: int
    retries: int
    bytes_sent: int
    answered_us: int | None = None
    """When the broker last answered, in microseconds since 1970; None: not in this term."""
    waiting_since_us: int | None = None
    """Since when the sender has waited for a connection or an answer, in microseconds since 1970; None: it does not."""
    problem: str = ""
    """Why the broker cannot be reached; empty if it can, or if no attempt has been made."""
    waiting_s: float = 0.0
    """For how long it has waited, whatever has happened to the wall clock."""


class ControllerChannelManager:
    """The senders of all registered brokers (Kafka's class of this name)."""

    def __init__(
        self,
        world: World,
        tasks: anyio.abc.TaskGroup,
        on_response: Callable[[BrokerResponse], None],
        *,
        endpoint_of: Callable[[Broker], Endpoint | None],
        protocol: Callable[[], Protocol],
        connect_timeout_s: float,
        request_timeout_s: float,
        metrics: Metrics,
        journal: Journal,
        heartbeats: Heartbeats | None = None,
        security: Security | None = None,
    ) -> None:
        self.world = world
        self.heartbeats = heartbeats
        """Watches the brokers that have senders, where early detection is on; it outlives the term."""
        self.security = Security(Config()) if security is None else security
        self.on_response = on_response
        self.endpoint_of = endpoint_of
        self.protocol = protocol
        self.connect_timeout_s = connect_timeout_s
        self.request_timeout_s = request_timeout_s
        self.metrics = metrics
        self.journal = journal
        self._tasks = tasks
        self._senders: dict[int, RequestSender] = {}
        metrics.gauge("kafka.controller", "ControllerChannelManager", "TotalQueueSize", self._total_queue_size)

    async def connect(self, endpoint: Endpoint) -> BrokerConnection:
        """Connect to a broker.  Raises OSError, also if our configuration does not fit."""
        try:
            return await connect_to_broker(self.world, self.security, endpoint, timeout_s=self.connect_timeout_s)
        except ConfigError as error:
            raise ConnectionError(str(error)) from error  # reported once, and tried again

    def add_brokers(self, brokers: Iterable[Broker], *, settled: bool = False) -> None:
        """Start senders for these brokers; ``settled``: these are all that registered before this term began."""
        if settled and self.heartbeats is not None:
            brokers = list(brokers)
            self.heartbeats.keep_only({broker.id for broker in brokers})
        for broker in brokers:
            assert broker.id not in self._senders, broker.id
            sender = self._senders[broker.id] = RequestSender(self, broker)
            self._tasks.start_soon(sender.run, name=f"sender to broker {broker.id}")
            if self.heartbeats is not None:
                self.heartbeats.watch(
                    broker.id, broker.epoch, functools.partial(self.endpoint_of, broker), settled=settled
                )

    def remove_brokers(self, ids: Iterable[int]) -> None:
        """Stop the senders of these brokers, and give up their requests."""
        for broker in ids:
            sender = self._senders.pop(broker, None)
            if sender is not None:
                sender.stop()
                if self.heartbeats is not None:
                    self.heartbeats.forget(broker)

    def shutdown(self) -> None:
        """Stop all senders; heartbeats go on."""
        for broker in list(self._senders):
            self._senders.pop(broker).stop()

    def suspects(self) -> dict[int, Suspicion]:
        """Suspected brokers by id; empty where early detection is off."""
        return self.heartbeats.suspects() if self.heartbeats is not None else {}

    def confirm(self, broker: int) -> bool:
        """Whether a suspicion that nobody has acted on stands: a standby's word may have overtaken it."""
        return self.heartbeats is not None and self.heartbeats.confirm(broker)

    def refusing_s(self, broker: int) -> float:
        """How long the broker has refused connections; 0 if it accepts them, or early detection is off."""
        return self.heartbeats.refusing_s(broker) if self.heartbeats is not None else 0.0

    @property
    def suspects_own_network(self) -> bool:
        """Whether so many brokers seem to be away that our own network may be at fault."""
        return self.heartbeats is not None and self.heartbeats.suspects_own_network

    def alive_s(self, broker: int) -> float:
        """When the last request that this incarnation of the broker accepted was sent (``Clock.monotonic``): it was
        alive then.  Minus infinity if it has accepted none."""
        sender = self._senders.get(broker)
        return float("-inf") if sender is None else sender.alive_s

    def answers_again(self, broker: int) -> bool:
        """Whether a suspected broker answers now, although it is not trusted yet."""
        return self.heartbeats is not None and self.heartbeats.answers_again(broker)

    async def wait_until_connected(self, timeout_s: float) -> None:
        """Wait, at most ``timeout_s``, until each new sender knows its broker's versions or has failed once.

        A dead broker that is still registered refuses connections at once; its sender keeps trying.
        """
        with anyio.move_on_after(timeout_s):
            for sender in list(self._senders.values()):
                await sender.first_attempt_over.wait()

    def send(
        self,
        broker: int,
        api: ApiKey,
        encode: Encode,
        rows: Sequence[int],
        done: Callable[[], None] | None = None,
        *,
        new: frozenset[int] = frozenset(),
        encode_current: EncodeCurrent | None = None,
        asked: Deletions | None = None,
        may_be_given_up: bool = False,
    ) -> None:
        """Queue a request, encoded now with the current state.

        While the broker's versions are unknown, the request is encoded for those of the other brokers.  Encoded later,
        it would show a newer state than the requests before it: a follower would learn of a leader that is not alive
        in its metadata yet, and never begin to fetch.  (That still happens where the guessed version is wrong.)

        For a broker that has fallen behind, the request may be merged into waiting ones (``request_queue``), and
        ``encode_current`` encodes the result.
        """
        sender = self._senders.get(broker)
        if sender is None:
            if done is not None:
                done()
            return
        one = Outgoing(
            api, encode, rows, self.world.clock.monotonic(), done, new, encode_current, asked, may_be_given_up
        )
        if sender.queue.merge(one):
            return
        version = self.version(sender.versions or self._expected_versions(), api)
        bodies = encode(version, sender.broker.epoch)
        later = encode if encode_current is None else functools.partial(encode_current, rows, new)
        sender.put(one._replace(encode=lambda v, e: bodies if v == version else later(v, e)))

    def encode_merged(self) -> None:
        """Encode merged requests with the present state, before the context gets ahead of ZooKeeper."""
        for sender in self._senders.values():
            versions = sender.versions or self._expected_versions()
            sender.queue.encode_merged(functools.partial(self.version, versions), sender.broker.epoch)

    def hold_back(self, brokers: Iterable[int], timeout_s: float) -> Barrier:
        """Hold back later requests to these brokers until the barrier is opened or ``timeout_s`` has passed."""
        barrier = Barrier(self.world.clock, timeout_s)
        for broker in brokers:
            sender = self._senders.get(broker)
            if sender is not None:
                sender.put(barrier)
        return barrier

    def version(self, offered: Versions, api: ApiKey) -> int:
        """The version to use with a broker now; the protocol version may change during a term."""
        return min(offered[api], control_request_versions(self.protocol())[api])

    def _expected_versions(self) -> Versions:
        known = (sender.versions for sender in self._senders.values() if sender.versions is not None)
        return next(known, {api: SUPPORTED[api].max for api in SENT})

    def statistics(self) -> list[SenderStatistics]:
        """The statistics of each sender."""
        return [sender.statistics() for sender in self._senders.values()]

    def _total_queue_size(self) -> int:
        return sum(len(sender.queue) for sender in self._senders.values())


class RequestSender:
    """Kafka's ``RequestSendThread``."""

    def __init__(self, manager: ControllerChannelManager, broker: Broker) -> None:
        self.broker = broker
        self.versions: Versions | None = None
        self.offered: dict[int, VersionRange] = {}
        self.first_attempt_over = anyio.Event()
        """The first attempt to connect has succeeded or failed."""
        self.queue = RequestQueue()
        self._manager = manager
        self._connection: BrokerConnection | None = None
        self._wakeup = anyio.Event()
        self._scope = anyio.CancelScope()
        self._correlation_id = 0
        self._sent = self._retries = self._bytes = 0
        self.alive_s = float("-inf")
        self._answered_us: int | None = None
        self._waiting_since_us: int | None = None
        self._waiting_since_s = 0.0
        self._in_flight = self._silent = False
        self._problem = ""
        manager.metrics.gauge(
            "kafka.controller",
            "ControllerChannelManager",
            "QueueSize",
            lambda: len(self.queue),
            tags={"broker-id": str(broker.id)},
        )
        self._timer = manager.metrics.timer(
            "kafka.controller",
            "ControllerChannelManager",
            "RequestRateAndQueueTimeMs",
            tags={"broker-id": str(broker.id)},
        )

    def put(self, outgoing: Outgoing | Barrier) -> None:
        """Queue a request; it is sent when everything before it has been acknowledged."""
        self.queue.put(outgoing)
        self._wakeup.set()

    def stop(self) -> None:
        """Drop all queued requests and close the connection."""
        self._scope.cancel()
        self._disconnect()
        self.queue.give_up()
        for name in ("QueueSize", "RequestRateAndQueueTimeMs"):
            self._manager.metrics.remove(
                "kafka.controller", "ControllerChannelManager", name, tags={"broker-id": str(self.broker.id)}
            )

    def statistics(self) -> SenderStatistics:
        """A snapshot of the requests that were sent and that wait."""
        waits, now_s = self._waiting_since_us is not None, self._manager.world.clock.monotonic()
        return SenderStatistics(
            self.broker.id,
            len(self.queue),
            self._in_flight,
            self._sent,
            self._retries,
            self._bytes,
            self._answered_us,
            self._waiting_since_us,
            self._problem,
            now_s - self._waiting_since_s if waits else 0.0,
        )

    async def run(self) -> None:
        """Send what is in the queue, one request at a time, until the sender is stopped."""
        with self._scope:
            await self._retry_until_success(self._ensure_connected)
            while True:
                while not self.queue:
                    self._wakeup = anyio.Event()
                    await self._wakeup.wait()
                outgoing = self.queue.head()
                if isinstance(outgoing, Barrier):
                    await outgoing.opened.wait()
                    if self._is_dropped():
                        return
                    self.queue.pop()
                    continue
                await self._retry_until_success(lambda outgoing=outgoing: self._deliver(outgoing))  # type: ignore[misc]
                if self._is_dropped():
                    return  # dropped after the answer arrived: the queue has been cleared already
                self.queue.pop()
                if outgoing.done is not None:
                    outgoing.done()

    def _is_dropped(self) -> bool:
        """Checked after each wait: the sender may have been dropped after the event that woke this task."""
        return self._scope.cancel_called

    async def _retry_until_success(self, attempt: Callable[[], Awaitable[None]]) -> None:
        if self._waiting_since_us is None:
            clock = self._manager.world.clock
            self._waiting_since_us, self._waiting_since_s = clock.wall_time_us(), clock.monotonic()
        while True:
            try:
                await attempt()
            except (OSError, FrameError, UnsupportedApiError) as error:
                self._report(error)
                self._disconnect()
                self.first_attempt_over.set()
                self._retries += 1
                await self._manager.world.clock.sleep(RETRY_BACKOFF_S)
            else:
                if not self._silent:  # else the request was given up, and the broker is still silent
                    self._waiting_since_us = None
                return

    async def _deliver(self, outgoing: Outgoing) -> None:
        await self._ensure_connected()
        if self._is_dropped():
            return  # dropped after the connection was made, and closed
        assert self.versions is not None
        version = self._manager.version(self.versions, outgoing.api)
        asked = outgoing.asked
        for body in outgoing.encode(version, self.broker.epoch):
            begun_s = self._manager.world.clock.monotonic()
            queued_s = begun_s - outgoing.enqueued_s
            self._timer.observe(queued_s)
            try:
                answer = await self._request(outgoing.api, version, body, len(outgoing.rows), queued_s)
            except OSError:
                if not self._silent or not outgoing.may_be_given_up or self._is_dropped():
                    raise
                answer = b""
                log.warning(
                    "Broker %d did not answer %s within %.0f s: continuing with the requests behind it",
                    self.broker.id,
                    outgoing.api.name,
                    self._manager.request_timeout_s,
                )
                self._disconnect()
            if self._is_dropped():
                return  # the term or the incarnation is over: the rows may have been reused
            incarnation = (self.broker.id, self.broker.epoch)
            self._manager.on_response(
                BrokerResponse(*incarnation, outgoing.api, version, answer, outgoing.rows, asked, self._silent)
            )
            if self._silent:
                return
            self._answered_us = self._manager.world.clock.wall_time_us()
            if _error_code(answer) == KafkaErrorCode.NONE:
                self.alive_s = begun_s
            # Only the first of two StopReplica requests deletes; the second answer does not show whether it did.
            asked = None

    async def _ensure_connected(self) -> None:
        if self._connection is not None and self._connection.open:
            return
        self._disconnect()
        endpoint = self._manager.endpoint_of(self.broker)
        if endpoint is None:
            raise ConnectionError("it has no endpoint that the controller can use")
        self._connection = await self._manager.connect(endpoint)
        answer = await self._request(ApiKey.API_VERSIONS, 0, ())
        offered = decode_api_versions_response(0, answer).versions
        self.offered = offered
        self.versions = {api: negotiate_api(api, offered) for api in SENT}
        if self._problem:
            log.info("Broker %d can be reached again", self.broker.id)
            self._problem = ""
        self.first_attempt_over.set()

    async def _request(
        self, api: ApiKey, version: int, body: Body, partitions: int = 0, queued_s: float = 0.0
    ) -> bytes:
        """Send one request and return the response body.  Raises OSError, also if no answer comes in time."""
        connection = self._connection
        assert connection is not None
        clock = self._manager.world.clock
        self._silent = False
        self._correlation_id += 1
        header = encode_request_header(api, version, self._correlation_id, CLIENT_ID)

        def give_up() -> None:
            self._silent = True
            connection.close()

        silence = clock.call_later(self._manager.request_timeout_s, give_up)
        started_s = clock.monotonic()
        self._in_flight = True
        size = len(header) + sum(map(len, body))
        self._journal_request(api, version, size, partitions, queued_s)
        try:
            frame = await connection.request([header, *body])
        finally:
            silence.cancel()
            self._in_flight = False
        self._sent += 1
        self._bytes += size + 4
        correlation_id, answer = decode_response_header(api, version, frame)
        if correlation_id != self._correlation_id:
            raise FrameError(
                f"broker {self.broker.id} answered request {correlation_id}, expected {self._correlation_id}"
            )
        self._manager.journal.append(
            "response",
            broker=self.broker.id,
            broker_epoch=self.broker.epoch,
            api=api.name,
            api_version=version,
            correlation_id=self._correlation_id,
            bytes=len(frame),
            code=_error_code(answer) or None,
            duration_us=int((clock.monotonic() - started_s) * 1e6),
        )
        return bytes(answer)

    def _journal_request(self, api: ApiKey, version: int, size: int, partitions: int, queued_s: float) -> None:
        self._manager.journal.append(
            "request",
            broker=self.broker.id,
            broker_epoch=self.broker.epoch,
            api=api.name,
            api_version=version,
            correlation_id=self._correlation_id,
            partitions=partitions,
            bytes=size,
            queue_us=int(queued_s * 1e6),
        )

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _report(self, error: Exception) -> None:
        if not self._problem:  # once per outage: a dead broker is retried ten times a second
            log.warning("Broker %d cannot be reached, retrying while it is registered: %s", self.broker.id, error)
            self._problem = str(error) or type(error).__name__


def _error_code(answer: bytes | memoryview) -> int:
    """The error code, with which every answer handled here begins."""
    return int.from_bytes(answer[:2], "big", signed=True)
