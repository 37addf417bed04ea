"""The measurement of a plain install, with the wheel alone: its requirements are those of the checkout."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from benchmarks import install


@pytest.mark.timeout(240)
def test_every_figure_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = tmp_path / "plain.txt"
    nothing.touch()
    monkeypatch.setattr(install, "LOCKED", nothing)
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("purelib"))
    install.main(["--runs", "2", "--wheels", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "aiocontroller 0." in printed
    assert "of a processor" in printed


@pytest.mark.parametrize("words", [["--runs", "0"], ["--wheels", "/no/such/folder"]])
def test_wrong_options_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        install.main(words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err
