"""Barriers: what stands behind one waits until it is opened, so that leaders hear first."""

from __future__ import annotations

from aiocontroller.lab.virtual_time import virtual_time
from tests.unit.controller.senders import channels, seconds


@virtual_time
async def test_what_is_behind_a_barrier_waits_until_it_is_opened() -> None:
    async with channels() as it:
        leader, follower = await it.peer(1), await it.peer(2)
        await seconds(1)
        it.send("before", 2)
        barrier = it.manager.hold_back([1, 2, 9], timeout_s=0.5)
        it.send("behind", 1)
        it.send("behind", 2)
        await seconds(0.3)
        assert (leader.bodies, follower.bodies) == ([], [b"before v7 e7"])
        barrier.open()
        await seconds(0.01)
        assert (leader.bodies, follower.bodies) == ([b"behind v7 e7"], [b"before v7 e7", b"behind v7 e7"])
        assert sum(s.queued for s in it.manager.statistics()) == 0


@virtual_time
async def test_an_unopened_barrier_holds_for_its_time_only() -> None:
    async with channels() as it:
        peer = await it.peer()
        await seconds(1)
        it.manager.hold_back([1], timeout_s=0.5)
        it.send("behind")
        await seconds(0.49)
        assert peer.bodies == []
        await seconds(0.02)
        assert peer.bodies == [b"behind v7 e7"]


@virtual_time
async def test_a_sender_that_goes_while_it_waits_at_a_barrier_tells_what_it_gives_up() -> None:
    async with channels() as it:
        peer = await it.peer()
        await seconds(1)
        barrier = it.manager.hold_back([1], timeout_s=0.5)
        it.send("behind")
        await seconds(0.1)
        it.manager.remove_brokers([1])
        barrier.open()
        await seconds(1)
        assert (it.done, peer.bodies) == (["behind"], [])
