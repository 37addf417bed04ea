"""Heartbeat connections, the input of early detection.

Each peer has a connection of its own, so that a heartbeat never waits behind a large request.  It is always being
read, since only a reader notices the end of a stream.  A heartbeat is an ApiVersions request, the cheapest that every
broker answers (about 50 µs).  In the mode ``full`` each peer gets one every ``interval_s``; in ``refused`` only after
connecting, and while it is suspected.  Controllers always get them: one that is cut off from ZooKeeper hands its role
over by answering NOT_CONTROLLER.  A standby's heartbeats to the active controller also report which brokers it hears
(``core.witness``).

Observations go to the ``FailureDetector``; ``changed`` is called when its suspects change.  Nothing is decided here.
Each suspicion, and each withholding of evidence, is counted and recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

import anyio
import anyio.abc

from aiocontroller.config import ConfigError
from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.failure_detector import FailureDetector, Suspicion
from aiocontroller.core.ids import Endpoint
from aiocontroller.core.witness import with_hearing
from aiocontroller.journal.journal import Journal
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Timer, World
from aiocontroller.security import Security
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import FrameError, decode_response_header, encode_request_header

log = logging.getLogger(__name__)

CLIENT_ID = "aiocontroller-heartbeat"
GIVES_UP = int(KafkaErrorCode.NOT_CONTROLLER).to_bytes(2, "big")
"""The error code at the start of an answer by which a controller hands over its role."""
RECONNECT_S = 0.03
"""Pause between attempts to connect to a peer that is not suspected, so that two refusals fit into 100 ms."""
ANSWER_WITHIN_S = 3.0
"""When to give up a connection: TCP may take minutes to retransmit lost packets."""


class Heartbeats:
    """``kind`` of peer, for records: ``broker`` or ``controller``.  ``changed`` is called when the suspects change."""

    def __init__(
        self,
        world: World,
        tasks: anyio.abc.TaskGroup,
        detector: FailureDetector,
        changed: Callable[[], None],
        *,
        kind: str,
        interval_s: float,
        metrics: Metrics,
        journal: Journal,
        security: Security,
    ) -> None:
        self.world = world
        self.security = security
        self.kind = kind
        self.journal = journal
        self._suspicions = metrics.counter("aiocontroller", "EarlyDetection", "Suspicions", tags={"peer": kind})
        self._held = metrics.counter("aiocontroller", "EarlyDetection", "Held", tags={"peer": kind})
        self.detector = detector
        self.interval_s = interval_s
        self.always = detector.limits.silence_s is not None
        """Whether silence is evidence."""
        self._tasks = tasks
        self._changed = changed
        self.speaks_for: Callable[[], Sequence[tuple[int, int]]] = tuple
        """The (broker, epoch) pairs that we hear, reported in every heartbeat to a controller."""
        self._probes: dict[int, _Probe] = {}
        self._timer: Timer | None = None

    def watch(
        self, peer: int, epoch: int, endpoint_of: Callable[[], Endpoint | None], *, settled: bool = False
    ) -> None:
        """Watch a peer; ``settled``: it was there before this process started watching.

        What is known of a peer that is already being watched is kept, unless this is another incarnation.
        """
        known = self.detector.peers.get(peer)
        if known is not None and known.epoch == epoch:
            self._probes[peer].endpoint_of = endpoint_of
            known.settled = known.settled or settled
            return
        self.forget(peer)
        self.detector.watch(peer, epoch, self.world.clock.monotonic(), settled=settled)
        probe = self._probes[peer] = _Probe(self, peer, endpoint_of)
        self._tasks.start_soon(probe.run, name=f"heartbeats of {peer}")
        if self.always and self._timer is None:
            self._tick()

    def forget(self, peer: int) -> None:
        """Stop watching the peer."""
        probe = self._probes.pop(peer, None)
        if probe is not None:
            probe.stop()
        if self.detector.forget(peer) is not None:
            self._changed()

    def keep_only(self, peers: Collection[int]) -> None:
        """Stop watching all other peers."""
        for peer in [peer for peer in self._probes if peer not in peers]:
            self.forget(peer)

    def stop(self) -> None:
        """Stop watching all peers."""
        for peer in list(self._probes):
            self._probes.pop(peer).stop()
            self.detector.forget(peer)
        self._cancel()

    def suspects(self) -> dict[int, Suspicion]:
        """Peer -> why it is suspected."""
        return self.detector.suspects()

    def confirm(self, peer: int) -> bool:
        """Whether the peer is suspected, to be asked before anybody acts on it."""
        return self.detector.confirm(peer, self.world.clock.monotonic())

    def answers_again(self, peer: int) -> bool:
        """Whether a suspect answers now, although it is not trusted yet."""
        return self.detector.answers_again(peer, self.world.clock.monotonic())

    @property
    def suspects_own_network(self) -> bool:
        """Whether so many peers seem to be away that our own network may be at fault."""
        return self.detector.suspects_own_network

    def hears(self) -> Sequence[tuple[int, int]]:
        """The (peer, epoch) pairs of peers that answer us."""
        return self.detector.hears(self.world.clock.monotonic())

    def vouched(self, hearing: Mapping[int, int]) -> None:
        """Another controller hears these peers (peer -> epoch)."""
        now_s = self.world.clock.monotonic()
        for peer, epoch in hearing.items():
            self.detector.vouched(peer, epoch, now_s)

    def refusing_s(self, peer: int) -> float:
        """For how long the peer has refused connections without a break; 0 while it accepts them."""
        return self.detector.refusing_s(peer, self.world.clock.monotonic())

    def look(self) -> None:
        """Judge the evidence, and report suspects that have changed."""
        before, held, elsewhere = self.detector.suspects(), self.detector.held, self.detector.heard_elsewhere
        changed = self.detector.judge(self.world.clock.monotonic())
        for peer in sorted(self.detector.heard_elsewhere - elsewhere):
            log.warning("The link to %s %d is cut: we hear nothing from it, but a standby does", self.kind, peer)
            epoch = self.detector.peers[peer].epoch
            self.journal.append("suspicion", event="heard elsewhere", state=self.kind, broker=peer, broker_epoch=epoch)
        if self.detector.held and not held:
            self._held.inc()
            self.journal.append("suspicion", event="held", state=self.kind, count=self.detector.in_doubt)
        if not changed:
            return
        for suspicion in self.suspects().values():
            if suspicion.peer not in before:
                self._suspicions.inc()
                self._record("suspected", suspicion)
        self._changed()

    def _record(self, event: str, suspicion: Suspicion) -> None:
        self.journal.append(
            "suspicion",
            event=event,
            state=self.kind,
            broker=suspicion.peer,
            broker_epoch=suspicion.epoch,
            duration_us=int(suspicion.quiet_s * 1e6),
            detail=suspicion.reason,
        )

    def _tick(self) -> None:
        """Check for silence, which no event reports."""
        self._timer = None
        if self._probes:
            self.look()
            self._timer = self.world.clock.call_later(self.interval_s, self._tick)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Probe:
    """The one connection to one peer."""

    def __init__(self, heartbeats: Heartbeats, peer: int, endpoint_of: Callable[[], Endpoint | None]) -> None:
        self._heartbeats = heartbeats
        self._peer = peer
        self.endpoint_of = endpoint_of
        self._scope = anyio.CancelScope()
        self._connection: BrokerConnection | None = None
        self._correlation_id = 0

    def stop(self) -> None:
        self._scope.cancel()
        if self._connection is not None:
            self._connection.close()

    async def run(self) -> None:
        detector, clock = self._heartbeats.detector, self._heartbeats.world.clock
        with self._scope:
            while True:
                pause_s = RECONNECT_S
                try:
                    await self._connect()
                    pause_s = 0.0  # it was up a moment ago
                    await self._converse()
                except ConnectionRefusedError:
                    self._saw(lambda now_s: detector.refused(self._peer, now_s))
                except (OSError, FrameError):
                    self._saw(lambda _: detector.lost(self._peer))
                finally:
                    self._disconnect()
                await clock.sleep(self._heartbeats.interval_s if self._is_suspected() else pause_s)

    async def _connect(self) -> None:
        """Connect and send the first heartbeat: a listener that accepts a connection and resets it does not count."""
        heartbeats = self._heartbeats
        endpoint = self.endpoint_of()
        if endpoint is None:
            raise ConnectionError("it has no endpoint that the controller can use")
        try:
            self._connection = await connect_to_broker(
                heartbeats.world, heartbeats.security, endpoint, timeout_s=ANSWER_WITHIN_S
            )
        except ConfigError as error:
            raise ConnectionError(str(error)) from error  # its sender reports it
        self._saw(lambda _: heartbeats.detector.connected(self._peer))
        await self._heartbeat(self._connection)

    async def _converse(self) -> None:
        """Exchange heartbeats until the connection ends."""
        connection = self._connection
        assert connection is not None
        while True:
            woken = anyio.Event()
            connection.on_lost = woken.set
            timer = None
            if self._heartbeats.always or self._heartbeats.kind == "controller" or self._is_suspected():
                timer = self._heartbeats.world.clock.call_later(self._heartbeats.interval_s, woken.set)
            try:
                if connection.open:
                    await woken.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            await self._heartbeat(connection)

    async def _heartbeat(self, connection: BrokerConnection) -> None:
        """Exchange one heartbeat; OSError when the connection ends, or is closed after a long silence."""
        heartbeats = self._heartbeats
        self._correlation_id += 1
        client_id = with_hearing(CLIENT_ID, heartbeats.speaks_for()) if heartbeats.kind == "controller" else CLIENT_ID
        header = encode_request_header(ApiKey.API_VERSIONS, 0, self._correlation_id, client_id)
        timer = heartbeats.world.clock.call_later(ANSWER_WITHIN_S, connection.close)
        try:
            frame = await connection.request([header])
        finally:
            timer.cancel()
        correlation_id, body = decode_response_header(ApiKey.API_VERSIONS, 0, frame)
        if correlation_id != self._correlation_id:
            raise FrameError(f"peer {self._peer} answered {correlation_id}, expected {self._correlation_id}")
        if heartbeats.kind == "controller" and bytes(body[:2]) == GIVES_UP:
            self._saw(lambda now_s: heartbeats.detector.gave_up(self._peer, now_s))
            return
        self._saw(lambda now_s: heartbeats.detector.answered(self._peer, now_s))

    def _saw(self, report: Callable[[float], None]) -> None:
        """Report an observation, unless this probe was stopped: another probe may be watching the peer by now."""
        if not self._scope.cancel_called:
            report(self._heartbeats.world.clock.monotonic())
            self._heartbeats.look()

    def _is_suspected(self) -> bool:
        return self._peer in self._heartbeats.suspects()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
