"""Commands of the laboratory and the pipeline where they are not installed: one line, and help all the same."""

from __future__ import annotations

import pytest

from aiocontroller.cli import extras
from aiocontroller.cli.extras import EXTRAS, refusal
from aiocontroller.cli.root import NEEDS, run

CALLS = [
    ["up"],
    ["rehearse"],
    ["simulate", "--seeds", "1"],
    ["explore"],
    ["storm"],
    ["cluster", "kill-controller"],
    ["analyze", "a", "--out", "b"],
]


@pytest.fixture(autouse=True)
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", dict.fromkeys(extra.package for extra in EXTRAS.values()).__getitem__)


def test_every_command_that_needs_an_extra_is_called() -> None:
    assert {name for name, *_ in CALLS} == NEEDS.keys()


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_command_names_what_to_install(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(call)
    output = capsys.readouterr()
    assert exit_.value.code == 1
    assert output.out == ""
    extra = NEEDS[call[0]]
    assert output.err == f'Error: this command needs the {EXTRAS[extra].name}: pip install "aiocontroller[{extra}]"\n'


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_help_needs_no_extra(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run([name, "--help"])
    assert exit_.value.code == 0
    assert f"Usage: aiocontroller {name}" in capsys.readouterr().out


def test_debug_handlers_need_the_laboratory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(["run", "--zookeeper", "127.0.0.1:1", "--http-port", "0", "--debug"])
    assert exit_.value.code == 1
    assert f"Error: {refusal('lab', '--debug')}\n" in capsys.readouterr().err
