"""The tasks of the journal and of the ZooKeeper session: if one dies, the program ends with its error."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from aiocontroller.config import Config
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.simulated_net import SimulatedClock
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.net.ports import World
from aiocontroller.net.tasks import Tasks
from aiocontroller.service import Service
from aiocontroller.zookeeper.errors import ClientClosedError
from tests.unit.controller.virtual_cluster import Stage, is_active, stage


class Death(Exception):
    pass


class DyingJournal(MemoryJournal):
    def __init__(self, world: World) -> None:
        super().__init__(1, world.clock)
        self.dies = asyncio.Event()

    async def start(self, tasks: Tasks | None = None) -> None:
        assert tasks is not None, "the program starts the journal in its group"
        tasks.start_soon(self._write)

    async def _write(self) -> None:
        await self.dies.wait()
        raise Death("of the journal")


@virtual_time
async def test_the_program_ends_when_its_journal_dies() -> None:
    async with stage() as it:
        host = it.network.host("controller")
        world = World(host, SimulatedClock(host), it.world.random, debug=True)
        journal = DyingJournal(world)
        config = msgspec.structs.replace(Config(), zookeeper_connect=it.zookeeper.address)
        service = Service(config, world, journal=journal, with_http=False)
        running = asyncio.create_task(service.run())
        await it.until(lambda: is_active(service))
        journal.dies.set()
        with pytest.raises(Death, match="of the journal"):
            await asyncio.wait_for(running, 10)
        assert not await it.zk.get_controller(watch=False), "it closed its session, so a standby wins at once"


@virtual_time
async def test_the_program_ends_when_its_session_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Death("of the session")

    async with stage() as it:
        service = await it.add_controller()
        await it.until(lambda: is_active(service))
        monkeypatch.setattr(service.client.session, "_suspend", die)
        cut(it, service)
        with pytest.raises(Death, match="of the session"):
            await asyncio.wait_for(it._running.pop(service), 10)
        with pytest.raises(ClientClosedError):
            await service.client.get_many(["/controller"])


def cut(it: Stage, service: Service) -> None:
    it.network.cut_host(it.hosts[service].name)
