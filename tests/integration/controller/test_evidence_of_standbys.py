"""A standby's own evidence: brokers that die with the controller, a controller without ZooKeeper.

Sessions last six seconds here; what happens sooner is due to the standby's own evidence.
"""

from __future__ import annotations

import asyncio

import pytest

from aiocontroller.controller.shell import HAND_OVER_AFTER_S
from aiocontroller.core.events import ProtocolChange
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.service import Service
from tests.integration.controller.harness import journal_of
from tests.integration.controller.test_early_detection import QUICKLY_S, Stage, stage, suspicions, two_controllers

ZOOKEEPER = "localhost"


async def pair_with_topic(it: Stage, mode: str = "refused") -> tuple[Service, Service]:
    """Create ``t-0`` to ``t-2``, each led by another broker, and a standby that watches brokers and controller."""
    settings = {"aiocontroller_early_controller_detection": mode, "aiocontroller_standby": "warm"}
    first = await it.begin(mode, aiocontroller_id=1_000_001, **settings)
    it.on_host("standby")
    second = await it.add_controller(aiocontroller_id=1_000_002, aiocontroller_early_broker_detection=mode, **settings)
    await asyncio.sleep(4)
    assert [s.controller.election.active for s in (first, second)] == [True, False]
    return first, second


def host_of(it: Stage, service: Service):  # type: ignore[no-untyped-def]
    return it.network.listeners[service.endpoints[0].port][0]


async def crash(it: Stage, service: Service) -> None:
    it.network.crash(host_of(it, service))
    it.services.remove(service)
    it.crash_controller(service)


@pytest.mark.parametrize("mode", ["refused", "full"])
@virtual_time
async def test_controller_and_broker_that_die_together_cost_one_detection(mode: str) -> None:
    async with stage() as it:
        first, second = await pair_with_topic(it, mode)
        await it.deafen(1)
        await crash(it, first)
        await asyncio.sleep(QUICKLY_S)
        assert second.controller.election.active
        assert 1 in await it.registered(), "its session goes on"
        assert [(leader, isr) for leader, isr, _ in await it.now()] == [(2, (2, 3)), (2, (2, 3)), (3, (3, 2))]
        assert ("alarm", 1) in suspicions(second)


@virtual_time
async def test_standby_that_suspects_a_broker_does_nothing_about_it() -> None:
    async with stage() as it:
        first, second = await pair_with_topic(it)
        it.network.block("controller", "broker 1")  # only the standby can see it
        await it.deafen(1)
        await asyncio.sleep(QUICKLY_S)
        assert suspicions(second) == [("suspected", 1)]
        assert len(second.queue) == 0
        assert first.controller.election.active


@virtual_time
async def test_broker_that_has_come_back_is_not_held_against_it() -> None:
    """Another incarnation is judged afresh, and so is one that answers again before the controller dies."""
    async with stage() as it:
        first, second = await pair_with_topic(it)
        await it.deafen(1)
        await asyncio.sleep(QUICKLY_S)
        assert second.shell.broker_heartbeats is not None
        assert list(second.shell.broker_heartbeats.suspects()) == [1]
        it.on_host("broker 1 again")
        await it.kill_broker(1)
        await it.add_broker(1)
        await asyncio.sleep(4)
        assert second.shell.broker_heartbeats.suspects() == {}
        await crash(it, first)
        await asyncio.sleep(QUICKLY_S)
        assert second.controller.election.active
        assert ("alarm", 1) not in suspicions(second)


@virtual_time
async def test_registrations_that_go_while_standing_by_are_forgotten() -> None:
    async with stage() as it:
        first, second = await pair_with_topic(it)
        await it.kill_broker(1)
        await asyncio.sleep(4)
        assert second.shell.broker_heartbeats is not None
        assert sorted(second.shell.broker_heartbeats.detector.peers) == [2, 3]
        await crash(it, first)
        await asyncio.sleep(QUICKLY_S)
        assert sorted(second.shell.broker_heartbeats.detector.peers) == [2, 3]
        assert suspicions(second).count(("alarm", 1)) == 0


@virtual_time
async def test_evidence_outlives_a_reload() -> None:
    async with stage() as it:
        service = await it.begin("refused")
        await it.deafen(1)
        await asyncio.sleep(QUICKLY_S)
        assert list(service.shell.context.suspected) == [1]
        service.queue.append(ProtocolChange())
        await asyncio.sleep(QUICKLY_S)
        assert service.shell.reloaded
        assert list(service.shell.context.suspected) == [1]


# -- a second witness --------------------------------------------------------------------------------------------------


def cut(it: Stage, *hosts: str, broker: int = 1) -> None:
    """Cut these hosts off from the broker, in both directions."""
    for host in hosts:
        it.network.block(host, f"broker {broker}")
        it.network.block(f"broker {broker}", host)


@pytest.mark.parametrize("ways", [("there",), ("back",), ("there", "back")])
@virtual_time
async def test_a_cut_of_our_own_link_moves_nothing_while_the_standby_hears_the_broker(ways: tuple[str, ...]) -> None:
    async with stage() as it:
        first, second = await pair_with_topic(it, "full")
        before = await it.now()
        if "there" in ways:
            it.network.block("controller", "broker 1")
        if "back" in ways:
            it.network.block("broker 1", "controller")
        await asyncio.sleep(30)
        assert await it.now() == before
        assert (suspicions(first), suspicions(second)) == ([("heard elsewhere", 1)], [])
        it.network.heal()
        await asyncio.sleep(5)
        assert await it.now() == before
        assert suspicions(first) == [("heard elsewhere", 1)]


@virtual_time
async def test_a_broker_that_is_silent_to_both_is_suspected_as_soon_as_by_one() -> None:
    async with stage() as it:
        first, second = await pair_with_topic(it, "full")
        cut(it, "controller")
        await asyncio.sleep(10)
        assert suspicions(first) == [("heard elsewhere", 1)]
        cut(it, "standby")
        await asyncio.sleep(1.0)
        assert suspicions(first) == [("heard elsewhere", 1)]
        await asyncio.sleep(0.8)
        assert suspicions(first)[1:] == [("suspected", 1), ("alarm", 1)]
        assert first.controller.election.active
        assert suspicions(second) == [("suspected", 1)]


@pytest.mark.parametrize("how", ["dies", "stands still", "is cut off"])
@virtual_time
async def test_without_the_standbys_word_our_own_evidence_counts(how: str) -> None:
    """The reports of a standby that has fallen silent are soon ignored."""
    async with stage() as it:
        first, second = await pair_with_topic(it, "full")
        cut(it, "controller")
        await asyncio.sleep(5)
        assert suspicions(first) == [("heard elsewhere", 1)]
        if how == "dies":
            await crash(it, second)
        elif how == "stands still":
            host_of(it, second).pause()
        else:
            it.network.block("standby", "controller")
        await asyncio.sleep(1)
        assert suspicions(first)[1:] == [("suspected", 1), ("alarm", 1)]
        if how == "stands still":
            host_of(it, second).resume()


@virtual_time
async def test_what_another_controller_hears_counts_for_one_that_is_about_to_be_elected() -> None:
    """Another controller may learn of an election, or believe in it, before the one that is elected."""
    async with stage() as it:
        first, second = await pair_with_topic(it, "full")
        before = await it.now()
        assert first.controller.election.heartbeats is not None
        address = second.endpoints[0]
        first.controller.election.heartbeats.watch(1_000_002, 1, lambda: address)
        cut(it, "standby")
        await asyncio.sleep(5)
        assert suspicions(second) == [("heard elsewhere", 1)]
        await expire_session(first.client)
        await asyncio.sleep(5)
        assert [s.controller.election.active for s in (first, second)] == [False, True]
        assert await it.now() == before
        assert suspicions(second) == [("heard elsewhere", 1)]


@virtual_time
async def test_a_suspicion_from_before_the_term_moves_nothing_if_another_controller_hears_the_broker() -> None:
    async with stage() as it:
        first, second = await pair_with_topic(it, "full")
        before = await it.now()
        cut(it, "standby")
        await asyncio.sleep(5)
        assert suspicions(second) == [("suspected", 1)]
        await expire_session(first.client)
        await asyncio.sleep(5)
        assert [s.controller.election.active for s in (first, second)] == [False, True]
        assert await it.now() == before
        assert suspicions(second) == [("suspected", 1), ("heard elsewhere", 1)]
        await crash(it, first)
        await asyncio.sleep(1)
        assert suspicions(second)[2:] == [("suspected", 1), ("alarm", 1)]


@virtual_time
async def test_what_a_standby_hears_does_not_delay_the_alarm_of_a_broker_that_refuses() -> None:
    async with stage() as it:
        first, second = await pair_with_topic(it, "full")
        assert second.shell.broker_heartbeats is not None
        assert 1 in dict(second.shell.broker_heartbeats.hears())
        await it.deafen(1)
        await asyncio.sleep(0.3)
        assert suspicions(first) == [("suspected", 1), ("alarm", 1)]


@virtual_time
async def test_a_standby_that_lies_is_believed_about_silence_only_and_zookeeper_decides() -> None:
    """It claims that all brokers answer; one that hangs is noticed when its session expires, as without detection."""
    async with stage() as it:
        first, second = await pair_with_topic(it, "full")
        everybody = [(broker.id, broker.epoch) for broker in first.shell.context.brokers.values()]
        assert second.controller.election.heartbeats is not None
        second.controller.election.heartbeats.speaks_for = lambda: everybody
        it.hush(1)
        await asyncio.sleep(4)
        assert suspicions(first) == [("heard elsewhere", 1)]
        await it.deafen(2)
        await asyncio.sleep(0.3)
        assert suspicions(first)[1:] == [("suspected", 2), ("alarm", 2)]
        await it.kill_broker(1)
        await asyncio.sleep(QUICKLY_S)
        assert 1 not in first.shell.context.brokers


@pytest.mark.parametrize("mode", ["refused", "full"])
@virtual_time
async def test_controller_that_is_cut_off_says_so_at_once_and_hands_over(mode: str) -> None:
    async with stage() as it:
        it.on_host("broker 1")
        await it.add_broker(1)
        first, second = await two_controllers(it, mode)
        for one, other in (("controller 1", ZOOKEEPER), (ZOOKEEPER, "controller 1")):
            it.network.block(one, other)
        it.network.hang_up("controller 1", ZOOKEEPER)
        await asyncio.sleep(0.1)
        status = first.controller.status()
        assert status["active"] is False
        assert str(first.controller.readiness()).splitlines() == ["cut off", "no connection to ZooKeeper"]
        assert not second.controller.election.active, "it may only be slow"
        await asyncio.sleep(HAND_OVER_AFTER_S + 0.5)
        assert second.controller.election.active
        it.network.heal()
        await asyncio.sleep(5)
        assert [s.controller.election.active for s in (first, second)] == [False, True]
        assert first.controller.status()["readiness"]["state"] == "standing by"
        epoch = await it.zk.get_controller_epoch()
        assert epoch is not None
        assert epoch[0] == 2


@virtual_time
async def test_connection_that_comes_back_soon_costs_nothing() -> None:
    async with stage() as it:
        it.on_host("broker 1")
        await it.add_broker(1)
        first, second = await two_controllers(it, "full")
        for _ in range(5):
            it.network.hang_up("controller 1", ZOOKEEPER)
            await asyncio.sleep(HAND_OVER_AFTER_S + 1)
        assert [s.controller.election.active for s in (first, second)] == [True, False]


@virtual_time
async def test_zookeeper_that_is_away_for_all_moves_no_role() -> None:
    """Both are cut off; when ZooKeeper is back, the standby does not act on what it saw meanwhile."""
    async with stage() as it:
        it.on_host("broker 1")
        await it.add_broker(1)
        first, second = await two_controllers(it, "full")
        for _ in range(4):  # after each false alarm the standby takes longer to trust the controller again
            it.zookeeper.stop()
            await asyncio.sleep(3)
            assert first.controller.status()["active"] is False
            await it.zookeeper.start()
            await asyncio.sleep(10)
            assert [s.controller.election.active for s in (first, second)] == [True, False]
        assert journal_of(second).of_kind("elected") == []
