"""Single decisions of handlers, on a cluster without I/O: each test names a way to be wrong that others let pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from aiocontroller.config import Config
from aiocontroller.controller import debts, isr, repairs
from aiocontroller.controller.leadership_writes import journal_partitions
from aiocontroller.controller.mutation_quotas import RATE, MutationQuotas
from aiocontroller.controller.reassignment import drop_non_replicas
from aiocontroller.core import debt_changes
from aiocontroller.core import events as ev
from aiocontroller.core.audit import Above, Finding, Kind
from aiocontroller.core.debts import Changes
from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.core.ids import Endpoint, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.core.mutation_quotas import ThrottlingQuotaExceededError
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.core.states import ReplicaState
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.metrics import Metrics
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.writes import Writes
from aiocontroller.zookeeper.znode_json import BadZNode
from tests.unit.controller.pure_cluster import StillClock, cluster, run

T0 = TopicPartition("t", 0)


# -- debts -------------------------------------------------------------------------------------------------------------


def test_a_controller_that_was_deposed_neither_makes_nor_forgets_debts() -> None:
    it = cluster(1)
    ledger = it.shell.context.debts
    owed = Changes(ledger)
    owed.owe(1, "t", b"an earlier topic", 0)
    assert run(debts.write(it.shell, owed, "made"))
    (debt,) = ledger
    paid = Changes(ledger)
    paid.forget(debt)
    it.znodes.crash_after = 0
    with pytest.raises(ControllerMovedError):
        run(debts.write(it.shell, paid, "paid"))
    assert ledger.holds(debt), "what ZooKeeper holds still is still owed"
    assert it.znodes.debts.held == {(1, "t"): ({0: b"an earlier topic"}, 0)}


@pytest.mark.parametrize("dead", [(), (2,), (1, 2)])
def test_a_replica_that_was_never_created_does_not_hold_up_the_deletion(dead: tuple[int, ...]) -> None:
    """A reassignment has added it, but the state could not be read, so that its epoch was not raised."""
    it = cluster(1, 2, t=[[1]])
    table = it.shell.context.table
    table.set_assignment(0, ReplicaAssignment((1, 2)))
    assert table.replica_state(0, 2) is ReplicaState.NonExistentReplica
    for broker in dead:
        it.unregister(broker)
    it.queue.append(ev.BrokerChange())
    it.step()
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    assert "t" not in table.topic_by_name
    assert it.znodes.deletions == {}
    assert {debt.broker for debt in it.shell.context.debts} == set(dead)


@pytest.mark.parametrize("writes", range(12))
def test_a_deletion_that_ends_anywhere_leaves_no_log_that_is_not_owed(writes: int) -> None:
    it = cluster(1, 2, t=[[1, 2]])
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    topic_id = it.shell.context.table.topic_by_name["t"].id
    it.znodes.crash_after = writes
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    assert "t" not in it.znodes.topics
    assert it.znodes.debts.held[2, "t"][0] == {0: topic_id}


@pytest.mark.parametrize("present", [True, False])
def test_a_debt_that_the_assignment_contradicts_is_given_up_at_the_failover(present: bool) -> None:
    it = cluster(1, 2, t=[[1]])
    it.views[2].refuses_to_delete = True
    topic_id = it.shell.context.table.topic_by_name["t"].id
    it.znodes.debts.epoch = it.znodes.epoch
    it.znodes.debts.held[1 if present else 2, "t"] = ({0: topic_id}, 0)
    it.failover()
    assert list(it.znodes.debts.held) == ([] if present else [(2, "t")])
    assert len(it.shell.context.debts) == (not present)


def test_a_debt_whose_payment_zookeeper_refuses_to_write_is_still_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next controller asks for it again, so memory must not count on it."""
    it = cluster(1)
    ledger = it.shell.context.debts
    owed = Changes(ledger)
    owed.owe(1, "t", b"an earlier topic", 0)
    assert run(debts.write(it.shell, owed, "made"))

    asked: list[Any] = []

    async def refuse(changes: Sequence[Any], *, fence: int) -> list[int]:
        asked.extend(changes)
        return [int(Code.NO_AUTH) for _ in changes]

    monkeypatch.setattr(it.znodes.debts, "write", refuse)
    (debt,) = ledger
    paid = Changes(ledger)
    paid.forget(debt)
    assert not run(debts.write(it.shell, paid, "paid"))
    assert ledger.holds(debt)
    assert len(asked) == 1, "it would be refused again"


def test_debts_of_an_absent_broker_are_given_up_by_deleting_their_znodes() -> None:
    """It is not asked for anything, so only the audit looks."""
    it = cluster(1)
    owed = Changes(it.shell.context.debts)
    for topic in ("given up", "kept"):
        owed.owe(2, topic, b"an earlier topic", 0)
    assert run(debts.write(it.shell, owed, "made"))
    del it.znodes.debts.held[2, "given up"]
    run(debts.notice_given_up(it.shell))
    assert [debt.topic for debt in it.shell.context.debts] == ["kept"]


@pytest.mark.parametrize("silent", [False, True])
def test_what_a_broker_has_not_deleted_is_asked_for_again_later_and_later(silent: bool) -> None:
    it = cluster(1)
    ledger = it.shell.context.debts
    owed = Changes(ledger)
    owed.owe(1, "t", b"an earlier topic", 0)
    assert run(debts.write(it.shell, owed, "made"))
    delays: list[float] = []

    def schedule(key: str, delay_s: float, event: ev.Event) -> None:
        assert event == ev.PayDebts(1)
        delays.append(delay_s)

    it.shell.queue.schedule = schedule  # type: ignore[method-assign, assignment]
    for _ in range(3):
        debts._retry(it.shell, 1, list(ledger), silent=silent)
    first_s = debt_changes.AFTER_SILENCE_S if silent else debt_changes.FIRST_RETRY_S
    assert delays == [first_s, 2 * first_s, 4 * first_s]


def test_leader_epochs_outrank_those_of_a_debt_that_was_fenced_and_replicas_hear_them() -> None:
    """A leader that does not know its new epoch could no longer change its ISR."""
    it = cluster(1, 2, 3, t=[[1, 2], [9]], u=[[1]])
    ledger = it.shell.context.debts
    owed = Changes(ledger)
    for topic, number in (("t", 0), ("t", 1), ("gone", 0)):  # t-1 never had a leader
        owed.owe(3, topic, b"an earlier topic", number)
    assert run(debts.write(it.shell, owed, "made"))
    for debt in ledger:
        debt.fenced = True
    it.queue.append(ev.PayDebts(3))
    it.step()
    assert not ledger
    assert {tp: state.leader_epoch for tp, state in it.znodes.states.items()} == {T0: 1, TopicPartition("u", 0): 0}
    assert [it.views[broker].hosted[T0].leader_epoch for broker in (1, 2)] == [1, 1]


def test_a_broker_hears_of_the_present_topic_once_it_has_deleted_the_earlier_one() -> None:
    it = cluster(1, 2, t=[[2, 1]])
    earlier = it.shell.context.table.topic_by_name["t"].id
    it.views[2].refuses_to_delete = True
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    assert it.znodes.debts.held[2, "t"][0] == {0: earlier}
    it.create_topic("t", [[2, 1]])
    it.step()
    assert it.views[2].topic_ids == {T0: earlier}, "it would take the earlier topic's log for the present one's"
    it.views[2].refuses_to_delete = False
    it.queue.append(ev.PayDebts(2))
    it.step()
    assert it.znodes.debts.held == {}
    assert it.views[2].topic_ids == {T0: it.znodes.topics["t"].topic_id}
    assert it.znodes.states[T0].leader == it.views[2].hosted[T0].leader


# -- quotas ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entity, shared",
    [("users/<default>", True), ("users/alice", True), ("users/<default>/clients/<default>", False)],
)
def test_a_users_clients_share_the_quota_that_names_no_client(entity: str, shared: bool) -> None:
    clock = StillClock()
    quotas = MutationQuotas(cast(Any, None), cast(Any, clock), Config, Metrics())
    quotas._known = True
    quotas._set(entity, {RATE: "1"})
    window_s = Config().controller_quota_window_num * Config().controller_quota_window_size_seconds
    run(quotas.quota_for("User:alice", "first", strict=True)).record(window_s + 1)
    second = run(quotas.quota_for("User:alice", "second", strict=True))
    if shared:
        with pytest.raises(ThrottlingQuotaExceededError):
            second.record(1)
    else:
        second.record(1)


# -- ISRs and replicas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("older", [1, 0])
def test_an_answer_to_an_earlier_incarnation_takes_no_replica_offline(older: int) -> None:
    it = cluster(1, 2, t=[[1, 2]])
    topic, epoch = it.shell.context.table.topic_by_name["t"], it.views[1].epoch - older
    error = (topic.id, 0, int(KafkaErrorCode.KAFKA_STORAGE_ERROR))
    it.queue.append(ev.LeaderAndIsrResponseReceived(1, epoch, 0, (error,), (0,)))
    it.queue.append(ev.LeaderAndIsrResponseReceived(9, 1, 0, (error,), (0,)))
    it.step()
    assert it.shell.context.is_replica_online(0, 1) is bool(older)
    assert it.znodes.states[T0].leader == (1 if older else 2)


def test_a_stranger_added_by_a_leader_is_stopped_and_the_leader_hears_the_replicas() -> None:
    it = cluster(1, 2, 3, t=[[1, 2]])
    before = it.znodes.states[T0]
    it.views[3].hosted[T0] = it.views[1].hosted[T0]
    change = AlterPartition("t", 0, before.leader_epoch, (1, 2, 3), before.partition_epoch)
    epoch = it.views[1].epoch
    [answer] = it.ask(ev.AlterPartitionReceived, broker=1, broker_epoch=epoch, version=1, partitions=(change,))
    it.step()
    assert answer.error_code == KafkaErrorCode.INVALID_REQUEST
    assert T0 not in it.views[3].hosted
    assert it.views[1].hosted[T0].leader_epoch == it.znodes.states[T0].leader_epoch == before.leader_epoch + 1


def test_a_stranger_in_an_isr_raises_the_leader_epoch_once() -> None:
    it = cluster(1, 2, 3, t=[[1, 2]])
    table = it.shell.context.table
    before = it.znodes.states[T0]
    it.znodes.states[T0] = msgspec.structs.replace(before, isr=(1, 3, 2))
    table.set_leadership(table.row("t", 0), it.znodes.states[T0])
    run(drop_non_replicas(it.shell, {table.row("t", 0): [3]}))
    after = it.znodes.states[T0]
    assert (after.isr, after.leader_epoch, after.partition_epoch) == ((1, 2), before.leader_epoch + 1, 1)


def test_a_replica_that_its_leader_has_added_to_the_isr_takes_over_from_it() -> None:
    """Brokers of old protocols write ISRs themselves: memory has another ISR when the leader dies."""
    it = cluster(1, t=[[1, 2]])
    it.register(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    known = it.znodes.states[T0]
    assert known.isr == (1,)
    it.znodes.states[T0] = msgspec.structs.replace(known, isr=(1, 2), partition_epoch=known.partition_epoch + 1)
    it.unregister(1)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert (it.znodes.states[T0].leader, it.znodes.states[T0].isr) == (2, (2,))


def test_requests_are_written_in_steps_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr, "WRITTEN_AT_ONCE", 5)
    event = ev.AlterPartitionReceived(broker=1, broker_epoch=1, version=1, partitions=(), reply=ev.Reply(print))
    sizes = [[len(rows) for _, rows in step] for step in isr._steps([(event, [0] * n) for n in (2, 3, 1, 9, 1)])]
    assert sizes == [[2, 3], [1, 9], [1]]


# -- repairs -----------------------------------------------------------------------------------------------------------


def test_a_state_that_cannot_be_read_when_it_is_to_be_repaired_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    it = cluster(1, t=[[1]])
    damaged = BadZNode("/brokers/topics/t/partitions/0/state", "{", "JSON")
    before = it.znodes.states[T0]

    async def read(topics: Sequence[str], partitions: Sequence[int]) -> list[BadZNode]:
        return [damaged for _ in topics]

    monkeypatch.setattr(it.znodes, "get_topic_partition_states", read)
    run(repairs._states(it.shell, [Finding(Kind.STATE, "t-0", "this", "that", "t", 0)]))
    assert damaged.path in it.shell.bad_paths()
    assert it.znodes.states[T0] == before


def test_a_leader_that_both_sides_hold_to_be_alive_is_replaced_at_once() -> None:
    it = cluster(2, t=[[1, 2]])
    table = it.shell.context.table
    dead = msgspec.structs.replace(it.znodes.states[T0], leader=1, isr=(1, 2))
    it.znodes.states[T0] = dead
    table.set_leadership(table.row("t", 0), dead)
    run(repairs.repair(it.shell, [Finding(Kind.DEAD_LEADER, "t-0", "leader 1", "one that is registered", "t", 0)]))
    assert it.znodes.states[T0].leader == it.views[2].hosted[T0].leader == 2


def test_what_is_left_of_a_topic_that_another_has_deleted_is_owed() -> None:
    """A topic of its name has been created since: a broker that comes back would take the old log for the new one's."""
    it = cluster(1, 2, t=[[1, 2]])
    earlier = it.znodes.topics["t"].topic_id
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    it.znodes.topics["t"] = TopicAssignment("t", b"the present one.", {0: ReplicaAssignment((1, 2))})
    it.znodes.states.clear()
    run(repairs.repair(it.shell, [Finding(Kind.TOPIC_ID, "topic t", "another", "ours", "t")]))
    it.step()
    assert it.znodes.debts.held == {(2, "t"): ({0: earlier}, 0)}, "broker 1 has deleted its replica"
    assert it.shell.context.table.topic_by_name["t"].id == it.views[1].topic_ids[T0] == b"the present one."
    it.register(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert it.znodes.debts.held == {}
    assert it.views[2].topic_ids[T0] == b"the present one."


def test_what_the_audit_has_noted_ends_with_the_term() -> None:
    it = cluster(1, t=[[1]])
    auditor = it.shell.auditor
    auditor.noted[T0] = Above(7, 7)
    auditor.look_soon(["t"], lists=True)
    it.failover()
    assert auditor.noted == {}
    assert not auditor.lists_due


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_reassignment_makes_no_topic_ineligible_that_is_not_to_be_deleted() -> None:
    it = cluster(1, 2, 3, t=[[1, 2]])
    it.znodes.reassignment = {T0: (1, 3)}
    it.queue.append(ev.ZkPartitionReassignment())
    it.step()
    assert 0 in it.shell.context.partitions_being_reassigned
    assert it.shell.context.topics_ineligible_for_deletion == {}


def test_a_deletion_that_a_broker_refuses_ends_at_once_and_is_owed() -> None:
    it = cluster(1, 2, t=[[1, 2]])
    topic_id = it.shell.context.table.topic_by_name["t"].id
    it.views[2].refuses_to_delete = True
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    assert (it.znodes.topics, it.znodes.deletions) == ({}, {})
    assert it.znodes.debts.held[2, "t"][0] == {0: topic_id}


def test_partitions_added_to_a_topic_that_is_being_deleted_are_taken_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    it = cluster(1, t=[[1]], u=[[1]])
    written: list[TopicAssignment] = []
    write = it.znodes.set_topic_assignments

    async def noting(assignments: Sequence[TopicAssignment], *, fence: int) -> Writes:
        written.extend(assignments)
        return await write(assignments, fence=fence)

    monkeypatch.setattr(it.znodes, "set_topic_assignments", noting)
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    for name in ("t", "u"):
        found = it.znodes.topics[name]
        grown = found.partitions | {1: ReplicaAssignment((1,))}
        it.znodes.topics[name] = msgspec.structs.replace(found, partitions=grown, version=found.version + 1)
        it.queue.append(ev.PartitionModifications(name))
    it.queue.append(ev.PartitionModifications("gone"))
    it.step()
    assert [(a.topic, list(a.partitions)) for a in written] == [("t", [0])]
    assert list(it.znodes.states) == [TopicPartition("u", 0), TopicPartition("u", 1)]


# -- controllers' ids --------------------------------------------------------------------------------------------------


def test_a_controllers_id_is_kept_in_zookeeper_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    it = cluster(1)
    assert it.znodes.known_controllers == {it.shell.id}

    async def refuse(ids: frozenset[int], version: int, *, fence: int) -> bool:
        raise AssertionError("it is there already")

    monkeypatch.setattr(it.znodes, "set_known_controllers", refuse)
    it.failover()


# -- the journal -------------------------------------------------------------------------------------------------------


def test_partitions_are_recorded_with_the_leadership_that_they_have() -> None:
    it = cluster(1, t=[[1], [9]])
    assert TopicPartition("t", 1) not in it.znodes.states, "it never had a leader"
    journal = MemoryJournal(1, it.shell.world.clock)
    it.shell.journal = journal
    journal_partitions(it.shell, [0, 1])
    records = journal.of_kind("partition")
    assert [(r.partition, r.leader, r.leader_epoch, r.isr, r.replicas) for r in records] == [
        (0, 1, 0, (1,), (1,)),
        (1, None, None, None, (9,)),
    ]
    assert cast(int, records[0].partition_epoch) >= 0


# -- what brokers hear -------------------------------------------------------------------------------------------------


def test_leaders_are_named_where_followers_find_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the control plane's listener, which takes the controller's requests alone."""
    it = cluster(1, 2)
    shell = it.shell
    listeners = {"inter_broker_listener_name": "INTERNAL", "control_plane_listener_name": "CONTROL"}
    shell.config = msgspec.structs.replace(shell.config, **listeners)
    for number, broker in it.znodes.brokers.items():
        endpoints = (Endpoint("CONTROL", f"b{number}", 9000), Endpoint("INTERNAL", f"b{number}", 9001))
        it.znodes.brokers[number] = msgspec.structs.replace(broker, endpoints=endpoints)
    it.failover()
    heard: list[Any] = []
    assert shell.channels is not None
    send = shell.channels.send

    def noting(broker: int, api: ApiKey, encode: Any, *more: Any, **merging: Any) -> None:
        if api is ApiKey.LEADER_AND_ISR:
            for pieces in encode(7, it.views[broker].epoch):
                heard.append(cold.decode_request(api, 7, b"".join(map(bytes, pieces))))
        send(broker, api, encode, *more, **merging)

    monkeypatch.setattr(shell.channels, "send", noting)
    it.create_topic("t", [[1, 2]])
    it.step()
    assert {(leader.host_name, leader.port) for request in heard for leader in request.live_leaders} == {("b1", 9001)}
    assert shell.endpoint_of(it.znodes.brokers[1]) == Endpoint("CONTROL", "b1", 9000)
