"""A fault proxy in front of a broker or a controller that identifies senders, so that a fault can affect one link.

Kafka's requests do not name their sender, except for those that matter here: a control request begins with the
controller's id, and AlterPartition and ControlledShutdown begin with the broker's.  The proxy knows the sender of a
connection from its first such request.
"""

from __future__ import annotations

from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.frames import decode_request_header
from aiocontroller.wire.primitives import INT32

_BEGIN_WITH_ID = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
)


def sender_of(frame: bytes) -> int | None:
    """Return the id of the controller or broker that sent a request (a frame with its length), or None if it is
    unknown."""
    if len(frame) < 12 or int.from_bytes(frame[4:6], "big") not in _BEGIN_WITH_ID:
        return None
    try:
        _, body = decode_request_header(frame[4:])
    except FrameError:
        return None
    return int(INT32.unpack_from(body)[0]) if len(body) >= INT32.size else None


class LinkProxy(FaultProxy):
    """Blocks the requests of the senders in ``blocked``: the first that identifies one of them stops its connection.

    When the link is healed, held data arrive if ``late`` is true; otherwise the connection ends.
    """

    def __init__(self, target_port: int = 0, *, late: bool) -> None:
        super().__init__(target_port)
        self.late = late
        self.blocked: set[int] = set()
        self.senders: dict[int, int] = {}
        """The number of each connection -> its sender."""
        self.on_request = self._judge

    def _judge(self, link: int, xid: int, opcode: int, frame: bytes) -> Do:
        sender = sender_of(frame)
        if sender is not None:
            self.senders[link] = sender
        return Do.HOLD if self.senders.get(link) in self.blocked else Do.PASS

    def thaw(self) -> None:
        self.blocked.clear()
        for link in [link for link in self.links if not self.late and not link.thawed.is_set()]:
            link.cut(reset=True)
        super().thaw()
