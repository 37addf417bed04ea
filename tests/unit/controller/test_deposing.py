"""A broker is deposed while it deletes no topic, so that it can be the controller again (KAFKA-12315)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiocontroller.controller.deposing import IDLE_WITHIN_S
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import Release
from aiocontroller.core.request_content import Released
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.zookeeper.codec import Create, Delete
from tests.unit.controller.rivals import BROKERS, FIRST, pair
from tests.unit.controller.virtual_cluster import Stage, is_active, stage, take_over, terms

DELETION = "/admin/delete_topics/wanted-no-more"


async def a_broker_deletes_a_topic(it: Stage) -> None:
    await it.zk.create_top_level_paths()
    await it.client.multi(
        [Create("/controller_epoch", b"1"), Create("/controller", BROKERS % 1), Create(DELETION, b"")]
    )


@asynccontextmanager
async def under_a_broker(**properties: Any) -> AsyncIterator[tuple[Stage, Service]]:
    """Broker 1 is the controller, with a topic to delete; an aiocontroller stands by."""
    async with stage() as it:
        for broker in (1, 2):
            await it.add_broker(broker)
        await a_broker_deletes_a_topic(it)
        standby = await it.add_controller(aiocontroller_id=FIRST, **properties)
        assert not is_active(standby)
        yield it, standby


async def released(service: Service) -> Released:
    answer: asyncio.Future[Released] = asyncio.get_running_loop().create_future()
    service.queue.append(Release(reply=Reply(answer.set_result)))
    return await answer


@virtual_time
async def test_a_takeover_waits_until_nothing_is_deleted() -> None:
    async with under_a_broker() as (it, standby):
        asked = asyncio.create_task(take_over(standby))
        await it.sleep(IDLE_WITHIN_S / 2)
        assert not is_active(standby)
        await it.client.multi([Delete(DELETION)])
        await it.sleep(0.2)
        assert await asked == []
        assert standby.controller.election.unfit() == []


@virtual_time
async def test_a_broker_deposed_while_it_deletes_a_topic_is_to_be_restarted() -> None:
    """As when the deletion waits for a dead broker.  Its next registration shows that it was restarted."""
    async with under_a_broker() as (it, standby):
        began_s = it.world.clock.monotonic()
        assert await take_over(standby) == []
        assert IDLE_WITHIN_S <= it.world.clock.monotonic() - began_s < IDLE_WITHIN_S + 1
        why = (
            "broker 1 lost the role while it was deleting wanted-no-more: restart it before it becomes the "
            "controller again (KAFKA-12315)"
        )
        assert [str(each) for each in standby.controller.election.unfit()] == [why]
        assert (await released(standby)).unfit == (why,)


@virtual_time
async def test_a_restarted_broker_is_fit_again() -> None:
    async with under_a_broker() as (it, standby):
        assert await take_over(standby) == []
        assert standby.controller.election.unfit()
        await it.restart_broker(1)
        await it.sleep(1)
        assert standby.controller.election.unfit() == []
        assert (await released(standby)).unfit == ()


@virtual_time
async def test_policy_takeover_waits_as_well() -> None:
    async with stage() as it:
        await it.add_broker(1)
        await a_broker_deletes_a_topic(it)
        adding = asyncio.create_task(it.add_controller(aiocontroller_takeover_policy="takeover"))
        await it.until(lambda: bool(it.hosts))
        (ours,) = it.hosts
        await it.sleep(IDLE_WITHIN_S / 2)
        assert not is_active(ours)
        await it.client.multi([Delete(DELETION)])
        await it.until(lambda: is_active(ours), 1)
        await adding


@virtual_time
async def test_what_a_broker_won_meanwhile_is_taken_back_when_it_is_idle() -> None:
    """Policy ``standby``."""
    async with pair(aiocontroller_takeover_policy="standby") as (it, active, standby):
        await it.client.multi([Create(DELETION, b"")])
        standby.controller.election._known = None  # so that it does not register at once
        it.crash(active)
        await it.client.multi([Delete("/controller"), Create("/controller", BROKERS % 1)])
        await it.sleep(IDLE_WITHIN_S / 2)
        assert terms(standby) == 0
        await it.client.multi([Delete(DELETION)])
        await it.until(lambda: is_active(standby), 1)
        assert standby.controller.election.unfit() == []
