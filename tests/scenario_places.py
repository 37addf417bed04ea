"""Lists where each verb of scenarios is played, for docs/reference/scenario-verbs.md."""

from __future__ import annotations

from aiocontroller.lab.processes.steps import ProcessSteps
from aiocontroller.lab.recording_brokers.__main__ import Fleet
from aiocontroller.lab.scenarios.verbs import played_by
from aiocontroller.lab.simulation.steps.steps import Steps
from tests.differential import steps as differential
from tests.transcripts.recorded_cluster import RecordedCluster

PLACES = {"S": Steps, "P": ProcessSteps, "T": RecordedCluster, "D": differential, "B": Fleet}
"""Letter in the page -> what plays verbs there."""


def verbs_by_place() -> dict[str, set[str]]:
    """Return letter -> names of the verbs that are played there."""
    return {letter: set(played_by(place)) for letter, place in PLACES.items()}
