"""Tracks the one-shot watches that this session has armed, so that a new connection can re-arm them.

Rules: an entry is added when the request that arms it is answered and removed by the event that uses it up; the end of
a session empties the registry, since its watches die too.  Paths are full paths.

Watches that a bulk read's SetWatches is about to arm are in ``arming`` until it is answered.  A new connection does not
re-arm them: the bulk read repeats its request itself, relative to its own data, which is older than the registry's
zxid.  Doing both would report one change (by the bulk read's request) and leave a watch behind (by the registry's).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.errors import SESSION_GONE, Code

log = logging.getLogger(__name__)

CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4
"""Types of watch events, as aiozk's ``WatchEvent`` and the server number them."""

MAX_SET_WATCHES_BYTES = 500_000
"""Well below ``jute.maxbuffer`` (1 MiB), beyond which the server closes the connection."""


class WatchRegistry:
    """The watches that this session has armed, by kind and full path."""

    def __init__(self) -> None:
        # dicts, not sets: the order of arming is the order of re-arming
        self.data: dict[str, None] = {}
        self.exist: dict[str, None] = {}
        self.child: dict[str, None] = {}
        self.recursive: dict[str, None] = {}
        """Persistent recursive watches, which no event uses up."""
        self.arming: dict[str, dict[str, None]] = {}
        """Path -> ``data`` or ``exist``, the table for it once it is armed."""

    def __len__(self) -> int:
        """The number of one-shot watches."""
        return len(self.data) + len(self.exist) + len(self.child)

    def clear(self) -> None:
        """Forget all watches, including the recursive ones, when the session has ended."""
        self.forget()
        self.recursive.clear()

    def forget(self) -> None:
        """Forget the one-shot watches."""
        self.arming.clear()
        self.data.clear()
        self.exist.clear()
        self.child.clear()

    def armed(self, opcode: int, path: str, code: int) -> None:
        """Record the answer, ``code``, to a request with its watch flag set."""
        if opcode in (codec.GET_CHILDREN, codec.GET_CHILDREN2):
            if code == codec.OK:
                self.child[path] = None
        elif code == codec.OK:
            self.data[path] = None
        elif code == codec.NO_NODE and opcode == codec.EXISTS:
            self.exist[path] = None

    def begin(self, data: Iterable[str], exist: Iterable[str]) -> None:
        """Record that a SetWatches relative to what was just read will be sent: its events precede its reply."""
        self.arming.update(dict.fromkeys(data, self.data))
        self.arming.update(dict.fromkeys(exist, self.exist))

    def end(self, paths: Iterable[str]) -> None:
        """Record that it was answered, or abandoned and maybe applied: watches that have not fired are armed."""
        for path in paths:
            table = self.arming.pop(path, None)
            if table is not None:
                table[path] = None

    def fired(self, kind: int, path: str) -> None:
        """Record a notification, which ends this one-shot watch; ``kind`` is ZooKeeper's event type."""
        if kind == CHILD:
            self.child.pop(path, None)
            return
        self.arming.pop(path, None)
        self.data.pop(path, None)
        self.exist.pop(path, None)
        if kind == DELETED:
            self.child.pop(path, None)

    def removed(self, path: str) -> None:
        """Record a RemoveWatches of every kind on the path."""
        for table in (self.recursive, self.data, self.exist, self.child):
            table.pop(path, None)

    def rearmed(self, code: int) -> None:
        """Record the answer to one of ``frames``."""
        if code != codec.OK and code not in SESSION_GONE:
            log.error("ZooKeeper refused to arm watches again (code %d)", code)
        if code == Code.UNIMPLEMENTED:
            self.recursive.clear()  # this server hangs up now, and would each time

    def frames(self, relative_zxid: int) -> Iterator[bytes]:
        """Bodies that arm everything again, persistent recursive watches first: the server does not say what these
        missed, so code that relies on one reads everything again after it was armed.
        """
        if self.recursive:
            yield codec.set_watches2(relative_zxid, list(self.recursive))
        yield from self._one_shot_frames(relative_zxid)

    def _one_shot_frames(self, relative_zxid: int) -> Iterator[bytes]:
        data, exist = (
            [path for path in table if path not in self.arming] if self.arming else table
            for table in (self.data, self.exist)
        )
        return set_watches_bodies(relative_zxid, data, exist, self.child)


def set_watches_bodies(
    relative_zxid: int, data: Iterable[str] = (), exist: Iterable[str] = (), child: Iterable[str] = ()
) -> Iterator[bytes]:
    """SetWatches split by size; each body arms a part of the paths."""
    lists: tuple[list[str], list[str], list[str]] = ([], [], [])
    size = 0
    for which, paths in enumerate((data, exist, child)):
        for path in paths:
            size += 4 + len(path) * (1 if path.isascii() else 4)
            if size > MAX_SET_WATCHES_BYTES and any(lists):
                yield codec.set_watches(relative_zxid, lists)
                lists = ([], [], [])
                size = 4 + len(path) * (1 if path.isascii() else 4)
            lists[which].append(path)
    if any(lists):
        yield codec.set_watches(relative_zxid, lists)
