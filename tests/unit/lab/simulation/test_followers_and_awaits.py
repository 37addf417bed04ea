"""Faults that a simulation has and a network has not: old answers, a death between two awaits, clocks that differ."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab import virtual_loop
from aiocontroller.lab.scenarios.plan import Plan, draw
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.simulated_net import SimulatedClock, SimulatedNetwork
from aiocontroller.lab.simulation.awaits import counting
from aiocontroller.lab.simulation.campaign import crash, crash_points, parse_crash_point, run_crash_points
from aiocontroller.lab.simulation.coverage import PROBES
from aiocontroller.lab.simulation.simulation import simulate_plan
from aiocontroller.lab.zookeeper.zookeeper_follower import Follower
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.client import ZooKeeperClient


class Ensemble:
    """A leader and one follower that is a second behind; ``writer`` talks to the one, ``reader`` to the other."""

    async def __aenter__(self) -> Ensemble:
        world = World(SimulatedNetwork(), SimulatedClock(), random.Random(1))
        self.model = ZooKeeperModel()
        leader = await ZooKeeperServer(world, self.model).start()
        follower = Follower(self.model, SimulatedClock(), lambda: 1.0)
        behind = await ZooKeeperServer(world, self.model, follower=follower).start()
        self.writer = ZooKeeperClient(leader.address, world=world)
        self.reader = ZooKeeperClient(behind.address, world=world)
        await self.writer.start()
        await self.reader.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.writer.close()
        await self.reader.close()

    async def read(self) -> bytes | None:
        return (await self.reader.get_many(["/a"])).data[0]


def test_a_follower_answers_with_what_it_has_heard() -> None:
    async def play() -> None:
        async with Ensemble() as servers:
            await servers.writer.create("/a", b"old")
            await asyncio.sleep(2)
            await servers.writer.set("/a", b"new", -1)
            assert await servers.read() == b"old"
            assert servers.model.stale_reads == 1
            await asyncio.sleep(2)
            assert await servers.read() == b"new"

    virtual_loop.run(play())


@pytest.mark.parametrize("how", ["sync", "write"])
def test_a_sync_or_write_through_a_follower_reads_the_latest(how: str) -> None:
    async def play() -> None:
        async with Ensemble() as servers:
            await servers.writer.create("/a", b"new")
            assert await servers.read() is None
            if how == "sync":
                await servers.reader.sync("/")
            else:
                await servers.reader.create("/b", b"")
            assert await servers.read() == b"new"

    virtual_loop.run(play())


def test_a_followers_watch_fires_when_it_has_the_change_and_not_before() -> None:
    async def play() -> None:
        async with Ensemble() as servers:
            fired: list[tuple[float, str]] = []
            loop = asyncio.get_running_loop()
            servers.reader.on_watch = lambda kind, path: fired.append((loop.time(), path))
            await servers.reader.get_many(["/a"], watch=True)
            await servers.reader.exists_many(["/a"], watch=True)
            written_s = loop.time()
            await servers.writer.create("/a", b"")
            await asyncio.sleep(3)
            assert [path for _, path in fired] == ["/a"]
            assert 1.0 <= fired[0][0] - written_s < 1.1

    virtual_loop.run(play())


def test_await_points_are_counted_and_nothing_else_changes() -> None:
    counted: list[int] = []

    async def inner(fail: bool) -> str:
        await asyncio.sleep(1)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 1)
        except TimeoutError:
            await asyncio.sleep(1)
        if fail:
            raise LookupError("inside")
        return "done"

    async def play(fail: bool) -> str:
        return await counting(inner(fail), lambda: counted.append(1))

    assert virtual_loop.run(play(False)) == "done"
    assert len(counted) >= 3
    with pytest.raises(LookupError, match="inside"):
        virtual_loop.run(play(True))


def test_cancellation_goes_through() -> None:
    async def play() -> list[str]:
        heard = []

        async def inner() -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        async def outer() -> None:
            await counting(inner(), lambda: None)

        task = asyncio.ensure_future(outer())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return heard

    assert virtual_loop.run(play()) == ["cancelled"]


def test_a_hosts_clock_has_a_speed_of_its_own() -> None:
    async def play() -> tuple[float, float]:
        host = SimulatedNetwork().host("fast")
        host.clock_rate, host.wall_jump_s = 1.1, 3600.0
        clock = SimulatedClock(host)
        began_us = clock.wall_time_us()
        await clock.sleep(11.0)
        assert clock.wall_time_us() - began_us == pytest.approx(11e6)
        return clock.monotonic(), asyncio.get_running_loop().time()

    assert virtual_loop.run(play()) == (pytest.approx(11.0), pytest.approx(10.0))


EVERYTHING = """
cluster brokers=3 controllers=2 followers=2 drift-percent=10 shared-id authorizer task-order seed=5
create-topic orders 1,2,3 2,3,1
lag-followers 1
slow-disk 2 0.5
jump-clock active
kill-broker 1 then=5
crash-at-await 3
auto-create-topic seed=3 then=3
auto-create-topic seed=4 then=3
auto-create-topic seed=6 then=3
start-broker 1 then=5
reassign orders-0 1,2 then=10
configure-broker 2 then=3
alter-broker-configs then=3
bounce-broker 3 then=3
bounce-broker seed=0 then=3
"""
SMALL_LIMITS = (("zookeeper.writes.MAX_OPS", "2"), ("controller.alter_partition.WRITTEN_AT_ONCE", "1"))


def test_each_fault_leaves_its_probe_and_the_cluster_whole() -> None:
    report = simulate_plan(msgspec.structs.replace(parse_scenario(EVERYTHING), limits=SMALL_LIMITS))
    assert report.violations == []
    wanted = {f"probe/{name}" for name in PROBES if name != "unclean election"}
    assert wanted - set(report.marks) == set()


def with_all(plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, followers=2, drift_percent=10)


def test_the_same_seed_is_the_same_run() -> None:
    first, second = simulate_plan(with_all(draw(11))), simulate_plan(with_all(draw(11)))
    assert first == second


def test_crash_at_an_await_point_of_the_work_alone() -> None:
    whole = simulate_plan(draw(4).crashing_at(0, before=False))
    assert whole.awaits > 10
    crashed = simulate_plan(draw(4).crashing_at_await(whole.awaits // 2))
    assert crashed.violations == []
    assert crashed.marks["probe/crash at an await point"] == 1


def test_crash_points_of_a_seed_and_each_of_them_again() -> None:
    points = crash_points(4)
    assert [str(point) for point in points[:3]] == ["before write 1", "after write 1", "before write 2"]
    chosen = [points[0], points[1], points[-1]]
    reports = dict(run_crash_points(chosen, jobs=1))
    assert list(reports) == chosen
    assert all(report.ok for report in reports.values())
    assert len({report.digest for report in reports.values()}) == 3
    last = parse_crash_point(4, str(points[-1]))
    assert (last, crash(last)) == (points[-1], reports[points[-1]])


@pytest.mark.parametrize("text", ["", "at await", "at await 0", "at await -1", "somewhere 3", "before write 1 "])
def test_what_is_no_crash_point(text: str) -> None:
    with pytest.raises(BadInputError, match="expected one of before write, after write, at await"):
        parse_crash_point(1, text)
