"""A cluster and an audit file in memory, for movers: each look brings what moves one step further."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.moving import MoveBounds, MoveView, Now
from aiocontroller.core.throttles import FOLLOWER_REPLICAS, NAMES, RATES, Entity, Settings, replicas
from aiocontroller.moves.audit import NotWrittenError
from aiocontroller.moves.history import Assignment, History, history
from aiocontroller.moves.mover import Mover, MoverChange, MoveResult, Records
from aiocontroller.net.real import RealClock

PLAN = {TopicPartition("t", number): (3, 2) for number in range(5)}
BEFORE = dict.fromkeys(PLAN, (1, 2))
FIRST = TopicPartition("t", 0)
BOUNDS = MoveBounds(
    at_once=2, rate=800, least_rate=100, absent=0, under_replicated=0, answer_ms=500, patience_s=5, hold_s=30
)


class Killed(BaseException):
    """SIGKILL: nothing runs afterwards, no ``finally`` either that would change the cluster."""


class VirtualClock(RealClock):
    """The loop's time, which is virtual here."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Memory:
    """A cluster and an audit file in memory; each look brings what moves one step further."""

    def __init__(self, plan: Assignment = PLAN, before: Assignment = BEFORE) -> None:
        self.plan = plan
        self.nows = {tp: Now(ReplicaAssignment(replicas), replicas[0], replicas) for tp, replicas in before.items()}
        self.live = {1, 2, 3}
        self.configs: dict[Entity, Settings] = {}
        self.records: list[dict[str, Any]] = []
        self.most = 0
        self.release_is_old = False
        self.silent = 0
        self.refused: dict[TopicPartition, str] = {}
        self.elected: list[TopicPartition] = []
        self.calls_left: int | None = None
        self.records_left: int | None = None
        self.ends = True
        self.looks = 0
        self.listed: dict[Entity, int] = {}

    def _call(self) -> None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise Killed
        if self.silent:
            self.silent -= 1
            raise AioControllerError("nobody answers")

    def write(self, what: str, **fields: Any) -> None:
        if self.calls_left is not None and self.calls_left <= 0:
            raise Killed
        if self.records_left is not None:
            self.records_left -= 1
            if self.records_left < 0:
                raise NotWrittenError("audit: No space left on device")
        self.records.append({"what": what, **fields})

    async def check_controller(self) -> None:
        self._call()
        if self.release_is_old:
            raise BadInputError("the controller serves no reassignments")

    async def look(self) -> MoveView:
        self._call()
        throttles = {
            entity: {name: value for name, value in settings.items() if name in NAMES and value is not None}
            for entity, settings in self.configs.items()
        }
        self.looks += 1
        found = MoveView(dict(self.nows), frozenset(self.live), throttles=throttles)
        moving = [tp for tp, now in self.nows.items() if now.assignment.being_reassigned]
        self.most = max(self.most, len(moving))
        for tp in moving:
            assignment = self.nows[tp].assignment
            if self.ends and self.live.issuperset(assignment.adding):
                target = assignment.target
                leader = self.nows[tp].leader
                self.nows[tp] = Now(ReplicaAssignment(target), leader if leader in target else target[-1], target)
            elif self.ends and not assignment.adding:
                raise AssertionError(f"{tp}: {assignment}")
        return found

    async def sizes(self, partitions: Sequence[TopicPartition]) -> Mapping[int, Mapping[TopicPartition, int]]:
        self._call()
        there = [tp for tp in partitions if tp in self.nows]
        return {broker: {tp: 10 for tp in there if broker in self.nows[tp].isr} for broker in sorted(self.live)}

    async def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, str]:
        self._call()
        if self.release_is_old:
            raise BadInputError("the controller serves no reassignments")
        for tp, target in targets.items():
            assignment = self.nows[tp].assignment
            for broker in set(target or ()).difference(assignment.replicas):
                self._assert_throttled(tp, broker)
            if tp not in self.refused:
                new = assignment.reassign_to(target) if target is not None else ReplicaAssignment(assignment.origin)
                self.nows[tp] = self.nows[tp]._replace(assignment=new)
        return {tp: why for tp, why in self.refused.items() if tp in targets}

    async def elect(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
        self._call()
        self.elected += partitions
        for tp in partitions:
            self.nows[tp] = self.nows[tp]._replace(leader=self.nows[tp].assignment.replicas[0])
        return {}

    async def change(self, entity: Entity, change: MoverChange) -> None:
        self._call()
        present = {name: value for name, value in self.configs.get(entity, {}).items() if value is not None}
        merged = {**present, **change(present)}
        if entity not in self.listed or merged.get(FOLLOWER_REPLICAS) != present.get(FOLLOWER_REPLICAS):
            self.listed[entity] = self.looks
        self.configs[entity] = {name: value for name, value in merged.items() if value is not None}

    def _assert_throttled(self, tp: TopicPartition, broker: int) -> None:
        assert self.configs["brokers", str(broker)][RATES[1]], (tp, broker)
        named = replicas(self.configs["topics", tp.topic][FOLLOWER_REPLICAS])
        assert {"*", f"{tp.partition}:{broker}"}.intersection(named), (tp, broker)
        assert self.listed.get(("topics", tp.topic), -1) < self.looks, "brokers may not have heard of it yet"

    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {tp: now.assignment.replicas for tp, now in self.nows.items()}

    def throttles(self) -> dict[Entity, Settings]:
        return {entity: settings for entity, settings in self.configs.items() if settings}

    def mover(self, *, reverse: bool = False, **options: Any) -> Mover:
        return self.mover_of(dict(self.plan), self, self.records, reverse=reverse, **options)

    def mover_of(
        self, plan: Assignment, to: Records, records: list[dict[str, Any]], *, reverse: bool = False, **options: Any
    ) -> Mover:
        past = history(records, "digest", reverse=reverse)

        def bounds(past: History) -> MoveBounds:
            return BOUNDS._replace(absent=past.absent, under_replicated=past.under_replicated)

        return Mover(self, to, VirtualClock(), plan, "digest", past, bounds, reverse=reverse, **options)


async def moved(memory: Memory, *, stop: bool = False, **options: Any) -> MoveResult:
    return await memory.mover(**options).run(stop=stop)


async def killed_after(calls: int, memory: Memory, **options: Any) -> bool:
    """Whether a run was killed at this call to the cluster; False: it ended before."""
    memory.calls_left = calls
    try:
        await moved(memory, **options)
    except Killed:
        memory.calls_left = None
        return True
    memory.calls_left = None
    return False
