"""``POST /check`` runs the same check of the cluster as ``aiocontroller check``; ``GET /findings`` has its result.

The check reads everything in ZooKeeper, which takes seconds of CPU time, so it runs in a process of its own
(``check.child``): one at a time, for a limited time, and with a pause before the next one.  It writes nothing.  The
result is kept with its time until the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec

from aiocontroller.config import Config
from aiocontroller.core.errors import AioControllerError
from aiocontroller.core.unreadable_json import UNREADABLE_JSON
from aiocontroller.net.ports import Clock
from aiocontroller.net.tasks import Tasks
from aiocontroller.server.actor_check import HttpPeer

log = logging.getLogger(__name__)

CHILD = (sys.executable, "-P", "-m", "aiocontroller.check.child")
"""``-P``: nothing is imported from the folder in which the controller was started."""
WITHIN_S = 130.0
"""A little more than the child's own limit."""
PAUSE_S = 10.0
"""Between the end of a check and the start of the next one."""
MOST_BYTES = 4_000_000
"""Largest output of the child: what its limits on numbers and lengths can add up to."""
SEVERITIES = ("critical", "warning", "notice")


class CheckFailedError(AioControllerError):
    """The check gave no result; the message says why."""


class Checks:
    """The latest result, and the running check, if any."""

    def __init__(self, config: Config, clock: Clock, tasks: Tasks, command: Sequence[str] = CHILD) -> None:
        """A check ends with ``tasks``."""
        self._config = config
        self._clock = clock
        self._command = command
        self._tasks = tasks
        self._began_us: int | None = None
        self._progress: dict[str, Any] | None = None
        self._ended_s: float | None = None
        self._result: dict[str, Any] = {"at_us": None, "took_ms": None, "error": ""}
        self._counts: dict[str, int] | None = None

    def summary(self) -> dict[str, Any]:
        """For the overview: when the latest check ended, its counts, and since when another one has been running."""
        latest = {key: self._result[key] for key in ("at_us", "took_ms", "error")}
        return {**latest, "running_since_us": self._began_us, "progress": self._progress, "counts": self._counts}

    async def findings(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        """The answer to ``GET /findings``."""
        return self._result

    async def start(self, peer: HttpPeer, body: bytes) -> Mapping[str, Any]:
        """The answer to ``POST /check``; starts a check, unless one is running or has just ended."""
        just_now = self._ended_s is not None and self._clock.monotonic() - self._ended_s < PAUSE_S
        if self._began_us is None and not just_now:
            self._began_us = self._clock.wall_time_us()
            self._tasks.start_soon(self._run, self._clock.monotonic(), name="check")
        return self.summary()

    async def _run(self, began_s: float) -> None:
        try:
            found = await self._found()
            counts = {name: sum(each["severity"] == name for each in found["findings"]) for name in SEVERITIES}
            result = {"error": "", **found}
        except (CheckFailedError, OSError) as error:
            log.warning("The check of the cluster failed: %s", error)
            result, counts = {"error": str(error)}, None
        except Exception as error:  # a bug here must not end the controller
            log.exception("The check of the cluster failed")
            result, counts = {"error": repr(error)}, None
        finally:
            self._began_us = self._progress = None
        self._ended_s = self._clock.monotonic()
        took_ms = round(1000 * (self._ended_s - began_s))
        self._result = {"at_us": self._clock.wall_time_us(), "took_ms": took_ms, **result}
        self._counts = counts

    async def _found(self) -> dict[str, Any]:
        child = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            async with asyncio.timeout(WITHIN_S):
                child.stdin.write(pickle.dumps(self._config))
                child.stdin.close()
                output = bytearray()
                while part := await child.stdout.read(1 << 16):
                    output += part
                    if len(output) > MOST_BYTES:
                        raise CheckFailedError(f"its answer has more than {MOST_BYTES:,} bytes")
                    self._progress = _progress(output) or self._progress
                code = await child.wait()
        except TimeoutError:
            raise CheckFailedError(f"it did not end within {WITHIN_S:.0f} s: use 'aiocontroller check'") from None
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                with anyio.CancelScope(shield=True):
                    await child.wait()
        return _understood(code, bytes(output))


def _progress(output: bytearray) -> dict[str, Any] | None:
    """The last complete line if it reports progress (``read``, ``of``, ``again``), else None."""
    line = bytes(output[: output.rfind(b"\n") + 1]).rstrip().rpartition(b"\n")[2]
    return msgspec.json.decode(line, type=dict) if line.startswith(b'{"read":') else None


def _understood(code: int, output: bytes) -> dict[str, Any]:
    if code == -signal.SIGALRM:
        raise CheckFailedError("it took too long: use 'aiocontroller check'")
    if code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        raise CheckFailedError(f"its process was ended by {name}; memory may have run out")
    try:
        found: dict[str, Any] = msgspec.json.decode(output.rstrip().rpartition(b"\n")[2], type=dict)
    except UNREADABLE_JSON:
        raise CheckFailedError(f"its process ended with exit code {code}: 'aiocontroller check' says why") from None
    if "error" in found:
        raise CheckFailedError(found["error"])
    return found
