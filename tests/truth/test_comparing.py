"""The measure itself: on recorded truths, what is told right passes, and every kind of wrong word is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.truth.comparing import _felt, compared, silences, true_outages

RECORDED = Path(__file__).parent / "recorded"
TRUTHS = sorted(RECORDED.glob("*/truth.json"))
PLAYED = {"2.8": (29, 7, 0, 0), "3.0": (33, 7, 0, 2), "3.9": (29, 7, 0, 0), "3.9-aiocontroller": (41, 5, 2, 2)}
"""Outages, brokers' and controllers' deaths, silences of ZooKeeper."""
MISSING = {
    "broker": "deaths missing",
    "controller": "controllers' deaths missing",
    "zookeeper": "ZooKeeper's silences missing",
}


def told(truth: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(windows, incidents) as a perfect analysis gives them."""
    windows = [
        {
            "topic": outage.topic, "partition": outage.partition, "kind": "dead_leader", "cause": "broker_death",
            "broker": outage.broker, "start_us": outage.start_us, "end_us": outage.latest_us, "error_us": 0,
            "onset_us": outage.start_us, "onset_error_us": 1000,
        }
        for outage in true_outages(truth)
    ]  # fmt: skip
    incidents = [
        {
            "what": "broker", "broker": d["broker"], "noticed_us": d["back_us"], "onset_us": d["at_us"],
            "onset_error_us": 1000,
        }
        for d in truth["deaths"]
    ]  # fmt: skip
    incidents += [
        {
            "what": "controller", "controller_before": d["controller"], "elected_us": d["successor_us"],
            "onset_us": d["at_us"], "onset_error_us": 1000,
        }
        for d in truth.get("controllers_killed", ())
    ]  # fmt: skip
    incidents += [{"what": "zookeeper", "onset_us": s.from_us, "onset_error_us": 1000} for s in silences(truth)]
    return windows, incidents


@pytest.mark.parametrize("path", TRUTHS, ids=lambda path: path.parent.name)
def test_a_perfect_analysis_passes_and_wrong_ones_fail(path: Path) -> None:
    truth = json.loads(path.read_text())
    windows, incidents = told(truth)
    figures = compared(truth, windows, incidents)
    assert figures.failures() == [], figures
    outages, deaths, controllers, silent = PLAYED[path.parent.name]
    bounds = outages + deaths + controllers + silent
    assert (
        f"recall {outages}/{outages}, precision {outages}/{outages}, causes {outages}/{outages}, "
        f"deaths {deaths}/{deaths}, controllers {controllers}/{controllers}, ZooKeeper {silent}/{silent}, "
        f"bounds held {bounds}/{bounds}"
    ) in figures.words("x")

    def failures(some: list[dict[str, Any]], deaths: list[dict[str, Any]] = incidents) -> list[str]:
        return compared(truth, some, deaths).failures()

    assert failures(windows[1:]) == ["recall below 1.0"]
    assert failures([*windows, windows[0]]) == ["precision below 1.0"]
    assert failures([{**window, "cause": "unknown"} for window in windows]) == ["causes below 95 %"]
    assert failures([{**window, "onset_us": window["start_us"] + 2000} for window in windows]) == [
        "bounds hold for less than 99 %"
    ]
    for what, words in MISSING.items():
        of_kind = [incident for incident in incidents if incident["what"] == what]
        if of_kind:
            assert failures(windows, [each for each in incidents if each is not of_kind[0]]) == [words]
    assert failures(windows, incidents[1:]) == ["deaths missing"]
    assert failures(windows, [*incidents, {**incidents[0], "broker": 9}]) == ["incidents that were none"]


@pytest.mark.parametrize("path", TRUTHS, ids=lambda path: path.parent.name)
def test_the_client_felt_what_zookeeper_showed(path: Path) -> None:
    """No broker acknowledged its records while a partition's leader was dead."""
    truth = json.loads(path.read_text())
    outages = [
        outage
        for outage in true_outages(truth)
        if outage.topic != "unclean"  # it does not write there
        and outage.start_us == outage.gone_us  # brokers that only lose their sessions serve meanwhile
    ]
    felt = sum(any(_felt(outage, gap) for gap in truth["felt"]) for outage in outages)
    assert felt >= 0.9 * len(outages), (felt, len(outages))
