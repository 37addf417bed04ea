"""A broker is deposed while it deletes no topic, so that it can be the controller again (KAFKA-12315)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiocontroller.controller import controller_election
from aiocontroller.controller.deposing import IDLE_WITHIN_S, LeftUnfinished
from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import Release
from aiocontroller.core.request_content import Released
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.zookeeper.codec import Create, Delete
from tests.unit.controller.rivals import BROKERS, FIRST, SECOND, BrokersController, holder, pair
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
        standby.controller.election._known_epoch = None  # so that it does not register at once
        it.crash(active)
        await it.client.multi([Delete("/controller"), Create("/controller", BROKERS % 1)])
        await it.sleep(IDLE_WITHIN_S / 2)
        assert terms(standby) == 0
        await it.client.multi([Delete(DELETION)])
        await it.until(lambda: is_active(standby), 1)
        assert standby.controller.election.unfit() == []


@virtual_time
async def test_an_aiocontroller_that_was_faster_during_the_wait_keeps_the_role() -> None:
    async with under_a_broker() as (it, first):
        second = await it.add_controller(aiocontroller_id=SECOND)
        asked = [asyncio.create_task(take_over(each)) for each in (first, second)]
        await it.sleep(IDLE_WITHIN_S / 2)
        await it.client.multi([Delete(DELETION)])
        answers = await asyncio.gather(*asked)
        assert sorted(answers) == [[], ["another controller was elected first"]]
        assert [is_active(first), is_active(second)] == [answer == [] for answer in answers]
        assert await it.zk.get_controller_epoch() == (2, 1)


@virtual_time
async def test_policy_takeover_takes_the_role_from_the_broker_that_won_it_during_the_wait() -> None:
    """And names that broker."""
    async with stage() as it:
        for broker in (1, 2):
            await it.add_broker(broker)
        await it.create("/controller_epoch", b"1")
        one, two = [await BrokersController(it, broker).start() for broker in (1, 2)]
        await it.create(DELETION, b"")
        adding = asyncio.create_task(it.add_controller(aiocontroller_takeover_policy="takeover"))
        await it.until(lambda: it.hosts)
        (ours,) = it.hosts
        await it.sleep(IDLE_WITHIN_S / 2)
        await one.stop()
        await it.until(lambda: two.terms, 1)
        await adding
        await it.until(ours.controller.election.unfit, 3 * IDLE_WITHIN_S)
        assert [each.broker for each in ours.controller.election.unfit()] == [2]
        await two.stop()


@virtual_time
async def test_a_vacant_role_is_taken_whatever_is_being_deleted() -> None:
    async with stage() as it:
        await it.create(DELETION, b"")
        won = await it.zk.register_controller_and_increment_controller_epoch(FIRST, 0, takeover=True, idle=True)
        assert won == (1, 1)


@pytest.mark.parametrize("deleting", [False, True])
@virtual_time
async def test_a_takeover_without_rights_in_admin_does_not_wait(deleting: bool) -> None:
    async with under_a_broker() as (it, standby):
        if not deleting:
            await it.delete(DELETION)
        it.zookeeper.model.tree.nodes["/admin"].acl = ((1, "world", "anyone"),)
        began_s = it.world.clock.monotonic()
        assert await take_over(standby) == []
        assert it.world.clock.monotonic() - began_s < IDLE_WITHIN_S / 2
        assert bool(standby.controller.election.unfit()) is deleting


@virtual_time
async def test_what_a_broker_left_unfinished_outlives_a_failover_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failover = controller_election.on_controller_failover

    async def fails_once(_: Any) -> None:
        monkeypatch.setattr(controller_election, "on_controller_failover", failover)
        raise RuntimeError("as a bug does")

    async with under_a_broker(aiocontroller_standby="cold") as (it, standby):
        monkeypatch.setattr(controller_election, "on_controller_failover", fails_once)
        await take_over(standby)
        await it.until(lambda: is_active(standby), 10)
        assert terms(standby) == 2
        assert [each.broker for each in standby.controller.election.unfit()] == [1]


@virtual_time
async def test_a_broker_that_replaced_a_znode_of_ours_without_a_term_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While we contend for it: this election is no takeover."""
    async with stage() as it:
        await it.add_broker(1)
        ours = await it.add_controller(aiocontroller_id=FIRST)
        permit = ours.controller.guard.permit

        async def meanwhile(**given: Any) -> Any:
            await it.client.multi([Delete("/controller"), Create("/controller", BROKERS % 1)])
            return await permit(**given)

        with monkeypatch.context() as patched:
            patched.setattr(ours.controller.guard, "permit", meanwhile)
            ours.queue.append(ev.Expire())
            ours.queue.append(ev.Reelect())
            await it.sleep(1)
        assert await holder(it) == 1
        assert terms(ours) == 1


def test_topics_are_named_so_that_a_terminal_obeys_none() -> None:
    found = str(LeftUnfinished(1, ("a\u202eb", "c d")))
    assert 'it was deleting a\\u202eb, "c d": restart it' in found
