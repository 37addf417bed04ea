"""The watches of the typed client, on a real and on the modelled ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.zookeeper.client import Delete, SetData
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient, ZNodeChange
from tests.integration.zookeeper.typed import (
    TP,
    Changes,
    Connect,
    broker_info,
    put,
    put_topic,
    topic,
)


class TestWatches:
    async def test_each_kind_fires_once_and_is_armed_again_by_reading(
        self, zk: KafkaZkClient, connect: Connect
    ) -> None:
        other = await connect()
        await put_topic(other, topic("t", (1,)))
        await other.register_broker(broker_info(1))
        steps: list[tuple[Callable[[], Awaitable[object]], Awaitable[object], tuple[ZNodeChange, str]]] = [
            (zk.get_controller, put(other, "/controller", b"{}"), (ZNodeChange.CONTROLLER_CHANGED, "")),
            (
                zk.get_controller,
                other.client.write_many([SetData("/controller", b"{1}")], fence=None),
                (ZNodeChange.CONTROLLER_CHANGED, ""),
            ),
            (
                zk.get_controller,
                other.client.write_many([Delete("/controller")], fence=None),
                (ZNodeChange.CONTROLLER_DELETED, ""),
            ),
            (
                zk.get_all_brokers_in_cluster,
                other.client.write_many([SetData("/brokers/ids/1", b"{}")], fence=None),
                (ZNodeChange.BROKER, "1"),
            ),
            (
                lambda: zk.get_broker(1),
                other.client.write_many([SetData("/brokers/ids/1", b"")], fence=None),
                (ZNodeChange.BROKER, "1"),
            ),
            (zk.get_all_brokers_in_cluster, other.register_broker(broker_info(2)), (ZNodeChange.BROKER_IDS, "")),
            (
                zk.get_all_brokers_in_cluster,
                other.client.write_many([Delete("/brokers/ids/1")], fence=None),
                (ZNodeChange.BROKER_IDS, ""),
            ),
            (zk.get_all_topics_in_cluster, put_topic(other, topic("u", (1,))), (ZNodeChange.TOPICS, "")),
            (
                lambda: zk.get_topic_assignments(["t"]),
                other.client.write_many([SetData("/brokers/topics/t", b"{}")], fence=None),
                (ZNodeChange.TOPIC, "t"),
            ),
            (zk.get_topic_deletions, put(other, "/admin/delete_topics/t"), (ZNodeChange.TOPIC_DELETIONS, "")),
            (
                zk.get_all_isr_change_notifications,
                other.propagate_isr_changes([TP("t", 0)]),
                (ZNodeChange.ISR_CHANGE, ""),
            ),
            (zk.get_all_log_dir_event_notifications, other.propagate_log_dir_event(1), (ZNodeChange.LOG_DIR_EVENT, "")),
            (
                zk.get_partition_reassignment,
                put(other, "/admin/reassign_partitions", b"{}"),
                (ZNodeChange.REASSIGN_PARTITIONS, ""),
            ),
            (
                zk.get_preferred_replica_election,
                put(other, "/admin/preferred_replica_election", b"{}"),
                (ZNodeChange.PREFERRED_ELECTION, ""),
            ),
            (
                zk.get_preferred_replica_election,
                other.client.write_many([Delete("/admin/preferred_replica_election")], fence=None),
                (ZNodeChange.PREFERRED_ELECTION, ""),
            ),
            (
                zk.get_all_config_changes,
                other.create_config_change_notification("topics/t"),
                (ZNodeChange.CONFIG_CHANGES, ""),
            ),
        ]
        changes = Changes(zk)
        for arm, happen, expected in steps:
            await arm()
            await happen
            assert await changes.next() == expected
            await zk.client.sync("/")
            # broker 1's own data watch ends with it, and says nothing of its own
            assert changes.empty(), expected

    async def test_reading_without_watch_arms_nothing(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        changes = Changes(zk)
        await zk.get_controller(watch=False)
        await zk.get_all_topics_in_cluster(watch=False)
        await zk.get_all_brokers_in_cluster(watch=False)
        await put(other, "/controller", b"{}")
        await put_topic(other, topic("t", (1,)))
        await other.register_broker(broker_info(1))
        await zk.client.sync("/")
        assert changes.empty()

    async def test_a_controller_that_starts_first_hears_of_the_parents(self, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        changes = Changes(zk)
        assert await zk.get_all_brokers_in_cluster() == ([], [])
        assert await zk.get_all_topics_in_cluster() == []
        await other.create_top_level_paths()
        assert {await changes.next(), await changes.next()} == {(ZNodeChange.BROKER_IDS, ""), (ZNodeChange.TOPICS, "")}
        assert await zk.get_all_topics_in_cluster() == []
        await put_topic(other, topic("t", (1,)))
        assert await changes.next() == (ZNodeChange.TOPICS, "")

    async def test_forgotten_watches(self, zk: KafkaZkClient) -> None:
        await zk.get_all_topics_in_cluster()
        zk.forget_watches()
        assert zk.client.statistics().watches == 0

    async def test_a_resigned_controller_still_hears_of_the_controller(
        self, zk: KafkaZkClient, connect: Connect
    ) -> None:
        """Also over a lost connection, after which only what is remembered is armed again."""
        other = await connect()
        changes = Changes(zk)
        await zk.get_all_topics_in_cluster()
        await zk.get_controller()
        zk.forget_watches()
        assert zk.client.session.conn is not None
        zk.client.session.conn.abort("cut by the test")
        await zk.client.sync("/")
        await put_topic(other, topic("t", (1,)))
        await put(other, "/controller", b"{}")
        assert await changes.next() == (ZNodeChange.CONTROLLER_CHANGED, "")
        assert changes.empty()

    async def test_a_session_end_takes_the_role_along(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        changes = Changes(other)
        await zk.register_controller_and_increment_controller_epoch(7, 0)
        await zk.register_broker(broker_info(7))
        assert await other.get_controller() is not None
        await expire_session(zk.client)
        assert await changes.next() == (ZNodeChange.CONTROLLER_DELETED, "")
        assert await other.register_controller_and_increment_controller_epoch(8, 0) == (2, 2)
        async with asyncio.timeout(10):
            with contextlib.suppress(Exception):
                await zk.client.sync("/")
            while zk.client.session_epoch < 2:
                await asyncio.sleep(0.01)
        # the same client, in its next session, registers as a new incarnation
        first = await other.get_broker(7)
        assert first is None
        assert await zk.register_broker(broker_info(7)) > 0
        with pytest.raises(ControllerMovedError):
            await zk.register_controller_and_increment_controller_epoch(7, 0)
