"""ACLs in ZooKeeper: read, followed and changed, on the real one and on the modelled one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.acls import AccessControlEntry, ResourcePattern
from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.acl_follower import AclFollower
from aiocontroller.zookeeper.acl_store import AclStore, AclUpdateError, Entries
from aiocontroller.zookeeper.client import Create, SetData
from aiocontroller.zookeeper.codec import Delete
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.integration.zookeeper.typed import Connect

TOPIC = ResourcePattern(ResourceType.TOPIC, "t")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "app-", PatternType.PREFIXED)
ALICE = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
BOB = AccessControlEntry("User:bob", "1.2.3.4", AclOperation.IDEMPOTENT_WRITE, AclPermissionType.DENY)

KAFKAS = {
    "version": 1,
    "acls": [
        {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"},
        {"principal": "User:bob", "permissionType": "Deny", "operation": "IdempotentWrite", "host": "1.2.3.4"},
    ],
}


class Follower:
    """An authorizer that follows a ZooKeeper."""

    def __init__(self, zk: KafkaZkClient, world: World) -> None:
        self.zk = zk
        self.authorizer = AclAuthorizer()
        self.store = AclStore(zk.client, world, self.authorizer)
        self.bad = 0
        self.follower = AclFollower(self.store, world, self._on_bad)
        zk.on_acl_change = self.follower.wake
        zk.client.on_session = self.follower.on_session

    def _on_bad(self) -> None:
        self.bad += 1

    async def until(self, pattern: ResourcePattern, *entries: AccessControlEntry) -> None:
        await until(lambda: self.authorizer.loaded and self.authorizer.entries(pattern) == list(entries))


async def until(condition: Callable[[], object], within_s: float = 10) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def following(zk: KafkaZkClient, world: World) -> AsyncIterator[Follower]:
    it = Follower(zk, world)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.follower.run)
        yield it
        tasks.cancel_scope.cancel()


async def write(zk: KafkaZkClient, path: str, data: object) -> None:
    """As another client does, without telling of it."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    await zk.create_paths([path.rpartition("/")[0]])
    exists = not (await zk.client.exists_many([path])).code[0]
    await zk.client.multi([SetData(path, raw) if exists else Create(path, raw)])


async def notify(zk: KafkaZkClient, path: str, data: bytes) -> None:
    await zk.create_paths([path])
    await zk.client.multi([Create(f"{path}/acl_changes_", data, sequential=True)])


async def notifications(zk: KafkaZkClient, path: str) -> list[bytes]:
    names = (await zk.client.children_many([path])).names[0] or []
    assert all(name.startswith("acl_changes_") for name in names)
    return [data or b"" for data in (await zk.client.get_many([f"{path}/{name}" for name in names])).data]


def adding(*entries: AccessControlEntry) -> Callable[[Entries], Entries]:
    return lambda present: [*present, *entries]


# -- following ---------------------------------------------------------------------------------------------------------


async def test_what_kafka_wrote_is_read(zk: KafkaZkClient, world: World) -> None:
    await write(zk, "/kafka-acl/Topic/t", KAFKAS)
    await write(zk, "/kafka-acl-extended/prefixed/TransactionalId/app-", KAFKAS)
    await write(zk, "/kafka-acl/Group/none", {"version": 1, "acls": []})
    await write(zk, "/kafka-acl/Strange/x", KAFKAS)
    async with following(zk, world) as it:
        await it.until(TOPIC, ALICE, BOB)
        await it.until(PREFIX, ALICE, BOB)
        assert len(it.authorizer) == 2
        assert it.bad == 0


async def test_changes_by_others_are_followed(connect: Connect, zk: KafkaZkClient, world: World) -> None:
    """The change paths need not be there in the beginning, and brokers purge the notifications that they have read."""
    other = await connect()
    async with following(zk, world) as it:
        await it.until(TOPIC)
        await write(other, "/kafka-acl/Topic/t", KAFKAS)
        await notify(other, "/kafka-acl-changes", b"Topic:t")
        await it.until(TOPIC, ALICE, BOB)
        await write(other, "/kafka-acl-extended/prefixed/TransactionalId/app-", KAFKAS)
        change = {"version": 1, "resourceType": "TRANSACTIONAL_ID", "name": "app-", "patternType": "PREFIXED"}
        await notify(other, "/kafka-acl-extended-changes", json.dumps(change).encode())
        await it.until(PREFIX, ALICE, BOB)
        names = (await other.client.children_many(["/kafka-acl-changes"])).names[0] or []
        await other.client.multi([Delete(f"/kafka-acl-changes/{name}") for name in names])
        await other.client.multi([Delete("/kafka-acl/Topic/t")])
        await notify(other, "/kafka-acl-changes", b"TOPIC:t")
        await it.until(TOPIC)


async def test_two_stores_hear_of_each_other(connect: Connect, zk: KafkaZkClient, world: World) -> None:
    async with following(zk, world) as first, following(await connect(), world) as second:
        await first.until(TOPIC)
        await first.store.update(TOPIC, adding(ALICE))
        assert first.authorizer.entries(TOPIC) == [ALICE]  # at once
        await second.until(TOPIC, ALICE)
        await second.store.update(TOPIC, adding(BOB))
        await first.until(TOPIC, ALICE, BOB)
        await first.store.update(PREFIX, adding(BOB))
        await second.until(PREFIX, BOB)
        await second.store.update(TOPIC, lambda _: [])
        await first.until(TOPIC)


async def test_damaged_znode_denies_and_is_named_once(
    connect: Connect, zk: KafkaZkClient, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    other = await connect()
    await write(zk, "/kafka-acl/Topic/t", b"{no JSON")
    async with following(zk, world) as it:
        it.authorizer.allow_everyone_if_no_acl_found = True
        await until(lambda: TOPIC in it.authorizer.damaged)
        assert not it.authorizer.authorize("User:alice", "h", AclOperation.READ, ResourceType.TOPIC, "t")
        assert it.authorizer.authorize("User:alice", "h", AclOperation.READ, ResourceType.TOPIC, "u")
        with pytest.raises(AclUpdateError, match=r"/kafka-acl/Topic/t is unreadable"):
            await it.store.update(TOPIC, adding(ALICE))
        await notify(other, "/kafka-acl-changes", b"Topic:t")
        await write(other, "/kafka-acl/Topic/u", KAFKAS)
        await notify(other, "/kafka-acl-changes", b"Topic:u")
        await it.until(ResourcePattern(ResourceType.TOPIC, "u"), ALICE, BOB)
        assert it.bad == 1
        assert [m for m in caplog.messages if "/kafka-acl/Topic/t is unreadable: found {no JSON" in m]
        await write(other, "/kafka-acl/Topic/t", KAFKAS)
        await notify(other, "/kafka-acl-changes", b"Topic:t")
        await it.until(TOPIC, ALICE, BOB)
        assert not it.authorizer.damaged


@pytest.mark.parametrize(
    "wrong",
    [
        {"principal": "alice", "permissionType": "Allow", "operation": "Read", "host": "*"},
        {"principal": "User:alice", "permissionType": "Any", "operation": "Read", "host": "*"},
        {"principal": "User:alice", "permissionType": "Allow", "operation": "ANY", "host": "*"},
        {"principal": "User:alice", "permissionType": "Allow", "host": "*"},
    ],
)
async def test_one_entry_that_cannot_be_understood_damages_the_znode(
    zk: KafkaZkClient, world: World, wrong: dict[str, str]
) -> None:
    await write(zk, "/kafka-acl/Topic/t", {"version": 1, "acls": [*KAFKAS["acls"], wrong]})  # type: ignore[misc]
    async with following(zk, world) as it:
        await until(lambda: TOPIC in it.authorizer.damaged)


async def test_notification_that_cannot_be_read_says_that_anything_may_have_changed(
    connect: Connect, zk: KafkaZkClient, world: World
) -> None:
    other = await connect()
    async with following(zk, world) as it:
        await it.until(TOPIC)
        await write(other, "/kafka-acl/Topic/t", KAFKAS)
        await notify(other, "/kafka-acl-extended-changes", b"{no JSON")
        await it.until(TOPIC, ALICE, BOB)
        assert it.bad == 1


async def test_new_session_reads_all_again(connect: Connect, zk: KafkaZkClient, world: World) -> None:
    other = await connect()
    async with following(zk, world) as it:
        await it.until(TOPIC)
        await write(other, "/kafka-acl/Topic/t", KAFKAS)  # and without a notification
        await expire_session(it.zk.client)
        await it.until(TOPIC, ALICE, BOB)
        await it.store.update(PREFIX, adding(ALICE))
        await write(other, "/kafka-acl/Topic/t", {"version": 1, "acls": []})
        await notify(other, "/kafka-acl-changes", b"Topic:t")
        await it.until(TOPIC)


async def test_resignation_does_not_end_the_following(connect: Connect, zk: KafkaZkClient, world: World) -> None:
    other = await connect()
    async with following(zk, world) as it:
        await it.until(TOPIC)
        zk.forget_watches()
        await write(other, "/kafka-acl/Topic/t", KAFKAS)
        await notify(other, "/kafka-acl-changes", b"Topic:t")
        await it.until(TOPIC, ALICE, BOB)
        zk.forget_watches()
        watched = zk.client.session.registry
        assert {path.rpartition("/")[2] for path in watched.child} == {"kafka-acl-changes"}
        assert {path.rpartition("/")[2] for path in watched.exist} == {"kafka-acl-extended-changes"}


# -- changing ----------------------------------------------------------------------------------------------------------


async def test_changes_are_written_as_kafka_writes_them(zk: KafkaZkClient, world: World) -> None:
    it = Follower(zk, world)
    await it.store.update(TOPIC, adding(ALICE, BOB, ALICE))
    await it.store.update(PREFIX, adding(BOB))
    paths = ["/kafka-acl/Topic/t", "/kafka-acl-extended/prefixed/TransactionalId/app-"]
    found = [json.loads(data or b"") for data in (await zk.client.get_many(paths)).data]
    assert found == [KAFKAS, {"version": 1, "acls": [KAFKAS["acls"][1]]}]  # type: ignore[index]
    assert await notifications(zk, "/kafka-acl-changes") == [b"TOPIC:t"]
    [extended] = await notifications(zk, "/kafka-acl-extended-changes")
    assert json.loads(extended) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "app-",
        "patternType": "PREFIXED",
    }


async def test_last_entry_that_goes_takes_the_znode_with_it(zk: KafkaZkClient, world: World) -> None:
    it = Follower(zk, world)
    await it.store.update(TOPIC, adding(ALICE))
    await it.store.update(TOPIC, lambda present: [e for e in present if e != ALICE])
    assert (await zk.client.exists_many(["/kafka-acl/Topic/t"])).code[0] != 0
    assert len(await notifications(zk, "/kafka-acl-changes")) == 2


async def test_change_that_changes_nothing_is_not_announced(zk: KafkaZkClient, world: World) -> None:
    it = Follower(zk, world)
    await it.store.update(TOPIC, adding(ALICE))
    await it.store.update(TOPIC, adding(ALICE))
    await it.store.update(PREFIX, lambda _: [])
    assert len(await notifications(zk, "/kafka-acl-changes")) == 1
    assert await notifications(zk, "/kafka-acl-extended-changes") == []


async def test_nothing_is_lost_when_others_write_in_between(connect: Connect, zk: KafkaZkClient, world: World) -> None:
    stores = [Follower(zk, world), Follower(await connect(), world), Follower(await connect(), world)]
    entries = [ALICE._replace(principal=f"User:u{n}") for n in range(9)]
    async with anyio.create_task_group() as tasks:
        for n, entry in enumerate(entries):
            tasks.start_soon(stores[n % 3].store.update, TOPIC, adding(entry))
    last = Follower(zk, world)
    assert await last.store.load() == []
    assert sorted(last.authorizer.entries(TOPIC)) == sorted(entries)


async def test_change_that_is_always_too_late_is_refused(connect: Connect, zk: KafkaZkClient, world: World) -> None:
    it, other = Follower(zk, world), await connect()
    await it.store.update(TOPIC, adding(ALICE))
    real = it.store._write

    async def too_late(*arguments: object) -> bool:
        await write(other, "/kafka-acl/Topic/t", KAFKAS)
        return await real(*arguments)  # type: ignore[arg-type]

    it.store._write = too_late  # type: ignore[method-assign]
    it.store._world = World(world.network, _NoWaiting(), world.random)  # type: ignore[arg-type]
    with pytest.raises(AclUpdateError, match="changed 11 times during the update"):
        await it.store.update(TOPIC, lambda _: [BOB])


class _NoWaiting:
    async def sleep(self, delay_s: float) -> None:
        assert 0.1 <= delay_s <= 0.15


async def test_revocation_that_was_broken_off_is_announced_by_the_next_try(
    zk: KafkaZkClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written, nothing was left to do for the next try, and every broker went on granting what was revoked."""
    store = AclStore(zk.client, world, AclAuthorizer())
    await store.load()
    await store.update(TOPIC, lambda present: [*present, ALICE])
    before = len(await notifications(zk, "/kafka-acl-changes"))

    async def break_off(pattern: ResourcePattern) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(store, "_create_change_notification", break_off)
        with pytest.raises(asyncio.CancelledError):
            await store.update(TOPIC, lambda present: [])
    assert len(await notifications(zk, "/kafka-acl-changes")) == before
    await store.update(TOPIC, lambda present: [])
    assert len(await notifications(zk, "/kafka-acl-changes")) == before + 1
    await store.update(TOPIC, lambda present: [])
    assert len(await notifications(zk, "/kafka-acl-changes")) == before + 1
