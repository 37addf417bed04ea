"""``aiocontroller explain``: from journals on disk, of controllers that are gone, torn lines included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aiocontroller.cli.explain import explain, parsed
from aiocontroller.core.errors import BadInputError
from aiocontroller.journal.records import Record, encode_records


def state(seq: int, leader: int, isr: list[int], node: int = 1, **fields: object) -> Record:
    made = Record(1, seq, 1, node, 1_700_000_000_000_000 + seq * 1_000_000, "partition")
    named = {"topic": "t", "partition": 0, "leader": leader, "isr": isr, "to_state": "OnlinePartition"}
    for name, value in (named | fields).items():
        setattr(made, name, value)
    return made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    folder.mkdir()
    elected = Record(1, 1, 1, 2, 1_700_000_000_500_000, "elected", controller_epoch=2)
    other = Record(1, 2, 1, 2, 1_700_000_000_600_000, "elected", controller_epoch=3)
    first = [state(1, 1, [1, 2]), state(2, 1, [1, 2]), state(3, 1, [1], topic="t2")]
    second = [elected, other, state(5, 2, [2], node=2)]
    (folder / "journal-1-1-5-000000.jsonl").write_bytes(encode_records(first) + b'{"v":1,"seq":9,"topic":"t"')
    (folder / "_journal-2-1-6-000000.jsonl").write_bytes(encode_records(second))
    return tmp_path


def test_in_words(data: Path) -> None:
    done = CliRunner().invoke(explain, ["t-0", "--data", str(data)])
    assert done.output.splitlines() == [
        "2023-11-14T22:13:20.600Z  controller 2 took the role, epoch 3",
        "2023-11-14T22:13:21.000Z  leader 1, before none; in sync 1,2, before none",
        "2023-11-14T22:13:25.000Z  leader 2, before none; in sync 2, before none",
    ]
    done = CliRunner().invoke(explain, ["t-0", "--data", str(data), "--last", "1"])
    assert done.output.splitlines()[0] == "… 2 earlier changes; --last shows more"


def test_as_json(data: Path) -> None:
    done = CliRunner().invoke(explain, ["t-0", "--data", str(data), "--json"])
    found = json.loads(done.output)
    assert (found["topic"], found["partition"], len(found["story"])) == ("t", 0, 3)
    assert found["story"][1]["controller"] == 1


def test_nothing_is_known(data: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(explain, ["nobody-0", "--data", str(data)])
    assert "have no record of nobody-0" in done.output
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(explain, ["t-0", "--data", str(tmp_path / "empty")])
    assert isinstance(done.exception, BadInputError)


@pytest.mark.parametrize("text", ["orders", "orders-", "-1", "orders-x", "orders-\u0663", "orders-9999999999999"])
def test_what_is_no_partition(text: str) -> None:
    with pytest.raises(BadInputError, match="expected TOPIC-NUMBER"):
        parsed(text)


def test_a_topic_may_have_dashes() -> None:
    assert parsed("a-b-3") == ("a-b", 3)


def test_a_controller_that_started_again_goes_on_with_its_story(tmp_path: Path) -> None:
    """The file that is being written sorts before complete ones, and epoch 10 before epoch 9."""
    for name, record in (
        ("journal-1-9-5-000001.jsonl", state(1, 1, [1, 2])),
        ("journal-1-10-5-000002.jsonl", state(2, 2, [1, 2])),
        ("_journal-1-11-70-000001.jsonl", state(3, 2, [2])),
    ):
        (tmp_path / name).write_bytes(encode_records([record]))
    done = CliRunner().invoke(explain, ["t-0", "--data", str(tmp_path)])
    assert [line.split("  ")[1] for line in done.output.splitlines()] == [
        "leader 1, before none; in sync 1,2, before none",
        "leader 2, before 1",
        "in sync 2, before 1,2",
    ]


def test_damaged_and_foreign_lines_are_passed_over(data: Path) -> None:
    whole = encode_records([state(9, 1, [1], node=3)])
    late = state(8, 1, [1], node=3)
    late.ts = 2**63 - 1
    lines = [b"\xff t", b"[]", b"null", b'{"t":1}', b'{"t":' + b"[" * 200_000, encode_records([late]).strip()]
    (data / "journal-3-1-²-000000.jsonl").write_bytes(b"\n".join(lines) + b"\n" + whole)
    done = CliRunner().invoke(explain, ["t-0", "--data", str(data)], catch_exceptions=False)
    assert [line for line in done.output.splitlines() if line.startswith("2023-11-14T22:13:29")]
    assert len(done.output.splitlines()) == 4


def test_a_name_that_is_no_text_is_unknown(data: Path) -> None:
    for name in ("\udcff-0", "a\x1b[31m-0"):
        done = CliRunner().invoke(explain, [name, "--data", str(data)], catch_exceptions=False)
        assert "have no record of " in done.output
        assert "\x1b" not in done.output


def test_what_a_record_holds_forges_no_line(data: Path) -> None:
    forged = "x\n2023-11-14T22:13:26.000Z  leader 3, before 2\x1b[2J"
    (data / "journal" / "journal-2-1-7-000000.jsonl").write_bytes(encode_records([state(9, 1, [1], detail=forged)]))
    done = CliRunner().invoke(explain, ["t-0", "--data", str(data), "--last", "1"])
    assert len(done.output.splitlines()) == 2
    assert r"x\n2023-11-14T22:13:26.000Z  leader 3, before 2\x1b[2J" in done.output
