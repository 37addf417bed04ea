"""A mover on a cluster in memory: every ending, a crash after any step, and what is then left."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest

from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.moving import MovePhase
from aiocontroller.core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, RATES, Entity, Settings
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.moves.audit import NotWrittenError
from aiocontroller.moves.history import Assignment, History, history, is_under_way
from aiocontroller.moves.mover import AGAIN_S, STOPPING
from aiocontroller.moves.progress import MoveProgress
from tests.unit.moves.memory import BEFORE, FIRST, PLAN, Memory, killed_after, moved


@virtual_time
async def test_a_plan_is_carried_out_in_small_steps_under_throttles() -> None:
    memory = Memory()
    shown = []
    found = await moved(memory, on_progress=shown.append)
    assert (found.result, set(found.phases.values()), found.refused) == ("moved", {MovePhase.DONE}, {})
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
async def test_a_controller_that_serves_no_reassignments_leaves_everything_as_it_was() -> None:
    """Throttles stayed on a cluster whose Kafka 2.2 controller could move nothing."""
    memory = Memory()
    memory.release_is_old = True
    with pytest.raises(BadInputError, match="serves no reassignments"):
        await moved(memory)
    assert (memory.records, memory.configs) == ([], {})


@pytest.mark.parametrize("ends", [True, False], ids=["what moves ends", "what moves never ends"])
@virtual_time
async def test_throttles_go_when_an_old_controller_takes_over(ends: bool) -> None:
    """Kafka 2.2 ends no move that it was not asked for, so ``move`` asked it nothing and waited for ever."""
    memory = Memory()

    def fails_over(progress: MoveProgress) -> None:
        memory.ends = ends
        memory.release_is_old = ends or sum(now.assignment.being_reassigned for now in memory.nows.values()) == 2

    with pytest.raises(BadInputError, match="serves no reassignments"):
        await moved(memory, on_progress=fails_over)
    assert memory.throttles() == {}
    assert [each["what"] for each in memory.records][-2:] == ["unthrottled", "end"]
    memory.release_is_old, memory.ends = False, True
    assert (await moved(memory)).result == "moved"


@virtual_time
async def test_throttles_go_though_the_controller_serves_no_reassignments_any_more() -> None:
    memory = Memory()
    assert await killed_after(8, memory)
    assert memory.throttles() != {}
    memory.release_is_old = True
    assert (await moved(memory, stop=True)).result == "stopped"
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

    def stop(progress: MoveProgress) -> None:
        held.append(progress.held)
        if progress.moving:
            mover.stopping.set()

    mover = memory.mover(on_progress=stop)
    assert (await mover.run()).result == "stopped"
    assert held == [(), (), (), (STOPPING,), (STOPPING,)], "nobody waits without a word"
    assert memory.replicas() == BEFORE
    assert memory.throttles() == {}
    memory.ends = True
    assert (await moved(memory)).result == "moved", "it goes on where it was stopped"


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
        killed = await killed_after(calls, memory)
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
    assert await killed_after(20, memory)
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
                await killed_after(chance.randrange(40), memory, **way)
        memory.records_left = memory.calls_left = None
        await moved(memory)
        assert memory.replicas() == memory.plan
        assert memory.throttles() == own


@virtual_time
async def test_throttles_of_a_run_whose_file_is_lost_are_recognized() -> None:
    memory = Memory()
    memory.ends = False
    assert await killed_after(20, memory)
    assert memory.throttles()
    memory.records.clear()
    memory.ends = True
    assert (await moved(memory)).result == "moved"
    assert memory.throttles() == {}


@virtual_time
async def test_a_dead_destination_stops_the_move_and_nothing_is_left_half_way() -> None:
    memory = Memory()
    memory.ends = False
    mover = memory.mover(on_progress=lambda progress: progress.moving and memory.live.discard(3))
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
    mover = memory.mover(on_progress=lambda progress: setattr(memory, "silent", int(AGAIN_S) - 1))
    assert (await mover.run()).result == "moved"
    memory = Memory()
    mover = memory.mover(on_progress=lambda progress: setattr(memory, "silent", 1000))
    with pytest.raises(AioControllerError, match="nobody answers"):
        await mover.run()
    assert memory.records[-1]["result"] == "failed"
    memory.silent = 0
    assert (await moved(memory, stop=True)).result == "stopped"
    assert memory.throttles() == {}


@virtual_time
async def test_a_topic_that_is_deleted_meanwhile_is_no_reason_to_stop() -> None:
    memory = Memory()
    found = await moved(memory, on_progress=lambda progress: progress.moving and memory.nows.pop(FIRST, None))
    assert found.result == "moved"
    assert found.phases[FIRST] is MovePhase.GONE
    assert memory.throttles() == {}
    assert (await moved(memory, reverse=True)).result == "reversed"
    with pytest.raises(BadInputError, match="the plan: found t-0, expected a partition that exists"):
        await moved(memory)


@pytest.mark.parametrize(
    "target, problem",
    [
        ((), r"the plan: t-0: found replicas \[\], expected different brokers"),
        ((3, 3), r"the plan: t-0: found replicas \[3, 3\], expected different brokers"),
        ((9, 2), "the plan: t-0: found broker 9, expected one that is registered"),
    ],
)
@virtual_time
async def test_a_plan_that_cannot_be_carried_out_is_refused_before_anything_is_done(
    target: tuple[int, ...], problem: str
) -> None:
    memory = Memory()
    mover = memory.mover()
    mover._forward[FIRST] = target
    with pytest.raises(BadInputError, match=problem):
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
