"""What keeps the authorizer up to date: what it says, and how often, of damage and of a ZooKeeper that is away."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.acl_follower import RETRY_S, AclFollower
from aiocontroller.zookeeper.acl_store import AclStore
from aiocontroller.zookeeper.session_events import SessionEvent
from aiocontroller.zookeeper.znode_json import BadZNode


class Store:
    """An ``AclStore`` whose ZooKeeper is away or damaged at times."""

    def __init__(self) -> None:
        self.authorizer: list[object] = []
        self.away = False
        self.unreadable: list[BadZNode] = []
        self.notifications: list[str] = []
        self.loads = 0

    async def changes(self) -> list[str]:
        if self.away:
            raise ConnectionError("away")
        return self.notifications

    async def changed_patterns(self, new: list[str]) -> tuple[list[str], list[BadZNode]]:
        return new, []

    async def refresh(self, patterns: list[str]) -> list[BadZNode]:
        return self.unreadable

    async def load(self) -> list[BadZNode]:
        self.loads += 1
        return self.unreadable


class Subject:
    def __init__(self) -> None:
        self.store, self.damage = Store(), 0
        self.follower = AclFollower(
            cast(AclStore, self.store),
            simulated_world(SimulatedNetwork()),
            lambda: setattr(self, "damage", self.damage + 1),
        )
        self.running = asyncio.create_task(self.follower.run())

    async def wake(self, *new: str) -> None:
        self.store.notifications += new
        self.follower.wake()
        await asyncio.sleep(3 * RETRY_S)


@virtual_time
async def test_damaged_acls_are_counted_and_logged_once_while_they_last(caplog: pytest.LogCaptureFixture) -> None:
    subject = Subject()
    subject.store.unreadable = [BadZNode("/kafka-acl/Topic/t", "{", "JSON")]
    for change in ("a", "b"):
        await subject.wake(change)
    assert subject.damage == 1
    subject.store.unreadable = [BadZNode("/kafka-acl/Topic/u", "{", "JSON")]
    await subject.wake("c")
    assert subject.damage == 2
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [text.partition(":")[0].split()[0] for text in logged] == ["/kafka-acl/Topic/t", "/kafka-acl/Topic/u"]
    subject.running.cancel()


@virtual_time
async def test_each_time_that_acls_cannot_be_read_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    subject = Subject()
    await asyncio.sleep(1)
    for outage in (1, 2):
        subject.store.away = True
        await subject.wake()
        subject.store.away = False
        await subject.wake(str(outage))
        logged = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(logged) == outage
    assert subject.store.loads == 1, "what is new is read alone"
    subject.running.cancel()


@virtual_time
async def test_all_is_read_again_in_a_new_session_only() -> None:
    """The watches are gone with the old session; they outlive a connection."""
    subject = Subject()
    await asyncio.sleep(1)
    loads = {}
    for event in SessionEvent:
        before = subject.store.loads
        subject.follower.on_session(event)
        await asyncio.sleep(3 * RETRY_S)
        loads[event] = subject.store.loads - before
    assert loads == {event: int(event is SessionEvent.NEW_SESSION) for event in SessionEvent}
    subject.running.cancel()
