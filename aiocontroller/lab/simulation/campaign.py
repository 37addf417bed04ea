"""Runs many seeds on all cores; reports violations, speed and coverage; also hunts the known bugs of the zoo."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cluster.processes import die_with_parent
from aiocontroller.lab.scenarios.plan import Plan, draw
from aiocontroller.lab.simulation.branching import failed
from aiocontroller.lab.simulation.course import Course, perform
from aiocontroller.lab.simulation.coverage import Coverage
from aiocontroller.lab.simulation.on_spark import on_spark
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import Simulation, simulate, simulate_plan
from aiocontroller.lab.simulation.zoo import MOST_SEEDS, TRIES, Hunt, attempt, invariant_of
from aiocontroller.lab.simulation.zoo_data import ALL_BUGS
from aiocontroller.lab.virtual_loop import run

HASH_SEEDS = ("0", "1", "2")
LOOK_EVERY_S = 0.5

T = TypeVar("T")


class Summary(msgspec.Struct):
    """The results of a campaign so far."""

    seeds: int = 0
    forked: int = 0
    """Runs with forks, beside the seeds."""
    wall_s: float = 0.0
    """Excludes the time of the earlier results that ``run_seeds`` was given."""
    seeds_now: int = 0
    """Seeds in this time."""
    virtual_s: float = 0.0
    events: int = 0
    znode_writes: int = 0
    failures: dict[str, list[str]] = {}
    """Maps recipes to their violations."""

    @property
    def seeds_per_s(self) -> float:
        return self.seeds_now / self.wall_s if self.wall_s else 0.0

    def add(self, report: SimulationReport) -> None:
        if report.forks:
            self.forked += 1
        else:
            self.seeds += 1
        self.virtual_s += report.virtual_s
        self.events += report.events
        self.znode_writes += report.znode_writes
        if not report.ok:
            self.failures[report.recipe] = report.violations


def quiet() -> None:
    """Count log messages in a worker process without printing them."""
    root = logging.getLogger()
    if not any(isinstance(handler, logging.NullHandler) for handler in root.handlers):
        root.addHandler(logging.NullHandler())


class Stop:
    """Whether a campaign should end early: at a deadline, or by the first SIGINT or SIGTERM inside ``listening``."""

    def __init__(self, minutes: float | None = None) -> None:
        self._deadline_s = float("inf") if minutes is None else time.monotonic() + 60 * minutes
        self.signal = 0

    @property
    def due(self) -> bool:
        return bool(self.signal) or time.monotonic() >= self._deadline_s

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self.signal = number
        signal.signal(number, signal.SIG_DFL)  # the second one ends the process


def begin_worker() -> None:
    """Prepare a worker process: it ends with its parent, and prints nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to workers too
    die_with_parent()  # otherwise it would go on, with nobody to read its results
    gc.freeze()  # loaded code stays, and a run leaves few cycles: the collector need look neither at all nor often
    gc.set_threshold(100_000, 50, 100)
    quiet()


def _simulate(seed: int) -> list[SimulationReport]:
    try:
        return [simulate(seed)]
    except Exception as error:
        return [failed(draw(seed), f"the simulation itself ended with {error!r}")]


class _Tally:
    """The results of a campaign so far; ``each`` is called for each new report."""

    def __init__(
        self, each: Callable[[Summary, SimulationReport], None] | None, earlier: Iterable[SimulationReport]
    ) -> None:
        self.summary, self.coverage = Summary(), Coverage()
        for report in earlier:
            self._count(report)
        self._each = each
        self._started_s = time.monotonic()

    def _count(self, report: SimulationReport) -> None:
        self.summary.add(report)
        self.coverage.add(report.marks)

    def add(self, reports: Iterable[SimulationReport]) -> None:
        for report in reports:
            self._count(report)
            self.summary.seeds_now += not report.forks
            self.summary.wall_s = time.monotonic() - self._started_s
            if self._each is not None:
                self._each(self.summary, report)


def run_seeds(
    seeds: Iterable[int],
    jobs: int,
    each: Callable[[Summary, SimulationReport], None] | None = None,
    *,
    earlier: Iterable[SimulationReport] = (),
    stop: Stop | None = None,
    spark: str | None = None,
) -> tuple[Summary, Coverage]:
    """Simulate the seeds in ``jobs`` processes until ``stop``, and call ``each`` after each seed.

    ``earlier`` are results of other seeds, which count as well; ``spark`` is the master of a cluster to use instead.
    """
    tally, stop = _Tally(each, earlier), stop or Stop()
    with _workers(jobs, stop, spark) as on_workers:
        for _, reports in on_workers(_simulate, seeds):
            tally.add(reports)
    return tally.summary, tally.coverage


def run_course(
    course: Course,
    jobs: int,
    each: Callable[[Summary, SimulationReport], None] | None = None,
    *,
    earlier: Iterable[SimulationReport] = (),
    stop: Stop | None = None,
    spark: str | None = None,
) -> tuple[Summary, Coverage]:
    """Like ``run_seeds``, for a campaign that proceeds in rounds; ``earlier`` are results of the same campaign.

    ``each`` gets the futures of a run before the run itself, whose report shows that they are complete.
    """
    done = {report.recipe: report for report in earlier}
    tally, stop = _Tally(each, done.values()), stop or Stop()
    with _workers(jobs, stop, spark) as on_workers:
        while tasks := course.round():
            missing = [task for task in tasks if task.recipe not in done]
            for task, reports in on_workers(perform, missing):
                tally.add(report for report in reports if report.recipe not in done)
                done[task.recipe] = reports[-1]
            if any(task.recipe not in done for task in tasks):
                break  # stopped
            course.learn([done[task.recipe] for task in tasks])
    return tally.summary, tally.coverage


class _OnWorkers(Protocol):
    def __call__(
        self, work: Callable[[T], list[SimulationReport]], items: Iterable[T]
    ) -> Iterator[tuple[T, list[SimulationReport]]]:
        """Yield each item with its reports, in the order of completion.

        At a deadline the items that have begun are finished; a signal ends their processes.
        """


def _quietly(work: Callable[[T], list[SimulationReport]]) -> Callable[[T], list[SimulationReport]]:
    def quietly(item: T) -> list[SimulationReport]:
        quiet()
        return work(item)

    return quietly


@contextmanager
def _workers(jobs: int, stop: Stop, spark: str | None = None) -> Iterator[_OnWorkers]:
    """Yield a function that works in processes here, or in those of Spark."""
    if spark is not None:
        yield lambda work, items: on_spark(spark, _quietly(work), items, lambda: stop.due)
    elif jobs == 1:
        quiet()
        yield lambda work, items: _one_by_one(work, items, stop)
    else:
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=begin_worker)
        try:
            yield lambda work, items: _on_all_cores(pool, work, items, jobs, stop)
        finally:
            if stop.signal:
                for worker in list(pool._processes.values()):
                    worker.terminate()
            pool.shutdown(cancel_futures=True)


def _one_by_one(
    work: Callable[[T], list[SimulationReport]], items: Iterable[T], stop: Stop
) -> Iterator[tuple[T, list[SimulationReport]]]:
    waiting = iter(items)
    while not stop.due and (found := list(islice(waiting, 1))):
        yield found[0], work(found[0])


def _on_all_cores(
    pool: ProcessPoolExecutor, work: Callable[[T], list[SimulationReport]], items: Iterable[T], jobs: int, stop: Stop
) -> Iterator[tuple[T, list[SimulationReport]]]:
    waiting = iter(items)
    first = () if stop.due else islice(waiting, 2 * jobs)
    running: dict[Future[list[SimulationReport]], T] = {pool.submit(work, item): item for item in first}
    while running and not stop.signal:
        for done in wait(running, LOOK_EVERY_S, FIRST_COMPLETED).done:
            item = running.pop(done)
            for following in () if stop.due else islice(waiting, 1):
                running[pool.submit(work, following)] = following
            yield item, done.result()


# -- repeating a seed --------------------------------------------------------------------------------------------------


def drawn(seed: int, forks: str = "") -> Plan:
    return msgspec.structs.replace(draw(seed), forks=forks)


def digest_elsewhere(seed: int, hash_seed: str, forks: str = "") -> str:
    """Return the digest of the seed from a new process with the given PYTHONHASHSEED."""
    code = (
        "from aiocontroller.lab.simulation.campaign import drawn; "
        "from aiocontroller.lab.simulation.simulation import simulate_plan; "
        f"print(simulate_plan(drawn({seed}, {forks!r})).digest)"
    )
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.split()[-1]


class Replay(msgspec.Struct, frozen=True):
    report: SimulationReport
    digests: list[str]
    """The digests of a second run in this process, and of one run per HASH_SEEDS in a process of its own."""

    @property
    def same(self) -> bool:
        return set(self.digests) == {self.report.digest}


def replay(seed: int, forks: str = "") -> Replay:
    """Simulate one seed several times, to compare the digests.  BadInputError if a fork is not reached."""
    quiet()
    plan = drawn(seed, forks)
    report = simulate_plan(plan)
    if report.forks != forks:
        raise BadInputError(f"--fork: found {forks}, but seed {seed} has only {report.awaits} await points")
    elsewhere = [digest_elsewhere(seed, value, forks) for value in HASH_SEEDS]
    return Replay(report, [simulate_plan(plan).digest, *elsewhere])


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


def shrink_seed(seed: int, forks: str = "") -> tuple[Plan, int] | None:
    """Draw and shrink the plan of a seed; None if the seed has no violation.

    The steps that forks have drawn stay as they are.
    """
    quiet()
    simulation = Simulation(drawn(seed, forks))
    found = run(simulation.run()).violations
    plan = msgspec.structs.replace(simulation.plan, steps_stay=bool(forks))
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


def crash(point: CrashPoint) -> SimulationReport:
    plan = draw(point.seed)
    if point.where == "at await":
        return simulate_plan(plan.crashing_at_await(point.number))
    return simulate_plan(plan.crashing_at(point.number, before=point.where == "before write"))


def crash_points(seed: int) -> list[CrashPoint]:
    """Return the crash points before and after each write of controllers, and at each await point of their handlers."""
    quiet()
    whole = simulate_plan(draw(seed).crashing_at(0, before=False))
    writes = range(1, whole.controller_writes + 1)
    points = [CrashPoint(seed, where, number) for number in writes for where in ("before write", "after write")]
    return points + [CrashPoint(seed, "at await", number) for number in range(1, whole.awaits + 1)]


def run_crash_points(points: Sequence[CrashPoint], jobs: int) -> Iterator[tuple[CrashPoint, SimulationReport]]:
    """Run the crash points and yield each with its report, in the order of completion.

    This is exhaustive for one seed, where random seeds only sample.
    """
    with _workers(jobs, Stop()) as on_workers:
        for point, reports in on_workers(_crash, points):
            yield point, reports[0]


def _crash(point: CrashPoint) -> list[SimulationReport]:
    return [crash(point)]


# -- the zoo -----------------------------------------------------------------------------------------------------------


class _Try(NamedTuple):
    bug: int
    number: int
    seeds: int | None
    complaint: str
    cpu_s: float


def _attempt(bug: int, number: int, most: int, branch: int, steer: int) -> _Try:
    before_s = _cpu_s()
    seeds, complaint = attempt(ALL_BUGS[bug], number, most, branch=branch, steer=steer)
    return _Try(bug, number, seeds, complaint, round(_cpu_s() - before_s, 2))


def _cpu_s() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def run_zoo(
    jobs: int,
    *,
    only: Sequence[str] = (),
    restarts: bool = False,
    tries: int = TRIES,
    most: int = MOST_SEEDS,
    branch: int = 0,
    steer: int = 0,
    each: Callable[[Hunt], None] | None = None,
) -> list[Hunt]:
    """Hunt every bug, or those whose name contains one of ``only``, ``tries`` times each over different seeds.

    ``restarts``: only those that are hunted in the family restarts.  BadInputError if there is no such bug.
    """
    chosen = [
        i
        for i, bug in enumerate(ALL_BUGS)
        if (not only or any(part in bug.name for part in only)) and (bug.restarts or not restarts)
    ]
    if not chosen:
        raise BadInputError(f"--bug: found {', '.join(only)}, expected a part of a bug's name")
    results: dict[int, list[_Try]] = {i: [] for i in chosen}
    hunts: dict[int, Hunt] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=begin_worker) as pool:
        numbers = range(1, tries + 1)
        running = [pool.submit(_attempt, i, number, most, branch, steer) for i in chosen for number in numbers]
        for done in as_completed(running):
            found = done.result()
            results[found.bug].append(found)
            if len(results[found.bug]) == tries:
                hunts[found.bug] = _hunt(results[found.bug])
                if each is not None:
                    each(hunts[found.bug])
    return [hunts[i] for i in chosen]


def _hunt(tries: Sequence[_Try]) -> Hunt:
    complaints = Counter(invariant_of(each.complaint) for each in tries if each.seeds is not None)
    ordered = dict(sorted(complaints.items(), key=lambda item: (-item[1], item[0])))
    seeds = sorted((each.seeds for each in tries), key=lambda s: (s is None, s or 0))
    cpu_s = [each.cpu_s for each in sorted(tries, key=lambda each: each.number)]
    return Hunt(ALL_BUGS[tries[0].bug].name, seeds, ordered, cpu_s)
