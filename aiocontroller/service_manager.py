"""Reports to a service manager: systemd's notification protocol (``man sd_notify``), over a datagram socket.

Rules.
 * ``READY=1`` is sent once, when the ports are open and ZooKeeper is connected, maybe before this is the controller.
 * ``STATUS=`` is sent when it changes: ``systemctl status`` shows whether this is the controller, or what it waits for.
 * ``WATCHDOG=1`` is sent by the event loop, several times per watchdog interval: a loop that hangs does not send it.
   Waiting for ZooKeeper or for brokers does not block the loop, so the watchdog never ends the process for that.
 * Nothing waits for the manager, and a manager that is gone is not an error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping

from aiocontroller.net.ports import Clock

log = logging.getLogger(__name__)

STATUS_EVERY_S = 1.0
REPORTS_PER_WATCHDOG = 4
MAX_STATUS_CHARS = 500
"""Characters of a status line; the rest is cut."""


class ServiceManager:
    """The service manager that started this process.

    ``address``: a path, or a name in Linux's abstract namespace that begins with ``@``.
    """

    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.every_s = STATUS_EVERY_S
        """How often ``report`` looks."""
        self._watched = watchdog_s is not None
        if watchdog_s is not None:
            self.every_s = min(STATUS_EVERY_S, watchdog_s / REPORTS_PER_WATCHDOG)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ServiceManager | None:
        """Return the manager that started this process (``NOTIFY_SOCKET``); None if there is none.

        ``WATCHDOG_USEC`` applies only if ``WATCHDOG_PID`` is this process or missing: children inherit both.
        """
        address = environ.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            if address:
                log.warning(
                    "NOTIFY_SOCKET is %r, expected a path or @NAME: the service manager is not notified", address
                )
            return None
        return cls(address, _watchdog_s(environ))

    def say(self, *lines: str) -> None:
        """Send assignments such as ``READY=1``, in one message."""
        try:
            self._socket.sendto("\n".join(lines).encode("utf-8", "backslashreplace"), self._address)
        except OSError as error:
            log.debug("Could not notify the service manager of %s: %s", lines, error)

    async def report(self, clock: Clock, status: Callable[[], str]) -> None:
        """Send the status, and that the loop runs, until cancelled."""
        sent = ""
        while True:
            now = " ".join(status().split())[:MAX_STATUS_CHARS]
            lines = ["WATCHDOG=1"] if self._watched else []
            if now != sent:
                lines.append(f"STATUS={now}")
            if lines:
                self.say(*lines)
                sent = now
            await clock.sleep(self.every_s)

    def close(self) -> None:
        """Close the socket; nothing is sent afterwards."""
        self._socket.close()


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    with contextlib.suppress(ValueError):
        watchdog_us = int(environ.get("WATCHDOG_USEC", ""))
        return watchdog_us / 1e6 if watchdog_us > 0 else None
    return None
