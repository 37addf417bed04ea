"""What peace repairs as an operator would."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.lab.checkers.history import ZNodeHistory
from aiocontroller.lab.cluster.partition import Partition as Replica
from aiocontroller.lab.simulation.peace import Peace
from aiocontroller.zookeeper.znode_json import topic_id_to_text

PARTITION = ("a", 0)


@pytest.mark.parametrize(
    "replicas, by_hand, moved",
    [
        ({2}, True, {TopicPartition("a", 0): (1,)}),
        ({1, 2}, True, {}),  # the ISR is among the replicas
        ({2}, False, {}),  # the controller's own doing would be a violation, which peace must not hide
    ],
)
def test_an_isr_that_a_written_assignment_leaves_out_gets_its_partition_back(
    replicas: set[int], by_hand: bool, moved: dict[TopicPartition, tuple[int, ...]]
) -> None:
    history = ZNodeHistory(lambda: 0.0)
    history.states[PARTITION] = LeaderAndIsr(leader=1, leader_epoch=1, isr=(1,), controller_epoch=1, partition_epoch=0)
    history.assigned[PARTITION] = frozenset(replicas)
    if by_hand:
        history.written_by_hand["a"] = {"/brokers/topics/a": 1}
    asked: dict[TopicPartition, tuple[int, ...]] = {}
    steps = SimpleNamespace(reassign=asked.update)
    Peace(cast(Any, SimpleNamespace(history=history, steps=steps)))._assign_who_was_left_out()
    assert asked == moved


@pytest.mark.parametrize(
    "leader, leader_epoch, partition_epoch, lost",
    [
        (1, 5, 3, False),  # what the broker is sent corrects it
        (1, 5, 9, False),
        (1, 5, 10, True),  # it ignores partition epochs older than its own, whatever the leader epoch
        (1, 7, 3, True),  # it ignores older leader epochs
        (2, 6, 9, False),
        (2, 6, 10, True),
        (1, 6, 9, True),
    ],
)
def test_a_broker_that_ignores_what_it_is_sent_is_started_again(
    leader: int, leader_epoch: int, partition_epoch: int, lost: bool
) -> None:
    replica = Replica("a", 0)
    replica.leader, replica.leader_epoch, replica.partition_epoch = leader, leader_epoch, partition_epoch
    replica.replicas = (1, 2)
    state = LeaderAndIsr(leader=2, leader_epoch=6, isr=(1, 2), controller_epoch=3, partition_epoch=9)
    history = ZNodeHistory(lambda: 0.0)
    history.states[PARTITION], history.assigned[PARTITION] = state, frozenset({1, 2})
    history.topic_ids["a"] = topic_id_to_text(replica.topic_id)
    history.written_by_hand["a"] = {"/brokers/topics/a/partitions/0/state": 1}
    broker = SimpleNamespace(replicas=SimpleNamespace(partitions=lambda: [replica]))
    peace = Peace(cast(Any, SimpleNamespace(history=history)))
    assert peace._knows_what_is_lost(1, cast(Any, broker)) == lost
    history.written_by_hand.clear()
    assert not peace._knows_what_is_lost(1, cast(Any, broker)), "peace must not hide a violation"
