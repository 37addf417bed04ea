"""A model of a ZooKeeper follower: it answers reads from the transactions that it has received, so reads may be stale.

Like a real follower, it receives transactions whole and in order, and fires a watch before any read shows the change.
A client that writes through the follower or sends it a sync reads what was written.  The follower refuses clients that
have seen a higher zxid than its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aiocontroller.lab.zookeeper.zookeeper_model import Watches, ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_tree import Transaction, Tree, ZNode
from aiocontroller.net.ports import Clock


class Follower:
    """``lag_s`` returns the time that the next transaction takes to arrive."""

    def __init__(self, model: ZooKeeperModel, clock: Clock, lag_s: Callable[[], float]) -> None:
        self.tree = Tree()
        self.tree.nodes = dict(model.tree.nodes)
        self.watches = Watches(model.watches.kind)
        self.zxid = model.zxid
        self._model = model
        self._clock = clock
        self._lag_s = lag_s
        self._in_flight: deque[tuple[int, dict[str, ZNode | None], list[tuple[int, str]]]] = deque()
        self._last_due_s = 0.0
        model.followers.append(self)

    def take(self, transaction: Transaction, zxid: int) -> None:
        self._in_flight.append((zxid, transaction.touched, list(transaction.events)))
        now_s = self._clock.monotonic()
        self._last_due_s = max(now_s + self._lag_s(), self._last_due_s)
        self._clock.call_later(self._last_due_s - now_s, lambda: self._apply_to(zxid))

    def _apply_to(self, zxid: int) -> None:
        """Apply the transactions up to this one; ``catch_up`` may already have applied some or all of them."""
        while self._in_flight and self._in_flight[0][0] <= zxid:
            self.zxid, touched, events = self._in_flight.popleft()
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
