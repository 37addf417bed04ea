"""What a warm failover reads ahead of its steps: changes, faults and ends of the term between the two."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.controller.warm_failover import FRESH_S
from aiocontroller.core import mirror as mirrored
from aiocontroller.core import warm_failover_sending as slices
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from tests.unit.controller.test_mirror import create_topic, pair, warm
from tests.unit.controller.virtual_cluster import Stage, is_active, terms
from tests.unit.controller.warm_standbys import content, equals_a_reload, settle, steps, take_over, was_warm


@virtual_time
@pytest.mark.parametrize("bounced", [False, True])
async def test_broker_that_registers_while_the_cluster_is_read_gets_everything_first(
    bounced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read beside the list of brokers may be older than it, and no watch reports who is in the list."""
    monkeypatch.setattr(slices, "ROWS", 1)
    monkeypatch.setattr(mirrored, "MOST_RECENT", 1)
    async with pair() as (it, active, standby):
        await it.create("/brokers/topics/w", b'{"version":2,"partitions":{"0":[2,1],"1":[1,2]}}')
        await create_topic(it, "u", 10)
        await it.sleep(1)
        await warm(it, standby)
        count, started = standby.zk.count_registrations, []

        async def slow() -> int:
            found = await count()
            if not started:
                await it.sleep(0.2)
                started.append(await (it.restart_broker(1) if bounced else it.add_broker(2)))
            return found

        async def none() -> None:
            """So that a broker that has bounced is not found by that."""

        monkeypatch.setattr(standby.zk, "count_registrations", slow)
        monkeypatch.setattr(standby.zk, "get_broker_starts", none)
        await take_over(it, active, standby)
        await settle(it, standby)
        assert was_warm(standby)
        first = next(each.request for each in started[0].received if each.api is ApiKey.LEADER_AND_ISR)
        names = {f"{t.topic_name}-{p.partition_index}" for t in first.topic_states for p in t.partition_states}
        assert len(names) == (15 if bounced else 2)
        await equals_a_reload(it, standby)


async def begin_to_take_over(it: Stage, active: Service, standby: Service, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The standby has won, and what is read ahead is there, but no step has begun; returns what lets them begin."""
    watch_own, go_on, begun = standby.controller.election._watch_own, asyncio.Event(), []

    async def held() -> None:
        begun.append(1)
        await go_on.wait()
        await watch_own()

    monkeypatch.setattr(standby.controller.election, "_watch_own", held)
    it.crash(active)
    await it.until(lambda: begun)
    await it.sleep(0.3)
    monkeypatch.setattr(standby.controller.election, "_watch_own", watch_own)
    return go_on


@virtual_time
@pytest.mark.parametrize("change", ["deletion", "death", "bounce", "start", "lost connection", "lost twice"])
async def test_what_changes_between_the_reads_ahead_and_the_steps_is_not_missed(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair() as (it, active, standby):
        await it.add_broker(2)
        await it.sleep(FRESH_S)
        await it.create("/brokers/topics/w", b'{"version":2,"partitions":{"0":[2,1],"1":[1,2]}}')
        await it.sleep(1)
        await warm(it, standby)
        go_on = await begin_to_take_over(it, active, standby, monkeypatch)
        match change:
            case "deletion":
                await it.create("/admin/delete_topics/t")
            case "death":
                await it.kill_broker(2)
            case "bounce":
                await it.restart_broker(2)
            case "start":
                await it.add_broker(3)
            case _:
                for _ in range(1 + (change == "lost twice")):
                    it.network.cut_host(it.hosts[standby].name)
                    await it.sleep(0.3)
                await it.kill_broker(2)
        await it.sleep(0.3)
        go_on.set()
        await it.until(lambda: "schedule periodic work" in steps(standby))
        await settle(it, standby)
        found = content(standby)
        assert ("t-0" in found) == (change != "deletion")
        live = {"death": {1}, "start": {1, 2, 3}, "lost connection": {1}, "lost twice": {1}}.get(change, {1, 2})
        assert standby.shell.context.live == live
        assert found["w-0"][2].leader in live
        assert all(found[f"w-{n}"][2].isr == (1,) for n in range(2)) or 2 in live
        assert terms(standby) == 1
        await equals_a_reload(it, standby)


@virtual_time
@pytest.mark.parametrize("end", ["expired", "deposed", "deleted"])
async def test_term_that_ends_between_the_reads_ahead_and_the_steps_leaves_nothing(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        go_on = await begin_to_take_over(it, active, standby, monkeypatch)
        before = len(it.brokers[1].received)
        other = b'{"version":1,"brokerid":1,"timestamp":"0"}'
        match end:
            case "expired":
                await expire_session(standby.client)
            case "deposed":
                epoch = await it.client.get("/controller_epoch")
                taken = [Delete("/controller"), Create("/controller", other, ephemeral=True)]
                await it.client.multi([*taken, SetData("/controller_epoch", b"%d" % (int(epoch[0]) + 1), -1)])
            case _:
                await it.delete("/controller")
        go_on.set()
        if end == "deposed":
            await it.until(lambda: standby.journal.of_kind("resigned"))
            await it.sleep(1)
            watched = standby.client.session.registry
            assert not [path for path in (*watched.data, *watched.child) if path.startswith(("/brokers/ids", "/admin"))]
            assert not is_active(standby)
        else:
            await it.until(lambda: terms(standby) > 1 and len(content(standby)) == 3 and not len(standby.queue))
            await it.sleep(1)
            assert steps(standby)[-1] == "schedule periodic work"
            assert not was_warm(standby), "it has read all"
        epochs = {each.request.controller_epoch for each in it.brokers[1].received[before:] if each.request is not None}
        assert 2 not in epochs, "the term sent nothing"


@virtual_time
async def test_own_role_is_watched_even_if_that_failed_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        look, failures = standby.zk.get_controller, []

        async def fails_once(*, watch: bool = True) -> Any:
            if is_active(standby) and not failures:
                failures.append(1)
                raise ZeroDivisionError
            return await look(watch=watch)

        monkeypatch.setattr(standby.zk, "get_controller", fails_once)
        it.crash(active)
        await it.until(lambda: standby.shell.reloaded and len(content(standby)) == 3)
        assert failures
        await it.delete("/controller")
        await it.until(lambda: terms(active) + terms(standby) == 3)


@virtual_time
async def test_leaders_are_elected_after_few_round_trips() -> None:
    """However many steps read something: their reads are in flight together."""
    async with pair() as (it, active, standby):
        await create_topic(it, "u", 5)
        await it.sleep(1)
        await warm(it, standby)
        it.network.delay_s, round_trip_s = 0.02, 0.04
        await take_over(it, active, standby)
        assert isinstance(standby.journal, MemoryJournal)
        (elected,) = standby.journal.of_kind("elected")
        until = next(r for r in standby.journal.of_kind("failover") if str(r.event).startswith("elect leaders"))
        assert (until.ts - elected.ts) / 1e6 / round_trip_s < 6.5


@virtual_time
async def test_read_ahead_that_fails_does_so_in_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)

        load = standby.zk.debts.load

        async def fails_once() -> Any:
            monkeypatch.setattr(standby.zk.debts, "load", load)
            raise ZeroDivisionError

        monkeypatch.setattr(standby.zk.debts, "load", fails_once)
        it.crash(active)
        await it.until(lambda: standby.shell.reloaded)
        assert steps(standby)[-1] == "outrank earlier controllers"
        assert isinstance(standby.journal, MemoryJournal)
        journal = standby.journal
        await it.until(lambda: "schedule periodic work" in [r.event for r in journal.of_kind("reload")])
        assert is_active(standby)
        assert terms(standby) == 1
