"""The checkers, fed with made-up histories: what they must reject, and what they must accept.

A checker with one small change must fail on one of them; a change that none notices is a hole that no test would see.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import msgspec
import pytest

from aiocontroller.controller import brokers, heartbeats
from aiocontroller.core.failure_detector import FailureDetector
from aiocontroller.lab.scenarios.plan import Plan, ScenarioStep
from aiocontroller.lab.simulation import simulation
from aiocontroller.lab.virtual_loop import run
from aiocontroller.server import kafka_channel
from tests.mutation.mutants import Mutant, mutants_of, mutated
from tests.unit.lab.checkers import (  # noqa: F401  # they add their cases
    made_up,
    made_up_beginnings,
    made_up_evidence,
    made_up_losses,
    made_up_migrations,
    made_up_records,
    made_up_retention,
    made_up_writers,
)
from tests.unit.lab.checkers.history_story import CASES, Case
from tests.unit.lab.checkers.made_up_answers import ANSWERS
from tests.unit.lab.checkers.made_up_best_logs import BEST_LOGS
from tests.unit.lab.checkers.made_up_configs import CONFIGS
from tests.unit.lab.checkers.made_up_eligible import ELIGIBLE
from tests.unit.lab.checkers.made_up_leaderless import LEADERLESS
from tests.unit.lab.checkers.made_up_operations import OPERATIONS
from tests.unit.lab.checkers.made_up_wire import WIRE
from tests.unit.lab.checkers.made_up_witnesses import WITNESSES
from tests.unit.lab.checkers.records_story import RECORDS

CHECKERS: dict[str, list[Case]] = {
    "history": CASES,
    "answers": ANSWERS,
    "wire_observer": WIRE,
    "leaderless": LEADERLESS,
    "records": RECORDS,
    "best_logs": BEST_LOGS,
    "eligible": ELIGIBLE,
    "config_answers": CONFIGS,
    "operations": OPERATIONS,
    "witnesses": WITNESSES,
}
PARTS = {"unclean_elections": ("history",), "timeline": ("history", "answers")}
"""Modules without cases of their own -> the checkers that use them."""

HARMLESS = {
    "lab/checkers/history.py:ZNodeHistory._check_leaders_own: operand removed: before is not None in before is not "
    "None and before.controller_epoch …": "for the type checker: where all is the same, there was a state",
    "lab/checkers/answers.py:Answers.__init__: constant: 1": "below the first producer id",
    "lab/checkers/history.py:: constant: 8": "more brokers than there are",
    "lab/checkers/history.py:: constant: 1": "no session",
    "lab/checkers/history.py:ZNodeHistory.deleted: constant: 1 #13": "more brokers than there are",
    "lab/checkers/history.py:ZNodeHistory.__init__: constant: True": "a default that each user replaces",
    "lab/checkers/history.py:ZNodeHistory.__init__: constant: 0": "a default that each user replaces",
    "lab/checkers/config_answers.py:ConfigAnswers.changed: guard removed: if not path.startswith((CONFIG, ACLS)):": (
        "for speed"
    ),
    "lab/checkers/history.py:ZNodeHistory.changed: constant: 0": "no session",
    "lab/checkers/history.py:ZNodeHistory.existed_before: constant: 0 #3": "only states are judged by their versions",
    "lab/checkers/wire_observer.py:WireObserver._check: constant: 1 #2": "no broker epoch is below 0",
}
"""Mutants that change nothing that a checker finds -> why."""
NEEDS_A_SIMULATION = ("LeaderWatch", "WireObserver.watch", "WireObserver._carried", "WitnessWatch")


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"aiocontroller.lab.checkers.{name}")


@pytest.mark.parametrize(
    "module, case",
    [pytest.param(name, case, id=f"{name}-{case.name}") for name, cases in CHECKERS.items() for case in cases],
)
def test_made_up(module: str, case: Case) -> None:
    assert case.play(module_of(module)) == case.violated


# -- mutants -----------------------------------------------------------------------------------------------------------


def load(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("mutated")
    monkeypatch.setitem(sys.modules, "mutated", module)  # where annotations are looked up
    exec(compile(mutated(mutant), mutant.module, "exec"), vars(module))
    return module


def passes(checker: str, module: ModuleType) -> bool:
    """Whether no case notices.  The one that does comes first from then on: it often notices the next mutant, too."""
    cases = _ORDER.setdefault(checker, list(CHECKERS[checker]))
    for at, case in enumerate(cases):
        try:
            noticed = case.play(module) != case.violated
        except Exception:
            noticed = True
        if noticed:
            cases.insert(0, cases.pop(at))
            return False
    return True


_ORDER: dict[str, list[Case]] = {}


def survives(name: str, mutant: Mutant) -> bool:
    with pytest.MonkeyPatch.context() as monkeypatch:
        try:
            module = load(mutant, monkeypatch)
            if name in CHECKERS:
                return passes(name, module)
            for user in ("history", "answers", "unclean_elections"):
                for part in ("UncleanElections", "Timeline"):
                    if hasattr(module, part) and hasattr(module_of(user), part):
                        monkeypatch.setattr(module_of(user), part, getattr(module, part))
            return all(passes(user, module_of(user)) for user in PARTS[name])
        except Exception:
            return False


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*CHECKERS, *PARTS])
def test_no_mutated_checker_survives(name: str) -> None:
    mutants = [m for m in mutants_of(f"lab/checkers/{name}.py") if ": swapped: " not in m.key and m.key not in HARMLESS]
    survivors = [
        mutant.key
        for mutant in mutants
        if not any(part in mutant.key for part in NEEDS_A_SIMULATION) and survives(name, mutant)
    ]
    assert not survivors


def test_a_simulation_reads_the_wire_and_looks_for_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that does nothing when a broker dies leaves its partitions without a leader."""

    async def do_nothing(shell: object, ids: object) -> None:
        pass

    steps = (
        ScenarioStep("create_topic", 1, 3.0, ("orders", "1,2", "2,1")),
        ScenarioStep("kill_broker", 2, 30.0, ("1",)),
    )
    made = simulation.Simulation(Plan(1, brokers=2, controllers=1, shared_id=False, takeover=False, steps=steps))
    monkeypatch.setattr(brokers, "on_broker_failure", do_nothing)
    monkeypatch.setattr(simulation, "AUDIT_INTERVAL_MS", 0)  # or the audit would notice
    violations = run(made.run()).violations
    assert "leaderless" in {violation.partition(" ")[0] for violation in violations}
    assert made.wire.requests > 10


LINK_CUT = (ScenarioStep("create_topic", 1, 3.0, ("orders", "1,2,3", "2,1,3")), ScenarioStep("block", 2, 4.0, ("1",)))


@pytest.mark.parametrize(
    "module, name, wrong",
    [
        (FailureDetector, "hears", lambda detector, now_s: []),
        (FailureDetector, "vouched", lambda *_: None),
        (heartbeats, "with_hearing", lambda client_id, heard: client_id),
        (kafka_channel, "hearing_of", lambda client_id: {}),
        (None, "", None),
    ],
)
def test_a_simulation_reads_what_standbys_hear(
    module: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three brokers one is cut off from the active controller alone, which must listen to its standby."""
    if module is not None:
        monkeypatch.setattr(module, name, wrong)
    plan = Plan(1, brokers=3, controllers=2, shared_id=False, takeover=False, steps=LINK_CUT)
    full = msgspec.structs.replace(plan, broker_detection="full", controller_detection="full")
    report = run(simulation.Simulation(full).run())
    assert {violation.partition(" ")[0] for violation in report.violations} == ({"witness"} if module else set())
    assert ("suspicion/broker/heard elsewhere/None" in report.marks) == (module is None)
