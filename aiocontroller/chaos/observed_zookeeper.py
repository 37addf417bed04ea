"""ZooKeeper's model, watched, and with traps: faults that strike at a given write instead of at a given time.

A fault that comes at random moments hits the few milliseconds between a write and its answer once in a thousand runs.
A trap counts a controller's write requests and strikes at the n-th of them: before it is applied, or after it was
applied and before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aiocontroller.chaos.history import Writer, ZNodeHistory
from aiocontroller.chaos.jute import Reader
from aiocontroller.chaos.zookeeper_model import MULTI, WRITES, Connection, Session, ZooKeeperModel
from aiocontroller.chaos.zookeeper_tree import CHANGED, CREATED, DELETED, Transaction
from aiocontroller.zookeeper import paths


class Trap(NamedTuple):
    """``strike`` is called at the ``countdown``-th write; it may break the connection, end the session or more."""

    countdown: int
    before: bool
    """Strike before the write is applied: the request is lost with its connection."""
    strike: Callable[[Connection, Session], None]


class ObservedZooKeeper(ZooKeeperModel):
    """Tells the history of every change; ``is_controller`` says whose writes count for the trap."""

    def __init__(self, history: ZNodeHistory, is_controller: Callable[[int], bool]) -> None:
        super().__init__()
        self.history = history
        self.traps: list[Trap] = []
        self.controller_writes = 0
        self._is_controller = is_controller

    def request(self, connection: Connection, session: Session, body: Reader, now_ms: int) -> None:
        opcode = body.peek_int32(4)
        if (opcode in WRITES or opcode == MULTI) and self._is_controller(session.id):
            self.controller_writes += 1
            struck = self._count_down()
            for trap in struck:
                if trap.before:
                    trap.strike(connection, session)
            if not connection.open or session.id not in self.sessions:
                return
            if struck:
                connection.hold_answers()
            super().request(connection, session, body, now_ms)
            for trap in struck:
                if not trap.before:
                    trap.strike(connection, session)
            connection.release_answers()
            return
        super().request(connection, session, body, now_ms)

    def _count_down(self) -> list[Trap]:
        """The traps whose write this is."""
        counted = [trap._replace(countdown=trap.countdown - 1) for trap in self.traps]
        self.traps = [trap for trap in counted if trap.countdown > 0]
        return [trap for trap in counted if trap.countdown <= 0]

    def remove(self, path: str, now_ms: int) -> None:
        """Somebody from outside deletes a znode."""
        if path in self.tree.nodes:
            self.zxid += 1
            transaction = Transaction(self.tree, self.zxid, now_ms, 0, ())
            transaction.remove(path)
            self._commit(transaction)

    def end_session(self, session: Session, now_ms: int) -> None:
        for path in session.ephemerals:
            self.history.deleted(path, Writer(0))
        super().end_session(session, now_ms)

    def _commit(self, transaction: Transaction) -> None:
        session = transaction.session_id
        writer = Writer(session, paths.CONTROLLER_EPOCH in transaction.checked, self._is_controller(session))
        for kind, path in transaction.events:
            if kind in (CREATED, CHANGED) and path in self.tree.nodes:
                node = self.tree.nodes[path]
                self.history.changed(path, node.data, node.version, writer)
            elif kind == DELETED:
                self.history.deleted(path, writer)
        super()._commit(transaction)
