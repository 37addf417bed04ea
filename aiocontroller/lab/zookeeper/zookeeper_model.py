"""A ZooKeeper server in memory, which takes and returns frames, byte for byte.  It has neither I/O nor a clock.

The whole program runs against it with its own codec, session recovery and bulk layer; only the network is replaced.  So
the model implements the protocol, not a client's methods.  Tests compare it with a real server.

Its behaviour (observed on ZooKeeper 3.9.5):
 * every write, refused ones too, and every start and end of a session takes one zxid; reads take none;
 * watches are one-shot and belong to a connection; those for data and for existence share a table; an event precedes
   any reply that shows the change, and the events of a client's own multi precede its reply;
 * a persistent recursive watch reports creations, changes and deletions at and below its path, but no changes of
   children, and each only once to a connection; it ends with its connection;
 * SetWatches immediately reports what changed after the zxid that it names, and arms the other watches;
 * a client that has seen a higher zxid than this server is disconnected without a reply; a request for an unknown
   session, or with a wrong password, is answered with session id 0;
 * a second connection of a session ends the first; through another server, the first one's next write does.

A follower (``zookeeper_follower``) answers reads from what it has received so far.

It refuses as a server does: connections at once or at the handshake (``refuses``), a SASL login that is not among its
``users``, everything but a login (``requires_login``), and what an ACL does not allow.

The model omits quotas, TTL and container znodes, persistent watches that are not recursive, and dynamic configuration.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import Literal, Protocol

from aiocontroller.lab.zookeeper.jute import Reader, buffer, string, strings
from aiocontroller.lab.zookeeper.zookeeper_sasl import DigestLogin, LoginRefusedError
from aiocontroller.lab.zookeeper.zookeeper_tree import (
    CHANGED,
    CHILD,
    CREATED,
    DELETED,
    OK,
    Acl,
    Identity,
    Refused,
    Transaction,
    Tree,
    ZNode,
    check_acl,
)

MAX_FRAME_BYTES = 1_048_575
"""``jute.maxbuffer``: a longer request ends its connection."""
EPOCH_BITS = 32
"""The bits of a zxid above these are the leader's epoch."""
UNIMPLEMENTED, RUNTIME_INCONSISTENCY, AUTH_FAILED, NO_WATCHER, LOGIN_REQUIRED = -6, -2, -115, -121, -124
SYNC_CONNECTED = 3
EVENT_XID, PING_XID, AUTH_XID = -1, -2, -4
(CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC, PING) = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    11,
)
GET_CHILDREN2, CHECK, MULTI, CREATE2, MULTI_READ, AUTH, SET_WATCHES, SASL = 12, 13, 14, 15, 22, 100, 101, 102
GET_EPHEMERALS, GET_ALL_CHILDREN_NUMBER, CLOSE_SESSION = 103, 104, -11
REMOVE_WATCHES, SET_WATCHES2, ADD_WATCH = 18, 105, 106
PERSISTENT_RECURSIVE, ANY_WATCH = 1, 3
RecursiveWatches = Literal["3.9", "3.8", "no"]
"""How a server treats persistent recursive watches.  Before 3.9 events carry no zxid, and a one-shot watch on the same
path takes the place of a recursive one; before 3.6 there are none, and no multiRead."""
Refuses = Literal["", "connections", "handshakes"]
"""When new connections are closed: at once, as if there were too many, or at the handshake, as by a server that has no
quorum."""
WRITES = (CREATE, CREATE2, DELETE, SET_DATA, SET_ACL)

_REPLY = struct.Struct(">iqi")
_RESULT = struct.Struct(">i?i")
_INT = struct.Struct(">i")


class Session:
    def __init__(self, session_id: int, password: bytes, timeout_ms: int) -> None:
        self.id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.expires_ms = 0
        self.ephemerals: dict[str, None] = {}
        self.connection: Connection | None = None


class Connection:
    """One client's connection: takes whole frames without their length, and calls ``send`` and ``close``."""

    def __init__(
        self,
        model: ZooKeeperModel,
        send: Callable[[bytes], None],
        close: Callable[[], None],
        server: Server | None = None,
    ) -> None:
        self._model = model
        self.server: Server = model if server is None else server
        self._send = send
        self._close = close
        self.session: Session | None = None
        self.identities: list[Identity] = [("ip", "127.0.0.1")]
        self.open = True
        self.login: DigestLogin | None = None
        """The SASL exchange in progress."""
        self.logged_in = False
        self._held: list[bytes] | None = None

    def frame(self, payload: bytes, now_ms: int) -> None:
        if not self.open:
            return
        try:
            if self.session is None:
                self._model.handshake(self, Reader(payload), now_ms)
            else:
                self._model.request(self, self.session, Reader(payload), now_ms)
        except (struct.error, UnicodeDecodeError):
            self.end()

    def write(self, payload: bytes) -> None:
        if self._held is not None:
            self._held.append(payload)
        elif self.open:
            self._send(_INT.pack(len(payload)) + payload)

    def hold_answers(self) -> None:
        """Keep everything written from now on until ``release_answers``; it is lost if the connection ends first."""
        self._held = []

    def release_answers(self) -> None:
        held, self._held = self._held, None
        for payload in held or ():
            self.write(payload)

    def end(self) -> None:
        """Close the connection from the server's side."""
        if self.open:
            self.lost()
            self._close()

    def lost(self) -> None:
        """Note that the connection is gone; its session lives until it expires."""
        self.open = False
        self.server.watches.forget(self)
        if self.session is not None and self.session.connection is self:
            self.session.connection = None


Table = dict[str, dict["Connection", None]]


class Watches:
    """The watches of all connections, by path; each fires once, except for the persistent recursive ones."""

    def __init__(self, kind: RecursiveWatches = "3.9") -> None:
        self.kind = kind
        self.data: Table = {}
        self.child: Table = {}
        self.recursive: Table = {}

    def add(self, table: Table, path: str, connection: Connection) -> None:
        if self.kind == "3.8" and table is self.data:
            self.recursive.get(path, {}).pop(connection, None)
        table.setdefault(path, {})[connection] = None

    def remove(self, path: str, connection: Connection) -> bool:
        """Remove the connection's watches of every kind on the path; False if there are none."""
        tables = [table for table in (self.data, self.child, self.recursive) if connection in table.get(path, {})]
        for table in tables:
            del table[path][connection]
        return bool(tables)

    def forget(self, connection: Connection) -> None:
        for table in (self.data, self.child, self.recursive):
            for path in [path for path, watchers in table.items() if connection in watchers]:
                del table[path][connection]
                if not table[path]:
                    del table[path]

    def fire(self, kind: int, path: str, zxid: int) -> None:
        receivers = self.child.pop(path, {}) if kind == CHILD else self.data.pop(path, {})
        if kind == DELETED:
            receivers = {**receivers, **self.child.pop(path, {})}
        if kind != CHILD and self.recursive:
            for watched in _upwards(path):
                receivers = {**receivers, **self.recursive.get(watched, {})}
        for connection in receivers:
            connection.write(_event(kind, path, zxid if self.kind == "3.9" else -1))


def _upwards(path: str) -> Iterator[str]:
    """The path and those above it, up to the root."""
    while path != "/":
        yield path
        path = path.rpartition("/")[0] or "/"
    yield path


def _event(kind: int, path: str, zxid: int) -> bytes:
    return _REPLY.pack(EVENT_XID, zxid, OK) + struct.pack(">ii", kind, SYNC_CONNECTED) + string(path)


class Server(Protocol):
    """The source of one server's reads: the leader, which is the model itself, or a follower."""

    tree: Tree
    watches: Watches
    zxid: int

    def catch_up(self) -> None:
        """Apply everything that the leader has committed, before the answer to a write and for ``sync``."""


class Replica(Server, Protocol):
    def take(self, transaction: Transaction, zxid: int) -> None:
        """Receive a transaction that the leader has committed."""


class ZooKeeperModel:
    def __init__(self, *, tick_ms: int = 500, recursive_watches: RecursiveWatches = "3.9") -> None:
        self.followers: list[Replica] = []
        self.stale_reads = 0
        """The number of reads that were answered with outdated data."""
        self.tree = Tree()
        self.watches = Watches(recursive_watches)
        self.sessions: dict[int, Session] = {}
        self.zxid = 0
        self.tick_ms = tick_ms
        self.refuses: Refuses = ""
        self.users: dict[str, str] | None = None
        """The users that may log in by SASL, with their passwords; None: there is no SASL, and every login succeeds."""
        self.requires_login = False
        self._logins = 0
        self._next_session = 0x100000000000001

    # -- sessions --------------------------------------------------------------------------------------------------

    def handshake(self, connection: Connection, body: Reader, now_ms: int) -> None:
        body.int32()
        seen, timeout_ms, session_id, password = body.int64(), body.int32(), body.int64(), body.buffer() or b""
        if self.refuses or seen > connection.server.zxid:
            connection.end()
            return
        if session_id == 0:
            session = self._open(timeout_ms)
            connection.server.catch_up()
        else:
            known = self.sessions.get(session_id)
            if known is not None and known.connection is not None and known.connection.server is connection.server:
                known.connection.end()  # before the password is checked
            if known is None or known.password != password:
                connection.write(struct.pack(">iiq", 0, 0, 0) + buffer(bytes(16)) + b"\0")
                connection.end()
                return
            session = known
            session.timeout_ms = self._clamped(timeout_ms)
        session.connection = connection
        connection.session = session
        self._touch(session, now_ms)
        connection.write(struct.pack(">iiq", 0, session.timeout_ms, session.id) + buffer(session.password) + b"\0")

    def _open(self, timeout_ms: int) -> Session:
        self.zxid += 1
        session_id = self._next_session
        self._next_session += 1
        password = hashlib.md5(b"session %d" % session_id, usedforsecurity=False).digest()
        session = self.sessions[session_id] = Session(session_id, password, self._clamped(timeout_ms))
        return session

    def _clamped(self, timeout_ms: int) -> int:
        return max(2 * self.tick_ms, min(timeout_ms, 20 * self.tick_ms))

    def _touch(self, session: Session, now_ms: int) -> None:
        """Extend the session; sessions end at whole ticks, like those in the server's buckets."""
        session.expires_ms = ((now_ms + session.timeout_ms) // self.tick_ms + 1) * self.tick_ms

    def end_session(self, session: Session, now_ms: int) -> None:
        """End the session and delete its ephemerals in one transaction, which fires the watches of other sessions."""
        del self.sessions[session.id]
        self.zxid += 1
        transaction = Transaction(self.tree, self.zxid, now_ms, session.id, ())
        for path in session.ephemerals:
            transaction.remove(path)
        session.ephemerals = {}
        self._fire_watches(transaction)

    def _fire_watches(self, transaction: Transaction) -> None:
        """Fire the leader's watches now, and those of each follower when it receives the transaction."""
        for kind, path in transaction.events:
            self.watches.fire(kind, path, self.zxid)
        for follower in self.followers:
            follower.take(transaction, self.zxid)

    def catch_up(self) -> None:
        """Do nothing: the leader has everything."""

    def expire(self, now_ms: int) -> None:
        """End every session that has been silent for too long; called once per tick."""
        for session in [s for s in self.sessions.values() if s.expires_ms <= now_ms]:
            self.end_session(session, now_ms)
            if session.connection is not None:
                session.connection.end()

    def new_leader(self, now_ms: int) -> None:
        """Make another server the leader.

        Its zxids begin above all earlier ones, every server has all transactions, and every session gets its full
        timeout again.
        """
        self.zxid = ((self.zxid >> EPOCH_BITS) + 1) << EPOCH_BITS
        for follower in self.followers:
            follower.catch_up()
        for session in self.sessions.values():
            self._touch(session, now_ms)

    # -- requests --------------------------------------------------------------------------------------------------

    def request(self, connection: Connection, session: Session, body: Reader, now_ms: int) -> None:
        xid, opcode = body.int32(), body.int32()
        self._touch(session, now_ms)
        if opcode == CLOSE_SESSION:
            self.end_session(session, now_ms)
            connection.write(_REPLY.pack(xid, self.zxid, OK))
            connection.end()
            return
        if opcode == AUTH:
            self._authenticate(connection, xid, body)
            return
        if opcode == SASL:
            self._log_in(connection, xid, body)
            return
        if self.requires_login and not connection.logged_in:
            connection.write(_REPLY.pack(xid, 0, LOGIN_REQUIRED))
            connection.end()
            return
        transaction = None
        if opcode in WRITES or opcode == MULTI:
            self.zxid += 1
            if session.connection is not connection:  # SessionMoved
                connection.end()
                return
            transaction = Transaction(self.tree, self.zxid, now_ms, session.id, connection.identities)
        code, payload = OK, b""
        try:
            if opcode == MULTI:
                assert transaction is not None
                payload = self._multi(body, transaction)
            elif transaction is not None:
                payload = _write(opcode, body, transaction)
            else:
                payload = self._read(opcode, body, connection)
        except Refused as refused:
            code = refused.code
            if transaction is not None:
                transaction.rollback()
                transaction = None
        if transaction is not None:
            self._commit(transaction)
        if opcode in WRITES or opcode == MULTI:
            connection.server.catch_up()
        connection.write(_REPLY.pack(xid, connection.server.zxid, code) + payload)
        if code == UNIMPLEMENTED and opcode not in WRITES and opcode != MULTI:
            connection.end()  # as ZooKeeper does after a type of request that it does not know

    def _commit(self, transaction: Transaction) -> None:
        for owner, path, came in transaction.ephemerals:
            ephemerals = self.sessions[owner].ephemerals
            if came:
                ephemerals[path] = None
            else:
                del ephemerals[path]
        self._fire_watches(transaction)

    def _authenticate(self, connection: Connection, xid: int, body: Reader) -> None:
        body.int32()
        scheme, credential = body.string(), body.buffer() or b""
        if scheme != "digest":
            connection.write(_REPLY.pack(xid, 0, AUTH_FAILED))
            connection.end()
            return
        digest = base64.b64encode(hashlib.sha1(credential, usedforsecurity=False).digest()).decode()
        connection.identities.append(("digest", f"{credential.partition(b':')[0].decode()}:{digest}"))
        connection.write(_REPLY.pack(xid, 0, OK))

    def _log_in(self, connection: Connection, xid: int, body: Reader) -> None:
        """Answer one step of a login; the last token is the server's proof.  A refused login ends the connection."""
        token, answer = body.buffer() or b"", None
        if self.users is not None and connection.login is None:
            self._logins += 1
            connection.login = DigestLogin(self.users, hashlib.sha256(b"login %d" % self._logins).hexdigest()[:40])
            answer = connection.login.challenge()
        elif connection.login is not None:
            try:
                user, answer = connection.login.answer(token)
            except LoginRefusedError:
                connection.write(_REPLY.pack(xid, 0, AUTH_FAILED) + buffer(None))
                connection.end()
                return
            connection.identities.append(("sasl", user))
            connection.logged_in = True
        connection.write(_REPLY.pack(xid, 0, OK) + buffer(answer))

    def _multi(self, body: Reader, transaction: Transaction) -> bytes:
        ops = []
        while True:
            kind, done = body.int32(), body.boolean()
            body.int32()
            if done:
                break
            ops.append((kind, _arguments(kind, body)))
        results, failure = [], None
        for index, (kind, arguments) in enumerate(ops):
            try:
                results.append(_RESULT.pack(kind, False, OK) + _apply(kind, arguments, transaction))
            except Refused as refused:
                failure = index, refused.code
                break
        if failure is not None:
            transaction.rollback()
            transaction.events, transaction.ephemerals = [], []
            index, code = failure
            codes = [OK] * index + [code] + [RUNTIME_INCONSISTENCY] * (len(ops) - index - 1)
            results = [_RESULT.pack(-1, False, code) + _INT.pack(code) for code in codes]
        return b"".join(results) + _RESULT.pack(-1, True, -1)

    def _read(self, opcode: int, body: Reader, connection: Connection) -> bytes:
        if opcode == PING:
            return b""
        if opcode == SET_WATCHES:
            self._set_watches(body, connection)
            return b""
        if opcode in (ADD_WATCH, SET_WATCHES2, REMOVE_WATCHES):
            return self._recursive(opcode, body, connection)
        if opcode == MULTI_READ and connection.server.watches.kind != "no":
            return self._multi_read(body, connection)
        if opcode not in (
            EXISTS,
            GET_DATA,
            GET_ACL,
            GET_CHILDREN,
            GET_CHILDREN2,
            SYNC,
            GET_EPHEMERALS,
            GET_ALL_CHILDREN_NUMBER,
        ):
            raise Refused(UNIMPLEMENTED)
        path, tree = body.string(), connection.server.tree
        if opcode == SYNC:
            connection.server.catch_up()
            return string(path)
        if opcode == GET_EPHEMERALS:
            assert connection.session is not None
            return strings([p for p in connection.session.ephemerals if p.startswith(path)])
        if opcode == GET_ALL_CHILDREN_NUMBER:
            tree.readable(path, connection.identities)
            return _INT.pack(tree.descendants(path))
        if opcode == GET_ACL:
            return _acl(tree.readable(path, connection.identities))
        return self._get(opcode, path, body.boolean(), connection)

    def _get(self, opcode: int, path: str, watch: bool, connection: Connection) -> bytes:
        server = connection.server
        node = server.tree.nodes.get(path)
        self.stale_reads += server is not self and node is not self.tree.nodes.get(path)
        if node is not None:
            check_acl(node, 1, connection.identities)
        if watch and (node is not None or opcode == EXISTS):
            children = opcode in (GET_CHILDREN, GET_CHILDREN2)
            server.watches.add(server.watches.child if children else server.watches.data, path, connection)
        if node is None:
            raise Refused(-101)
        if opcode == GET_DATA:
            return buffer(node.data) + node.stat()
        if opcode == EXISTS:
            return node.stat()
        return strings(node.children) + (node.stat() if opcode == GET_CHILDREN2 else b"")

    def _multi_read(self, body: Reader, connection: Connection) -> bytes:
        results: list[bytes] = []
        while True:
            opcode, done = body.int32(), body.boolean()
            body.int32()
            if done:
                return b"".join(results) + _RESULT.pack(-1, True, -1)
            path = body.string()
            body.boolean()  # the server does not arm a watch in a multi-read
            try:
                if opcode not in (GET_DATA, GET_CHILDREN):
                    raise Refused(UNIMPLEMENTED)
                results.append(_RESULT.pack(opcode, False, OK) + self._get(opcode, path, False, connection))
            except Refused as refused:
                results.append(_RESULT.pack(-1, False, refused.code) + _INT.pack(refused.code))

    def _set_watches(self, body: Reader, connection: Connection) -> None:
        since, data, exist, child = body.int64(), body.strings(), body.strings(), body.strings()
        nodes, send, watches = connection.server.tree.nodes, connection.write, connection.server.watches
        for path in data:
            if path not in nodes:
                send(_event(DELETED, path, -1))
            elif nodes[path].mzxid > since:
                send(_event(CHANGED, path, -1))
            else:
                watches.add(watches.data, path, connection)
        for path in exist:
            if path in nodes:
                send(_event(CREATED, path, -1))
            else:
                watches.add(watches.data, path, connection)
        for path in child:
            if path not in nodes:
                send(_event(DELETED, path, -1))
            elif nodes[path].pzxid > since:
                send(_event(CHILD, path, -1))
            else:
                watches.add(watches.child, path, connection)

    def _recursive(self, opcode: int, body: Reader, connection: Connection) -> bytes:
        watches = connection.server.watches
        if watches.kind == "no" and opcode != REMOVE_WATCHES:
            raise Refused(UNIMPLEMENTED)
        if opcode == SET_WATCHES2:
            self._set_watches(body, connection)
            if body.strings():
                raise Refused(UNIMPLEMENTED)
            for path in body.strings():
                watches.add(watches.recursive, path, connection)
            return b""
        path, kind = body.string(), body.int32()
        if kind != (PERSISTENT_RECURSIVE if opcode == ADD_WATCH else ANY_WATCH):
            raise Refused(UNIMPLEMENTED)
        if opcode == ADD_WATCH:
            watches.add(watches.recursive, path, connection)
            return _INT.pack(OK)
        if not watches.remove(path, connection):
            raise Refused(NO_WATCHER)
        return b""


# -- operations, from their bytes -------------------------------------------------------------------------------------

Arguments = tuple[str, bytes | None, tuple[Acl, ...], int]
"""(path, data, ACL, flags or version); empty for what an operation does not have."""


def _arguments(kind: int, body: Reader) -> Arguments:
    path = body.string()
    if kind in (CREATE, CREATE2):
        return path, body.buffer(), _acl_vector(body), body.int32()
    if kind == SET_DATA:
        return path, body.buffer(), (), body.int32()
    if kind == SET_ACL:
        return path, None, _acl_vector(body), body.int32()
    if kind in (DELETE, CHECK):
        return path, None, (), body.int32()
    raise Refused(UNIMPLEMENTED)


def _apply(kind: int, arguments: Arguments, transaction: Transaction) -> bytes:
    path, data, acl, number = arguments
    if kind in (CREATE, CREATE2):
        if number not in (0, 1, 2, 3):
            raise Refused(UNIMPLEMENTED)
        created = transaction.create(path, data, acl, number)
        return string(created) + (transaction.peek(created).stat() if kind == CREATE2 else b"")
    if kind == SET_DATA:
        return transaction.set_data(path, data, number).stat()
    if kind == SET_ACL:
        return transaction.set_acl(path, acl, number).stat()
    if kind == DELETE:
        transaction.delete(path, number)
    else:
        transaction.check(path, number)
    return b""


def _write(opcode: int, body: Reader, transaction: Transaction) -> bytes:
    return _apply(opcode, _arguments(opcode, body), transaction)


def _acl_vector(body: Reader) -> tuple[Acl, ...]:
    return tuple((body.int32(), body.string(), body.string()) for _ in range(body.int32()))


def _acl(node: ZNode) -> bytes:
    entries = [_INT.pack(perms) + string(scheme) + string(name) for perms, scheme, name in node.acl]
    return _INT.pack(len(entries)) + b"".join(entries) + node.stat()
