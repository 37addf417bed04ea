"""Tells the active controller which brokers a standby hears: a second witness of which brokers are alive.

The standby's heartbeats to the active controller name the brokers that have answered the standby lately, by incarnation
(in the client id, as these requests have no other place for it).  A broker that is silent to the active controller and
answers a standby is alive, and the link between the two is at fault.

A standby that is dead, slow or cut off says nothing, and then the active controller's own evidence counts alone.  One
that is wrong can only keep silence from counting, as in the mode ``refused``; refusals count whatever it says.
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_BYTES = 16_000
"""A client id has at most 32,767 bytes.  Brokers that do not fit are left out, and so are not vouched for."""
_MARK = " hears "


def with_hearing(client_id: str, heard: Iterable[tuple[int, int]]) -> str:
    """The client id of a heartbeat that also says which (broker, epoch) the sender hears."""
    text = " ".join(f"{broker}:{epoch}" for broker, epoch in heard)
    if len(text) > MAX_BYTES:
        text = text[:MAX_BYTES].rpartition(" ")[0]
    return f"{client_id}{_MARK}{text}" if text else client_id


def hearing_of(client_id: str) -> dict[int, int]:
    """What the sender of a heartbeat hears: broker -> epoch; empty if it says nothing that can be read."""
    text = client_id.partition(_MARK)[2]
    try:
        return {int(broker): int(epoch) for broker, _, epoch in (pair.partition(":") for pair in text.split())}
    except ValueError:
        return {}
