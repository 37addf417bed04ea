"""What a successor relies on: all notifications of earlier writes come before the reply to its own multi."""

from __future__ import annotations

import asyncio

from aiocontroller.zookeeper.client import SetData
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.topics_watch import TopicsWatch
from tests.integration.zookeeper.typed import Connect, put, put_topic, topic

PARTITIONS = 60
STATES = [f"/brokers/topics/t/partitions/{number}/state" for number in range(PARTITIONS)]


class Listener:
    def __init__(self) -> None:
        self.states: set[int] = set()
        self.topics: list[tuple[str, bool]] = []

    def topic_changed(self, name: str, *, deleted: bool = False) -> None:
        self.topics.append((name, deleted))

    def state_changed(self, topic: str, partition: int) -> None:
        assert topic == "t"
        self.states.add(partition)


async def make_states(other: KafkaZkClient) -> None:
    await put(other, "/controller_epoch", b"0")
    await put_topic(other, topic("t", *[(1,)] * PARTITIONS))
    await other.client.ensure_path("/brokers/topics/t/partitions")
    for path in STATES:
        await other.client.ensure_path(path)


async def test_at_the_reply_to_ones_own_multi_every_earlier_write_was_reported(
    zk: KafkaZkClient, connect: Connect
) -> None:
    other, listener = await connect(), Listener()
    await make_states(other)
    watch = TopicsWatch(zk.client)
    await watch.listen(listener)
    for _ in range(20):
        before = (await zk.client.exists_many(["/controller_epoch"])).stat(0).last_modified_zxid
        await other.client.sync("/")
        listener.states.clear()
        writes = asyncio.create_task(other.client.set_many(STATES, [b"x"] * PARTITIONS, [-1] * PARTITIONS))
        for _ in range(3):
            await asyncio.sleep(0)
        [result] = await zk.client.multi([SetData("/controller_epoch", b"1", -1)])
        heard = set(listener.states)
        fence = result.stat.last_modified_zxid
        await writes
        reads = await zk.client.get_many(STATES)
        earlier = {number for number in range(PARTITIONS) if before < reads.mzxid(number) < fence}
        assert earlier <= heard
    await watch.remove()


async def test_topics_that_come_and_go_are_reported_until_the_watch_is_removed(
    zk: KafkaZkClient, connect: Connect
) -> None:
    other, listener = await connect(), Listener()
    watch = TopicsWatch(zk.client)
    await watch.listen(listener)
    await put_topic(other, topic("u", (1,)))
    await other.client.set("/brokers/topics/u", b"{}", -1)
    await other.client.delete("/brokers/topics/u")
    await zk.client.sync("/")
    assert listener.topics == [("u", False), ("u", False), ("u", True)]
    await watch.remove()
    await put_topic(other, topic("u", (1,)))
    await zk.client.sync("/")
    assert len(listener.topics) == 3
