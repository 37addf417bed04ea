"""One recursive watch instead of many: who hears of which change."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.topics_watch import TopicsWatch
from aiocontroller.zookeeper.watches import CHANGED, CHILD, CREATED, DELETED

TOPIC, STATE = "/brokers/topics/t", "/brokers/topics/t/partitions/3/state"


class Ears:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def topic_changed(self, name: str, *, deleted: bool = False) -> None:
        self.heard.append((name, deleted))

    def state_changed(self, topic: str, partition: int) -> None:
        self.heard.append((topic, partition))

    def others(self, kind: int, path: str) -> None:
        self.heard.append((kind, path))

    def take(self) -> list[Any]:
        heard, self.heard = self.heard, []
        return heard


class FakeClient:
    def __init__(self, ears: Ears) -> None:
        self.on_watch: Any = ears.others
        self.armed: list[str] = []

    async def add_recursive_watch(self, path: str) -> None:
        self.armed.append(path)

    async def remove_recursive_watch(self, path: str) -> None:
        self.armed.remove(path)


@pytest.fixture
def made() -> Iterator[SimpleNamespace]:
    ears = Ears()
    client = FakeClient(ears)
    return SimpleNamespace(ears=ears, client=client, watch=TopicsWatch(cast(ZooKeeperClient, client)))


async def test_a_listener_hears_of_topics_and_states_and_the_others_of_everything_else(made: SimpleNamespace) -> None:
    await made.watch.listen(made.ears)
    for kind, path in (
        (CREATED, TOPIC),
        (CHANGED, TOPIC),
        (DELETED, TOPIC),
        (CREATED, STATE),
        (CHANGED, STATE),
        (DELETED, STATE),
        (CREATED, TOPIC + "/partitions"),
        (CREATED, TOPIC + "/partitions/3"),
        (CHANGED, TOPIC + "/partitions/x/state"),
        (CREATED, "/brokers/ids/1"),
        (CREATED, "/brokers/topics"),
        (DELETED, "/controller"),
        (CHILD, "/brokers/ids"),
    ):
        made.client.on_watch(kind, path)
    assert made.ears.take() == [
        *(("t", False), ("t", False), ("t", True)),
        *[("t", 3)] * 3,
        *((DELETED, "/controller"), (CHILD, "/brokers/ids")),
    ]


async def test_after_the_end_of_listening_changes_become_those_of_one_shot_watches(made: SimpleNamespace) -> None:
    await made.watch.listen(made.ears)
    made.watch.pass_on(lambda topic, partition: (topic, partition) == ("t", 4))
    moving = STATE.replace("3", "4")
    for kind, path in ((CREATED, TOPIC), (CHANGED, TOPIC), (DELETED, TOPIC), (CHANGED, STATE), (CHANGED, moving)):
        made.client.on_watch(kind, path)
    lists = (CHILD, "/brokers/topics")
    expected = [lists, (CREATED, TOPIC), (CHANGED, TOPIC), lists, (DELETED, TOPIC), (CHANGED, moving)]
    assert made.ears.take() == expected
    await made.watch.remove()
    assert made.client.armed == []
    made.client.on_watch(CHANGED, STATE)
    made.client.on_watch(CREATED, TOPIC)
    assert made.ears.take() == [(CHANGED, STATE), (CREATED, TOPIC)], "as if it had never been there"
