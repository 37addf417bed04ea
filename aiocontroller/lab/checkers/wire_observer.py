"""Reads the bytes that controllers send to brokers (I7): LeaderAndIsr, StopReplica and UpdateMetadata.

It knows only the head of these requests, from Kafka's message definitions, and does not use the controller's own
encoders and records: a request's size, API, version, correlation id and client id, then the controller's id and epoch
and the broker's epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from aiocontroller.lab.checkers.observers import wrap
from aiocontroller.lab.simulated_net import Host, SimulatedNetwork, SimulatedTransport

_HEAD = Struct(">hhih")
_TWO = Struct(">ii")
_EPOCH = Struct(">q")
_FLEXIBLE = {4: 4, 5: 2, 6: 6}
"""API key -> the first version with tagged fields in its header."""
_WITH_KRAFT = {4: 7, 5: 4, 6: 8}
"""API key -> the first version with a field for a KRaft controller."""
_WITH_BROKER_EPOCH = {4: 2, 5: 1, 6: 5}

NAMES = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}


class ControlRequest(NamedTuple):
    api: int
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    """-1 if this version has none."""


def read_control_request(frame: bytes) -> ControlRequest | None:
    """Return the head of a request without its size; None if it is another kind of request."""
    api, version, _, client = _HEAD.unpack_from(frame)
    if api not in NAMES:
        return None
    at = _HEAD.size + max(client, 0) + (version >= _FLEXIBLE[api])
    controller_id, controller_epoch = _TWO.unpack_from(frame, at)
    if version >= _WITH_KRAFT[api]:
        at += 1
        controller_epoch = _TWO.unpack_from(frame, at)[1]
    has_epoch = version >= _WITH_BROKER_EPOCH[api]
    return ControlRequest(
        api, controller_id, controller_epoch, _EPOCH.unpack_from(frame, at + _TWO.size)[0] if has_epoch else -1
    )


class WireObserver:
    """``complain`` takes an invariant, its subject and what is wrong; ``won`` returns the latest controller epoch."""

    def __init__(self, complain: Callable[[str, str, str], None], won: Callable[[], int]) -> None:
        self._complain = complain
        self._won = won
        self._unread: defaultdict[int, bytes] = defaultdict(bytes)
        """Connection -> the beginning of an incomplete request."""
        self._incarnations: dict[tuple[str, int, int], int] = {}
        """(controller process, its epoch, broker) -> the latest broker epoch in a request."""
        self.requests = 0

    def watch(self, network: SimulatedNetwork) -> None:
        """Read what hosts named ``controller …`` send to hosts named ``broker N#…`` from now on."""
        wrap(network, "carry", self._carried)

    def _carried(self, original: Any, sender: Host, to: SimulatedTransport, data: bytes | None) -> None:
        between = sender.name.startswith("controller ") and to.host.name.startswith("broker ")
        if between and to.get_extra_info("peername")[1] == 0 and not sender.crashed:  # not an answer to the broker
            if data is None:
                self._unread.pop(id(to), None)
            else:
                self.sent(sender.name, int(to.host.name.split()[1].partition("#")[0]), id(to), data)
        original(sender, to, data)

    def sent(self, controller: str, broker: int, connection: int, data: bytes) -> None:
        """A controller has written this to a connection to a broker."""
        unread = self._unread[connection] + data
        while len(unread) >= (end := 4 + int.from_bytes(unread[:4], "big")):
            request = read_control_request(unread[4:end])
            unread = unread[end:]
            if request is not None:
                self._check(controller, broker, request)
        self._unread[connection] = unread

    def _check(self, controller: str, broker: int, request: ControlRequest) -> None:
        self.requests += 1
        subject = f"{NAMES[request.api]} of {controller} to broker {broker}"
        if request.controller_epoch > self._won():
            self._complain("I2", subject, f"controller epoch {request.controller_epoch}, {self._won()} was won last")
        term = controller, request.controller_epoch, broker
        latest = self._incarnations.get(term, -1)
        if 0 <= request.broker_epoch < latest:
            self._complain("I7", subject, f"for incarnation {request.broker_epoch}, after one for {latest}")
        self._incarnations[term] = max(latest, request.broker_epoch)
