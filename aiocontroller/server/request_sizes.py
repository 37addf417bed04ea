"""How large a request of each API may be, known before it is collected.

What is answered here is decoded in one step of the loop, a megabyte in about a second, so the limits are small: no
administrator's request comes near them.  Exceptions are AlterPartition, in which a broker that leads very many
partitions tells of all of them at once (it may be large from a broker that is registered), and Produce, whose records
nobody decodes.
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
FIXED_BYTES = 64 * KIB
"""What holds a few numbers and a client id."""

_LARGEST: dict[int, int] = {
    ApiKey.ALTER_PARTITION: ALTER_PARTITION_BYTES,
    ApiKey.PRODUCE: PRODUCE_BYTES,
    ApiKey.CONTROLLED_SHUTDOWN: FIXED_BYTES,
    ApiKey.ALLOCATE_PRODUCER_IDS: FIXED_BYTES,
    ApiKey.API_VERSIONS: FIXED_BYTES,
}


def largest_request(api: int, start: bytes, broker_of: Callable[[bytes], int | None]) -> int:
    """In bytes, by the first of them.

    ``broker_of`` tells from the beginning of a body which registered broker it is from.
    """
    limit = _LARGEST.get(api, ANSWERED_BYTES)
    if api != ApiKey.ALTER_PARTITION:
        return limit
    try:
        _, body = decode_request_header(start)
    except FrameError:
        return OF_BROKERS_BYTES  # a client id longer than any broker's
    return limit if broker_of(bytes(body[:12])) is not None else OF_BROKERS_BYTES
