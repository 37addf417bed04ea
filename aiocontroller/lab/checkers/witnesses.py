"""Checks the second witness: while only the active controller's link to a broker is cut, the broker keeps its leaders.

What a standby hears is read from the wire: answers to its heartbeats that have reached it, on connections that are
open.  When it sends a heartbeat to another controller, it hears the brokers that have answered within ``fresh_s``.  For
``fresh_s`` after that heartbeat has arrived, its receiver must not suspect a broker for its silence if the sender heard
it or the heartbeat names it, unless the heartbeat names another incarnation.  Nor may it begin to move leaders because
of an earlier suspicion.  A suspicion is judged only if leaders are moved because of it.

Like ``wire_observer`` it knows only the head of a request, and does not use the controller's own encoders.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from aiocontroller.journal.records import Record
from aiocontroller.lab.checkers.observers import wrap
from aiocontroller.lab.simulated_net import Host, SimulatedTransport
from aiocontroller.service import Service

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.simulation import Simulation

FRESH_S = 0.36
"""A standby names a broker for half of the limit for silence (0.9 s in simulations) after its answer, and is believed
for the other half; clocks may run 10 % faster or slower."""
_HEAD = Struct(">ihhih")
"""Size, API, version, correlation id, length of the client id."""
_API_VERSIONS = 18
_CLIENT_ID = "aiocontroller-heartbeat"
_SAYS = " hears "


def read_heartbeat(frame: bytes) -> Mapping[int, int] | None:
    """Return the brokers that a heartbeat names as heard, broker -> epoch; None for another kind of request."""
    _, api, version, _, length = _HEAD.unpack_from(frame)
    client_id, _, pairs = frame[_HEAD.size : _HEAD.size + length].decode().partition(_SAYS)
    if (api, version, client_id) != (_API_VERSIONS, 0, _CLIENT_ID):
        return None
    return {int(broker): int(epoch) for broker, _, epoch in (pair.partition(":") for pair in pairs.split())}


class Word(NamedTuple):
    """A heartbeat to another controller."""

    heard: frozenset[int]
    """The brokers that the sender heard when it sent the heartbeat."""
    named: Mapping[int, int]
    """The brokers that it names as heard -> their epochs."""


class Witnesses:
    """Controllers are processes, by the names of their hosts; times are in seconds of one clock.

    ``complain`` takes an invariant, its subject and what is wrong.
    """

    def __init__(self, complain: Callable[[str, str, str], None], fresh_s: float) -> None:
        self._complain = complain
        self._fresh_s = fresh_s
        self._answered: defaultdict[str, dict[object, tuple[int, float]]] = defaultdict(dict)
        """Controller -> open connection -> the broker at its other end, and when it last answered a heartbeat."""
        self._received: defaultdict[str, dict[str, tuple[float, Word]]] = defaultdict(dict)
        """Controller -> sender of heartbeats to it -> when the last one arrived, and its content."""
        self._handled_s: dict[str, float] = {}
        """Controller -> when it had last handled an event; what it does next, it has begun since then."""
        self._heard_by: dict[tuple[str, int, int], str | None] = {}
        """(controller, broker, epoch) -> who heard the broker when it was last suspected for its silence."""

    def answered(self, controller: str, connection: object, broker: int, now_s: float) -> None:
        """An answer to a heartbeat has reached the controller."""
        self._answered[controller][connection] = broker, now_s

    def ended(self, controller: str, connection: object) -> None:
        """The controller's connection to a broker has ended."""
        self._answered[controller].pop(connection, None)

    def says(self, controller: str, named: Mapping[int, int], now_s: float) -> Word:
        """The controller sends another one a heartbeat that names these brokers."""
        answered = self._answered[controller].values()
        return Word(frozenset(broker for broker, at_s in answered if 0 < now_s - at_s <= self._fresh_s), named)

    def received(self, controller: str, by: str, word: Word, now_s: float) -> None:
        """The heartbeat of ``by`` has reached the controller."""
        self._received[controller][by] = now_s, word

    def handled(self, controller: str, now_s: float) -> None:
        """The controller has handled an event."""
        self._handled_s[controller] = now_s

    def suspected(self, controller: str, broker: int, epoch: int, now_s: float) -> None:
        """The controller takes the broker's silence for death."""
        self._heard_by[controller, broker, epoch] = self._who_hears(controller, broker, epoch, now_s, before_s=now_s)

    def alarmed(self, controller: str, broker: int, epoch: int, now_s: float) -> None:
        """The controller has moved the broker's leaders because of a suspicion."""
        began_s = self._handled_s.get(controller, 0.0)
        by = self._heard_by.pop((controller, broker, epoch), None) or self._who_hears(
            controller, broker, epoch, now_s, before_s=began_s
        )
        if by is not None:
            self._complain("witness", f"broker {broker}", f"{controller} takes it for dead, and {by} hears it")

    def _who_hears(self, controller: str, broker: int, epoch: int, now_s: float, *, before_s: float) -> str | None:
        """Another controller that hears the broker, as the controller was told lately, and before ``before_s``."""
        for by, (received_s, word) in self._received[controller].items():
            hears = (broker in word.heard or broker in word.named) and word.named.get(broker, epoch) == epoch
            if hears and received_s < before_s and now_s - received_s <= self._fresh_s:
                return by
        return None


class WitnessWatch:
    """Gives ``Witnesses`` what controllers and brokers of a simulation send each other, and what controllers record."""

    def __init__(self, simulation: Simulation) -> None:
        plan = simulation.plan
        self._now_s = simulation.clock.monotonic
        self._witnesses = Witnesses(simulation.history.complain, FRESH_S)
        self._heartbeats: set[SimulatedTransport] = set()
        """Controllers' ends of connections over which they have sent heartbeats to brokers; membership only."""
        self._under_way: defaultdict[SimulatedTransport, deque[Word | None]] = defaultdict(deque)
        """An active controller's end of a connection from another controller -> what each piece under way says."""
        if plan.controllers > 1 and plan.broker_detection == "full" and plan.controller_detection != "off":
            wrap(simulation.network, "carry", self._carried)
            wrap(simulation.network, "deliver", self._delivered)

    def recorded(self, service: Service, record: Record) -> None:
        """A controller has recorded something."""
        host = service.shell.world.network
        assert isinstance(host, Host)
        if record.kind == "event":
            self._witnesses.handled(host.name, self._now_s())
        elif (record.kind, record.state, record.detail) == ("suspicion", "broker", "silent"):
            broker, epoch = record.broker or 0, record.broker_epoch or 0
            if record.event == "suspected":
                self._witnesses.suspected(host.name, broker, epoch, self._now_s())
            elif record.event == "alarm":
                self._witnesses.alarmed(host.name, broker, epoch, self._now_s())

    def _carried(self, original: Any, sender: Host, to: SimulatedTransport, data: bytes | None) -> None:
        if sender.name.startswith("controller ") and not (sender.crashed or to.get_extra_info("peername")[1]):
            if to.host.name.startswith("controller "):
                named = None if data is None else read_heartbeat(data)
                word = None if named is None else self._witnesses.says(sender.name, named, self._now_s())
                self._under_way[to].append(word)
            elif to.host.name.startswith("broker ") and to.peer is not None:
                if data is None:
                    self._witnesses.ended(sender.name, to.peer)
                elif read_heartbeat(data) is not None:
                    self._heartbeats.add(to.peer)
        original(sender, to, data)

    def _delivered(self, original: Any, to: SimulatedTransport, data: bytes | None) -> None:
        other = None if to.peer is None else to.peer.host.name
        if to in self._heartbeats and other is not None:
            if data is None:
                self._witnesses.ended(to.host.name, to)
            else:
                broker = int(other.split()[1].partition("#")[0])
                self._witnesses.answered(to.host.name, to, broker, self._now_s())
        elif other is not None and self._under_way.get(to):
            word = self._under_way[to].popleft()
            if word is not None:
                self._witnesses.received(to.host.name, other, word, self._now_s())
        original(to, data)
