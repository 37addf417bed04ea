"""Our bytes against aiozk's classes, and against damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from aiozk import protocol
from aiozk.protocol.stat import Stat
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.codec import Check, Create, Delete, SetData
from aiocontroller.zookeeper.errors import BadReplyError, Code, UnknownCodeError, response_error
from aiocontroller.zookeeper.reads import Reads
from aiocontroller.zookeeper.watches import MAX_SET_WATCHES_BYTES, WatchRegistry, set_watches_bodies

ACLS = [protocol.UNRESTRICTED_ACCESS, protocol.WORLD_READABLE]
STAT = codec._STAT.pack(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def theirs(op: Check | Create | SetData | Delete) -> protocol.CheckVersionRequest:
    if isinstance(op, Check):
        return protocol.CheckVersionRequest(path=op.path, version=op.version)
    if isinstance(op, Delete):
        return protocol.DeleteRequest(path=op.path, version=op.version)
    if isinstance(op, SetData):
        return protocol.SetDataRequest(path=op.path, data=op.data, version=op.version)
    request = protocol.Create2Request(path=op.path, data=op.data, acl=ACLS)
    request.set_flags(op.ephemeral, op.sequential, False)
    return request


PATHS = st.text(min_size=1, max_size=20).map(lambda name: "/" + name)
DATA = st.none() | st.binary(max_size=50)
VERSIONS = st.integers(-1, 2**31 - 1)
OPS = st.one_of(
    st.builds(Check, PATHS, VERSIONS),
    st.builds(Create, PATHS, DATA, st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
)


@given(st.lists(OPS, max_size=5))
def test_multi_has_aiozks_bytes(ops: list[Check | Create | SetData | Delete]) -> None:
    request = protocol.TransactionRequest()
    for op in ops:
        request.add(theirs(op))
    acl = codec.encode_acl(ACLS)
    ours = codec.multi([codec.encode_op(op, op.path.encode(), lambda _path: acl, with_stat=True) for op in ops])
    assert ours == request.serialize()


@given(st.lists(st.tuples(PATHS, st.binary(max_size=50), VERSIONS), max_size=5), st.booleans())
def test_many_sets_are_a_multi_of_them(sets: list[tuple[str, bytes, int]], fenced: bool) -> None:
    check = codec.check_op("/controller_epoch", 3) if fenced else None
    ops = [(SetData(*each), each[0].encode()) for each in sets]
    general = [codec.encode_op(op, raw, lambda _path: b"", with_stat=False) for op, raw in ops]
    raw_paths, datas, versions = [raw for _, raw in ops], [data for _, data, _ in sets], [v for _, _, v in sets]
    expected = codec.multi([check, *general] if check is not None else general)
    assert codec.multi_set(check, raw_paths, datas, versions) == expected


@given(PATHS, st.booleans())
def test_single_reads_have_aiozks_bytes(path: str, watch: bool) -> None:
    for request in (protocol.GetDataRequest, protocol.ExistsRequest, protocol.GetChildren2Request):
        assert codec.path_and_watch(request.opcode, path, watch) == request(path=path, watch=watch).serialize()


@given(st.lists(st.lists(PATHS, max_size=4), min_size=3, max_size=3), st.integers(0, 2**63 - 1))
def test_set_watches_has_aiozks_bytes(lists: list[list[str]], zxid: int) -> None:
    request = protocol.SetWatchesRequest(
        relative_zxid=zxid, data_watches=lists[0], exist_watches=lists[1], child_watches=lists[2]
    )
    assert codec.set_watches(zxid, lists) == request.serialize()


def test_stat_is_aiozks() -> None:
    assert codec.parse_stat(STAT, 0) == Stat.parse(STAT, 0)[0]


def multi_read_reply(items: list[bytes | int | None]) -> bytes:
    parts = []
    for item in items:
        if isinstance(item, int):
            parts.append(codec._RESULT.pack(-1, False, item) + codec.pack_int(item))
        else:
            parts.append(codec._RESULT.pack(4, False, 0) + codec.buffer(item) + STAT)
    return b"".join(parts) + codec._END_OF_MULTI


@given(st.lists(DATA | st.sampled_from([-101, -102]), max_size=8))
def test_multi_read_replies_become_columns(items: list[bytes | int | None]) -> None:
    reads = Reads()
    reads.parse(multi_read_reply(items), len(items))
    assert reads.data == [None if isinstance(item, int) else item for item in items]
    assert reads.code == [item if isinstance(item, int) else 0 for item in items]
    assert reads.version == [-1 if isinstance(item, int) else 5 for item in items]
    assert reads.max_mzxid() == (2 if any(not isinstance(item, int) for item in items) else 0)
    joined = Reads()
    joined.extend(reads)
    joined.extend(reads)
    stats = [None if isinstance(item, int) else codec.parse_stat(STAT, 0) for item in items]
    assert [joined.stat(i) for i in range(len(joined))] == stats * 2


@given(st.lists(DATA | st.just(-101), min_size=1, max_size=4), st.data())
def test_a_reply_that_ends_too_early_is_named(items: list[bytes | int | None], data: st.DataObject) -> None:
    reply = multi_read_reply(items)
    end = data.draw(st.integers(0, len(reply) - 10))
    with pytest.raises(BadReplyError):
        Reads().parse(reply[:end], len(items))


MULTI_REPLY = (
    codec._RESULT.pack(codec.SET_DATA, False, 0)
    + STAT
    + codec._RESULT.pack(codec.CREATE2, False, 0)
    + codec.ustring("/a")
    + STAT
    + codec._RESULT.pack(-1, False, -101)
    + codec.pack_int(-101)
    + codec._END_OF_MULTI
)
STRINGS = codec.pack_int(2) + codec.ustring("a") + codec.ustring("bc")
WHOLE = [
    (lambda payload: codec.parse_stat(payload, 0), STAT),
    (codec.parse_multi, MULTI_REPLY),
    (codec.parse_strings, STRINGS),
    (codec.decode_connect_reply, struct.pack(">iiqi", 0, 1000, 7, 3) + b"abc"),
]


@pytest.mark.parametrize("parse, whole", WHOLE)
def test_whatever_is_cut_short_is_a_bad_reply(parse: Callable[[bytes], object], whole: bytes) -> None:
    parse(whole)
    for end in range(len(whole)):
        with pytest.raises(BadReplyError, match=str(end)):
            parse(whole[:end])


@pytest.mark.parametrize("parse", [codec.parse_strings, codec.parse_multi])
@given(st.binary(max_size=120))
def test_rubbish_is_a_bad_reply_or_something(parse: Callable[[bytes], object], payload: bytes) -> None:
    with suppress(BadReplyError):
        parse(payload)


@given(st.binary(max_size=60))
def test_any_answer_to_a_handshake_is_one_or_a_bad_reply(payload: bytes) -> None:
    try:
        timeout_ms, session_id, password = codec.decode_connect_reply(payload)
    except BadReplyError:
        return
    assert struct.unpack_from(">iq", payload, 4) == (timeout_ms, session_id)
    assert payload[20:].startswith(password)


def test_strings_of_negative_length_end_where_the_bytes_do() -> None:
    """They would go back in the payload, two thousand million times."""
    with pytest.raises(BadReplyError, match="ends too early"):
        codec.parse_strings(codec.pack_int(2**31 - 1) + codec.pack_int(-4))


def test_failed_multi_names_its_culprit() -> None:
    payload = (
        b"".join(codec._RESULT.pack(-1, False, c) + codec.pack_int(c) for c in (0, -103, -2)) + codec._END_OF_MULTI
    )
    assert [r.code for r in codec.parse_multi(payload)] == [0, -103, -2]
    assert codec.parse_set_results(payload, 0, 3) is None
    assert codec.parse_set_results(payload, 1, 2) is None


def test_every_code_has_an_exception_and_none_prints(capsys: pytest.CaptureFixture[str]) -> None:
    for code in Code:
        assert response_error(int(code)).error_code == code  # type: ignore[attr-defined]
    assert isinstance(response_error(-999), UnknownCodeError)
    assert capsys.readouterr().out == ""


def test_set_watches_is_split_by_size_and_loses_nothing() -> None:
    data, exist, child = ([f"/{kind}{i:06}" + "x" * 40 for i in range(20_000)] for kind in "abc")
    bodies = list(set_watches_bodies(7, data, exist, child))
    found: tuple[list[str], list[str], list[str]] = ([], [], [])
    for body in bodies:
        assert len(body) < MAX_SET_WATCHES_BYTES + 1000
        at = 12
        for paths in found:
            more, at = codec.parse_strings(body, at)
            paths += more
        assert at == len(body)
    assert found == (data, exist, child)
    assert len(bodies) == 7
    assert list(set_watches_bodies(7)) == []


def test_registry_follows_replies_and_events() -> None:
    registry = WatchRegistry()
    registry.armed(codec.GET_DATA, "/a", 0)
    registry.armed(codec.GET_DATA, "/absent", -101)
    registry.armed(codec.EXISTS, "/absent2", -101)
    registry.armed(codec.EXISTS, "/b", 0)
    registry.armed(codec.GET_CHILDREN2, "/a", 0)
    registry.armed(codec.GET_CHILDREN2, "/absent", -101)
    assert (list(registry.data), list(registry.exist), list(registry.child)) == (["/a", "/b"], ["/absent2"], ["/a"])
    registry.fired(4, "/a")
    assert len(registry) == 3
    registry.armed(codec.GET_CHILDREN2, "/a", 0)
    registry.fired(2, "/a")
    registry.fired(1, "/absent2")
    registry.fired(3, "/b")
    assert len(registry) == 0


def test_what_a_bulk_read_is_arming_is_left_to_it_at_a_reconnect() -> None:
    registry = WatchRegistry()
    registry.armed(codec.GET_DATA, "/before", 0)
    registry.armed(codec.GET_DATA, "/again", 0)
    registry.begin(["/again", "/a", "/fires"], ["/absent"])
    assert list(registry.frames(7)) == [codec.set_watches(7, (["/before"], [], []))]
    registry.fired(3, "/fires")
    registry.end(["/again", "/a", "/fires", "/absent"])
    assert list(registry.frames(7)) == [codec.set_watches(7, (["/before", "/again", "/a"], ["/absent"], []))]
    registry.begin(["/b"], [])
    registry.clear()
    registry.end(["/b"])
    assert list(registry.frames(7)) == []
