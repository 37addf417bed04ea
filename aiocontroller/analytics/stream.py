"""Processes batches of records into gold, one after the other, with the same result as all records at once.

A whole run is one batch into an empty folder; ``--incremental`` adds a batch of what is new; ``--follow`` adds one
every few seconds.  All of them use ``add``:

1.  Bronze: the typed records; what is not understood goes into quarantine.
2.  Repeated records are left out.  Journals number their records, so a few counts for each process show whether there
    can be any (``duplicates``); only then are they searched for.
3.  Partitions' histories continue from each partition's last row.  If a row is *late*, before that last one, the
    partition's history is retracted and made again, and its earlier contribution is subtracted.
4.  The facts of the batch, then the commit.  Nothing counts before the commit, so an interrupted attempt is repeated.
5.  Gold, from the facts of all batches.

``compaction`` merges batches to keep their number small.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final

from aiocontroller.analytics import bronze, gold, journal_files, schema, silver
from aiocontroller.analytics.appenders import CORRECTED, aligned, clocks_of_logs, describe_clock, shifts
from aiocontroller.analytics.clocks import BACKWARDS, CONTRADICTION, MOST_DRIFT_US, SPLIT, set_back, split
from aiocontroller.analytics.clocks import clocks as clocks_of
from aiocontroller.analytics.dataframes import DUCKDB, NAMES, SPARK, DataFrame, F, engine
from aiocontroller.analytics.duplicates import Seen, without_repeated
from aiocontroller.analytics.gold import facts as of
from aiocontroller.analytics.gold import leadership
from aiocontroller.analytics.journal_reader import journal_records
from aiocontroller.analytics.lost_hours import HOUR_SKIPPED, ZONE_OF_LOGS, lost_hours, zone_that_skips
from aiocontroller.analytics.session import held, planned_anew, suited_to_little
from aiocontroller.analytics.source_files import ZONELESS, SourceFile
from aiocontroller.analytics.steps_back import OUT_OF_ORDER, WENT_BACK, went_back
from aiocontroller.analytics.store import Store, batches_of, read_parquet
from aiocontroller.analytics.times import time_of
from aiocontroller.core.errors import BadInputError

log = logging.getLogger(__name__)

EVENTS: Final = "bronze/events"
ODD: Final = "bronze/odd"
"""Lines that will go into one of the other two tables."""
QUARANTINE: Final = "bronze/quarantine"
SILVER: Final = "silver/events"
CLOCKS: Final = "silver/clocks"
STAGES: Final = "silver/stages"
"""What Spark stores on the way to ``SILVER``."""
TIMELINE: Final = "silver/timeline"
FACTS: Final = "silver/facts"
REPEATED: Final = "repeated"
READ: Final = "read"
TABLES: Final = (
    EVENTS, QUARANTINE, SILVER, CLOCKS, TIMELINE,
    *(f"{FACTS}/{name}" for name in (*of.OF_EVENTS, *of.COUNTED, REPEATED, READ)),
)  # fmt: skip
"""All tables that a batch may have."""

_WRITERS: Final = "spark.sql.maxConcurrentOutputFileWriters"


def add(
    store: Store,
    new: Sequence[SourceFile] | DataFrame,
    note: dict[str, Any] | None = None,
    step: Callable[[str], None] = log.info,
    *,
    most_quarantined: float = 1.0,
    when_read: Callable[[], None] = lambda: None,
) -> None:
    """Add files, or records (bronze's columns, and ``line`` and ``reason``), as the next batch.

    ``note`` becomes part of its commit; ``step`` receives the progress.  Raises ``BadInputError``, without a commit, if
    the share of lines that were not understood exceeds ``most_quarantined``.  ``when_read`` is called after the files
    were read, or could not be; it raises if they have changed.
    """
    before = store.last_commit()
    batch = 0 if before is None else before["batch"] + 1
    if before is not None and before.get("engine", SPARK) != engine():
        raise BadInputError(
            f"{store.out}: found tables computed by {NAMES[before.get('engine', SPARK)]}, but this run uses "
            f"{NAMES[engine()]}: use --engine {before.get('engine', SPARK)} to add to them"
        )
    step(f"batch {batch}: reading")
    try:
        _write_bronze(store, batch, new)
    except Exception:
        when_read()
        raise
    when_read()
    understood = store.read(EVENTS, [batch], schema.EVENTS_BRONZE)
    bronze.refuse_quarantined(understood, store.read(QUARANTINE, [batch], schema.QUARANTINE), most_quarantined)
    seen = Seen(before["seen"]) if before is not None else Seen({})
    zoneless = [file.name for file in new if ZONELESS in file.remarks] if isinstance(new, Sequence) else []
    every = planned_anew(_silver(store, batch, understood, zoneless))
    step(f"batch {batch}: counting")
    first = held(of.tallies(every))
    try:
        events, seen, repeated = without_repeated(every, first, seen)
        facts = {name: make(events) for name, make in of.OF_EVENTS.items()}
        if repeated is None:
            facts["tallies"] = first
        else:
            facts[REPEATED] = repeated
        step(f"batch {batch}: partitions' histories")
        history = _timeline(store, [] if before is None else batches_of(before), leadership.rows(events))
        write_all(store, batch, {f"{FACTS}/{name}": table for name, table in facts.items()} | {TIMELINE: history})
    finally:
        first.unpersist()
    rows = store.read(TIMELINE, [batch]).where("NOT carried")
    write_all(store, batch, {f"{FACTS}/{name}": of.OF_PARTITIONS[name](rows) for name in of.COUNTED})
    parts = [*([] if before is None else before["parts"]), [batch, 0]]
    store.commit({**(note or {}), "batch": batch, "parts": parts, "engine": engine(), "seen": seen.ranges})


def _write_bronze(store: Store, batch: int, new: Sequence[SourceFile] | DataFrame) -> None:
    for table in (ODD, *TABLES):
        store.forget(table, batch)
    if engine() == DUCKDB:
        from aiocontroller.analytics.small import bronze as small

        assert isinstance(new, Sequence), "the small engine reads files"
        small.write(new, *(store.of_batch(table, batch) for table in (EVENTS, ODD, QUARANTINE)))
        store.forget(ODD, batch)
        return
    records = _decoded(store, batch, new) if isinstance(new, Sequence) else new
    if records is None:
        return
    from pyspark.sql import Observation

    spark = store.spark
    before = spark.conf.get(_WRITERS, "0")
    spark.conf.set(_WRITERS, "16")  # otherwise Spark sorts every record by its day
    try:
        rejected = Observation()
        counted = records.observe(rejected, F.count_if(F.col("reason").isNotNull()).alias("lines"))
        store.append(EVENTS, batch, bronze.together(counted), "day")
    finally:
        spark.conf.set(_WRITERS, before or "0")
    if rejected.get["lines"]:
        aside = f"day={bronze.ASIDE}"
        lines = read_parquet(spark, [f"{store.of_batch(EVENTS, batch)}/{aside}"], schema.EVENTS_BRONZE)
        store.write(QUARANTINE, batch, bronze.put_aside(lines))
        store.forget(EVENTS, batch, aside)
    store.forget(ODD, batch)


def _decoded(store: Store, batch: int, files: Sequence[SourceFile]) -> DataFrame | None:
    """Write what ``journal_files`` can decode, and return the other records, still to be written; None if there are
    none."""
    quick = [file for file in files if journal_files.suits(file, store.out)]
    others = [file for file in files if file not in quick]
    records = bronze.read(store.spark, others) if others else None
    if not journal_files.decode(store.spark, quick, store.of_batch(EVENTS, batch), store.of_batch(ODD, batch)):
        return records
    odd = journal_records(store.read(ODD, [batch]))
    return odd if records is None else odd.unionByName(records)


def write_all(store: Store, batch: int, tables: dict[str, DataFrame]) -> None:
    """Write tables concurrently: processors would be idle while a table is planned and while its last tasks run.

    DuckDB uses all processors for one table.
    """
    if engine() == DUCKDB:
        for name, table in tables.items():
            store.write(name, batch, table)
        return
    with ThreadPoolExecutor(len(tables)) as pool:
        for written in [pool.submit(store.write, name, batch, table) for name, table in tables.items()]:
            written.result()


def _silver(store: Store, batch: int, understood: DataFrame, zoneless: Sequence[str]) -> DataFrame:
    """Return ``schema.EVENTS``; ``zoneless`` are the files whose times were taken as UTC.

    Events from logs take many steps, which Spark would repeat for each fact, so they are stored.
    """
    is_journal = F.col("source") == schema.JOURNAL_SOURCE
    backwards = set_back(understood.where(is_journal))
    if understood.where(~is_journal).isEmpty():
        store.write(CLOCKS, batch, backwards)
        return silver.journal_events(understood)
    ahead = shifts(understood)
    understood = aligned(understood, ahead)
    of_logs = understood.where(~is_journal)
    store.write(f"{FACTS}/{READ}", batch, of_logs.groupBy("file").agg(F.count("*").alias("read")))
    clocks = clocks_of(understood)
    odd = clocks.unionByName(backwards).unionByName(split(of_logs)).unionByName(went_back(of_logs))
    more = [*clocks_of_logs(ahead), *lost_hours(of_logs, zoneless)]
    store.write(CLOCKS, batch, odd.unionByName(store.spark.createDataFrame(more, schema.CLOCKS.ddl)))
    kept: list[str] = []

    def keep(name: str, rows: DataFrame) -> DataFrame:
        if engine() == DUCKDB:
            return rows.persist()
        kept.append(f"{STAGES}/{name}")
        store.write(kept[-1], batch, rows)
        return store.read(kept[-1], [batch])

    store.write(SILVER, batch, silver.events(understood, clocks, keep))
    for stage in kept:
        store.forget(stage, batch)
    return store.read(SILVER, [batch])


def _timeline(store: Store, batches: Sequence[int], new: DataFrame) -> DataFrame:
    """Return the histories that continue those of ``batches``, with weights ``n``: 1 for new rows, -1 for retracted
    ones."""
    if not batches:
        return of.history(new).withColumn("n", F.lit(1).cast("long"))
    last = store.read(TIMELINE, batches[-1:]).where("is_last")
    key, order = [F.col(name) for name in leadership.KEY], F.struct(*leadership.ORDER)
    late = (
        new.select(*key, order.alias("at"))
        .join(last.select(*key, order.alias("end")), [*leadership.KEY])
        .where("at <= end")
        .select(*leadership.KEY)
        .distinct()
        .localCheckpoint()
    )
    if late.isEmpty():
        return of.history(new, last).withColumn("n", F.lit(1).cast("long"))
    in_time = of.history(
        new.join(late, [*leadership.KEY], "left_anti"), last.join(late, [*leadership.KEY], "left_anti")
    )
    stored = store.read(TIMELINE, batches).where("NOT carried").join(late, [*leadership.KEY], "left_semi")
    known = stored.groupBy(*leadership.ROW).agg(F.sum("n").alias("n")).where("n > 0").drop("n")
    again = known.select(*leadership.ROW).unionByName(
        new.join(late, [*leadership.KEY], "left_semi").select(*leadership.ROW)
    )
    taken_back = of.history(known).withColumn("is_last", F.lit(False))
    one, minus = F.lit(1).cast("long"), F.lit(-1).cast("long")
    return (
        in_time.withColumn("n", one)
        .unionByName(of.history(again).withColumn("n", one))
        .unionByName(taken_back.withColumn("n", minus))
    )


def publish(store: Store, step: Callable[[str], None] = log.info) -> None:
    """Make and publish the gold tables of all committed batches, unless they are published and whole."""
    commit = store.last_commit()
    assert commit is not None, "nothing was ever added"
    if store.published() == commit["id"]:
        problem = store.damage_of_gold()
        if problem is None:
            return
        step(f"{problem}: making the gold tables anew")
    batches = batches_of(commit)
    stored = {name: store.read(f"{FACTS}/{name}", batches) for name in (*of.OF_EVENTS, *of.COUNTED)}
    rows = store.read(TIMELINE, batches).where("NOT carried")
    stored |= {name: make(rows) for name, make in of.OF_PARTITIONS.items() if name not in stored}
    facts = stored if commit["parts"] == [[0, 0]] else {name: of.merge(name, table) for name, table in stored.items()}
    repeated = store.read(f"{FACTS}/{REPEATED}", batches, schema.REPEATED)
    read = store.read(f"{FACTS}/{READ}", batches, schema.READ)
    last_rows = store.read(TIMELINE, batches[-1:]).where("is_last")
    quarantine = store.read(QUARANTINE, batches, schema.QUARANTINE)
    pinned: list[DataFrame] = []

    def fit(name: str) -> AbstractContextManager[None]:
        return nullcontext() if name in (*gold.LARGE, "outages") else suited_to_little(store.spark)

    def pin(name: str, table: DataFrame) -> DataFrame:
        with fit(name):
            pinned.append(held(table))
        return pinned[-1]

    try:
        lacks = [*commit.get("lacks", ()), *_clocks_that_differ(store, batches)]
        made = gold.tables(facts, last_rows, repeated, read, quarantine, pin, lacks)
        drafts = store.draft(made, commit["batch"])
        for name, table in made.items():
            step(f"gold: {name}")
            # Sorted, so that the same input gives the same rows in the same order; in one file if they are few.
            order = gold.SORTED_BY[name]
            ordered = table.orderBy(*order) if name == "windows" else table.repartition(1).sortWithinPartitions(*order)
            with fit(name):
                ordered.write.parquet(drafts[name])
    finally:
        for table in pinned:
            table.unpersist()
    store.publish(drafts, commit)


def _clocks_that_differ(store: Store, batches: Sequence[int]) -> list[dict[str, Any]]:
    """Return, as lacks, the nodes whose messages or journals contradict each other by more than any drift, so that
    their times are wrong by a changing amount, and the logs that are ahead of their broker's others."""
    if not store.having(CLOCKS, batches):
        return []
    found = store.read(CLOCKS, batches).where(
        f"source IS NOT NULL OR contains(method, '{CONTRADICTION}') AND error_us > {MOST_DRIFT_US}"
        f" OR method IN ('{OUT_OF_ORDER}', '{HOUR_SKIPPED}')"
    )
    return [
        {"cluster": row["cluster"], "node": row["node"], "process": "", "what": "clock", **_of_clock(row)}
        for row in sorted(found.collect(), key=lambda row: (row["cluster"], row["node"], row["source"] or ""))
    ]


def _of_clock(row: Any) -> dict[str, Any]:
    """Return the clock's owner, the kind of records that it affects, and what is wrong with it."""
    node, whose = row["node"], f"clock of broker {row['node']}"
    wrong_by = f"its times are wrong by up to {row['error_us'] / 1_000_000:,.1f} s"
    # An empty source counts for every broker, not just controllers, since server.log also shows what happened to
    # others.
    if row["source"] is not None:
        return {
            "file": f"clock of {row['source']} of broker {node}", "source": "", "words": describe_clock(row),
            "known": row["method"] == CORRECTED,
        }  # fmt: skip
    if row["method"] == BACKWARDS:
        whose = f"clock of controller {node}"
        words = f"the {whose} was set back while it wrote its journal: {wrong_by}"
        return {"file": whose, "source": schema.JOURNAL_SOURCE, "words": words}
    if row["method"] == WENT_BACK:
        by = timedelta(seconds=row["error_us"] // 1_000_000)
        words = (
            f"the times of {row['file']} go back by {by}, and what happened meanwhile cannot be put in order: the "
            f"{whose} was set back, as where summer time ends, or the file was put together of others"
        )
        return {"file": whose, "source": schema.CONTROLLER_LOG, "words": words}
    if row["method"] == HOUR_SKIPPED:
        begin_us = row["offset_us"]
        words = (
            f"all logs are silent for the hour from {time_of(begin_us):%Y-%m-%d %H:%M}, which no clock shows in "
            f"{zone_that_skips(begin_us)}, for example: summer time began, and how long anything lasted across "
            'it is unknown; give the zone in a manifest: [[files]] glob = "*", time_zone = "…"'
        )
        hour = {"from_us": begin_us, "to_us": begin_us + row["error_us"]}
        return {"file": ZONE_OF_LOGS, "source": "", "words": words, **hour}
    if row["method"] == OUT_OF_ORDER:
        by = timedelta(seconds=row["error_us"] // 1_000_000)
        words = (
            f"the times of {row['file']} go back by {by}, to before its earlier lines: it was put together of parts in "
            f"another order, and is read in the order of its times; if the {whose} was set back instead, what follows "
            "stands too early"
        )
        return {"file": whose, "source": schema.CONTROLLER_LOG, "words": words, "known": True}
    if row["method"] == SPLIT:
        words = (
            f"server.log and controller.log of broker {node} have no start in common: their time zones "
            "differ, or a part of one is lost"
        )
        return {"file": whose, "source": "", "words": words}
    words = f"the {whose} was set while it logged, or that of the broker to which it is compared: {wrong_by}"
    return {"file": whose, "source": schema.CONTROLLER_LOG, "words": words}
