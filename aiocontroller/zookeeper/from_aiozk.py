"""What this program takes from aiozk, and the only module that imports it.

aiozk is a component here: the handshake, the messages of single operations, credentials, sync, ping and close, Stat,
ACL, and the exceptions.  ``ZooKeeperSession`` carries the messages; aiozk's own client, session, connection, bulk
messages and recipes are not used (docs/zookeeper.md says why, part by part).  All names are public ones;
``tests/unit/zookeeper/test_from_aiozk.py`` holds the list.
"""

from __future__ import annotations

from aiozk import exc
from aiozk.protocol.acl import ACL, UNRESTRICTED_ACCESS, GetACLRequest
from aiozk.protocol.auth import AUTH_XID, AuthRequest
from aiozk.protocol.children import GetChildren2Request
from aiozk.protocol.close import CloseRequest
from aiozk.protocol.connect import ConnectRequest, ConnectResponse
from aiozk.protocol.create import Create2Request
from aiozk.protocol.data import GetDataRequest, SetDataRequest
from aiozk.protocol.delete import DeleteRequest
from aiozk.protocol.exists import ExistsRequest
from aiozk.protocol.ping import PING_XID, PingRequest
from aiozk.protocol.response import response_xref
from aiozk.protocol.stat import Stat
from aiozk.protocol.sync import SyncRequest
from aiozk.protocol.watches import WATCH_XID

__all__ = [
    "ACL",
    "AUTH_XID",
    "PING_XID",
    "UNRESTRICTED_ACCESS",
    "WATCH_XID",
    "AuthRequest",
    "CloseRequest",
    "ConnectRequest",
    "ConnectResponse",
    "Create2Request",
    "DeleteRequest",
    "ExistsRequest",
    "GetACLRequest",
    "GetChildren2Request",
    "GetDataRequest",
    "PingRequest",
    "SetDataRequest",
    "Stat",
    "SyncRequest",
    "exc",
    "response_xref",
]
