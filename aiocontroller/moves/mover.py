"""Carries out a plan in small steps, or takes it back; what to do next is decided in ``core.moving``.

The order that survives a SIGKILL at any point:

 1. the audit file says where replicas were (``begin``);
 2. it says what the settings were that throttles replace (``throttle``), and then throttles are set;
 3. partitions move: a run that begins again sees in the cluster which have moved and which are under way;
 4. when nothing of the plan moves any more the settings are put back, and then the file says so (``unthrottled``).

A run finds throttles of an earlier one by a ``throttle`` without its ``unthrottled``, and puts back what that says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from aiocontroller.core import moving
from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.moving import Bounds, Pace, Phase, Plan, Step, View
from aiocontroller.core.throttles import FOLLOWER_REPLICAS, Entity, Settings, beside, throttles
from aiocontroller.moves.history import Assignment, History, plain
from aiocontroller.moves.progress import Meter, Progress
from aiocontroller.net.ports import Clock

LOOK_EVERY_S = 1.0
SIZES_EVERY_S = 5.0
AGAIN_S = 60.0
"""For so long nobody may answer before the move gives up: a controller may be elected."""
STOPS = 30
"""Looks, a second apart, until everything that moves is taken back."""
REFUSED_S = 10.0
"""A partition that the controller has refused waits this long."""

T = TypeVar("T")


class Cluster(Protocol):
    """The cluster as a move sees it.  Each method raises AioControllerError or OSError if it cannot be asked now."""

    async def look(self) -> View:
        """What ZooKeeper holds, and how long brokers take to answer."""

    async def sizes(self, partitions: Sequence[TopicPartition]) -> Mapping[int, Mapping[TopicPartition, int]]:
        """Broker -> bytes of its replicas of these partitions; brokers that do not answer are left out."""

    async def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, str]:
        """Ask the controller in office; None takes a move back.  What it refused, with its reason."""

    async def elect(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
        """Preferred leaders; what was refused, with its reason."""

    async def settings(self, entity: Entity, names: Sequence[str]) -> Settings:
        """These settings of a topic or broker; without those that are not set."""

    async def set(self, entity: Entity, settings: Mapping[str, str | None]) -> None:
        """Change these settings, and leave the others; None: to the default.  Brokers are told in any case.

        Does nothing for a topic that does not exist any more.
        """


class Records(Protocol):
    """Where it is written down what is done."""

    def write(self, what: str, **fields: Any) -> None:
        """See ``audit.Audit``."""


class Result(msgspec.Struct):
    """How a move ended."""

    result: str
    """``moved``, ``reversed``, ``stopped``, or ``incomplete`` if it stopped itself."""
    reasons: tuple[str, ...]
    phases: dict[TopicPartition, Phase]
    refused: dict[TopicPartition, str]
    """What the controller did not accept at last."""


class Mover:
    """One run of a plan; ``stopping`` has it take back what is under way, and end."""

    def __init__(
        self,
        cluster: Cluster,
        records: Records,
        clock: Clock,
        plan: Assignment,
        digest: str,
        past: History,
        bounds: Callable[[History], Bounds],
        *,
        reverse: bool = False,
        leaders: bool = True,
        look_every_s: float = LOOK_EVERY_S,
        tell: Callable[[Progress], object] = lambda progress: None,
    ) -> None:
        """``bounds`` follow from what was away and under-replicated when the plan began."""
        self.stopping = asyncio.Event()
        self._cluster, self._records, self._clock, self._tell = cluster, records, clock, tell
        self._forward, self._digest, self._past, self._bounds_of = plan, digest, past, bounds
        self._reverse, self._leaders, self._look_every_s = reverse, leaders, look_every_s
        self._refused: dict[TopicPartition, str] = {}
        self._refused_s: dict[TopicPartition, float] = {}
        self._elected: set[TopicPartition] = set()  # membership only
        self._taken: set[TopicPartition] = set()  # membership only
        self._throttled: dict[Entity, Settings] | None = past.replaced
        self._set_rate = 0

    async def run(self, *, stop: bool = False) -> Result:
        """Move everything, or with ``stop`` nothing more; throttles are gone when it returns.

        AioControllerError or OSError when the cluster could not be asked for long: then the audit file knows what is
        left, and another run, or one with ``stop``, goes on from there.
        """
        view = await self._again(self._cluster.look)
        past = self._begun(view, stop)
        before = past.before or {}
        self._plan: Plan = {tp: before[tp] for tp in self._forward if tp in before} if self._reverse else self._forward
        self._opposite: Plan = self._forward if self._reverse else before
        self._meter = Meter(self._opposite, self._plan)
        bounds = self._bounds_of(past)
        self._records.write("reverse" if self._reverse else "stop" if stop else "move", bounds=bounds._asdict())
        if stop:
            self.stopping.set()
        try:
            result, reasons, step = await self._moved(view, bounds)
        except BaseException:
            self._records.write("end", result="failed", reasons=(), refused=_words(self._refused))
            raise
        await self._unthrottle()
        found = Result(result, reasons, dict(step.phases), self._refused)
        self._records.write("end", result=result, reasons=reasons, refused=_words(self._refused))
        return found

    def _begun(self, view: View, stop: bool) -> History:
        if self._past.before is not None:
            return self._past
        if not stop:
            self._check(view)
        before = {tp: now.assignment.origin for tp in self._forward if (now := view.partitions.get(tp)) is not None}
        if stop or all(each in moving.IN_PLACE for each in moving.phases(self._forward, {}, view).values()):
            return msgspec.structs.replace(self._past, before=before)  # nothing begins that could be reversed
        found = moving.health(view, None)
        past = History(before, len(found.absent), found.under_replicated, self._past.replaced)
        self._records.write(
            "begin",
            plan=self._digest,
            absent=past.absent,
            under_replicated=past.under_replicated,
            before=plain(before),
        )
        return past

    def _check(self, view: View) -> None:
        """BadInputError naming the first partition of a new plan that cannot move as it says."""
        for tp, target in self._forward.items():
            now = view.partitions.get(tp)
            if now is None:
                raise BadInputError(f"the plan: found {tp}, expected a partition that exists")
            if not target or len(set(target)) < len(target):
                raise BadInputError(f"the plan: {tp}: found replicas {list(target)}, expected different brokers")
            for broker in target:
                if broker not in view.live and broker not in now.assignment.replicas:
                    raise BadInputError(f"the plan: {tp}: found broker {broker}, expected one that is registered")

    # -- the loop --------------------------------------------------------------------------------------------------

    async def _moved(self, view: View, bounds: Bounds) -> tuple[str, tuple[str, ...], Step]:
        pace, before, sized_s = moving.first_pace(bounds), None, float("-inf")
        while True:
            at_s = self._clock.monotonic()
            found = moving.health(view, before)
            step = moving.next_step(self._plan, self._opposite, view, bounds, pace, found, at_s, self._waiting(at_s))
            held = bool(step.held) or self._only_tries_again(step)
            pace = moving.adapted(pace, found, bounds, held=held, at_s=at_s)
            if self.stopping.is_set():
                return "stopped", (), await self._stop(step)
            await self._tidy(step)
            if step.over:
                return "reversed" if self._reverse else "moved", (), step
            if pace.held_since_s is not None and at_s - pace.held_since_s >= bounds.hold_s:
                reasons = step.held or (f"refused by the controller: {len(step.begin)} partitions",)
                return "incomplete", reasons, await self._stop(step)
            if not await self._throttle(pace):
                await self._carry_out(step)
            if at_s - sized_s >= SIZES_EVERY_S and self._meter.copying:
                self._meter.read(await self._again(self._cluster.sizes, self._meter.copying), at_s)
                sized_s = at_s
            self._tell(self._meter.progress(step.phases, self._set_rate, step.held))
            await self._pause()
            before, view = view, await self._again(self._cluster.look)

    async def _carry_out(self, step: Step) -> None:
        wanted: dict[TopicPartition, tuple[int, ...] | None] = {**dict.fromkeys(step.take_back), **step.begin}
        if wanted:
            self._taken.update(step.take_back)
            self._records.write("reassign", to=[(tp.topic, tp.partition, to) for tp, to in wanted.items()])
            refused = await self._again(self._cluster.reassign, wanted)
            for tp in wanted:
                self._refused.pop(tp, None)
                self._refused_s.pop(tp, None)
            self._refused |= refused
            self._refused_s |= dict.fromkeys(refused, self._clock.monotonic())
            if refused:
                self._records.write("refused", reasons=_words(refused))

    def _only_tries_again(self, step: Step) -> bool:
        """Nothing is under way, and all that would begin was refused before."""
        return Phase.MOVING not in step.phases.values() and self._refused_s.keys() >= {*step.begin, *step.take_back}

    def _waiting(self, at_s: float) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, since in self._refused_s.items() if at_s - since < REFUSED_S)

    async def _tidy(self, step: Step) -> None:
        """Preferred leaders lead what has moved; asked for once each."""
        wanted = [tp for tp in step.elect if self._leaders and tp not in self._elected]
        if wanted:
            self._elected.update(wanted)
            self._records.write("elect", partitions=[(tp.topic, tp.partition) for tp in wanted])
            refused = await self._again(self._cluster.elect, wanted)
            if refused:
                self._records.write("refused", reasons=_words(refused))

    async def _stop(self, step: Step) -> Step:
        """Take back what is under way, until nothing is."""
        wanted: list[TopicPartition] = []
        for _ in range(STOPS):
            view = await self._again(self._cluster.look)
            wanted = moving.to_stop(self._plan, self._opposite, view)
            if not wanted:
                taken_back = {tp: to for tp, to in moving.misordered(self._opposite, view).items() if tp in self._taken}
                await self._carry_out(step._replace(take_back=[], begin=taken_back))
                return step._replace(phases=moving.phases(self._plan, self._opposite, view))
            await self._carry_out(step._replace(take_back=wanted, begin={}))
            await self._clock.sleep(self._look_every_s)
        raise AioControllerError(
            f"{len(wanted)} moves could not be taken back, {wanted[0]} among them: run --stop again"
        )

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._look_every_s):
                await self.stopping.wait()
        except TimeoutError:
            pass

    async def _again(self, ask: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Ask until there is an answer: who is asked may be restarting.  BadInputError at once."""
        deadline = self._clock.monotonic() + AGAIN_S
        while True:
            try:
                return await ask(*arguments)
            except BadInputError:
                raise
            except (AioControllerError, OSError):
                if self._clock.monotonic() >= deadline:
                    raise
                await self._clock.sleep(self._look_every_s)

    # -- throttles -------------------------------------------------------------------------------------------------

    async def _throttle(self, pace: Pace) -> bool:
        """Set them, or change the rate; returns whether brokers may not have heard of them yet, since they are new."""
        wanted = throttles(self._opposite, self._plan, pace.rate)
        if not wanted or self._set_rate == pace.rate:
            return False
        new = self._set_rate == 0
        if self._throttled is None:
            self._throttled = await self._present(wanted)
            self._records.write("throttle", replaced=[(*e, own) for e, own in self._throttled.items()])
        self._records.write("rate", bytes_per_s=pace.rate)
        for entity, own in wanted.items():
            if entity[0] == "brokers":
                await self._again(self._cluster.set, entity, own)
            elif new:
                await self._again(self._cluster.set, entity, beside(own, self._throttled.get(entity, {})))
        self._set_rate = pace.rate
        return new

    async def _present(self, wanted: Mapping[Entity, Mapping[str, str]]) -> dict[Entity, Settings]:
        """What the settings are that throttles replace; BadInputError for a broker that has a rate already."""
        found = {entity: await self._again(self._cluster.settings, entity, list(own)) for entity, own in wanted.items()}
        if any(_named(own) <= _named(found[entity]) for entity, own in wanted.items() if entity[0] == "topics"):
            # The new replicas are throttled already: by a run of this plan whose audit file is lost.
            return {entity: dict.fromkeys(own) for entity, own in wanted.items()}
        for (kind, name), settings in found.items():
            if kind == "brokers" and settings:
                rates = ", ".join(f"{key}={value}" for key, value in settings.items())
                raise BadInputError(
                    f"broker {name}: found {rates}, expected no throttle: another move is under way, or has left it; "
                    "end that, or remove the setting"
                )
        return {entity: {name: found[entity].get(name) for name in own} for entity, own in wanted.items()}

    async def _unthrottle(self) -> None:
        """Put back what was there; also what an earlier run has left."""
        if self._throttled is None:
            return
        for entity, own in self._throttled.items():
            await self._again(self._cluster.set, entity, own)
        self._records.write("unthrottled")
        self._throttled, self._set_rate = None, 0


def _named(settings: Mapping[str, str | None]) -> frozenset[str]:
    return frozenset((settings.get(FOLLOWER_REPLICAS) or "").split(","))


def _words(refused: Mapping[TopicPartition, str]) -> list[tuple[str, int, str]]:
    return [(tp.topic, tp.partition, why) for tp, why in refused.items()]
