"""Restarts brokers one after the other by an operator's command, behind the gates of ``core.rolling``.

Before the command for a broker runs, the audit file records the broker and its registration.  When a roll that was
killed is resumed, it sees whether the broker has registered again since, and reruns the command only if it has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from aiocontroller.core.moving import MoveView
from aiocontroller.core.rolling import Restarted, RestartGate, gate, order, returned
from aiocontroller.moves.mover import Records
from aiocontroller.net.commands import CommandResult
from aiocontroller.net.ports import Clock

LOOK_EVERY_S = 1.0


class Seen(NamedTuple):
    """The cluster at one moment."""

    view: MoveView
    epochs: Mapping[int, int]
    """Live broker -> the epoch of its registration."""
    addresses: Mapping[int, tuple[str, int]]
    """Live broker -> host and port."""
    controller: int | None


class RollerCluster(Protocol):
    """The cluster as a roll sees it."""

    async def look(self) -> Seen:
        """Return what ZooKeeper holds now; AioControllerError or OSError if it does not answer."""

    async def without(self, broker: int) -> RestartGate:
        """Return the state of the cluster if this broker were shut down; the first three fields are empty."""

    async def elect_preferred(self) -> None:
        """Ask the active controller to elect all preferred leaders."""


class RollResult(msgspec.Struct):
    """How a roll ended."""

    result: str
    """``rolled``, ``stopped``, ``held`` if a gate did not open in time, or ``failed`` if a command did."""
    reasons: tuple[str, ...]
    restarted: tuple[int, ...]
    left: tuple[int, ...]


class Roller:
    """One run; setting ``stopping`` makes it end before the next broker."""

    def __init__(
        self,
        cluster: RollerCluster,
        records: Records,
        clock: Clock,
        run: Callable[[int], Awaitable[CommandResult]],
        *,
        wait_s: float,
        elect: bool = False,
        look_every_s: float = LOOK_EVERY_S,
        show: Callable[[str], object] = lambda line: None,
    ) -> None:
        """``run`` restarts a broker, or starts one that is down; each wait for a gate may take ``wait_s``."""
        self.stopping = asyncio.Event()
        self._cluster, self._records, self._clock, self._run = cluster, records, clock, run
        self._wait_s, self._elect, self._look_every_s, self._show = wait_s, elect, look_every_s, show

    async def roll(self, wanted: Collection[int] | None, past: Restarted | None) -> RollResult:
        """Restart the brokers ``wanted`` (None: all registered ones), except those that ``past`` names as done."""
        seen = await self._cluster.look()
        done = list(past.done if past else ())
        known = {*seen.epochs, *(wanted or ()), *done}
        todo = [b for b in order(known if wanted is None else wanted, seen.controller) if b not in done]
        addresses = [(broker, *seen.addresses[broker]) for broker in sorted(seen.addresses)]
        self._records.write("roll", brokers=todo, resumed=past is not None, addresses=addresses)
        if done:
            self._show(f"going on: restarted already: {', '.join(map(str, done))} (another --audit begins anew)")
        under_way = past.under_way if past else None
        if under_way in todo:
            todo.remove(under_way)
            todo.insert(0, under_way)
        while todo:
            if self.stopping.is_set():
                return self._ended("stopped", (), done, todo)
            broker = todo[0]
            resuming = past if past is not None and broker == under_way else None
            refused = await self._one(broker, known, resuming)
            if refused is not None:
                return self._ended(*refused, done, todo)
            done.append(todo.pop(0))
        return self._ended("rolled", (), done, todo)

    def _ended(self, result: str, reasons: tuple[str, ...], done: Sequence[int], todo: Sequence[int]) -> RollResult:
        self._records.write("end", result=result, reasons=reasons, restarted=list(done), left=list(todo))
        return RollResult(result, reasons, tuple(done), tuple(todo))

    async def _one(
        self, broker: int, known: Collection[int], past: Restarted | None
    ) -> tuple[str, tuple[str, ...]] | None:
        """Restart one broker; return None, or why it was not restarted, as a result and its reasons."""
        epoch = (await self._cluster.look()).epochs.get(broker)
        before = past.epoch if past is not None else epoch
        if past is None or epoch == before or epoch is None:
            if epoch is not None:  # a broker that an interrupted command has shut down has passed its gate
                shut = await self._until_open(broker, known)
                if shut:
                    return "stopped" if self.stopping.is_set() else "held", shut
                before = (await self._cluster.look()).epochs.get(broker)
            self._records.write("restart", broker=broker, epoch=before)
            self._show(f"broker {broker}: restarting")
            ended = await self._run(broker)
            self._records.write("command", broker=broker, code=ended.code, output=ended.output)
            if ended.code != 0:
                how = "took too long" if ended.code is None else f"ended with code {ended.code}"
                return "failed", (f"the command for broker {broker} {how}: {' '.join(ended.output.split())[-200:]}",)
        back = await self._until_back(broker, before, known)
        if back:
            return "held", back
        self._records.write("restarted", broker=broker)
        self._show(f"broker {broker}: back, and in sync")
        if self._elect:
            await self._cluster.elect_preferred()
        return None

    async def _until_open(self, broker: int, known: Collection[int]) -> tuple[str, ...]:
        """Wait until the broker may go down; return the reasons why it may not if that takes too long."""
        deadline = self._clock.monotonic() + self._wait_s
        shown: tuple[str, ...] = ()
        while True:
            found = gate((await self._cluster.look()).view, known)
            if found.open:
                found = await self._cluster.without(broker)
            if found.open:
                return ()
            if self._clock.monotonic() >= deadline or self.stopping.is_set():
                return found.reasons()
            if shown != found.reasons():
                shown = found.reasons()
                self._show(f"broker {broker}: waiting: {'; '.join(shown)}")
            await self._clock.sleep(self._look_every_s)

    async def _until_back(self, broker: int, before: int | None, known: Collection[int]) -> tuple[str, ...]:
        deadline = self._clock.monotonic() + self._wait_s
        shown = False
        while True:
            if self.stopping.is_set() and not shown:
                shown = True
                self._show(f"broker {broker}: stopping once it is back")
            seen = await self._cluster.look()
            if returned(seen.view, broker, seen.epochs.get(broker), before):
                return ()
            if self._clock.monotonic() >= deadline:
                same = seen.epochs.get(broker) == before and before is not None
                if same:
                    return (f"broker {broker} has not registered anew",)
                return gate(seen.view, known).reasons() or (f"broker {broker} is not back",)
            await self._clock.sleep(self._look_every_s)
