"""The whole program in memory: seeds without a violation, the same again, and whether a violation would be seen.

A failing seed is replayed by ``aiocontroller simulate --seed N`` and made smaller with ``--shrink``.
"""

from __future__ import annotations

import gc
import inspect
import random
import time

import pytest

from aiocontroller.controller import failover
from aiocontroller.controller.auditor import Auditor
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.journal.records import Record
from aiocontroller.lab.checkers.observers import check_journal
from aiocontroller.lab.scenarios.plan import BY_HAND, DELETION, Plan, ScenarioStep, draw
from aiocontroller.lab.simulation import simulation
from aiocontroller.lab.simulation.campaign import HASH_SEEDS, digest_elsewhere, shrink
from aiocontroller.lab.simulation.coverage import Coverage, everything
from aiocontroller.lab.simulation.simulation import simulate, simulate_plan
from aiocontroller.lab.simulation.zoo import Bug, attempt, injected, invariant_of
from aiocontroller.lab.simulation.zoo_data import ALL_BUGS as BUGS
from aiocontroller.lab.virtual_loop import run
from aiocontroller.zookeeper.client import ZooKeeperClient

FIXED = range(1, 41)
FRESH = [int(time.time()) * 10 + i for i in range(4)]
REGRESSIONS = (18, 60, 64, 77, 99, 611, 1005, 1112, 2310, 2366, 2229, 60350, 70073, 70121, 70198, 70848, 71576)
"""Seeds that once found a bug; plans have changed since, so they are seeds like others now."""


@pytest.mark.parametrize("seed", [*FIXED, *FRESH, *REGRESSIONS])
def test_seed_violates_nothing(seed: int) -> None:
    report = simulate(seed)
    assert not report.violations, f"again: aiocontroller simulate --seed {seed}"


def test_a_seed_leaves_nothing_behind() -> None:
    """Events of requests that waited at a crash kept the whole controller: 2 MB for each seed of a campaign."""

    def shells() -> int:
        gc.collect()
        return sum(isinstance(each, ControllerShell) for each in gc.get_objects())

    others = shells()  # other tests may keep some
    simulate(1795865012001)
    assert shells() <= others


def test_same_seed_same_run() -> None:
    first, second = simulate(3), simulate(3)
    assert first == second
    assert first.events > 10


@pytest.mark.parametrize("hash_seed", HASH_SEEDS)
def test_same_seed_same_run_in_another_process(hash_seed: str) -> None:
    assert digest_elsewhere(7, hash_seed) == simulate(7).digest


def test_controllers_obey_the_settings_that_simulated_brokers_tell() -> None:
    obeyed = {"unclean.leader.election.enable": "true", "auto.leader.rebalance.enable": "false"}
    seen = {}
    plan = Plan(1, brokers=2, controllers=1, shared_id=False, takeover=False, steps=(), settings=tuple(obeyed.items()))
    made = simulation.Simulation(plan, lambda step, at_s: seen.update(_policies(made)))
    assert run(made.run()).violations == []
    assert seen == {1: (True, False)}
    assert len({draw(seed).settings for seed in range(50)}) > 5


def _policies(made: simulation.Simulation) -> dict[int, tuple[bool, bool]]:
    policies = {number: service.shell.policy for number, (service, _) in made.controllers.items()}
    return {n: (p.unclean_leader_election_enable, p.auto_leader_rebalance_enable) for n, p in policies.items()}


@pytest.mark.parametrize("value", ["false", "true"])
def test_topics_stay_where_brokers_forbid_deletion(value: str) -> None:
    """And where a controller deletes them all the same, as if it were configured otherwise, that is seen."""
    kinds = ("create_topic", "wait", "delete_topic", "wait")
    steps = tuple(ScenarioStep(kind, number, 2.0) for number, kind in enumerate(kinds))
    plan = Plan(
        1, brokers=2, controllers=1, shared_id=False, takeover=False, steps=steps, settings=((DELETION, value),)
    )
    made = simulation.Simulation(plan)
    made.history.deletion_forbidden = True
    violations = run(made.run()).violations
    assert {violation.partition(" ")[0] for violation in violations} == (
        set() if value == "false" else {"I8", "deleted"}
    )
    assert bool(made.history.states) == (value == "false")


def test_plan_is_drawn_from_its_seed_alone() -> None:
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)
    assert len(draw(5).without(1, 4).steps) == len(draw(5).steps) - 3


# -- would it tell? ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["writes carry no fence", "the ISR is emptied", "deletion is not resumed at failover"])
def test_a_bug_of_the_zoo_is_found(name: str) -> None:
    bug = next(bug for bug in BUGS if bug.name == name)
    seeds, complaint = attempt(bug, 1, 30)
    assert seeds is not None
    assert invariant_of(complaint) in ("I1", "I3", "I8", "I17", "audit", "bug")


def test_an_injected_bug_is_gone_afterwards() -> None:
    before = vars(ZooKeeperClient)["_fence"], failover.on_controller_resignation
    for bug in BUGS:
        with injected(bug):
            pass
    assert (vars(ZooKeeperClient)["_fence"], failover.on_controller_resignation) == before


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_what_a_bug_puts_in_place_can_be_called_like_the_original(bug: Bug) -> None:
    """Otherwise a seed finds a TypeError, and the table says that it found the bug."""
    for target, name, wrong in bug.patches():
        right = target[name] if isinstance(target, dict) else vars(target)[name]
        if not inspect.isfunction(right):
            continue
        kinds = inspect.signature(right).parameters.values()
        positional = [p for p in kinds if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        named = {p.name: None for p in kinds if p.kind == p.KEYWORD_ONLY}
        inspect.signature(wrong).bind(*positional, **named)


def test_the_zoo_has_no_two_bugs_of_one_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)


def test_a_failing_plan_shrinks() -> None:
    bug = next(bug for bug in BUGS if bug.name == "the ISR is emptied")
    with injected(bug):
        seed, report = next((s, r) for s in range(1, 60) if not (r := simulate(s)).ok)
        plan, runs = shrink(draw(seed), report.violations[0], most_runs=40)
        assert len(plan.steps) < len(draw(seed).steps)
        assert runs <= 40
        assert not simulate_plan(plan).ok


def test_invariant_of_a_complaint() -> None:
    assert invariant_of("after 300 s of peace: I17: broker 1 hosts t-0") == "I17"
    assert invariant_of("I3 t-0: ISR ()") == "I3"
    assert invariant_of("bug: BrokerChange: KeyError()") == "bug"
    assert invariant_of("one leader t-0: 1 and 2 both lead") == "one leader"


# -- the checkers: see also test_checkers -----------------------------------------------------------------------------


def record(kind: str, **fields: object) -> Record:
    return Record(1, 1, 1, 1, 1, kind, **fields)  # type: ignore[arg-type]


def test_a_journal_that_is_in_order() -> None:
    term = [record("elected", controller_epoch=3), record("request", broker=1, broker_epoch=5), record("resigned")]
    assert check_journal([*term, record("elected", controller_epoch=4)]) == []


@pytest.mark.parametrize(
    "records, found",
    [
        ([record("request", broker=1, broker_epoch=5)], "I12"),
        ([record("elected", controller_epoch=3), record("resigned"), record("write")], "I12"),
        ([record("elected", controller_epoch=3), record("elected", controller_epoch=4)], "I12"),
        ([record("fault", event="BrokerChange", detail="KeyError()")], "bug"),
        (
            [
                record("elected", controller_epoch=3),
                record("request", broker=1, broker_epoch=5, api="STOP_REPLICA"),
                record("request", broker=1, broker_epoch=4, api="STOP_REPLICA"),
            ],
            "I7",
        ),
    ],
)
def test_a_journal_that_is_not(records: list[Record], found: str) -> None:
    assert [problem.split(":")[0] for problem in check_journal(records)] == [found]


def test_coverage_knows_what_was_not_reached() -> None:
    coverage = Coverage()
    for seed in (1, 2, 3):
        coverage.add(simulate(seed).marks)
    never = coverage.never_reached()
    assert "event/BrokerChange" not in never
    assert set(never) < set(everything())
    assert coverage.tuples() > 10


# -- writes by hand ----------------------------------------------------------------------------------------------------


def by_hand(seed: int, *others: str) -> Plan:
    """Three topics, and an operator who writes by hand among other things that happen."""
    chance = random.Random(seed)
    topics = [ScenarioStep("create_topic", chance.randrange(1 << 32), 1.0) for _ in range(3)]
    kinds = (*BY_HAND, *others)
    pauses_s = (0.0, 0.05, 0.5, 3.0)
    steps = [ScenarioStep(chance.choice(kinds), chance.randrange(1 << 32), chance.choice(pauses_s)) for _ in kinds * 2]
    return Plan(seed, 3, 2, shared_id=False, takeover=False, steps=(*topics, *steps))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_agree_after_writes_by_hand(seed: int) -> None:
    report = simulate_plan(by_hand(seed))
    assert not report.violations
    assert any(mark.startswith("finding/") for mark in report.marks)


@pytest.mark.parametrize("seed", [4, 5])
def test_all_agree_after_writes_by_hand_among_faults(seed: int) -> None:
    faults = ("kill_controller", "kill_broker", "start_broker", "start_controller", "reassign", "expire_controller")
    assert not simulate_plan(by_hand(seed, *faults)).violations


def test_writes_by_hand_are_not_mended_without_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "AUDIT_INTERVAL_MS", 0)
    monkeypatch.setattr(Auditor, "check_soon", lambda *_, **__: None)
    assert any(simulate_plan(by_hand(seed)).violations for seed in range(1, 4))
