"""A standby competes with brokers for a vacancy: it registers in one round trip, and the guard has the last word."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from aiocontroller.controller.controller_election import ControllerElection
from aiocontroller.core import events as ev
from aiocontroller.core.events import GuardChange
from aiocontroller.core.ids import Endpoint
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.zookeeper import registration
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from tests.unit.controller.rivals import BROKERS, FIRST, SECOND, BrokersController, holder, pair
from tests.unit.controller.virtual_cluster import Stage, begin, is_active, stage, terms

WITHDRAWALS = "aiocontroller_guard_withdrawals_total"


async def broker_first(it: Stage, active: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The active controller dies, and a broker's multi comes before the standby's."""
    seize = registration.seize_controller

    async def late(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(registration, "seize_controller", seize)
        await BrokersController(it).start()
        return await seize(*args, **options)

    monkeypatch.setattr(registration, "seize_controller", late)
    it.crash(active)
    await it.until(lambda: registration.seize_controller is seize)
    await it.sleep(0.2)


@virtual_time
async def test_standby_beats_brokers_at_each_vacancy() -> None:
    """Of five kills with default settings on real brokers, brokers won five before there was this way."""
    async with stage() as it:
        await it.add_broker(1)
        active = await it.add_controller(aiocontroller_id=FIRST)
        await it.until(lambda: is_active(active))
        rivals = [await BrokersController(it, number).start() for number in (1, 2, 3)]
        for term in range(2, 7):
            standby = await it.add_controller(aiocontroller_id=FIRST + term)
            it.crash(active)
            await it.until(lambda s=standby: is_active(s))
            assert await it.zk.get_controller_epoch() == (term, term)
            active = standby
        assert [rival.terms for rival in rivals] == [0, 0, 0]
        for rival in rivals:
            await rival.stop()


@virtual_time
async def test_between_the_vacancy_and_the_registration_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (it, active, standby):
        asked: list[str] = []
        exchange = standby.client.session.exchange
        seize = registration.seize_controller

        async def recorded(bodies: Any, **options: Any) -> Any:
            asked.append("exchange")
            return await exchange(bodies, **options)

        async def seized(*args: Any, **options: Any) -> Any:
            before = len(asked)
            won = await seize(*args, **options)
            asked.append(f"registered by {len(asked) - before}")
            return won

        standby.client.session.exchange = recorded  # type: ignore[method-assign]
        monkeypatch.setattr(registration, "seize_controller", seized)
        it.crash(active)
        await it.until(lambda: is_active(standby))
        assert "registered by 1" in asked


@virtual_time
async def test_epoch_that_was_changed_since_it_was_read_costs_the_quick_way_only() -> None:
    async with pair() as (it, active, standby):
        await it.client.set_data("/controller_epoch", b"41", -1)
        it.crash(active)
        await it.until(lambda: is_active(standby))
        assert await it.zk.get_controller_epoch() == (42, 3)


@virtual_time
async def test_role_that_is_deleted_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 264: the watch on ``/controller`` was used up by the vacancy, and the next one found nothing there."""
    async with pair() as (it, active, standby):
        seize = registration.seize_controller

        async def deleted_at_once(*args: Any, **options: Any) -> Any:
            monkeypatch.setattr(registration, "seize_controller", seize)
            won = await seize(*args, **options)
            await it.client.delete("/controller")
            return won

        monkeypatch.setattr(registration, "seize_controller", deleted_at_once)
        it.crash(active)
        await it.until(lambda: terms(standby) == 2)
        assert await holder(it) == SECOND
        assert await it.zk.get_controller_epoch() == (3, 3)


@virtual_time
async def test_damaged_epoch_is_no_bug_on_standby() -> None:
    async with pair() as (it, _, standby):
        await it.client.set_data("/controller_epoch", b"seven", -1)
        await it.client.multi([Delete("/controller"), Create("/controller", BROKERS % 1)])
        await it.sleep(1)
        assert standby.journal.of_kind("fault") == []  # type: ignore[attr-defined]
        assert not is_active(standby)


@virtual_time
async def test_kraft_controller_that_replaces_ours_is_left_alone() -> None:
    """Its multi deletes ``/controller`` and creates its own, so that the watch tells of a deletion."""
    async with pair(aiocontroller_takeover_policy="standby") as (it, active, standby):
        claim = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}'
        await it.client.multi(
            [SetData("/controller_epoch", b"2", 1), Delete("/controller"), Create("/controller", claim)]
        )
        await it.sleep(10)
        assert await holder(it) == 3000
        assert not is_active(standby)
        assert not is_active(active)
        assert terms(standby) == 0
        assert await it.zk.get_controller_epoch() == (2, 2)


@pytest.mark.parametrize("lost", [True, False])
@virtual_time
async def test_answer_of_the_quick_way_is_lost(lost: bool) -> None:
    """The connection breaks after the multi was sent: it was applied, or a rival has come first."""
    async with pair() as (it, active, standby):
        multi = standby.client.multi

        async def without_answer(ops: Any) -> Any:
            standby.client.multi = multi  # type: ignore[method-assign]
            if lost:
                await multi(ops)
            else:
                await BrokersController(it).start()
            raise registration.MaybeAppliedError("lost by the test")

        standby.client.multi = without_answer  # type: ignore[method-assign]
        it.crash(active)
        await it.sleep(10)
        assert is_active(standby) is lost
        assert await holder(it) == (SECOND if lost else 1)
        assert await it.zk.get_controller_epoch() == (2, 2)


@virtual_time
async def test_registration_whose_answer_is_lost_and_whose_epoch_is_written_by_hand_is_made_anew() -> None:
    """Seed 1799000001558: ``/controller`` is ours, but the epoch is not what we wrote.

    After the reconnection the watch tells of a change, not of a vacancy; then nothing changes any more.
    """
    async with pair(aiocontroller_early_controller_detection="refused") as (it, active, standby):
        await it.until(lambda: standby.controller.election.standing_by_for)
        it.network.block("localhost", it.hosts[standby].name)  # what ZooKeeper says
        it.crash(active)
        while await it.zk.get_controller_epoch() == (1, 1):
            await it.sleep(0.01)
        await it.client.set_data("/controller_epoch", b"41", -1)
        await it.until(lambda: not standby.client.connected)
        it.network.heal()
        await it.until(lambda: is_active(standby), 10)
        assert await holder(it) == SECOND
        assert await it.zk.get_controller_epoch() == (42, 4)


@virtual_time
async def test_reason_that_appears_after_the_guards_last_look_ends_it_before_the_term(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as (it, active, standby):
        it.crash(active)
        await it.until(lambda: standby.controller.guard.standing_permit() is not None)
        caplog.set_level(logging.INFO)
        await it.client.multi([Create("/migration", b"{}"), Delete("/controller")])
        await it.sleep(1)
        assert terms(standby) == 0
        assert not is_active(standby)
        assert await holder(it) is None
        assert await it.zk.get_controller_epoch() == (2, 2), "it had registered"
        starts = await it.zk.get_broker_starts()
        assert starts is not None
        assert starts.controller_epoch == 2, "the next controller still knows which brokers started uncleanly"
        assert standby.metrics.snapshot()[WITHDRAWALS] == 1
        errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert "Giving the role back, epoch 2, before its term has begun" in errors
        assert "/migration" in standby.controller.election.refusals[0]
        await it.sleep(30)
        assert await it.zk.get_controller_epoch() == (2, 2), "it does not try again and again"
        await it.delete("/migration")
        await it.until(lambda: is_active(standby), 5)


@virtual_time
async def test_standing_permit_is_for_a_guard_that_has_looked_lately_and_knows_everything() -> None:
    async with pair() as (it, active, standby):
        guard = standby.controller.guard
        assert guard.standing_permit() is not None
        guard.look_now()
        assert guard.standing_permit() is None, "something is known to have changed"
        await it.sleep(1)
        assert guard.standing_permit() is not None
        await it.add_broker(2)
        it.brokers[2].unanswered.update(it.brokers[2].served)
        await it.sleep(4)
        assert guard.survey.unanswered == [2]
        assert guard.standing_permit() is None, "a broker has not answered"
        await it.kill_broker(2)
        await it.until(lambda: guard.standing_permit() is not None)
        it.zookeeper.stop()
        await it.sleep(7)
        assert guard.standing_permit() is None, "the last look was long ago"
        await it.zookeeper.start()
        assert active is not standby


@virtual_time
async def test_change_during_a_look_is_not_lost() -> None:
    """The look had read the brokers before the change."""
    async with pair() as (it, _, standby):
        guard, zk = standby.controller.guard, standby.shell.zk
        read = zk.get_all_brokers_in_cluster

        async def slow(*, watch: bool) -> Any:
            found = await read(watch=watch)
            guard._hints += 1  # as ``look_now``, without waking the task that is in this look
            zk.get_all_brokers_in_cluster = read  # type: ignore[method-assign]
            return found

        zk.get_all_brokers_in_cluster = slow  # type: ignore[method-assign]
        guard.look_now()
        await it.sleep(1)
        assert guard.standing_permit() is None
        await it.sleep(3)
        assert guard.standing_permit() is not None


@virtual_time
async def test_controller_that_seems_dead_is_replaced_in_the_same_multi() -> None:
    async with pair(aiocontroller_early_controller_detection="refused") as (it, active, standby):
        await it.until(lambda: standby.controller.election.standing_by_for)
        rivals = [await BrokersController(it, number).start() for number in (1, 2)]
        it.crash(active)
        await it.until(lambda: is_active(standby), 1)  # the session lives for six
        assert await it.zk.get_controller_epoch() == (2, 2)
        assert [rival.terms for rival in rivals] == [0, 0]
        for rival in rivals:
            await rival.stop()


@virtual_time
async def test_of_several_standbys_that_suspect_one_controller_one_replaces_it() -> None:
    early = {"aiocontroller_early_controller_detection": "refused"}
    async with pair(**early) as (it, active, second):
        third = await it.add_controller(aiocontroller_id=1_000_003, **early)
        for each in (second, third):
            await it.until(lambda e=each: e.controller.election.standing_by_for)
        it.crash(active)
        await it.until(lambda: is_active(second) or is_active(third), 1)
        await it.sleep(10)
        assert [is_active(second), is_active(third)].count(True) == 1
        assert await it.zk.get_controller_epoch() == (2, 2)


@pytest.mark.parametrize("policy", ["wait", "standby"])
@virtual_time
async def test_role_is_taken_back_from_a_broker_that_was_faster(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(aiocontroller_takeover_policy=policy) as (it, active, standby):
        await broker_first(it, active, monkeypatch)
        await it.sleep(1)
        assert is_active(standby) is (policy == "standby")
        assert await it.zk.get_controller_epoch() == ((3, 3) if policy == "standby" else (2, 2))


@virtual_time
async def test_role_is_taken_back_past_the_guard_only() -> None:
    async with pair(aiocontroller_takeover_policy="standby") as (it, active, standby):
        rival = await BrokersController(it).start()
        it.crash(active)
        await it.create("/migration")
        await it.until(lambda: rival.terms)
        await it.sleep(10)
        assert not is_active(standby)
        assert await holder(it) == 1
        assert await it.zk.get_controller_epoch() == (2, 2)
        await it.delete("/migration")
        await it.until(lambda: is_active(standby), 5)
        await rival.stop()


@virtual_time
async def test_role_is_taken_back_by_a_standby_that_did_not_hear_of_the_vacancy() -> None:
    """Its session ends as well, and the broker has been elected when it looks again."""
    async with pair(aiocontroller_takeover_policy="standby") as (it, active, standby):
        rival = await BrokersController(it).start()
        it.crash(active)
        it.network.block("localhost", it.hosts[standby].name)
        await it.until(lambda: rival.terms)
        await it.sleep(10)
        assert await holder(it) == 1
        it.network.heal()
        await it.until(lambda: is_active(standby), 10)
        assert await it.zk.get_controller_epoch() == (3, 3)
        await rival.stop()


@virtual_time
async def test_look_under_which_the_role_moves_does_not_forget_for_whom_it_stood_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that is suspended between the two reads of a look finds the epoch of another term."""

    async def moved(*_: Any) -> None:
        return None

    async with pair(aiocontroller_takeover_policy="standby") as (it, active, standby):
        rival = await BrokersController(it).start()
        with monkeypatch.context() as patched:
            patched.setattr(registration, "known_epoch", moved)
            standby.queue.append(GuardChange())
            await it.sleep(0.5)
        it.crash(active)
        await it.until(lambda: rival.terms)
        await it.until(lambda: is_active(standby), 10)
        await rival.stop()


@virtual_time
async def test_standby_is_ready_only_when_it_knows_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it looks ready, finds a broker where the active instance was, and leaves the role to it for good."""
    known_epoch, readable = registration.known_epoch, asyncio.Event()

    async def slow(*args: Any) -> Any:
        await readable.wait()
        return await known_epoch(*args)

    async with stage() as it:
        await it.add_broker(1)
        active = await it.add_controller()
        await it.until(lambda: is_active(active))
        monkeypatch.setattr(registration, "known_epoch", slow)
        standby = await it.add_controller(aiocontroller_id=1_000_002, aiocontroller_takeover_policy="standby")
        await it.sleep(5)
        assert standby.controller.readiness().reasons == ("/controller has not been read yet",)
        assert not standby.controller.readiness().ready
        readable.set()
        await it.until(lambda: standby.controller.readiness().ready, 1)
        rival = await BrokersController(it).start()
        it.crash(active)
        await it.until(lambda: is_active(standby), 30)
        await rival.stop()


@virtual_time
async def test_standby_remembers_for_whom_although_a_look_meets_the_vacancy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had read ``/controller`` and not yet the epoch when it was suspended; a broker was the controller afterwards.

    Seen with Kafka 3.0.2: it left the role to the broker for good.
    """
    known_epoch, asked, awake = registration.known_epoch, asyncio.Event(), asyncio.Event()

    async def suspended(*args: Any) -> Any:
        asked.set()
        await awake.wait()
        return await known_epoch(*args)

    async with pair(aiocontroller_takeover_policy="standby") as (it, active, standby):
        await it.until(lambda: standby.controller.readiness().ready)
        rival = await BrokersController(it).start()
        monkeypatch.setattr(registration, "known_epoch", suspended)
        standby.queue.append(GuardChange())
        await it.until(asked.is_set)
        it.crash(active)
        await it.until(lambda: rival.terms)
        awake.set()
        await it.until(lambda: is_active(standby), 5)
        assert await it.zk.get_controller_epoch() == (3, 3)
        await rival.stop()


@virtual_time
async def test_standby_that_never_followed_an_aiocontroller_waits() -> None:
    """It was started under a broker's controller: ``takeover`` is the policy for that."""
    async with stage() as it:
        await it.add_broker(1)
        await it.create("/controller_epoch", b"7")
        rival = await BrokersController(it).start()
        started = await it.add_controller(aiocontroller_takeover_policy="standby")
        await it.sleep(10)
        assert not is_active(started)
        assert await holder(it) == 1
        await rival.stop()


@virtual_time
async def test_role_that_a_fault_gave_back_is_not_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go to and fro until the process gives up."""
    async with pair(aiocontroller_takeover_policy="standby") as (it, active, standby):
        rival = await BrokersController(it).start()

        async def broken(*, watch: bool) -> Any:
            raise RuntimeError("a bug")

        standby.shell.zk.get_all_topics_in_cluster = broken  # type: ignore[method-assign]
        it.crash(active)
        await it.until(lambda: rival.terms)
        await it.sleep(30)
        assert terms(standby) == 1
        assert await holder(it) == 1
        await rival.stop()


@virtual_time
async def test_aiocontroller_that_was_faster_keeps_the_role(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(aiocontroller_takeover_policy="standby") as (it, active, standby):
        third = await it.add_controller(aiocontroller_id=1_000_003, aiocontroller_takeover_policy="standby")
        it.crash(active)
        await it.until(lambda: is_active(standby) or is_active(third))
        await it.sleep(10)
        assert [is_active(standby), is_active(third)].count(True) == 1
        assert await it.zk.get_controller_epoch() == (2, 2)


@virtual_time
async def test_holder_of_the_znode_that_is_not_active_contends_for_it() -> None:
    """An expiry that is handled after the role has been won anew ends that term, and leaves ``/controller`` ours."""
    async with stage() as it:
        service = await begin(it, 1)
        session = service.client.session_id
        service.queue.append(ev.Expire())
        service.queue.append(ev.Reelect())
        await it.until(lambda: terms(service) == 2 and is_active(service), 30)
        holder = await it.zk.get_controller(watch=False)
        assert service.client.session_id == session == getattr(holder, "owner_session", None)


@pytest.mark.parametrize(
    "host, address",
    [("", ""), ("0.0.0.0", ""), ("::", ""), ("h", "CONTROL://h:9"), ("::1", "CONTROL://[::1]:9"), (None, "")],
)
def test_standbys_are_given_an_address_that_reaches_us(host: str | None, address: str) -> None:
    own = () if host is None else (Endpoint("CONTROL", host, 9),)
    election: Any = SimpleNamespace(_shell=SimpleNamespace(own_endpoints=lambda: own))
    assert ControllerElection.own_address(election) == address


@virtual_time
@pytest.mark.parametrize("kind", ["cold", "warm"])
async def test_standby_beats_brokers_when_a_broker_dies_in_the_same_moment(kind: str) -> None:
    """ZooKeeper ends sessions in groups: a machine with the controller and a broker loses both at once."""
    async with pair(aiocontroller_standby=kind) as (it, active, standby):
        await it.add_broker(2)
        await it.sleep(5)
        rivals = [await BrokersController(it, number).start() for number in (1, 3)]
        it.crash(active)
        await it.client.multi([Delete("/brokers/ids/2"), Delete("/controller")])
        await it.until(lambda: is_active(standby))
        assert [rival.terms for rival in rivals] == [0, 0]
        assert await it.zk.get_controller_epoch() == (2, 2)
        for rival in rivals:
            await rival.stop()
