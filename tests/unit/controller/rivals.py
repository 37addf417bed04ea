"""A pair of controllers, and a broker that stands for election beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import Release
from aiocontroller.service import Service
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, SetData
from aiocontroller.zookeeper.kafka_zk_client import ControllerZNode, KafkaZkClient, ZNodeChange
from tests.unit.controller.virtual_cluster import Stage, is_active, stage

FIRST, SECOND = 1_000_001, 1_000_002


BROKERS = b'{"version":1,"brokerid":%d,"timestamp":"0"}'


class BrokersController:
    """The controller in a broker: it stands for election as Kafka's does, by the same round trips."""

    def __init__(self, it: Stage, broker_id: int = 1) -> None:
        self.id = broker_id
        self.client = ZooKeeperClient(it.zookeeper.address, world=it.world, session_timeout_s=60)
        self.zk = KafkaZkClient(self.client)
        self.zk.on_change = self._on_change
        self.terms = 0
        self._elections: list[asyncio.Task[None]] = []

    async def start(self) -> BrokersController:
        await self.client.start(10.0)
        await self._elect()
        return self

    def _on_change(self, change: ZNodeChange, _: str) -> None:
        if change in (ZNodeChange.CONTROLLER_DELETED, ZNodeChange.CONTROLLER_CHANGED):
            self._elections.append(asyncio.create_task(self._elect()))

    async def _elect(self) -> None:
        """``maybeResign`` and ``elect``: watch, look, read the epoch, register."""
        if await self.zk.get_controller(watch=True) is not None:
            return
        epoch, version = await self.zk.get_controller_epoch() or (0, 0)
        results = await self.client.multi(
            [
                SetData("/controller_epoch", b"%d" % (epoch + 1), version),
                Create("/controller", BROKERS % self.id, ephemeral=True),
            ]
        )
        self.terms += all(result.code == 0 for result in results)
        await self.zk.get_controller(watch=True)

    async def stop(self) -> None:
        self.zk.on_change = lambda *_: None  # closing may cause changes
        await asyncio.gather(*self._elections)
        await self.client.close()


@asynccontextmanager
async def pair(**second: Any) -> AsyncIterator[tuple[Stage, Service, Service]]:
    """A broker, an active controller, and its standby with these properties."""
    async with stage() as it:
        await it.add_broker(1)
        active = await it.add_controller(aiocontroller_id=FIRST)
        await it.until(lambda: is_active(active))
        standby = await it.add_controller(aiocontroller_id=SECOND, **second)
        assert not is_active(standby)
        yield it, active, standby


async def release(service: Service) -> None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    service.queue.append(Release(reply=Reply(answer.set_result)))
    await answer


async def holder(it: Stage) -> int | None:
    found = await it.zk.get_controller(watch=False)
    return found.controller_id if isinstance(found, ControllerZNode) else None
