"""ISRs that leaders have written themselves, and announce by notifications."""

from __future__ import annotations

import msgspec

from aiocontroller.core import events as ev
from aiocontroller.core.ids import TopicPartition
from tests.unit.controller.pure_cluster import PureCluster, cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def written_by_its_leader(it: PureCluster, tp: TopicPartition, *isr: int) -> None:
    state = it.znodes.states[tp]
    it.znodes.states[tp] = msgspec.structs.replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)


def test_announced_isrs_are_read_and_the_notifications_deleted() -> None:
    it = cluster(1, 2, t=[[1, 2], [2, 1]])
    written_by_its_leader(it, T0, 1)
    written_by_its_leader(it, T1, 2)
    it.znodes.isr_changes = [T0, TopicPartition("unknown", 0)]
    it.queue.append(ev.IsrChangeNotification())
    it.step()
    table = it.shell.context.table
    assert (table.isr(0), table.isr(1)) == ((1,), (2, 1)), "only announced partitions are read"
    assert it.znodes.isr_changes == []


def test_a_partition_without_a_leader_gets_one_that_has_joined_the_isr() -> None:
    it = cluster(1, 2, t=[[1, 2]])
    written_by_its_leader(it, T0, 1)
    it.znodes.isr_changes = [T0]
    it.queue.append(ev.IsrChangeNotification())
    it.step()
    it.unregister(1)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert it.znodes.states[T0].leader == -1
    written_by_its_leader(it, T0, 1, 2)  # a dying leader's write may follow the election's read
    it.znodes.isr_changes = [T0]
    it.queue.append(ev.IsrChangeNotification())
    it.step()
    assert it.znodes.states[T0].leader == 2
