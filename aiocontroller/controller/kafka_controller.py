"""The consumer: takes one event at a time and gives it to its handler (Kafka's ``KafkaController``).

Everything that may go wrong with an event ends here, in one place:
 * the role is gone (``ControllerMovedError``): resign, and look who has it;
 * the session is gone (``SessionExpiredError``): nothing to do, ``Expire`` is the next event;
 * anything else is a bug.  It costs a reload of the cluster in the same term, never the term and never a silent
   divergence: what was asked is answered with UNKNOWN_SERVER_ERROR, and what keeps failing is set aside (``faults``);
 * a bug on the way into office: the role is given back, and everybody contends again, this process too.  When that
   repeats, the process gives up with an error: it cannot hold the role.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from aiocontroller.controller import (
    brokers,
    controlled_shutdown,
    delegation_tokens,
    failover,
    fast_bounce,
    features,
    isr,
    leader_elections,
    log_dirs,
    own_replicas,
    producer_ids,
    reassignment,
    suspicions,
    topic_admin,
    topic_deletion,
    topics,
    unclean_elections,
    user_scram_credentials,
)
from aiocontroller.controller.channel_manager import Response
from aiocontroller.controller.controller_election import ControllerElection
from aiocontroller.controller.event_queue import QueuedEvent
from aiocontroller.controller.failover import StepFailedError
from aiocontroller.controller.faults import MAX_ERROR_LENGTH, name_of, refuse
from aiocontroller.controller.guard import Guard
from aiocontroller.controller.readiness import Readiness, readiness
from aiocontroller.controller.release import RoleRelease
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import events as ev
from aiocontroller.core.errors import AioControllerError, ControllerMovedError, KafkaErrorCode
from aiocontroller.core.states import PartitionState
from aiocontroller.core.topic_deletion import replicas_ineligible_to_delete, replicas_to_delete
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.leader_and_isr import decode_leader_and_isr_response
from aiocontroller.wire.stop_replica import decode_stop_replica_response
from aiocontroller.wire.update_metadata import decode_update_metadata_response
from aiocontroller.zookeeper.client import SessionEvent
from aiocontroller.zookeeper.errors import SessionExpiredError
from aiocontroller.zookeeper.kafka_zk_client import Change

log = logging.getLogger(__name__)

FAULTS_TO_GIVE_UP = 3
FAULT_WINDOW_S = 60.0
"""Of failed ways into office."""
LONGEST_WAIT_S = 30.0
"""Before the next of them."""
MAX_DEPOSITIONS = 16
"""Terms that end one after the other before they have really begun."""
EVENTS_REMEMBERED = 20
MAX_GATHERED = 100
ZK_MODE = 4
"""Kafka's ``ZkMigrationState`` of a cluster that has not begun to migrate."""

Handler = Callable[[ControllerShell, Any], Awaitable[object]]

HANDLERS: dict[type[ev.Event], Handler] = {
    ev.BrokerChange: brokers.broker_change,
    ev.BrokerModifications: brokers.broker_modifications,
    ev.TopicChange: topics.topic_change,
    ev.IsrChangeNotification: isr.isr_change_notification,
    ev.LeaderAndIsrResponseReceived: isr.leader_and_isr_response_received,
    ev.UpdateMetadataResponseReceived: isr.update_metadata_response_received,
    ev.StopReplicaResponseReceived: log_dirs.stop_replica_response_received,
    ev.CreateTopics: topic_admin.create_topics,
    ev.CreatePartitions: topic_admin.create_partitions,
    ev.DeleteTopics: topic_admin.delete_topics,
    ev.TopicDeletion: topic_deletion.topic_deletion,
    ev.LogDirEventNotification: log_dirs.log_dir_event_notification,
    ev.ZkPartitionReassignment: reassignment.zk_partition_reassignment,
    ev.OwnReplicas: own_replicas.move_own_replicas,
    ev.ApiPartitionReassignment: reassignment.api_partition_reassignment,
    ev.ListPartitionReassignments: reassignment.list_partition_reassignments,
    ev.ReplicaLeaderElection: leader_elections.replica_leader_election,
    ev.ZkPreferredReplicaElection: leader_elections.zk_preferred_replica_election,
    ev.ConfigChange: unclean_elections.config_change,
    ev.UncleanLeaderElectionEnable: unclean_elections.unclean_leader_election_enable,
    ev.TopicUncleanLeaderElectionEnable: unclean_elections.topic_unclean_leader_election_enable,
    ev.AutoPreferredReplicaLeaderElection: leader_elections.auto_preferred_replica_leader_election,
    ev.OfflinePartitionsSweep: leader_elections.offline_partitions_sweep,
    ev.ControlledShutdown: controlled_shutdown.controlled_shutdown,
    ev.SuspectsChange: suspicions.suspects_change,
    ev.StaleRegistration: fast_bounce.remove_stale_registration,
    ev.ExpireDelegationTokens: delegation_tokens.expire_delegation_tokens,
    ev.AllocateProducerIds: producer_ids.allocate_producer_ids,
    ev.AlterUserScramCredentials: user_scram_credentials.alter_user_scram_credentials,
    ev.UpdateFeatures: features.update_features,
    ev.FailoverStep: failover.failover_step,
}
"""What only the active controller does; while standing by these events are dropped, requests among them refused."""

GATHERED: dict[type[ev.Event], Callable[[ControllerShell, Sequence[Any]], Awaitable[object]]] = {
    ev.AlterPartitionReceived: isr.alter_partition,
    ev.PartitionModifications: topics.partition_modifications,
}
"""The same, of events that are handled together when they stand one after the other: one write, one round of requests.

Many brokers lose a follower at once, an operator expands many topics: then it is what makes us fast.
"""

SIGNALS: dict[Change, Callable[[str], ev.Event]] = {
    Change.CONTROLLER_CHANGED: lambda _: ev.ControllerChange(),
    Change.CONTROLLER_DELETED: lambda _: ev.Reelect(),
    Change.BROKER_IDS: lambda _: ev.BrokerChange(),
    Change.BROKER: lambda name: ev.BrokerModifications(int(name)),
    Change.TOPICS: lambda _: ev.TopicChange(),
    Change.TOPIC: ev.PartitionModifications,
    Change.ISR_CHANGE: lambda _: ev.IsrChangeNotification(),
    Change.TOPIC_DELETIONS: lambda _: ev.TopicDeletion(),
    Change.LOG_DIR_EVENT: lambda _: ev.LogDirEventNotification(),
    Change.REASSIGN_PARTITIONS: lambda _: ev.ZkPartitionReassignment(),
    Change.PREFERRED_ELECTION: lambda _: ev.ZkPreferredReplicaElection(),
    Change.CONFIG_CHANGES: lambda _: ev.ConfigChange(),
}
"""What a change in ZooKeeper puts into the queue."""


OF_OFFICE = (
    ev.Startup,
    ev.ControllerChange,
    ev.Reelect,
    ev.ControllerSuspected,
    ev.Expire,
    ev.TakeOver,
    ev.GoOnReleasing,
    ev.GuardChange,
    ev.ShutdownEventThread,
)
"""Events on the way into office and out of it: when one fails, there is no term to go on with."""


class GivingUpError(AioControllerError):
    """This process came into office several times in a short time and could not load the cluster."""


def _short(error: Exception) -> str:
    return repr(error)[:MAX_ERROR_LENGTH]


class RecentEvent(msgspec.Struct, frozen=True):
    event: str
    state: str
    at_us: int
    queue_us: int
    processing_us: int
    detail: str = ""


class KafkaController:
    def __init__(self, shell: ControllerShell) -> None:
        self.shell = shell
        self.guard = Guard(shell, lambda: shell.queue.append(ev.GuardChange()))
        self.election = ControllerElection(shell, self.guard)
        self.guard.holder = lambda: self.election.holder
        self._release = RoleRelease(shell, self.election)
        self.recent: deque[RecentEvent] = deque(maxlen=EVENTS_REMEMBERED)
        self.state = ev.ControllerState.Idle
        self.handling = ""
        """The event in hand."""
        self._faults: deque[float] = deque()
        self._stopping = False
        self._queue_time = shell.metrics.timer("kafka.controller", "ControllerEventManager", "EventQueueTimeMs")
        self._timers = {
            state: shell.metrics.timer("kafka.controller", "ControllerStats", state.timer)
            for state in ev.ControllerState
            if state.timer is not None
        }
        self._register_gauges()
        shell.zk.on_change = self._on_change

    # -- inputs: each does nothing but enqueue ---------------------------------------------------------------------

    def _on_change(self, change: Change, name: str) -> None:
        signal = SIGNALS.get(change)
        if change in (Change.BROKER_IDS, Change.BROKER):
            self.guard.look_now()
        if signal is not None:
            self.shell.queue.append(signal(name))

    def on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self.shell.queue.clear_and_put(ev.Expire())
        elif event is SessionEvent.NEW_SESSION:
            self.guard.look_now()
            self.shell.queue.append(ev.Reelect())

    def on_response(self, response: Response) -> None:
        """Called by senders; a broker's malformed answer raises FrameError, which costs it its connection."""
        who = (response.broker, response.broker_epoch)
        match response.api:
            case ApiKey.LEADER_AND_ISR:
                answer = decode_leader_and_isr_response(response.version, response.body)
                self.shell.queue.append(
                    ev.LeaderAndIsrResponseReceived(*who, answer.error_code, answer.partitions, response.pids)
                )
            case ApiKey.UPDATE_METADATA:
                code = decode_update_metadata_response(response.version, response.body)
                if code:  # ten brokers' assent to each AlterPartition would stand before the next one
                    self.shell.queue.append(ev.UpdateMetadataResponseReceived(*who, code))
            case ApiKey.STOP_REPLICA:
                stopped = decode_stop_replica_response(response.version, response.body)
                self.shell.queue.append(
                    ev.StopReplicaResponseReceived(*who, stopped.error_code, stopped.partitions, response.pids)
                )

    @property
    def releasing(self) -> bool:
        """The role is being given back on somebody's word."""
        return self._release.under_way

    # -- the consumer ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Process events until ``ShutdownEventThread``; GivingUpError when bugs repeat."""
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
        detail = ""
        try:
            await self._handle(events)
            for event in events:
                self.shell.faults.succeeded(event)
        except Exception as error:
            detail = await self._recover(events, error)
        finally:
            self.state, self.handling = ev.ControllerState.Idle, ""
        self._release.settle()
        for event in events:
            if isinstance(event, ev.Request) and not event.reply.deferred:
                event.reply.ensure(KafkaErrorCode.UNKNOWN_SERVER_ERROR)
        self._account(gathered, started_s, clock.monotonic(), detail)

    async def _recover(self, events: Sequence[ev.Event], error: Exception) -> str:
        """Out of trouble, whatever meets us on the way; what it was, for the records.

        The next term, too, may be over before its failover is done, and its failover may have a bug.
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
                return f"fault: {_short(error)}"
            except GivingUpError:
                raise
            except Exception as another:
                error, events = another, ()
        raise GivingUpError(f"deposed {MAX_DEPOSITIONS} times on end, the last: {error!r}") from error

    async def _handle(self, events: Sequence[ev.Event]) -> None:
        event = events[0]
        match event:
            case ev.Startup():
                await self.election.startup()
            case ev.ControllerChange():
                await self.election.maybe_resign()
                if self.election.holder is None:
                    # Created and deleted again before the watch was armed anew: nobody else tells (Kafka stands by).
                    await self.election.stand()
            case ev.Reelect():
                await self.election.maybe_resign()
                await self.election.stand()
            case ev.GuardChange():
                await self._guard_change()
            case ev.ControllerSuspected():
                await self.election.succeed()
            case ev.Expire():
                await self.election.expire()
            case ev.TakeOver():
                event.reply.answer(await self.election.take_over())
            case ev.Release():
                await self._release.begin(event)
            case ev.GoOnReleasing():
                await self._release.go_on()
            case ev.ShutdownEventThread():
                self._stopping = True
                await self.election.shutdown()
            case _ if not self.election.active:
                for refused in events:
                    refuse(refused, KafkaErrorCode.NOT_CONTROLLER)
            case _ if type(event) in GATHERED:
                await GATHERED[type(event)](self.shell, events)
            case _:
                await HANDLERS[type(event)](self.shell, event)

    async def _guard_change(self) -> None:
        """Try again what was refused; give back what should not have been won."""
        if not self.election.active:
            await self.election.stand()
            return
        reasons = self.guard.reasons_to_resign
        if reasons and not self._release.under_way:
            for reason in reasons:
                log.error("Giving the role back: %s", reason.text)
            await self._release.begin(ev.Release(reply=ev.Reply(lambda _: None), for_good=False))

    async def _fault(self, events: Sequence[ev.Event], error: Exception) -> None:
        """``events`` failed; or, without any, the way into office or a reload."""
        if isinstance(error, StepFailedError):
            events, error = [error.event], error.error
        name = name_of(events[0]) if events else "failover"
        self.shell.journal.append("fault", event=name.partition(" ")[0], detail=_short(error))
        if not events or isinstance(events[0], OF_OFFICE) or not self.election.active:
            log.error("Bug while processing %s: giving the role back", name, exc_info=error)
            await self._give_back(error)
            return
        log.error("Bug while processing %s: loading the cluster anew", name, exc_info=error)
        faults, brokers = self.shell.faults, list(self.shell.context.brokers)
        for event in events:
            delay_s = faults.failed(event, error, brokers)
            if delay_s:
                log.error("%s is set aside for %.0f s", name_of(event), delay_s)
        await self.election.reload()
        faults.schedule_retries(self.shell.queue)
        self._release.resume()

    async def _give_back(self, error: Exception) -> None:
        """Resign, if we are in office, and contend again after a while, so that others may come first."""
        now_s = self.shell.world.clock.monotonic()
        self.shell.faults.failed_events.inc()
        self._faults.append(now_s)
        while self._faults[0] < now_s - FAULT_WINDOW_S:
            self._faults.popleft()
        was_active = self.election.active
        await self.election.trigger_controller_move()
        self.election.failure = f"the way into office failed: {_short(error)}"
        if was_active and len(self._faults) >= FAULTS_TO_GIVE_UP:
            raise GivingUpError(
                f"{len(self._faults)} faults within {FAULT_WINDOW_S:.0f} s on the way into office, the last: {error!r}"
            ) from error
        delay_s = min(2.0 ** (len(self._faults) - 1), LONGEST_WAIT_S)
        self.shell.queue.schedule("contend again", delay_s, ev.Reelect())

    # -- what others see -------------------------------------------------------------------------------------------

    def _account(self, gathered: Sequence[QueuedEvent], started_s: float, ended_s: float, detail: str) -> None:
        """Events that were handled together are one record; the one that waited longest gives its ``queue_us``."""
        state = gathered[0].event.state
        if state in self._timers:
            self._timers[state].observe(ended_s - started_s)
        name = type(gathered[0].event).__name__
        queue_us, processing_us = int((started_s - gathered[0].enqueued_s) * 1e6), int((ended_s - started_s) * 1e6)
        self.shell.journal.append(
            "event",
            event=name,
            state=state.name,
            count=len(gathered) if len(gathered) > 1 else None,
            queue_us=queue_us,
            processing_us=processing_us,
            detail=detail or None,
        )
        self.recent.append(
            RecentEvent(name, state.name, self.shell.world.clock.wall_time_us(), queue_us, processing_us, detail)
        )

    def readiness(self) -> Readiness:
        return readiness(self.shell, self.election, self.guard)

    def status(self) -> dict[str, Any]:
        """For people and programs; numbers of this term only."""
        shell, table = self.shell, self.shell.context.table
        return {
            "id": shell.id,
            "active": self.election.active,
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
            "suspected": list(shell.context.suspected),
            "queue_size": len(shell.queue),
            "set_aside": shell.faults.status(),
            "topics": len(table.topic_by_name),
            "partitions": len(table),
            "offline_partitions": self._offline_partitions(),
            "preferred_replica_imbalance": table.preferred_replica_imbalance,
            "events": [msgspec.structs.asdict(event) for event in self.recent],
        }

    def _offline_partitions(self) -> int:
        """Kafka's ``OfflinePartitionsCount``: those that are New count too, nobody leads them."""
        counts = self.shell.context.table.count_by_state
        return counts[PartitionState.OfflinePartition] + counts[PartitionState.NewPartition]

    def _register_gauges(self) -> None:
        shell = self.shell
        gauges: dict[str, Callable[[], float]] = {
            "ActiveControllerCount": lambda: int(self.election.active),
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
