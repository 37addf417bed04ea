"""The ZooKeeper model with observation and traps: faults that strike at a given write instead of at a given time.

A fault at a random time hits the few milliseconds between a write and its answer only once in a thousand runs.  A trap
counts a controller's write requests and strikes at the n-th: before ZooKeeper applies it, or between applying and
answering it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.lab.checkers.history import Writer, ZNodeHistory
from aiocontroller.lab.zookeeper.jute import Reader
from aiocontroller.lab.zookeeper.zookeeper_model import (
    EXISTS,
    GET_DATA,
    MULTI,
    MULTI_READ,
    WRITES,
    Connection,
    Session,
    ZooKeeperModel,
)
from aiocontroller.lab.zookeeper.zookeeper_tree import (
    CHANGED,
    CREATED,
    DELETED,
    OPEN,
    Identity,
    Transaction,
    parent_of,
)
from aiocontroller.zookeeper import paths

_MIGRATION = paths.MIGRATION.encode()


class Trap(NamedTuple):
    """A fault at the ``countdown``-th write; ``strike`` may, for example, break the connection or end the session."""

    countdown: int
    before: bool
    """Strike before the write is applied, so that the request is lost with its connection."""
    strike: Callable[[Connection, Session], None]


class ObservedZooKeeper(ZooKeeperModel):
    """Reports every change to the history.

    ``is_controller`` returns whether a session's writes count for the traps; ``broker_of`` returns the broker that owns
    a session, -1 if no broker does.
    """

    def __init__(
        self,
        history: ZNodeHistory,
        is_controller: Callable[[int], bool],
        broker_of: Callable[[int], int] = lambda _: -1,
    ) -> None:
        super().__init__()
        self.history = history
        self.traps: list[Trap] = []
        self.controller_writes = 0
        self._looked_ms: dict[int, int] = {}
        """Session id -> when it last asked for /migration, as a controller's guard does whenever it looks."""
        self._vacant_ms: int | None = None
        """When /controller was last deleted without a successor."""
        self._is_controller = is_controller
        self._broker_of = broker_of

    def request(self, connection: Connection, session: Session, body: Reader, now_ms: int) -> None:
        opcode = body.peek_int32(4)
        if opcode in (EXISTS, GET_DATA, MULTI_READ) and _MIGRATION in body:
            self._looked_ms[session.id] = now_ms
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

    def unseen_ms(self, session_id: int) -> int:
        """Return how long before the vacancy that it has filled this session last looked; 0 if it looked later.

        Also 0 if it no longer holds the role, because the answer to its registration was late.
        """
        controller, looked_ms = self.tree.nodes.get(paths.CONTROLLER), self._looked_ms.get(session_id)
        if controller is None or controller.owner != session_id or self._vacant_ms is None or looked_ms is None:
            return 0
        return max(0, self._vacant_ms - looked_ms)

    def _count_down(self) -> list[Trap]:
        """Count the write for all traps, and return the traps that strike at it."""
        counted = [trap._replace(countdown=trap.countdown - 1) for trap in self.traps]
        self.traps = [trap for trap in counted if trap.countdown > 0]
        return [trap for trap in counted if trap.countdown <= 0]

    def remove(self, path: str, now_ms: int) -> None:
        """Delete a znode as a foreign client."""
        if path in self.tree.nodes:
            self.zxid += 1
            transaction = Transaction(self.tree, self.zxid, now_ms, 0, ())
            transaction.remove(path)
            self._commit(transaction)

    def begin_with(self, znodes: Mapping[str, bytes], now_ms: int) -> None:
        """Create znodes that exist before the run, with their missing parents."""
        self.zxid += 1
        transaction = Transaction(self.tree, self.zxid, now_ms, 0, ())
        for path, data in znodes.items():
            self._create(transaction, parent_of(path), b"")
            self._create(transaction, path, data)
        super()._commit(transaction)
        for path, data in znodes.items():
            self.history.existed_before(path, data)

    def _create(self, transaction: Transaction, path: str, data: bytes) -> None:
        if path not in self.tree.nodes:
            self._create(transaction, parent_of(path), b"")
            transaction.create(path, data, OPEN, 0)

    def write_by_hand(
        self, write: Callable[[Transaction], object], now_ms: int, identities: Sequence[Identity] = ()
    ) -> None:
        """As a foreign client, write znodes that only the controller may write, in one transaction."""
        self.zxid += 1
        transaction = Transaction(self.tree, self.zxid, now_ms, 0, identities)
        write(transaction)
        self._commit(transaction, by_hand=True)

    def end_session(self, session: Session, now_ms: int) -> None:
        for path in session.ephemerals:
            self.history.deleted(path, Writer(0))
            if path == paths.CONTROLLER:
                self._vacant_ms = now_ms
        super().end_session(session, now_ms)

    def _commit(self, transaction: Transaction, *, by_hand: bool = False) -> None:
        session = transaction.session_id
        controller = self._is_controller(session)
        broker = -1 if controller else self._broker_of(session)
        fenced = paths.CONTROLLER_EPOCH in transaction.checked
        writer = Writer(session, fenced, controller, by_hand, broker)
        changes = [(kind, path) for kind, path in transaction.events if kind in (CREATED, CHANGED, DELETED)]
        last = {path: number for number, (_, path) in enumerate(changes)}
        times: dict[str, int] = {}
        for number, (kind, path) in enumerate(changes):
            times[path] = 0 if kind == DELETED else times.get(path, 0) + 1
            if kind == DELETED:
                self.history.deleted(path, writer)
                if path == paths.CONTROLLER and path not in self.tree.nodes:
                    self._vacant_ms = transaction.now_ms
            elif number == last[path]:
                node = self.tree.nodes[path]
                self.history.changed(path, node.data, node.version, writer, times[path])
        super()._commit(transaction)
