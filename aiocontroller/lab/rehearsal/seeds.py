"""Many rehearsals of one stage, and their summary: for each event the worst and the median of all seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median_low
from typing import Any, NamedTuple

import msgspec

from aiocontroller.lab.rehearsal.meter import Went
from aiocontroller.lab.rehearsal.rehearsal import (
    DEATH,
    FAILOVER,
    MIGRATION,
    MOVES,
    RESTARTS,
    ROLE,
    Event,
    Moves,
    Rehearsed,
    Result,
    events,
    rehearse,
)
from aiocontroller.lab.rehearsal.stage import Stage
from aiocontroller.lab.simulation.campaign import begin_worker, quiet

WORDS = {
    FAILOVER: "the controller dies",
    RESTARTS: "rolling restart of all brokers",
    MOVES: "replicas move",
    ROLE: "release to a broker, takeover from it",
    MIGRATION: "migration to KRaft, rollback",
}


def name_of(event: Event, stage: Stage) -> str:
    """Return the event in words, with the broker's id in the cluster."""
    return f"broker {stage.id_of(event.broker)} dies" if event.kind == DEATH else WORDS[event.kind]


def rehearse_seeds(stage: Stage, moves: Moves, seeds: Sequence[int], jobs: int) -> Iterator[Rehearsed]:
    """Play the seeds in ``jobs`` processes; yields the results in the order of the seeds."""
    play = partial(rehearse, stage, moves)
    if jobs == 1 or len(seeds) == 1:
        quiet()
        yield from map(play, seeds)
        return
    pool = ProcessPoolExecutor(min(jobs, len(seeds)), mp_context=get_context("spawn"), initializer=begin_worker)
    try:
        yield from pool.map(play, seeds)
    except BaseException:
        for worker in list(pool._processes.values()):
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class Row(NamedTuple):
    """An event over all seeds: the worst and the median of each field."""

    event: Event
    name: str
    worst: Went
    middle: Went
    seconds: float
    """The median time until the cluster was calm again."""
    results: tuple[tuple[int, Result], ...]
    """(seed, result)"""
    worst_seed: int
    violations: int


class Summary(NamedTuple):
    """All seeds; the same for the same stage, moves and seeds."""

    stage: Stage
    rehearsed: tuple[Rehearsed, ...]
    rows: tuple[Row, ...]

    @property
    def violations(self) -> int:
        """The number of violations in all seeds."""
        return sum(len(one.violations) for one in self.rehearsed)

    @property
    def worst_seed(self) -> int:
        """The seed with the most violations; if there are none, that with the longest times without a leader."""
        return max(self.rehearsed, key=lambda one: (len(one.violations), *_badness(one), -one.seed)).seed


def _badness(one: Rehearsed) -> tuple[float, int]:
    return sum(each.went.leaderless_s for each in one.results), sum(each.went.at_risk for each in one.results)


def summary(stage: Stage, moves: Moves, rehearsed: Sequence[Rehearsed]) -> Summary:
    """Summarize the results of all seeds."""
    rows = []
    for event in events(stage, moves):
        own = tuple((one.seed, each) for one in rehearsed for each in one.results if each.event == event)
        if own:
            rows.append(_row(event, stage, own))
    return Summary(stage, tuple(rehearsed), tuple(rows))


def _row(event: Event, stage: Stage, own: tuple[tuple[int, Result], ...]) -> Row:
    went = [result.went for _, result in own]
    worst_seed, _ = max(own, key=lambda each: (*_rank(each[1]), -each[0]))
    return Row(
        event,
        name_of(event, stage),
        _merged(went, max),
        _merged(went, median_low),
        median_low([result.seconds for _, result in own]),
        own,
        worst_seed,
        sum(len(result.violations) for _, result in own),
    )


def _rank(result: Result) -> tuple[float, ...]:
    went = result.went
    return (
        len(result.violations),
        went.leaderless_s,
        went.leaderless,
        went.at_risk,
        went.under_min_isr_s,
        went.last_copy_s,
        went.leaders_moved,
    )


def _merged(went: Sequence[Went], of: Callable[[list[Any]], Any]) -> Went:
    return Went(**{name: of([getattr(each, name) for each in went]) for name in Went.__struct_fields__})


def as_json(found: Summary) -> dict[str, object]:
    """Return the worst and the median of each event, and every result of every seed, for programs."""
    stage = found.stage
    return {
        "brokers": list(stage.brokers),
        "alive": [stage.id_of(number) for number in sorted(stage.alive)],
        "partitions": {
            "found": stage.found,
            "left_out": stage.left_out,
            "rehearsed": len(stage.partitions),
            "stood_for": stage.stood_for,
        },
        "worst_seed": found.worst_seed,
        "violations": found.violations,
        "events": [
            {
                "event": row.name,
                "worst": msgspec.structs.asdict(row.worst),
                "middle": msgspec.structs.asdict(row.middle),
                "seconds": row.seconds,
                "worst_seed": row.worst_seed,
                "violations": row.violations,
                "seeds": [
                    {
                        "seed": seed,
                        **msgspec.structs.asdict(result.went),
                        "seconds": result.seconds,
                        "also": result.also,
                        "violations": list(result.violations),
                    }
                    for seed, result in row.results
                ],
            }
            for row in found.rows
        ],
        "seeds": [
            {"seed": one.seed, "digest": one.digest, "virtual_s": one.virtual_s, "violations": list(one.violations)}
            for one in found.rehearsed
        ],
    }
