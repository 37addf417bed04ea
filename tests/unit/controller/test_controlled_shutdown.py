"""Controlled shutdown on a cluster without I/O: what moves, what is answered, and when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire.apis import ApiKey
from tests.unit.controller.pure_cluster import PureCluster, cluster


def shut_down(it: PureCluster, broker: int, epoch: int | None = None) -> list[Any]:
    """The answers, after everything that follows has been handled."""
    answers: list[Any] = []
    known = it.shell.context.brokers[broker].epoch if epoch is None else epoch
    it.queue.append(ev.ControlledShutdown(broker=broker, broker_epoch=known, reply=Reply(answers.append)))
    it.step()
    return answers


def state(it: PureCluster, row: int) -> tuple[int, tuple[int, ...]]:
    table = it.shell.context.table
    return table.leader[row], table.isr(row)


def test_leaders_move_and_the_broker_leaves_the_isrs() -> None:
    it = cluster(1, 2, 3, t=[[1, 2, 3], [2, 1], [3, 2]])
    assert shut_down(it, 1) == [[]]
    assert [state(it, row) for row in range(3)] == [(2, (2, 3)), (2, (2,)), (3, (3, 2))]
    assert it.shell.context.leaving == {1}, "it leads nothing from now on, although it is still registered"


def test_partitions_that_no_other_replica_can_lead_are_the_answer() -> None:
    it = cluster(1, 2, 3, t=[[1, 2], [1, 3]])
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert shut_down(it, 1) == [[("t", 0)]]
    assert [state(it, row) for row in range(2)] == [(1, (1,)), (3, (3,))]


def test_a_replica_that_has_no_other_stays_and_does_not_keep_the_broker() -> None:
    """As in Kafka: the broker would otherwise never be allowed to end."""
    it = cluster(1, 2, t=[[1]])
    assert shut_down(it, 1) == [[]]
    assert state(it, 0) == (1, (1,))


def test_a_dead_replica_that_the_stopping_leader_has_just_added_stays_in_the_isr() -> None:
    """As in Kafka, where only stopping brokers leave it.  Below protocol 2.7 leaders write the ISR themselves, perhaps
    before they know of the death; the next leader removes the replica."""
    it = cluster(1, 2, 3, t=[[1, 2, 3]])
    it.unregister(3)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert state(it, 0) == (1, (1, 2))
    partition = TopicPartition("t", 0)
    before = it.znodes.states[partition]
    it.znodes.states[partition] = msgspec.structs.replace(
        before, isr=(1, 2, 3), partition_epoch=before.partition_epoch + 1
    )
    assert shut_down(it, 1) == [[]]
    assert state(it, 0) == (2, (2, 3))
    assert it.znodes.states[partition].partition_epoch == before.partition_epoch + 2


@pytest.mark.parametrize(
    "partitions, stays", [([], True), ([[1]], True), ([[1, 3]], True), ([[1, 2]], False), ([[2, 1]], False)]
)
def test_a_broker_from_which_nothing_moves_hears_of_the_brokers_and_shows_by_its_answer_that_it_is_alive(
    partitions: list[list[int]], stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = cluster(1, 2, t=partitions)
    channels, heard = it.shell.channels, []
    assert channels is not None
    send = channels.send

    def observed(broker: int, api: ApiKey, *args: Any, **more: Any) -> None:
        heard.append((broker, api))
        send(broker, api, *args, **more)

    monkeypatch.setattr(channels, "send", observed)
    for _ in range(2):
        heard.clear()
        shut_down(it, 1)
        assert (heard == [(1, ApiKey.UPDATE_METADATA)]) == stays
        assert any(broker == 1 for broker, _ in heard)


def test_asking_again_moves_nothing_more() -> None:
    it = cluster(1, 2, t=[[1, 2]])
    shut_down(it, 1)
    before = state(it, 0), it.shell.context.table.leader_epoch[0]
    assert shut_down(it, 1) == [[]]
    assert (state(it, 0), it.shell.context.table.leader_epoch[0]) == before


def test_an_earlier_incarnation_is_refused_and_changes_nothing() -> None:
    it = cluster(1, 2, t=[[1, 2]])
    epoch = it.shell.context.brokers[1].epoch
    assert shut_down(it, 1, epoch - 1) == [KafkaErrorCode.STALE_BROKER_EPOCH]
    assert (state(it, 0), it.shell.context.leaving) == ((1, (1, 2)), frozenset())


def test_an_unknown_broker_is_refused() -> None:
    it = cluster(1, t=[[1]])
    assert shut_down(it, 9, 1) == [KafkaErrorCode.BROKER_NOT_AVAILABLE]
