"""The versions of a controller's requests for each ``inter.broker.protocol.version``.

Kafka's controller derives them from its own setting, so that every broker understands *and expects* them.  A broker of
a newer release accepts a newer version too, but then behaves as in a cluster of the newer protocol (it expects topic
ids, for example).  The table is that of Kafka 3.9.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from aiocontroller.wire.apis import ApiKey

Protocol = tuple[int, int, int]
"""(major, minor, IV)."""

_SINCE: Mapping[ApiKey, tuple[tuple[Protocol, int], ...]] = {
    ApiKey.LEADER_AND_ISR: (((3, 4, 0), 7), ((3, 2, 0), 6), ((2, 8, 1), 5), ((2, 4, 1), 4), ((2, 4, 0), 3)),
    ApiKey.UPDATE_METADATA: (((3, 4, 0), 8), ((2, 8, 1), 7), ((2, 4, 1), 6)),
    ApiKey.STOP_REPLICA: (((3, 4, 0), 4), ((2, 6, 0), 3), ((2, 4, 1), 2)),
}
"""Newest first."""
_LEAST = {ApiKey.LEADER_AND_ISR: 2, ApiKey.UPDATE_METADATA: 5, ApiKey.STOP_REPLICA: 1}
"""The versions of protocol 2.2, the first with broker epochs: every supported broker accepts them at any protocol."""


@functools.cache
def control_request_versions(protocol: Protocol) -> Mapping[ApiKey, int]:
    """The version of each request that a controller of this protocol sends."""
    return {
        api: next((version for since, version in table if protocol >= since), _LEAST[api])
        for api, table in _SINCE.items()
    }
