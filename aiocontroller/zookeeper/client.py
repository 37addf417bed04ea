"""``ZooKeeperClient``: ZooKeeper on a connection and a session that a controller can rely on.

Methods of a single znode (get, set, create, delete, exists, get_children, ACLs) send aiozk's messages through our
session: it repeats reads after lost connections, but not writes (NotSentError, MaybeAppliedError).  ``delete`` and
``set_data`` are unconditional.

Bulk methods work on many znodes at once and return columns; see ``reads.py`` and ``writes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Any

import msgspec

from aiocontroller.core.errors import BadInputError, ControllerMovedError
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import World
from aiocontroller.net.tasks import Tasks
from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.addresses import parse_connect_string
from aiocontroller.zookeeper.codec import NO_NODE, NODE_EXISTS, OK, Check, Create, Delete, Op, OpResult, SetData
from aiocontroller.zookeeper.errors import (
    Code,
    RecursiveWatchUnsupportedError,
    SessionExpiredError,
    response_error,
)
from aiocontroller.zookeeper.from_aiozk import (
    UNRESTRICTED_ACCESS,
    Create2Request,
    DeleteRequest,
    ExistsRequest,
    GetACLRequest,
    GetChildren2Request,
    GetDataRequest,
    SetDataRequest,
    Stat,
    SyncRequest,
    exc,
)
from aiocontroller.zookeeper.reads import BulkReader, Children, Exists, Reads
from aiocontroller.zookeeper.session import CLOSE_WITHIN_S, ZooKeeperSession
from aiocontroller.zookeeper.session_events import SessionEvent, SessionHandler
from aiocontroller.zookeeper.writes import BulkWriter, WriteOp, Writes
from aiocontroller.zookeeper.znode_acls import AclRule, EncodedAcls

__all__ = [
    "Check",
    "Children",
    "Create",
    "Delete",
    "Exists",
    "OpResult",
    "Reads",
    "SessionEvent",
    "SetData",
    "Statistics",
    "Writes",
    "ZooKeeperClient",
]

CONTROLLER_EPOCH_PATH = "/controller_epoch"
MAX_DELETE_ROUNDS = 100


class Statistics(msgspec.Struct, frozen=True):
    """A snapshot of the client's statistics since its start; sizes in bytes."""

    state: str
    session_id: int
    session_epoch: int
    session_timeout_s: float
    connects: int
    suspensions: int
    expiries: int
    failed_attempts: int
    in_flight: int
    bytes_in_flight: int
    waiting: int
    requests: int
    replies: int
    events: int
    bytes_sent: int
    bytes_received: int
    writes_to_socket: int
    watches: int
    znodes_read: int
    znodes_written: int
    conflicts: int
    lost_answers: int


class ZooKeeperClient:
    """A client whose paths are below its chroot.  ``docs/zookeeper.md`` says what a caller can rely on."""

    def __init__(
        self,
        connect: str,
        *,
        world: World,
        session_timeout_s: float = 18.0,
        metrics: Metrics | None = None,
        ssl: SSLContext | None = None,
        sasl_digest: tuple[str, str] | None = None,
        digest: tuple[str, str] | None = None,
        default_acl: Sequence[Any] | None = None,
        acl_rule: AclRule | None = None,
    ) -> None:
        """``connect``: ``host:port,[ipv6]:port/chroot``; raises BadInputError for an invalid string.

        ``sasl_digest``: user name and password for SASL DIGEST-MD5, ``digest``: for the scheme digest; both are used
        on every connection.  Znodes created without an ACL get ``acl_rule(path)``, or else ``default_acl``, which by
        default is open to the world.
        """
        hosts, chroot = parse_connect_string(connect)
        self.chroot = chroot or None
        self.world = world
        self.session = ZooKeeperSession(
            hosts, session_timeout_s, world, ssl=ssl, sasl_digest=sasl_digest, metrics=metrics
        )
        self.session.on_watch = self._watch_fired
        if digest is not None:
            self.session.add_early_credentials("digest", ":".join(digest).encode())
        self.default_acl = list(default_acl) if default_acl else [UNRESTRICTED_ACCESS]
        self._acl_rule = acl_rule
        self._encoded_acls = EncodedAcls(self._acl_for)
        self._prefix = chroot
        self._reader = BulkReader(self.session)
        self._writer = BulkWriter(self.session, self._reader, self._encoded_acl)
        self.on_watch: Callable[[int, str], None] | None = None
        self.fence_generation: int | None = None
        """The generation of the session that won ``/controller``; fences are valid only in it.  None: in any."""

    # -- life ----------------------------------------------------------------------------------------------------------

    @property
    def ssl(self) -> SSLContext | None:
        """The TLS context of new connections; None: no TLS."""
        return self.session.ssl

    @ssl.setter
    def ssl(self, context: SSLContext | None) -> None:
        self.session.ssl = context

    async def start(
        self, timeout_s: float | None = None, *, tasks: Tasks | None = None, create_chroot: bool = True
    ) -> None:
        """Open a session, trying until it succeeds, and, with ``create_chroot``, create the chroot.

        The session's task runs in ``tasks``, a task group that must not end before the client is closed; without one,
        for commands and tests, it runs outside of any group.
        Raises AuthFailedError, and, after ``timeout_s``, TimeoutError, which names the addresses.
        """
        await self.session.start(timeout_s, tasks)
        if self._prefix and create_chroot:
            await self._ensure_full(self._prefix, None)

    async def close(self, within_s: float = CLOSE_WITHIN_S) -> None:
        """Close the session, which deletes its ephemerals at once; always returns; a second call does nothing."""
        await self.session.close(within_s)

    @property
    def session_id(self) -> int:
        """The session id; 0 without a session."""
        return self.session.session_id

    @property
    def session_password(self) -> bytes:
        """The password with which another connection may resume the session; 16 bytes."""
        return self.session.password

    @property
    def session_epoch(self) -> int:
        """Number of sessions opened so far: increases with each new session id."""
        return self.session.epoch

    @property
    def session_timeout_s(self) -> float:
        """The negotiated session timeout, in seconds; without a session, the requested one."""
        return float(self.session.timeout_s)

    @property
    def connected(self) -> bool:
        """Whether there is a connection now; the session may live on without one."""
        return self.session.conn is not None

    @property
    def on_session(self) -> SessionHandler | None:
        """Called with each SessionEvent; with EXPIRED before the next session opens."""
        return self.session.on_session

    @on_session.setter
    def on_session(self, handler: SessionHandler | None) -> None:
        self.session.on_session = handler

    async def add_auth(self, scheme: str, credential: bytes) -> None:
        """Authenticate (``digest``, ``b"user:password"``) now or at the start, and again when reconnected."""
        await self.session.add_auth(scheme, credential)

    # -- paths ---------------------------------------------------------------------------------------------------------

    def normalize_path(self, path: str) -> str:
        """The full path, below the chroot and without empty parts."""
        return "/" + "/".join(name for name in f"{self._prefix}/{path}".split("/") if name)

    def denormalize_path(self, path: str) -> str:
        """A full path without the chroot."""
        prefix = self._prefix
        if prefix and (path == prefix or path.startswith(prefix + "/")):
            return path[len(prefix) :] or "/"
        return path

    def _full(self, path: str) -> str:
        return (self._prefix + path if path != "/" else self._prefix) if self._prefix else path

    def _full_all(self, paths: Sequence[str]) -> Sequence[str]:
        prefix = self._prefix
        if not prefix:
            return paths
        return [prefix + path for path in paths] if "/" not in paths else [self._full(path) for path in paths]

    def _fence(self, fence: int | None) -> tuple[str, int] | None:
        if fence is None:
            return None
        if self.fence_generation not in (None, self.session.generation):
            # The version may still match if no other controller was elected, but the role ended with the session.
            raise SessionExpiredError("the ZooKeeper session in which this fence was won has expired")
        return (self._full(CONTROLLER_EPOCH_PATH), fence)

    def _watch_fired(self, kind: int, path: str) -> None:
        if self.on_watch is not None:
            self.on_watch(kind, self.denormalize_path(path))

    def _acl_for(self, path: str) -> Sequence[Any]:
        return self.default_acl if self._acl_rule is None else self._acl_rule(path)

    def _encoded_acl(self, raw: bytes) -> bytes:
        """The ACL of a new znode, by its full path."""
        return self._encoded_acls("" if self._acl_rule is None else self.denormalize_path(raw.decode()))

    # -- single operations ---------------------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes | str | None = None,
        acl: Sequence[Any] | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> str:
        """Create one znode and return its path; the request is never sent twice."""
        request = Create2Request(path=self.normalize_path(path), data=data, acl=list(acl or self._acl_for(path)))
        request.set_flags(ephemeral, sequential, container=False)
        return self.denormalize_path((await self.session.send(request)).path)

    async def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        """Data and Stat; raises ``exc.NoNode``."""
        found = await self.session.send(GetDataRequest(path=self.normalize_path(path), watch=watch))
        return found.data, found.stat

    async def get_data(self, path: str, watch: bool = False) -> bytes:
        """Data; raises ``exc.NoNode``."""
        return (await self.get(path, watch))[0]

    async def exists(self, path: str, watch: bool = False) -> bool:
        """Whether the znode exists; ``watch`` arms a watch on its data, or on its creation."""
        try:
            await self.session.send(ExistsRequest(path=self.normalize_path(path), watch=watch))
        except exc.NoNode:
            return False
        return True

    async def get_children(self, path: str, watch: bool = False) -> list[str]:
        """The children's names, in no particular order; raises ``exc.NoNode``."""
        found = await self.session.send(GetChildren2Request(path=self.normalize_path(path), watch=watch))
        return list(found.children)

    async def get_acl(self, path: str) -> list[Any]:
        """The znode's ACL, as aiozk's ``ACL``; raises ``exc.NoNode``."""
        return list((await self.session.send(GetACLRequest(path=self.normalize_path(path)))).acl)

    async def set_data(self, path: str, data: bytes | str, version: int = -1) -> Stat:
        """Write at that version, -1 for any; raises ``exc.BadVersion`` and ``exc.NoNode``."""
        request = SetDataRequest(path=self.normalize_path(path), data=data, version=version)
        return (await self.session.send(request)).stat

    async def set(self, path: str, data: bytes | str, version: int) -> Stat:
        """``set_data`` with a required version."""
        return await self.set_data(path, data, version)

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete at that version, -1 for any; raises ``exc.NoNode``, ``exc.BadVersion`` and ``exc.NotEmpty``."""
        await self.session.send(DeleteRequest(path=self.normalize_path(path), version=version))

    async def ensure_path(self, path: str, acl: Sequence[Any] | None = None) -> None:
        """Create the path and its parents as persistent znodes, if missing."""
        await self._ensure_full(self.normalize_path(path), acl)

    async def _ensure_full(self, full: str, acl: Sequence[Any] | None) -> None:
        names = [name for name in full.split("/") if name]
        ops = [Create("/" + "/".join(names[: i + 1]), acl=acl) for i in range(len(names))]
        found = await self._reader.exists_many([op.path for op in ops], watch=False)
        missing = [op for op, code in zip(ops, found.code, strict=True) if code != OK]
        writes = await self._writer.write_many(missing, [op.path.encode() for op in missing], None)
        for op, code in zip(missing, writes.code, strict=True):
            if code not in (OK, NODE_EXISTS):
                raise response_error(code) from ValueError(f"could not create {op.path}")

    async def sync(self, path: str = "/") -> None:
        """Wait until the connected server has caught up with the leader."""
        await self.session.send(SyncRequest(path=self._full(path)))

    async def ephemerals(self, prefix: str = "") -> list[str]:
        """Paths of this session's ephemeral znodes that begin with ``prefix``, sorted."""
        payload = await self._ask(codec.pack_int(codec.GET_EPHEMERALS) + codec.ustring(self._prefix + prefix))
        return sorted(map(self.denormalize_path, codec.parse_strings(payload)[0]))

    async def all_children_number(self, path: str) -> int:
        """The number of all descendants."""
        payload = await self._ask(codec.pack_int(codec.GET_ALL_CHILDREN_NUMBER) + codec.ustring(self._full(path)))
        with codec.reading("the number of descendants", payload):
            return int(codec.unpack_int(payload, 0)[0])

    async def _ask(self, body: bytes) -> bytes:
        [(code, payload)] = await self.session.exchange([body], retry=True)
        if code != OK:
            raise response_error(code)
        return payload

    # -- bulk ----------------------------------------------------------------------------------------------------------

    async def get_many(self, paths: Sequence[str], *, watch: bool = False) -> Reads:
        """Data of many znodes; ``watch`` arms data watches, and creation watches for missing znodes."""
        return await self._reader.get_many(self._prefix, paths, watch=watch)

    async def children_many(self, paths: Sequence[str], *, watch: bool = False) -> Children:
        """Children's names of many znodes; ``watch`` arms child watches on existing znodes."""
        return await self._reader.children_many(self._full_all(paths), watch=watch)

    async def exists_many(self, paths: Sequence[str], *, watch: bool = False) -> Exists:
        """Stats of many znodes; ``watch`` as for ``get_many``."""
        return await self._reader.exists_many(self._full_all(paths), watch=watch)

    async def set_many(
        self, paths: Sequence[str], datas: Sequence[bytes], versions: Sequence[int], *, fence: int | None = None
    ) -> Writes:
        """Conditional, fenced SetData of many znodes, each independent of the others and applied at most once.

        ``fence`` is the expected version of ``/controller_epoch``; raises ControllerMovedError if it differs.
        """
        return await self._writer.set_many(self._prefix, paths, datas, versions, self._fence(fence))

    async def write_many(self, ops: Sequence[WriteOp], *, fence: int | None) -> Writes:
        """Fenced writes of any kind, each independent of the others and applied at most once.

        Operations are sent in their order, so a parent may come before its child; if a parent's creation is refused,
        the child's code is NoNode.  Sequential creates and two operations on one path raise BadInputError, because
        their outcome could not be determined after a lost answer.
        """
        if any(isinstance(op, Create) and op.sequential for op in ops):
            raise BadInputError("write_many cannot create sequential znodes; use multi or create")
        raw = [self._full(op.path).encode() for op in ops]
        if len(set(raw)) != len(raw):
            twice = next(path for at, path in enumerate(raw) if path in raw[:at])
            raise BadInputError(f"write_many: {twice.decode()} comes twice; expected each path at most once")
        return await self._writer.write_many(ops, raw, self._fence(fence))

    async def write_together(self, groups: Sequence[Sequence[WriteOp]], *, fence: int) -> list[int]:
        """Fenced groups of writes; each group is applied as a whole or not at all, and at most once.

        Returns 0 or the refused operation's code for each group; a path may occur only once in a group.
        """
        where = self._fence(fence)
        assert where is not None
        raw = [[self._full(op.path).encode() for op in ops] for ops in groups]
        return await self._writer.write_together(groups, raw, where)

    async def check(self, path: str, version: int) -> bool:
        """Whether the znode has that version, according to the leader, not just to a server that may lag."""
        check = codec.multi([codec.check_op(self._full(path), version)])
        [(code, payload)] = await self.session.exchange([check], retry=True)
        if code != OK and not payload:
            raise response_error(code)
        return [result.code for result in codec.parse_multi(payload)] == [OK]

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """One atomic multi, never repeated; raises NotSentError or MaybeAppliedError.

        If it fails, nothing was applied: the failed operation has its code, those before it 0, those after it -2.
        """
        raw = [self._full(op.path).encode() for op in ops]
        encoded = [
            codec.encode_op(op, path, self._encoded_acl, with_stat=True) for op, path in zip(ops, raw, strict=True)
        ]
        [(code, payload)] = await self.session.exchange([codec.multi(encoded)], retry=False)
        if code != OK and not payload:
            raise response_error(code)
        results = codec.parse_multi(payload)
        if not self._prefix:
            return results
        return [OpResult(r.code, r.stat, None if r.path is None else self.denormalize_path(r.path)) for r in results]

    async def fenced_multi(self, ops: Sequence[Op], *, fence: int) -> list[OpResult]:
        """Like ``multi``, with the fence; raises ControllerMovedError if the fence no longer holds."""
        self._fence(fence)
        check, *results = await self.multi([Check(CONTROLLER_EPOCH_PATH, fence), *ops])
        if check.code != OK:
            raise ControllerMovedError(f"{CONTROLLER_EPOCH_PATH} is no longer at version {fence} (code {check.code})")
        return results

    async def delete_recursive(self, path: str, fence: int | None = None) -> int:
        """Delete a znode and its descendants, deepest first; returns the number deleted."""
        return await self.delete_all_recursive([path], fence)

    async def delete_all_recursive(self, paths: Sequence[str], fence: int | None = None) -> int:
        """Delete distinct znodes, none below another, and their descendants, deepest first; returns the number deleted.

        Children that appear meanwhile are deleted too; raises NotEmpty if some appear in each of many rounds.
        """
        deleted, remaining = 0, list(paths)
        for _ in range(MAX_DELETE_ROUNDS):
            levels = [remaining]
            while levels[-1]:
                parents = await self._parents_among(levels[-1])
                found = await self.children_many(parents)
                pairs = zip(parents, found.names, strict=True)
                levels.append([f"{parent.rstrip('/')}/{name}" for parent, names in pairs for name in names or ()])
            for level in reversed(levels):
                level = [path for path in level if path != "/"]
                writes = await self.write_many([Delete(path) for path in level], fence=fence)
                deleted += writes.code.count(OK)
                remaining = [path for path, c in zip(level, writes.code, strict=True) if c == Code.NOT_EMPTY]
                if refused := next((c for c in writes.code if c not in (OK, NO_NODE, Code.NOT_EMPTY)), None):
                    raise response_error(refused)
            if not remaining:
                return deleted
        raise exc.NotEmpty(f"{remaining[0]} got new children in each of {MAX_DELETE_ROUNDS} rounds of deletion")

    async def _parents_among(self, paths: Sequence[str]) -> list[str]:
        """The paths that have children.  Reading Stats is ten times cheaper than reading each leaf's children."""
        reads = await self.get_many(paths)
        codes = enumerate(reads.code)
        return [paths[i] for i, code in codes if (reads.num_children(i) if code == OK else code != NO_NODE)]

    def forget_watches(self) -> None:
        """Do not re-arm the present one-shot watches after a reconnect.  Each one on the server may still fire once."""
        self.session.registry.forget()

    async def add_recursive_watch(self, path: str) -> None:
        """Watch a znode and all below it until ``remove_recursive_watch`` or the session's end.

        ``on_watch`` gets the creation, change and deletion of each of them, in order, but no changes of children.  The
        watch is armed again on a new connection; changes until then are not reported.  Put no one-shot watch on the
        same path: before ZooKeeper 3.9 that ends this watch.  Raises RecursiveWatchUnsupportedError.
        """
        full, registry = self._full(path), self.session.registry

        def armed(code: int) -> None:
            if code == OK:
                registry.recursive[full] = None

        [(code, _)] = await self.session.exchange([codec.add_watch(full)], retry=True, hooks=[armed])
        if code in (Code.UNIMPLEMENTED, Code.MARSHALLING_ERROR, Code.NO_AUTH):
            raise RecursiveWatchUnsupportedError(f"{path}: ZooKeeper answers a recursive watch with code {code}")
        if code != OK:
            raise response_error(code)

    async def remove_recursive_watch(self, path: str) -> None:
        """Remove the watch, and this session's one-shot watches on the same path.

        Does nothing if there are none, or if the server does not support recursive watches.
        """
        full = self._full(path)
        self.session.registry.removed(full)
        [(code, _)] = await self.session.exchange([codec.remove_watches(full)], retry=True)
        if code not in (OK, Code.NO_WATCHER, Code.UNIMPLEMENTED):
            raise response_error(code)

    # -- inspection ----------------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """A snapshot of the client's statistics."""
        session, counters = self.session, self.session.counters
        conn = session.conn
        return Statistics(
            state=session.state,
            session_id=session.session_id,
            session_epoch=session.epoch,
            session_timeout_s=session.timeout_s,
            connects=session.metrics.connects.count,
            suspensions=session.metrics.disconnects.count,
            expiries=session.metrics.expires.count,
            failed_attempts=session.failed_attempts,
            in_flight=conn.in_flight if conn is not None else 0,
            bytes_in_flight=conn.bytes_in_flight if conn is not None else 0,
            waiting=session.waiting,
            requests=counters.requests,
            replies=counters.replies,
            events=counters.events,
            bytes_sent=counters.bytes_sent,
            bytes_received=counters.bytes_received,
            writes_to_socket=counters.writes_to_socket,
            watches=len(session.registry),
            znodes_read=self._reader.znodes_read,
            znodes_written=self._writer.znodes_written,
            conflicts=self._writer.conflicts,
            lost_answers=self._writer.lost_answers,
        )
