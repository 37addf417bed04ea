"""Many znodes at once on a real ZooKeeper: columns, codes, fences, conflicts, and every write applied exactly once."""

from __future__ import annotations

import random
import struct

import pytest
from aiozk import exc

from aiocontroller.core.errors import BadInputError, ControllerMovedError
from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.client import Check, Create, Delete, SetData, ZooKeeperClient
from aiocontroller.zookeeper.errors import RequestTooLargeError
from tests.integration.zookeeper.conftest import MakeClient

NO_NODE, BAD_VERSION, NODE_EXISTS, NOT_EMPTY = -101, -103, -110, -111


async def fenced(client: ZooKeeperClient) -> int:
    await client.create("/controller_epoch", b"1")
    return 0


async def with_znodes(client: ZooKeeperClient, count: int, data: bytes = b"old") -> list[str]:
    paths = [f"/n{i:05}" for i in range(count)]
    assert (await client.write_many([Create(p, data) for p in paths], fence=None)).ok
    return paths


def swallow_some_answers(
    proxy: FaultProxy, seed: int, share: float, opcodes: tuple[int, ...] = (codec.MULTI,)
) -> list[Do]:
    """Cut the link at random, before or after the server has heard of a multi; returns the list of what was done."""
    chance, cuts = random.Random(seed), []

    def decide(_link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        if opcode not in opcodes or chance.random() >= share:
            return Do.PASS
        cuts.append(chance.choice([Do.CUT, Do.CUT_AFTER]))
        return cuts[-1]

    proxy.on_request = decide
    return cuts


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multi_read", [True, False], ids=["multiRead", "before 3.6"])
async def test_reads_are_columns_in_the_order_of_the_paths(
    make_client: MakeClient, proxy: FaultProxy, multi_read: bool
) -> None:
    client = await make_client()
    if not multi_read:
        opcodes: dict[int, int] = {}

        def remember(_link: int, xid: int, opcode: int, _frame: bytes) -> Do:
            opcodes[xid] = opcode
            return Do.PASS

        def unimplemented(_link: int, xid: int, frame: bytes) -> bytes:
            if opcodes.get(xid) != codec.MULTI_READ:
                return frame
            return struct.pack(">iiqi", 16, xid, struct.unpack_from(">q", frame, 8)[0], -6)

        proxy.on_request, proxy.on_reply = remember, unimplemented
    paths = await with_znodes(client, 1500)
    await client.write_many([SetData(paths[3], b"new", 0), SetData(paths[1400], None)], fence=None)
    asked = [*paths, "/absent", paths[0]]
    reads = await client.get_many(asked, watch=True)
    assert len(reads) == 1502
    assert [i for i, code in enumerate(reads.code) if code] == [1500]
    assert reads.code[1500] == NO_NODE
    assert (reads.data[3], reads.data[1400], reads.data[1500], reads.data[1501]) == (b"new", None, None, b"old")
    assert [i for i, version in enumerate(reads.version) if version] == [3, 1400, 1500]
    stat = reads.stat(3)
    assert (stat.version, stat.data_length, stat.ephemeral_owner) == (1, 3, 0)
    assert (reads.czxid(3), reads.mzxid(3)) == (stat.created_zxid, stat.last_modified_zxid)
    assert reads.stat(1500) is None
    assert client._reader.multi_read_supported is multi_read
    fired: list[tuple[int, str]] = []
    client.on_watch = lambda kind, path: fired.append((kind, path))
    await client.set(paths[3], b"", -1)
    assert fired == [(3, paths[3])]


async def test_no_paths_ask_nothing(make_client: MakeClient) -> None:
    client = await make_client()
    before = client.statistics().requests
    assert len(await client.get_many([])) == 0
    assert (await client.children_many([])).names == []
    assert (await client.set_many([], [], [], fence=0)).ok
    assert client.statistics().requests == before


async def test_large_znodes_are_read_in_small_batches(make_client: MakeClient) -> None:
    client = await make_client(timeout_s=10)
    paths = [f"/big{i}" for i in range(40)]
    writes = await client.write_many([Create(p, b"%d" % i * 150_000) for i, p in enumerate(paths)], fence=None)
    assert writes.ok
    reads = await client.get_many(paths)
    assert [data[:1] for data in reads.data if data] == [b"%d" % (i // 10 or i) for i in range(40)]


async def test_names_that_are_not_ascii_and_bytes_that_are_no_text(make_client: MakeClient) -> None:
    client = await make_client()
    await client.create("/ü-€", b"\xff\xfe\x00")
    assert (await client.children_many(["/"])).names == [["ü-€"]]
    assert (await client.get_many(["/ü-€"])).data == [b"\xff\xfe\x00"]


async def test_children_and_existence(make_client: MakeClient) -> None:
    client = await make_client()
    await client.write_many([Create("/p"), Create("/p/b"), Create("/p/a"), Create("/q")], fence=None)
    children = await client.children_many(["/p", "/q", "/absent"])
    assert children.names == [["a", "b"], [], None]
    assert children.code == [0, 0, NO_NODE]
    assert children.stat(0).num_children == 2
    exists = await client.exists_many(["/q", "/absent"])
    assert exists.code == [0, NO_NODE]
    assert exists.stat(0).version == 0
    assert exists.stat(1) is None
    assert await client.all_children_number("/") == 4


# -- writing -----------------------------------------------------------------------------------------------------------


async def test_writes_give_new_versions_and_cost_few_requests(make_client: MakeClient) -> None:
    client = await make_client()
    fence = await fenced(client)
    paths = await with_znodes(client, 2000)
    before = client.statistics().requests
    writes = await client.set_many(paths, [b"new"] * 2000, [0] * 2000, fence=fence)
    assert writes.ok
    assert writes.version == [1] * 2000
    assert client.statistics().requests - before == 4


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.3, 1.0])
async def test_conflicts_are_codes_and_cost_little(make_client: MakeClient, share: float) -> None:
    client = await make_client()
    fence = await fenced(client)
    paths = await with_znodes(client, 4000)
    chance = random.Random(1)
    wrong = {i for i in range(4000) if share == 1 or chance.random() < share}
    before = client.statistics().requests
    versions = [5 if i in wrong else 0 for i in range(4000)]
    writes = await client.set_many(paths, [b"new"] * 4000, versions, fence=fence)
    assert [i for i, code in enumerate(writes.code) if code] == sorted(wrong)
    assert set(writes.code) <= {0, BAD_VERSION}
    assert client.statistics().requests - before <= 8 * 3
    reads = await client.get_many(paths)
    assert reads.version == [0 if i in wrong else 1 for i in range(4000)]
    assert writes.version == [-1 if i in wrong else 1 for i in range(4000)]


async def test_each_kind_of_conflict_has_its_code(make_client: MakeClient) -> None:
    client = await make_client()
    await client.write_many([Create("/a"), Create("/b"), Create("/b/child")], fence=None)
    ops = [
        Create("/a"),
        Create("/new"),
        Create("/nowhere/child"),
        Create("/nowhere/child/grandchild"),
        Create("/new/child"),
        SetData("/absent", b""),
        Delete("/absent2"),
        Delete("/b"),
        SetData("/b/child", b"", 3),
        Delete("/b/child2", 0),
    ]
    writes = await client.write_many(ops, fence=None)
    assert writes.code == [
        NODE_EXISTS, 0, NO_NODE, NO_NODE, 0, NO_NODE, NO_NODE, NOT_EMPTY, BAD_VERSION, NO_NODE,
    ]  # fmt: skip
    assert await client.get_children("/new") == ["child"]


async def test_topic_whose_parent_is_gone_costs_few_requests(make_client: MakeClient) -> None:
    client = await make_client()
    ops: list[Create] = [Create("/topic/partitions")]
    for i in range(150):
        ops += [Create(f"/topic/partitions/{i}"), Create(f"/topic/partitions/{i}/state")]
    before = client.statistics().requests
    assert set((await client.write_many(ops, fence=None)).code) == {NO_NODE}
    assert client.statistics().requests - before <= 3


async def test_fence_that_moved_stops_everything(make_client: MakeClient) -> None:
    client = await make_client()
    fence = await fenced(client)
    paths = await with_znodes(client, 1200)
    await client.set("/controller_epoch", b"2", fence)
    with pytest.raises(ControllerMovedError, match="/controller_epoch is no longer at version 0"):
        await client.set_many(paths, [b"new"] * 1200, [0] * 1200, fence=fence)
    with pytest.raises(ControllerMovedError):
        await client.write_many([Delete(paths[0])], fence=fence)
    assert set((await client.get_many(paths)).version) == {0}


async def test_batches_are_split_by_bytes(make_client: MakeClient) -> None:
    client = await make_client()
    paths = await with_znodes(client, 100)
    writes = await client.set_many(paths, [b"x" * 100_000] * 100, [0] * 100)
    assert writes.ok
    assert (await client.write_many([SetData(p, b"y" * 100_000, 1) for p in paths], fence=None)).ok


async def test_data_beyond_the_servers_limit_stops_the_call_before_it_begins(make_client: MakeClient) -> None:
    client = await make_client()
    paths = await with_znodes(client, 3)
    huge = b"x" * 1_048_000
    with pytest.raises(RequestTooLargeError, match=f"{paths[1]}: the data has 1048000 bytes"):
        await client.set_many(paths, [b"", huge, b""], [0] * 3)
    with pytest.raises(RequestTooLargeError, match=f"{paths[2]}: the data has 1048000 bytes"):
        await client.write_many([SetData(paths[0], b""), SetData(paths[2], huge)], fence=None)
    assert set((await client.get_many(paths)).version) == {0}
    assert (await client.set_many(paths, [b"x" * 1_040_000] * 3, [0] * 3)).ok
    assert client.statistics().suspensions == 0


async def test_what_could_not_be_resolved_is_not_taken(make_client: MakeClient) -> None:
    client = await make_client()
    with pytest.raises(BadInputError, match="/a comes twice"):
        await client.write_many([Create("/a"), SetData("/a", b"")], fence=None)
    with pytest.raises(BadInputError, match="sequential"):
        await client.write_many([Create("/a", sequential=True)], fence=None)
    with pytest.raises(BadInputError, match="1 paths, 2 data, 1 versions"):
        await client.set_many(["/a"], [b"", b""], [0])


async def test_multi_is_atomic_and_names_its_culprit(make_client: MakeClient) -> None:
    """Fault 9: aiozk loses codes, index, Stats and names."""
    client = await make_client()
    results = await client.multi(
        [Create("/a", b"1", ephemeral=True), SetData("/a", b"2", 0), Create("/s-", sequential=True), Check("/a", 1)]
    )
    assert [r.code for r in results] == [0, 0, 0, 0]
    assert results[0].stat.ephemeral_owner == client.session_id
    assert (results[0].path, results[2].path) == ("/a", "/s-0000000001")
    assert results[1].version == 1
    results = await client.multi([Delete("/a", 1), Create("/b"), SetData("/a", b""), Delete("/s-0000000001")])
    assert [r.code for r in results] == [0, 0, NO_NODE, -2]
    assert await client.exists("/a")


# -- exactly once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_every_conditional_write_is_applied_exactly_once(
    make_client: MakeClient, proxy: FaultProxy, seed: int
) -> None:
    client = await make_client(timeout_s=10)
    fence = await fenced(client)
    paths = await with_znodes(client, 20_000)
    cuts = swallow_some_answers(proxy, seed, 0.15)
    for version in range(3):
        writes = await client.set_many(
            paths, [b"%d-%d" % (version, i) for i in range(20_000)], [version] * 20_000, fence=fence
        )
        assert writes.ok
        assert writes.version == [version + 1] * 20_000
    assert {Do.CUT, Do.CUT_AFTER} == set(cuts)
    reads = await client.get_many(paths)
    assert set(reads.version) == {3}
    assert reads.data == [b"2-%d" % i for i in range(20_000)]
    assert client.session_epoch == 1


@pytest.mark.parametrize("seed", range(3))
async def test_every_create_and_delete_is_applied_exactly_once(
    make_client: MakeClient, proxy: FaultProxy, seed: int
) -> None:
    client = await make_client(timeout_s=10)
    paths = [f"/n{i}" for i in range(5000)]
    cuts = swallow_some_answers(proxy, seed, 0.3)
    created = await client.write_many(
        [Create(p, p.encode(), ephemeral=i % 2 == 0) for i, p in enumerate(paths)], fence=None
    )
    assert created.ok
    reads = await client.get_many(paths)
    assert reads.data == [p.encode() for p in paths]
    assert [reads.ephemeral_owner(i) for i in range(4)] == [client.session_id, 0] * 2
    deleted = await client.write_many([Delete(p, 0) for p in paths], fence=None)
    assert deleted.ok
    assert set((await client.get_many(paths)).code) == {NO_NODE}
    assert len(cuts) > 3


async def test_conflict_behind_a_lost_answer_is_still_a_conflict(make_client: MakeClient, proxy: FaultProxy) -> None:
    """The batch was never applied; meanwhile another client wrote one of its znodes, and created another."""
    client, other = await make_client(timeout_s=10), await make_client(direct=True)
    paths = await with_znodes(client, 10)
    await other.set(paths[4], b"theirs", 0)
    swallow_some_answers(proxy, 0, 0.5)
    writes = await client.set_many(paths, [b"ours"] * 10, [0] * 10)
    assert [i for i, code in enumerate(writes.code) if code] == [4]
    reads = await client.get_many(paths)
    assert reads.data == [b"theirs" if i == 4 else b"ours" for i in range(10)]
    assert set(reads.version) == {1}


async def test_a_foreign_equal_znode_is_not_taken_for_ours(make_client: MakeClient, proxy: FaultProxy) -> None:
    client, other = await make_client(timeout_s=10), await make_client(direct=True)
    await other.create("/a", b"same")
    await client.sync()
    cuts = 0

    def cut_twice(_link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        nonlocal cuts
        cuts += opcode == codec.MULTI
        return Do.CUT_AFTER if opcode == codec.MULTI and cuts <= 2 else Do.PASS

    proxy.on_request = cut_twice
    assert (await client.write_many([Create("/a", b"same")], fence=None)).code == [NODE_EXISTS]
    assert (await client.write_many([Create("/b", b"same", ephemeral=True)], fence=None)).code == [0]


async def test_fence_that_moved_behind_a_lost_answer(make_client: MakeClient, proxy: FaultProxy) -> None:
    client, other = await make_client(timeout_s=10), await make_client(direct=True)
    fence = await fenced(client)
    paths = await with_znodes(client, 10)
    await other.set("/controller_epoch", b"2", fence)
    cuts = 0

    def cut_once(_link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        nonlocal cuts
        cuts += opcode == codec.MULTI
        return Do.CUT_AFTER if opcode == codec.MULTI and cuts == 1 else Do.PASS

    proxy.on_request = cut_once
    with pytest.raises(ControllerMovedError):
        await client.set_many(paths, [b"ours"] * 10, [0] * 10, fence=fence)
    assert set((await client.get_many(paths)).data) == {b"old"}


# -- trees, and single znodes -----------------------------------------------------------------------------------------


async def test_ensure_path_and_recursive_delete(make_client: MakeClient, proxy: FaultProxy) -> None:
    client = await make_client()
    fence = await fenced(client)
    swallow_some_answers(proxy, 3, 0.4)
    await client.ensure_path("/tree/a/b")
    await client.ensure_path("/tree/a/c")
    await client.write_many([Create(f"/tree/a/b/{i}") for i in range(600)], fence=None)
    assert await client.delete_recursive("/tree", fence) >= 604 - 5
    assert not await client.exists("/tree")
    assert await client.delete_recursive("/tree") == 0


async def test_single_operations_work_and_carry_no_cache(make_client: MakeClient) -> None:
    """Faults 19 and 20: versions are what the caller says; paths are within the chroot."""
    client = await make_client()
    assert client.chroot
    assert await client.create("/a", b"1") == "/a"
    await client.get("/a")
    await client.delete("/a")
    await client.create("/a", b"1")
    await client.set_data("/a", b"2")
    assert await client.get_data("/a") == b"2"
    with pytest.raises(exc.BadVersion):
        await client.set("/a", b"", 7)
    with pytest.raises(exc.NodeExists):
        await client.create("/a")
    assert (await client.set("/a", b"3", 1)).version == 2
    assert await client.get_children("/") == ["a"]
    with pytest.raises(exc.BadVersion):
        await client.delete("/a", 7)
    assert await client.create("/s-", sequential=True) == "/s-0000000002"
    await client.delete("/a")
    assert not await client.exists("/a")
    assert [acl.id.id for acl in await client.get_acl("/")] == ["anyone"]
    assert await client.ephemerals() == []
