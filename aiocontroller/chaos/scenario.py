"""Scenario files: a plan as text that a person can read and write, one step a line.

    # Lines that begin with # are for people.
    cluster brokers=3 controllers=2 seed=1
    create-topic orders 1,2,3 2,3,1
    kill-broker 1
    expect leader orders-0 2
    kill-controller active then=5
    pause-broker seed=77 then=0.05

A line is a step of the plan's vocabulary (``plan.KINDS``, ``expect``, and a few that are never drawn), its words, and
perhaps ``seed=`` (what is drawn where no word says it) and ``then=`` (seconds until the next step; 1 by default).
After the last step everything is healed, and the cluster must become whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiocontroller.chaos.facts import NOTHING, changes
from aiocontroller.chaos.plan import DETECTION_FAULTS, KINDS, MODES, Plan, Step
from aiocontroller.chaos.simulation import Report, Simulation
from aiocontroller.config import Detection
from aiocontroller.core.errors import BadInputError
from aiocontroller.net.simulated import run

ONLY_WRITTEN = ("expect", "kraft_rollback", "fill_disk", "free_disk")
"""Steps that are not drawn for a simulation."""
THEN_S = 1.0
DEFAULTS = {"brokers": 3, "controllers": 2, "seed": 1, "crash-at": 0}
FLAGS = ("shared-id", "takeover", "crash-before", "fast-bounce")
DETECTIONS = ("early-broker-detection", "early-controller-detection")


class ScenarioError(BadInputError):
    """A line of a scenario file that cannot be understood; the message names it."""


def parse_scenario(text: str, name: str = "scenario") -> Plan:
    """The plan of a file's text.  ScenarioError names the line."""
    numbers, flags, steps = dict(DEFAULTS), set[str](), list[Step]()
    modes: dict[str, Detection] = dict.fromkeys(DETECTIONS, MODES[0])
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if words[0] == "cluster":
                _cluster(words[1:], numbers, flags, modes)
            else:
                steps.append(_step(words, number))
        except ValueError as error:
            raise ScenarioError(f"{name}, line {number}: {error}") from None
    return Plan(
        numbers["seed"],
        numbers["brokers"],
        numbers["controllers"],
        "shared-id" in flags,
        "takeover" in flags,
        tuple(steps),
        numbers["crash-at"],
        "crash-before" in flags,
        modes[DETECTIONS[0]],
        modes[DETECTIONS[1]],
        "fast-bounce" in flags,
    )


def read_scenario(path: Path) -> Plan:
    return parse_scenario(path.read_text(encoding="utf-8"), str(path))


def _cluster(words: Sequence[str], numbers: dict[str, int], flags: set[str], modes: dict[str, Detection]) -> None:
    for word in words:
        key, equals, value = word.partition("=")
        mode = next((mode for mode in MODES if mode == value), None)
        if key in modes and mode is not None:
            modes[key] = mode
        elif equals and key in numbers and value.isdecimal():
            numbers[key] = int(value)
        elif word in FLAGS:
            flags.add(word)
        else:
            known = [*(f"{key}=N" for key in DEFAULTS), *(f"{key}=MODE" for key in DETECTIONS), *FLAGS]
            raise ValueError(f"found {word!r}, expected one of {', '.join(known)}")


def _step(words: Sequence[str], line: int) -> Step:
    kind = words[0].replace("-", "_")
    if kind not in (*KINDS, *DETECTION_FAULTS, *ONLY_WRITTEN):
        raise ValueError(f"found {words[0]!r}, expected a step (docs/scenarios.md lists them)")
    options = dict(word.split("=", 1) for word in words[1:] if word.startswith(("seed=", "then=")))
    told = tuple(word for word in words[1:] if not word.startswith(("seed=", "then=")))
    then_s = 0.0 if kind == "expect" else THEN_S
    try:
        return Step(kind, int(options.get("seed", line)), float(options.get("then", then_s)), told)
    except ValueError:
        raise ValueError(f"found {' '.join(words)!r}, expected numbers in seed= and then=") from None


def format_scenario(plan: Plan, remarks: Sequence[str] = ()) -> str:
    """The file's text of a plan: ``parse_scenario`` gives the same plan back."""
    cluster = f"cluster brokers={plan.brokers} controllers={plan.controllers} seed={plan.seed}"
    cluster += f" crash-at={plan.crash_at}" if plan.crash_at else ""
    modes = zip(DETECTIONS, (plan.broker_detection, plan.controller_detection), strict=True)
    cluster += "".join(f" {key}={mode}" for key, mode in modes if mode != MODES[0])
    values = dict(zip(FLAGS, (plan.shared_id, plan.takeover, plan.crash_before, plan.fast_bounce), strict=True))
    cluster += "".join(f" {flag}" for flag in FLAGS if values[flag])
    return "\n".join([*(f"# {remark}" for remark in remarks), cluster, *map(str, plan.steps)]) + "\n"


def play(plan: Plan) -> tuple[Report, list[str]]:
    """Run a scenario in the simulation: the report, and what happened in words."""
    told: list[str] = []
    shown: Any = NOTHING

    def tell(step: Step | None, at_s: float) -> None:
        nonlocal shown
        now = simulation.facts()
        what = "whole" if step is None else " ".join((step.kind.replace("_", "-"), *step.words))
        told.append(f"{at_s:7.1f} s  {what}")
        told.extend(f"           {change}" for change in changes(shown, now))
        shown = now

    simulation = Simulation(plan, told=tell)
    report = run(simulation.run())
    return report, told
