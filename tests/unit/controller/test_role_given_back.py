"""The role is given back: to brokers when an operator releases it, to a standby when the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import Release
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.service import Service
from aiocontroller.zookeeper import registration
from aiocontroller.zookeeper.codec import Create, Delete
from tests.unit.controller.rivals import FIRST, BrokersController, holder, pair, release
from tests.unit.controller.virtual_cluster import Stage, is_active, take_over, terms


@virtual_time
async def test_brokers_win_what_is_given_back() -> None:
    async with pair() as (it, active, _):
        it.crash(active)
        rival = await BrokersController(it).start()
        await it.client.multi([Create("/migration", b"{}"), Delete("/controller")])
        await it.sleep(5)
        assert await holder(it) == 1
        assert rival.terms == 1
        await rival.stop()


@pytest.mark.parametrize("policy", ["wait", "standby"])
@virtual_time
async def test_release_is_not_undone_by_a_standby(policy: str) -> None:
    """Neither at the vacancy that it makes nor afterwards; the epoch's version tells it from a death."""
    async with pair(aiocontroller_takeover_policy=policy) as (it, active, standby):
        rival = await BrokersController(it).start()
        await release(active)
        await it.until(lambda: rival.terms, 1)
        assert await it.zk.get_controller_epoch() == (2, 3)
        await expire_session(standby.client)  # and it looks anew
        await it.sleep(10)
        assert await holder(it) == 1
        assert not is_active(standby)
        await rival.stop()


@virtual_time
async def test_process_that_ends_hands_the_role_to_its_standby() -> None:
    """As in a rolling upgrade: brokers get it only where no standby runs."""
    async with pair() as (it, active, standby):
        rival = await BrokersController(it).start()
        await it.until(lambda: standby.controller.readiness().ready)
        active.leave()
        await it.until(lambda: is_active(standby), 5)
        assert await it.zk.get_controller_epoch() == (2, 2)
        assert rival.terms == 0
        standby.leave()
        await it.until(lambda: rival.terms, 5)
        await rival.stop()


@virtual_time
async def test_process_that_ends_during_a_release_leaves_the_role_to_the_brokers() -> None:
    async with pair() as (it, active, standby):
        rival = await BrokersController(it).start()
        await it.until(lambda: standby.controller.readiness().ready)
        active.queue.append(Release(reply=Reply(lambda _: None)))
        active.leave()
        await it.until(lambda: rival.terms, 5)
        assert not is_active(standby)
        await rival.stop()


@virtual_time
async def test_observer_takes_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(aiocontroller_takeover_policy="standby") as (it, active, standby):
        await release(standby)
        assert standby.controller.election.observing
        rival = await BrokersController(it).start()
        it.crash(active)
        await it.until(lambda: rival.terms)
        await it.sleep(5)
        assert not is_active(standby)
        assert await holder(it) == 1
        await rival.stop()


@virtual_time
async def test_standby_that_was_released_by_mistake_stands_by_again_when_it_is_asked_to_take_over() -> None:
    async with pair() as (it, active, standby):
        await release(standby)
        assert not standby.controller.readiness().ready
        (reason,) = await take_over(standby)
        assert reason.endswith("have it release the role first; this process stands by again")
        await it.until(lambda: standby.controller.readiness().ready)
        assert standby.controller.election.mirror is not None
        await it.until(lambda: standby.controller.election.mirror.status()["state"] == "warm")
        (reason,) = await take_over(standby)
        assert reason.endswith("have it release the role first")
        it.crash(active)
        await it.until(lambda: is_active(standby))


@virtual_time
async def test_stale_release_raises_and_deletes_nothing() -> None:
    async with pair() as (it, _, _standby):
        with pytest.raises(ControllerMovedError):
            await registration.release_controller(it.client, 0, 0)
        assert await holder(it) == FIRST
        assert await it.zk.get_controller_epoch() == (1, 1)


# -- while another process writes /controller_epoch, as an operator may ------------------------------------------------


def write_epoch_before_the_delete(it: Stage, service: Service) -> list[int]:
    """Write the epoch twice, each time before a delete of ``/controller`` by this service; returns the fences used."""
    zk, used = service.shell.zk, []
    delete: Callable[[int], Awaitable[None]] = zk.delete_controller

    async def refused(fence: int) -> None:
        used.append(fence)
        if len(used) <= 2:
            await it.client.set_data("/controller_epoch", b"%d" % (40 + len(used)), -1)
        await delete(fence)

    zk.delete_controller = refused  # type: ignore[method-assign]
    return used


@virtual_time
async def test_role_is_given_back_although_the_epoch_is_written_by_hand_meanwhile() -> None:
    """Else ``/controller`` would stay ours, without a term, for as long as the guard objects to one."""
    async with pair() as (it, active, standby):
        used = write_epoch_before_the_delete(it, active)
        rival = await BrokersController(it).start()
        await it.add_broker(2, authorizer_class_name="org.example.Other")
        await it.until(lambda: rival.terms, 30)
        assert len(used) == 3
        assert await holder(it) == 1
        assert not is_active(active)
        assert not is_active(standby)
        await rival.stop()


@virtual_time
async def test_registration_is_withdrawn_although_the_epoch_is_written_by_hand_meanwhile() -> None:
    async with pair() as (it, active, standby):
        it.crash(active)
        await it.until(lambda: standby.controller.guard.standing_permit() is not None)
        used = write_epoch_before_the_delete(it, standby)
        await it.client.multi([Create("/migration", b"{}"), Delete("/controller")])
        await it.sleep(5)
        assert len(used) == 3
        assert await holder(it) is None
        await it.delete("/migration")
        await it.until(lambda: is_active(standby), 5)


@virtual_time
async def test_fence_that_is_refused_during_a_release_ends_it_without_another_term() -> None:
    """The release is answered then, and this process only observes: it may not win the next election."""
    async with pair() as (it, active, standby):
        it.brokers[1].unanswered.update(it.brokers[1].served)  # the release waits for this broker
        answer = asyncio.create_task(release(active))
        await it.until(lambda: active.shell.leaving)
        await it.client.set_data("/controller_epoch", b"41", -1)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
        await answer
        await it.until(lambda: is_active(standby))
        assert terms(active) == 1
        assert not is_active(active)
