"""Connect strings."""

from __future__ import annotations

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.zookeeper.addresses import format_address, parse_connect_string


@pytest.mark.parametrize(
    "connect,hosts,chroot",
    [
        ("zk:2181", [("zk", 2181)], ""),
        ("zk", [("zk", 2181)], ""),
        ("a:1,b:2,c/kafka", [("a", 1), ("b", 2), ("c", 2181)], "/kafka"),
        ("a:1, b:2/kafka/prod/", [("a", 1), ("b", 2)], "/kafka/prod"),
        ("[::1]:2182,[fe80::1]/x", [("::1", 2182), ("fe80::1", 2181)], "/x"),
        ("a:1/", [("a", 1)], ""),
    ],
)
def test_hosts_ports_and_chroot(connect: str, hosts: list[tuple[str, int]], chroot: str) -> None:
    assert parse_connect_string(connect) == (hosts, chroot)


@pytest.mark.parametrize("connect", ["", "/chroot", "a:x", "::1:2181", "a:0", "a:70000", "a:1/b//c", "[::1"])
def test_what_cannot_be_understood_is_named(connect: str) -> None:
    with pytest.raises(BadInputError, match=r"zookeeper\.connect"):
        parse_connect_string(connect)


def test_addresses_are_shown_as_they_are_given() -> None:
    assert [format_address("zk", 1), format_address("::1", 2)] == ["zk:1", "[::1]:2"]
