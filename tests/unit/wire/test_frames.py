"""Framing over any chunking, headers against kio's, and what damage is answered with."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.request_header.v0.header import RequestHeader as HeaderV0
from kio.serial import entity_writer

from aiocontroller.wire import cold
from aiocontroller.wire.apis import (
    SUPPORTED,
    ApiKey,
    UnsupportedApiError,
    VersionRange,
    check_supported,
    is_flexible,
    negotiate,
    negotiate_api,
)
from aiocontroller.wire.frames import (
    FrameError,
    FrameReader,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_frame,
    response_frame,
)
from aiocontroller.wire.primitives import MAX_TAGGED_FIELDS, unsigned_varint

EVERY_VERSION = [(api, version) for api, known in SUPPORTED.items() for version in range(known.min, known.max + 1)]


def stream(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@given(st.lists(st.binary(max_size=30), max_size=8), st.lists(st.integers(0, 12)))
def test_frames_come_out_whole_however_the_stream_is_chopped(frames: list[bytes], sizes: list[int]) -> None:
    reader, data, got = FrameReader(), stream(frames), []
    for size in sizes:
        got += reader.feed(data[:size])
        data = data[size:]
    got += reader.feed(data)
    assert got == frames
    assert len(reader) == 0


def test_one_byte_at_a_time() -> None:
    reader = FrameReader()
    got = [frame for byte in stream([b"ab", b"", b"c"]) for frame in reader.feed(bytes((byte,)))]
    assert got == [b"ab", b"", b"c"]


@pytest.mark.parametrize("length", [-1, -(2**31), 11, 2**31 - 1])
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_an_impossible_length_is_named_and_loses_no_frame_before_it(length: int, chunk: int) -> None:
    reader = FrameReader(max_bytes=10, subject="broker 3")
    data = stream([b"good"]) + struct.pack(">i", length) + b"rest"
    got: list[bytes] = []

    def feed_all() -> None:
        for at in range(0, len(data), chunk):
            got.extend(reader.feed(data[at : at + chunk]))

    with pytest.raises(FrameError, match=f"broker 3: found a length of {length} bytes, expected 0 to 10") as caught:
        feed_all()
    assert [*got, *caught.value.frames] == [b"good"]


def test_an_announced_length_reserves_nothing() -> None:
    reader = FrameReader()
    assert reader.feed(struct.pack(">i", 100 * 1024 * 1024) + b"abc") == []
    assert len(reader) == 4 + 3


# -- headers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_id", ["me-ü", "", None])
def test_request_headers_as_kio_writes_them(client_id: str | None) -> None:
    for api, version in EVERY_VERSION:
        schema = load_request_schema(api, version).__header_schema__
        fields = {"request_api_key": api, "request_api_version": version, "correlation_id": -7}
        named = schema is not HeaderV0
        if named:
            fields["client_id"] = client_id
        out = io.BytesIO()
        entity_writer(schema)(out, schema(**fields))
        encoded = encode_request_header(api, version, -7, client_id)
        assert encoded == out.getvalue(), (api, version)
        header, body = decode_request_header(encoded + b"body")
        assert header == RequestHeader(api, version, -7, client_id if named else None)
        assert bytes(body) == b"body"


def test_response_headers_as_kio_writes_them() -> None:
    for api, version in EVERY_VERSION:
        schema = load_response_schema(api, version).__header_schema__
        out = io.BytesIO()
        entity_writer(schema)(out, schema(correlation_id=7))
        assert encode_response_header(api, version, 7) == out.getvalue(), (api, version)
        assert decode_response_header(api, version, out.getvalue() + b"x") == (7, b"x")


def test_flexible_where_kio_says_so() -> None:
    for api, version in EVERY_VERSION:
        assert is_flexible(api, version) == load_request_schema(api, version).__flexible__, (api, version)


@pytest.mark.parametrize("version", [0, 3])
def test_a_request_header_cut_short_at_any_byte(version: int) -> None:
    whole = encode_request_header(ApiKey.METADATA, 9 + version, 1, "me")
    for cut in range(len(whole)):
        with pytest.raises(FrameError, match="request header"):
            decode_request_header(whole[:cut])


def test_unknown_tagged_fields_of_a_header_are_stepped_over() -> None:
    frame = encode_request_header(ApiKey.METADATA, 12, 1, "me")[:-1] + b"\x02\x00\x03abc\x07\x00" + b"body"
    assert bytes(decode_request_header(frame)[1]) == b"body"


def test_tagged_fields_without_end_are_not_stepped_over_one_by_one() -> None:
    """16 MiB of them, in one request, took a minute and the role: the loop did nothing else meanwhile."""
    for many in (MAX_TAGGED_FIELDS + 1, 2**31):
        frame = encode_request_header(ApiKey.METADATA, 12, 1, "me")[:-1] + unsigned_varint(many) + bytes(4000)
        with pytest.raises(FrameError, match="too many"):
            decode_request_header(frame)
    body = b"\x01\x01" + unsigned_varint(MAX_TAGGED_FIELDS + 1) + bytes(2 * MAX_TAGGED_FIELDS + 2)
    with pytest.raises(FrameError, match="too many"):
        cold.decode_request(ApiKey.API_VERSIONS, 3, body)


def test_api_versions_of_a_version_that_is_too_new_can_still_be_read() -> None:
    header, body = decode_request_header(encode_request_header(ApiKey.API_VERSIONS, 99, 5, "c"))
    assert (header.api_version, header.correlation_id, bytes(body)) == (99, 5, b"")


def test_an_unknown_api_is_named_with_its_version() -> None:
    with pytest.raises(UnsupportedApiError, match=r"API key 999 \(version 4\)") as caught:
        decode_request_header(struct.pack(">hhih", 999, 4, 1, -1))
    assert (caught.value.api_key, caught.value.version) == (999, 4)


def test_whole_frames_are_pieces_that_a_reader_puts_together() -> None:
    pieces = request_frame(ApiKey.UPDATE_METADATA, 8, 3, "me", b"head", b"tail")
    (frame,) = FrameReader().feed(b"".join(pieces))
    header, body = decode_request_header(frame)
    assert (header.correlation_id, bytes(body)) == (3, b"headtail")
    assert pieces[-1] == b"tail"
    (frame,) = FrameReader().feed(b"".join(response_frame(ApiKey.UPDATE_METADATA, 8, 3, b"body")))
    assert decode_response_header(ApiKey.UPDATE_METADATA, 8, frame) == (3, b"body")


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mine, theirs, expected",
    [
        ((0, 7), (0, 5), 5),
        ((0, 3), (2, 9), 3),
        ((0, 3), (4, 9), None),
        ((4, 5), (0, 3), None),
        ((0, 3), None, None),
    ],
)
def test_negotiation_takes_the_highest_version_of_both(
    mine: tuple[int, int], theirs: tuple[int, int] | None, expected: int | None
) -> None:
    assert negotiate(VersionRange(*mine), VersionRange(*theirs) if theirs else None) == expected


def test_a_failed_negotiation_names_what_the_peer_has() -> None:
    with pytest.raises(
        UnsupportedApiError, match=r"UPDATE_METADATA\(6\): peer offers versions none, expected .* 0 to 8"
    ):
        negotiate_api(ApiKey.UPDATE_METADATA, {})
    with pytest.raises(UnsupportedApiError, match="offers versions 9 to 12"):
        negotiate_api(ApiKey.UPDATE_METADATA, {6: VersionRange(9, 12)})
    assert negotiate_api(ApiKey.UPDATE_METADATA, {6: VersionRange(0, 7)}) == 7


def test_only_what_is_offered_is_supported() -> None:
    check_supported(ApiKey.METADATA, 12)
    with pytest.raises(UnsupportedApiError, match=r"METADATA\(3\) version 13: expected 0 to 12"):
        check_supported(ApiKey.METADATA, 13)
    with pytest.raises(UnsupportedApiError, match=r"METADATA\(3\) version 1: not served here"):
        check_supported(ApiKey.METADATA, 1, {})
    with pytest.raises(UnsupportedApiError, match="API key 77 version 1: not served here"):
        check_supported(77, 1)
