"""Watches verdicts about sick brokers: a broker may be judged sick only if something made brokers slow.

In a cluster that is whole again, no broker may be sick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.journal.records import Record
from aiocontroller.lab.scenarios.plan import ScenarioStep

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.simulation import Simulation

QUIET_S = 15.0
"""From this long after the last fault that slows brokers, no broker may be judged sick."""
SLOWING = frozenset(
    {
        "block",
        "block_brokers",
        "cut_broker",
        "deafen_broker",
        "fail_log_dir",
        "flap_broker",
        "freeze_all_brokers",
        "freeze_leader",
        "heal",
        "hush_broker",
        "lag",
        "pause_broker",
        "pause_controller",
        "repeat_late",
        "sick_disk",
        "slow_disk",
        "win_again",
    }
)
"""Steps that make brokers slow, make them seem slow, or end that; restarts, deaths and ZooKeeper's faults do not."""
IN_FORCE = frozenset({"links", "slow disk", "paused"})


def still_sick(active: ControllerShell) -> list[str]:
    """Return what is wrong with the active controller's verdict when the cluster is whole."""
    verdict = None if active.sickness is None else active.sickness.judge.sick
    judged = [] if verdict is None else [f"sickness: broker {verdict.broker} is still judged: {verdict.evidence}"]
    treated = active.context.sick
    return judged + ([] if treated is None else [f"sickness: broker {treated.broker} is still treated"])


class SicknessWatch:
    """Adds verdicts without a reason to the simulation's problems."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._slowed_s = 0.0
        """When the last step that slows brokers began or ended."""

    def stepped(self, step: ScenarioStep) -> None:
        """A step begins or has ended."""
        if step.kind in SLOWING:
            self._slowed_s = self._simulation.clock.monotonic()

    def look(self) -> None:
        """A controller has recorded something: notice faults that no step ends."""
        if self._simulation.plan.sickness != "off" and IN_FORCE.intersection(self._simulation.faults()):
            self._slowed_s = self._simulation.clock.monotonic()

    def recorded(self, record: Record) -> None:
        """A controller has recorded a verdict, or what followed."""
        simulation = self._simulation
        simulation.marks[f"sickness/{record.event}/{record.state}"] += 1
        if simulation.plan.sickness == "act" and record.event in ("sick", "well again"):
            treated = record.broker if record.event == "sick" else None
            simulation.history.answers.sick(record.epoch, treated or 0)
        if record.event in ("sick", "held") and simulation.clock.monotonic() - self._slowed_s > QUIET_S:
            who = record.brokers if record.broker is None else record.broker
            simulation.problems.append(f"sickness: {who} {record.event} ({record.detail}), where nothing was slow")
