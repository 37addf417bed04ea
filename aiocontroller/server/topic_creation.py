"""Topics that are created because a client asked for them (Kafka's ``AutoTopicCreationManager``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import anyio

from aiocontroller.controller.broker_settings import broker_settings
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import CreateTopics, NewTopic, Reply
from aiocontroller.server.cluster_view import in_charge

AUTO_CREATE = "auto.create.topics.enable"
GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SETTINGS = {
    AUTO_CREATE: "false",
    "offsets.topic.num.partitions": "50",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.segment.bytes": "104857600",
    "transaction.state.log.num.partitions": "50",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.segment.bytes": "104857600",
    "transaction.state.log.min.isr": "2",
}
"""Kafka's defaults, but for the first: a broker that cannot be asked does not have topics created."""
KEPT_S = 60.0
MAX_AT_ONCE = 100
"""Topics of one request; its client asks again for the others."""
MAX_WAITING = 1_000


class TopicCreation:
    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell
        self._waiting: dict[str, NewTopic] = {}
        self._under_way: frozenset[str] = frozenset()
        self._settings: Mapping[str, str] = {}
        self._since_s = 0.0
        self._turn = anyio.Lock()

    async def settings(self) -> Mapping[str, str]:
        """The brokers'; kept for a minute."""
        async with self._turn:
            now_s = self._shell.world.clock.monotonic()
            if not self._settings or now_s - self._since_s > KEPT_S:
                self._settings = await broker_settings(self._shell, SETTINGS)
                self._since_s = now_s
        return self._settings

    def create(self, names: Iterable[str], settings: Mapping[str, str]) -> frozenset[str]:
        """Have the consumer create them, unless it is about to, or out of office; returns those that it will.

        Nobody waits for it: clients ask again.
        """
        if not in_charge(self._shell):
            return frozenset()
        room = min(MAX_AT_ONCE, MAX_WAITING - len(self._waiting))
        wanted = [name for name in names if name not in self._waiting and name not in self._under_way]
        begun = wanted[: max(0, room)]
        self._waiting.update((name, _new_topic(name, settings)) for name in begun)
        if not self._under_way:
            self._queue_next()
        return frozenset(begun)

    def _queue_next(self) -> None:
        """One event at a time: whatever clients ask for, others in the queue wait for no more."""
        topics = tuple(islice(self._waiting.values(), MAX_AT_ONCE))
        if not topics:
            return
        self._under_way = frozenset(topic.name for topic in topics)
        for topic in topics:
            del self._waiting[topic.name]
        reply = Reply(self._created)
        self._shell.queue.append(CreateTopics(topics=topics, timeout_ms=0, validate_only=False, reply=reply))

    def _created(self, result: object) -> None:
        self._under_way = frozenset()
        if not in_charge(self._shell):
            self._waiting.clear()
        self._queue_next()


def _new_topic(name: str, settings: Mapping[str, str]) -> NewTopic:
    if name == GROUP_METADATA_TOPIC:
        configs: dict[str, str | None] = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": settings["offsets.topic.segment.bytes"],
        }
        prefix = "offsets.topic"
    elif name == TRANSACTION_STATE_TOPIC:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": settings["transaction.state.log.min.isr"],
            "segment.bytes": settings["transaction.state.log.segment.bytes"],
            "unclean.leader.election.enable": "false",
        }
        prefix = "transaction.state.log"
    else:
        return NewTopic(name, -1, -1, {}, {})
    partitions, factor = settings[f"{prefix}.num.partitions"], settings[f"{prefix}.replication.factor"]
    return NewTopic(name, int(partitions), int(factor), {}, configs)
