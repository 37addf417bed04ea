"""The exploration of the specification: exhausted without a violation, and able to find one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from aiocontroller.cli.root import root
from aiocontroller.lab.exploration.exploration import explore
from aiocontroller.lab.exploration.invariants import Invariants
from aiocontroller.lab.exploration.planted import PLANTED
from aiocontroller.lab.exploration.specification import (
    LEADER,
    Bounds,
    Control,
    Controller,
    Data,
    DataStep,
    Effect,
    Label,
    Replica,
    Request,
    Specification,
    State,
    ZNode,
    affected,
    elections,
    fetch,
)
from aiocontroller.lab.simulation.zoo_bugs import BUGS

SMALL = Bounds(replicas=2, controllers=1, records=1)


def test_every_state_within_small_bounds_is_visited_and_none_is_wrong() -> None:
    explored = explore(Specification(SMALL))
    assert explored.exhausted
    assert explored.violations == ()
    assert explored.progress.states > 1_000


def test_one_controller_and_no_fault_change_nothing_but_the_isr() -> None:
    explored = explore(Specification(Bounds(controllers=1, replicas=2, records=0, faults=0)))
    assert explored.exhausted
    assert explored.progress.depth > 1


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_bug_is_found(name: str) -> None:
    explored = explore(PLANTED[name](Bounds(records=1, elections=2)), most_states=50_000)
    assert explored.violations, explored.progress
    assert len(explored.trace) == explored.progress.depth + 1


def test_planted_bugs_are_bugs_of_the_zoo() -> None:
    assert set(PLANTED) <= {bug.name for bug in BUGS if not bug.harmless}


class Forgetful(Specification):
    """A follower may join the ISR as soon as it has fetched once."""

    def leads(self, s: Data, b: int) -> Iterator[DataStep]:
        me = s.replicas[b]
        s = s._replace(replicas=tuple(r._replace(hw=0, start=0) if r is me else r for r in s.replicas))
        yield from super().leads(s, b)


def test_lost_records_are_found_where_the_controller_is_right() -> None:
    explored = explore(Forgetful(Bounds(replicas=2, records=1, faults=0)), most_states=20_000)
    assert any(violation.startswith("I13") for violation in explored.violations), explored


def test_an_invariant_that_is_too_strong_is_noticed() -> None:
    class OneLeaderForEver(Invariants):
        def step(self, before: Control, label: Label, after: Control, effect: Effect | None) -> Iterator[str]:
            yield from super().step(before, label, after, effect)
            if after.znode.epoch > before.znode.epoch:
                yield "the first leader must lead for ever"

    explored = explore(Specification(SMALL), invariants=OneLeaderForEver())
    assert explored.violations == ("the first leader must lead for ever",)
    assert "elects" in explored.trace[-1]


def test_invariants_refuse_what_must_not_be() -> None:
    invariants, first = Invariants(), Specification().first()
    control = first.control
    controllers = (control.controllers[0]._replace(epoch=1), control.controllers[1])
    won = control._replace(owner=0, epoch=1, controllers=controllers)

    def step(before: Control, name: str, c: int, after: ZNode) -> list[str]:
        return list(invariants.step(before, (name, (c,)), before._replace(znode=after), None))

    wrong = {
        "I1": (1, ZNode(1, 1, 6, 1)),
        "I2": (0, ZNode(1, 1, 6, 3)),
        "I3": (0, ZNode(1, 1, 5, 1)),
        "one leader": (0, ZNode(1, 0, 6, 1)),
    }
    assert not step(won, "elects", 0, ZNode(1, 1, 6, 1))
    for name, (controller, znode) in wrong.items():
        found = step(won, "elects", controller, znode)
        assert any(violation.startswith(name) for violation in found), (name, found)
    alone = won._replace(znode=ZNode(0, 0, 1, 0))
    assert any(v.startswith("I4") for v in step(alone, "elects", 0, ZNode(2, 1, 4, 1)))
    unknown = control._replace(owner=1)
    assert any(v.startswith("I6") for v in invariants.step(control, ("is elected", (1,)), unknown, None))
    late = Effect(0, LEADER, 0, isr=3, version=1, asked=3)
    assert any(v.startswith("I3") for v in invariants.step(won, ("alters the ISR of", (0, 0)), won, late))

    assert not list(invariants.state(first))
    lost = first.data._replace(acknowledged=(0,))
    assert invariants.lacking(lost) == 0b111
    assert any(v.startswith("I13") for v in invariants.state(State(control, lost)))
    leader = lost.replicas[0]._replace(log=(1,), hw=1)
    diverged = lost._replace(replicas=(leader, *lost.replicas[1:]))
    assert any(v.startswith("I14") for v in invariants.data(diverged))
    two = lost._replace(replicas=(lost.replicas[0], *lost.replicas[:2]))
    assert any(v.startswith("one leader") for v in invariants.data(two))


def test_elections_keep_the_last_member_of_an_isr() -> None:
    seen = ZNode(0, 4, 0b001, 7)
    assert list(elections(seen, 0b110)) == [ZNode(-1, 5, 0b001, 8)]
    assert list(elections(seen, 0b111, suspected=0b001)) == []
    assert list(elections(ZNode(0, 4, 0b111, 7), 0b110)) == [ZNode(1, 5, 0b110, 8), ZNode(2, 5, 0b110, 8)]
    assert list(elections(ZNode(0, 4, 0b011, 7), 0b101)) == [ZNode(0, 5, 0b001, 8)]


def test_a_leader_alters_its_isr_while_broker_0_is_dead() -> None:
    specification = Specification()
    seen, request = ZNode(1, 1, 0b110, 1), Request(1, 1, 0b010, 1)
    won = specification.first().control._replace(
        znode=seen,
        owner=0,
        epoch=1,
        controllers=(Controller(1, seen, live=0b110, current=0b110), Controller()),
        requests=(request,),
    )
    assert [after.znode.isr for _, after, _ in specification.alters(won, 0, request)] == [0b010, 0b010]
    bounced = won._replace(controllers=(Controller(1, seen, live=0b110, current=0b100), Controller()))
    assert not list(specification.alters(bounced, 0, request))


def test_a_leader_takes_only_the_answer_that_it_waits_for() -> None:
    leader = Replica(LEADER, 0, (), 0b111, 3, asked=0b011, ends=(-1,) * 3)
    data = Data((leader, *Specification().first().data.replicas[1:]))
    answer = Effect(0, LEADER, 0, isr=0b011, version=4, asked=0b011)
    answered = affected(data, answer)
    assert answered is not None
    assert answered.replicas[0] == leader._replace(isr=0b011, version=4, asked=0)
    for other in (answer._replace(asked=0b101), answer._replace(epoch=1), answer._replace(version=2)):
        assert affected(data, other) is None


def test_a_follower_cuts_off_what_its_leader_does_not_have() -> None:
    first = Specification().first().data
    leader = first.replicas[0]._replace(epoch=2, log=(0, 2))
    follower = first.replicas[1]._replace(epoch=2, log=(0, 1, 1))
    after = fetch(first._replace(replicas=(leader, follower, first.replicas[2])), 1, 0)
    assert after.replicas[1].log == (0, 2)
    assert after.replicas[0].ends == (-1, 1, -1)


def test_the_command_prints_the_shortest_trace() -> None:
    result = CliRunner().invoke(root, ["explore", "--bug", "an election does not raise the leader epoch"])
    assert result.exit_code == 1
    assert "one leader" in result.stdout
    listed = CliRunner().invoke(root, ["explore", "--bugs"])
    assert listed.stdout.splitlines() == list(PLANTED)
    unknown = CliRunner().invoke(root, ["explore", "--bug", "none"])
    assert unknown.exit_code != 0
    exhausted = CliRunner().invoke(root, ["explore", "--records", "0", "--elections", "0", "--faults", "0", "--json"])
    assert exhausted.exit_code == 0
    assert '"exhausted":true' in exhausted.stdout
