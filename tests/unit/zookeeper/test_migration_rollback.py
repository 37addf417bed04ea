"""What a rollback of a migration to KRaft is going to write, and when it writes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiocontroller.core.errors import ControllerEpochError, ControllerMovedError
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode, encode_migration
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.migration_rollback import RollbackRefusedError, plan_rollback
from aiocontroller.zookeeper.registration import roll_back_migration
from tests.unit.zookeeper.test_client import connected

OF_KRAFT = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":%d}'
OF_A_BROKER = b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}'
OURS = b'{"version":2,"brokerid":7,"timestamp":"1","kraftControllerEpoch":-1,"software":"aiocontroller"}'


def migration(controller_id: int, epoch: int) -> bytes:
    return encode_migration(MigrationZNode(controller_id, epoch, 10, epoch))


@asynccontextmanager
async def migrating(
    *, states: dict[str, int], epoch: int = 5, controller: bytes | None = OF_KRAFT % 2, znode: bytes | None = None
) -> AsyncIterator[KafkaZkClient]:
    """``states``: topic -> the controller epoch of its only partition."""
    async with connected() as client:
        zk = KafkaZkClient(client)
        await zk.create_top_level_paths()
        await client.create("/controller_epoch", data=b"%d" % epoch)
        if controller is not None:
            await client.create("/controller", data=controller)
        await client.create("/migration", data=migration(3000, 2) if znode is None else znode)
        for topic, of_state in states.items():
            await client.create(f"/brokers/topics/{topic}", data=b'{"version":1,"partitions":{"0":[1]}}')
            await client.create(f"/brokers/topics/{topic}/partitions", data=b"")
            await client.create(f"/brokers/topics/{topic}/partitions/0", data=b"")
            state = b'{"controller_epoch":%d,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}' % of_state
            await client.create(f"/brokers/topics/{topic}/partitions/0/state", data=state)
        yield zk


@pytest.mark.parametrize(
    "states, controller, znode, epoch, because",
    [
        ({"a": 4, "b": 52, "c": 51}, OF_KRAFT % 2, None, 53, "/brokers/topics/b/partitions/0/state has 52"),
        ({"a": 4}, OF_KRAFT % 2, None, 6, "/controller_epoch has 5"),
        ({}, OF_KRAFT % 9, None, 10, "/controller (kraftControllerEpoch) has 9"),
        ({"a": 4}, OF_KRAFT % 2, migration(3000, 77), 78, "/migration (kraft_controller_epoch) has 77"),
        ({"a": 2_000_000_001, "b": 7}, OF_KRAFT % 2, None, 8, "/brokers/topics/b/partitions/0/state has 7"),
        ({"a": 52}, OF_A_BROKER, None, 53, "/brokers/topics/a/partitions/0/state has 52"),
        ({"a": 52}, None, None, 53, "/brokers/topics/a/partitions/0/state has 52"),
        ({"a": 52}, OF_KRAFT % 2, migration(-1, -1), 53, "/brokers/topics/a/partitions/0/state has 52"),
        ({"a": 52}, OF_KRAFT % 2, b"{", 53, "/brokers/topics/a/partitions/0/state has 52"),
        ({"a": 52}, b"{", None, 53, "/brokers/topics/a/partitions/0/state has 52"),
    ],
)
@virtual_time
async def test_epoch_is_above_everything_that_bears_one(
    states: dict[str, int], controller: bytes | None, znode: bytes | None, epoch: int, because: str
) -> None:
    async with migrating(states=states, controller=controller, znode=znode) as zk:
        plan = await plan_rollback(zk)
        assert (plan.epoch, plan.because) == (epoch, because)
        assert plan.epoch_before == ("/controller_epoch", 0, "5")
        assert plan.missing_brokers == ((1,) if states else ())
        gone = ["/migration"] if controller is None else ["/controller", "/migration"]
        assert [each.path for each in plan.deleted] == gone
        assert await roll_back_migration(zk.client, plan, 7, 0) == (epoch, 1)
        assert await zk.get_controller_epoch() == (epoch, 1)
        assert await zk.get_migration() is None
        holder = await zk.get_controller(watch=False)
        assert getattr(holder, "controller_id", None) == 7
        assert getattr(holder, "owner_session", None) == zk.client.session_id
        assert zk.client.fence_generation == zk.client.session.generation


@pytest.mark.parametrize("changed", ["/migration", "/controller_epoch"])
@virtual_time
async def test_nothing_is_written_if_anything_has_changed_since_the_plan(changed: str) -> None:
    async with migrating(states={"a": 52}) as zk:
        plan = await plan_rollback(zk)
        [before] = (await zk.client.get_many([changed])).data
        assert before is not None
        await zk.client.set_data(changed, before, -1)
        with pytest.raises(ControllerMovedError, match="another process is still writing"):
            await roll_back_migration(zk.client, plan, 7, 0)
        assert (await zk.client.get_many(["/controller"])).data == [OF_KRAFT % 2]
        assert await zk.client.exists("/migration")
        assert (await zk.client.get_many(["/controller_epoch"])).data == [b"5"]


@virtual_time
async def test_nothing_is_written_if_a_broker_was_elected_since_the_plan() -> None:
    async with migrating(states={"a": 52}, controller=None) as zk:
        plan = await plan_rollback(zk)
        await zk.client.create("/controller", data=OF_A_BROKER)
        with pytest.raises(ControllerMovedError):
            await roll_back_migration(zk.client, plan, 7, 0)
        assert await zk.client.exists("/migration")


@pytest.mark.parametrize(
    "controller, znode, why",
    [
        (OURS, None, "controller 7 is an aiocontroller already"),
        (OF_A_BROKER, migration(-1, -1), "names no KRaft controller: one is provisioned"),
        (None, migration(-1, -1), "names no KRaft controller: one is provisioned"),
    ],
)
@virtual_time
async def test_what_is_no_migration_is_not_rolled_back(controller: bytes | None, znode: bytes | None, why: str) -> None:
    async with migrating(states={}, controller=controller, znode=znode) as zk:
        with pytest.raises(RollbackRefusedError, match=why):
            await plan_rollback(zk)
        await zk.client.delete("/migration", -1)
        with pytest.raises(RollbackRefusedError, match="there is no /migration"):
            await plan_rollback(zk)


@virtual_time
async def test_epochs_that_leave_no_room_are_refused() -> None:
    async with migrating(states={}, znode=migration(3000, 2_147_483_646)) as zk:
        with pytest.raises(ControllerEpochError, match="found 2147483646, expected at most"):
            await plan_rollback(zk)
        await zk.client.set_data("/controller_epoch", b"x", -1)
        with pytest.raises(ControllerEpochError, match="/controller_epoch: found"):
            await plan_rollback(zk)
