"""The transaction log that a real server writes."""

from __future__ import annotations

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.processes.transaction_log import CREATE, SET_DATA, read_transactions
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, SetData
from aiocontroller.zookeeper.errors import Code


async def test_a_multi_is_there_whole_or_not_at_all(zk_connect: str, zookeeper: EmbeddedZooKeeper) -> None:
    client = ZooKeeperClient(zk_connect, world=real_world())
    await client.start(10)
    try:
        await client.create("/one", b"1")
        refused = await client.multi([SetData("/one", b"2", 0), Create("/one", b"3")])
        assert refused[1].code == Code.NODE_EXISTS
        await client.multi([SetData("/one", b"4", 0), Create("/two", b"5")])
    finally:
        await client.close()
    chroot = zk_connect.partition("/")[2]
    read = read_transactions([zookeeper.data_dir / "data"])
    changes = [c for t in read for c in t.changes if c.path in (f"/{chroot}/one", f"/{chroot}/two")]
    assert [(c.kind, c.data, c.version) for c in changes] == [(CREATE, b"1", 0), (SET_DATA, b"4", 1), (CREATE, b"5", 0)]
