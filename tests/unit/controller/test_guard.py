"""Every way into office leads past the guard; what speaks against it, and what follows when that comes or goes."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import aiocontroller
from aiocontroller.controller.controller_election import ControllerElection
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode, encode_migration
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from tests.unit.controller.virtual_cluster import ACL_AUTHORIZER, AUTHORIZER, Stage, is_active, stage, take_over, terms

Obstacle = Callable[[], Awaitable[None]]


async def no_obstacle() -> None:
    pass


# -- every way into office: each makes the obstacle just before this process could be elected --------------------------


async def start_at_a_vacancy(it: Stage, obstacle: Obstacle) -> Service:
    await obstacle()
    return await it.add_controller()


async def start_with_the_policy_takeover(it: Stage, obstacle: Obstacle) -> Service:
    await it.make_broker_controller()
    await obstacle()
    return await it.add_controller(aiocontroller_takeover_policy="takeover")


async def vacancy(it: Stage, obstacle: Obstacle) -> Service:
    await it.make_broker_controller()
    service = await it.add_controller()
    await obstacle()
    await it.delete("/controller")
    return service


async def vacancy_that_it_stood_by_for(it: Stage, obstacle: Obstacle) -> Service:
    """It registers before it looks."""
    await it.create("/controller_epoch", b"7")
    return await vacancy(it, obstacle)


async def broker_was_faster(it: Stage, obstacle: Obstacle) -> Service:
    """The policy ``standby`` takes the role back."""
    first = await it.add_controller(aiocontroller_id=1_000_002)
    await it.until(lambda: is_active(first))
    service = await it.add_controller(aiocontroller_takeover_policy="standby")
    await obstacle()
    brokers = Create("/controller", b'{"version":1,"brokerid":1,"timestamp":"0"}')
    await it.client.multi([SetData("/controller_epoch", b"2", 1), Delete("/controller"), brokers])
    return service


async def vacancy_before_the_watch_is_armed_again(it: Stage, obstacle: Obstacle) -> Service:
    service = await vacancy(it, obstacle)
    await it.make_broker_controller()
    await it.delete("/controller")
    return service


async def takeover_command(it: Stage, obstacle: Obstacle) -> Service:
    await it.make_broker_controller()
    service = await it.add_controller()
    await obstacle()
    await take_over(service)
    return service


async def early_election(it: Stage, obstacle: Obstacle) -> Service:
    first = await it.add_controller()
    await it.until(lambda: is_active(first))
    second = await it.add_controller(aiocontroller_id=1_000_002, aiocontroller_early_controller_detection="refused")
    await it.until(lambda: second.controller.election.standing_by_for)
    await obstacle()
    it.crash(first)
    await it.sleep(1.9)  # the session lives
    return second


async def refused_write(it: Stage, obstacle: Obstacle) -> Service:
    service = await it.add_controller()
    await it.until(lambda: is_active(service))
    await obstacle()
    await it.client.set_data("/controller_epoch", b"7", -1)
    await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    return service


async def failed_reload(it: Stage, obstacle: Obstacle) -> Service:
    """A handler fails, and so does loading the cluster anew."""
    service = await it.add_controller()
    await it.until(lambda: is_active(service))
    await obstacle()
    read = service.shell.zk.get_all_topics_in_cluster
    calls = 0

    async def broken(*, watch: bool) -> list[str]:
        nonlocal calls
        calls += 1
        if calls == 2:
            service.shell.zk.get_all_topics_in_cluster = read  # type: ignore[method-assign]
        raise RuntimeError("a bug")

    service.shell.zk.get_all_topics_in_cluster = broken  # type: ignore[method-assign]
    await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    return service


WAYS = [
    start_at_a_vacancy,
    start_with_the_policy_takeover,
    vacancy,
    vacancy_that_it_stood_by_for,
    broker_was_faster,
    vacancy_before_the_watch_is_armed_again,
    takeover_command,
    early_election,
    refused_write,
    failed_reload,
]
CLAIMED = encode_migration(MigrationZNode(3000, 2, 100, 2))
PROVISIONED = encode_migration(MigrationZNode(-1, -1, -1, -1))
AGAIN = (refused_write, failed_reload)
"""These begin active."""


@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_each_way_to_become_controller_works(way: Callable[[Stage, Obstacle], Awaitable[Service]]) -> None:
    async with stage() as it:
        await it.add_broker(1)
        service = await way(it, no_obstacle)
        await it.until(lambda: is_active(service) and terms(service) == 1 + (way in AGAIN), 5)


@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_no_way_leads_past_the_guard_and_a_refused_role_is_tried_again(
    way: Callable[[Stage, Obstacle], Awaitable[Service]],
) -> None:
    async with stage() as it:
        await it.add_broker(1)
        service = await way(it, lambda: it.create("/migration", CLAIMED))
        before = int(way in AGAIN)
        await it.sleep(20)
        assert not is_active(service)
        assert terms(service) == before
        assert "/migration names KRaft controller 3000" in service.controller.election.refusals[0]
        found = service.controller.readiness()
        assert (found.ready, found.state) == (False, "not able to stand by")
        await it.delete("/migration")
        if way is takeover_command:  # was answered: no client waits for it
            await it.until(lambda: service.controller.readiness().state == "standing by", 5)
        else:
            await it.until(lambda: is_active(service), 5)
            assert service.controller.readiness().state == "active"
        assert service.controller.readiness().ready


@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_kraft_controller_that_has_claimed_nothing_is_no_obstacle(
    way: Callable[[Stage, Obstacle], Awaitable[Service]],
) -> None:
    async with stage() as it:
        await it.add_broker(1)
        service = await way(it, lambda: it.create("/migration", PROVISIONED))
        await it.until(lambda: is_active(service) and terms(service) == 1 + (way in AGAIN), 5)
        await it.client.set_data("/migration", CLAIMED, -1)  # by hand: a KRaft controller would depose us first
        await it.until(lambda: service.controller.guard.reasons, 5)
        await it.sleep(20)
        assert is_active(service), "a reason that is shown only"
        assert "/migration names KRaft controller 3000" in service.controller.readiness().reasons[0]


def test_nothing_but_the_guard_makes_a_permit() -> None:
    """One method begins a term, and wants one; the two that call it have it from the guard."""
    assert ControllerElection._begin_term.__annotations__["permit"] == "Permit"
    assert ControllerElection._win.__annotations__["permit"] == "Permit"
    assert _callers("_begin_term") == ["_begin_if_permitted", "_win"]
    assert _callers("_begin_if_permitted") == ["_seize", "roll_back"]
    assert _callers("_win") == ["_contend"]
    assert _callers("permit") == ["_begin_if_permitted", "_contend"]
    assert _callers("permit_to_roll_back") == ["roll_back"]
    package = Path(aiocontroller.__file__).parent
    sources = [path for path in package.rglob("*.py") if "lab" not in path.parts]
    makers = [path.name for path in sources if re.search(r"[^:|] Permit\(\)", path.read_text())]
    assert makers == ["guard.py"]


def _callers(method: str) -> list[str]:
    return sorted(
        name
        for name, each in vars(ControllerElection).items()
        if callable(each) and method in getattr(each, "__code__", no_obstacle.__code__).co_names
    )


# -- authorizers -------------------------------------------------------------------------------------------------------


@virtual_time
async def test_vacancy_after_all_brokers_died_does_not_forget_their_authorizer() -> None:
    """Finding 8: the takeover was refused; with both brokers killed, the vacancy was won."""
    async with stage() as it:
        for broker in (1, 2):
            await it.add_broker(broker, authorizer_class_name="org.example.RangerAuthorizer")
        await it.make_broker_controller()
        service = await it.add_controller()
        (reason,) = await take_over(service)
        assert "org.example.RangerAuthorizer" in reason
        for broker in (1, 2):
            await it.kill_broker(broker)
        await it.delete("/controller")
        await it.sleep(30)
        assert not is_active(service)
        assert "brokers have an authorizer" in service.controller.readiness().reasons[0]


@virtual_time
async def test_vacancy_without_brokers_is_left_where_acls_are() -> None:
    """A process that has just started has asked no broker."""
    async with stage() as it:
        await it.create("/kafka-acl")
        service = await it.add_controller()
        await it.sleep(10)
        assert not is_active(service)
        assert "/kafka-acl exists" in service.controller.election.refusals[0]
        await it.add_broker(1)  # has none: the znode is left from earlier
        await it.until(lambda: is_active(service), 5)


@virtual_time
async def test_vacancy_without_brokers_and_acls_is_taken() -> None:
    async with stage() as it:
        service = await it.add_controller()
        assert is_active(service)


@virtual_time
async def test_silent_broker_keeps_a_fresh_process_out_until_its_session_ends() -> None:
    async with stage() as it:
        await it.add_broker(1)
        frozen = await it.add_broker(2)
        frozen.unanswered.add(ApiKey.API_VERSIONS)
        service = await it.add_controller()
        await it.sleep(10)
        assert not is_active(service)
        assert service.controller.status()["unanswered_brokers"] == [2]
        assert "broker 2 has not said" in service.controller.readiness().reasons[0]
        await it.kill_broker(2)
        await it.until(lambda: is_active(service), 5)


@virtual_time
async def test_silent_broker_keeps_out_no_controller_that_knows_it_or_obeys_only_itself() -> None:
    async with stage() as it:
        await it.add_broker(1)
        await it.make_broker_controller()
        known = await it.add_controller()
        frozen = await it.restart_broker(1)
        frozen.unanswered.add(ApiKey.API_VERSIONS)
        await it.delete("/controller")
        await it.until(lambda: is_active(known), 1)

    async with stage() as it:
        frozen = await it.add_broker(1)
        frozen.unanswered.add(ApiKey.API_VERSIONS)
        curious = await it.add_controller(**AUTHORIZER)
        await it.sleep(10)
        assert not is_active(curious)
        assert "broker 1 has not reported its settings" in curious.controller.readiness().reasons[0]
        service = await it.add_controller(**AUTHORIZER, aiocontroller_id=7_000, aiocontroller_keep_ours=("all",))
        assert is_active(service)


@virtual_time
@pytest.mark.parametrize("authorizer", [False, True])
async def test_broker_that_never_tells_its_settings_is_named_with_what_to_do(
    authorizer: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage() as it:
        await it.add_broker(1)
        frozen = await it.add_broker(2)
        frozen.unanswered.add(ApiKey.DESCRIBE_CONFIGS)
        with caplog.at_level("INFO"):
            service = await it.add_controller(**(AUTHORIZER if authorizer else {}))
            await it.sleep(20)
        assert not is_active(service)
        status = service.controller.status()
        remedy = "insist on ours (--keep-ours all)" if authorizer else "set authorizer.class.name and super.users here"
        for texts in (status["readiness"]["reasons"], status["refusals"], caplog.messages):
            found = [each for each in texts if remedy in each]
            assert found
            assert all("broker 2 has not " in each for each in found)
            assert all("it does not answer: nothing received within 5 s; restart or stop" in each for each in found)
        assert status["unanswered_brokers"] == [2]
        insisting = dict(AUTHORIZER, aiocontroller_id=7_000, aiocontroller_keep_ours=("all",))
        assert is_active(await it.add_controller(**insisting)), "what it advises helps"


@virtual_time
async def test_broker_that_refuses_to_tell_its_settings_has_an_authorizer() -> None:
    async with stage() as it:
        broker = await it.add_broker(1)
        broker.settings_error = 31
        service = await it.add_controller()
        await it.sleep(10)
        assert not is_active(service)
        assert "CLUSTER_AUTHORIZATION_FAILED" in service.controller.election.refusals[0]


@virtual_time
async def test_brokers_whose_principal_has_cluster_action_only_need_a_controller_with_an_authorizer() -> None:
    """DescribeConfigs needs a right of its own, which brokers do not need among each other."""
    async with stage() as it:
        broker = await it.add_broker(1)
        broker.settings_error = 31
        await it.make_broker_controller()
        curious = await it.add_controller(**AUTHORIZER, control_plane_listener_name="CONTROL", aiocontroller_id=7_000)
        (reason,) = await take_over(curious)
        assert "broker 1 refuses to describe its settings" in reason
        service = await it.add_controller(
            **AUTHORIZER, control_plane_listener_name="CONTROL", aiocontroller_keep_ours=("all",)
        )
        assert await take_over(service) == []
        assert is_active(service)
        assert service.controller.guard.reasons == ()


@virtual_time
async def test_rolling_restart_that_switches_an_authorizer_on_ends_the_term_of_a_controller_without_one() -> None:
    async with stage() as it:
        for broker in (1, 2):
            await it.add_broker(broker)
        service = await it.add_controller()
        assert is_active(service)
        await it.restart_broker(1, authorizer_class_name=ACL_AUTHORIZER)
        await it.until(lambda: not is_active(service), 5)
        assert await it.zk.get_controller(watch=False) is None
        request = it.brokers[2].of(ApiKey.UPDATE_METADATA)[-1]
        assert [live.id_ for live in request.live_brokers] == [1, 2]  # in order: the brokers hear that it goes
        await it.sleep(20)
        assert terms(service) == 1
        await it.restart_broker(1)
        await it.until(lambda: is_active(service), 5)  # the reason is gone


@virtual_time
async def test_broker_that_falls_silent_during_a_term_is_shown_and_ends_no_term() -> None:
    async with stage() as it:
        await it.add_broker(1)
        service = await it.add_controller()
        broker = await it.add_broker(2)
        broker.unanswered.add(ApiKey.API_VERSIONS)
        await it.sleep(20)
        assert is_active(service)
        found = service.controller.readiness()
        assert found.ready
        assert "broker 2 has not said" in found.reasons[0]


@virtual_time
async def test_authorizer_that_runs_in_brokers_only_is_refused_on_both_sides() -> None:
    async with stage() as it:
        await it.add_broker(1, authorizer_class_name="org.example.Other")
        service = await it.add_controller(**AUTHORIZER)
        assert not is_active(service)
        assert (
            "brokers have an authorizer (org.example.Other) that cannot run"
            in service.controller.readiness().reasons[0]
        )
    async with stage() as it:
        service = await it.add_controller(authorizer_class_name="org.example.Other")
        assert not is_active(service)
        assert "authorizer.class.name is org.example.Other" in service.controller.readiness().reasons[0]


# -- what it costs, what it says ---------------------------------------------------------------------------------------


@virtual_time
async def test_reasons_are_logged_when_they_come_and_not_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with stage() as it:
        await it.add_broker(1)
        await it.create("/migration", CLAIMED)
        service = await it.add_controller()
        await it.sleep(60)
        (reason,) = service.controller.readiness().reasons
        assert [r.getMessage() for r in caplog.records if "/migration" in r.getMessage()] == [
            f"This process cannot be the controller: {reason}",
            f"Not taking the role: {reason}",
        ]
        assert service.metrics.snapshot()['aiocontroller_guard_reasons{kind="migration"}'] == 1
        assert service.metrics.snapshot()['aiocontroller_guard_refusals_total{kind="migration"}'] >= 1


@virtual_time
async def test_readiness_without_a_session_and_after_a_release() -> None:
    async with stage() as it:
        await it.make_broker_controller()
        service = await it.add_controller()
        found = service.controller.readiness()
        assert (found.ready, found.state, found.reasons) == (True, "standing by", ())
        service.controller.election.observing = True
        assert "the role was released" in service.controller.readiness().reasons[0]
        assert not service.controller.readiness().ready
        it.zookeeper.stop()
        await it.sleep(10)
        assert service.controller.readiness().reasons == ("no session with ZooKeeper",)
        await it.zookeeper.start()


@virtual_time
async def test_process_that_only_looks_on_is_not_ready() -> None:
    async with stage() as it:
        await it.add_broker(1)
        service = await it.add_controller(aiocontroller_takeover_policy="observe")
        found = service.controller.readiness()
        assert not found.ready
        assert "aiocontroller.takeover.policy is observe" in found.reasons[0]
        assert await take_over(service) == []
        assert service.controller.readiness().state == "active"


@virtual_time
async def test_cluster_is_read_whole_only_when_brokers_came_or_went() -> None:
    async with stage() as it:
        await it.add_broker(1)
        await it.make_broker_controller()
        service = await it.add_controller()
        read, reads = service.shell.zk.get_all_brokers_in_cluster, 0

        async def counted(*, watch: bool) -> Any:
            nonlocal reads
            reads += 1
            return await read(watch=watch)

        service.shell.zk.get_all_brokers_in_cluster = counted  # type: ignore[method-assign]
        await it.sleep(25)
        assert reads == 0
        await it.add_broker(2)
        await it.sleep(4)
        assert 1 <= reads <= 2
        await it.sleep(60)
        assert reads <= 5


@virtual_time
async def test_reasons_that_are_gone_are_one_occasion_to_try_again() -> None:
    """Even if another controller has the role by then, so that no election follows."""
    async with stage() as it:
        await it.add_broker(1)
        await it.create("/migration")
        service = await it.add_controller()
        assert service.controller.election.refusals
        await it.make_broker_controller()
        await it.delete("/migration")
        await it.until(lambda: service.controller.readiness().state == "standing by")
        await it.sleep(10)
        tried = attempts(service)
        assert tried
        await it.sleep(60)
        assert attempts(service) == tried


def attempts(service: Service) -> int:
    assert isinstance(service.journal, MemoryJournal)
    return sum(record.event == "GuardChange" for record in service.journal.of_kind("event"))


# -- which brokers are asked -------------------------------------------------------------------------------------------


@virtual_time
async def test_a_broker_that_answers_at_last_is_no_longer_said_to_be_silent() -> None:
    async with stage() as it:
        broker = await it.add_broker(1)
        broker.unanswered.update((ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CONFIGS))
        service = await it.add_controller()
        survey = service.controller.guard.survey
        await it.until(lambda: 1 in survey.known.why_unanswered)
        broker.unanswered.clear()
        await it.until(lambda: 1 in survey.known.answers)
        assert 1 not in survey.known.why_unanswered


@pytest.mark.parametrize("theirs, ours", [("CONTROL", None), ("", "CONTROL")])
@virtual_time
async def test_control_plane_listener_of_brokers_has_to_be_ours(theirs: str, ours: str | None) -> None:
    async with stage() as it:
        await it.add_broker(1, control_plane_listener_name=theirs)
        service = await it.add_controller(control_plane_listener_name=ours)
        assert not is_active(service)
        (reason,) = (text for text in service.controller.election.refusals if "control.plane" in text)
        assert f"brokers have control.plane.listener.name {theirs or '(none)'}" in reason


@virtual_time
async def test_takeover_on_request_waits_for_a_broker_that_has_just_registered() -> None:
    async with stage() as it:
        await it.add_broker(1)
        await it.make_broker_controller()
        service = await it.add_controller()
        await it.add_broker(2)
        assert await take_over(service) == []
        assert is_active(service)


@virtual_time
async def test_takeover_on_request_says_of_a_silent_broker_that_it_was_asked() -> None:
    async with stage() as it:
        await it.add_broker(1)
        await it.make_broker_controller()
        service = await it.add_controller()
        frozen = await it.add_broker(2)
        frozen.unanswered.add(ApiKey.API_VERSIONS)
        reasons = await take_over(service)
        assert reasons
        assert all("it does not answer: nothing received within 5 s" in reason for reason in reasons)
