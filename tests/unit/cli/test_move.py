"""Rates that can be said, and what a person sees of a move."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aiocontroller.cli import move as command
from aiocontroller.cli.move import Options, _locked, _Rate, _Shown, duration, move, progress_line
from aiocontroller.core.errors import AioControllerError
from aiocontroller.moves.audit import AuditFile, InUseError
from aiocontroller.moves.mover import MoveResult
from aiocontroller.moves.progress import MoveProgress
from aiocontroller.net.real import RealClock, real_world


@pytest.mark.parametrize("text, rate", [("1", 1), ("50M", 50_000_000), ("7k", 7_000), ("2G", 2_000_000_000)])
def test_rates_are_bytes_a_second(text: str, rate: int) -> None:
    assert _Rate().convert(text, None, None) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5M", "M", "1T", "1 M", "٣", "9" * 13, "999999999999G"])
def test_a_wrong_rate_is_named(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"found .*, expected bytes a second such as 50M"):
        _Rate().convert(text, None, None)


@pytest.mark.parametrize("seconds, text", [(0, "0 s"), (89, "89 s"), (720, "12 min"), (12_600, "3.5 h")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_progress_is_a_line() -> None:
    whole = MoveProgress(12, 5, 183, 120_000_000, 1_000_000_000, 9.8e6, 90, 10_000_000, ())
    assert progress_line(whole) == (
        "12 moved, 5 moving, 183 waiting; 120 MB of 1.0 GB, 9.8 MB/s, 2 min left; throttle 10.0 MB/s"
    )
    held = MoveProgress(0, 0, 3, 0, 0, 0.0, None, 0, ("brokers away: 3 (at most 0)",))
    assert progress_line(held) == "0 moved, 0 moving, 3 waiting; held: brokers away: 3 (at most 0)"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}')
    return path


def test_stop_and_reverse_exclude_each_other(plan: Path) -> None:
    for arguments, message in (
        (["--stop", "--reverse"], "--stop and --reverse exclude each other"),
        (["--reverse", "--zookeeper", "127.0.0.1:1"], "no move by"),
        (["--stop", "--zookeeper", "127.0.0.1:1"], "no move by"),
    ):
        done = CliRunner().invoke(move, ["--plan", str(plan), *arguments])
        assert done.exit_code != 0
        assert message in done.output + str(done.exception)


@pytest.mark.parametrize(
    "options, result, code",
    [
        ([], "moved", 0),
        ([], "stopped", 3),
        (["--reverse"], "stopped", 3),
        (["--stop"], "stopped", 0),
        ([], "incomplete", 3),
        (["--reverse"], "reversed", 0),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_the_exit_code_says_whether_it_did_what_was_asked(
    plan: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], result: str, code: int, as_json: bool
) -> None:
    async def moved(*_: object) -> MoveResult:
        return MoveResult(result, (), {}, {})

    monkeypatch.setattr(command, "_moved", moved)
    arguments = ["--plan", str(plan), "--zookeeper", "127.0.0.1:1", *options, *["--json"] * as_json]
    done = CliRunner().invoke(move, arguments)
    assert done.exit_code == code
    assert result in done.output


@pytest.mark.parametrize("as_json", [True, False])
def test_progress_that_nobody_reads_ends_no_move(monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        os.close(reader)
        _Shown(as_json, lambda: 0.0)(MoveProgress(0, 0, 3, 0, 0, 0.0, None, 0, ()))


def options(plan: Path, *, stop: bool) -> Options:
    audit = plan.with_name("audit")
    return Options(plan, audit, 5, 2, 1, None, None, 1000, 60, 600, False, stop, False, False, False)


class Asked:
    """``os.kill`` of processes that have ended, or that end when they are asked."""

    def __init__(self, audit: AuditFile, ends: dict[int, BaseException | None]) -> None:
        self.audit, self.ends, self.asked = audit, ends, list[int]()

    def __call__(self, pid: int, number: int) -> None:
        self.asked.append(pid)
        error = self.ends[pid]
        if isinstance(error, ProcessLookupError):  # it ended, and the next one has the file
            self.audit.write("open", pid=9)
        if error is not None:
            raise error
        self.audit.close()


async def test_who_has_the_file_is_asked_to_stop_and_followed(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = AuditFile(options(plan, stop=True).audit, RealClock())
    held.write("open", pid=8)
    kill = Asked(held, {8: ProcessLookupError(), 9: None})
    monkeypatch.setattr(os, "kill", kill)
    audit = await _locked(options(plan, stop=True), real_world())
    assert kill.asked == [8, 9]
    audit.close()


async def test_who_may_not_stop_the_other_is_told(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = AuditFile(options(plan, stop=True).audit, RealClock())
    held.write("open", pid=8)
    monkeypatch.setattr(os, "kill", Asked(held, {8: PermissionError()}))
    with pytest.raises(AioControllerError, match="process 8 works by this file already, and this user may not stop it"):
        await _locked(options(plan, stop=True), real_world())
    with pytest.raises(InUseError, match=r"process 8 works by this file already$"):
        await _locked(options(plan, stop=False), real_world())
    held.close()
