"""Debts: written before they count, paid when brokers answer, given up where they might delete what is in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aiocontroller.controller import debts
from aiocontroller.core import debt_changes
from aiocontroller.core import events as ev
from aiocontroller.core.debts import Changes
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.event_kinds import Event
from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.codec import Create
from aiocontroller.zookeeper.debts import encode_debts, encode_root
from aiocontroller.zookeeper.errors import Code
from tests.unit.controller.pure_cluster import cluster, run
from tests.unit.controller.virtual_cluster import is_active, stage

T0 = TopicPartition("t", 0)


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

    def schedule(key: str, delay_s: float, event: Event) -> None:
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


@pytest.mark.parametrize("topics, partitions", [(1, 6000), (600, 10)])
@virtual_time
async def test_thousands_of_debts_are_paid_at_once(topics: int, partitions: int) -> None:
    async with stage() as it:
        await it.add_broker(1)
        await it.create(paths.DEBTS, encode_root(0))
        await it.create(paths.debts_of_broker(2), b"")
        owed = encode_debts(dict.fromkeys(range(partitions), bytes(range(16))))
        names = [f"topic-{number:03d}" for number in range(topics)]
        await it.client.write_many([Create(paths.debts(2, name), owed) for name in names], fence=None)
        service = await it.add_controller()
        await it.until(lambda: is_active(service) and service.shell.context.loaded)
        assert len(service.shell.context.debts) == topics * partitions
        returned = await it.add_broker(2)
        await it.until(lambda: len(service.shell.context.debts) == 0, within_s=5)
        (request,) = returned.of(ApiKey.STOP_REPLICA)
        assert sum(len(topic.partition_states) for topic in request.topic_states) == topics * partitions
        assert (await it.zk.debts.load()).owed == []
