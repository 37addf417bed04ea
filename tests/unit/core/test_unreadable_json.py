"""Whatever bytes come, msgspec raises what is caught, or reads them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.unreadable_json import UNREADABLE_JSON


class _Body(msgspec.Struct):
    name: str = ""
    numbers: tuple[int, ...] = ()


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'{"name":"\xdd"}', b'{"name":"\\ud800"}', b'{"name":7}', b'{"numbers":[1e400]}', b"[" * 100_000],
)
def test_what_is_no_such_json(data: bytes) -> None:
    with pytest.raises(UNREADABLE_JSON):
        msgspec.json.decode(data, type=_Body)


@given(st.binary(), st.sampled_from([b'{"name":"%s"}', b'{"%s":1}', b'{"numbers":[%s]}', b"%s"]))
def test_nothing_else_is_raised(part: bytes, around: bytes) -> None:
    try:
        msgspec.json.decode(around % part, type=_Body)
    except UNREADABLE_JSON:
        pass
