"""``aiocontroller analyze LOGS --report page.html`` on the input of each finding of a review: what the page says.

Each used to be wrong on the page.  What the tables hold is tested where the finding's code is.
"""

from __future__ import annotations

import bz2
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.pipeline import write_journal
from tests.integration.analytics import lives
from tests.integration.analytics.test_logs_of_operations import deletion_and_reassignment
from tests.integration.analytics.test_recorded import RECORDED
from tests.integration.analytics.test_sources import server_log


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The logs of three real brokers: kills of the controller's broker, of another, of both."""
    return Path(shutil.copytree(RECORDED / "3.9" / "logs", tmp_path / "in"))


def analyze(folder: Path, *options: str, code: int = 0) -> tuple[str, str]:
    """Return the page's text without markup, and what the command wrote."""
    page = folder / "page.html"
    page.unlink(missing_ok=True)
    arguments = [
        str(folder / "in"),
        "--out",
        str(folder / "out"),
        "--report",
        str(page),
        "--engine",
        "duckdb",
        *options,
    ]
    command = [sys.executable, "-m", "aiocontroller", "analyze", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stderr
    html = page.read_text() if page.exists() else ""
    assert page.exists() == (code == 0)
    text = re.sub(r"<(style|script).*?</\1>|<[^>]+>", " ", html, flags=re.DOTALL)
    return " ".join(text.split()), done.stdout + done.stderr


def test_1_folder_of_another_owner_is_refused_and_left_alone(tmp_path: Path, logs: Path) -> None:
    precious = tmp_path / "out" / "bronze" / "precious"
    precious.parent.mkdir(parents=True)
    precious.write_text("of another program")
    (tmp_path / "out" / "runs").mkdir()
    _, messages = analyze(tmp_path, code=1)
    assert "runs" in messages
    assert precious.read_text() == "of another program"


def test_2_and_5_deletion_and_reassignment_are_no_incident_and_no_violation(tmp_path: Path) -> None:
    deletion_and_reassignment(tmp_path / "in")
    text, _ = analyze(tmp_path)
    assert text.count("No incident; ") >= 1
    assert "No invariant was violated" in text
    assert "still" not in text


def test_3_and_9_death_of_the_controllers_broker_is_named_from_its_onset(tmp_path: Path, logs: Path) -> None:
    text, _ = analyze(tmp_path)
    first = text[text.index("The worst incident") :][:600]
    assert "Broker 2, the controller, was killed" in first
    assert "± 149.5 ms, when another broker lost its connection to it" in first
    assert "certain. Several independent records agree." in first
    assert "7 brokers died" in text or "brokers died 7" in text


def test_4_logs_that_show_no_controller_give_no_all_clear(tmp_path: Path, logs: Path) -> None:
    for path in logs.rglob("*"):
        if path.is_file() and "server.log" not in path.name:
            path.unlink()
    text, messages = analyze(tmp_path)
    assert "availability unknown" in text
    assert "available 100 %" not in text
    assert "availability unknown" in messages


def test_6_logs_of_two_clusters_are_two_clusters(tmp_path: Path) -> None:
    for release in ("3.9", "3.0"):
        shutil.copytree(RECORDED / release / "logs", tmp_path / "in" / release)
    text, _ = analyze(tmp_path)
    assert "2 clusters, the worst (" in text
    assert text.count("No invariant was violated") == 2


def test_7_corrupt_file_is_one_line_of_the_page(tmp_path: Path, logs: Path) -> None:
    damaged = next(iter(logs.rglob("server.log.gz")))
    packed = bytearray(damaged.read_bytes())
    packed[len(packed) // 2 :] = b"\0" * (len(packed) - len(packed) // 2)
    damaged.write_bytes(packed)
    text, messages = analyze(tmp_path)
    assert "damaged: " in text
    assert "Traceback" not in messages


def test_8_nothing_is_lost_of_files_that_begin_alike(tmp_path: Path) -> None:
    """They counted as copies, and 50,000 bytes were lost; what they have in common counts once."""
    beginning = server_log(1, lines=900)
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / f"{name}-server.log").write_bytes(beginning + server_log(1, lines=500, marker=name))
    text, _ = analyze(tmp_path)
    records = re.search(r"([\d,]+) records from 2 files; every file is whole", text)
    assert records is not None
    assert int(records[1].replace(",", "")) == 900 + 2 * 500
    assert re.search(
        r"a-server.log and b-server.log are copies of one log that differ: .* both have were read once", text
    )
    assert "not read: a copy" not in text


def test_10_and_11_journals_are_computed_in_this_process_and_added_to(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_journal(tmp_path / "in", 20_000, 500)
    first, messages = analyze(tmp_path)
    assert "computed by DuckDB in this process: 20,000 records" in messages
    again, messages = analyze(tmp_path, "--incremental")
    assert "nothing new" in messages
    assert again == first
    assert "20,000 records from 1 file; every file is whole." in again


@pytest.mark.parametrize("packing", ["plain", "bz2"])
def test_12_deaths_are_counted_beyond_what_is_shown(tmp_path: Path, packing: str) -> None:
    lives.write(tmp_path / "in", lives.life(1_234))
    if packing == "bz2":
        (journal,) = (tmp_path / "in").iterdir()
        journal.with_name(journal.name + ".bz2").write_bytes(bz2.compress(journal.read_bytes()))
        journal.unlink()
    text, _ = analyze(tmp_path)
    assert text.startswith("1,234 incidents; available ")
    assert "Brokers died 1,234 times" in text
    assert "the worst 100 of 1,234" in text
