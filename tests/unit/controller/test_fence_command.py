"""The operator's command itself: how it ends, what is recorded, and which settings it takes."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.config import ConfigError, load_config
from aiocontroller.net.commands import CommandResult
from tests.unit.controller.test_broker_fencing import Hook


@pytest.mark.parametrize(
    "ends, recorded",
    [
        (CommandResult(None, "waits"), ("killed", "waits", None)),
        (CommandResult(1, ""), ("ended", "", 1)),
        (OSError("no such program"), ("not started", "no such program", None)),
        (ValueError("embedded null byte"), ("not started", "embedded null byte", None)),
    ],
)
def test_failures_are_recorded_and_counted(
    monkeypatch: pytest.MonkeyPatch, ends: CommandResult | Exception, recorded: tuple[str, str, int | None]
) -> None:
    hook = Hook(monkeypatch)

    async def fails(*given: Any, timeout_s: float) -> CommandResult:
        if isinstance(ends, Exception):
            raise ends
        return ends

    assert hook.it.shell.fence_command is not None
    monkeypatch.setattr(hook.it.shell.fence_command, "_run", fails)
    hook.due()
    hook.end()
    assert hook.recorded[1:] == [recorded]
    assert not hook.it.shell.fence_command.busy
    assert hook.it.shell.fence_command.failures.value == 1


def test_a_dry_run_says_what_it_would_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(monkeypatch, aiocontroller_fence_dry_run=True)
    hook.due()
    assert hook.waiting == []
    [(event, words, _)] = hook.recorded
    assert event == "would run"
    assert str(words).endswith("kill-kafka --broker=2")
    assert str(words) in caplog.text


def test_a_host_that_would_be_an_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch)
    assert hook.it.shell.fence_command is not None
    hook.it.shell.fence_command.begin(2, 7, "-oProxyCommand=reboot")
    assert hook.waiting == []
    assert hook.recorded == [("refused", "-oProxyCommand=reboot", None)]


def test_a_command_that_needs_a_host_is_refused_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch)
    command = hook.it.shell.fence_command
    assert command is not None
    command.begin(2, 7, "")
    assert hook.recorded == [("refused", "", None)]
    monkeypatch.setattr(command, "_command", ("power-off", "{broker}"))
    command.begin(2, 7, "")
    assert hook.recorded[1:] == [("begins", "power-off 2", None)]
    hook.end()


@pytest.mark.parametrize("mode", ["off", "refused"])
def test_the_command_needs_detection_of_silence(mode: str) -> None:
    given = {"aiocontroller.fence.command": "fence {broker}", "aiocontroller.early.broker.detection": mode}
    with pytest.raises(
        ConfigError, match=f"early.broker.detection: found {mode}, expected full, because aiocontroller.fe"
    ):
        load_config(overrides=given)
    config, _ = load_config(overrides=given | {"aiocontroller.early.broker.detection": "full"})
    assert config.aiocontroller_fence_command == ("fence", "{broker}")


@pytest.mark.parametrize("text", ["fence 'x", "'' x"])
def test_a_command_with_an_open_quote_or_without_a_program_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"aiocontroller\.fence\.command.*balanced quotes"):
        load_config(overrides={"aiocontroller.fence.command": text})
