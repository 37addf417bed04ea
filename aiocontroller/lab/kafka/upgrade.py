"""A rolling upgrade of a pair of controllers to another version, and its effect on clients.

The order is that of docs/operating.md: the standby is replaced first; when the new one is warm, the active controller
ends by SIGTERM, hands over the role, and is replaced as well.  A version that leaves the role to a broker when it ends
requires ``takeover`` then.  Besides the load of records, an operator requests changes all the time, because producers
need a controller only when something changes.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

import msgspec

from aiocontroller.lab.cluster.load.clients import now_us
from aiocontroller.lab.kafka.controllers import WITHIN_S, ControllerPair, OurController, until
from aiocontroller.lab.kafka.interference import measured_interference
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.lab.kafka.programs import Program
from aiocontroller.lab.kafka.view import PartitionKey
from aiocontroller.net.tasks import task_group

POLL_S = 0.005


class Handover(msgspec.Struct, frozen=True):
    """How the role was handed over."""

    between_ms: float
    """From the end of the old registration to the successor's, observed in ZooKeeper every ``POLL_S``."""
    known_ms: float
    """From SIGTERM until every broker named the successor."""
    terms: int
    """The number of terms that began; if more than one, a broker was the controller until an operator's takeover."""


class Answered(NamedTuple):
    """A change that the operator requested."""

    what: str
    began_us: int
    took_ms: float
    """Time until the request succeeded; a rejected request is repeated, as by Kafka's tools."""


class Round(msgspec.Struct, frozen=True):
    """The effect on clients of one upgrade, or of the same time without one."""

    what: str
    seconds: float
    pause_ms: dict[str, float]
    """By kind of client: the longest time without an acknowledged record, on any partition."""
    errors: tuple[str, ...]
    """Errors that clients or the operator got."""
    answered: int
    """The number of changes that the operator requested."""
    answer_median_ms: float
    answer_most_ms: float
    interference_ms: float
    """The longest delay of a process that was ready to run."""
    load: float
    """The machine's load average at the end."""
    handover: Handover | None = None


class Operator:
    """Requests one change after the other on its own topics: creates a topic, moves its replicas, deletes it.

    ``brokers``: the brokers of these topics; by default all.
    """

    def __init__(self, cluster: PlayedCluster, brokers: Collection[int] = ()) -> None:
        self.answered: list[Answered] = []
        self.errors: list[str] = []
        self._cluster = cluster
        self._ids = sorted(brokers or cluster.brokers)
        self._ending = False
        self._ended = 0
        """The number of requests that were answered or failed."""

    async def run(self) -> None:
        """Request changes until ``end``; every topic that was created is deleted."""
        ids, number = self._ids, 0
        while not self._ending:
            topic = f"operators-{number}"
            number += 1
            replicas = {p: tuple((ids[p:] + ids[:p])[:2]) for p in range(len(ids))}
            turned: Mapping[PartitionKey, tuple[int, ...]] = {(topic, p): own[::-1] for p, own in replicas.items()}
            await self._ask("create", self._cluster.create_topic(topic, replicas))
            await self._ask("reassign", self._cluster.ask_to_reassign(turned))
            await self._ask("delete", self._cluster.delete_topic(topic))

    async def end(self, running: asyncio.Task[None]) -> None:
        """Stop after the changes of the current topic."""
        self._ending = True
        await running

    async def settled(self) -> None:
        """Wait until the request in flight has been answered."""
        before = self._ended

        async def one_more() -> bool:
            return self._ended > before

        await until(one_more, "the operator has an answer")

    def since(self, began_us: int) -> list[Answered]:
        """Return the changes that were requested after this moment."""
        return [each for each in self.answered if each.began_us >= began_us]

    async def _ask(self, what: str, asking: Awaitable[None]) -> None:
        began_us = now_us()
        try:
            await asking
        except Exception as error:  # whatever a tool would show to its user
            self.errors.append(f"operator: {what}: {type(error).__name__}: {error}")
        else:
            self.answered.append(Answered(what, began_us, (now_us() - began_us) / 1000))
        self._ended += 1


async def measured(
    cluster: PlayedCluster, operator: Operator, what: str, act: Callable[[], Awaitable[Handover | None]]
) -> Round:
    """Perform ``act`` under the running load, and measure its effect on clients until everything works again."""
    async with measured_interference() as interference:
        since_us, errors = now_us(), len(operator.errors)
        handover = await act()
        await cluster.load.settled()
        await operator.settled()
        await interference.end()
    until_us = now_us()
    kinds, pause_ms = cluster.load.kinds(), dict[str, float]()
    for (topic, _), gap_us in cluster.load.longest_gaps_us(since_us, until_us).items():
        pause_ms[kinds[topic]] = max(pause_ms.get(kinds[topic], 0.0), gap_us / 1000)
    took = [each.took_ms for each in operator.since(since_us)]
    return Round(
        what=what,
        seconds=(until_us - since_us) / 1e6,
        pause_ms=pause_ms,
        errors=(*cluster.load.errors_since(since_us), *operator.errors[errors:]),
        answered=len(took),
        answer_median_ms=statistics.median(took) if took else 0.0,
        answer_most_ms=max(took, default=0.0),
        interference_ms=interference.worst_ms,
        load=os.getloadavg()[0],
        handover=handover,
    )


async def exchange(
    pair: ControllerPair, program: Program, mixed: Callable[[], Awaitable[None]] | None = None
) -> Handover:
    """Replace both controllers by ``program``; ``mixed`` is called after the handover, before the second replacement.

    Raises TimeoutError.
    """
    active = await _active(pair)
    standby = next(each for each in pair.instances.values() if each is not active)
    await standby.give_up()
    await _start(standby, program)
    handover = await _hand_over(pair, active, standby)
    if mixed is not None:
        await mixed()
    await _start(active, program)
    return handover


async def _active(pair: ControllerPair) -> OurController:
    async def ours() -> OurController | None:
        holder = await pair.holder()
        return None if holder is None else pair.instances.get(holder)

    found: OurController = await until(ours, "one of the pair holds /controller")
    return found


async def _start(instance: OurController, program: Program) -> None:
    """Start the controller, and wait until it could take over without reading the cluster."""
    instance.program = program
    instance.forget_address()
    instance.launch()
    await until(instance.could_take_over, "the standby could take over")


async def _hand_over(pair: ControllerPair, active: OurController, standby: OurController) -> Handover:
    epoch = await pair.epoch()
    began_s = time.monotonic()
    left_s: float | None = None
    asked = False
    async with task_group() as tasks:
        tasks.start_soon(active.give_up)
        while (holder := await pair.holder()) != standby.controller_id:
            if holder != active.controller_id and left_s is None:
                left_s = time.monotonic()
            if holder in pair.brokers and not asked:
                asked = True
                tasks.start_soon(standby.ask_to_take_over)
            if time.monotonic() > began_s + WITHIN_S:
                raise TimeoutError(f"not within {WITHIN_S:g} s: the standby holds /controller")
            await asyncio.sleep(POLL_S)
        taken_s = time.monotonic()
        await until(standby.is_known, "every broker names the successor")
        known_s = time.monotonic()
    between_s = 0.0 if left_s is None else taken_s - left_s
    return Handover(between_s * 1000, (known_s - began_s) * 1000, await pair.epoch() - epoch)
