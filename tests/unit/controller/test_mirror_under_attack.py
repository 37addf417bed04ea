"""A warm standby on a hostile day: other servers, endless writes, damage, bugs, a process that stands still."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.controller import mirror as mirror_module
from aiocontroller.core.mirror import MirroredCluster
from aiocontroller.lab.checkers.mirrored import stale_parts
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.zookeeper.codec import SetData
from tests.unit.controller.test_mirror import (
    FIRST,
    SECOND,
    STATE,
    content,
    copy_of,
    create_topic,
    pair,
    states,
    warm,
)
from tests.unit.controller.virtual_cluster import Stage, is_active, stage
from tests.unit.controller.warm_standbys import equals_a_reload, take_over, was_warm


async def loaded_anew(it: Stage, standby: Service) -> None:
    """The connection is cut, and the copy read again."""
    reloads = standby.metrics.get("aiocontroller", "Standby", "Reloads")
    assert reloads is not None
    before = reloads.value
    it.network.cut_host(it.hosts[standby].name)
    await it.until(lambda: reloads.value > before)
    await warm(it, standby)


@virtual_time
async def test_next_server_may_refuse_the_watch() -> None:
    """An ensemble is being upgraded: one server is older than 3.6.  A copy that hears nothing must not be used."""
    async with pair() as (it, active, standby):
        await warm(it, standby)
        it.zookeeper.model.watches.kind = "no"
        it.network.cut_host(it.hosts[standby].name)
        await it.until(lambda: copy_of(standby).state == "cold")
        assert "-6" in copy_of(standby).status()["reason"]
        await it.sleep(2 * mirror_module.LOSSES_WITHIN_S)
        assert copy_of(standby).state == "cold"
        it.zookeeper.model.watches.kind = "3.9"
        it.network.cut_host(it.hosts[standby].name)
        await warm(it, standby)
        await take_over(it, active, standby)
        assert was_warm(standby)


@virtual_time
async def test_copy_is_not_given_before_the_watch_is_confirmed() -> None:
    async with pair() as (it, _active, standby):
        await warm(it, standby)
        mirror = copy_of(standby)
        confirmed = asyncio.Event()
        listen = mirror._watch.listen

        async def slow(listener: Any) -> None:
            await confirmed.wait()
            await listen(listener)

        mirror._watch.listen = slow  # type: ignore[method-assign]
        it.network.cut_host(it.hosts[standby].name)
        await it.sleep(3)
        assert standby.client.connected
        content(standby).list_read(["t"])  # as of a reply that came late
        assert mirror.take() is None
        confirmed.set()


@virtual_time
async def test_one_shot_watches_do_not_end_the_recursive_one_before_zookeeper_3_9() -> None:
    async with pair("3.8") as (it, active, standby):
        await warm(it, standby)
        await create_topic(it, "u", 1)
        await it.client.set("/brokers/topics/t/partitions/1/state", STATE % 7, -1)
        await it.sleep(1)
        assert states(standby) == {"t-0": 0, "t-1": 7, "t-2": 0, "u-0": 0}
        await take_over(it, active, standby)
        assert was_warm(standby)
        await equals_a_reload(it, standby)
        third = await it.add_controller(aiocontroller_id=SECOND + 1, aiocontroller_standby="warm")
        await warm(it, third)
        await it.client.set("/brokers/topics/t/partitions/1/state", STATE % 99, -1)
        await it.until(lambda: states(third)["t-1"] >= 99)


@virtual_time
async def test_busy_cluster_has_a_warm_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something is always behind, as partitions change while others are read; the lag is the age of what is."""
    async with pair() as (it, _active, standby):
        await create_topic(it, "busy", 300)
        await it.sleep(1)
        await warm(it, standby)
        it.network.delay_s = 0.001
        number, read = 0, standby.zk.each_topic_partition_states

        async def busy(*args: Any) -> None:
            nonlocal number
            await read(*args)
            number = (number + 1) % 300
            copy_of(standby).state_changed("busy", number)

        with monkeypatch.context() as patched:
            patched.setattr(standby.zk, "each_topic_partition_states", busy)
            it.network.cut_host(it.hosts[standby].name)
            await it.sleep(2)
            found = []
            for _ in range(20):
                await it.sleep(0.005)
                found.append(copy_of(standby).status())
        assert {status["state"] for status in found} == {"warm"}
        assert min(status["behind"] for status in found) > 0
        assert 0 < max(status["lag_ms"] for status in found) < 50


@virtual_time
async def test_bug_in_the_copy_costs_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    async with pair() as (it, active, standby):
        await warm(it, standby)
        with monkeypatch.context() as patched:
            patched.setattr(MirroredCluster, "states_read", broken)
            await it.client.set("/brokers/topics/t/partitions/1/state", STATE % 7, -1)
            await it.until(lambda: copy_of(standby).state == "cold")
        assert "ZeroDivisionError" in copy_of(standby).status()["reason"]
        assert [record.event for record in standby.journal.of_kind("fault")] == ["copy of the cluster"]
        await it.sleep(mirror_module.LOSSES_WITHIN_S)
        await warm(it, standby)
        await take_over(it, active, standby)
        assert was_warm(standby)


@virtual_time
async def test_reads_that_fail_for_long_are_tried_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (it, _active, standby):
        await warm(it, standby)
        reads = 0

        async def failing(*_: Any, **__: Any) -> Any:
            nonlocal reads
            reads += 1
            raise OSError("overloaded")

        monkeypatch.setattr(standby.zk, "get_topic_assignments", failing)
        await create_topic(it, "u", 1)
        await it.sleep(300)
        assert 5 < reads < 20
        monkeypatch.undo()
        await warm(it, standby)
        assert states(standby)["u-0"] == 0


@virtual_time
async def test_connection_lost_in_the_middle_of_a_load() -> None:
    async with pair() as (it, _active, standby):
        for number in range(30):
            await create_topic(it, f"topic-{number}", 5)
        await it.sleep(1)
        it.network.delay_s = 0.001
        for delay_ms in range(0, 45, 5):
            await warm(it, standby)
            it.network.cut_host(it.hosts[standby].name)
            await it.sleep(delay_ms / 1000)
            await it.client.set("/brokers/topics/t/partitions/1/state", STATE % (100 + delay_ms), -1)
            it.network.cut_host(it.hosts[standby].name)
            await it.client.set("/brokers/topics/topic-7/partitions/1/state", STATE % (200 + delay_ms), -1)
            await it.sleep(70)  # not cold
            await warm(it, standby)
            assert stale_parts(content(standby), it.zookeeper.model.tree.nodes) == []
            found = states(standby)  # the active controller repairs what others write
            assert (found["t-1"], found["topic-7-1"]) >= (100 + delay_ms, 200 + delay_ms)


@virtual_time
async def test_standby_that_stands_still_for_longer_than_its_session() -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        host = it.hosts[standby]
        host.pause()
        await create_topic(it, "u", 1)
        await it.client.delete_all_recursive(["/brokers/topics/t"])
        await it.sleep(20)
        host.resume()
        await it.until(lambda: copy_of(standby)._cluster is not None and states(standby) == {"u-0": 0})
        await warm(it, standby)
        await take_over(it, active, standby)
        assert was_warm(standby)
        await equals_a_reload(it, standby)


@virtual_time
async def test_loser_among_standbys_keeps_its_copy() -> None:
    async with pair() as (it, active, standby):
        third = await it.add_controller(aiocontroller_id=SECOND + 1, aiocontroller_standby="warm")
        await warm(it, standby)
        await warm(it, third)
        copies = {standby: content(standby), third: content(third)}
        it.crash(active)
        await it.until(lambda: is_active(standby) or is_active(third))
        winner, loser = (standby, third) if is_active(standby) else (third, standby)
        await it.sleep(1)
        assert content(loser) is copies[loser]
        await take_over(it, winner, loser)
        assert was_warm(winner)
        assert was_warm(loser)
        await equals_a_reload(it, loser)


@virtual_time
async def test_znodes_that_may_not_be_read_are_left_to_the_successor() -> None:
    """They give no notification either, at ZooKeeper 3.9."""
    async with pair() as (it, active, standby):
        await warm(it, standby)
        nodes = it.zookeeper.model.tree.nodes
        secret = ((31, "digest", "somebody:else"),)
        nodes["/brokers/topics/t/partitions/2/state"].acl = secret
        await create_topic(it, "u", 1)
        await it.sleep(1)
        nodes["/brokers/topics/u"].acl = secret
        await loaded_anew(it, standby)
        names, rows = content(standby).leftovers()
        assert names == ["u"]
        assert [str(content(standby).context.table.topic_partition(row)) for row in rows] == ["t-2"]
        for path in ("/brokers/topics/u", "/brokers/topics/t/partitions/2/state"):
            nodes[path].acl = nodes["/"].acl
        await take_over(it, active, standby)
        await equals_a_reload(it, standby)
        assert standby.shell.context.table.row("u", 0) >= 0


@virtual_time
async def test_damage_of_every_kind_below_the_topics_ends_nothing() -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        for path in (
            f"/brokers/topics/t/partitions/{10**30}",
            "/brokers/topics/t/partitions/0x1",
            "/brokers/topics/t/partitions/\u0663",
            "/brokers/topics/t/partitions/-1",
            "/brokers/topics/t/other",
            "/brokers/topics/\U0001f4a5",
            "/brokers/other",
        ):
            await it.create(path, b"\xff")
            if "partitions/" in path:
                await it.create(f"{path}/state", b"{}")
        await it.create("/brokers/topics/" + "9" * 5000, b"{}")
        await it.create("/brokers/topics/t/partitions/" + "9" * 5000, b"{}")
        await it.create("/brokers/topics/t/partitions/" + "9" * 5000 + "/state", b"{}")
        await it.client.multi([SetData(f"/brokers/topics/t/partitions/{n}/state", b"", -1) for n in range(3)])
        await it.sleep(1)
        assert copy_of(standby).state == "warm"
        await take_over(it, active, standby)
        assert was_warm(standby)
        assert len(standby.shell.context.table) == 3


@virtual_time
async def test_observer_keeps_no_copy() -> None:
    async with stage() as it:
        await it.add_broker(1)
        active = await it.add_controller(aiocontroller_id=FIRST)
        await it.until(lambda: is_active(active))
        observer = await it.add_controller(
            aiocontroller_id=SECOND, aiocontroller_standby="warm", aiocontroller_takeover_policy="observe"
        )
        await it.sleep(10)
        assert copy_of(observer).status()["state"] == "off"
        assert not observer.client.session.registry.recursive
        assert not any(it.zookeeper.model.watches.recursive.values())


@virtual_time
async def test_reads_that_fail_for_a_day_do_not_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting twice as long each time: two to the power of 1,024 is no float."""
    monkeypatch.setattr(mirror_module, "LONGEST_RETRY_S", 0.001)
    async with pair() as (it, _active, standby):
        await warm(it, standby)
        mirror = copy_of(standby)
        listen = mirror._watch.listen
        failures = 0

        async def failing(listener: Any) -> None:
            nonlocal failures
            failures += 1
            raise OSError("by the test")

        mirror._watch.listen = failing  # type: ignore[method-assign]
        it.network.cut_host(it.hosts[standby].name)
        await it.until(lambda: failures > 1_100)
        mirror._watch.listen = listen  # type: ignore[method-assign]
        await warm(it, standby)
