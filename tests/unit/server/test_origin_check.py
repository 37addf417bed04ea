"""Whose page a request comes from."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from aiocontroller.server.origin_check import refusal

OURS = {"Host": "10.0.0.1:9999", "Origin": "http://10.0.0.1:9999", "Content-Type": "application/json"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"Origin": "https://10.0.0.1:9999"},  # a proxy has the certificate
        {"Sec-Fetch-Site": "same-origin"},
        {"Content-Type": "Application/JSON; charset=utf-8"},
        {"Host": "Controller1:9999", "Origin": "http://controller1:9999"},
        {"Host": "[::1]:9999", "Origin": "http://[::1]:9999"},
    ],
)
def test_our_own_page(changes: Mapping[str, str]) -> None:
    assert refusal({**OURS, **changes}) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://10.0.0.1"},
        {"Origin": "http://10.0.0.1:9999.evil.example"},
        {"Origin": "http://10.0.0.1:9999@evil.example"},
        {"Origin": "http://evil.example/10.0.0.1:9999"},
        {"Origin": "file://10.0.0.1:9999"},
        {"Origin": "http://[::1"},
        {"Origin": "http://", "Host": ""},
        {"Origin": "\udcff"},
        {"Host": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Content-Type": ""},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "text/plain;application/json"},
    ],
)
def test_others(changes: Mapping[str, str]) -> None:
    assert "found" in (refusal({**OURS, **changes}) or "")


def test_a_program_that_says_nothing() -> None:
    assert refusal({}) is not None
