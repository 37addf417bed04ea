"""What ``recover`` prints, and asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from aiocontroller.cli import recover as module
from aiocontroller.cli.recover import recover

LOGS = [
    {"broker": 1, "in_isr": False, "epoch": 4, "end_offset": 100, "start_offset": 0, "error": None},
    {"broker": 2, "in_isr": False, "epoch": 5, "end_offset": 250, "start_offset": 0, "error": None},
    {"broker": 3, "in_isr": True, "epoch": None, "end_offset": None, "start_offset": None, "error": "it is silent"},
]


def partition(number: int, result: str, leader: int | None, detail: str = "", logs: Any = ()) -> dict[str, Any]:
    return {"topic": "t", "partition": number, "result": result, "leader": leader, "logs": logs, "detail": detail}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """[what was asked, …] after the answer to be given, which a test puts in first."""
    kept: list[Any] = []

    def post(ready: Any, command: str, body: dict[str, Any]) -> Any:
        kept.append((command, body))
        return kept[0]

    monkeypatch.setattr(module, "find_controller", lambda data: data)
    monkeypatch.setattr(module, "post_command", post)
    return kept


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(recover, arguments)
    return done.exit_code, done.output


def test_the_logs_are_a_table_and_the_loss_a_sentence(answers: list[Any]) -> None:
    found = [
        partition(0, "would elect", 2, "broker 2 ends at 250", LOGS),
        partition(1, "led", 1),
        partition(2, "led", 2),
    ]
    answers.append({"partitions": found})
    assert run("--topic", "t", "--dry-run") == (
        0,
        "partition  broker  last epoch  end offset  in ISR\n"
        "t-0             1           4         100  no\n"
        "t-0             2           5         250  no      leads\n"
        "t-0             3           -           -  yes     it is silent\n"
        "\n"
        "t-0: broker 2 would lead. Broker 2 ends at 250.\n"
        "2 partitions led already.\n",
    )
    assert answers[1] == ("recover", {"topic": "t", "partition": None, "leader": None, "dry_run": True})


def test_a_leader_that_serves_no_reads_is_told_from_one_that_does(answers: list[Any]) -> None:
    elected = partition(0, "elected", 2, "x")
    answers.append({"partitions": [elected | {"readable": value} for value in (False, True, None)]})
    code, out = run("--topic", "t")
    assert code == 0
    assert out.splitlines() == [
        "t-0: broker 2 leads. X. Nothing can be read until min.insync.replicas are in sync.",
        "t-0: broker 2 leads. X.",
        "t-0: broker 2 leads. X.",
    ]


def test_who_is_not_elected_is_an_error(answers: list[Any]) -> None:
    answers.append(
        {"partitions": [partition(0, "failed", None, "broker 3 has not told"), partition(1, "elected", 2, "x")]}
    )
    code, out = run("--topic", "t", "--partition", "0", "--from", "3")
    assert code == 1
    assert out == "t-0: nobody leads. Broker 3 has not told.\nt-1: broker 2 leads. X.\n"
    assert answers[1] == ("recover", {"topic": "t", "partition": 0, "leader": 3, "dry_run": False})


def test_programs_get_it_all(answers: list[Any]) -> None:
    answers.append({"dry_run": False, "partitions": [partition(0, "elected", 2, "x", LOGS)]})
    code, out = run("--topic", "t", "--json")
    assert code == 0
    assert json.loads(out) == answers[0]


def test_a_topic_must_be_named() -> None:
    code, out = run("--dry-run")
    assert code == 2
    assert "--topic" in out
