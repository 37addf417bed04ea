"""The bugs of the zoo; each replaces a function of the program by a slightly wrong one (see ``zoo``)."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from aiocontroller.controller import (
    brokers,
    controller_election,
    failover,
    known_controllers,
    leadership_writes,
    own_replicas,
    reassignment,
    state_changes,
    steps,
    topic_deletion,
)
from aiocontroller.controller.channel_manager import ControllerChannelManager, RequestSender
from aiocontroller.controller.controller_election import ControllerElection
from aiocontroller.controller.event_handlers import HANDLERS
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.guard import Permit
from aiocontroller.controller.kafka_controller import KafkaController
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import alter_partition, election, events
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import reassignment as core_reassignment
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import ElectionOutcome, UncleanPolicy
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.event_kinds import Request, Signal
from aiocontroller.core.leadership_changes import LeadershipFacts
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.lab.simulation.zoo import Bug, Patch
from aiocontroller.zookeeper import registration
from aiocontroller.zookeeper.client import CONTROLLER_EPOCH_PATH, SessionEvent, ZooKeeperClient
from aiocontroller.zookeeper.codec import OK, SetData
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.writes import BulkWriter, Writes

Handler = Callable[..., Awaitable[Any]]
SLOW_S = 5.0


def _nothing(*_: Any, **__: Any) -> None:
    pass


async def _nothing_async(*_: Any, **__: Any) -> None:
    pass


def _one(target: Any, name: Any, wrong: Any) -> Callable[[], list[Patch]]:
    return lambda: [(target, name, wrong)]


def _step(step: Handler, instead: Handler) -> Patch:
    """Replace a step of the failover's table."""
    steps = tuple((name, instead if present is step else present) for name, present in failover.FAILOVER)
    assert steps != failover.FAILOVER, step
    return failover, "FAILOVER", steps


# -- the fence and the role --------------------------------------------------------------------------------------------


def _fence_read_late() -> list[Patch]:
    def late(original: Handler) -> Handler:
        async def write(self: ZooKeeperClient, *args: Any, fence: int | None = None) -> Any:
            if fence is not None:
                fence = (await self.get_many([CONTROLLER_EPOCH_PATH])).version[0]
            return await original(self, *args, fence=fence)

        return write

    names = ("set_many", "write_many")
    return [(ZooKeeperClient, name, late(vars(ZooKeeperClient)[name])) for name in names]


def _owner_by_id() -> list[Patch]:
    def is_ours(self: ControllerElection, holder: Any) -> bool:
        return bool(holder.controller_id == self._shell.id)

    return [(ControllerElection, "_is_ours", is_ours)]


def _expiry_ignored() -> list[Patch]:
    def on_session(self: KafkaController, event: SessionEvent) -> None:
        if event is SessionEvent.NEW_SESSION:
            self.shell.queue.append(events.Reelect())

    return [(KafkaController, "on_session", on_session)]


def _election_lost_with_its_answer() -> list[Patch]:
    async def resolve(*_: Any) -> None:
        raise ControllerMovedError("no answer: another controller must have won")

    return [(registration, "_resolve", resolve)]


def _second_judgement_skipped() -> list[Patch]:
    original = vars(ControllerElection)["_seize"]

    async def seize(self: ControllerElection, *, replacing: bool) -> bool:
        async def permit() -> Permit:
            return Permit()

        vars(self._guard)["permit"] = permit
        try:
            return bool(await original(self, replacing=replacing))
        finally:
            vars(self._guard).pop("permit")

    return [(ControllerElection, "_seize", seize)]


def _fence_outlives_session() -> list[Patch]:
    def fence(self: ZooKeeperClient, fence: int | None) -> tuple[str, int] | None:
        return None if fence is None else (CONTROLLER_EPOCH_PATH, fence)

    return [(ZooKeeperClient, "_fence", fence)]


def _watch_not_armed_again(name: str) -> Callable[[], list[Patch]]:
    def patches() -> list[Patch]:
        original = vars(KafkaZkClient)[name]

        async def read(self: KafkaZkClient, *args: Any, watch: bool = True) -> Any:
            return await original(self, *args, watch=False)

        return [(KafkaZkClient, name, read)]

    return patches


# -- elections and ISRs ------------------------------------------------------------------------------------------------


def _emptied_isr(in_sync: tuple[int, ...], gone: Any, _replicas: Any) -> tuple[int, ...] | None:
    left = tuple(r for r in in_sync if r not in gone)
    return None if len(left) == len(in_sync) else left


def _offline_keeps_leader_epoch() -> list[Patch]:
    original = rsm.plan_offline

    def plan(context: Any, replicas: Any) -> Any:
        planned = original(context, replicas)
        _keep_leader_epoch(planned.shrink)
        return planned

    return [(rsm, "plan_offline", plan)]


def _elects_any_live_replica() -> list[Patch]:
    def elect(replicas: Any, in_sync: Any, online: Any, *_: Any) -> ElectionOutcome | None:
        alive = tuple(r for r in replicas if r in online)
        if not alive:
            return None
        left = tuple(r for r in in_sync if r in online)
        return ElectionOutcome(alive[0], left if alive[0] in left else (alive[0], *left), alive)

    return [(election, "offline_partition_leader_election", elect)]


def _always_unclean() -> list[Patch]:
    async def facts(*_: Any) -> LeadershipFacts:
        return LeadershipFacts(UncleanPolicy(True))

    return [(leadership_writes, "read_facts", facts)]


def _plan_elections(change: Callable[[Any], None]) -> Callable[[], list[Patch]]:
    def patches() -> list[Patch]:
        original = psm.plan_elections

        def plan(*args: Any, **options: Any) -> Any:
            decisions, elections = original(*args, **options)
            change(decisions)
            return decisions, elections

        return [(psm, "plan_elections", plan)]

    return patches


def _keep_leader_epoch(decisions: Any) -> None:
    decisions.leaderships[:] = [
        msgspec.structs.replace(state, leader_epoch=state.leader_epoch - 1) for state in decisions.leaderships
    ]


def _send_to_the_leader_only(decisions: Any) -> None:
    decisions.recipients[:] = [(state.leader,) for state in decisions.leaderships]


def _stale_epoch_after_bump() -> list[Patch]:
    original = state_changes.bump_leader_epochs

    async def bump(shell: Any, rows: Any) -> Any:
        written = await original(shell, rows)
        for row in written.done:
            shell.context.table.leader_epoch[row] -= 1
        return written

    return [(steps, "bump_leader_epochs", bump)]


def _alter_partition(*as_current: str) -> Callable[[], list[Patch]]:
    def patches() -> list[Patch]:
        original = alter_partition.check_partition

        def check(context: Any, change: Any, *rest: Any) -> Any:
            row = context.table.row(change.topic, change.partition) if isinstance(change.topic, str) else -1
            if isinstance(change.topic, bytes) and change.topic in context.table.topic_by_id:
                row = context.table.row(context.table.topic_by_id[change.topic].name, change.partition)
            current = context.table.leadership(row) if row >= 0 else None
            if current is not None:
                mended = {name: getattr(current, name) for name in as_current}
                change = msgspec.structs.replace(change, **mended)
            return original(context, change, *rest)

        return [(alter_partition, "check_partition", check)]

    return patches


def _acknowledged_unwritten() -> list[Patch]:
    original = leadership_writes.Stream.begin

    class Forgetful:
        async def set_topic_partition_states(self, topics: Any, numbers: Any, states: Any, *, fence: int) -> Writes:
            writes = Writes(0)
            writes.code, writes.version = [OK] * len(states), [state.partition_epoch for state in states]
            return writes

    async def begin(self: Any, step: Any) -> Any:
        stand_in = copy.copy(self)
        if isinstance(step[0][0], alter_partition.IsrChange):
            stand_in._shell = copy.copy(self._shell)
            stand_in._shell.zk = Forgetful()
        return await original(stand_in, step)

    return [(leadership_writes.Stream, "begin", begin)]


# -- terms -------------------------------------------------------------------------------------------------------------


def _batch_not_cleared() -> list[Patch]:
    def new_batch(self: ControllerShell) -> RequestBatch:
        left: RequestBatch | None = vars(self).get("left_over")
        batch = left if left else RequestBatch(self.context)
        vars(self)["left_over"] = batch
        return batch

    return [(ControllerShell, "new_batch", new_batch)]


def _old_senders_go_on() -> list[Patch]:
    def remove_brokers(self: ControllerChannelManager, ids: Any) -> None:
        for broker in ids:
            self._senders.pop(broker, None)

    return [(ControllerChannelManager, "remove_brokers", remove_brokers)]


def _reassignments_survive_resignation() -> list[Patch]:
    resign, begin = failover.on_controller_resignation, reassignment.initialize_partition_reassignments

    async def resigning(shell: ControllerShell) -> None:
        context = shell.context
        vars(shell)["kept"] = {
            context.table.topic_partition(row): context.table.assignment(row).target
            for row in context.partitions_being_reassigned
        }
        await resign(shell)

    async def beginning(shell: ControllerShell) -> None:
        await begin(shell)
        table = shell.context.table
        kept = vars(shell).pop("kept", {})
        rows = {tp: table.row(*tp) for tp in kept}
        wanted = {p: table.assignment(p).reassign_to(kept[tp]) for tp, p in rows.items() if p >= 0}
        await reassignment.trigger_partition_reassignment(shell, wanted)

    return [
        (controller_election, "on_controller_resignation", resigning),
        _step(begin, beginning),
    ]


def _signals_lost_while_processing() -> list[Patch]:
    original = EventQueue.get

    async def get(self: EventQueue) -> Any:
        current = vars(self).get("current")
        if isinstance(current, Signal):
            self._signals.discard(current)
        queued = await original(self)
        if isinstance(queued.event, Signal):
            self._signals.add(queued.event)
        vars(self)["current"] = queued.event
        return queued

    return [(EventQueue, "get", get)]


def _shutdown_undone() -> list[Patch]:
    def clear_and_put(self: EventQueue, event: Any) -> None:
        dropped = list(self._events)
        self._events.clear()
        self._signals.clear()
        self.cancel_all()
        for queued in dropped:
            if isinstance(queued.event, Request):
                queued.event.preempt()
        self.append(event)

    return [(EventQueue, "clear_and_put", clear_and_put)]


# -- brokers -----------------------------------------------------------------------------------------------------------


def _bounce_not_noticed() -> list[Patch]:
    original = brokers.broker_change

    async def broker_change(shell: ControllerShell, event: Any) -> None:
        read = shell.zk.get_all_brokers_in_cluster

        async def masked(**options: Any) -> Any:
            found, bad = await read(**options)
            return [shell.context.brokers.get(broker.id, broker) for broker in found], bad

        vars(shell.zk)["get_all_brokers_in_cluster"] = masked
        try:
            await original(shell, event)
        finally:
            vars(shell.zk).pop("get_all_brokers_in_cluster", None)

    return [(HANDLERS, events.BrokerChange, broker_change)]


def _slow_to_elect() -> list[Patch]:
    original = brokers.broker_change

    async def broker_change(shell: ControllerShell, event: Any) -> None:
        await shell.world.clock.sleep(SLOW_S)
        await original(shell, event)

    return [(HANDLERS, events.BrokerChange, broker_change)]


def _no_broker_list() -> list[Patch]:
    original = ControllerShell.send_update_metadata

    async def send(self: ControllerShell, to: Any, rows: Any = ()) -> None:
        rows = list(rows)
        if rows:
            await original(self, to, rows)

    return [(ControllerShell, "send_update_metadata", send)]


def _sender_gives_up() -> list[Patch]:
    async def once(self: RequestSender, attempt: Callable[[], Awaitable[None]]) -> None:
        try:
            await attempt()
        except OSError as error:
            self._report(error)
            self._disconnect()

    return [(RequestSender, "_retry_until_success", once)]


def _deleted_topics_are_not_sent() -> list[Patch]:
    original = RequestBatch.add_update_metadata_request_for_brokers

    def add(self: RequestBatch, to: Any, rows: Any) -> None:
        table = self._context.table
        original(self, to, [row for row in rows if not table.topic(row).deleting])

    return [(RequestBatch, "add_update_metadata_request_for_brokers", add)]


# -- deletion and reassignment -----------------------------------------------------------------------------------------


def _deletion_not_resumed() -> list[Patch]:
    async def load(shell: ControllerShell) -> None:
        await shell.zk.get_topic_deletions(watch=True)

    return [_step(topic_deletion.load_topic_deletions, load)]


def _removed_replicas_run_on() -> list[Patch]:
    return [(core_reassignment, "debts_owed", lambda context, removed: [])]


def _override_may_lose_data() -> list[Patch]:
    return [(core_reassignment, "in_sync_replica_stays", lambda *_: True)]


def _controllers_are_replicas() -> list[Patch]:
    return [
        (own_replicas, "replaced", lambda shell, assignment, numbers: assignment),
        (HANDLERS, events.OwnReplicas, _nothing_async),
    ]


def _earlier_ids_forgotten() -> list[Patch]:
    async def ours_alone(shell: ControllerShell) -> None:
        shell.context.controllers = frozenset({shell.id})

    return [
        _step(known_controllers.load_known_controllers, ours_alone),
        (steps, "load_known_controllers", ours_alone),
    ]


def _deletion_does_not_wait() -> list[Patch]:
    original = topic_deletion.resume_deletions

    async def resume(shell: ControllerShell, names: Any) -> None:
        for name in names:
            shell.context.topics_ineligible_for_deletion.pop(name, None)
        await original(shell)

    return [(steps, "resume_deletion_for_topics", resume)]


def _leaderless_deletion() -> list[Patch]:
    return [(ControllerContext, "needs_no_leader", lambda context, row: context.table.topic(row).deleting)]


# -- ZooKeeper ---------------------------------------------------------------------------------------------------------


def _lost_answer_is_success() -> list[Patch]:
    async def resolve(self: BulkWriter, batch: Any, generation: int) -> None:
        for i in batch.open:
            op = batch.ops[i]
            batch.settle(i, OK, op.version + 1 if isinstance(op, SetData) else 0)
        batch.open = []

    return [(BulkWriter, "_resolve_lost", resolve)]


HARMLESS_RESEND = "a write that was applied is refused the second time; the state is read and the change decided again"

BUGS = (
    Bug("writes carry no fence", "KAFKA-6082", _one(ZooKeeperClient, "_fence", lambda self, fence: None)),
    Bug("the fence is read just before the write", "KAFKA-1096", _fence_read_late),
    Bug("the fence outlives its session", "seed 2310", _fence_outlives_session),
    Bug("a refused fence does not end the term", "design", _one(ControllerElection, "step_down", _nothing_async)),
    Bug("the controller's id identifies the role's owner", "design", _owner_by_id),
    Bug("an expired session is not noticed", "KAFKA-4447", _expiry_ignored),
    Bug("an election whose answer is lost counts as lost", "design", _election_lost_with_its_answer),
    Bug("a quick election skips the second judgement", "design", _second_judgement_skipped),
    Bug("/controller is not watched again", "design", _watch_not_armed_again("get_controller")),
    Bug("the list of topics is not watched again", "design", _watch_not_armed_again("get_all_topics_in_cluster")),
    Bug("the list of brokers is not watched again", "design", _watch_not_armed_again("get_all_brokers_in_cluster")),
    Bug("an expiry undoes a shutdown", "seed 64", _shutdown_undone),
    Bug("the ISR is emptied", "KAFKA-5083", _one(rsm, "_without", _emptied_isr)),
    Bug("an ISR shrinks within its leader epoch", "design", _offline_keeps_leader_epoch),
    Bug("a leader is elected from outside the ISR", "KAFKA-9866", _elects_any_live_replica),
    Bug("unclean elections happen although they are off", "design", _always_unclean),
    Bug("an election does not raise the leader epoch", "design", _plan_elections(_keep_leader_epoch)),
    Bug("only the new leader hears of an election", "design", _plan_elections(_send_to_the_leader_only)),
    Bug("reassignment: leader epoch stale in memory", "KAFKA-9212", _stale_epoch_after_bump),
    Bug("AlterPartition: partition epoch ignored", "KAFKA-14144", _alter_partition("partition_epoch")),
    Bug(
        "AlterPartition: both epochs ignored",
        "design",
        _alter_partition("partition_epoch", "leader_epoch"),
    ),
    Bug("AlterPartition: answered but not written", "design", _acknowledged_unwritten),
    Bug("the request batch is not cleared", "KAFKA-12315", _batch_not_cleared),
    Bug("senders of an old term or incarnation keep sending", "KAFKA-1188", _old_senders_go_on),
    Bug("watches survive the resignation", "KAFKA-1578", _one(KafkaZkClient, "forget_watches", _nothing)),
    Bug("timers survive the resignation", "KAFKA-4360", _one(EventQueue, "cancel_all", _nothing)),
    Bug("reassignments survive the resignation", "KAFKA-5310", _reassignments_survive_resignation),
    Bug("answers survive the resignation", "seed 18", _one(EventQueue, "drop_responses", _nothing)),
    Bug("requests are dropped without an answer", "KAFKA-10193", _one(Request, "preempt", _nothing)),
    Bug("a signal is lost while an equal one is processed", "design", _signals_lost_while_processing),
    Bug("a bounced broker is not noticed", "KIP-380", _bounce_not_noticed),
    Bug("the loss of a broker is handled 5 s late", "design", _slow_to_elect),
    Bug("brokers get no broker list before LeaderAndIsr", "KAFKA-4443", _no_broker_list),
    Bug("a sender gives up a request", "design", _sender_gives_up),
    Bug("brokers do not hear of deleted topics", "design", _deleted_topics_are_not_sent),
    Bug("deletion is not resumed at failover", "KAFKA-6650", _deletion_not_resumed),
    Bug(
        "deletion is stuck when a broker dies in it",
        "KAFKA-10548",
        _one(brokers, "fail_replica_deletion", _nothing_async),
    ),
    Bug("deletion does not wait for a reassignment", "KAFKA-8249", _deletion_does_not_wait),
    Bug("deletion and reassignment wait for each other", "seed 64", _leaderless_deletion),
    Bug(
        "reassignment is not resumed at failover",
        "KAFKA-6193",
        lambda: [_step(reassignment.initialize_partition_reassignments, _nothing_async)],
    ),
    Bug(
        "reassignment ends before replicas are in sync",
        "design",
        _one(core_reassignment, "is_complete", lambda *_: True),
    ),
    Bug("removed replicas are not stopped", "KAFKA-16120", _removed_replicas_run_on),
    Bug("an override deletes all in-sync replicas", "seed 2366", _override_may_lose_data),
    Bug(
        "a controller may be a replica",
        "design",
        _controllers_are_replicas,
    ),
    Bug("an earlier controller is mistaken for a broker", "design", _earlier_ids_forgotten),
    Bug("a lost answer is mistaken for success", "design", _lost_answer_is_success),
    Bug(
        "a lost write is sent again blindly",
        "design",
        _one(BulkWriter, "_resolve_lost", _nothing_async),
        harmless=HARMLESS_RESEND,
    ),
)
