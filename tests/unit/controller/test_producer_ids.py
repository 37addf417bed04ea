"""Blocks of producer ids: who gets one, which ids are in it, and what happens where none can be given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiocontroller.controller.producer_ids import BLOCK_SIZE, MAX_ATTEMPTS
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import AllocateProducerIds
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.zookeeper.cluster_znodes import ProducerIdBlock
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster
from tests.unit.controller.virtual_cluster import Stage, begin, is_active, stage, terms
from tests.unit.controller.virtual_cluster import ask as ask_queue


async def taken_by_a_broker_meanwhile(it: Stage, service: Service, take: Callable[[], Any]) -> ProducerIdBlock:
    """Between the controller's reading and its writing, as an old controller in a broker might."""
    zk = service.shell.zk
    real = zk.get_latest_producer_id_block
    taken: list[ProducerIdBlock] = []

    async def then_another_takes_it() -> Any:
        last, version = await real()
        if not taken:
            assert isinstance(last, ProducerIdBlock)
            taken.append(ProducerIdBlock(2, last.block_end + 1, last.block_end + 1000))
            epoch = await zk.get_controller_epoch()
            assert epoch is not None
            assert await zk.set_latest_producer_id_block(taken[0], version, fence=epoch[1])
        return last, version

    zk.get_latest_producer_id_block = then_another_takes_it  # type: ignore[method-assign]
    try:
        await take()
    finally:
        zk.get_latest_producer_id_block = real  # type: ignore[method-assign]
    return taken[0]


HIGHEST = 9_223_372_036_854_775_807
"""A signed number of 64 bits."""


class Znode:
    """``/latest_producer_id_block``; ``losses`` writes are beaten by another's."""

    def __init__(self, it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.block: ProducerIdBlock | BadZNode | None = None
        self.version = -1
        self.losses = self.writes = 0
        self._fence = it.znodes.fence
        monkeypatch.setattr(it.znodes, "get_latest_producer_id_block", self._get, raising=False)
        monkeypatch.setattr(it.znodes, "set_latest_producer_id_block", self._set, raising=False)

    async def _get(self) -> tuple[Any, int]:
        return self.block, self.version

    async def _set(self, block: ProducerIdBlock, version: int, *, fence: int) -> bool:
        self._fence(fence)
        self.writes += 1
        assert version == self.version
        self.version += 1
        if self.losses:
            self.losses -= 1
            first = 0 if self.block is None else self.block.block_end + 1  # type: ignore[union-attr]
            self.block = ProducerIdBlock(9, first, first + BLOCK_SIZE - 1)
            return False
        self.block = block
        return True


@pytest.fixture
def it() -> PureCluster:
    return cluster(1)


@pytest.fixture
def znode(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> Znode:
    return Znode(it, monkeypatch)


def ask(it: PureCluster, broker: int = 1, epoch: int | None = None, *, own: bool = False) -> Any:
    epoch = it.views[1].epoch if epoch is None else epoch
    return it.ask(AllocateProducerIds, broker=broker, broker_epoch=epoch, own=own)


def test_blocks_follow_each_other_and_the_znode_names_the_last_with_its_broker(it: PureCluster, znode: Znode) -> None:
    assert [ask(it), ask(it)] == [(0, 1000), (1000, 1000)]
    assert znode.block == ProducerIdBlock(1, 1000, 1999)


def test_only_a_registered_incarnation_gets_ids(it: PureCluster, znode: Znode) -> None:
    epoch = it.views[1].epoch
    assert ask(it, 2) == KafkaErrorCode.BROKER_ID_NOT_REGISTERED
    assert ask(it, 1, epoch - 1) == ask(it, 1, epoch + 1) == KafkaErrorCode.STALE_BROKER_EPOCH
    assert (znode.block, znode.writes) == (None, 0)


def test_the_controllers_own_clients_need_no_broker(it: PureCluster, znode: Znode) -> None:
    assert ask(it, 2, own=True) == (0, 1000)
    assert znode.block == ProducerIdBlock(2, 0, 999)


def test_a_block_that_another_took_meanwhile_is_skipped(it: PureCluster, znode: Znode) -> None:
    znode.losses = MAX_ATTEMPTS - 1
    assert ask(it) == (1000 * (MAX_ATTEMPTS - 1), 1000)


def test_attempts_end(it: PureCluster, znode: Znode) -> None:
    znode.losses = MAX_ATTEMPTS
    assert ask(it) == KafkaErrorCode.UNKNOWN_SERVER_ERROR
    assert znode.writes == MAX_ATTEMPTS


def test_a_damaged_znode_is_reported_and_no_block_is_guessed(it: PureCluster, znode: Znode) -> None:
    znode.block, znode.version = BadZNode("/latest_producer_id_block", "{", "JSON"), 4
    assert ask(it) == KafkaErrorCode.UNKNOWN_SERVER_ERROR
    assert list(it.shell.bad_paths()) == ["/latest_producer_id_block"]
    assert znode.writes == 0


@pytest.mark.parametrize("missing, answer", [(0, (HIGHEST - 999, 1000)), (1, KafkaErrorCode.UNKNOWN_SERVER_ERROR)])
def test_the_last_block_ends_with_the_highest_id(it: PureCluster, znode: Znode, missing: int, answer: Any) -> None:
    end = HIGHEST - 1000 + missing
    znode.block = ProducerIdBlock(1, end - 999, end)
    assert ask(it) == answer


@virtual_time
async def test_producer_id_blocks_do_not_overlap() -> None:
    """Nor those of one term and the next, nor with one that another controller takes meanwhile."""
    async with stage() as it:
        service = await begin(it, 2)
        given: list[tuple[int, int]] = []

        async def take(broker: int) -> None:
            epoch = it.brokers[broker].epoch
            given.append(await ask_queue(service, ev.AllocateProducerIds, broker=broker, broker_epoch=epoch))

        for broker in (1, 2, 1):
            await take(broker)
        service.queue.append(ev.Expire())
        service.queue.append(ev.Reelect())
        await it.until(lambda: is_active(service) and terms(service) == 2)
        await take(2)
        foreign = await taken_by_a_broker_meanwhile(it, service, lambda: take(1))
        ids = [first + i for first, count in [*given, (foreign.block_start, 1000)] for i in range(count)]
        assert len(ids) == len(set(ids)) == 6 * 1000
