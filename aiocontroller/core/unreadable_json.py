"""What msgspec raises for bytes that are not the expected JSON; not in ``errors``, which ``--help`` imports."""

from __future__ import annotations

import msgspec

UNREADABLE_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Strings that are not UTF-8 raise Python's own error, not one of msgspec's."""
