"""The specification of a warm standby's copy: no state is wrong, each bug is found, and the copy's code keeps to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pytest
from click.testing import CliRunner

from aiocontroller.cli.root import root
from aiocontroller.controller.mirror import Mirror
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.core.mirror import MirroredCluster
from aiocontroller.lab.exploration.standby import (
    READ_STATE,
    READ_TOPIC,
    STANDBY_BUGS,
    STATE,
    TOPIC_GONE,
    Bounds,
    Copy,
    Standby,
    Tree,
    World,
    explore_standby,
)
from aiocontroller.lab.simulation.zoo_standby import STANDBY_BUGS as BUGS_OF_THE_ZOO


def test_no_state_within_the_bounds_is_wrong() -> None:
    explored = explore_standby(Standby(Bounds(writes=2)))
    assert explored.exhausted
    assert explored.violations == ()
    assert explored.progress.states > 10_000


@pytest.mark.parametrize("name", STANDBY_BUGS)
def test_every_bug_is_found(name: str) -> None:
    explored = explore_standby(STANDBY_BUGS[name]())
    assert explored.violations
    assert len(explored.trace) == explored.progress.depth + 1


def test_the_zoos_bugs_of_the_copy_are_among_them() -> None:
    of_the_copy = {bug.name for bug in BUGS_OF_THE_ZOO if bug.patches()[0][0] in (Mirror, MirroredCluster)}
    assert len(of_the_copy) == 3
    assert of_the_copy <= set(STANDBY_BUGS)


class TakesWhatIsBeingRead(Standby):
    """A successor that reads only what is marked, though the answer to an earlier read is still to come."""

    def read_begins(self, copy: Copy, request: str) -> Copy:
        return super().read_begins(copy, request)._replace(reading_topic=0, reading_state=False)


def test_what_is_being_read_is_left_over() -> None:
    explored = explore_standby(TakesWhatIsBeingRead())
    assert explored.violations[0].startswith("the copy is older than the election")
    assert any("elect" in step for step in explored.trace)


# -- the copy's code ---------------------------------------------------------------------------------------------------

Act = Callable[[MirroredCluster], object]


class Recorded(Standby):
    """The specification; what it does to the copy is also an act of the code."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.acts: list[Act] = []

    def reported(self, copy: Copy, report: str) -> Copy:
        if report == STATE:
            self.acts.append(lambda real: real.state_changed("t", 0))
        else:
            self.acts.append(lambda real: real.topic_changed("t", deleted=report == TOPIC_GONE))
        return super().reported(copy, report)

    def mark_all(self, copy: Copy) -> Copy:
        self.acts.append(MirroredCluster.mark_all)
        return super().mark_all(copy)

    def read_begins(self, copy: Copy, request: str) -> Copy:
        if request == READ_TOPIC:
            self.acts.append(lambda real: real.take_topics(1))
        elif request == READ_STATE:
            self.acts.append(lambda real: real.take_rows(1))
        return super().read_begins(copy, request)

    def list_read(self, copy: Copy, tree: Tree) -> Copy:
        self.acts.append(lambda real: real.list_read(["t"] if tree.topic else []))
        return super().list_read(copy, tree)

    def topic_read(self, copy: Copy, tree: Tree) -> Copy:
        assignment = TopicAssignment("t", NO_TOPIC_ID, {0: ReplicaAssignment((1,))})
        if tree.topic:
            self.acts.append(lambda real: real.topics_read([assignment]))
        else:
            self.acts.append(lambda real: real.topics_read([], missing=["t"]))
        return super().topic_read(copy, tree)

    def state_read(self, copy: Copy, tree: Tree) -> Copy:
        value = LeaderAndIsr(1, tree.state_at, (1,), 0, 1) if tree.state else None

        def act(real: MirroredCluster) -> None:
            rows = real._rows_being_read
            real.states_read(rows, [value] * len(rows), range(len(rows)), [tree.state_at] * len(rows))

        self.acts.append(act)
        return super().state_read(copy, tree)


def copied(acts: tuple[Act, ...]) -> MirroredCluster:
    real = MirroredCluster(ControllerContext())
    for act in acts:
        act(real)
    return real


def differences(copy: Copy, real: MirroredCluster) -> list[str]:
    """Where the specification's copy and the code's are not the same."""
    table = real.context.table
    row = table.row("t", 0)
    topics, rows = real.leftovers()
    pairs = {
        "listed": (copy.listed, real.is_whole),
        "topic": (copy.topic, row >= 0),
        "topic left over": (bool(copy.topic_mark or copy.reading_topic), topics == ["t"]),
        "topic marked": (copy.topic_mark, 0 if "t" not in real.topics else 1 + real.topics["t"]),
    }
    if copy.topic and not topics:
        pairs["state left over"] = bool(copy.state_mark or copy.reading_state), rows == [row]
    return [f"{name}: {ours} and {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs]


def walk(specification: Recorded, random: Random, steps: int) -> list[str]:
    """Go a random way; what differed first."""
    world, acts = World(), ()
    for _ in range(steps):
        ways = []
        specification.acts.clear()
        for name, after in specification.steps(world):
            ways.append((name, after, tuple(specification.acts)))
            specification.acts.clear()
        if not ways:
            break
        name, after, more = random.choice(ways)
        acts = more if world.copy is None else (*acts, *more)
        world = after
        if world.copy is not None and (wrong := differences(world.copy, copied(acts))):
            return [name, *wrong]
    return []


@pytest.mark.parametrize("seed", range(100))
def test_the_code_marks_and_reads_as_the_specification_does(seed: int) -> None:
    assert not walk(Recorded(Bounds(writes=6, losses=2)), Random(seed), 80)


def test_a_difference_is_noticed() -> None:
    copy = Copy(listed=True, topic=True, state_mark=True)
    real = copied((lambda real: real.list_read([]),))
    assert len(differences(copy, real)) == 2


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_explores_a_standby() -> None:
    result = CliRunner().invoke(root, ["explore", "--standby", "--writes", "1"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == "Bounds: 1 write, 1 lost connection"
    assert result.stdout.splitlines()[-1] == "Verdict: no violation."


def test_the_command_plants_a_bug() -> None:
    bug = "standby: reads come before the watch"
    result = CliRunner().invoke(root, ["explore", "--standby", "--bug", bug, "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["trace"][-1] == "the copy's task goes on: arm"
    other = CliRunner().invoke(root, ["explore", "--standby", "--bug", "writes carry no fence"])
    assert isinstance(other.exception, BadInputError)
