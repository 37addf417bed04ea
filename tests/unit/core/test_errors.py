"""Kafka's error codes."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from aiocontroller.core.errors import KafkaErrorCode


def test_error_codes_have_kafkas_numbers() -> None:
    """As generated from Kafka's own definitions, by another project."""
    theirs = {code.name.upper(): int(code) for code in ErrorCode}
    ours = {name: int(code) for name, code in KafkaErrorCode.__members__.items()}
    assert ours == {name: theirs.get(name) for name in ours}
