"""The consumer: takes one event at a time and passes it to its handler (Kafka's ``KafkaController``).

All failures of events are handled here:
 * the role is lost (``ControllerMovedError``): resign, and read who holds it;
 * the session is gone (``SessionExpiredError``): nothing to do, ``Expire`` is the next event;
 * any other error is a bug.  It costs a reload of the cluster in the same term, but neither the term nor consistency:
   a request is answered with UNKNOWN_SERVER_ERROR, and an event that keeps failing is set aside (``faults``);
 * a bug during the failover: the role is given back, and all candidates contend again, this process included.  When
   that repeats, the process ends with an error: it cannot hold the role.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from aiocontroller.controller import broker_starts, debts, min_isrs, sickness, unclean_recovery
from aiocontroller.controller.channel_manager import BrokerResponse
from aiocontroller.controller.controller_election import ControllerElection
from aiocontroller.controller.event_handlers import GATHERED, HANDLERS, SIGNALS, check_event_types
from aiocontroller.controller.event_queue import QueuedEvent
from aiocontroller.controller.failover import StepFailedError
from aiocontroller.controller.faults import MAX_ERROR_LENGTH, name_of, refuse
from aiocontroller.controller.guard import Guard
from aiocontroller.controller.obeying import apply_settings
from aiocontroller.controller.readiness import Readiness, readiness
from aiocontroller.controller.reassignment import drop_non_replicas_read_again
from aiocontroller.controller.release import RoleRelease
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.story import RecentStory
from aiocontroller.core import events as ev
from aiocontroller.core.apply import apply
from aiocontroller.core.broken_view import offline_by_topic
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import TimeSet
from aiocontroller.core.debts import Deletions
from aiocontroller.core.errors import AioControllerError, ControllerEpochError, ControllerMovedError, KafkaErrorCode
from aiocontroller.core.event_kinds import ControllerState, Event, Reply, Request
from aiocontroller.core.request_descriptions import describe_requests
from aiocontroller.core.states import PartitionState
from aiocontroller.core.topic_deletion import replicas_ineligible_to_delete, replicas_to_delete
from aiocontroller.metrics import Metrics
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.leader_and_isr import decode_leader_and_isr_response
from aiocontroller.wire.stop_replica import StopReplicaResponse, decode_stop_replica_response
from aiocontroller.wire.update_metadata import decode_update_metadata_response
from aiocontroller.zookeeper.client import SessionEvent
from aiocontroller.zookeeper.errors import SessionExpiredError
from aiocontroller.zookeeper.kafka_zk_client import ZNodeChange
from aiocontroller.zookeeper.migration_rollback import RollbackRefusedError

log = logging.getLogger(__name__)

FAULTS_TO_GIVE_UP = 3
FAULT_WINDOW_S = 60.0
"""Window in which failed failovers are counted."""
LONGEST_WAIT_S = 30.0
"""Longest delay before contending again."""
MAX_DEPOSITIONS = 16
"""How many terms in a row may be lost before their failover has completed."""
EVENTS_REMEMBERED = 20
TOPICS_SHOWN = 20
"""How many topics with offline partitions a metric names."""
MAX_GATHERED = 100
COLD = {"state": "cold", "reason": "aiocontroller.standby is cold"}
ZK_MODE = 4
"""Kafka's ``ZkMigrationState`` of a cluster that has not started to migrate."""


class GivingUpError(AioControllerError):
    """This process became the controller several times in a short time and could not load the cluster."""


def _error_text(error: Exception) -> str:
    return (str(error) if isinstance(error, ControllerEpochError) else repr(error))[:MAX_ERROR_LENGTH]


class RecentEvent(msgspec.Struct, frozen=True):
    """An event that was handled, for ``/debug``; times in microseconds."""

    event: str
    state: str
    at_us: int
    queue_us: int
    processing_us: int
    detail: str = ""


class KafkaController:
    """The consumer of events (Kafka's class of this name)."""

    def __init__(self, shell: ControllerShell) -> None:
        self.shell = shell
        self.guard = Guard(shell, lambda: shell.queue.append(ev.GuardChange()))
        self.election = ControllerElection(shell, self.guard)
        self.guard.holder = lambda: self.election.holder
        self._release = RoleRelease(shell, self.election)
        self.story = RecentStory(shell)
        self.recent: deque[RecentEvent] = deque(maxlen=EVENTS_REMEMBERED)
        self.state = ControllerState.Idle
        self.handling = ""
        """The event being handled."""
        self._faults: deque[float] = deque()
        self._stopping = False
        self._queue_time = shell.metrics.timer("kafka.controller", "ControllerEventManager", "EventQueueTimeMs")
        self._timers = {
            state: shell.metrics.timer("kafka.controller", "ControllerStats", state.timer)
            for state in ControllerState
            if state.timer is not None
        }
        self._register_gauges()
        shell.zk.on_change = self._on_change

    # -- inputs: each only enqueues --------------------------------------------------------------------------------

    def _on_change(self, change: ZNodeChange, name: str) -> None:
        signal = SIGNALS.get(change)
        if change is ZNodeChange.TOPIC_DELETED:
            topic = self.shell.context.table.topic_by_name.get(name)
            if topic is not None and not topic.deleting:
                self.shell.auditor.check_soon((name,))  # it may be created again before the event is handled
        if change in (ZNodeChange.BROKER_IDS, ZNodeChange.BROKER):
            self.guard.look_now()
        if signal is not None:
            self.shell.queue.append(signal(name))

    def on_session(self, event: SessionEvent) -> None:
        """Note that the ZooKeeper session has begun, expired, or lost its connection."""
        if event is SessionEvent.SUSPENDED:
            self.shell.cut_off_s = self.shell.world.clock.monotonic()
        elif event is not SessionEvent.EXPIRED:
            again = event is not SessionEvent.CONNECTED
            self.shell.cut_off_s = None
            self.shell.reconnected_s = self.shell.world.clock.monotonic() if again else None
        mirror = self.election.mirror
        if mirror is not None and mirror.on_session(event):
            self.shell.queue.append(ev.ProtocolChange())  # a reload, as changes may have been missed
        if event is SessionEvent.EXPIRED:
            self.shell.queue.clear_and_put(ev.Expire())
        elif event is SessionEvent.NEW_SESSION:
            self.guard.look_now()
            self.shell.queue.append(ev.Reelect())

    def on_response(self, response: BrokerResponse) -> None:
        """Called by senders; a malformed response raises FrameError, which closes the broker's connection."""
        incarnation = (response.broker, response.broker_epoch)
        match response.api:
            case ApiKey.LEADER_AND_ISR:
                answer = decode_leader_and_isr_response(response.version, response.body)
                self.shell.queue.append(
                    ev.LeaderAndIsrResponseReceived(*incarnation, answer.error_code, answer.partitions, response.rows)
                )
            case ApiKey.UPDATE_METADATA:
                code = decode_update_metadata_response(response.version, response.body)
                if code:  # successes are dropped: each AlterPartition would queue one per broker ahead of the next
                    self.shell.queue.append(ev.UpdateMetadataResponseReceived(*incarnation, code))
            case ApiKey.STOP_REPLICA:
                stopped = StopReplicaResponse(KafkaErrorCode.REQUEST_TIMED_OUT, ())
                if not response.silent:
                    stopped = decode_stop_replica_response(response.version, response.body)
                asked = response.asked or Deletions()
                self.shell.queue.append(
                    ev.StopReplicaResponseReceived(*incarnation, stopped.error_code, stopped.partitions, asked)
                )

    @property
    def releasing(self) -> bool:
        """Whether the role is being given back on request."""
        return self._release.in_progress

    # -- the consumer ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Process events until ``ShutdownEventThread``; GivingUpError when bugs repeat."""
        self.shell.owner = asyncio.current_task()
        self.shell.queue.append(ev.Startup())
        while not self._stopping:
            await self._process(await self.shell.queue.get())

    async def _process(self, queued: QueuedEvent) -> None:
        gathered = [queued]
        if type(queued.event) in GATHERED:
            gathered += self.shell.queue.take_more_like(queued.event, MAX_GATHERED - 1)
        faults, brokers = self.shell.faults, self.shell.context.brokers
        suspect = [one for one in gathered if faults.suspect(one.event, brokers)]
        if len(suspect) < len(gathered):
            await self._process_together([one for one in gathered if one not in suspect])
        for one in suspect:
            if faults.is_set_aside(one.event, self.shell.context.brokers):
                faults.refuse(one.event)
            else:
                await self._process_together([one])

    async def _process_together(self, gathered: Sequence[QueuedEvent]) -> None:
        clock = self.shell.world.clock
        events = [one.event for one in gathered]
        started_s = clock.monotonic()
        self.state, self.handling = events[0].state, type(events[0]).__name__
        for one in gathered:
            self._queue_time.observe(started_s - one.enqueued_s)
        apply(self.shell.context, TimeSet(clock.wall_time_us()))
        detail = ""
        try:
            await self._handle(events)
            for event in events:
                self.shell.faults.succeeded(event)
        except Exception as error:
            detail = await self._recover(events, error)
        finally:
            self.state, self.handling = ControllerState.Idle, ""
        self._release.settle()
        for event in events:
            if isinstance(event, Request) and not event.reply.deferred:
                event.reply.ensure(KafkaErrorCode.UNKNOWN_SERVER_ERROR)
        self._record_events(gathered, started_s, clock.monotonic(), detail)

    async def _recover(self, events: Sequence[Event], error: Exception) -> str:
        """Recover from an error; returns a description for the journal.

        Recovering may itself fail: the next term may end before its failover is done, or its failover may fail.
        """
        lost = isinstance(error, (SessionExpiredError, ControllerMovedError))
        for event in events:
            refuse(event, KafkaErrorCode.NOT_CONTROLLER if lost else KafkaErrorCode.UNKNOWN_SERVER_ERROR)
        name = type(events[0]).__name__
        for _ in range(MAX_DEPOSITIONS):
            try:
                if isinstance(error, SessionExpiredError):
                    return "session expired"  # Expire waits in the queue
                if isinstance(error, ControllerMovedError):
                    log.info("Controller moved while processing %s: %s", name, error)
                    await self.election.step_down()
                    return "controller moved"
                await self._fault(events, error)
                return f"fault: {_error_text(error)}"
            except GivingUpError:
                raise
            except Exception as another:
                error, events = another, ()
        raise GivingUpError(f"deposed {MAX_DEPOSITIONS} times in a row, last: {error!r}") from error

    async def _handle(self, events: Sequence[Event]) -> None:
        event = events[0]
        if isinstance(event, Request) and event.holds is not None and not await event.holds():
            refuse(event, KafkaErrorCode.INVALID_REQUEST)
        elif (handle := ELECTION_HANDLERS.get(type(event))) is not None:
            await handle(self, event)
        elif not self.election.active:
            for refused in events:
                refuse(refused, KafkaErrorCode.NOT_CONTROLLER)
        elif (handle_together := GATHERED.get(type(event))) is not None:
            await handle_together(self.shell, events)
        elif type(event) in RELOADS:
            await self._reload()
        else:
            await HANDLERS[type(event)](self.shell, event)
        if self.shell.context.read_with_non_replicas and self.election.active:
            await drop_non_replicas_read_again(self.shell)
        if self.election.active:
            min_isrs.follow(self.shell)

    # -- events of elections, failovers and resignations -----------------------------------------------------------

    async def _startup(self, _: ev.Startup) -> None:
        await self.election.startup()

    async def _controller_change(self, _: ev.ControllerChange) -> None:
        await self.election.maybe_resign()
        if self.election.may_contend:
            # Created and deleted before the watch was re-armed: no other event will come (Kafka keeps standing by).
            await self.election.stand()

    async def _reelect(self, event: ev.Reelect) -> None:
        if event.vacant and await self.election.seize():
            return
        await self.election.maybe_resign()
        await self.election.stand()

    async def _controller_suspected(self, _: ev.ControllerSuspected) -> None:
        await self.election.replace_suspect()

    async def _expire(self, _: ev.Expire) -> None:
        await self.election.expire()

    async def _begin_release(self, event: ev.Release) -> None:
        await self._release.begin(event)

    async def _go_on_releasing(self, _: ev.GoOnReleasing) -> None:
        await self._release.go_on()

    async def _shutdown(self, _: ev.ShutdownEventThread) -> None:
        self._stopping = True
        await self.election.shutdown()

    async def _take_over(self, event: ev.TakeOver) -> None:
        event.reply.answer(await self._take_over_keeping(event.keep_ours))

    async def _roll_back(self, event: ev.RollBack) -> None:
        if self.election.active:
            event.reply.answer("this controller is active already: there is nothing to roll back")
            return
        try:
            event.reply.answer(await self.election.roll_back(dry_run=event.dry_run, force=event.force))
        except (RollbackRefusedError, ControllerEpochError) as error:
            event.reply.answer(str(error))

    async def _take_over_keeping(self, keep_ours: Sequence[str]) -> list[str]:
        """Take over, keeping our values of these settings until the process ends; undone if the takeover is refused."""
        settings = self.shell.settings
        before = settings.keep_ours
        settings.insist([*before, *keep_ours])
        reasons = await self.election.take_over()
        if reasons:
            settings.insist(before)
        else:
            apply_settings(self.shell)
        return reasons

    async def _guard_change(self, _: ev.GuardChange) -> None:
        """Retry a refused election, or give back a role that the guard's rules forbid."""
        if not self.election.active:
            await self.election.stand()
            return
        apply_settings(self.shell)
        reasons = self.guard.reasons_to_resign
        if reasons and not self._release.in_progress:
            for reason in reasons:
                log.error("Giving the role back: %s", reason.text)
            await self._release.begin(ev.Release(reply=Reply(lambda _: None), for_good=False))

    async def _fault(self, events: Sequence[Event], error: Exception) -> None:
        """Handle the failure of ``events``, or, without events, of a failover or reload."""
        if isinstance(error, StepFailedError):
            events, error = [error.event], error.error
        name = name_of(events[0]) if events else "failover"
        self.shell.journal.append("fault", event=name.partition(" ")[0], detail=_error_text(error))
        if not events or type(events[0]) in ENDS_THE_TERM or not self.election.active:
            if isinstance(error, ControllerEpochError):
                log.error("Not taking the role: %s", error)
            else:
                log.error("Bug while processing %s: giving the role back", name, exc_info=error)
            await self._give_back(error)
            return
        log.error("Bug while processing %s: reloading the cluster", name, exc_info=error)
        faults, brokers = self.shell.faults, list(self.shell.context.brokers)
        for event in events:
            delay_s = faults.failed(event, error, brokers)
            if delay_s:
                log.error("%s is set aside for %.0f s", name_of(event), delay_s)
        await self._reload()

    async def _reload(self) -> None:
        """Reload after a fault, or when the last broker has changed its protocol version.

        Features, topic ids and the requests about them depend on that version.  In Kafka, a new controller reads it.
        """
        await self.election.reload()
        self.shell.faults.schedule_retries(self.shell.queue)
        self._release.resume()

    async def _give_back(self, error: Exception) -> None:
        """Resign if active, and contend again after a delay, so that other candidates can win."""
        now_s = self.shell.world.clock.monotonic()
        self.shell.faults.failed_events.inc()
        self._faults.append(now_s)
        while self._faults[0] < now_s - FAULT_WINDOW_S:
            self._faults.popleft()
        was_active = self.election.active
        await self.election.trigger_controller_move()
        self.election.failure = f"the failover failed: {_error_text(error)}"
        if was_active and len(self._faults) >= FAULTS_TO_GIVE_UP:
            raise GivingUpError(
                f"{len(self._faults)} faults within {FAULT_WINDOW_S:.0f} s during failovers, last: {error!r}"
            ) from error
        delay_s = min(2.0 ** (len(self._faults) - 1), LONGEST_WAIT_S)
        self.shell.queue.schedule("contend again", delay_s, ev.Reelect())

    # -- status and metrics ----------------------------------------------------------------------------------------

    def _record_events(self, gathered: Sequence[QueuedEvent], started_s: float, ended_s: float, detail: str) -> None:
        """Record handled events; events handled together are one record, with the longest wait as ``queue_us``."""
        asked = describe_requests(queued.event for queued in gathered)
        self.story.event_ended(int((ended_s - started_s) * 1e6), detail, asked)
        state = gathered[0].event.state
        if state in self._timers:
            self._timers[state].observe(ended_s - started_s)
        if gathered[0].event.is_routine and not detail:
            return
        name = type(gathered[0].event).__name__
        queue_us, processing_us = int((started_s - gathered[0].enqueued_s) * 1e6), int((ended_s - started_s) * 1e6)
        self.shell.journal.append(
            "event",
            event=name,
            state=state.name,
            count=len(gathered) if len(gathered) > 1 else None,
            queue_us=queue_us,
            processing_us=processing_us,
            requested=asked or None,
            detail=detail or None,
        )
        self.recent.append(
            RecentEvent(name, state.name, self.shell.world.clock.wall_time_us(), queue_us, processing_us, detail)
        )

    def readiness(self) -> Readiness:
        """Whether this process can be, or become, the controller."""
        return readiness(self.shell, self.election, self.guard)

    def status(self) -> dict[str, Any]:
        """The controller's status as JSON values; counts cover this term only."""
        shell, table = self.shell, self.shell.context.table
        return {
            "id": shell.id,
            "active": self.election.active_and_connected,
            "holder": None if self.election.holder is None else self.election.holder.controller_id,
            "observing": self.election.observing,
            "refusals": list(self.election.refusals),
            "readiness": msgspec.structs.asdict(self.readiness()),
            "unanswered_brokers": self.guard.survey.unanswered,
            "epoch": shell.context.epoch,
            "since_us": self.election.since_us,
            "live_brokers": sorted(shell.context.live),
            "shutting_down": list(shell.context.shutting_down),
            "standing_by_for": self.election.standing_by_for,
            "unsent_partitions": 0 if shell.full_metadata is None else shell.full_metadata.left,
            "standby": COLD if self.election.mirror is None else self.election.mirror.status(),
            "suspected": list(shell.context.suspected),
            "sick": sickness.status(shell),
            "settings": shell.settings.summary(),
            "queue_size": len(shell.queue),
            "set_aside": shell.faults.status(),
            "debts": debts.status(shell),
            "eligible_replicas": broker_starts.status(shell),
            "recovery": unclean_recovery.status(shell),
            "audit": shell.auditor.status(),
            "topics": len(table.topic_by_name),
            "partitions": len(table),
            "offline_partitions": self._offline_partitions(),
            "preferred_replica_imbalance": table.preferred_replica_imbalance,
            "events": [msgspec.structs.asdict(event) for event in self.recent],
        }

    def _offline_partitions(self) -> int:
        """Kafka's ``OfflinePartitionsCount``, without partitions that never had a leader (New)."""
        return self.shell.context.table.count_by_state[PartitionState.OfflinePartition]

    def _register_gauges(self) -> None:
        shell = self.shell
        gauges: dict[str, Callable[[], float]] = {
            "ActiveControllerCount": lambda: int(self.election.active_and_connected),
            "OfflinePartitionsCount": self._offline_partitions,
            "PreferredReplicaImbalanceCount": lambda: shell.context.table.preferred_replica_imbalance,
            "ControllerState": lambda: int(self.state),
            "GlobalTopicCount": lambda: len(shell.context.table.topic_by_name),
            "GlobalPartitionCount": lambda: shell.context.table.leadership_count,
            "TopicsToDeleteCount": lambda: len(shell.context.topics_to_be_deleted),
            "TopicsIneligibleToDeleteCount": lambda: len(shell.context.topics_ineligible_for_deletion),
            "ReplicasToDeleteCount": lambda: replicas_to_delete(shell.context),
            "ReplicasIneligibleToDeleteCount": lambda: replicas_ineligible_to_delete(shell.context),
            "ZkMigrationState": lambda: ZK_MODE,
            "ActiveBrokerCount": lambda: len(shell.context.brokers),
            "FencedBrokerCount": lambda: 0,
        }
        for name, read in gauges.items():
            shell.metrics.gauge("kafka.controller", "KafkaController", name, read)
        shell.metrics.gauge("kafka.controller", "ControllerEventManager", "EventQueueSize", lambda: len(shell.queue))
        for name, count in {
            "Signals": lambda: shell.queue.statistics().signals,
            "ClientRequests": lambda: shell.queue.statistics().client_requests,
            "RefusedClientRequests": lambda: shell.queue.statistics().refused,
        }.items():
            shell.metrics.gauge("aiocontroller", "EventQueue", name, count)
        shell.metrics.gauge("aiocontroller", "Readiness", "Ready", lambda: int(self.readiness().ready))
        shell.metrics.gauge("aiocontroller", "Debts", "ReplicasToDelete", lambda: len(shell.context.debts))
        eligible = {
            "PartitionsWithLeader": lambda: broker_starts.status(shell)["led"],
            "PartitionsWithoutLeader": lambda: broker_starts.status(shell)["leaderless"],
        }
        for name, read in eligible.items():
            shell.metrics.gauge("aiocontroller", "EligibleReplicas", name, read)
        register_broken_partitions(shell.metrics, lambda: shell.context)


def register_broken_partitions(metrics: Metrics, context: Callable[[], ControllerContext]) -> None:
    """Register metrics of what is broken; in Kafka, each broker counts the partitions that it leads."""
    broken = {
        ("kafka.server", "ReplicaManager", "UnderReplicatedPartitions"): lambda: (
            context().table.broken.under_replicated
        ),
        ("kafka.server", "ReplicaManager", "UnderMinIsrPartitionCount"): lambda: context().table.broken.under_min_isr,
        ("aiocontroller", "Partitions", "UnreadTopics"): lambda: context().table.broken.unread,
    }
    for name, read in broken.items():
        metrics.gauge(*name, lambda read=read: len(read()))  # type: ignore[misc]
    metrics.gauges("aiocontroller", "Partitions", "Offline", "topic", lambda: offline_by_topic(context(), TOPICS_SHOWN))


ELECTION_HANDLERS: dict[type[Event], Callable[[KafkaController, Any], Awaitable[object]]] = {
    ev.Startup: KafkaController._startup,
    ev.ControllerChange: KafkaController._controller_change,
    ev.Reelect: KafkaController._reelect,
    ev.ControllerSuspected: KafkaController._controller_suspected,
    ev.Expire: KafkaController._expire,
    ev.TakeOver: KafkaController._take_over,
    ev.RollBack: KafkaController._roll_back,
    ev.GuardChange: KafkaController._guard_change,
    ev.Release: KafkaController._begin_release,
    ev.GoOnReleasing: KafkaController._go_on_releasing,
    ev.ShutdownEventThread: KafkaController._shutdown,
}
"""Handled whether this controller is active or not: elections, failovers and resignations."""
ENDS_THE_TERM = frozenset(ELECTION_HANDLERS).difference((ev.Release,))
"""When one of these fails, the term ends."""
RELOADS = frozenset((ev.ProtocolChange,))
"""These restart the term."""

check_event_types((ELECTION_HANDLERS, RELOADS, HANDLERS, GATHERED))
