"""State changes that meet a state which another process has written."""

from __future__ import annotations

import msgspec

from aiocontroller.core import events as ev
from aiocontroller.core.ids import TopicPartition
from tests.unit.controller.pure_cluster import cluster

T0 = TopicPartition("t", 0)


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
