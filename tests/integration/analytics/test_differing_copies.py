"""Copies of one log that differ in the middle: the report names both, and each record counts once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.summary import sections, summarise
from tests.integration.analytics.test_missing_records import as_recorded, unpacked, whole_of


def a_line_was_changed(to: Path) -> None:
    unpacked(to)
    log = to / "broker-2" / "state-change.log"
    lines = log.read_text().splitlines(keepends=True)
    lines[300] = lines[300].replace("INFO", "WARN")
    log.with_name("state-change.log.copy").write_text("".join(lines))


def lines_are_lost(to: Path) -> None:
    unpacked(to)
    log = to / "broker-2" / "state-change.log"
    lines = log.read_text().splitlines(keepends=True)
    log.with_name("state-change.log.copy").write_text("".join([*lines[:300], *lines[350:]]))


@pytest.fixture(scope="module")
def analyzed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("copies")
    cases = (as_recorded, a_line_was_changed, lines_are_lost)
    for case in cases:
        (folder / "in" / case.__name__).mkdir(parents=True)
        case(folder / "in" / case.__name__)
    entries = [{"glob": f"{case.__name__}/*", "cluster": case.__name__, "time_zone": "UTC"} for case in cases]
    batch.run(spark, [str(folder / "in")], str(folder / "out"), manifest=Manifest(entries))
    return summarise(spark, str(folder / "out"))


def test_a_changed_line_is_named_and_leaves_availability_unknown(analyzed: dict[str, Any]) -> None:
    """All other lines counted twice, without a word.  Nobody knows which copy is right."""
    availability, rows = whole_of(analyzed, a_line_was_changed.__name__)
    (named,) = [row for row in rows if row["what"] == "file"]
    assert re.fullmatch(
        r"\S*broker-2/state-change.log and \S*broker-2/state-change.log.copy are copies of one log that differ: only "
        r"\S*log has 1 record, and only \S*copy has 1 record; the [\d,]+ that both have were read once",
        named["words"],
    )
    assert (named["known"], availability["availability"], availability["onset_availability"]) == (False, None, None)
    assert any(
        f"availability unknown: {named['words']}" in part for part in sections(analyzed) if isinstance(part, str)
    )


def test_a_copy_that_lacks_lines_is_named_and_changes_nothing(analyzed: dict[str, Any]) -> None:
    whole, _ = whole_of(analyzed, as_recorded.__name__)
    availability, rows = whole_of(analyzed, lines_are_lost.__name__)
    (named,) = [row for row in rows if row["what"] == "file"]
    assert re.search(r"copies of one log that differ: only \S*state-change.log has 50 records; the ", named["words"])
    assert named["known"]
    assert availability == {**whole, "cluster": availability["cluster"], "name": availability["name"]}
    parts = sections(analyzed)
    corrected = parts[parts.index("\nWhat was corrected:") + 1]
    assert isinstance(corrected, tuple)
    assert named["words"] in [words for _, words in corrected[1]]
