"""Notifications of every change of topics and partition states, by one persistent recursive watch.

It is on ``/brokers``, where nothing else sets a watch: before ZooKeeper 3.9, a one-shot watch on the same path would
end it.  Two ways to use it:
 * A standby *listens*: everything below ``/brokers`` goes to its listener and nowhere else.
 * After ``pass_on`` the changes become those that a controller's one-shot watches would report.  So a successor misses
   nothing while it arms these; where both watches are set, the server reports a change once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.watches import CHILD, CREATED, DELETED

_BELOW_BROKERS = paths.BROKERS + "/"
_BELOW_TOPICS = paths.TOPICS + "/"


class TopicsListener(Protocol):
    """What a standby is notified of; the methods return at once."""

    def topic_changed(self, name: str, *, deleted: bool = False) -> None:
        """The topic's znode was created, changed or deleted."""

    def state_changed(self, topic: str, partition: int) -> None:
        """The state znode was created, changed or deleted."""


class TopicsWatch:
    """One per client; takes over ``client.on_watch``, whose previous handler gets all other events."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._others = client.on_watch
        self._listener: TopicsListener | None = None
        self._is_moving: Callable[[str, int], bool] | None = None
        client.on_watch = self._on_watch

    async def listen(self, listener: TopicsListener) -> None:
        """Arm the watch; reads after this call miss no change.  Raises RecursiveWatchUnsupportedError."""
        self._listener, self._is_moving = listener, None
        await self._client.add_recursive_watch(paths.BROKERS)

    def pass_on(self, is_moving: Callable[[str, int], bool]) -> None:
        """From now on report what one-shot watches would; of states, only those of partitions that are moving."""
        self._listener, self._is_moving = None, is_moving

    async def remove(self) -> None:
        """Remove the watch, if any."""
        await self._client.remove_recursive_watch(paths.BROKERS)
        self._listener = self._is_moving = None

    def _on_watch(self, kind: int, path: str) -> None:
        if kind != CHILD and path.startswith(_BELOW_BROKERS):
            if self._listener is not None:
                if path.startswith(_BELOW_TOPICS):
                    _report(self._listener, kind, path)
                return
            if self._is_moving is not None and not self._is_reported(kind, path, self._is_moving):
                return
        if self._others is not None:
            self._others(kind, path)

    def _is_reported(self, kind: int, path: str, is_moving: Callable[[str, int], bool]) -> bool:
        """Whether a one-shot watch on the path would report this; reports a change of the list of topics itself."""
        state = _state_at(path) if path.startswith(_BELOW_TOPICS) else None
        if state is not None:
            return is_moving(*state)
        if kind in (CREATED, DELETED) and paths.topic_of(path) is not None and self._others is not None:
            self._others(CHILD, paths.TOPICS)
        return True


def _report(listener: TopicsListener, kind: int, path: str) -> None:
    state = _state_at(path)
    if state is not None:
        listener.state_changed(*state)
    elif (topic := paths.topic_of(path)) is not None:
        listener.topic_changed(topic, deleted=kind == DELETED)


def _state_at(path: str) -> tuple[str, int] | None:
    """The partition whose state is at a path below the topics; None for other znodes."""
    names = path[len(_BELOW_TOPICS) :].split("/")
    if len(names) == 4 and names[1] == "partitions" and names[3] == "state" and names[2].isdecimal():
        return names[0], int(names[2])
    return None
