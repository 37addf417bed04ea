"""The tree of a ZooKeeper server: znodes, stats, sequence numbers, permissions and transactions.  No I/O.

Semantics as observed on ZooKeeper 3.9.5:
 * every set raises the version, even with equal data; children change their parent's pzxid, but not its mzxid;
 * the suffix of a sequential znode is the number of creates under its parent so far, plain ones included;
 * the ``cversion`` of a stat is twice that number minus the number of present children;
 * an ephemeral cannot have children; a znode with children cannot be deleted;
 * later operations of a transaction see the effect of earlier ones; a failed transaction leaves no trace in the tree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

OK = 0
BAD_ARGUMENTS, NO_NODE, NO_AUTH, BAD_VERSION = -8, -101, -102, -103
NO_CHILDREN_FOR_EPHEMERALS, NODE_EXISTS, NOT_EMPTY, INVALID_ACL = -108, -110, -111, -114
CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4
EPHEMERAL, SEQUENTIAL = 1, 2
READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16

_STAT = struct.Struct(">qqqqiiiqiiq")

Acl = tuple[int, str, str]
"""(permissions, scheme, id)."""
Identity = tuple[str, str]
OPEN: tuple[Acl, ...] = ((31, "world", "anyone"),)


class Refused(Exception):
    """Raised when the server answers the operation with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ZNode:
    __slots__ = (
        "acl", "aversion", "children", "creates", "ctime", "czxid",
        "data", "mtime", "mzxid", "owner", "pzxid", "version",
    )  # fmt: skip

    def __init__(self, data: bytes | None, acl: tuple[Acl, ...], zxid: int, now_ms: int, owner: int) -> None:
        self.data = data
        self.acl = acl
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now_ms
        self.version = self.aversion = self.creates = 0
        self.owner = owner
        self.children: dict[str, None] = {}

    def copy(self) -> ZNode:
        twin = ZNode.__new__(ZNode)
        for name in ZNode.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.children = dict(self.children)
        return twin

    def stat(self) -> bytes:
        return _STAT.pack(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            2 * self.creates - len(self.children),
            self.aversion,
            self.owner,
            len(self.data or b""),
            len(self.children),
            self.pzxid,
        )


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def is_path(path: str) -> bool:
    """Return whether the server accepts ``path`` for a new znode."""
    if path == "/":
        return True
    names = path.split("/")
    return names[0] == "" and all(name not in ("", ".", "..") and "\0" not in name for name in names[1:])


class Transaction:
    """Operations under one zxid: each is applied immediately, and ``rollback`` undoes all of them."""

    def __init__(self, tree: Tree, zxid: int, now_ms: int, session_id: int, identities: Iterable[Identity]) -> None:
        self._nodes = tree.nodes
        self._before: dict[str, ZNode | None] = {}
        self._zxid = zxid
        self.now_ms = now_ms
        self.session_id = session_id
        self._identities = tuple(identities)
        self.events: list[tuple[int, str]] = []
        """(type, path) in the order in which watches fire; DELETED also fires child watches."""
        self.ephemerals: list[tuple[int, str, bool]] = []
        """(owner, path, True if it was created or False if it was deleted)."""
        self.checked: list[str] = []
        """Paths whose version was checked successfully."""

    def _node(self, path: str) -> ZNode:
        """Return a copy of the znode, which replaces it and may be changed."""
        node = self._nodes.get(path)
        if node is None:
            raise Refused(NO_NODE)
        if path not in self._before:
            self._before[path] = node
            node = self._nodes[path] = node.copy()
        return node

    @property
    def touched(self) -> dict[str, ZNode | None]:
        """Map each changed path to its present znode; None if it is deleted.

        A znode in the tree never changes after its transaction: a later change replaces it.
        """
        return {path: self._nodes.get(path) for path in self._before}

    def rollback(self) -> None:
        for path, node in self._before.items():
            if node is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node

    def create(self, path: str, data: bytes | None, acl: tuple[Acl, ...], flags: int) -> str:
        """Create a znode and return its path, with the suffix if it is sequential."""
        if not path.startswith("/") or "\0" in path:
            raise Refused(BAD_ARGUMENTS)
        acl = self._given(acl)
        above = parent_of(path)
        parent = self._nodes.get(above)
        if parent is None:
            raise Refused(NO_NODE)
        check_acl(parent, CREATE, self._identities)
        if flags & SEQUENTIAL:
            path += f"{parent.creates:010d}"
        if not is_path(path):
            raise Refused(BAD_ARGUMENTS)
        if path in self._nodes:
            raise Refused(NODE_EXISTS)
        if parent.owner:
            raise Refused(NO_CHILDREN_FOR_EPHEMERALS)
        parent = self._node(above)
        owner = self.session_id if flags & EPHEMERAL else 0
        parent.children[path[path.rindex("/") + 1 :]] = None
        parent.creates += 1
        parent.pzxid = self._zxid
        self._before.setdefault(path, None)
        self._nodes[path] = ZNode(data, acl, self._zxid, self.now_ms, owner)
        if owner:
            self.ephemerals.append((owner, path, True))
        self.events += [(CREATED, path), (CHILD, above)]
        return path

    def _given(self, acl: tuple[Acl, ...]) -> tuple[Acl, ...]:
        """Return the ACL with ``auth`` replaced by the client's own identities."""
        given: dict[Acl, None] = {}
        for perms, scheme, name in acl:
            if scheme == "auth":
                given.update({(perms, s, n): None for s, n in self._identities if s != "ip"})
            else:
                given[perms, scheme, name] = None
        if not given:
            raise Refused(INVALID_ACL)
        return tuple(given)

    def delete(self, path: str, version: int) -> None:
        if path == "/" or not path.startswith("/"):
            raise Refused(BAD_ARGUMENTS)
        above = parent_of(path)
        parent, node = self._nodes.get(above), self._nodes.get(path)
        if parent is None or node is None:
            raise Refused(NO_NODE)
        check_acl(parent, DELETE, self._identities)
        check_version(node.version, version)
        if node.children:
            raise Refused(NOT_EMPTY)
        self.remove(path)

    def remove(self, path: str) -> None:
        """Delete a znode without any check, as the end of a session does."""
        above = parent_of(path)
        node, parent = self._node(path), self._node(above)
        del self._nodes[path]
        del parent.children[path[path.rindex("/") + 1 :]]
        parent.pzxid = self._zxid
        if node.owner:
            self.ephemerals.append((node.owner, path, False))
        self.events += [(DELETED, path), (CHILD, above)]

    def set_data(self, path: str, data: bytes | None, version: int) -> ZNode:
        if not is_path(path):
            raise Refused(BAD_ARGUMENTS)
        node = self._nodes.get(path)
        if node is None:
            raise Refused(NO_NODE)
        check_acl(node, WRITE, self._identities)
        check_version(node.version, version)
        node = self._node(path)
        node.data, node.mzxid, node.mtime = data, self._zxid, self.now_ms
        node.version += 1
        self.events.append((CHANGED, path))
        return node.copy()

    def set_acl(self, path: str, acl: tuple[Acl, ...], version: int) -> ZNode:
        acl = self._given(acl)
        if not is_path(path):
            raise Refused(BAD_ARGUMENTS)
        node = self._nodes.get(path)
        if node is None:
            raise Refused(NO_NODE)
        check_acl(node, ADMIN, self._identities)
        check_version(node.aversion, version)
        node = self._node(path)
        node.acl = acl
        node.aversion += 1
        return node.copy()

    def peek(self, path: str) -> ZNode:
        return self._nodes[path]

    def check(self, path: str, version: int) -> None:
        if not is_path(path):
            raise Refused(BAD_ARGUMENTS)
        node = self._nodes.get(path)
        if node is None:
            raise Refused(NO_NODE)
        check_acl(node, READ, self._identities)
        check_version(node.version, version)
        self.checked.append(path)


def check_version(found: int, expected: int) -> None:
    if expected not in (-1, found):
        raise Refused(BAD_VERSION)


def check_acl(node: ZNode, permission: int, identities: Sequence[Identity]) -> None:
    for perms, scheme, name in node.acl:
        if perms & permission and ((scheme, name) == ("world", "anyone") or (scheme, name) in identities):
            return
    raise Refused(NO_AUTH)


class Tree:
    """All znodes by path; only ``Transaction`` changes them."""

    def __init__(self) -> None:
        self.nodes: dict[str, ZNode] = {"/": ZNode(b"", OPEN, 0, 0, 0)}

    def readable(self, path: str, identities: Sequence[Identity]) -> ZNode:
        node = self.nodes.get(path)
        if node is None:
            raise Refused(NO_NODE)
        check_acl(node, READ, identities)
        return node

    def descendants(self, path: str) -> int:
        """Return the number of all znodes below ``path``."""
        prefix = path.rstrip("/") + "/"
        return sum(name.startswith(prefix) and name != "/" for name in self.nodes)
