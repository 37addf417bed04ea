"""Options that are refused at the start, and not after an hour or never."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aiocontroller.cli.parameters import Finite, WritableFile


@click.command()
@click.option("--minutes", type=Finite(0, min_open=True))
@click.option("--json", "file", type=WritableFile())
def command(minutes: float | None, file: Path | None) -> None:
    click.echo(f"{minutes} {file}")


@pytest.mark.parametrize("given", ["nan", "NaN", "inf", "1e400", "-inf", "0", "-1", "x", ""])
def test_a_time_that_never_ends_or_is_none_is_refused(given: str) -> None:
    done = CliRunner().invoke(command, ["--minutes", given])
    assert done.exit_code == 2
    assert "--minutes" in done.output
    assert CliRunner().invoke(command, ["--minutes", "0.001"]).output == "0.001 None\n"


def test_a_file_that_could_not_be_written_at_the_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("a.json", str(tmp_path / "a.json"), "/dev/null"):
        assert CliRunner().invoke(command, ["--json", given]).output == f"None {given}\n"
    for given in ("no/such/a.json", str(tmp_path)):
        done = CliRunner().invoke(command, ["--json", given])
        assert done.exit_code == 2
        assert "--json" in done.output
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    assert "is not writable" in CliRunner().invoke(command, ["--json", "b.json"]).output
