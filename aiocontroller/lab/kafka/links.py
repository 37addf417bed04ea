"""Links between real processes on this machine that can be cut for one process alone (Linux).

A proxy finds the process of each connection in ``/proc``.  So one controller can lose a broker while another one
reaches the same broker at the same address.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Collection
from pathlib import Path

from aiocontroller.lab.zookeeper.fault_proxy import FaultProxy, Link

PROC = Path("/proc")


class Way(enum.Enum):
    """What a cut link loses."""

    REQUESTS = "requests"
    """Nothing passes in either direction: no request arrives, so there is no answer."""
    ANSWERS = "answers"
    """Requests arrive and are carried out; no answer comes back."""


class OwnedProxy(FaultProxy):
    """A proxy whose connections are cut by their owners' process ids."""

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self._cut: dict[int, Way] = {}
        self.on_link = self._opened

    def cut_process(self, pid: int, way: Way) -> None:
        """Cut the process's connections, including those that it will open.  Connecting still works, as when packets
        are lost beyond the first hop."""
        self._cut[pid] = way
        for link in self.links:
            self._opened(link)

    def heal(self) -> None:
        """Deliver late what the living connections held, and end the connections that their owners have given up."""
        owners = tuple(self._cut)
        self._cut.clear()
        for link in list(self.links):
            held = not (link.thawed.is_set() and link.hears.is_set())
            if held and owner_of(_port_of(link), self.port, owners) is None:
                link.cut(reset=True)
        self.thaw()

    def _opened(self, link: Link) -> None:
        if not self._cut:
            return
        owner = owner_of(_port_of(link), self.port, tuple(self._cut))
        way = None if owner is None else self._cut[owner]
        if way is Way.REQUESTS:
            link.thawed.clear()
        elif way is Way.ANSWERS:
            link.hears.clear()


def owner_of(port: int, server_port: int, pids: Collection[int]) -> int | None:
    """Return the process among these that has the connected socket from ``port`` to ``server_port``, or None."""
    inode = _inode_of(port, server_port)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    return next((pid for pid in pids if wanted in _files_of(pid)), None)


def _inode_of(port: int, server_port: int) -> str | None:
    """Return the socket's inode.  It also looks among IPv6 sockets, which Java uses even for 127.0.0.1."""
    ends = f":{port:04X}", f":{server_port:04X}"
    for table in ("tcp", "tcp6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[1].endswith(ends[0]) and columns[2].endswith(ends[1]):
                return columns[9]
    return None


def _files_of(pid: int) -> set[str]:
    found = set()
    try:
        for file in os.scandir(PROC / str(pid) / "fd"):
            try:
                found.add(os.readlink(file.path))
            except OSError:
                continue  # closed meanwhile
    except OSError:
        pass  # the process has ended
    return found


def _port_of(link: Link) -> int:
    peer = link.client.get_extra_info("peername")
    return int(peer[1]) if peer else 0
