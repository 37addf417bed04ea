"""ISR changes that a leader writes to ZooKeeper itself, and whose answers may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.cluster.generations import generation
from aiocontroller.lab.cluster.partition import IsrChange, Partition
from aiocontroller.lab.cluster.zk_isr_manager import ZkIsrManager
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.znodes import encode_partition_states

PATH = "/brokers/topics/t/partitions/0/state"


class OneState:
    """ZooKeeper with the state of one partition."""

    def __init__(self, isr: tuple[int, ...], version: int) -> None:
        self.version = version
        [self.data] = encode_partition_states([LeaderAndIsr(2, 7, isr, 5, version)])

    async def set_many(self, paths: Sequence[str], data: Sequence[bytes], versions: Sequence[int]) -> Any:
        assert paths == [PATH]
        if versions != [self.version]:
            return SimpleNamespace(code=[Code.BAD_VERSION], version=[-1])
        self.version, self.data = self.version + 1, data[0]
        return SimpleNamespace(code=[Code.OK], version=[self.version])

    async def get_many(self, paths: Sequence[str]) -> Any:
        assert paths == [PATH]
        return SimpleNamespace(data=[self.data], version=[self.version])


@pytest.mark.parametrize(
    "there, version, accepted",
    [((1, 2), 3, 4), ((2,), 4, 4), ((2,), 9, 9), ((1, 2), 4, None), ((2, 3), 4, None)],
    ids=["as known", "written before", "written before, and since", "another ISR", "one that was not asked for"],
)
@virtual_time
async def test_a_state_that_holds_what_was_to_be_written_was_written_before(
    there: tuple[int, ...], version: int, accepted: int | None
) -> None:
    """Broker 2 leads in epoch 7, knows version 3, and writes the ISR (2,)."""
    outcomes: list[object] = []
    replicas = SimpleNamespace(
        broker_id=2,
        generation=generation("2.4"),
        isr_change_answered=lambda change, code, epoch, isr, version: outcomes.append((code, version)),
        revert_isr_change=lambda change: outcomes.append("taken back"),
    )
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    zk = SimpleNamespace(client=OneState(there, version))
    manager = ZkIsrManager(cast(Any, SimpleNamespace(clock=clock)), cast(Any, replicas), cast(Any, zk))
    partition = Partition("t", 0)
    partition.controller_epoch = 5
    await manager._write([IsrChange(partition, 7, (2,), 3)])
    assert outcomes == ["taken back" if accepted is None else (0, accepted)]
