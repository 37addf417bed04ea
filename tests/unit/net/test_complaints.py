"""Log lines that an unknown client can cause."""

from __future__ import annotations

import logging

import pytest

from aiocontroller.net.complaints import MAX_CHARACTERS, Complaints
from aiocontroller.net.real import real_world


async def test_a_line_that_repeats_what_an_unknown_client_sent_is_short(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(logging.getLogger("complaints"), real_world().clock)
    complaints.warn("names", "No user %r of %s: 100%%", "x" * 500_000, "10.0.0.1")
    complaints.warn("others", "No user %r of %s: 100%%", "alice", "10.0.0.1")
    long, short = (record.getMessage() for record in caplog.records)
    assert len(long) < MAX_CHARACTERS + 50
    assert long.startswith("No user 'xxx")
    assert long.endswith("(500028 characters)")
    assert short == "No user 'alice' of 10.0.0.1: 100%"
