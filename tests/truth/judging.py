"""What must hold of an analysis of a run whose truth is known; the long suite and its recordings are judged alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.truth.comparing import Figures, Outage, compared, true_outages, vacancies

Row = Mapping[str, Any]
TABLES = ("windows", "incidents", "completeness", "availability", "violations", "problems")
UNCLEAN = "unclean_election"
SLACK_US = 250_000
"""For each outage, between ZooKeeper and the logs about it, on a busy machine."""


def judged(truth: Row, gold: Mapping[str, Sequence[Row]]) -> Figures:
    """Assert what must hold of the tables of one cluster (``TABLES``), and return the figures."""
    figures = compared(truth, gold["windows"], gold["incidents"])
    assert figures.outages
    assert figures.failures() == [], figures
    assert gold["violations"] == []
    assert gold["completeness"]
    assert [row["words"] for row in gold["completeness"] if not row["known"]] == []
    of_brokers = [row for row in gold["incidents"] if row["what"] in ("broker", "broker and controller")]
    assert Counter(row["how"] for row in of_brokers) == Counter(death["how"] for death in truth["deaths"])
    with_controller = [row["broker"] for row in of_brokers if row["what"] == "broker and controller"]
    assert with_controller == [death["broker"] for death in truth["deaths"] if death["was_controller"]]
    _of_problems(truth, gold["problems"])
    unclean = [outage.topic for outage in true_outages(truth) if outage.causes == ("unclean",)]
    assert [row["topic"] for row in gold["windows"] if row["cause"] == "unclean"] == unclean
    _of_availability(truth, gold["availability"])
    return figures


def _of_problems(truth: Row, problems: Sequence[Row]) -> None:
    """Of known problems, what was done on purpose and nothing else."""
    hung = [death["broker"] for death in truth["deaths"] if death["how"] == "hung"]
    found = sorted((row["problem"], row["broker"]) for row in problems if row["problem"] != UNCLEAN)
    assert found == [("session_lost_to_pause", broker) for broker in hung]
    unclean = [(row["topic"], row["partitions"]) for row in problems if row["problem"] == UNCLEAN]
    assert unclean == [("unclean", 1)] * len(unclean) != []


def _of_availability(truth: Row, rows: Sequence[Row]) -> None:
    """Both figures, of the cluster and of each topic, against what ZooKeeper showed."""
    outages, vacant = true_outages(truth), vacancies(truth)
    for row in rows:
        if row["level"] == "broker":
            continue
        name = (row["level"], row["name"])
        own = [outage for outage in outages if row["level"] == "cluster" or outage.topic == row["name"]]
        slack_us = SLACK_US * len(own) + sum(o.latest_us - o.end_us + o.start_latest_us - o.start_us for o in own)
        from_onset_us = sum(outage.end_us - outage.start_us for outage in own)
        assert abs(row["onset_unavailable_us"] - from_onset_us) <= row["onset_error_us"] + slack_us, name
        as_seen_us = sum(_as_seen_us(truth, vacant, outage) for outage in own)
        assert abs(row["unavailable_us"] - as_seen_us) <= slack_us, (name, row["unavailable_us"], as_seen_us)
        alive_us = _alive_us(truth, None if row["level"] == "cluster" else row["name"], row["to_us"])
        for column, lost_us in (("onset_availability", from_onset_us), ("availability", as_seen_us)):
            error = (row["onset_error_us"] * (column != "availability") + slack_us) / alive_us + 0.002
            assert abs(row[column] - (1 - lost_us / alive_us)) <= error, (name, column, row[column], lost_us, alive_us)
        assert row["onset_availability"] <= row["availability"] <= 1
        assert (row["onset_availability"] < row["availability"] < 1) == bool(own), name


def _as_seen_us(truth: Row, vacant: Sequence[tuple[int, int]], outage: Outage) -> int:
    """From when a controller could notice it: the registration was gone, and there was a controller.

    A broker that only lost its session served until the controller took its partition from it, which may be later.
    """
    ended = [c[1] for c in truth["registrations"] if c[1] >= outage.gone_us and outage.broker not in c[2]]
    noticed_us = min([*ended[:1], outage.end_us])
    noticed_us = max([noticed_us, *(to for from_us, to in vacant if from_us <= noticed_us <= to)])
    return max(0, outage.end_us - noticed_us)


def _alive_us(truth: Row, topic: str | None, to_us: int) -> int:
    """The times that partitions existed, summed."""
    begun: dict[tuple[str, int], int] = {}
    total = 0
    for earliest_us, _, name, partition, leader, _ in truth["changes"]:
        if topic in (None, name):
            if leader is None:
                total += earliest_us - begun.pop((name, partition), earliest_us)
            else:
                begun.setdefault((name, partition), earliest_us)
    return total + sum(to_us - from_us for from_us in begun.values())
