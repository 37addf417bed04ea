"""The measure itself: on recorded truths, a right report passes, and every kind of wrong report is noticed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.truth import judging
from tests.truth.comparing import Outage, _felt, compared, silences, true_outages
from tests.truth.play import complete_elections

RECORDED = Path(__file__).parent / "recorded"
TRUTHS = sorted(RECORDED.glob("*/truth.json"))
PLAYED = {
    "2.8": (29, 7, 0, 0), "2.8-aiocontroller": (32, 5, 2, 1), "3.0": (43, 7, 0, 2), "3.9": (29, 7, 0, 0),
    "3.9-aiocontroller": (41, 5, 2, 2),
}  # fmt: skip
"""Outages, brokers' and controllers' deaths, silences of ZooKeeper."""
MISSING = {
    "broker": "deaths missing",
    "controller": "controllers' deaths missing",
    "zookeeper": "ZooKeeper's silences missing",
}


def perfect(truth: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(windows, incidents) as a perfect analysis gives them."""
    outages = true_outages(truth)
    windows = [
        {
            "topic": outage.topic, "partition": outage.partition, "kind": "dead_leader", "cause": outage.causes[0],
            "broker": outage.broker, "start_us": outage.start_us, "end_us": outage.latest_us, "error_us": 0,
            "onset_us": outage.start_us, "onset_error_us": 1000,
        }
        for outage in outages
    ]  # fmt: skip
    for earliest_us, latest_us, topic, partition, leader, _ in truth["changes"]:
        if leader is None and topic == "short-lived":
            gone = {"start_us": earliest_us - 1000, "end_us": latest_us, "kind": "no_leader", "cause": "deletion"}
            windows.append({"topic": topic, "partition": partition, "broker": None, **gone})
    incidents = []
    for d in truth["deaths"]:
        what = "broker and controller" if d["was_controller"] else "broker"
        ended = [c[1] for c in truth["registrations"] if c[1] > d["at_us"] and d["broker"] not in c[2]]
        incidents.append({"what": what, "broker": d["broker"], "noticed_us": d["back_us"],
                          "session_end_us": (ended or [d["at_us"]])[0],
                          **course(truth, outages, d["at_us"], {(d["broker"], d["at_us"])})})  # fmt: skip
    for d in truth.get("controllers_killed", ()):
        incidents.append({"what": "controller", "broker": None, **course(truth, outages, d["at_us"], set())})
    for silence in silences(truth):
        lost = {(each["broker"], each["at_us"]) for each in silence.expired}
        incidents.append({"what": "zookeeper", "broker": None, **course(truth, outages, silence.from_us, lost)})
    return windows, incidents


def course(truth: dict[str, Any], outages: Sequence[Outage], at_us: int, of: set[tuple[int, int]]) -> dict[str, Any]:
    own = [outage for outage in outages if (outage.broker, outage.gone_us) in of]
    holders = [c for c in truth.get("controllers", ()) if c[2] is not None]
    before = [c[2] for c in holders if c[1] <= at_us]
    after = next((c for c in holders if c[0] > at_us), None)
    if not holders:
        after = next(((0, 0, s["controller"]) for s in truth["steps"] if s["from_us"] > at_us), None)
    return {
        "onset_us": at_us, "onset_error_us": 1000, "partitions": len({outage[:2] for outage in own}),
        "topics": len({outage.topic for outage in own}), "still_open": 0,
        "led_again_us": max((outage.end_us for outage in own), default=None), "in_sync_us": None,
        "controller_before": before[-1] if before else None, "controller_after": after[2] if after else None,
        "elected_us": after[1] if after else None,
    }  # fmt: skip


@pytest.mark.parametrize("path", TRUTHS, ids=lambda path: path.parent.name)
def test_a_perfect_analysis_passes_and_wrong_ones_fail(path: Path) -> None:
    truth = json.loads(path.read_text())
    windows, incidents = perfect(truth)
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

    outage = windows[0]
    assert failures(windows[1:]) == ["recall below 1.0"]
    assert failures([*windows, windows[0]]) == ["precision below 1.0"]
    of_outages = [window for window in windows if window["cause"] != "deletion"]
    for cause in ("unknown", "broker_death", "controller_failover", "unclean"):
        alike = sum(window["cause"] == cause for window in of_outages)
        expected = [] if alike >= 0.95 * len(of_outages) else ["causes below 95 %"]
        assert failures([{**window, "cause": cause} for window in of_outages]) == expected
    assert failures([{**window, "onset_us": window["start_us"] + 2000} for window in of_outages]) == [
        "bounds hold for less than 99 %"
    ]
    # Windows of topics that were not out of order, and deletions that never end.
    assert failures([*windows, {**outage, "topic": "short-lived"}]) == ["precision below 1.0"]
    assert failures([*windows, {**outage, "topic": "another"}]) == ["precision below 1.0"]
    wrong = ["columns that are wrong"]
    for deletion in (window for window in windows if window["cause"] == "deletion"):
        assert failures([*windows, {**deletion, "end_us": None}]) == wrong
        assert failures([*windows, {**deletion, "topic": outage["topic"]}]) == wrong
    for what, words in MISSING.items():
        of_kind = [incident for incident in incidents if incident["what"] == what]
        if of_kind:
            assert failures(windows, [each for each in incidents if each is not of_kind[0]]) == [words]
    assert failures(windows, incidents[1:]) == ["deaths missing"]
    death = next(incident for incident in incidents if incident["led_again_us"] is not None)
    others = [incident for incident in incidents if incident is not death]
    for column, value in (
        ("partitions", death["partitions"] + 1), ("topics", 0), ("led_again_us", None), ("in_sync_us", 17),
        ("led_again_us", death["led_again_us"] + 3_000_000), ("session_end_us", death["session_end_us"] + 3_000_000),
        ("session_end_us", death["session_end_us"] - 3_000_000), ("controller_after", 99), ("still_open", 1),
    ):  # fmt: skip
        assert failures(windows, [{**death, column: value}, *others]) == wrong, column
    assert failures(windows, [*incidents, {**incidents[0], "broker": 9}]) == ["incidents that were none"]


def test_only_a_leader_whose_log_was_proven_complete_may_come_from_outside_the_isr() -> None:
    truth = json.loads((RECORDED / "3.9-aiocontroller" / "truth.json").read_text())

    def uncleanly(*complete: Any) -> list[Outage]:
        return [o for o in true_outages({**truth, "complete": complete}) if o.causes == ("unclean",)]

    (played,) = uncleanly()
    from_us, until_us = played.end_us, played.latest_us
    (leader,) = [c[4] for c in truth["changes"] if c[:4] == [from_us, until_us, "unclean", 0]]
    assert uncleanly([from_us, "unclean", 0, leader]) == []
    assert uncleanly([until_us, "unclean", 0, leader]) == []
    for other in (
        [from_us, "another", 0, leader], [from_us, "unclean", 1, leader], [from_us, "unclean", 0, leader + 1],
        [from_us - 2_000_000, "unclean", 0, leader], [until_us + 2_000_000, "unclean", 0, leader],
    ):  # fmt: skip
        assert uncleanly(other) == [played]


def test_an_unclean_election_that_nobody_played_is_named() -> None:
    played = {"problem": "unclean_election", "broker": 2, "topic": "unclean", "partitions": 1}
    judging._of_problems({"deaths": []}, [played])
    with pytest.raises(AssertionError, match="two-copies"):
        judging._of_problems({"deaths": []}, [played, {**played, "topic": "two-copies"}])
    with pytest.raises(AssertionError, match=r"None, 3"):
        judging._of_problems({"deaths": []}, [played, {**played, "topic": None, "partitions": 3}])


def test_which_elections_lost_nothing_is_taken_from_the_journals(tmp_path: Path) -> None:
    elected = {"ts": 5, "kind": "recovery", "event": "elected", "topic": "t", "partition": 1, "leader": 2}
    records = [
        {**elected, "count": 0, "brokers": []}, {**elected, "count": 1, "brokers": []},
        {**elected, "count": 0, "brokers": [3]}, {**elected, "count": None, "brokers": None},
        {**elected, "event": "evidence", "count": 0, "brokers": []}, {"ts": 6, "kind": "loaded"},
    ]  # fmt: skip
    journal = tmp_path / "aiocontroller" / "journal" / "_journal-7-1-1-1.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text("".join(f"{json.dumps(record)}\n" for record in records) + '{"ts": 7, "ki')
    assert complete_elections(tmp_path) == [[5, "t", 1, 2]]


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
