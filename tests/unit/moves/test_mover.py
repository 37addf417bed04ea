"""A mover on a cluster in memory: every ending, a crash after any step, and what is then left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.moving import Bounds, Now, Phase, View
from aiocontroller.core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, NAMES, RATES, Entity, Settings, replicas
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.moves.audit import NotWrittenError
from aiocontroller.moves.history import Assignment, History, history, is_under_way
from aiocontroller.moves.mover import AGAIN_S, STOPPING, Change, Mover, Records, Result
from aiocontroller.moves.progress import Progress
from aiocontroller.net.real import RealClock

PLAN = {TopicPartition("t", number): (3, 2) for number in range(5)}
BEFORE = dict.fromkeys(PLAN, (1, 2))
FIRST = TopicPartition("t", 0)
BOUNDS = Bounds(
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

    async def look(self) -> View:
        self._call()
        throttles = {
            entity: {name: value for name, value in settings.items() if name in NAMES and value is not None}
            for entity, settings in self.configs.items()
        }
        self.looks += 1
        found = View(dict(self.nows), frozenset(self.live), throttles=throttles)
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

    async def change(self, entity: Entity, change: Change) -> None:
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

        def bounds(past: History) -> Bounds:
            return BOUNDS._replace(absent=past.absent, under_replicated=past.under_replicated)

        return Mover(self, to, VirtualClock(), plan, "digest", past, bounds, reverse=reverse, **options)


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
    held = []

    def stop(progress: Progress) -> None:
        held.append(progress.held)
        if progress.moving:
            mover.stopping.set()

    mover = memory.mover(tell=stop)
    assert (await mover.run()).result == "stopped"
    assert held == [(), (), (), (STOPPING,), (STOPPING,)], "nobody waits without a word"
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


MIXED: Assignment = {
    TopicPartition("grows", 0): (1, 2, 3),
    TopicPartition("moves", 0): (3, 2),
    TopicPartition("shrinks", 0): (1,),
    TopicPartition("turns", 0): (2, 1),
}
"""Throttled forwards, both ways, backwards, and never."""


@pytest.mark.parametrize("plan", [PLAN, MIXED], ids=["plain", "mixed"])
@pytest.mark.parametrize("ending", ["resume", "stop", "reverse"])
@virtual_time
async def test_after_a_kill_at_any_point_every_way_on_leaves_nothing(ending: str, plan: Assignment) -> None:
    calls, killed = 0, True
    before = dict.fromkeys(plan, (1, 2))
    while killed:
        memory = Memory(plan, before)
        own: Settings = {"retention.ms": "1", FOLLOWER_REPLICAS: " 9:9, 8:8"}
        memory.configs = {("topics", tp.topic): dict(own) for tp in plan}
        memory.configs["brokers", "1"] = {"log.cleaner.threads": "7"}
        was = {entity: dict(settings) for entity, settings in memory.configs.items()}
        killed = await _killed_after(calls, memory)
        begun = any(each["what"] == "begin" for each in memory.records)
        if ending == "resume" or not begun:
            await moved(memory)
            assert memory.replicas() == plan
        elif ending == "stop":
            await moved(memory, stop=True)
            assert all(not now.assignment.being_reassigned for now in memory.nows.values())
        else:
            await moved(memory, reverse=True)
            assert memory.replicas() == before
        assert memory.throttles() == was, calls
        calls += 1
    assert calls > 15


@virtual_time
async def test_a_move_that_was_cut_off_is_under_way() -> None:
    memory = Memory()
    assert not is_under_way(memory.records)
    assert await _killed_after(20, memory)
    assert is_under_way(memory.records)
    memory.silent = 1000
    with pytest.raises(AioControllerError):
        await moved(memory, stop=True)
    assert is_under_way(memory.records)
    memory.silent = 0
    for way in ({"stop": True}, {}, {"reverse": True}):
        await moved(memory, **way)
        assert not is_under_way(memory.records), way


@virtual_time
async def test_kills_and_turns_in_any_order_end_well() -> None:
    chance = random.Random(1)
    for number in range(100):
        memory = Memory(*((MIXED, dict.fromkeys(MIXED, (1, 2))) if number % 2 else ()))
        own: dict[Entity, Settings] = {("topics", "t"): {LEADER_REPLICAS: "7:1,0:1", FOLLOWER_REPLICAS: "*"}}
        memory.configs = {entity: dict(settings) for entity, settings in own.items()}
        for _ in range(chance.randrange(6)):
            begun = any(each["what"] == "begin" for each in memory.records)
            way: dict[str, bool] = {} if not begun else chance.choice([{}, {}, {"stop": True}, {"reverse": True}])
            memory.records_left = chance.choice([None, None, chance.randrange(20)])
            with suppress(NotWrittenError):
                await _killed_after(chance.randrange(40), memory, **way)
        memory.records_left = memory.calls_left = None
        await moved(memory)
        assert memory.replicas() == memory.plan
        assert memory.throttles() == own


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
    assert found.reasons == ("refused by the controller: 1 partitions (POLICY_VIOLATION no)",)
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


# -- others at the same time -------------------------------------------------------------------------------------------


class Notes:
    """Another audit file."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def write(self, what: str, **fields: Any) -> None:
        self.records.append({"what": what, **fields})


OTHER = {TopicPartition("t", 9): (6, 5)}
OTHER_BEFORE = {TopicPartition("t", 9): (4, 5)}


@pytest.mark.parametrize("first_to_end", [PLAN, OTHER], ids=["ours", "theirs"])
@virtual_time
async def test_two_moves_of_a_topic_leave_each_others_throttles(first_to_end: Assignment) -> None:
    memory, notes = Memory(before={**BEFORE, **OTHER_BEFORE}), Notes()
    memory.live |= {4, 5, 6}
    memory.configs = {("topics", "t"): {FOLLOWER_REPLICAS: "7:7"}}
    memory.ends = False
    ours, theirs = memory.mover(), memory.mover_of(dict(OTHER), notes, notes.records)
    first, second = (ours, theirs) if first_to_end is PLAN else (theirs, ours)
    running = [asyncio.create_task(first.run()), asyncio.create_task(second.run())]
    await asyncio.sleep(10)
    assert replicas(memory.configs["topics", "t"][FOLLOWER_REPLICAS])[0] == "7:7"
    first.stopping.set()
    assert (await running[0]).result == "stopped"
    left = {tp for tp, now in memory.nows.items() if now.assignment.being_reassigned}
    assert left
    assert left.issubset(OTHER if first_to_end is PLAN else PLAN)
    for tp in left:
        memory._assert_throttled(tp, *memory.nows[tp].assignment.adding)
    memory.ends = True
    assert (await running[1]).result == "moved"
    assert memory.throttles() == {("topics", "t"): {FOLLOWER_REPLICAS: "7:7"}}


@virtual_time
async def test_throttles_that_somebody_removes_are_set_again() -> None:
    """``kafka-reassign-partitions --verify`` removes those of all brokers."""
    memory = Memory()
    memory.ends = False
    running = asyncio.create_task(memory.mover().run())
    await asyncio.sleep(5)
    was = {entity: dict(settings) for entity, settings in memory.configs.items()}
    memory.configs.clear()
    await asyncio.sleep(3)
    assert memory.configs.keys() == was.keys()
    assert memory.configs["topics", "t"] == was["topics", "t"]
    memory.ends = True
    assert (await running).result == "moved"
    assert memory.throttles() == {}


@virtual_time
async def test_a_rate_that_somebody_sets_meanwhile_ends_the_move_and_stays() -> None:
    memory = Memory()
    memory.ends = False
    running = asyncio.create_task(memory.mover().run())
    await asyncio.sleep(5)
    memory.configs["brokers", "2"] = {RATES[1]: "77"}
    found = await running
    assert found.result == "incomplete"
    assert found.reasons == (
        "broker 2: found follower.replication.throttled.rate=77, expected no throttle of others: another move is under "
        "way, or somebody has changed it",
    )
    assert memory.replicas() == BEFORE
    assert memory.throttles() == {("brokers", "2"): {RATES[1]: "77"}}


@virtual_time
async def test_settings_that_others_change_meanwhile_stay_as_they_have_them() -> None:
    memory = Memory()
    memory.configs = {("topics", "t"): {FOLLOWER_REPLICAS: "7:7,8:8", LEADER_REPLICAS: "7:1"}}
    memory.ends = False
    running = asyncio.create_task(memory.mover().run())
    await asyncio.sleep(5)
    now = memory.configs["topics", "t"]
    now[FOLLOWER_REPLICAS] = f"{now[FOLLOWER_REPLICAS]},9:9".replace("7:7,", "")
    now[LEADER_REPLICAS] = "*"
    memory.ends = True
    assert (await running).result == "moved"
    assert memory.throttles() == {("topics", "t"): {FOLLOWER_REPLICAS: "8:8,9:9", LEADER_REPLICAS: "*"}}


@virtual_time
async def test_a_lost_file_costs_nobody_elses_settings() -> None:
    plan = {**PLAN, TopicPartition("u", 0): (3, 2)}
    memory = Memory(plan, dict.fromkeys(plan, (1, 2)))
    own: dict[Entity, Settings] = {
        ("topics", "t"): {FOLLOWER_REPLICAS: "9:9"},
        ("topics", "u"): {FOLLOWER_REPLICAS: "*", LEADER_REPLICAS: "9:1"},
    }
    memory.configs = {entity: dict(settings) for entity, settings in own.items()}
    memory.ends = False
    assert await _killed_after(20, memory)
    lost, calls, killed = memory.throttles(), 0, True
    while killed:
        for entity, settings in lost.items():
            memory.configs[entity] = dict.fromkeys(RATES, "333") if entity[0] == "brokers" else dict(settings)
        memory.records.clear()
        memory.nows = {tp: now._replace(assignment=ReplicaAssignment((1, 2))) for tp, now in memory.nows.items()}
        memory.ends = True
        killed = await _killed_after(calls, memory)
        assert (await moved(memory)).result == "moved", calls
        assert memory.throttles() == own
        calls += 1
    assert calls > 10


@pytest.mark.parametrize("there", [True, False])
@virtual_time
async def test_a_partition_that_somebody_moves_on_stays_theirs(there: bool) -> None:
    """Two plans that disagree would move it back and forth for ever."""
    memory = Memory()

    def move_on(progress: Progress) -> None:
        if progress.done and not theirs:
            theirs[FIRST] = (2, 1)
            moving = memory.nows[FIRST].assignment.reassign_to((2, 1))
            memory.nows[FIRST] = Now(ReplicaAssignment((2, 1)) if there else moving, 2, (2, 1))

    theirs: Assignment = {}
    found = await moved(memory, tell=move_on)
    assert (found.result, found.reasons) == ("incomplete", ("moved on by somebody else: 1 partitions",))
    assert found.phases[FIRST] is Phase.TAKEN
    assert memory.replicas() == {**PLAN, **theirs}
    assert memory.throttles() == {}
    assert (await moved(memory)).result == "moved", "whoever asks again means it"
    assert memory.replicas() == PLAN


@virtual_time
async def test_who_stops_does_not_take_back_what_others_move_back() -> None:
    memory = Memory()

    def move_back(progress: Progress) -> None:
        if progress.done:
            memory.ends = False
            memory.nows[FIRST] = Now(memory.nows[FIRST].assignment.reassign_to(BEFORE[FIRST]), 3, PLAN[FIRST])
            mover.stopping.set()

    mover = memory.mover(tell=move_back)
    assert (await mover.run()).result == "stopped"
    assert memory.nows[FIRST].assignment.target == BEFORE[FIRST]
    assert not any(now.assignment.being_reassigned for tp, now in memory.nows.items() if tp != FIRST)


@virtual_time
async def test_two_plans_that_disagree_and_begin_at_once_come_to_an_end() -> None:
    memory, notes = Memory(), Notes()
    other = memory.mover_of(dict.fromkeys(PLAN, (2, 3)), notes, notes.records)
    async with asyncio.timeout(200):
        ours, theirs = await asyncio.gather(memory.mover().run(), other.run())
    assert {ours.result, theirs.result} <= {"moved", "incomplete"}
    assert not any(now.assignment.being_reassigned for now in memory.nows.values())
    assert memory.throttles() == {}


# -- a disk that is full -----------------------------------------------------------------------------------------------


@virtual_time
async def test_a_full_disk_ends_the_move_and_leaves_nothing_under_way() -> None:
    count, full = 0, True
    while full:
        memory, full = Memory(), False
        memory.records_left = count
        try:
            await moved(memory)
        except NotWrittenError:
            full = True
        assert memory.throttles() == {}, count
        assert not any(now.assignment.being_reassigned for now in memory.nows.values())
        memory.records_left = None
        assert (await moved(memory)).result == "moved"
        assert memory.replicas() == PLAN
        assert memory.throttles() == {}
        count += 1
    assert count > 10


@virtual_time
async def test_a_preferred_leader_that_is_refused_is_said() -> None:
    memory = Memory()

    async def refuse(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
        return dict.fromkeys(partitions, "CLUSTER_AUTHORIZATION_FAILED")

    memory.elect = refuse  # type: ignore[method-assign]
    found = await moved(memory)
    assert found.result == "moved"
    assert found.refused == dict.fromkeys(PLAN, "no preferred leader: CLUSTER_AUTHORIZATION_FAILED")


@virtual_time
async def test_a_reversal_can_be_repeated() -> None:
    memory = Memory()
    await moved(memory)
    for _ in range(2):
        assert (await moved(memory, reverse=True)).result == "reversed"
        assert memory.replicas() == BEFORE
        assert memory.throttles() == {}
