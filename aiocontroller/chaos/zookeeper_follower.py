"""A ZooKeeper server that follows: it answers reads from what it has heard, which may be older than the last write.

What holds all the same, as with real followers: transactions arrive in order and whole; watches fire when it has the
transaction, before any read shows it; who writes through it, or asks it to sync, reads what was written; a client that
has seen more than it is turned away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aiocontroller.chaos.zookeeper_model import Watches, ZooKeeperModel
from aiocontroller.chaos.zookeeper_tree import Transaction, Tree, ZNode
from aiocontroller.net.ports import Clock


class Follower:
    """``lag_s`` says how long the next transaction takes to arrive."""

    def __init__(self, model: ZooKeeperModel, clock: Clock, lag_s: Callable[[], float]) -> None:
        self.tree = Tree()
        self.tree.nodes = dict(model.tree.nodes)
        self.watches = Watches()
        self.zxid = model.zxid
        self._model = model
        self._clock = clock
        self._lag_s = lag_s
        self._under_way: deque[tuple[int, dict[str, ZNode | None], list[tuple[int, str]]]] = deque()
        self._last_due_s = 0.0
        model.followers.append(self)

    def take(self, transaction: Transaction, zxid: int) -> None:
        self._under_way.append((zxid, transaction.touched, list(transaction.events)))
        now_s = self._clock.monotonic()
        self._last_due_s = max(now_s + self._lag_s(), self._last_due_s)
        self._clock.call_later(self._last_due_s - now_s, lambda: self._apply_to(zxid))

    def _apply_to(self, zxid: int) -> None:
        """All up to this one; what ``catch_up`` has applied before is not there any more."""
        while self._under_way and self._under_way[0][0] <= zxid:
            self.zxid, touched, events = self._under_way.popleft()
            for path, node in touched.items():
                if node is None:
                    self.tree.nodes.pop(path, None)
                else:
                    self.tree.nodes[path] = node
            for kind, path in events:
                self.watches.fire(kind, path, self.zxid)

    def catch_up(self) -> None:
        self._apply_to(self._model.zxid)
        self.zxid = self._model.zxid
