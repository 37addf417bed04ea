"""What follows from brokers' answers to LeaderAndIsr, StopReplica and UpdateMetadata."""

from __future__ import annotations

import pytest

from aiocontroller.controller import debts
from aiocontroller.core import events as ev
from aiocontroller.core.debts import Changes
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import TopicPartition
from tests.unit.controller.pure_cluster import cluster, run

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


def test_an_answer_to_stop_replica_pays_debts_and_goes_on_with_deletions() -> None:
    it = cluster(1, 2, t=[[1, 2], [2, 1]], u=[[1, 2]])
    owed = Changes(it.shell.context.debts)
    owed.owe(1, "gone", b"an earlier topic", 0)
    assert run(debts.write(it.shell, owed, "made"))
    it.queue.append(ev.PayDebts(1))
    it.step()
    assert (len(it.shell.context.debts), it.znodes.debts.held) == (0, {})
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    assert "t" not in it.znodes.topics
    assert it.views[1].hosted.keys() == {TopicPartition("u", 0)}
