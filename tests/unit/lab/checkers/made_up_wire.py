"""Made-up requests on the wire."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from types import ModuleType

from tests.unit.lab.checkers.complaints import Ear, case
from tests.unit.lab.checkers.history_story import Case

WIRE: list[Case] = []


class Wire(Ear):
    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self.read = module.read_control_request
        self.observer = module.WireObserver(self.complain, lambda: 5)

    def send(
        self,
        broker_epoch: int,
        epoch: int = 5,
        *,
        broker: int = 2,
        connection: int = 1,
        pieces: int = 1,
        who: str = "c",
    ) -> None:
        data = framed(request(4, 7, epoch, broker_epoch)) * 2
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            self.observer.sent(who, broker, connection, data[start : start + size])


def request(api: int, version: int, epoch: int, broker_epoch: int, client: bytes | None = b"1000001") -> bytes:
    """As in Kafka's message definitions."""
    flexible = version >= {4: 4, 5: 2, 6: 6}[api]
    kraft = version >= {4: 7, 5: 4, 6: 8}[api]
    named = pack(">h", -1) if client is None else pack(">h", len(client)) + client
    head = pack(">hhi", api, version, 9) + named + b"\0" * flexible
    body = pack(">i", 1_000_001) + b"\0" * kraft + pack(">i", epoch)
    if version >= {4: 2, 5: 1, 6: 5}[api]:
        body += pack(">q", broker_epoch)
    return head + body + b"\7" * 20


def framed(one: bytes) -> bytes:
    return pack(">i", len(one)) + one


def on_wire(violated: str = "") -> Callable[[Callable[[Wire], None]], Callable[[Wire], None]]:
    return case(WIRE, Wire, violated)


@on_wire()
def all_versions_are_read(w: Wire) -> None:
    for api, versions, since in ((4, 8, 2), (5, 5, 1), (6, 9, 5)):
        for version in range(versions):
            for client in (b"", b"some client", None):
                expected = (api, 1_000_001, 5, 77 if version >= since else -1)
                assert w.read(request(api, version, 5, 77, client)) == expected
    assert w.read(pack(">hhih", 18, 0, 1, -1)) is None


@on_wire()
def incarnations_in_order(w: Wire) -> None:
    for broker_epoch in (0, 10, 10, 12):
        w.send(broker_epoch, pieces=3)
    assert w.observer.requests == 8
    w.send(5, broker=3)  # another broker
    w.send(5, epoch=4)  # another term
    w.send(5, who="d")  # another controller
    w.observer.sent("c", 2, 1, framed(pack(">hhih", 18, 0, 1, -1)))
    w.observer.sent("c", 2, 1, framed(request(4, 0, 5, 0)))  # without a broker epoch
    w.send(12)


@on_wire("I7 I7 I7 I7")
def an_incarnation_that_is_over(w: Wire) -> None:
    w.send(12)
    w.send(10, connection=2, pieces=40)
    w.send(0, connection=2)


@on_wire("I2 I2")
def an_epoch_that_was_not_won(w: Wire) -> None:
    w.send(12, epoch=6)
