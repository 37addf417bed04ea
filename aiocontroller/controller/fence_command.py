"""The operator's command that ends a broker (``broker_fencing`` says when), and the record of each run."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio.abc

from aiocontroller.config import Config
from aiocontroller.journal.journal import Journal
from aiocontroller.metrics import Metrics
from aiocontroller.net.commands import RunCommand
from aiocontroller.net.ports import Clock

log = logging.getLogger(__name__)


class FenceCommand:
    """The command that is running, if any, and the record of each."""

    def __init__(
        self,
        config: Config,
        tasks: anyio.abc.TaskGroup,
        run: RunCommand,
        clock: Clock,
        journal: Journal,
        metrics: Metrics,
    ) -> None:
        self.after_s = config.aiocontroller_fence_after_ms / 1000
        self._command = config.aiocontroller_fence_command
        self._dry_run = config.aiocontroller_fence_dry_run
        self._timeout_s = config.aiocontroller_fence_timeout_ms / 1000
        self._tasks, self._run, self._clock, self._journal = tasks, run, clock, journal
        self.commands = metrics.counter("aiocontroller", "EarlyDetection", "FenceCommands")
        self.failures = metrics.counter("aiocontroller", "EarlyDetection", "FailedFenceCommands")
        self.busy = False
        """A command is running."""

    def begin(self, broker: int, broker_epoch: int, host: str) -> None:
        """Run the command for this incarnation in a task of its own, or say what would be run."""
        command = [part.replace("{broker}", str(broker)).replace("{host}", host) for part in self._command]
        words = " ".join(command)
        lacks_host = not host and any("{host}" in part for part in self._command)
        if lacks_host or host.startswith("-"):  # which the program might take for an option
            self.failures.inc()
            log.error("The fence command for broker %d was not run: its host is %r", broker, host)
            self._record(broker, broker_epoch, "refused", host)
        elif self._dry_run:
            log.warning("Would run for broker %d, which hangs (aiocontroller.fence.dry.run=true): %s", broker, words)
            self._record(broker, broker_epoch, "would run", words)
        else:
            log.warning("Running for broker %d, which hangs: %s", broker, words)
            self._record(broker, broker_epoch, "begins", words)
            self.commands.inc()
            self.busy = True
            name = f"fence command for broker {broker}"
            self._tasks.start_soon(self._run_to_end, command, broker, broker_epoch, host, name=name)

    async def _run_to_end(self, command: Sequence[str], broker: int, broker_epoch: int, host: str) -> None:
        variables = {
            "AIOCONTROLLER_FENCED_BROKER": str(broker),
            "AIOCONTROLLER_FENCED_BROKER_EPOCH": str(broker_epoch),
            "AIOCONTROLLER_FENCED_HOST": host,
        }
        began_s = self._clock.monotonic()
        code: int | None = None
        try:
            code, output = await self._run(command, variables, timeout_s=self._timeout_s)
            event = "ended" if code is not None else "killed"
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            event, output = "not started", str(error)
        finally:
            self.busy = False
        if code != 0:
            self.failures.inc()
        log.log(
            logging.WARNING if code == 0 else logging.ERROR,
            "The fence command for broker %d %s%s: %s",
            broker,
            event,
            "" if code is None else f" with code {code}",
            output.strip() or "no output",
        )
        spent_us = int((self._clock.monotonic() - began_s) * 1e6)
        self._record(broker, broker_epoch, event, output, code, spent_us)

    def _record(
        self, broker: int, broker_epoch: int, event: str, detail: str, code: int | None = None, us: int | None = None
    ) -> None:
        self._journal.append(
            "fence",
            event=event,
            broker=broker,
            broker_epoch=broker_epoch,
            count=code,
            duration_us=us,
            detail=detail,
        )
