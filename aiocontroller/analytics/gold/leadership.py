"""Each partition's history in order, with every row next to its predecessor: one shuffle and one sort, and the rest is
local.

A *row* is a record about a partition's leadership (kinds ``partition`` and ``isr``).  It puts the partition in a phase:
``up`` (Online with a leader), ``down`` (it exists and has no leader) or ``gone`` (NonExistent).

Windows open and close on rows: ``down_since`` and ``under_since`` hold the start of the current window, and
``down_ends`` and ``under_ends`` mark the row that closes it.  One kind of start has no row of its own: if a leader dies
while there is no controller, the next controller finds it dead, and its first row for the partition comes *from*
Offline or has no leader.  Such a window is ``hidden``: it began after the previous row, and no later than the row that
shows it.

Each partition's last row is enough to continue later: ``timeline(new, last)`` takes those rows of an earlier call
(``is_last``), and returns for the new rows what one call over all rows would have returned.
"""

from __future__ import annotations

from typing import Final

from aiocontroller.analytics.dataframes import Column, DataFrame, F, Window

KEY: Final = ("cluster", "topic", "partition")
ORDER: Final = ("epoch", "start_us", "writer", "at_us", "seq")
"""As ``docs/journal.md`` defines it, and never by the clocks of several nodes.  See ``ordered``."""
ROW: Final = (
    *KEY, *ORDER, "process", "source", "node", "ts_us", "ts_error_us", "kind", "from_state", "to_state", "leader",
    "leader_epoch", "isr", "replicas", "controller_epoch", "partition_epoch", "unclean", "keeps_all",
    "reference",
)  # fmt: skip

_PREVIOUS: Final = (
    "phase", "epoch", "process", "seq", "reference", "ts_us", "to_state", "leader", "leader_epoch", "isr",
    "controller_epoch", "partition_epoch",
)  # fmt: skip
_UNDER: Final = (
    "{0}to_state IS DISTINCT FROM 'NonExistentPartition' AND coalesce(size({0}isr) < size({1}replicas), false)"
)

PHASE: Final = """
    CASE WHEN to_state = 'NonExistentPartition' THEN 'gone'
         WHEN coalesce(to_state, 'OnlinePartition') = 'OnlinePartition' AND coalesce(leader, -1) >= 0 THEN 'up'
         ELSE 'down' END"""
_REPLICAS: Final = """
    CASE WHEN phase = 'gone' THEN named_struct('ids', CAST(NULL AS ARRAY<INT>))
         WHEN replicas IS NOT NULL THEN named_struct('ids', replicas) END"""
"""What is known of the replicas from a row on; a topic that is created again has others."""
HIDDEN: Final = """
    coalesce(from_state = 'OfflinePartition' AND phase <> 'gone' AND prev.phase IS NULL
             OR (from_state = 'OfflinePartition' AND phase <> 'gone' OR leader = -1)
                AND prev.phase = 'up' AND epoch > prev.epoch, false)"""
"""Whether a window began unseen.

From 2.6 on, a new controller first removes the dead broker from the ISR, which leaves no leader (``leader = -1``), and
only then elects another one, from Offline.
"""
PLACE: Final = "coalesce(reference, concat(process, ':', seq))"
"""Where a person can find the record."""
PREVIOUS_PLACE: Final = "coalesce(prev.reference, concat(prev.process, ':', prev.seq))"
SINCE_PLACE: Final = "coalesce(since.reference, concat(since.process, ':', since.order.seq))"
_WINDOW: Final = """
    named_struct(
        'ts_us', ts_us, 'error_us', ts_error_us, 'order', struct(epoch, start_us, writer, at_us, seq),
        'process', process, 'reference', reference, 'hidden', {hidden}, 'before_us', prev.ts_us,
        'leader', coalesce(if(prev.phase = 'up', prev.leader, NULL), nullif(leader, -1)),
        'suspect', {suspect}, 'born', coalesce(to_state = 'NewPartition', false),
        'grown', coalesce(size(replicas) > size(prev.replicas), false))"""
_DOWN_SINCE: Final = _WINDOW.format(
    hidden="hidden", suspect="coalesce(if(prev.phase = 'up', prev.leader, NULL), nullif(leader, -1))"
)
_UNDER_SINCE: Final = _WINDOW.format(
    hidden="false",
    suspect="coalesce(get(array_except(prev.isr, isr), 0), get(array_except(replicas, isr), 0))",
)
_DOWN_BEGINS: Final = "NOT carried AND (hidden OR (phase = 'down' AND coalesce(prev.phase, 'gone') <> 'down'))"
_UNDER_BEGINS: Final = "NOT carried AND under AND NOT coalesce(prev.under, false)"


def ordered(events: DataFrame) -> DataFrame:
    """Add the columns of ``ORDER``.

    A journal's records are numbered by their process.  Log lines have no lasting numbers, so they are ordered by time,
    over all files of the cluster.
    """
    journal = "source = 'journal'"
    return events.withColumns(
        {
            "start_us": F.expr("coalesce(start_us, 0)"),
            "writer": F.expr(f"if({journal}, process, '')"),
            "at_us": F.expr(f"if({journal}, 0, ts_us)"),
        }
    )


def rows(events: DataFrame) -> DataFrame:
    """Return the events about a partition's leadership, with the columns of ``ROW``."""
    states = ordered(events).where("kind IN ('partition', 'isr') AND topic IS NOT NULL AND partition IS NOT NULL")
    # A recovery state of 1 stays until the leader clears it; the journal records for each election whether it was
    # unclean.
    unclean = "coalesce(if(source = 'journal', detail LIKE '%unclean%', recovery_state = 1), false) AS unclean"
    # A leader from outside the ISR that is known to lack nothing (``docs/journal.md``).
    keeps_all = "coalesce(source = 'journal' AND (detail LIKE '%, eligible' OR detail LIKE '%, complete'), false)"
    reference = "if(source = 'journal', NULL, reference) AS reference"  # for journals, it is made when needed
    made = {"unclean": unclean, "keeps_all": f"{keeps_all} AS keeps_all", "reference": reference}
    return states.selectExpr(*(made.get(column, column) for column in ROW))


def timeline(new: DataFrame, last: DataFrame | None = None) -> DataFrame:
    """Order ``new`` (columns ``ROW``), with phases, predecessors and windows; the module's docstring explains ``last``.

    The result holds every row of both, those of ``last`` with ``carried``; ``is_last`` marks each partition's last row.
    """
    marked = new.withColumn("carried", F.lit(False))
    if last is None:
        marked = marked.withColumn("down_carried", F.expr("NULL")).withColumn("under_carried", F.expr("NULL"))
    else:
        kept = last.selectExpr(*ROW, "true AS carried", "down_since AS down_carried", "under_since AS under_carried")
        marked = marked.unionByName(kept, allowMissingColumns=True)
    # Spark compares the first eight bytes before the rest: those of a hash differ between partitions.
    marked = marked.withColumn("hash", F.xxhash64(*KEY))
    order = Window.partitionBy("hash", *KEY).orderBy(*ORDER)
    so_far, earlier = (order.rowsBetween(Window.unboundedPreceding, end) for end in (Window.currentRow, -1))
    named = F.expr(_REPLICAS)
    placed = marked.withColumn("phase", F.expr(PHASE)).withColumns(
        {
            "replicas": F.last(named, ignorenulls=True).over(so_far)["ids"],
            "before_replicas": F.last(named, ignorenulls=True).over(earlier)["ids"],
            "before": F.lag(F.struct(*_PREVIOUS)).over(order),
            "is_last": F.lead(F.lit(1)).over(order).isNull(),
        }
    )
    prev = f"struct(before.*, before_replicas AS replicas, {_UNDER.format('before.', 'before_')} AS under)"
    beside = (
        placed.withColumns(
            {"prev": F.expr(f"if(before IS NULL, NULL, {prev})"), "under": F.expr(_UNDER.format("", ""))}
        )
        .drop("before", "before_replicas")
        .withColumn("hidden", F.expr(HIDDEN))
    )
    since = beside.withColumns(
        {
            "down_since": _present("down_carried", _DOWN_BEGINS, _DOWN_SINCE, last is None).over(so_far),
            "under_since": _present("under_carried", _UNDER_BEGINS, _UNDER_SINCE, last is None).over(so_far),
        }
    )
    ended = since.withColumns(
        {
            "down_ends": F.expr("NOT carried AND phase <> 'down' AND (hidden OR coalesce(prev.phase = 'down', false))"),
            "under_ends": F.expr("NOT carried AND NOT under AND coalesce(prev.under, false)"),
        }
    )
    # The start is needed only where a window ends and where a later call continues.
    kept_where = {
        name: F.expr(f"if({name[:-6]}_ends OR is_last, {name}, NULL)") for name in ("down_since", "under_since")
    }
    return ended.withColumns(kept_where).drop("hash", "down_carried", "under_carried")


def _present(carried: str, begins: str, beginning: str, fresh: bool) -> Column:
    """Return the start of the current window as of each row."""
    here = f"CASE WHEN {begins} THEN {beginning} END"
    return F.last(F.expr(here if fresh else f"if(carried, {carried}, {here})"), ignorenulls=True)
