"""A mover while others change what it moves: a second move of the same topics, operators, and a lost file."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.moving import MovePhase, Now
from aiocontroller.core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, RATES, Entity, Settings, replicas
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.moves.history import Assignment
from aiocontroller.moves.progress import MoveProgress
from tests.unit.moves.memory import BEFORE, FIRST, PLAN, Memory, killed_after, moved


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
    assert await killed_after(20, memory)
    lost, calls, killed = memory.throttles(), 0, True
    while killed:
        for entity, settings in lost.items():
            memory.configs[entity] = dict.fromkeys(RATES, "333") if entity[0] == "brokers" else dict(settings)
        memory.records.clear()
        memory.nows = {tp: now._replace(assignment=ReplicaAssignment((1, 2))) for tp, now in memory.nows.items()}
        memory.ends = True
        killed = await killed_after(calls, memory)
        assert (await moved(memory)).result == "moved", calls
        assert memory.throttles() == own
        calls += 1
    assert calls > 10


@pytest.mark.parametrize("there", [True, False])
@virtual_time
async def test_a_partition_that_somebody_moves_on_stays_theirs(there: bool) -> None:
    """Two plans that disagree would move it back and forth for ever."""
    memory = Memory()

    def move_on(progress: MoveProgress) -> None:
        if progress.done and not theirs:
            theirs[FIRST] = (2, 1)
            moving = memory.nows[FIRST].assignment.reassign_to((2, 1))
            memory.nows[FIRST] = Now(ReplicaAssignment((2, 1)) if there else moving, 2, (2, 1))

    theirs: Assignment = {}
    found = await moved(memory, on_progress=move_on)
    assert (found.result, found.reasons) == ("incomplete", ("moved away by another client: 1 partitions",))
    assert found.phases[FIRST] is MovePhase.TAKEN
    assert memory.replicas() == {**PLAN, **theirs}
    assert memory.throttles() == {}
    assert (await moved(memory)).result == "moved", "whoever asks again means it"
    assert memory.replicas() == PLAN


@virtual_time
async def test_who_stops_does_not_take_back_what_others_move_back() -> None:
    memory = Memory()

    def move_back(progress: MoveProgress) -> None:
        if progress.done:
            memory.ends = False
            memory.nows[FIRST] = Now(memory.nows[FIRST].assignment.reassign_to(BEFORE[FIRST]), 3, PLAN[FIRST])
            mover.stopping.set()

    mover = memory.mover(on_progress=move_back)
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
