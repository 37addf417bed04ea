"""Typed reads of partitions' states: what is there, what is not, and what may not be read."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.changes import ZNodeChange
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.reads import Reads
from aiocontroller.zookeeper.state_watches import watch_topic_partition_states
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.zookeeper.test_client import connected

STATE = b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":2,"isr":[1,2]}'


async def with_states(client: ZooKeeperClient, **states: bytes) -> KafkaZkClient:
    """Topic -> the state of its partition 0."""
    zk = KafkaZkClient(client)
    await zk.create_top_level_paths()
    for topic, state in states.items():
        for path in ("", "/partitions", "/partitions/0"):
            await client.create(f"/brokers/topics/{topic}{path}")
        await client.create(f"/brokers/topics/{topic}/partitions/0/state", data=state)
    return zk


@virtual_time
async def test_a_state_that_is_not_there_is_none_and_one_that_may_not_be_read_is_damaged() -> None:
    """A new state is created where there is none: a refusal must not look like that."""
    async with connected() as client:
        zk = await with_states(client, t=STATE, damaged=b"{", secret=STATE)
        read = client.get_many

        async def refusing(paths: Sequence[str], **how: Any) -> Reads:
            found = await read(paths, **how)
            for i, path in enumerate(paths):
                if "secret" in path:
                    found.code[i], found.data[i] = Code.NO_AUTH, None
            return found

        client.get_many = refusing  # type: ignore[method-assign, assignment]
        topics = ["t", "none", "damaged", "secret"]
        known, none, damaged, secret = await zk.get_topic_partition_states(topics, [0] * 4)
        assert known == LeaderAndIsr(1, 2, (1, 2), 3, 0)
        assert none is None
        assert isinstance(damaged, BadZNode)
        assert isinstance(secret, BadZNode)
        assert secret.path == "/brokers/topics/secret/partitions/0/state"
        assert "NO_AUTH" in secret.found


@virtual_time
async def test_a_watched_state_reports_its_next_change() -> None:
    async with connected() as client:
        zk = await with_states(client, t=STATE, u=STATE)
        heard: list[tuple[ZNodeChange, Any]] = []
        zk.on_change = lambda *change: heard.append(change)
        await watch_topic_partition_states(client, ["t"], [0])
        for topic in ("t", "u", "t"):
            await client.set(f"/brokers/topics/{topic}/partitions/0/state", STATE, -1)
        assert await client.exists("/")
        assert [change for change, *_ in heard] == [ZNodeChange.PARTITION_STATE]


@virtual_time
async def test_states_are_created_in_as_many_rounds_as_create_something() -> None:
    """A refused multi is split, and a child may then be sent before its parent; a topic that is gone stays gone."""
    async with connected() as client:
        zk = await with_states(client, there=STATE)
        for path in ("/controller_epoch", "/brokers/topics/new", "/brokers/topics/other"):
            await client.create(path)
        rounds = 0
        write_many = client.write_many

        async def childless(ops: Sequence[Any], **how: Any) -> Any:
            """In the first round the new topic's state goes without its parents."""
            nonlocal rounds
            rounds += 1
            assert rounds < 5, "it goes on although nothing comes of it"
            written = await write_many([op for op in ops if rounds > 1 or "/new/" not in op.path], fence=how["fence"])
            if rounds > 1:
                return written
            codes = iter(written.code)
            return SimpleNamespace(code=[Code.NO_NODE if "/new/" in op.path else next(codes) for op in ops])

        client.write_many = childless  # type: ignore[method-assign]
        state = LeaderAndIsr(1, 0, (1,), 1, 0)

        async def created(*topics: str) -> list[Code]:
            nonlocal rounds
            rounds = 0
            writes = await zk.create_topic_partition_states(topics, [0] * len(topics), [state] * len(topics), fence=0)
            return [Code(code) for code in writes.code]

        assert await created("there", "new", "other", "gone") == [Code.NODE_EXISTS, Code.OK, Code.OK, Code.NO_NODE]
        assert await created("gone", "gone too") == [Code.NO_NODE, Code.NO_NODE]
        assert rounds == 1


@virtual_time
async def test_no_state_is_created_in_a_topic_that_was_made_anew() -> None:
    ours, others = b"o" * 16, b"x" * 16
    partitions = {n: ReplicaAssignment((1,)) for n in (0, 1)}
    async with connected() as client:
        zk = await with_states(client, there=STATE)
        await client.create("/controller_epoch")
        for name, topic_id in (("same", ours), ("anew", others), ("idless", NO_TOPIC_ID)):
            await client.create(paths.topic(name), znodes.encode_topic(TopicAssignment(name, topic_id, partitions)))
        topics = ["anew", "same", "anew", "idless", "gone", "same"]
        numbers = [0, 0, 1, 0, 0, 1]
        writes = await zk.create_topic_partition_states(
            topics, numbers, [LeaderAndIsr(1, 0, (1,), 1, 0)] * 6, ids=dict.fromkeys(topics, ours), fence=0
        )
        none, done = Code.NO_NODE, Code.OK
        assert [Code(code) for code in writes.code] == [none, done, none, done, none, done]
        assert await client.get_children(paths.topic("anew")) == []
        assert await zk.get_topic_ids(["anew", "gone", "idless", "there"]) == {
            "anew": others,
            "idless": NO_TOPIC_ID,
            "there": NO_TOPIC_ID,
        }
