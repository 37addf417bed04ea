"""``aiocontroller storm``: one entry for all storms, and what it refuses before anything starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from aiocontroller.lab.cli import storm as commands
from aiocontroller.lab.cli.storm import storm
from aiocontroller.lab.hostile.attacks import ATTACKS

STORMS = ("processes", "soak", "zookeeper", "hostile", "kafka", "unclean", "power-loss", "alarms")


def test_every_module_with_a_storm_has_a_command_and_every_command_a_module() -> None:
    folder = Path(commands.__file__).parents[1] / "storms"
    assert sorted(storm.commands) == sorted(STORMS)
    helpers = {"--init--", "strikes", "zookeeper-history"}
    assert {path.stem.replace("_", "-") for path in folder.glob("*.py")} - helpers == set(STORMS)


@pytest.mark.parametrize(
    "words, named",
    [
        (["hostile", "--only", "nonsense"], f"found 'nonsense', expected one of {next(iter(ATTACKS))}"),
        (["zookeeper", "--ensemble", "--leaks"], "--ensemble starts servers of its own"),
        (["zookeeper", "--seconds", "0"], "0.0 is not in the range x>0"),
        (["soak", "--minutes", "nan"], "nan is not a finite number"),
        (["soak", "--minutes", "inf"], "inf is not a finite number"),
        (["soak", "--json", "no/such/verdict.json"], "no/such' does not exist"),
        (["unclean", "--trials", "0"], "0 is not in the range x>=1"),
        (["power-loss", "--only", "zab"], "found 'zab', expected one of aiocontroller, kafka, kraft with Kafka"),
        (["--minutes", "3"], "No such option '--minutes'"),
        (["controller"], "No such command 'controller'"),
        (["alarms", "--cases", "3-25"], "found '3-25', expected N or N-M of 0 to 24"),
        (["alarms", "--cases", "4-3"], "found '4-3', expected N or N-M of 0 to 24"),
        (["alarms", "--clients", "java,go"], "found go, expected java or librdkafka"),
    ],
)
def test_words_that_make_no_sense_are_named(words: list[str], named: str) -> None:
    done = CliRunner().invoke(storm, words)
    assert done.exit_code == 2
    assert named in " ".join(done.output.split())


def test_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    for words in (["processes", "--data"], ["kafka", "--keep"], ["alarms", "--keep"]):
        done = CliRunner().invoke(storm, [*words, str(tmp_path)])
        assert "expected a new folder" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_seed_draws_the_same_schedule_each_time() -> None:
    once, again, other = (
        CliRunner().invoke(storm, ["zookeeper", "--schedule", "--seed", seed, "--seconds", "6"]) for seed in "112"
    )
    assert once.exit_code == 0
    assert once.output == again.output != other.output
    assert json.loads(once.output)["segments"]


class Judged(msgspec.Struct):
    ok: bool


def test_a_violation_is_written_and_ends_with_one_and_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "say", lambda text: sys.stdout.write(f"{text}\n"))
    commands._end(Judged(True), tmp_path / "held.json", "kafka --seed 4")
    with pytest.raises(SystemExit, match="1"):
        commands._end(Judged(False), tmp_path / "violated.json", "kafka --seed 4")
    assert capsys.readouterr().out == "The same faults again: aiocontroller storm kafka --seed 4\n"
    assert json.loads((tmp_path / "violated.json").read_bytes()) == {"ok": False}


def test_an_interrupted_storm_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()

    async def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commands._run(interrupted(), None)
    assert (tmp_path / "logs").exists()
    with pytest.raises(KeyboardInterrupt):
        commands._run(interrupted(), tmp_path)
    assert not tmp_path.exists()
