"""Leaders' requests to change ISRs: what is refused, and what is written together."""

from __future__ import annotations

import pytest

from aiocontroller.controller import alter_partition
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import AlterPartition
from tests.unit.controller.pure_cluster import cluster

T0 = TopicPartition("t", 0)


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
    monkeypatch.setattr(alter_partition, "WRITTEN_AT_ONCE", 5)
    event = ev.AlterPartitionReceived(broker=1, broker_epoch=1, version=1, partitions=(), reply=Reply(print))
    sizes = [
        [len(rows) for _, rows in step] for step in alter_partition._steps([(event, [0] * n) for n in (2, 3, 1, 9, 1)])
    ]
    assert sizes == [[2, 3], [1, 9], [1]]
