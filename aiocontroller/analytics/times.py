"""Microseconds since 1970 as times for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST_US: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_US: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def time_of(us: int) -> datetime:
    """Return the time; a torn number beyond the years 1 to 9999 gives the first or last moment of that range."""
    return _EPOCH + min(max(us, _FIRST_US), _LAST_US) * _MICROSECOND
