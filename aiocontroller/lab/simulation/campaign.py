"""Runs many seeds on all cores and reports violations, speed and coverage; also hunts the known bugs of the zoo."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

import msgspec

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cluster.processes import die_with_parent
from aiocontroller.lab.scenarios.plan import Plan, draw
from aiocontroller.lab.simulation.coverage import Coverage
from aiocontroller.lab.simulation.on_spark import on_spark
from aiocontroller.lab.simulation.simulation import Report, simulate, simulate_plan
from aiocontroller.lab.simulation.zoo import MOST_SEEDS, TRIES, Hunt, attempt, invariant_of
from aiocontroller.lab.simulation.zoo_data import ALL_BUGS

HASH_SEEDS = ("0", "1", "2")
LOOK_EVERY_S = 0.5

T = TypeVar("T")


class Summary(msgspec.Struct):
    """The results of a campaign so far."""

    seeds: int = 0
    wall_s: float = 0.0
    """Without the time of earlier results, which ``run_seeds`` was given."""
    seeds_now: int = 0
    """Seeds in this time."""
    virtual_s: float = 0.0
    events: int = 0
    znode_writes: int = 0
    failures: dict[int, list[str]] = {}
    """Maps seeds to their violations."""

    @property
    def seeds_per_s(self) -> float:
        return self.seeds_now / self.wall_s if self.wall_s else 0.0

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.virtual_s += report.virtual_s
        self.events += report.events
        self.znode_writes += report.znode_writes
        if not report.ok:
            self.failures[report.seed] = report.violations


def quiet() -> None:
    """Count log messages in a worker process without printing them."""
    root = logging.getLogger()
    if not any(isinstance(handler, logging.NullHandler) for handler in root.handlers):
        root.addHandler(logging.NullHandler())


class Stop:
    """Whether a campaign is to end early: at a deadline, or by the first SIGINT or SIGTERM inside ``listening``."""

    def __init__(self, minutes: float | None = None) -> None:
        self._deadline_s = float("inf") if minutes is None else time.monotonic() + 60 * minutes
        self.signal = 0

    @property
    def due(self) -> bool:
        return bool(self.signal) or time.monotonic() >= self._deadline_s

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._asked) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _asked(self, number: int, frame: object) -> None:
        self.signal = number
        signal.signal(number, signal.SIG_DFL)  # the second one ends the process


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to workers too
    die_with_parent()  # otherwise it would simulate to the end without a reader
    quiet()


def _simulate(seed: int) -> Report:
    try:
        return simulate(seed)
    except Exception as error:
        return Report(seed, [f"bug: the simulation itself ended with {error!r}"], 0.0, 0, 0, 0, 0, {}, {}, "")


def _simulate_quietly(seed: int) -> Report:
    quiet()
    return _simulate(seed)


def run_seeds(
    seeds: Iterable[int],
    jobs: int,
    each: Callable[[Summary, Report], None] | None = None,
    *,
    earlier: Iterable[Report] = (),
    stop: Stop | None = None,
    spark: str | None = None,
) -> tuple[Summary, Coverage]:
    """Simulate the seeds in ``jobs`` processes until ``stop``, and call ``each`` after each seed.

    ``earlier`` are results of other seeds, which count as well; ``spark`` is the master of a cluster to use instead.
    """
    summary, coverage = Summary(), Coverage()
    for report in earlier:
        summary.add(report)
        coverage.add(report.marks)
    started_s, stop = time.monotonic(), stop or Stop()
    if spark is None:
        arriving = _on_all_cores(_simulate, seeds, jobs, stop)
    else:
        arriving = on_spark(spark, _simulate_quietly, seeds, lambda: stop.due)
    for _, report in arriving:
        summary.add(report)
        summary.seeds_now += 1
        summary.wall_s = time.monotonic() - started_s
        coverage.add(report.marks)
        if each is not None:
            each(summary, report)
    return summary, coverage


def _on_all_cores(work: Callable[[T], Report], items: Iterable[T], jobs: int, stop: Stop) -> Iterator[tuple[T, Report]]:
    """Yield each item with its report, in the order of completion.

    At a deadline the items that have begun are finished; a signal ends their processes.
    """
    waiting = iter(items)
    if jobs == 1:
        quiet()
        while not stop.due and (found := list(islice(waiting, 1))):
            yield found[0], work(found[0])
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin_worker)
    try:
        running: dict[Future[Report], T] = {pool.submit(work, item): item for item in islice(waiting, 2 * jobs)}
        while running and not stop.signal:
            for done in wait(running, LOOK_EVERY_S, FIRST_COMPLETED).done:
                item = running.pop(done)
                for following in () if stop.due else islice(waiting, 1):
                    running[pool.submit(work, following)] = following
                yield item, done.result()
    finally:
        if stop.signal:
            for worker in list(pool._processes.values()):
                worker.terminate()
        pool.shutdown(cancel_futures=True)


# -- repeating a seed --------------------------------------------------------------------------------------------------


def digest_elsewhere(seed: int, hash_seed: str) -> str:
    """Return the digest of the seed from a new process with the given PYTHONHASHSEED."""
    code = f"from aiocontroller.lab.simulation.simulation import simulate; print(simulate({seed}).digest)"
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.split()[-1]


class Replay(msgspec.Struct, frozen=True):
    report: Report
    digests: list[str]
    """The digests of a second run in this process, and of one run per HASH_SEEDS in a process of its own."""

    @property
    def same(self) -> bool:
        return set(self.digests) == {self.report.digest}


def replay(seed: int) -> Replay:
    """Simulate one seed several times, to compare the digests."""
    quiet()
    report = simulate(seed)
    return Replay(report, [simulate(seed).digest, *(digest_elsewhere(seed, value) for value in HASH_SEEDS)])


# -- shrinking ---------------------------------------------------------------------------------------------------------


def shrink(plan: Plan, complaint: str, most_runs: int = 300) -> tuple[Plan, int]:
    """Return a plan with fewer steps that still violates the same invariant, and the number of runs that this took.

    The algorithm (delta debugging) leaves out ever smaller pieces of the steps as long as the violation remains.
    """
    invariant = invariant_of(complaint)
    runs, size = 0, max(len(plan.steps) // 2, 1)
    while size and runs < most_runs:
        start, shorter = 0, False
        while start < len(plan.steps) and runs < most_runs:
            candidate = plan.without(start, start + size)
            runs += 1
            found = simulate_plan(candidate).violations
            if any(invariant_of(violation) == invariant for violation in found):
                plan, shorter = candidate, True
            else:
                start += size
        if not shorter or size > 1:
            size //= 2
    return plan, runs


def shrink_seed(seed: int) -> tuple[Plan, int] | None:
    """Draw and shrink the plan of a seed; None if the seed has no violation."""
    quiet()
    plan = draw(seed)
    found = simulate_plan(plan).violations
    return shrink(plan, found[0]) if found else None


# -- crash points --------------------------------------------------------------------------------------------------

CRASHES = ("before write", "after write", "at await")


class CrashPoint(NamedTuple):
    """A point at which the controller is killed once, while the seed's workload runs without its faults."""

    seed: int
    where: str
    """One of CRASHES."""
    number: int
    """Counts the controllers' writes, or the await points of their handlers, from 1."""

    def __str__(self) -> str:
        return f"{self.where} {self.number}"


def parse_crash_point(seed: int, text: str) -> CrashPoint:
    """Parse text such as ``at await 17``.  Raises BadInputError."""
    where, _, number = text.rpartition(" ")
    if where not in CRASHES or not number.isdecimal() or int(number) < 1:
        raise BadInputError(f"found the crash point {text!r}, expected one of {', '.join(CRASHES)} and a number from 1")
    return CrashPoint(seed, where, int(number))


def crash(point: CrashPoint) -> Report:
    plan = draw(point.seed)
    if point.where == "at await":
        return simulate_plan(plan.crashing_at_await(point.number))
    return simulate_plan(plan.crashing_at(point.number, before=point.where == "before write"))


def crash_points(seed: int) -> list[CrashPoint]:
    """Crash points before and after each write of the controllers, and at each await point of their handlers."""
    quiet()
    whole = simulate_plan(draw(seed).crashing_at(0, before=False))
    writes = range(1, whole.controller_writes + 1)
    points = [CrashPoint(seed, where, number) for number in writes for where in ("before write", "after write")]
    return points + [CrashPoint(seed, "at await", number) for number in range(1, whole.awaits + 1)]


def run_crash_points(points: Sequence[CrashPoint], jobs: int) -> Iterator[tuple[CrashPoint, Report]]:
    """Run the crash points and yield each with its report, in the order of completion.

    This is exhaustive for one seed, where random seeds only sample.
    """
    return _on_all_cores(crash, points, jobs, Stop())


# -- the zoo -----------------------------------------------------------------------------------------------------------


def _attempt(bug: int, number: int, most: int) -> tuple[int, int | None, str]:
    seeds, complaint = attempt(ALL_BUGS[bug], number, most)
    return bug, seeds, complaint


def run_zoo(
    jobs: int,
    *,
    only: Sequence[str] = (),
    tries: int = TRIES,
    most: int = MOST_SEEDS,
    each: Callable[[Hunt], None] | None = None,
) -> list[Hunt]:
    """Hunt every bug, or those whose name contains one of ``only``, ``tries`` times each over different seeds."""
    chosen = [i for i, bug in enumerate(ALL_BUGS) if not only or any(part in bug.name for part in only)]
    results: dict[int, list[tuple[int | None, str]]] = {i: [] for i in chosen}
    hunts: dict[int, Hunt] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin_worker) as pool:
        running = [pool.submit(_attempt, i, number, most) for i in chosen for number in range(1, tries + 1)]
        for done in as_completed(running):
            bug, seeds, complaint = done.result()
            results[bug].append((seeds, complaint))
            if len(results[bug]) == tries:
                hunts[bug] = _hunt(bug, results[bug])
                if each is not None:
                    each(hunts[bug])
    return [hunts[i] for i in chosen]


def _hunt(bug: int, results: Sequence[tuple[int | None, str]]) -> Hunt:
    complaints: dict[str, int] = {}
    for seeds, complaint in results:
        if seeds is not None:
            name = invariant_of(complaint)
            complaints[name] = complaints.get(name, 0) + 1
    ordered = dict(sorted(complaints.items(), key=lambda item: (-item[1], item[0])))
    return Hunt(ALL_BUGS[bug].name, sorted((s for s, _ in results), key=lambda s: (s is None, s or 0)), ordered)
