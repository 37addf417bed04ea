"""Durations in a real run, by the times of ZooKeeper's transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from aiocontroller.lab.checkers.history import Partition, ZNodeHistory
from aiocontroller.lab.processes.transaction_log import CREATE, DELETE, Transaction
from aiocontroller.zookeeper import paths

_BROKERS = paths.broker_id(0).removesuffix("0")


class Span(NamedTuple):
    """The time in which a broker was registered or a controller was active.

    Times are in ms since 1970; ``end_ms`` is 0 while it lasts.
    """

    who: str
    start_ms: int
    end_ms: int = 0


class Times(msgspec.Struct, frozen=True):
    """The distribution of ``count`` durations, in seconds."""

    what: str
    count: int
    p50: float
    p90: float
    max: float

    @classmethod
    def of(cls, what: str, durations_ms: Sequence[float]) -> Times:
        ordered = sorted(durations_ms)

        def at(share: float) -> float:
            return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000, 3) if ordered else 0.0

        return cls(what, len(ordered), at(0.5), at(0.9), at(1.0))


class Measures:
    """The measurements of a run; ``see`` takes each transaction after the history has taken it."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.vacancies_ms: list[int] = []
        """From the end of ``/controller`` to the next election."""
        self.leaderless_ms: list[int] = []
        """From the end of a leader's registration to the write of another leader, even if that waits for the last
        replica."""
        self._open: dict[str, int] = {}
        self._holder = "controller"
        self._vacant_since_ms = 0
        self._leaderless: dict[Partition, tuple[int, int]] = {}

    def see(self, transaction: Transaction, history: ZNodeHistory) -> None:
        now_ms = transaction.time_ms
        for change in transaction.changes:
            broker = change.path.removeprefix(_BROKERS)
            name = f"broker {broker}" if broker.isdecimal() else change.path
            if change.path != paths.CONTROLLER and not broker.isdecimal():
                continue
            if change.kind == CREATE:
                self._open[name] = now_ms
                if change.path == paths.CONTROLLER:
                    self._won(change.data or b"", now_ms)
            elif change.kind == DELETE:
                self._gone(name, now_ms, history)
        self._elected(now_ms, history)

    def _won(self, data: bytes, now_ms: int) -> None:
        if self._vacant_since_ms:
            self.vacancies_ms.append(now_ms - self._vacant_since_ms)
        self._vacant_since_ms = 0
        self._holder = f"controller {msgspec.json.decode(data).get('brokerid')}"

    def _gone(self, name: str, now_ms: int, history: ZNodeHistory) -> None:
        since_ms = self._open.pop(name, now_ms)
        if name == paths.CONTROLLER:
            self._vacant_since_ms = now_ms
            self.spans.append(Span(self._holder, since_ms, now_ms))
            return
        self.spans.append(Span(name, since_ms, now_ms))
        broker = int(name.removeprefix("broker "))
        for partition, state in history.states.items():
            if state.leader == broker:
                self._leaderless.setdefault(partition, (broker, now_ms))

    def _elected(self, now_ms: int, history: ZNodeHistory) -> None:
        for partition, (dead, since_ms) in list(self._leaderless.items()):
            state = history.states.get(partition)
            if state is None:
                del self._leaderless[partition]
            elif state.leader not in (-1, dead):
                self.leaderless_ms.append(now_ms - since_ms)
                del self._leaderless[partition]
            elif state.leader == dead and f"broker {dead}" in self._open:
                del self._leaderless[partition]  # the broker came back before an election was needed

    def all_spans(self) -> list[Span]:
        """Return the spans that have ended and those that still last."""
        lasting = [Span(self._holder if n == paths.CONTROLLER else n, since) for n, since in self._open.items()]
        return [*self.spans, *lasting]

    def times(self) -> list[Times]:
        return [
            Times.of("/controller gone → won", self.vacancies_ms),
            Times.of("leader's session over → next leader written", self.leaderless_ms),
        ]
