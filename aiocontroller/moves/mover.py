"""Carries out a plan in small steps, or takes it back; ``core.moving`` decides on the next step.

This order survives a SIGKILL at any point:

 1. the audit file records where replicas were (``begin``);
 2. it records the settings that throttles replace (``throttle``), and then throttles are set;
 3. partitions move: a run that resumes sees in the cluster which have moved and which are under way;
 4. when no partition of the plan moves any more, the settings are restored, and the file records this
    (``unthrottled``).

A ``throttle`` without an ``unthrottled`` shows a run that an earlier one has left throttles, and what to restore.

Throttles are compared at each look, and set again if they were removed: Kafka's own tool removes those of all brokers
when a move of its own has ended.  A rate that this plan has not set belongs to another move, and ends this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from aiocontroller.core import moving
from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.moving import MoveBounds, MovePace, MovePhase, MovePlan, MoveStep, MoveView
from aiocontroller.core.throttles import (
    FOLLOWER_REPLICAS,
    Entity,
    Settings,
    beside,
    put_back,
    replicas,
    throttles,
)
from aiocontroller.moves.audit import NoRecords, NotWrittenError
from aiocontroller.moves.history import Assignment, History, plain
from aiocontroller.moves.progress import Meter, MoveProgress
from aiocontroller.net.ports import Clock

LOOK_EVERY_S = 1.0
SIZES_EVERY_S = 5.0
AGAIN_S = 60.0
"""The move gives up after this time without an answer; until then a controller may be elected."""
STOPS = 30
"""The number of looks, a second apart, that taking back all moves may need."""
STOPPING = "stopping: what is under way is taken back"
REFUSED_S = 10.0
"""How long a partition waits after the controller has refused it."""

T = TypeVar("T")
Phases = Mapping[TopicPartition, MovePhase]
MoverChange = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""Maps all settings to those that change; None: back to the default."""


class MoverCluster(Protocol):
    """The cluster as a move sees it.  Each method raises AioControllerError or OSError if it cannot be asked now."""

    async def look(self) -> MoveView:
        """Return what ZooKeeper holds, and how long brokers take to answer."""

    async def sizes(self, partitions: Sequence[TopicPartition]) -> Mapping[int, Mapping[TopicPartition, int]]:
        """Return broker -> bytes of its replicas of these partitions; brokers that do not answer are left out."""

    async def check_controller(self) -> None:
        """BadInputError if the active controller serves no reassignments, as Kafka's before 2.4."""

    async def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, str]:
        """Ask the active controller to move partitions; None takes a move back.  Return refused partition -> reason."""

    async def elect(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
        """Ask for preferred leaders; return refused partition -> reason."""

    async def change(self, entity: Entity, change: MoverChange) -> None:
        """Change settings of a topic or broker atomically, based on their present values; always notify brokers.

        Does nothing for a topic that no longer exists.
        """


class Records(Protocol):
    """Records what is done."""

    def write(self, what: str, **fields: Any) -> None:
        """See ``audit.Audit``."""


class MoveResult(msgspec.Struct):
    """How a move ended."""

    result: str
    """``moved``, ``reversed``, ``stopped``, or ``incomplete`` if it stopped itself."""
    reasons: tuple[str, ...]
    phases: dict[TopicPartition, MovePhase]
    refused: dict[TopicPartition, str]
    """What the controller still refused at the end, with its reasons."""


class Mover:
    """One run of a plan; setting ``stopping`` makes it take back what is under way, and end."""

    def __init__(
        self,
        cluster: MoverCluster,
        records: Records,
        clock: Clock,
        plan: Assignment,
        digest: str,
        past: History,
        bounds: Callable[[History], MoveBounds],
        *,
        reverse: bool = False,
        leaders: bool = True,
        look_every_s: float = LOOK_EVERY_S,
        on_progress: Callable[[MoveProgress], object] = lambda progress: None,
    ) -> None:
        """``bounds`` depend on which brokers were absent, and what was under-replicated, when the plan began."""
        self.stopping = asyncio.Event()
        self._cluster, self._clock, self._on_progress = cluster, clock, on_progress
        self._records = records
        self._forward, self._digest, self._past, self._bounds_of = plan, digest, past, bounds
        self._reverse, self._leaders, self._look_every_s = reverse, leaders, look_every_s
        self._refused: dict[TopicPartition, str] = {}
        self._refused_s: dict[TopicPartition, float] = {}
        self._elected: set[TopicPartition] = set()  # membership only
        self._taken: set[TopicPartition] = set()  # membership only
        self._arrived: set[TopicPartition] = set()  # membership only
        self._numbers: dict[Entity, list[int]] = {}
        for tp in plan:
            self._numbers.setdefault(("topics", tp.topic), []).append(tp.partition)
        self._throttled: dict[Entity, Settings] | None = past.replaced
        self._rates = list(past.rates)

    async def run(self, *, stop: bool = False) -> MoveResult:
        """Move everything, or with ``stop`` take back what is under way; throttles are gone when it returns.

        AioControllerError or OSError when the cluster did not answer for ``AGAIN_S``: the audit file then shows what is
        left, and another run, with or without ``stop``, continues from there.
        """
        view = await self._again(self._cluster.look)
        if not stop:
            await self._again(self._cluster.check_controller)
        past = self._begun(view, stop)
        before = past.before or {}
        self._plan: MovePlan = (
            {tp: before[tp] for tp in self._forward if tp in before} if self._reverse else self._forward
        )
        self._opposite: MovePlan = self._forward if self._reverse else before
        self._meter = Meter(self._opposite, self._plan)
        bounds = self._bounds_of(past)
        self._records.write("reverse" if self._reverse else "stop" if stop else "move", bounds=bounds._asdict())
        if stop:
            self.stopping.set()
        try:
            result, reasons, phases = await self._moved(view, bounds)
        except NotWrittenError:
            self._records = NoRecords()  # what was begun is on disk, and what follows only takes it back
            await self._stop()
            await self._unthrottle()
            raise
        except BaseException as error:
            if isinstance(error, BadInputError):  # the controller answers, but cannot go on
                await self._unthrottle()
            self._records.write("end", result="failed", reasons=(), refused=_words(self._refused))
            raise
        await self._unthrottle()
        self._records.write("end", result=result, reasons=reasons, refused=_words(self._refused))
        return MoveResult(result, reasons, dict(phases), self._refused)

    def _begun(self, view: MoveView, stop: bool) -> History:
        if self._past.before is not None:
            return self._past
        if not stop:
            self._check(view)
        before = {tp: now.assignment.origin for tp in self._forward if (now := view.partitions.get(tp)) is not None}
        if stop or all(each in moving.IN_PLACE for each in moving.phases(self._forward, {}, view).values()):
            return msgspec.structs.replace(self._past, before=before)  # no move begins that could be reversed
        found = moving.health(view, None)
        past = History(before, len(found.absent), found.under_replicated, self._past.replaced, self._past.rates)
        self._records.write(
            "begin",
            plan=self._digest,
            absent=past.absent,
            under_replicated=past.under_replicated,
            before=plain(before),
        )
        return past

    def _check(self, view: MoveView) -> None:
        """BadInputError naming the first partition that cannot move as a new plan says."""
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

    async def _moved(self, view: MoveView, bounds: MoveBounds) -> tuple[str, tuple[str, ...], Phases]:
        pace, before, sized_s = moving.first_pace(bounds), None, float("-inf")
        while True:
            at_s = self._clock.monotonic()
            found = moving.health(view, before)
            step = moving.next_step(
                self._plan, self._opposite, view, bounds, pace, found, at_s, self._waiting(at_s), self._arrived
            )
            self._arrived.update(tp for tp, each in step.phases.items() if each is MovePhase.DONE)
            held = bool(step.held) or self._only_tries_again(step)
            pace = moving.adapted(pace, found, bounds, held=held, at_s=at_s)
            if self.stopping.is_set():
                return "stopped", (), await self._stop()
            await self._tidy(step)
            if step.over:
                taken = sum(each is MovePhase.TAKEN for each in step.phases.values())
                if taken:
                    return "incomplete", (f"{MovePhase.TAKEN.value}: {taken} partitions",), step.phases
                return "reversed" if self._reverse else "moved", (), step.phases
            if pace.held_since_s is not None and at_s - pace.held_since_s >= bounds.hold_s:
                why = next((self._refused[tp] for tp in step.begin if tp in self._refused), "")
                reasons = step.held or (f"refused by the controller: {len(step.begin)} partitions ({why})",)
                return "incomplete", reasons, await self._stop()
            wanted = self._wanted(view, pace)
            foreign = self._foreign(wanted, view)
            if foreign:
                return "incomplete", foreign, await self._stop()
            if not await self._throttle(wanted, view, pace):
                await self._carry_out(step.begin, step.take_back)
            if at_s - sized_s >= SIZES_EVERY_S and self._meter.copying:
                self._meter.read(await self._again(self._cluster.sizes, self._meter.copying), at_s)
                sized_s = at_s
            self._on_progress(self._meter.progress(step.phases, pace.rate if wanted else 0, step.held))
            await self._pause()
            await self._again(self._cluster.check_controller)  # an old one would never end what is under way
            before, view = view, await self._again(self._cluster.look)

    async def _carry_out(self, begin: MovePlan, take_back: Sequence[TopicPartition]) -> None:
        wanted: dict[TopicPartition, tuple[int, ...] | None] = {**dict.fromkeys(take_back), **begin}
        if wanted:
            self._taken.update(take_back)
            self._records.write("reassign", to=[(tp.topic, tp.partition, to) for tp, to in wanted.items()])
            refused = await self._again(self._cluster.reassign, wanted)
            for tp in wanted:
                self._refused.pop(tp, None)
                self._refused_s.pop(tp, None)
            self._refused |= refused
            self._refused_s |= dict.fromkeys(refused, self._clock.monotonic())
            if refused:
                self._records.write("refused", reasons=_words(refused))

    def _only_tries_again(self, step: MoveStep) -> bool:
        """Whether nothing is under way, and everything that would begin has been refused before."""
        return MovePhase.MOVING not in step.phases.values() and self._refused_s.keys() >= {*step.begin, *step.take_back}

    def _waiting(self, at_s: float) -> dict[TopicPartition, str]:
        """Return partition -> reason for those that the controller refused less than ``REFUSED_S`` ago."""
        return {tp: self._refused[tp] for tp, since in self._refused_s.items() if at_s - since < REFUSED_S}

    async def _tidy(self, step: MoveStep) -> None:
        """Ask for the preferred leaders of what has moved, once each."""
        wanted = [tp for tp in step.elect if self._leaders and tp not in self._elected]
        if wanted:
            self._elected.update(wanted)
            self._records.write("elect", partitions=[(tp.topic, tp.partition) for tp in wanted])
            refused = await self._again(self._cluster.elect, wanted)
            if refused:
                self._refused |= {tp: f"no preferred leader: {why}" for tp, why in refused.items()}
                self._records.write("refused", reasons=_words(refused))

    async def _stop(self) -> Phases:
        """Take back what is under way until nothing is left; return the phases."""
        wanted: list[TopicPartition] = []
        for _ in range(STOPS):
            view = await self._again(self._cluster.look)
            phases = moving.phases(self._plan, self._opposite, view)
            wanted = [tp for tp in moving.to_stop(self._plan, self._opposite, view) if tp not in self._arrived]
            self._on_progress(self._meter.progress(phases, self._rates[-1] if self._rates else 0, (STOPPING,)))
            if not wanted:
                taken_back = {tp: to for tp, to in moving.misordered(self._opposite, view).items() if tp in self._taken}
                await self._carry_out(taken_back, ())
                return phases
            await self._carry_out({}, wanted)
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
        """Ask until there is an answer, since the broker may be restarting; BadInputError is raised at once."""
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

    def _wanted(self, view: MoveView, pace: MovePace) -> dict[Entity, dict[str, str]]:
        """Return the throttles for those partitions that still exist."""
        there = {tp: target for tp, target in self._plan.items() if tp in view.partitions}
        return throttles(self._opposite, there, pace.rate)

    def _foreign(self, wanted: Mapping[Entity, Mapping[str, str]], view: MoveView) -> tuple[str, ...]:
        """Return a sentence on the first broker with a rate that this plan has not set; empty if there is none.

        BadInputError instead if the plan has set no throttle yet.
        """
        if self._is_lost(wanted, view):
            return ()
        ours = {str(rate) for rate in self._rates}
        for kind, name in wanted:
            settings = view.throttles.get((kind, name), {}) if kind == "brokers" else {}
            if not ours.issuperset(settings.values()):
                rates = ", ".join(f"{key}={value}" for key, value in settings.items())
                found = f"broker {name}: found {rates}, expected no throttle of others: another move is under way, or "
                if self._throttled is None:
                    raise BadInputError(f"{found}has left it; end that, or remove the setting")
                return (f"{found}somebody has changed it",)
        return ()

    def _is_lost(self, wanted: Mapping[Entity, Mapping[str, str]], view: MoveView) -> bool:
        """Whether the new replicas are throttled already, by a run of this plan whose audit file was lost."""
        return self._throttled is None and any(
            set(replicas(own[FOLLOWER_REPLICAS])).issubset(
                replicas(view.throttles.get(entity, {}).get(FOLLOWER_REPLICAS))
            )
            for entity, own in wanted.items()
            if entity[0] == "topics"
        )

    async def _throttle(self, wanted: Mapping[Entity, Mapping[str, str]], view: MoveView, pace: MovePace) -> bool:
        """Set missing throttles; return whether there are new ones, which brokers may not have applied yet."""
        if not wanted:
            return False
        self._remember(wanted, view)
        self._note_rate(pace.rate)
        new = False
        for entity, own in wanted.items():
            present = view.throttles.get(entity, {})
            if beside(own, present) != {name: present.get(name) for name in own}:
                await self._again(self._cluster.change, entity, partial(beside, own))
                new |= entity[0] == "topics" or not present
        return new

    def _remember(self, wanted: Mapping[Entity, Mapping[str, str]], view: MoveView) -> None:
        """Record what throttles replace, unless an earlier run in either direction has done so."""
        known = self._throttled or {}
        found: dict[Entity, Settings] = {
            entity: {name: view.throttles.get(entity, {}).get(name) for name in own}
            for entity, own in wanted.items()
            if entity not in known
        }
        if not found:
            return
        lost_rates: list[int] = []
        if self._is_lost(wanted, view):
            lost_rates = _rates(found)
            found = {entity: dict.fromkeys(own) for entity, own in found.items()}  # others' entries stay in the lists
        self._throttled = {**known, **found}
        self._records.write("throttle", replaced=[(*e, own) for e, own in self._throttled.items()])
        for rate in lost_rates:
            self._note_rate(rate)

    def _note_rate(self, rate: int) -> None:
        if self._rates[-1:] != [rate]:
            self._records.write("rate", bytes_per_s=rate)
            self._rates.append(rate)

    async def _unthrottle(self) -> None:
        """Restore the replaced settings, including those that an earlier run has replaced."""
        if self._throttled is None:
            return
        for entity, replaced in self._throttled.items():
            own = self._numbers.get(entity, ())
            await self._again(self._cluster.change, entity, partial(put_back, replaced, own, self._rates))
        self._records.write("unthrottled")
        self._throttled, self._rates = None, []


def _rates(settings: Mapping[Entity, Settings]) -> list[int]:
    values = {value for (kind, _), own in settings.items() if kind == "brokers" for value in own.values()}
    return sorted(int(value) for value in values if value and value.isdecimal())


def _words(refused: Mapping[TopicPartition, str]) -> list[tuple[str, int, str]]:
    return [(tp.topic, tp.partition, why) for tp, why in refused.items()]
