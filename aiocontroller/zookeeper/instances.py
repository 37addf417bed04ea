"""The instances of this program on a cluster: each describes itself in an ephemeral znode named after its session.

    /aiocontroller_instances/10002c6b5d30001 = {"version":1,"id":1002,"host":"b","state":"standing by",…}

The znodes inform people and decide nothing, so no fence guards them.  Kafka's brokers do not read them.  An entry
counts only if it is owned by the session in its name: it ends with its process, and no process adds one for another.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from aiocontroller.core.unreadable_json import UNREADABLE_JSON
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, SetData
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.znode_access import error_at
from aiocontroller.zookeeper.znode_json import Id

MOST = 50
"""Limit on the entries read."""
MOST_BYTES = 4_096
Text = Annotated[str, msgspec.Meta(max_length=300)]


class Instance(msgspec.Struct, frozen=True):
    """What an instance reports about itself."""

    id: Id
    host: Text
    """The name of its machine."""
    http: Text
    """URL of its page."""
    started_ms: int
    """Since 1970."""
    state: Text
    """As ``/readyz`` says."""
    reason: Text = ""
    """The first of the reasons why it is not ready."""
    standby: Text = ""
    """State of its copy of the cluster: ``cold``, ``loading`` or ``warm``; empty while it is active."""
    lag_s: int = 0
    """How far the copy is behind, in whole seconds."""
    release: Text = ""
    """The program's release; empty from early ones, which do not report it."""
    version: int = 1
    """Version of this format."""


_decoder = msgspec.json.Decoder(Instance)
_encoder = msgspec.json.Encoder()


def _name(session: int) -> str:
    return f"{session & (2**64 - 1):x}"


async def write_instance(client: ZooKeeperClient, instance: Instance) -> None:
    """Write this session's entry; raises ZooKeeper's error, with the path in a note, if that is refused."""
    path, data = paths.instance(_name(client.session_id)), _encoder.encode(instance)
    written = await client.write_many([SetData(path, data)], fence=None)
    if written.code[0] == Code.NO_NODE:
        ops = [Create(paths.INSTANCES), Create(path, data, ephemeral=True)]
        written = await client.write_many(ops, fence=None)
    if written.code[-1]:
        raise error_at(path, written.code[-1])


async def read_instances(client: ZooKeeperClient) -> dict[int, Instance]:
    """Session -> instance; unreadable entries are left out.  Raises ZooKeeper's error if reading is refused."""
    found = await client.children_many([paths.INSTANCES])
    if found.code[0] == Code.NO_NODE:
        return {}
    if found.code[0]:
        raise error_at(paths.INSTANCES, found.code[0])
    names = sorted(found.names[0] or ())[:MOST]
    reads = await client.get_many([paths.instance(name) for name in names])
    instances = {}
    for i, name in enumerate(names):
        owner, data = reads.ephemeral_owner(i), reads.data[i]
        if reads.code[i] or not owner or _name(owner) != name or not data or len(data) > MOST_BYTES:
            continue
        try:
            instances[owner] = _decoder.decode(data)
        except UNREADABLE_JSON:
            continue
    return instances
