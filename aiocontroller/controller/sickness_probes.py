"""Collects evidence for the judge of sickness: several connections to each broker, each polled continuously.

A single connection shows little: network threads block behind a slow disk, so one broker answers in 3 ms on one
connection and in 2 s on another.  On the first connection a broker is asked where the logs of the watched replicas end
(``LogClient``), on the others only for its ApiVersions.

Observations go to the ``SicknessJudge``; ``changed`` is called when its verdict changes, and the consumer decides
what follows.  Nothing here reads the context: the consumer says what to watch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import anyio
import anyio.abc

from aiocontroller.config import ConfigError
from aiocontroller.controller.broker_client import BrokerClient
from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.controller.log_client import LogClient
from aiocontroller.core.ids import Endpoint, TopicPartition
from aiocontroller.core.sickness import Sickness, SicknessJudge, SicknessLimits
from aiocontroller.core.staleness import Watched
from aiocontroller.journal.journal import Journal
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Timer, World
from aiocontroller.security import Security
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError, UnsupportedApiError

log = logging.getLogger(__name__)

INTERVAL_S = 0.2
CONNECTIONS = 4
PING_S = 0.6
"""Between two requests on a connection that only asks whether the broker answers."""
ANSWER_WITHIN_S = 10.0
RECONNECT_S = 1.0


class Target(NamedTuple):
    """A broker to ask."""

    epoch: int
    endpoint: Endpoint | None


class SicknessProbes:
    """The connections to all brokers, and the judge."""

    def __init__(
        self,
        world: World,
        tasks: anyio.abc.TaskGroup,
        limits: SicknessLimits,
        changed: Callable[[], None],
        *,
        acts: bool,
        metrics: Metrics,
        journal: Journal,
        security: Security,
    ) -> None:
        self.world = world
        self.security = security
        self.judge = SicknessJudge(limits)
        self.acts = acts
        """Whether a broker that is judged sick is also treated."""
        self.next_row = 0
        """Where the search for replicas to watch goes on."""
        self._limits = limits
        self._tasks = tasks
        self._changed = changed
        self._journal = journal
        self._probes: dict[int, tuple[Target, list[_Probe]]] = {}
        self._asked: dict[int, dict[str, list[int]]] = {}
        """Broker -> topic -> partitions whose ends it is asked for."""
        self._timer: Timer | None = None
        self._held: tuple[int, ...] = ()
        self._counted_held = metrics.counter("aiocontroller", "Sickness", "Held")
        self._verdicts = metrics.counter("aiocontroller", "Sickness", "Verdicts")
        metrics.gauge("aiocontroller", "Sickness", "SickBrokers", lambda: int(self.judge.sick is not None))

    def begin(self) -> None:
        """Begin a term: forget everything observed so far."""
        self.stop()
        self.judge = SicknessJudge(self._limits)
        self._held = ()

    def stop(self) -> None:
        """Close all connections; what the judge knows stays."""
        for _, probes in self._probes.values():
            for probe in probes:
                probe.stop()
        self._probes.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(
        self, brokers: Mapping[int, Target], leaving: Collection[int], partitions: Mapping[TopicPartition, Watched]
    ) -> None:
        """Ask these brokers about these partitions; ``leaving``: those that are shutting down or seem to be dead."""
        now_s = self.world.clock.monotonic()
        for broker in [b for b, (target, _) in self._probes.items() if brokers.get(b) != target]:
            for probe in self._probes.pop(broker)[1]:
                probe.stop()
        asked: dict[int, dict[str, list[int]]] = {}
        for (topic, number), watched in partitions.items():
            for broker in (watched.leader, *watched.followers):
                asked.setdefault(broker, {}).setdefault(topic, []).append(number)
        self._asked = asked
        self.judge.watch({broker: target.epoch for broker, target in brokers.items()}, leaving, now_s)
        self.judge.watch_partitions(partitions, now_s)
        for broker, target in brokers.items():
            if broker not in self._probes:
                probes = [_Probe(self, broker, target, connection) for connection in range(CONNECTIONS)]
                self._probes[broker] = (target, probes)
                for probe in probes:
                    self._tasks.start_soon(probe.run, name=f"question {probe.connection} to broker {broker}")
        if self._timer is None and self._probes:
            self._timer = self.world.clock.call_later(INTERVAL_S, self._tick)

    def accused(self, leader: int, followers: Iterable[int]) -> None:
        """The leader has asked to remove these followers from an ISR."""
        for follower in followers:
            self.judge.accused(leader, follower, self.world.clock.monotonic())

    def is_silent(self, broker: int) -> bool:
        """Whether the broker has stopped answering while others answer."""
        return self.judge.is_silent(broker, self.world.clock.monotonic())

    def busy(self) -> list[TopicPartition]:
        """The watched partitions that are being written to."""
        return self.judge.staleness.busy(self.world.clock.monotonic())

    def asked_of(self, broker: int) -> Mapping[str, list[int]]:
        """Topic -> partitions whose ends this broker is asked for."""
        return self._asked.get(broker, {})

    def _tick(self) -> None:
        before = self.judge.sick
        self._timer = self.world.clock.call_later(INTERVAL_S, self._tick)
        changed = self.judge.judge(self.world.clock.monotonic())
        if self.judge.held != self._held:
            self._held = self.judge.held
            if self._held:
                self._counted_held.inc()
                self._journal.append("sickness", event="held", brokers=list(self._held))
                log.warning("Brokers %s seem sick, but too many or too often for a verdict", list(self._held))
        if changed:
            self._report(before, self.judge.sick)
            self._changed()

    def _report(self, before: Sickness | None, now: Sickness | None) -> None:
        if before is not None:
            self._record("well again", before)
            log.warning("Broker %d is no longer sick (%s)", before.broker, before.kind)
        if now is not None:
            self._verdicts.inc()
            self._record("sick", now)
            log.warning("Broker %d is sick, it looks like %s: %s", now.broker, now.kind, now.evidence)

    def _record(self, event: str, sickness: Sickness) -> None:
        self._journal.append(
            "sickness",
            event=event,
            state=sickness.kind,
            broker=sickness.broker,
            broker_epoch=sickness.epoch,
            detail=sickness.evidence,
        )


class _Probe:
    """One connection to one broker."""

    def __init__(self, owner: SicknessProbes, broker: int, target: Target, connection: int) -> None:
        self.connection = connection
        self._owner = owner
        self._broker = broker
        self._target = target
        self._scope = anyio.CancelScope()
        self._open: BrokerConnection | None = None
        self._logs: LogClient | None = None

    def stop(self) -> None:
        self._scope.cancel()
        if self._open is not None:
            self._open.close()

    async def run(self) -> None:
        clock = self._owner.world.clock
        with self._scope:
            await clock.sleep(INTERVAL_S * self.connection)  # spread the requests to a broker over time
            while True:
                try:
                    await self._converse()
                except (OSError, FrameError, UnsupportedApiError):
                    pass  # early detection and the broker's sender report the problem
                finally:
                    self._owner.judge.lost(self._broker, self.connection)
                    if self._open is not None:
                        self._open.close()
                        self._open = None
                await clock.sleep(RECONNECT_S)

    async def _converse(self) -> None:
        owner = self._owner
        if self._target.endpoint is None:
            raise ConnectionError("it has no endpoint that the controller can use")
        try:
            connection = await connect_to_broker(
                owner.world, owner.security, self._target.endpoint, timeout_s=ANSWER_WITHIN_S
            )
        except ConfigError as error:
            raise ConnectionError(str(error)) from error
        self._open = connection
        client = BrokerClient(connection)
        logs = await self._log_client(client) if self.connection == 0 else None
        while True:
            began_s = owner.world.clock.monotonic()
            owner.judge.asked(self._broker, self.connection, began_s)
            silence = owner.world.clock.call_later(ANSWER_WITHIN_S, connection.close)
            try:
                ends = await self._ask(client, logs)
            finally:
                silence.cancel()
            now_s = owner.world.clock.monotonic()
            if not self._scope.cancel_called:
                owner.judge.answered(self._broker, self.connection, now_s, ends)
            every_s = PING_S if logs is None else INTERVAL_S
            await owner.world.clock.sleep(max(began_s + every_s - now_s, INTERVAL_S / 4))

    async def _log_client(self, client: BrokerClient) -> LogClient | None:
        """Return None for a broker too old to report where its logs end."""
        silence = self._owner.world.clock.call_later(ANSWER_WITHIN_S, self._close)
        try:
            return await LogClient.over(client)
        except UnsupportedApiError:
            return None
        finally:
            silence.cancel()

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()

    async def _ask(self, client: BrokerClient, logs: LogClient | None) -> dict[TopicPartition, int] | None:
        asked = self._owner.asked_of(self._broker)
        if logs is None or not asked:
            await client.request(ApiKey.API_VERSIONS, 0, b"")
            return None
        found = await logs.offsets(asked)
        return {partition: listed.offset for partition, listed in found.items() if not listed.error_code}
