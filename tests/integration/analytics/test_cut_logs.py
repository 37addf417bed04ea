"""A log of which a part is lost: the report says the same as with the whole one, or it names what is missing.

One file at a time loses its end (the copy stopped early, exactly at a line's end), its beginning (an old file was
deleted) or a quarter in the middle (a file in between was lost, and its name does not show it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.summary import summarise
from tests.integration.analytics.test_missing_records import unpacked, whole_of
from tests.integration.analytics.test_recorded import RECORDED

PERCENT, FEWER = (20, 45, 60, 75, 90), (30, 75)
WITHIN_US = 100_000
"""The last decisions before a process is killed may be lost with it, so their absence proves nothing."""

Lines = list[bytes]
LOSSES: dict[str, Callable[[Lines, int], Lines]] = {
    "end": lambda lines, at: lines[:at],
    "beginning": lambda lines, at: lines[at:],
    "middle": lambda lines, at: [*lines[:at], *lines[at + len(lines) // 4 :]],
}


class Case(NamedTuple):
    release: str
    log: str
    lost: str
    percent: int

    @property
    def cluster(self) -> str:
        return f"{self.release}-{self.log}-{self.lost}-{self.percent}".replace("/", "-").replace(".", "-")


def _cases() -> list[Case]:
    found = []
    for release in ("3.9", "3.0", "2.8", "3.9-aiocontroller"):
        for path in sorted((RECORDED / release / "logs").rglob("*.log.gz")):
            log = str(path.relative_to(RECORDED / release / "logs")).removesuffix(".gz")
            decides = "server" not in log and release == "3.9"
            # How the first and the middle part of server.log were lost, nothing shows: what it proves is unknown then.
            losses = ("end", "beginning", "middle") if decides else ("end",)
            found += [
                Case(release, log, lost, percent)
                for lost in losses
                for percent in (PERCENT if release == "3.9" else FEWER)
            ]
    return found


CASES = _cases()


@pytest.fixture(scope="module")
def analyzed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("cut")
    clusters = {case.release.replace(".", "-"): case.release for case in CASES}
    for cluster, release in clusters.items():
        unpacked(folder / "in" / cluster, of=RECORDED / release / "logs")
    for case in CASES:
        to = folder / "in" / case.cluster
        unpacked(to, of=RECORDED / case.release / "logs")
        lines = (to / case.log).read_bytes().splitlines(keepends=True)
        (to / case.log).write_bytes(b"".join(LOSSES[case.lost](lines, len(lines) * case.percent // 100)))
    names = [*clusters, *(case.cluster for case in CASES)]
    entries = [{"glob": f"{name}/*", "cluster": name, "time_zone": "UTC"} for name in names]
    batch.run(spark, [str(folder / "in")], str(folder / "out"), manifest=Manifest(entries))
    summary = summarise(spark, str(folder / "out"))
    rows = spark.read.parquet(f"{folder}/out/gold/incidents").collect()
    return {**summary, "of_incidents": sorted((row.asDict() for row in rows), key=lambda row: row["onset_us"])}


def _incidents(analyzed: dict[str, Any], cluster: str) -> list[tuple[Any, ...]]:
    return [
        (row["what"], row["broker"], row["cause"], row["how"])
        for row in analyzed["of_incidents"]
        if row["cluster"] == cluster
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.cluster)
def test_what_a_cut_log_hides_is_named(analyzed: dict[str, Any], case: Case) -> None:
    cluster = case.release.replace(".", "-")
    whole, lacking = whole_of(analyzed, cluster)
    assert all(row["known"] for row in lacking)
    availability, rows = whole_of(analyzed, case.cluster)
    assert not [row["words"] for row in rows if row["what"] == "clock" and "its other logs" in row["words"]]
    missing = [row["words"] for row in rows if not row["known"]]
    if availability["availability"] is None or any(_names(words, case.log) for words in missing):
        return
    assert missing == []
    assert abs(availability["unavailable_us"] - whole["unavailable_us"]) <= WITHIN_US
    found, expected = _incidents(analyzed, case.cluster), _incidents(analyzed, cluster)
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    assert all(how in (as_it_was, "unknown") for (*_, how), (*_, as_it_was) in zip(found, expected, strict=True))


def _names(words: str, log: str) -> bool:
    broker, _, name = log.partition("/")
    number = broker.removeprefix("broker-")
    return f"{name} of broker {number} " in words or f"logs of broker {number} " in words


def test_only_logs_of_controllers_make_availability_unknown(analyzed: dict[str, Any]) -> None:
    """The test above would pass if everything were unknown."""
    known = {case: whole_of(analyzed, case.cluster)[0]["availability"] is not None for case in CASES}
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    for case in CASES:
        kinds[known[case]].add(case.log.partition("/")[2])
    assert kinds == {
        False: {"controller.log", "state-change.log"},
        True: {"controller.log", "state-change.log", "server.log"},
    }
