"""What a standby says that it hears, in the client id of its heartbeats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.witness import MAX_BYTES, hearing_of, with_hearing

PAIRS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=50)


@given(PAIRS)
def test_what_is_said_is_understood(heard: dict[int, int]) -> None:
    client_id = with_hearing("me", heard.items())
    assert client_id.startswith("me")
    assert hearing_of(client_id) == heard


def test_who_hears_nothing_says_nothing() -> None:
    assert with_hearing("me", ()) == "me"
    assert hearing_of("me") == {}


def test_what_does_not_fit_into_a_client_id_is_left_out_whole() -> None:
    heard = {broker: 2**62 + broker for broker in range(5_000)}
    understood = hearing_of(with_hearing("me", heard.items()))
    assert 500 < len(understood) < 5_000
    assert understood.items() <= heard.items()
    assert len(with_hearing("me", heard.items())) < MAX_BYTES + 20


@pytest.mark.parametrize(
    "client_id", ["me hears 1", "me hears x:1", "me hears 1:", "me hears 1:2 3", "me hears " + "9" * 9_999]
)
def test_what_cannot_be_read_is_nothing(client_id: str) -> None:
    assert hearing_of(client_id) == {}
