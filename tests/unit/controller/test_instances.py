"""Which instances a controller knows, as they come, change and go."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiocontroller.controller.instances import EVERY_S, Instances
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.zookeeper.from_aiozk import ACL
from tests.unit.controller.virtual_cluster import SESSION_MS, begin, is_active, stage


def instances_of(service: Service) -> tuple[Instances, asyncio.Task[None]]:
    instances = Instances(service.controller, "host", f"http://{service.shell.id}", f"0.{service.shell.id}")
    return instances, asyncio.create_task(instances.run())


@virtual_time
async def test_a_standby_is_known_until_its_session_ends() -> None:
    async with stage() as it:
        first = await begin(it, 1)
        second = await it.add_controller(aiocontroller_id=1002)
        of_first, running = instances_of(first)
        of_second, also = instances_of(second)
        await it.sleep(2 * EVERY_S)
        assert of_first.shown()["instances"] == [
            {**row, "this": not row["this"]} for row in of_second.shown()["instances"]
        ]
        active, standby = of_first.shown()["instances"]
        assert (active["id"], active["active"], active["this"], active["standby"]) == (first.shell.id, True, True, "")
        assert (standby["id"], standby["active"], standby["state"]) == (1002, False, "standing by")
        assert (standby["standby"], standby["lag_s"], standby["http"]) == ("warm", 0, "http://1002")
        assert standby["release"] == "0.1002"
        running.cancel()
        it.crash(first)
        await it.until(lambda: is_active(second))
        await it.sleep(SESSION_MS / 1000 + 2 * EVERY_S)
        [now] = of_second.shown()["instances"]
        assert (now["id"], now["active"], now["state"]) == (1002, True, "active")
        also.cancel()


@virtual_time
async def test_what_others_do_to_an_entry_is_repaired_and_a_quiet_one_is_not_written() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        instances, running = instances_of(service)
        await it.sleep(2 * EVERY_S)
        [name] = await it.client.get_children("/aiocontroller_instances")
        path = f"/aiocontroller_instances/{name}"
        assert (await it.client.get(path))[1].version == 0
        await it.client.set_data(path, b"{}")
        await it.sleep(3 * EVERY_S)
        assert (await it.client.get(path))[1].version == 2
        await it.client.delete(path)
        await it.sleep(3 * EVERY_S)
        assert [row["id"] for row in instances.shown()["instances"]] == [service.shell.id]
        running.cancel()


@virtual_time
async def test_a_refusal_is_said_once_and_on_the_page(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as it:
        await it.client.create(
            "/aiocontroller_instances",
            b"",
            acl=[ACL.make("digest", "kafka:nobody-knows", read=True, write=True, create=True)],
        )
        service = await begin(it, 1)
        instances, running = instances_of(service)
        await it.sleep(4 * EVERY_S)
        assert "/aiocontroller_instances" in instances.shown()["problem"]
        logged = [r for r in caplog.records if r.name.endswith("instances") and r.levelno == logging.WARNING]
        assert len(logged) == 1
        assert is_active(service)
        running.cancel()
