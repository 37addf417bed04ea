"""Finds the process that holds a port, so that error messages can name it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

LISTENING = "0A"


def refuse_a_taken_port(host: str, port: int) -> None:
    """Raises OSError naming the port and its holder if it is taken; does nothing for port 0."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OverflowError:
            return  # not a valid port: the caller that binds it reports that
        except OSError as error:
            raise taken(error, host, port) from None


def taken(error: OSError, host: str, port: int) -> OSError:
    """The error of a ``bind`` or of a look-up, with the address and its holder."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    holder = holder_of_port(port) if error.errno == errno.EADDRINUSE else ""
    return OSError(error.errno, f"cannot listen on {address}: {error.strerror}{holder and f' by {holder}'}")


def holder_of_port(port: int) -> str:
    """``process 4711 (java)`` for a TCP port that is listened on; empty if the system does not show it (only Linux
    does, and other users' processes only to root)."""
    inodes = {f"socket:[{inode}]" for inode in _listening(port)}
    if not inodes:
        return ""
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            if any(_target(link) in inodes for link in (process / "fd").iterdir()):
                return f"process {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:
            continue  # gone, or another user's
    return ""


def _target(descriptor: Path) -> str:
    """What a descriptor refers to; empty if it was closed after it was listed (as the listing's own always is)."""
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def _listening(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on the port."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
