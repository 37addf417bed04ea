"""What each broker has received, in columns: 8 bytes for each partition and broker, so that 2,000,000 fit.

``settle`` updates them from a recorded request; nothing else does.  ``differences`` compares them with the znodes:
every live broker's metadata must agree with these, and every live replica must have received its own state.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment
from aiocontroller.lab.cluster.broker_requests import (
    IntArrays,
    TopicStates,
    decode_leader_and_isr,
    decode_stop_replica,
    decode_update_metadata,
    run_to_end,
)
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_request_header

NOTHING = -1
DELETED = -2

Counted = tuple[str, int]
"""(name of the API, number of partitions)"""


def leadership(leader: int, leader_epoch: int) -> int:
    """Pack both into one number.  ``NOTHING`` stands for a partition that the broker does not know."""
    return leader_epoch << 32 | (leader & 0xFFFFFFFF)


class Views:
    """What all brokers have received.  Each partition has a row, in the order in which they were first received."""

    def __init__(self, brokers: Iterable[int]) -> None:
        self.rows: dict[str, dict[int, int]] = {}
        self.metadata = {broker: array("q") for broker in brokers}
        self.replicas = {broker: array("q") for broker in self.metadata}
        self._size = 0
        self._arrays = IntArrays()

    def forget(self, broker: int) -> None:
        """Forget what a broker received, since it has died."""
        self.metadata[broker] = array("q")
        self.replicas[broker] = array("q")

    def settle(self, broker: int, frame: bytes) -> Counted:
        """Take in one request that ``broker`` received."""
        header, rest = decode_request_header(frame)
        version, body = header.api_version, bytes(rest)
        name = ApiKey(header.api_key).name
        match header.api_key:
            case ApiKey.LEADER_AND_ISR:
                topics = run_to_end(decode_leader_and_isr(version, body, self._arrays)).topics
                return name, self._put(self.replicas[broker], topics)
            case ApiKey.UPDATE_METADATA:
                topics = run_to_end(decode_update_metadata(version, body, self._arrays)).topics
                return name, self._put(self.metadata[broker], topics)
            case _:
                stopped = run_to_end(decode_stop_replica(version, body)).partitions
                column = self.replicas[broker]
                for topic, partition, _, delete in stopped:
                    row = self.rows.get(topic, {}).get(partition, self._size)
                    if row < len(column) and delete:
                        column[row] = NOTHING
                return name, len(stopped)

    def _put(self, column: array[int], topics: list[TopicStates]) -> int:
        partitions = 0
        for topic in topics:
            rows = self.rows.setdefault(topic.topic, {})
            for state in topic.partitions:
                row = rows.get(state.partition)
                if row is None:
                    row = rows[state.partition] = self._size
                    self._size += 1
                if row >= len(column):
                    column.extend([NOTHING]) if row == len(column) else column.extend(
                        array("q", [NOTHING]) * (self._size - len(column))
                    )
                gone = state.leader == DELETED
                column[row] = NOTHING if gone else leadership(state.leader, state.leader_epoch)
            partitions += len(topic.partitions)
        return partitions

    def _at(self, column: array[int], topic: str, partition: int) -> int:
        row = self.rows.get(topic, {}).get(partition, NOTHING)
        return column[row] if 0 <= row < len(column) else NOTHING

    def differences(
        self,
        alive: set[int],
        states: Mapping[tuple[str, int], LeaderAndIsr],
        assignments: Mapping[str, Mapping[int, ReplicaAssignment]],
    ) -> Iterator[str]:
        """Yield a line for each broker and partition for which the broker did not receive the state in ZooKeeper."""
        for (topic, partition), state in states.items():
            want = leadership(state.leader, state.leader_epoch)
            for broker in alive:
                if self._at(self.metadata[broker], topic, partition) != want:
                    yield f"broker {broker} did not receive {topic}-{partition} (UpdateMetadata)"
            for broker in assignments[topic][partition].replicas:
                if broker in alive and self._at(self.replicas[broker], topic, partition) != want:
                    yield f"replica {broker} of {topic}-{partition} did not receive its state (LeaderAndIsr)"

    def deleted_but_known(
        self, alive: set[int], assignments: Mapping[str, Mapping[int, ReplicaAssignment]]
    ) -> Iterator[str]:
        """Yield a line for each broker and partition of a deleted topic that the broker still knows."""
        for topic, rows in self.rows.items():
            if topic not in assignments:
                for partition in rows:
                    for broker in alive:
                        if self._at(self.metadata[broker], topic, partition) != NOTHING:
                            yield f"broker {broker} still knows {topic}-{partition}, which is deleted"
