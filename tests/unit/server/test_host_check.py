"""Whom a request was meant for."""

from __future__ import annotations

import pytest

from aiocontroller.server.host_check import is_loopback, refusal


@pytest.mark.parametrize(
    "header",
    [
        None,
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]:8080",
        "10.0.0.5:9",
        "localhost",
        "LOCALHOST:80",
        "a.localhost",
        "zk.example:1",
        "ZK.Example",
    ],
)
def test_welcome(header: str | None) -> None:
    assert refusal(header, ["Zk.example"]) is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        ":80",
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost@evil.example",
        "evil.example#@localhost",
        "[::1",
        "zk.example.evil.example",
        "a b",
        "\u0661.1.1.1",
    ],
)
def test_refused(header: str) -> None:
    why = refusal(header, ["zk.example"])
    assert why is not None
    assert repr(header) in why


def test_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "", "controller.example")] == [False] * 5
