"""What peace repairs as an operator would."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.lab.checkers.history import ZNodeHistory
from aiocontroller.lab.simulation.peace import Peace

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
