"""Faults between ZooKeeper's clients and its servers: the schedule that a seed draws, and its effect on connections.

The whole schedule is drawn before anything runs, so the same seed means the same faults at the same times on any
machine.  It consists of *segments*: faults, then a calm in which everything is checked.  Without the calm, the next
change would hide a lost watch.

Faults that target a frame ("the next answer", "the next handshake") wait for one, and are dropped if none comes before
the end of the segment.  Silence (freeze, half-open) is drawn at most once per client and segment, and early in it: a
client needs two thirds of a session timeout to notice it, and a session that cannot survive proves nothing.

Bytes that change within a frame are not among the faults, since the checksums of TCP and TLS detect them.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec

from aiocontroller.lab.cluster.embedded_zookeeper import ZooKeeperEnsemble
from aiocontroller.lab.zookeeper.fault_proxy import Do, EndsHere, FaultProxy
from aiocontroller.zookeeper import codec

SIDES = ("writer", "reader")
SERVERS = "servers"

WEIGHTS = {
    "reset": 5,
    "close": 3,
    "cut request": 8,
    "swallow answer": 10,
    "cut handshake": 5,
    "duplicate": 4,
    "truncate": 4,
    "junk": 3,
    "delay": 4,
    "refuse": 2,
    "hang": 1,
}
SILENT = ("freeze", "half-open")
LEADER_KILLED = "leader killed"

SEGMENT_S = 6.0
MEAN_GAP_S = 0.3
SILENCE_WITHIN_S = 1.0


class Fault(msgspec.Struct, frozen=True, order=True):
    """One fault, ``at_s`` after the start of its segment; ``for_s`` is its duration, ``delay_ms`` the delay of
    replies."""

    at_s: float
    side: str
    kind: str
    for_s: float = 0.0
    delay_ms: int = 0


class Schedule(msgspec.Struct, frozen=True):
    """The length and the faults of each segment."""

    seed: int
    lengths_s: tuple[float, ...]
    segments: tuple[tuple[Fault, ...], ...]

    @property
    def digest(self) -> str:
        """A hash of the schedule: equal for equal schedules."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:12]


def draw_schedule(seed: int, seconds: float, *, ensemble: bool = False) -> Schedule:
    """Draw segments of about ``SEGMENT_S`` that fill ``seconds``."""
    chance = random.Random(f"faults/{seed}")
    count = max(1, round(seconds / SEGMENT_S))
    length_s = seconds / count
    return Schedule(seed, (length_s,) * count, tuple(_segment(chance, length_s, ensemble) for _ in range(count)))


def _segment(chance: random.Random, length_s: float, ensemble: bool) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    for side in SIDES:
        if chance.random() < 0.4:
            faults.append(Fault(round(chance.uniform(0, SILENCE_WITHIN_S), 3), side, chance.choice(SILENT)))
        at_s = chance.expovariate(1 / MEAN_GAP_S)
        while at_s < length_s:
            kind = chance.choices(kinds, weights)[0]
            faults.append(_fault(chance, round(at_s, 3), side, kind))
            at_s += chance.expovariate(1 / MEAN_GAP_S)
    if ensemble:
        faults.append(
            Fault(
                round(chance.uniform(0, length_s / 2), 3),
                SERVERS,
                LEADER_KILLED,
                for_s=round(chance.uniform(0.2, 1.5), 3),
            )
        )
    return tuple(sorted(faults))


def _fault(chance: random.Random, at_s: float, side: str, kind: str) -> Fault:
    for_s = {"delay": 1.0, "refuse": 0.6, "hang": 0.4}.get(kind, 0.0) * chance.uniform(0.3, 1)
    return Fault(at_s, side, kind, round(for_s, 3), chance.randrange(2, 60) if kind == "delay" else 0)


class Side:
    """One client's connections to the servers: a proxy for each server, and the faults that wait for a frame."""

    def __init__(self, name: str, ports: Sequence[int], seed: int) -> None:
        self.name = name
        self.proxies = [FaultProxy(port) for port in ports]
        self.happened: Counter[str] = Counter()
        self.expired_by_server = 0
        """The number of handshakes in which a server reported that the session is gone."""
        self._chance = random.Random(f"frames/{seed}/{name}")
        self._on_handshake: deque[str] = deque()
        self._on_request: deque[str] = deque()
        self._on_reply: deque[str] = deque()
        self._timers: list[asyncio.TimerHandle] = []
        self._returning: set[asyncio.Task[FaultProxy]] = set()

    @property
    def address(self) -> str:
        return ",".join(proxy.address for proxy in self.proxies)

    async def start(self) -> Side:
        for proxy in self.proxies:
            await proxy.start()
            proxy.on_request, proxy.on_reply = self._request, self._reply
        return self

    async def calm(self) -> None:
        """Stop injecting faults.  Connections that are frozen or half-open stay so, as in a real network."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for waiting in (self._on_handshake, self._on_request, self._on_reply):
            waiting.clear()
        await asyncio.gather(*self._returning)
        for proxy in self.proxies:
            proxy.delay_s, proxy.hang = 0.0, False
            if not proxy.listening:
                await proxy.start()

    async def close(self) -> None:
        await self.calm()
        for proxy in self.proxies:
            await proxy.close()

    # -- injecting -----------------------------------------------------------------------------------------------------

    async def do(self, fault: Fault) -> None:
        waiting = {"cut handshake": self._on_handshake, "cut request": self._on_request}.get(fault.kind)
        if fault.kind == "swallow answer":
            waiting = self._on_request
        elif fault.kind in ("duplicate", "truncate", "junk"):
            waiting = self._on_reply
        if waiting is not None:
            waiting.append(fault.kind)
            return
        self.happened[fault.kind] += 1
        if fault.kind in ("reset", "close"):
            self._cut(reset=fault.kind == "reset")
        elif fault.kind == "refuse":
            await self._refuse(fault.for_s)
        else:
            for proxy in self.proxies:
                self._apply(proxy, fault)

    def _apply(self, proxy: FaultProxy, fault: Fault) -> None:
        if fault.kind == "freeze":
            proxy.freeze()
        elif fault.kind == "half-open":
            proxy.half_open()
        elif fault.kind == "delay":
            proxy.delay_s = fault.delay_ms / 1000
            self._later(fault.for_s, lambda: setattr(proxy, "delay_s", 0.0))
        elif fault.kind == "hang":
            proxy.hang = True
            proxy.cut_all()
            self._later(fault.for_s, lambda: setattr(proxy, "hang", False))
        else:
            raise ValueError(f"fault {fault.kind!r}; expected one of {[*WEIGHTS, *SILENT]}")

    def _cut(self, *, reset: bool) -> None:
        for proxy in self.proxies:
            proxy.cut_all(reset=reset)

    async def _refuse(self, for_s: float) -> None:
        for proxy in self.proxies:
            if proxy.listening:
                await proxy.refuse()
                self._later(for_s, functools.partial(self._return, proxy))
            proxy.cut_all()

    def _return(self, proxy: FaultProxy) -> None:
        task = asyncio.ensure_future(proxy.start())
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    def _later(self, delay_s: float, action: Callable[[], object]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(delay_s, action))

    def _request(self, _link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        # opcode 0 is the handshake; a missing answer to a ping has no effect
        waiting = self._on_request if opcode else self._on_handshake
        if not waiting or opcode == codec.PING:
            return Do.PASS
        kind = waiting.popleft()
        self.happened[kind] += 1
        return Do.CUT_AFTER if kind == "swallow answer" else Do.CUT

    def _reply(self, _link: int, xid: int, frame: bytes) -> bytes:
        if xid == 0 and len(frame) >= 20 and codec.decode_connect_reply(frame[4:])[1] == 0:
            self.expired_by_server += 1
        if xid <= 0 or not self._on_reply:
            return frame
        kind = self._on_reply.popleft()
        self.happened[kind] += 1
        if kind == "truncate":
            raise EndsHere(frame[: self._chance.randrange(len(frame))])
        return frame * 2 if kind == "duplicate" else frame + b"\xff" + self._chance.randbytes(20)


class Servers:
    """Kills the leader of an ensemble and restarts it."""

    def __init__(self, ensemble: ZooKeeperEnsemble) -> None:
        self.happened: Counter[str] = Counter()
        self._ensemble = ensemble
        self._tasks: set[asyncio.Task[None]] = set()

    async def do(self, fault: Fault) -> None:
        task = asyncio.create_task(self._kill_leader(fault.for_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _kill_leader(self, for_s: float) -> None:
        leader = await asyncio.to_thread(self._ensemble.leader)
        if leader is None:
            return
        self.happened[LEADER_KILLED] += 1
        leader.kill()
        await asyncio.sleep(for_s)
        await leader.start_async()

    async def calm(self) -> None:
        """Wait until all servers run again."""
        await asyncio.gather(*self._tasks)
