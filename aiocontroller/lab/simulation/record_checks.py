"""What the controllers' journal records are checked for as they are written, and what they are counted by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiocontroller.core.invariants import violations
from aiocontroller.journal.records import Record
from aiocontroller.lab.checkers.witnesses import WitnessWatch
from aiocontroller.service import Service

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.simulation import Simulation

LAST_LOOK_MS = 2_000
"""How long before a vacancy the controller that fills it may have last looked.  An answer may be late by two thirds of
a session (of 3 s); then the client gives up the connection."""


class RecordChecks:
    """Takes each record of each controller; complaints go to ``Simulation.problems``."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._witnesses = WitnessWatch(simulation)

    def take(self, number: int, service: Service, record: Record) -> None:
        """A process of controller ``number`` has written a record."""
        simulation = self._simulation
        self._witnesses.recorded(service, record)
        simulation.bounces.recorded(record)
        simulation.sickness.look()
        match record.kind:
            case "suspicion":
                simulation.marks[f"suspicion/{record.state}/{record.event}/{record.detail}"] += 1
            case "sickness":
                simulation.sickness.recorded(record)
            case "debt":
                simulation.history.probe(f"debt {record.event}")
            case "finding":
                simulation.marks[f"finding/{record.event}"] += 1
                if not simulation.foreign_writes:
                    simulation.problems.append(f"audit: {record.event} of {record.detail}, without a foreign write")
            case "loaded":
                simulation.history.loads += 1
            case "elected":
                self._check_permitted(number, service)
            case "recovery" if simulation.data is not None:
                simulation.data.note_recovery(service.shell.context, record)
            case "event":
                self._check_context(service, record)

    def _check_permitted(self, number: int, service: Service) -> None:
        """Check that an elected controller has looked at the cluster for this election, and that its file has no
        setting that no broker has had, unless it knew no broker when it was elected."""
        simulation = self._simulation
        unseen_ms = simulation.model.unseen_ms(service.client.session_id)
        if unseen_ms > LAST_LOOK_MS:
            simulation.problems.append(
                f"settings: controller {number} has taken the role, and last looked {unseen_ms} ms earlier"
            )
        for setting in simulation.settings.forbidden(number) if service.shell.settings.brokers else ():
            simulation.problems.append(
                f"settings: controller {number} has taken the role with {setting}, which no broker has had"
            )

    def _check_context(self, service: Service, record: Record) -> None:
        """Count a processed event by the faults in force, and check the controller's context after it."""
        simulation = self._simulation
        outcome = str(record.detail or "done").partition(":")[0]
        for fault in simulation.faults() or ["-"]:
            simulation.marks[f"event/{record.event}/{outcome}/{fault}"] += 1
        if service.controller.election.active and record.detail is None:
            # topics with foreign writes may be inconsistent until the audit has read them
            by_hand = tuple(f"{topic}-" for topic in simulation.history.written_by_hand)
            wrong = [each for each in violations(service.shell.context) if not each.startswith(by_hand)]
            simulation.problems += [
                f"context after {record.event}: {problem}" for problem in wrong if not simulation.problems
            ]
        elif not service.controller.election.active and service.queue.statistics().deferred:
            simulation.problems.append(f"I12: a timer is set after {record.event} while not active")
