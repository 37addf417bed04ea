"""A mover on a cluster in memory: every ending, a crash after any step, and what is then left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.moving import Bounds, Now, Phase, View
from aiocontroller.core.throttles import FOLLOWER_REPLICAS, RATES, Entity, Settings
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.moves.history import History, history
from aiocontroller.moves.mover import AGAIN_S, Mover, Result
from aiocontroller.net.real import RealClock

PLAN = {TopicPartition("t", number): (3, 2) for number in range(5)}
BEFORE = dict.fromkeys(PLAN, (1, 2))
FIRST = TopicPartition("t", 0)


class Killed(BaseException):
    """SIGKILL: nothing runs afterwards, no ``finally`` either that would change the cluster."""


class VirtualClock(RealClock):
    """The loop's time, which is virtual here."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Memory:
    """A cluster and an audit file in memory; each look brings what moves one step further."""

    def __init__(self) -> None:
        self.nows = {tp: Now(ReplicaAssignment(replicas), 1, replicas) for tp, replicas in BEFORE.items()}
        self.live = {1, 2, 3}
        self.configs: dict[Entity, Settings] = {}
        self.records: list[dict[str, Any]] = []
        self.most = 0
        self.silent = 0
        self.refused: dict[TopicPartition, str] = {}
        self.elected: list[TopicPartition] = []
        self.calls_left: int | None = None
        self.ends = True

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
        self.records.append({"what": what, **fields})

    async def look(self) -> View:
        self._call()
        found = View(dict(self.nows), frozenset(self.live))
        moving = [tp for tp, now in self.nows.items() if now.assignment.being_reassigned]
        self.most = max(self.most, len(moving))
        for tp in moving:
            assignment = self.nows[tp].assignment
            if self.ends and self.live.issuperset(assignment.adding):
                target = assignment.target
                leader = self.nows[tp].leader
                self.nows[tp] = Now(ReplicaAssignment(target), leader if leader in target else target[-1], target)
        return found

    async def sizes(self, partitions: Sequence[TopicPartition]) -> Mapping[int, Mapping[TopicPartition, int]]:
        self._call()
        there = [tp for tp in partitions if tp in self.nows]
        return {broker: {tp: 10 for tp in there if broker in self.nows[tp].isr} for broker in sorted(self.live)}

    async def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, str]:
        self._call()
        assert all(any(s.get(RATES[0]) for e, s in self.configs.items() if e[0] == "brokers") for _ in targets)
        for tp, target in targets.items():
            assignment = self.nows[tp].assignment
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

    async def settings(self, entity: Entity, names: Sequence[str]) -> Settings:
        self._call()
        return {name: value for name, value in self.configs.get(entity, {}).items() if name in names}

    async def set(self, entity: Entity, settings: Mapping[str, str | None]) -> None:
        self._call()
        merged = {**self.configs.get(entity, {}), **settings}
        self.configs[entity] = {name: value for name, value in merged.items() if value is not None}

    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {tp: now.assignment.replicas for tp, now in self.nows.items()}

    def throttles(self) -> dict[Entity, Settings]:
        return {entity: settings for entity, settings in self.configs.items() if settings}

    def mover(self, *, reverse: bool = False, **options: Any) -> Mover:
        past = history(self.records, "digest", reverse=reverse)

        def bounds(past: History) -> Bounds:
            return Bounds(2, 800, 100, past.absent, past.under_replicated, 500, 5, 30)

        return Mover(self, self, VirtualClock(), dict(PLAN), "digest", past, bounds, reverse=reverse, **options)


async def moved(memory: Memory, *, stop: bool = False, **options: Any) -> Result:
    return await memory.mover(**options).run(stop=stop)


@virtual_time
async def test_a_plan_is_carried_out_in_small_steps_under_throttles() -> None:
    memory = Memory()
    shown = []
    found = await moved(memory, tell=shown.append)
    assert (found.result, set(found.phases.values()), found.refused) == ("moved", {Phase.DONE}, {})
    assert memory.replicas() == PLAN
    assert memory.most == 2
    assert sorted(memory.elected) == list(PLAN)
    assert memory.throttles() == {}
    assert [each["what"] for each in memory.records][:4] == ["begin", "move", "throttle", "rate"]
    assert [each["what"] for each in memory.records][-2:] == ["unthrottled", "end"]
    assert shown[0].total == 50


@virtual_time
async def test_it_can_be_reversed_and_made_again() -> None:
    memory = Memory()
    await moved(memory)
    assert (await moved(memory)).result == "moved", "there is nothing more to do, and still something to reverse"
    assert (await moved(memory, reverse=True)).result == "reversed"
    assert memory.replicas() == BEFORE
    assert (await moved(memory)).result == "moved"
    assert memory.replicas() == PLAN
    assert memory.throttles() == {}


@virtual_time
async def test_leaders_stay_if_so_wished() -> None:
    memory = Memory()
    await moved(memory, leaders=False)
    assert memory.elected == []
    assert (await moved(memory, stop=True)).result == "stopped", "nothing is under way any more"
    assert sum(each["what"] == "begin" for each in memory.records) == 1


@virtual_time
async def test_who_is_stopped_takes_back_what_moves() -> None:
    memory = Memory()
    memory.ends = False
    mover = memory.mover(tell=lambda progress: mover.stopping.set())
    assert (await mover.run()).result == "stopped"
    assert memory.replicas() == BEFORE
    assert memory.throttles() == {}
    memory.ends = True
    assert (await moved(memory)).result == "moved", "it goes on where it was stopped"


async def _killed_after(calls: int, memory: Memory, **options: Any) -> bool:
    memory.calls_left = calls
    try:
        await moved(memory, **options)
    except Killed:
        memory.calls_left = None
        return True
    memory.calls_left = None
    return False


@pytest.mark.parametrize("ending", ["resume", "stop", "reverse"])
@virtual_time
async def test_after_a_kill_at_any_point_every_way_on_leaves_nothing(ending: str) -> None:
    calls, killed = 0, True
    while killed:
        memory = Memory()
        own: Settings = {"retention.ms": "1", FOLLOWER_REPLICAS: "9:9"}
        memory.configs = {("topics", "t"): dict(own), ("brokers", "1"): {"log.cleaner.threads": "7"}}
        was = {entity: dict(settings) for entity, settings in memory.configs.items()}
        killed = await _killed_after(calls, memory)
        begun = any(each["what"] == "begin" for each in memory.records)
        if ending == "resume" or not begun:
            await moved(memory)
            assert memory.replicas() == PLAN
        elif ending == "stop":
            await moved(memory, stop=True)
            assert all(not now.assignment.being_reassigned for now in memory.nows.values())
        else:
            await moved(memory, reverse=True)
            assert memory.replicas() == BEFORE
        assert memory.throttles() == was, calls
        calls += 1
    assert calls > 20


@virtual_time
async def test_kills_and_turns_in_any_order_end_well() -> None:
    chance = random.Random(1)
    for _ in range(60):
        memory = Memory()
        for _ in range(chance.randrange(6)):
            reverse = chance.random() < 0.5 and any(each["what"] == "begin" for each in memory.records)
            await _killed_after(chance.randrange(40), memory, reverse=reverse)
        await moved(memory)
        assert memory.replicas() == PLAN
        assert memory.throttles() == {}


@virtual_time
async def test_throttles_of_a_run_whose_file_is_lost_are_recognized() -> None:
    memory = Memory()
    memory.ends = False
    assert await _killed_after(20, memory)
    assert memory.throttles()
    memory.records.clear()
    memory.ends = True
    assert (await moved(memory)).result == "moved"
    assert memory.throttles() == {}


@virtual_time
async def test_a_dead_destination_stops_the_move_and_nothing_is_left_half_way() -> None:
    memory = Memory()
    memory.ends = False
    mover = memory.mover(tell=lambda progress: progress.moving and memory.live.discard(3))
    found = await mover.run()
    assert found.result == "incomplete"
    assert found.reasons == ("new broker away: 5 partitions",)
    assert sum(each["what"] == "reassign" for each in memory.records) == 3, "begun, taken back, put in order"
    assert memory.replicas() == BEFORE
    assert memory.throttles() == {}


@virtual_time
async def test_one_that_is_refused_does_not_hold_up_the_others() -> None:
    memory = Memory()
    memory.refused = {FIRST: "POLICY_VIOLATION no"}
    found = await moved(memory)
    assert found.result == "incomplete"
    assert found.reasons == ("refused by the controller: 1 partitions",)
    assert found.refused == memory.refused
    assert memory.replicas() == {**PLAN, FIRST: (1, 2)}
    assert sum(each["what"] == "refused" for each in memory.records) <= 5


@virtual_time
async def test_nobody_answers_for_a_while() -> None:
    memory = Memory()
    mover = memory.mover(tell=lambda progress: setattr(memory, "silent", int(AGAIN_S) - 1))
    assert (await mover.run()).result == "moved"
    memory = Memory()
    mover = memory.mover(tell=lambda progress: setattr(memory, "silent", 1000))
    with pytest.raises(AioControllerError, match="nobody answers"):
        await mover.run()
    assert memory.records[-1]["result"] == "failed"
    memory.silent = 0
    assert (await moved(memory, stop=True)).result == "stopped"
    assert memory.throttles() == {}


@virtual_time
async def test_a_topic_that_is_deleted_meanwhile_is_no_reason_to_stop() -> None:
    memory = Memory()
    found = await moved(memory, tell=lambda progress: progress.moving and memory.nows.pop(FIRST, None))
    assert found.result == "moved"
    assert found.phases[FIRST] is Phase.GONE
    assert memory.throttles() == {}
    assert (await moved(memory, reverse=True)).result == "reversed"
    with pytest.raises(BadInputError, match="the plan: found t-0, expected a partition that exists"):
        await moved(memory)


@pytest.mark.parametrize(
    "target, said",
    [
        ((), r"the plan: t-0: found replicas \[\], expected different brokers"),
        ((3, 3), r"the plan: t-0: found replicas \[3, 3\], expected different brokers"),
        ((9, 2), "the plan: t-0: found broker 9, expected one that is registered"),
    ],
)
@virtual_time
async def test_a_plan_that_cannot_be_carried_out_is_refused_before_anything_is_done(
    target: tuple[int, ...], said: str
) -> None:
    memory = Memory()
    mover = memory.mover()
    mover._forward[FIRST] = target
    with pytest.raises(BadInputError, match=said):
        await mover.run()
    assert memory.records == []
    assert memory.configs == {}


@virtual_time
async def test_two_moves_do_not_mix_up_their_throttles() -> None:
    memory = Memory()
    memory.configs = {("brokers", "2"): {RATES[0]: "77"}}
    with pytest.raises(
        BadInputError, match=r"broker 2: found leader\.replication\.throttled\.rate=77, expected no throttle"
    ):
        await moved(memory)
    assert memory.configs == {("brokers", "2"): {RATES[0]: "77"}}
    assert memory.replicas() == BEFORE


def test_records_of_another_plan_and_damaged_ones_are_named() -> None:
    with pytest.raises(BadInputError, match="the audit file is of another plan"):
        history([{"what": "begin", "plan": "other"}], "digest", reverse=False)
    with pytest.raises(BadInputError, match="audit record 2: found KeyError"):
        history([{"what": "move"}, {"what": "begin", "plan": "digest"}], "digest", reverse=False)
    assert history([], "digest", reverse=True) == History()
