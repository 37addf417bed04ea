"""What the clients create under ``zookeeper.set.acl``, on a real server, with credentials of scheme digest."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiozk import exc

from aiocontroller.config import load_config
from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, TopicPartition
from aiocontroller.net.ports import World
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client import Create, ZooKeeperClient
from aiocontroller.zookeeper.cluster_znodes import ProducerIdBlock
from aiocontroller.zookeeper.kafka_zk_client import BrokerInfo, KafkaZkClient
from aiocontroller.zookeeper.securing import zookeeper_client
from aiocontroller.zookeeper.znode_acls import kafka_acl

OWNER = ("digest", "kafka:" + base64.b64encode(hashlib.sha1(b"kafka:secret").digest()).decode())
WORLD = ("world", "anyone")
ALL, READ = 31, 1


@pytest.fixture
async def owner(zk_connect: str, world: World) -> AsyncIterator[ZooKeeperClient]:
    config, _ = load_config(
        overrides={
            "zookeeper.connect": zk_connect + "/secured",
            "zookeeper.set.acl": "true",
            "aiocontroller.zookeeper.digest.username": "kafka",
            "aiocontroller.zookeeper.digest.password": "secret",
        }
    )
    client = zookeeper_client(config, world)
    await client.start(10)
    yield client
    await client.close()


@pytest.fixture
async def stranger(zk_connect: str, world: World) -> AsyncIterator[ZooKeeperClient]:
    client = ZooKeeperClient(zk_connect, world=world)
    await client.start(10)
    yield client
    await client.close()


async def tree(client: ZooKeeperClient, path: str = "/") -> list[str]:
    found = [path]
    for name in (await client.children_many([path])).names[0] or ():
        found += await tree(client, f"{path.rstrip('/')}/{name}")
    return found


async def acl_of(client: ZooKeeperClient, path: str) -> dict[tuple[str, str], int]:
    acl: list[Any] = await client.get_acl(path)
    return {(entry.id.scheme, entry.id.id): entry.perms for entry in acl}


async def live_a_little(client: ZooKeeperClient) -> None:
    """Every way in which a controller, a broker or a tool creates znodes."""
    zk, admin = KafkaZkClient(client), AdminZkClient(KafkaZkClient(client))
    await zk.create_top_level_paths()
    _, fence = await zk.register_controller_and_increment_controller_epoch(7, 1)
    await zk.register_broker(BrokerInfo(Broker(1, 0, (Endpoint("PLAINTEXT", "h", 9092),)), 1))
    await admin.create_topic("t", {0: [1]}, configs={"retention.ms": "1"})
    assert (await zk.create_topic_partition_states(["t"], [0], [LeaderAndIsr(1, 0, (1,), 1, 0)], fence=fence)).ok
    await admin.change_entity_configs("users", "u", {"SCRAM-SHA-256": "x"})
    await admin.change_entity_configs("brokers", "1", {"log.cleaner.threads": "2"})
    await zk.propagate_isr_changes([TopicPartition("t", 0)])
    await zk.propagate_log_dir_event(1)
    await zk.set_or_create_partition_reassignment({TopicPartition("t", 0): (1,)}, fence=fence)
    await admin.delete_topic("t")
    await zk.create_or_get_cluster_id("id")
    block, version = await zk.get_latest_producer_id_block()
    assert block is None
    assert await zk.set_latest_producer_id_block(ProducerIdBlock(1, 0, 999), version)
    await client.create("/brokers/alone", b"")
    await client.ensure_path(paths.DELEGATION_TOKENS + "/deep")


async def test_new_znodes_have_kafkas_acls(owner: ZooKeeperClient, stranger: ZooKeeperClient) -> None:
    await live_a_little(owner)
    every = await tree(owner)
    assert len(every) > 30
    assert {"/", "/controller", "/brokers/ids/1", "/brokers/topics/t/partitions/0/state", "/admin/delete_topics/t"} < {
        *every
    }
    sensitive = [path for path in every if paths.is_sensitive(path)]
    assert {"/config/users", "/config/users/u", "/config/brokers/1", "/delegation_token/tokens/deep"} < {*sensitive}
    for path in every:
        if path == paths.CONSUMERS:
            expected = {WORLD: ALL}
        else:
            expected = {OWNER: ALL} if path in sensitive else {OWNER: ALL, WORLD: READ}
        assert await acl_of(owner, path) == expected, path
        seen = (await stranger.get_many(["/secured" + path.rstrip("/")])).code
        assert seen == [-102 if path in sensitive else 0], path
    refused = await stranger.write_many([Create("/secured/brokers/topics/mine")], fence=None)
    assert refused.code == [-102]
    with pytest.raises(exc.NoAuth):
        await stranger.set_data("/secured/controller", b"me")


async def test_a_client_without_credentials_owns_nothing(zk_connect: str, world: World) -> None:
    client = ZooKeeperClient(zk_connect, world=world, acl_rule=kafka_acl)
    await client.start(10)
    assert (await client.write_many([Create("/a"), Create("/consumers")], fence=None)).code == [-114, 0]
    await client.close()


async def test_without_the_property_everything_is_open(stranger: ZooKeeperClient) -> None:
    await KafkaZkClient(stranger).create_top_level_paths()
    assert await acl_of(stranger, "/config/users") == {WORLD: ALL}
