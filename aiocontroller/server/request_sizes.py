"""The largest allowed request of each API, checked before the request is received.

A request is decoded in one step of the loop, at about a second per megabyte, so the limits are small, but far above
any admin request.  Exceptions are AlterPartition, in which a registered broker may report very many partitions at
once, Produce, whose records are not decoded, and Envelope.
"""

from __future__ import annotations

from collections.abc import Callable

from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.frames import decode_request_header

KIB, MIB = 1 << 10, 1 << 20

ANSWERED_BYTES = MIB
"""40,000 partitions in a request to reassign them take 600 KiB."""
OF_BROKERS_BYTES = 64 * KIB
ALTER_PARTITION_BYTES = 8 * MIB
"""From a registered broker: 300,000 partitions."""
PRODUCE_BYTES = 16 * MIB
ENVELOPE_BYTES = 16 * MIB
"""An envelope is not decoded before its content's size is checked, so that the broker's connection can stay open."""
FIXED_BYTES = 64 * KIB
"""Requests with a few numbers and a client id."""

_LARGEST: dict[int, int] = {
    ApiKey.ALTER_PARTITION: ALTER_PARTITION_BYTES,
    ApiKey.PRODUCE: PRODUCE_BYTES,
    ApiKey.ENVELOPE: ENVELOPE_BYTES,
    ApiKey.CONTROLLED_SHUTDOWN: FIXED_BYTES,
    ApiKey.ALLOCATE_PRODUCER_IDS: FIXED_BYTES,
    ApiKey.API_VERSIONS: FIXED_BYTES,
}


def largest_request(api: int, start: bytes, broker_of: Callable[[bytes], int | None]) -> int:
    """The largest size in bytes of a request that starts with ``start``.

    ``broker_of`` finds the registered broker that sent a request, from the start of its body.
    """
    limit = _LARGEST.get(api, ANSWERED_BYTES)
    if api != ApiKey.ALTER_PARTITION:
        return limit
    try:
        _, body = decode_request_header(start)
    except FrameError:
        return OF_BROKERS_BYTES  # a client id longer than any broker's
    return limit if broker_of(bytes(body[:12])) is not None else OF_BROKERS_BYTES
