"""Finds logs whose times differ from those of their broker's other logs, because of another time zone or format.

A broker has one clock, but each of its appenders formats times separately.  Several logs, of one broker or of two,
record the same facts: a registration, a controlled shutdown, what a controller noticed and sent, a partition's state.
If two logs share enough facts, the differences between their times cluster around one value: how far one log is ahead
of the other.  From such pairs follows how far each log is ahead of all logs connected to it.

A log that is ahead of its broker's others by whole quarters of an hour, as time zones are, is corrected by exactly that
much.  A log that is ahead by any other time, or whose facts contradict each other, is reported but not corrected.

The work covers a few thousand facts, however many lines there are: partition states are sampled, and of facts that
repeat within seconds only the first counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import DataFrame, F, Window
from aiocontroller.analytics.kafka_logs import EVENT_THREAD, FETCHERS
from aiocontroller.analytics.schema import CONTROLLER_LOG, JOURNAL_SOURCE, SERVER_LOG, STATE_CHANGE_LOG

QUARTER_US: Final = 900_000_000
"""Time zones differ by whole quarters of an hour."""
NEAR_US: Final = 1_500_000
"""Records of one fact are rarely farther apart, unless a process is paused."""
_PIECE_US: Final = 5_000_000
"""Equal facts within this time count as one."""
FARTHEST_US: Final = 27 * 3_600_000_000
"""More than the difference between any two time zones."""
SAMPLE: Final = 20_000
"""About this many records of partition states are compared."""
MOST_TIMES: Final = 400
"""At most this many times of one fact in one log are compared; more are thinned out evenly."""
ENOUGH_FACTS: Final = 3
"""The number of facts that must agree before a log's times are corrected."""
CORRECTED: Final = "facts in several logs: corrected"
FEW: Final = "facts in several logs: too few"
NO_ZONE: Final = "facts in several logs: no difference of time zones"
CONTRARY: Final = "facts in several logs: others contradict"
PARTLY: Final = "facts in several logs: in a part of the time"
_WHY_NOT: Final = {
    FEW: "too few records show it",
    NO_ZONE: "no time zones differ by that",
    CONTRARY: "other records contradict it",
    PARTLY: "the difference changed meanwhile",
}
_OTHER_US: Final = 10_000_000
"""Differences that are farther apart than this are different."""
_SAME: Final = 0.8
"""A crowd at zero counts if it has at least this share of the largest one."""
_CLEAR: Final = 0.6
"""The largest crowd counts unless another one has more than this share of it."""

_STATES: Final = (
    "topic IS NOT NULL AND partition IS NOT NULL AND kind IN ('partition', 'isr', 'told', 'received', 'handled')"
)
_EACH: Final = "explode(transform(coalesce(brokers, array(broker)), b -> concat('up ', b)))"
_FACTS: Final = (
    # A broker registered: in its own server.log and controller.log, and in the controller's log.
    ("kind = 'broker' AND detail = 'registered'", "concat('up ', node)"),
    (f"event = '{EVENT_THREAD}'", "concat('up ', node)"),
    ("kind = 'broker' AND detail IN ('added', 'bounced')", _EACH),
    # A broker requested a controlled shutdown, and was allowed to shut down.
    ("kind = 'broker' AND detail IN ('asks for a controlled shutdown', 'controlled shutdown', "
     "'was allowed to shut down') AND broker IS NOT NULL", "concat('leaves ', broker)"),
    # A controller resigned because it shut down or its session expired.
    (f"kind = 'resigned' AND source = '{CONTROLLER_LOG}'", "concat('ends ', node)"),
    ("kind = 'broker' AND detail = 'shut down' OR kind = 'session' AND detail = 'EXPIRED'", "concat('ends ', node)"),
    # A controller's term began; only the first record of each log counts.
    (f"source IN ('{CONTROLLER_LOG}', '{JOURNAL_SOURCE}') AND kind IN ('elected', 'failover', 'loaded')"
     " AND controller_epoch IS NOT NULL", "concat('term ', controller_epoch)"),
    (f"source = '{STATE_CHANGE_LOG}' AND kind IN ('request', 'told', 'partition', 'replica', 'received')"
     " AND coalesce(epoch, controller_epoch) IS NOT NULL", "concat('term ', coalesce(epoch, controller_epoch))"),
    # A controller noticed something, and sent requests or changed states in response.
    (f"source = '{CONTROLLER_LOG}' AND (kind = 'broker' AND detail IN ('added', 'dead', 'bounced', "
     "'controlled shutdown') OR kind IN ('elected', 'loaded'))", "concat('acts ', node)"),
    (f"source = '{STATE_CHANGE_LOG}' AND kind IN ('request', 'told', 'partition', 'replica')", "concat('acts ', node)"),
    # A broker was told to lead or to follow, and its fetchers changed.
    (f"source = '{SERVER_LOG}' AND event = '{FETCHERS}'", "concat('fetches ', node)"),
    (f"source = '{STATE_CHANGE_LOG}' AND kind = 'received' AND api = 'LEADER_AND_ISR'", "concat('fetches ', node)"),
)  # fmt: skip
"""(condition for the records, the fact that each reports)"""
_OF_STATES: Final = (
    ("leader_epoch", "concat('led ', topic, '-', partition, ' ', leader_epoch)"),
    ("partition_epoch", "concat('state ', topic, '-', partition, ' ', partition_epoch)"),
)
"""(the column that numbers the states, the fact)"""


class Appender(NamedTuple):
    """The writer of one kind of log on one broker; all its files have the same format."""

    cluster: str
    node: int
    source: str


class Shift(NamedTuple):
    """An appender that is ``ahead_us`` ahead of its broker's others; ``error_us`` is how far facts deviate from that.

    ``method`` is ``CORRECTED``, or the reason why its times cannot be corrected.  ``file`` is one of its files,
    ``facts`` the number of facts.
    """

    appender: Appender
    file: str
    ahead_us: int
    error_us: int
    facts: int
    method: str


class Pair(NamedTuple):
    """``two`` is ``ahead_us`` ahead of ``one``: ``facts`` facts show it, half of them to within ``error_us``."""

    one: Appender
    two: Appender
    ahead_us: int
    error_us: int
    facts: int


def shifts(bronze: DataFrame) -> list[Shift]:
    """Return the appenders in ``schema.EVENTS_BRONZE`` that differ from their broker's others.

    This computes the frame; the result is small.
    """
    rows = _facts(bronze).collect()
    facts: dict[str, dict[str, dict[Appender, list[int]]]] = defaultdict(lambda: defaultdict(dict))
    files: dict[Appender, str] = {}
    for cluster, node, source, fact, ts, file in rows:
        appender = Appender(cluster, node, source)
        facts[cluster][fact].setdefault(appender, []).append(ts)
        files[appender] = min(file, files.get(appender, file))
    found = []
    for cluster in sorted(facts):
        found += [shift._replace(file=files[shift.appender]) for shift in differing(facts[cluster])]
    return found


def aligned(bronze: DataFrame, found: Sequence[Shift]) -> DataFrame:
    """Return ``schema.EVENTS_BRONZE`` with each broker's logs on one clock: the times of appenders in ``found`` are
    corrected if their method is ``CORRECTED``."""
    known = [(*shift.appender, shift.ahead_us) for shift in found if shift.method == CORRECTED]
    if not known:
        return bronze
    columns = "cluster string, node int, source string, ahead_us bigint"
    ahead = F.broadcast(bronze.sparkSession.createDataFrame(known, columns))
    corrected = F.expr("ts - coalesce(ahead_us, 0)")
    return (
        bronze.join(ahead, ["cluster", "node", "source"], "left")
        .withColumn("ts", corrected)
        .select(*schema.EVENTS_BRONZE.names)
    )


def clocks_of_logs(found: Iterable[Shift]) -> list[tuple[Any, ...]]:
    """Return the rows of ``schema.CLOCKS``."""
    return [
        (each.appender.cluster, each.appender.node, each.ahead_us, each.error_us, each.facts,
         each.method, each.appender.source, each.file)
        for each in found
    ]  # fmt: skip


def describe_clock(row: Any) -> str:
    """Describe a row of ``schema.CLOCKS``."""
    by = timedelta(seconds=round(abs(row["offset_us"]) / 1_000_000))
    how = "ahead of" if row["offset_us"] > 0 else "behind"
    text = f"{row['source']} of broker {row['node']} ({row['file']}) is {by} {how} its other logs"
    if row["method"] == CORRECTED:
        within = f"half of them to within {row['error_us'] / 1_000_000:.1f} s"
        return f"{text}, as in another time zone; its times were corrected: {row['pairs']:,} facts agree, {within}"
    return f"{text}, and its times are unknown: {_WHY_NOT[row['method']]}"


# -- facts -------------------------------------------------------------------------------------------------------------


def _facts(bronze: DataFrame) -> DataFrame:
    """Return (cluster, node, source, fact, ts, file); each fact appears once within ``_PIECE_US``."""
    timed = bronze.where("ts IS NOT NULL AND node IS NOT NULL")
    states = timed.where(_STATES)
    every = 1 + states.count() // SAMPLE
    parts = [timed.where(f"({which})").selectExpr(*_WRITER_COLUMNS, f"{fact} AS fact") for which, fact in _FACTS]
    parts += [
        states.where(f"{number} IS NOT NULL AND pmod(partition * 7919L + {number}, {every}) = 0").selectExpr(
            *_WRITER_COLUMNS, f"{fact} AS fact"
        )
        for number, fact in _OF_STATES
    ]
    by = ("cluster", "node", "source", "fact")
    once = (
        reduce(DataFrame.union, parts)
        .withColumn("piece", F.expr(f"if(fact LIKE 'term %', 0L, ts DIV {_PIECE_US})"))
        .groupBy(*by, "piece")
        .agg(F.min("ts").alias("ts"), F.min("file").alias("file"))
    )
    before = F.lag("ts").over(Window.partitionBy(*by).orderBy("ts"))
    apart = once.withColumn("before", before).where(f"before IS NULL OR ts - before > {_PIECE_US}")
    return apart.select(*by, "ts", "file")


_WRITER_COLUMNS: Final = ("cluster", "node", "source", "file", "ts")


# -- pairs of logs -----------------------------------------------------------------------------------------------------

Facts = Mapping[str, Mapping[Appender, Sequence[int]]]
"""Fact -> appender -> the times (µs) at which it logged the fact."""


def _moments(facts: Facts) -> dict[tuple[Appender, Appender], _Floats]:
    """Return (time in one, time in the other, weight) for each pair of logs that may share facts."""
    crowds: dict[tuple[Appender, Appender], list[_Floats]] = defaultdict(list)
    for fact in sorted(facts):
        times = {appender: _thinned(facts[fact][appender]) for appender in sorted(facts[fact])}
        for one, two in combinations(times, 2):
            if one.node == two.node or {one.source, two.source} != {CONTROLLER_LOG}:  # controllers see different things
                crowds[one, two].append(_differences(times[one], times[two]))
    found = {both: _by_moment(np.concatenate(crowd, axis=1)) for both, crowd in sorted(crowds.items())}
    return {both: moments for both, moments in found.items() if moments.shape[1]}


_Floats = np.ndarray[Any, Any]


def _thinned(times: Sequence[int]) -> _Floats:
    ordered = np.array(sorted(times), dtype=np.int64)
    return ordered[:: -(-len(ordered) // MOST_TIMES)]


def _differences(one: _Floats, two: _Floats) -> _Floats:
    """Return (time in ``one``, time in ``two``, weight) of all pairs that may be the same fact; each time in the
    shorter log has a total weight of 1, shared by its pairs."""
    if len(one) == len(two) == 1:  # the usual case, for which numpy is slow
        near = abs(int(two[0]) - int(one[0])) <= FARTHEST_US
        return np.array([[one[0]], [two[0]], [1.0]]) if near else np.empty((3, 0))
    if len(one) > len(two):
        return _differences(two, one)[[1, 0, 2]]
    inside = np.abs(two[None, :] - one[:, None]) <= FARTHEST_US
    of_one, of_two = np.nonzero(inside)
    weights = 1.0 / np.maximum(inside.sum(axis=1), 1)
    return np.stack([one[of_one], two[of_two], weights[of_one]])


def _by_moment(differences: _Floats) -> _Floats:
    """Return (time in ``one``, time in ``two``, weight), sorted by difference, with one fact for each moment: the
    states of many partitions at one time count once."""
    heaviest = differences[:, np.argsort(-differences[2], kind="stable")]
    _, first = np.unique(heaviest[:2] // _PIECE_US, axis=1, return_index=True)
    moments = heaviest[:, first]
    return moments[:, np.argsort(moments[1] - moments[0], kind="stable")]


def _crowded(moments: _Floats) -> tuple[int, int, int] | None:
    """Return (centre of the crowd of differences, median distance from it, number of moments); None if no crowd is
    clear."""
    apart, weights = moments[1] - moments[0], moments[2]
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    ends = np.searchsorted(apart, apart + 2 * NEAR_US, side="right")
    sizes = sums[ends] - sums[np.arange(len(apart))]
    largest = float(sizes.max())
    at_zero = (apart >= -NEAR_US) & (apart[ends - 1] <= NEAR_US)
    best = int(np.where(at_zero, sizes, 0.0).argmax())
    if not at_zero.any() or sizes[best] < _SAME * largest:
        best = int(sizes.argmax())
        elsewhere = np.abs(apart - apart[best]) > _OTHER_US
        if elsewhere.any() and float(sizes[elsewhere].max()) > _CLEAR * largest:
            return None
    members = apart[best : ends[best]]
    middle = int(np.median(members))
    number = len(np.unique(moments[0, best : ends[best]] // _PIECE_US))
    return middle, int(np.median(np.abs(members - middle))), number


# -- logs that differ --------------------------------------------------------------------------------------------------


class _Group:
    """Connected appenders, and how far each is ahead of the first one."""

    def __init__(self, first: Appender) -> None:
        self.offsets = {first: 0}


class _Merge(NamedTuple):
    """Two groups that became one because of ``facts`` facts; ``against`` facts show other differences."""

    one: Appender
    two: Appender
    ahead_us: int
    error_us: int
    facts: int
    against: int


def differing(facts: Facts) -> Iterator[Shift]:
    """Yield the appenders of a cluster whose offset differs from that of their broker's others; ``file`` is empty."""
    moments = _moments(facts)
    crowded = {both: _crowded(of) for both, of in moments.items()}
    groups, merges = _grouped([Pair(*both, *found) for both, found in crowded.items() if found is not None])
    partly = set()
    for one in sorted({each for both in moments for each in both if each.source != JOURNAL_SOURCE}):
        for shift in _shifted_partly(one, moments, groups):
            partly.add(one)
            yield shift
    for group in groups:
        for own in _by_node(group.offsets).values():
            yield from (shift for shift in _shifted(own, group.offsets, merges) if shift.appender not in partly)


def _by_node(appenders: Iterable[Appender]) -> dict[int, list[Appender]]:
    found: dict[int, list[Appender]] = defaultdict(list)
    for appender in sorted(appenders):
        if appender.source != JOURNAL_SOURCE:
            found[appender.node].append(appender)
    return found


def _shifted_partly(
    one: Appender, moments: Mapping[tuple[Appender, Appender], _Floats], groups: Sequence[_Group]
) -> Iterator[Shift]:
    """Yield the shift of an appender that differs from its broker's others part of the time, or by one zone and later
    by another."""
    for group in groups:
        siblings = [each for each in _by_node(group.offsets).get(one.node, ()) if each != one]
        if not siblings:
            continue
        usual_us = group.offsets[_usual(siblings, group.offsets)]
        times = []
        for (first, second), of in moments.items():
            other = second if first == one else first
            if one in (first, second) and other in group.offsets:
                own, others = (of[0], of[1]) if first == one else (of[1], of[0])
                times.append(np.stack([own, own - others + group.offsets[other] - usual_us]))
        found = _changed(np.concatenate(times, axis=1)) if times else None
        if found is not None:
            yield Shift(one, "", *found, PARTLY)
            return


def _changed(moments: _Floats) -> tuple[int, int, int] | None:
    """Return (how far a log is ahead part of the time, 0, the number of facts that show it); None if it is not.

    ``moments`` are the log's times, and how far they are ahead of other logs.  Before the change, most facts are ahead
    by one zone difference and none by the other; after it, the reverse.  Other facts that are far apart prove nothing:
    a broker may receive the state of a partition hours later.
    """
    quarters = np.round(moments[1] / QUARTER_US)
    exact = np.abs(moments[1] - quarters * QUARTER_US) <= 2 * NEAR_US
    if not exact.any():
        return None
    usual, *others = sorted(
        np.unique(quarters[exact]), key=lambda each: (-(exact & (quarters == each)).sum(), each != 0)
    )
    for times in (moments[0], moments[0] - moments[1]):  # by its own clock, then by the others'
        pieces = times // _PIECE_US
        for other in others:
            here, there = pieces[exact & (quarters == usual)], pieces[exact & (quarters == other)]
            here, there = np.setdiff1d(here, there), np.setdiff1d(there, here)
            enough = 1 if usual and not other else ENOUGH_FACTS - 1
            if (
                len(here) >= ENOUGH_FACTS
                and len(there) >= enough
                and _one_after_the_other(here, there, np.unique(pieces))
            ):
                return int(usual or other) * QUARTER_US, 0, len(here) + len(there)
    return None


def _one_after_the_other(one: _Floats, two: _Floats, every: _Floats) -> bool:
    """Return whether one set lies entirely before the other, and each has most of the facts of its own period."""
    first, second = (one, two) if one.max() < two.min() else (two, one)
    numbers = (every <= first.max()).sum(), (every >= second.min()).sum()
    many = len(first) >= _CLEAR * numbers[0] and len(second) >= _CLEAR * numbers[1]
    return bool(first.max() < second.min() and many)


def _shifted(own: Sequence[Appender], offsets: Mapping[Appender, int], merges: Sequence[_Merge]) -> Iterator[Shift]:
    usual = _usual(own, offsets)
    for one in own:
        ahead_us = offsets[one] - offsets[usual]
        if abs(ahead_us) > _OTHER_US:
            merge = _merge_of(one, usual, merges)
            exact_us = _zone_difference(ahead_us)
            method = CORRECTED if exact_us is not None else NO_ZONE
            if exact_us is not None and merge.facts < ENOUGH_FACTS * max(1, merge.against):
                method = CONTRARY if merge.against else FEW
            yield Shift(one, "", ahead_us if exact_us is None else exact_us, merge.error_us, merge.facts, method)


def _usual(own: Sequence[Appender], offsets: Mapping[Appender, int]) -> Appender:
    """Return the appender that agrees with most of the broker's appenders; on a tie, with most of the cluster's."""

    def alike(one: Appender, among: Iterable[Appender]) -> int:
        return sum(abs(offsets[other] - offsets[one]) <= _OTHER_US for other in among)

    return max(own, key=lambda one: (alike(one, own), alike(one, offsets), one.source))


def _zone_difference(ahead_us: int) -> int | None:
    """Return the nearest possible difference between two time zones; None if none is near."""
    exact_us = round(ahead_us / QUARTER_US) * QUARTER_US
    return exact_us if abs(ahead_us - exact_us) <= 2 * NEAR_US else None


def _grouped(pairs: Sequence[Pair]) -> tuple[list[_Group], list[_Merge]]:
    """Merge appenders into groups where facts show how far they are apart, those with the most facts first."""
    group_of: dict[Appender, _Group] = {}
    for pair in pairs:
        for appender in (pair.one, pair.two):
            group_of.setdefault(appender, _Group(appender))
    merges: list[_Merge] = []
    while True:
        between: dict[tuple[Appender, Appender], list[Pair]] = defaultdict(list)
        for pair in pairs:
            one, two = (next(iter(group_of[each].offsets)) for each in (pair.one, pair.two))
            if one != two:
                between[min(one, two), max(one, two)].append(pair)
        found = [merge for both, of in between.items() if (merge := _merged(*both, of, group_of)) is not None]
        done: set[Appender] = set()
        for merge in sorted(found, key=lambda each: (-each.facts, each)):
            if not done & {merge.one, merge.two}:
                done |= {merge.one, merge.two}
                merges.append(merge)
                into, other = group_of[merge.one], group_of[merge.two]
                into.offsets |= {each: us + merge.ahead_us for each, us in other.offsets.items()}
                group_of |= dict.fromkeys(other.offsets, into)
        if not done:
            return list({id(group): group for group in group_of.values()}.values()), merges


def _merged(one: Appender, two: Appender, pairs: Sequence[Pair], group_of: Mapping[Appender, _Group]) -> _Merge | None:
    """Return how far the group of ``two`` is ahead of that of ``one``; None if too few facts in their logs show it."""
    apart = []
    for pair in pairs:
        ahead_us = group_of[pair.one].offsets[pair.one] + pair.ahead_us - group_of[pair.two].offsets[pair.two]
        apart.append((ahead_us if pair.one in group_of[one].offsets else -ahead_us, pair))
    apart.sort()

    def near(us: int) -> list[tuple[int, Pair]]:
        return [each for each in apart if abs(each[0] - us) <= 2 * NEAR_US]

    best = max((near(us) for us, _ in apart), key=lambda crowd: sum(pair.facts for _, pair in crowd))
    facts = sum(pair.facts for _, pair in best)
    middle = max(best, key=lambda each: each[1].facts)[0]
    # A single fact may be late, or another fact: it contradicts nothing.
    against = sum(pair.facts for us, pair in apart if abs(us - middle) > 2 * NEAR_US and pair.facts > 1)
    enough = ENOUGH_FACTS - 1 if _zone_difference(middle) is not None else 2 * ENOUGH_FACTS
    if facts < enough or against > _CLEAR * facts:
        return None
    return _Merge(one, two, middle, max(pair.error_us for _, pair in best), facts, against)


def _merge_of(one: Appender, other: Appender, merges: Sequence[_Merge]) -> _Merge:
    """Return the merge that brought two appenders into one group."""
    groups: dict[Appender, set[Appender]] = {}
    for merge in merges:
        into = groups.setdefault(merge.one, {merge.one})
        more = groups.setdefault(merge.two, {merge.two})
        if one in (into | more) and other in (into | more):
            return merge
        into |= more
    raise AssertionError("appenders of one group were merged")
