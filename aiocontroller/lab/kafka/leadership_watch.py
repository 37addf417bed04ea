"""Watches partition states in ZooKeeper during an event: which brokers led and were in sync, and when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

from aiocontroller.core.ids import NO_LEADER, LeaderAndIsr
from aiocontroller.lab.kafka.view import PartitionKey
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

POLL_S = 0.02


class LeadershipWatch:
    """``look`` takes in the states of one moment; times are seconds of the monotonic clock."""

    def __init__(self, partitions: Sequence[PartitionKey]) -> None:
        self.partitions = partitions
        self.states: dict[PartitionKey, LeaderAndIsr] = {}
        """The latest."""
        self.moves: dict[PartitionKey, int] = {}
        """Leader changes."""
        self._lost_s: dict[tuple[PartitionKey, int], float] = {}
        """(partition, replica outside its ISR) -> the time since when."""
        self._outside: dict[tuple[PartitionKey, int], list[tuple[float, float]]] = {}

    async def run(self, zk: KafkaZkClient) -> None:
        """Read the states repeatedly until cancelled."""
        while True:
            await self.read(zk)
            await asyncio.sleep(POLL_S)

    async def read(self, zk: KafkaZkClient) -> None:
        topics, numbers = [key[0] for key in self.partitions], [key[1] for key in self.partitions]
        found = await zk.get_topic_partition_states(topics, numbers)
        states = {
            key: state for key, state in zip(self.partitions, found, strict=True) if isinstance(state, LeaderAndIsr)
        }
        self.look(states, time.monotonic())

    def look(self, states: dict[PartitionKey, LeaderAndIsr], now_s: float) -> None:
        for key, state in states.items():
            before = self.states.get(key)
            self.states[key] = state
            if before is None:
                continue
            if state.leader not in (before.leader, NO_LEADER):
                self.moves[key] = self.moves.get(key, 0) + 1
            for replica in set(before.isr) - set(state.isr):
                self._lost_s.setdefault((key, replica), now_s)
            for replica in state.isr:
                since_s = self._lost_s.pop((key, replica), None)
                if since_s is not None:
                    self._outside.setdefault((key, replica), []).append((since_s, now_s))

    def outside_s(self, replica: int, now_s: float, *, since_s: float = 0.0) -> float:
        """Return the longest total time that the replica spent outside one partition's ISR after ``since_s``."""
        spans = {which: list(found) for which, found in self._outside.items() if which[1] == replica}
        for which, lost_s in self._lost_s.items():
            if which[1] == replica:
                spans.setdefault(which, []).append((lost_s, now_s))
        return max((sum(max(0.0, end - max(begin, since_s)) for begin, end in s) for s in spans.values()), default=0.0)

    def led_by(self, replica: int) -> list[PartitionKey]:
        return [key for key, state in self.states.items() if state.leader == replica]

    def whole_without(self, dead: Collection[int], replicas: dict[PartitionKey, tuple[int, ...]]) -> bool:
        """Whether each partition has a leader, and all of its replicas are in sync except the dead ones."""
        return len(self.states) == len(self.partitions) and all(
            state.leader not in (NO_LEADER, *dead) and set(state.isr) >= set(replicas[key]).difference(dead)
            for key, state in self.states.items()
        )
