"""Commands of the laboratory where it is not installed: one line, and help all the same."""

from __future__ import annotations

import pytest

from aiocontroller.cli import root
from aiocontroller.cli.root import LABORATORY, run

CALLS = [["up"], ["simulate", "--seeds", "1"], ["explore"], ["storm"], ["cluster", "kill-controller"]]


@pytest.fixture(autouse=True)
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root, "find_spec", {"aiocontroller.lab": None}.__getitem__)


def test_every_command_of_the_laboratory_is_called() -> None:
    assert {name for name, *_ in CALLS} == LABORATORY


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_command_names_what_to_install(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(call)
    said = capsys.readouterr()
    assert exit_.value.code == 1
    assert said.out == ""
    assert said.err == 'Error: this command needs the laboratory: pip install "aiocontroller[lab]"\n'


@pytest.mark.parametrize("name", sorted(LABORATORY))
def test_help_needs_no_laboratory(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run([name, "--help"])
    assert exit_.value.code == 0
    assert f"Usage: aiocontroller {name}" in capsys.readouterr().out
