"""ISRs change: by leaders' requests, and by answers of brokers whose log directories failed."""

from __future__ import annotations

import pytest

from aiocontroller.controller import isr
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import AlterPartition
from tests.unit.controller.pure_cluster import cluster

T0 = TopicPartition("t", 0)


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


def test_a_non_replica_added_by_a_leader_is_stopped_and_the_leader_gets_the_replicas() -> None:
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


def test_requests_are_written_in_steps_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr, "WRITTEN_AT_ONCE", 5)
    event = ev.AlterPartitionReceived(broker=1, broker_epoch=1, version=1, partitions=(), reply=Reply(print))
    sizes = [[len(rows) for _, rows in step] for step in isr._steps([(event, [0] * n) for n in (2, 3, 1, 9, 1)])]
    assert sizes == [[2, 3], [1, 9], [1]]
