"""What the check's process prints: bounded, whatever the cluster's names and znodes are."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import msgspec
import pytest

from aiocontroller.check.check import FORMAT, CheckReport
from aiocontroller.check.child import FINDINGS_SHOWN, LONGEST, SUBJECTS_SHOWN, progress_printer, summary
from aiocontroller.check.findings import CheckFinding
from aiocontroller.config import Config
from aiocontroller.server.check_page import CHILD, MOST_BYTES


def report(*found: CheckFinding) -> CheckReport:
    return CheckReport(
        format=FORMAT,
        at="now",
        controller=1,
        controller_epoch=2,
        brokers=(1, 2),
        topics=3,
        partitions=4,
        findings=found,
    )


def test_progress_is_a_line_for_each_slice_of_both_readings(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show = progress_printer()
    for done in (5, 9, 5, 9):
        show("partitions", done, 9)
    printed = [msgspec.json.decode(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [(each["read"], each["of"], each["again"]) for each in printed] == [
        (5, 9, False),
        (9, 9, False),
        (5, 9, True),
        (9, 9, True),
    ]


def test_a_finding() -> None:
    one = CheckFinding("k", "critical", "title", "why", "consequence", "remedy", ("t-0", "t-1"), (("/p", 7, "{}"),))
    assert summary(report(one)) == {
        "controller": 1,
        "brokers": 2,
        "topics": 3,
        "partitions": 4,
        "count": 1,
        "findings": [
            {
                "severity": "critical",
                "title": "title",
                "why": "why",
                "consequence": "consequence",
                "remedy": "remedy",
                "count": 2,
                "subjects": ["t-0", "t-1"],
                "evidence": [("/p", 7, "{}")],
            }
        ],
    }


def test_it_is_bounded() -> None:
    text = "\U0001f600" * 10_000
    subjects = (text,) * 10_000
    huge = CheckFinding("k", "critical", text, text, text, text, subjects, ((text, 7, text),) * 5)
    found = summary(report(*[huge] * 1000))
    assert (found["count"], len(found["findings"])) == (1000, FINDINGS_SHOWN)
    assert (found["findings"][0]["count"], len(found["findings"][0]["subjects"])) == (10_000, SUBJECTS_SHOWN)
    assert len(found["findings"][0]["why"]) == LONGEST
    ordinary = CheckFinding(
        "k", "critical", *["x" * 1000] * 4, ("x" * 1000,) * 1000, (("x" * 1000, 7, "x" * 1000),) * 5
    )
    assert len(msgspec.json.encode(summary(report(*[ordinary] * 1000)))) < MOST_BYTES


def test_the_process_imports_nothing_from_where_it_is_started_and_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit(99)")
    config = Config(zookeeper_connect="127.0.0.1:1")
    ended = subprocess.run(
        CHILD, check=False, input=pickle.dumps(config), capture_output=True, cwd=tmp_path, timeout=100
    )
    assert ended.returncode == 1, ended.stderr
    assert "error" in msgspec.json.decode(ended.stdout)
