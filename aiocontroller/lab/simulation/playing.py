"""Plays a scenario in the simulation, and narrates it."""

from __future__ import annotations

from typing import Any

from aiocontroller.lab.scenarios.facts import NOTHING, changes
from aiocontroller.lab.scenarios.plan import Plan, ScenarioStep
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.lab.virtual_loop import run


def play(plan: Plan) -> tuple[SimulationReport, list[str]]:
    """Run a scenario in the simulation; return the report, and a narration with one line for each step and change."""
    narration: list[str] = []
    shown: Any = NOTHING

    def narrate(step: ScenarioStep | None, at_s: float) -> None:
        nonlocal shown
        now = simulation.facts()
        what = "whole" if step is None else " ".join((step.kind.replace("_", "-"), *step.arguments))
        narration.append(f"{at_s:7.1f} s  {what}")
        narration.extend(f"           {change}" for change in changes(shown, now))
        shown = now

    simulation = Simulation(plan, on_step=narrate)
    report = run(simulation.run())
    return report, narration
