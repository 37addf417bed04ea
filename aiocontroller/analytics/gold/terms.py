"""Controllers' terms, and those that ended without notice: the computation for one cluster.

A controller that resigns records it before the next one is elected.  If its process dies, it records nothing more; if
it is paused or cut off from ZooKeeper, it records the loss when it finds out, and by then another controller is active.
Brokers go on leading meanwhile, but no controller can elect leaders, create topics or reassign partitions, so this is a
failure even if no broker died.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from aiocontroller.analytics.dataframes import DataFrame, F
from aiocontroller.analytics.gold.onsets import EXPIRY_US, Signs
from aiocontroller.analytics.gold.rows import Row

PROMPT_US: Final = 2_000_000
"""A resignation this soon after the next election is voluntary, or an operator deleted ``/controller``."""


class Lost(NamedTuple):
    """A controller that lost the role; ``after`` is the next term."""

    before: Row
    after: Row
    how: str
    onset_us: int
    onset_error_us: int
    places: tuple[str, ...]


def terms_of(signs: Iterable[Row]) -> list[Row]:
    """Return the elections in order; for a controller without a log, the first record that shows its term."""
    by_epoch: dict[int, Row] = {}
    for row in sorted(signs, key=lambda r: (r["epoch"] or 0, r["kind"] == "term", r["ts_us"])):
        if row["kind"] in ("elected", "active", "loaded", "term") and row["epoch"]:
            node = row["broker"] if row["kind"] == "term" else row["node"]
            by_epoch.setdefault(row["epoch"], {**row, "controller": node})
    return [by_epoch[epoch] for epoch in sorted(by_epoch)]


def last_records(tallies: DataFrame) -> DataFrame:
    """Return (cluster, process, epoch, last_us): the last record of each process in each term, from its own journal."""
    of_journals = tallies.where("source = 'journal' AND epoch IS NOT NULL")
    return of_journals.groupBy("cluster", "process", "epoch").agg(F.max("last_us").alias("last_us"))


def lost_controllers(signs: Sequence[Row], last: Iterable[Row], known: Signs) -> list[Lost]:
    """Return the lost terms of controllers with a journal; if a broker is the controller, its own events show it."""
    last_us = {(row["process"], row["epoch"]): row["last_us"] for row in last}
    resigned: dict[tuple[str, int], list[Row]] = {}
    for row in signs:
        if row["kind"] == "resigned":
            resigned.setdefault((row["process"], row["epoch"]), []).append(row)
    found = []
    for before, after in pairwise(terms_of(signs)):
        ended_us = last_us.get((before["process"], before["epoch"]))
        if ended_us is None or after["epoch"] != before["epoch"] + 1 or before["process"] == after["process"]:
            continue
        resignations = resigned.get((before["process"], before["epoch"]), [])
        apart_us = (before["ts_error_us"] or 0) + (after["ts_error_us"] or 0)
        if any(row["ts_us"] <= after["ts_us"] + apart_us + PROMPT_US for row in resignations):
            continue
        low_us = max(before["ts_us"], after["ts_us"] - known.session_us(before["controller"]) - EXPIRY_US)
        low_us, high_us = min(low_us if resignations else max(low_us, ended_us), after["ts_us"]), after["ts_us"]
        places = (*(row["place"] for row in resignations[:1]), before["place"], after["place"])
        onset_us, error_us = (low_us + high_us) // 2, (high_us - low_us + 1) // 2 + apart_us
        how = "expired" if resignations else "killed"
        found.append(Lost(before, after, how, onset_us, error_us, places))
    return found


def incident_of(lost: Lost) -> Mapping[str, Any]:
    """Return the values of its row in ``incidents``."""
    return {
        "what": "controller",
        "how": lost.how,
        "cause": "controller_failover",
        "certainty": "likely",
        "onset_us": lost.onset_us,
        "onset_error_us": lost.onset_error_us,
        "onset_evidence": "session",
        "session_end_us": lost.after["ts_us"],
        "noticed_us": lost.after["ts_us"],
        "controller_before": lost.before["controller"],
        "controller_after": lost.after["controller"],
        "controller_epoch": lost.after["epoch"],
        "elected_us": lost.after["ts_us"],
        "evidence": list(lost.places),
        "culprit": None,
    }
