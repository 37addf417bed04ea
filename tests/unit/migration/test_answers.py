"""What brokers' settings say of a quorum, and what operators type."""

from __future__ import annotations

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.migration.answers import parse_voters, protocol_of
from aiocontroller.migration.asking import parse_servers


@pytest.mark.parametrize(
    "text, voters",
    [
        ("", {}),
        ("3000@h:9093", {3000: ("h", 9093)}),
        (" 1@a:1, 2@[::1]:2 ", {1: ("a", 1), 2: ("::1", 2)}),
        ("x@a:1,2@b,3@:4,@c:5,4@d:x,5@e:6", {5: ("e", 6)}),
    ],
)
def test_voters(text: str, voters: dict[int, tuple[str, int]]) -> None:
    assert parse_voters(text) == voters


def test_protocol_of_a_listener() -> None:
    assert protocol_of("CONTROLLER", "PLAINTEXT:PLAINTEXT, controller:SASL_SSL") == "SASL_SSL"
    assert protocol_of("CONTROLLER", "PLAINTEXT:PLAINTEXT") == "PLAINTEXT"
    assert protocol_of("CONTROLLER", None) == "PLAINTEXT"


@pytest.mark.parametrize("text", ["h", "h:", ":1", "h:0", "h:65536", "h:x", "h:1,", ","])
def test_addresses_that_are_none_are_named(text: str) -> None:
    with pytest.raises(BadInputError, match=r"--bootstrap-server: found '.*', expected HOST:PORT"):
        parse_servers("--bootstrap-server", text)


def test_addresses() -> None:
    assert parse_servers("--bootstrap-server", None) == []
    assert parse_servers("--bootstrap-server", "a:1, [::1]:2") == [("a", 1), ("::1", 2)]
