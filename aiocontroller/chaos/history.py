"""What must never happen to a cluster's znodes, checked at every change (the invariants' names are in ``docs``).

The checker sees each write of a state znode, of ``/controller_epoch`` and of topic znodes, in the order in which
ZooKeeper made them.  It knows nothing of who wrote, so it judges controllers and brokers alike.

 * I2: leader epochs, controller epochs and versions never go back; no state carries a controller epoch above the
   highest that was ever won.
 * I3: a leader is in its ISR, the ISR is not empty, has nobody twice, and nobody who never was a replica.  (Between
   the write that takes a replica away and the one that takes it out of the ISR, the ISR is the wider one, as in Kafka.)
 * I4: while unclean elections are off, a new leader was in the ISR before.
 * one leader for each (partition, leader epoch).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.zookeeper import znodes

_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)")

Partition = tuple[str, int]


class Violation(NamedTuple):
    invariant: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.subject}: {self.detail}"


class ZNodeHistory:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.states: dict[Partition, LeaderAndIsr] = {}
        self.replicas: dict[Partition, frozenset[int]] = {}
        self.controller_epoch = 0
        self.writes = 0
        self._leaders: dict[tuple[str, int, int], int] = {}

    def changed(self, path: str, data: bytes | None, version: int) -> None:
        """A znode was created or written."""
        match = _STATE.fullmatch(path)
        if match is not None:
            self._state((match[1], int(match[2])), data or b"", version)
        elif path == "/controller_epoch":
            self._controller_epoch(int(data or b"0"))
        elif (topic := _TOPIC.fullmatch(path)) is not None:
            self._topic(topic[1], data or b"")

    def deleted(self, path: str) -> None:
        match = _STATE.fullmatch(path)
        if match is not None:
            partition = (match[1], int(match[2]))
            self.states.pop(partition, None)
            self._leaders = {k: v for k, v in self._leaders.items() if k[:2] != partition}
        elif (topic := _TOPIC.fullmatch(path)) is not None:
            self.replicas = {p: r for p, r in self.replicas.items() if p[0] != topic[1]}

    def _complain(self, invariant: str, partition: Partition | str, detail: str) -> None:
        subject = partition if isinstance(partition, str) else f"{partition[0]}-{partition[1]}"
        self.violations.append(Violation(invariant, subject, detail))

    def _controller_epoch(self, epoch: int) -> None:
        if epoch <= self.controller_epoch and self.controller_epoch:
            self._complain("I2", "/controller_epoch", f"{epoch} after {self.controller_epoch}")
        self.controller_epoch = max(epoch, self.controller_epoch)

    def _topic(self, topic: str, data: bytes) -> None:
        for number, replicas in msgspec.json.decode(data)["partitions"].items():
            partition = (topic, int(number))
            self.replicas[partition] = self.replicas.get(partition, frozenset()).union(replicas)

    def _state(self, partition: Partition, data: bytes, version: int) -> None:
        self.writes += 1
        after = znodes.decode_partition_state("/".join(map(str, partition)), data, version)
        if not isinstance(after, LeaderAndIsr):
            self._complain("I3", partition, f"unreadable state {data!r}")
            return
        before = self.states.get(partition)
        self.states[partition] = after
        self._check_alone(partition, after)
        if before is not None:
            self._check_step(partition, before, after)

    def _check_alone(self, partition: Partition, state: LeaderAndIsr) -> None:
        if not state.isr or len(set(state.isr)) != len(state.isr):
            self._complain("I3", partition, f"ISR {state.isr}")
        if state.leader >= 0 and state.leader not in state.isr:
            self._complain("I3", partition, f"leader {state.leader} is not in the ISR {state.isr}")
        replicas = self.replicas.get(partition)
        if replicas is not None and not replicas.issuperset(state.isr):
            self._complain("I3", partition, f"ISR {state.isr} with others than the replicas {sorted(replicas)}")
        if state.controller_epoch > self.controller_epoch:
            self._complain(
                "I2", partition, f"controller epoch {state.controller_epoch}, {self.controller_epoch} was won"
            )
        if state.leader >= 0:
            known = self._leaders.setdefault((*partition, state.leader_epoch), state.leader)
            if known != state.leader:
                self._complain(
                    "one leader", partition, f"{known} and {state.leader} both lead in epoch {state.leader_epoch}"
                )

    def _check_step(self, partition: Partition, before: LeaderAndIsr, after: LeaderAndIsr) -> None:
        if after.leader_epoch < before.leader_epoch:
            self._complain("I2", partition, f"leader epoch {after.leader_epoch} after {before.leader_epoch}")
        if after.controller_epoch < before.controller_epoch:
            self._complain(
                "I2", partition, f"controller epoch {after.controller_epoch} after {before.controller_epoch}"
            )
        if after.leader not in (-1, before.leader) and after.leader not in before.isr:
            self._complain("I4", partition, f"leader {after.leader} from outside the ISR {before.isr}")
