"""What this program takes from aiozk, and the only module that imports it.

aiozk is a component here: the messages of single operations, Stat, ACL, and the exceptions.  ``ZooKeeperSession``
carries the messages; aiozk's own client, session, connection and recipes are not used (docs/zookeeper.md says why).
All names are public ones; ``tests/unit/zookeeper/test_from_aiozk.py`` holds the list.
"""

from __future__ import annotations

from aiozk import exc
from aiozk.protocol.acl import ACL, UNRESTRICTED_ACCESS, GetACLRequest
from aiozk.protocol.children import GetChildren2Request
from aiozk.protocol.create import Create2Request
from aiozk.protocol.data import GetDataRequest, SetDataRequest
from aiozk.protocol.delete import DeleteRequest
from aiozk.protocol.exists import ExistsRequest
from aiozk.protocol.response import response_xref
from aiozk.protocol.stat import Stat

__all__ = [
    "ACL",
    "UNRESTRICTED_ACCESS",
    "Create2Request",
    "DeleteRequest",
    "ExistsRequest",
    "GetACLRequest",
    "GetChildren2Request",
    "GetDataRequest",
    "SetDataRequest",
    "Stat",
    "exc",
    "response_xref",
]
