"""Batches of records, one after the other, to gold: the same tables as all of them at once.

A batch run is one batch into an empty folder; ``--incremental`` adds a batch of what is new; ``--follow`` adds one
every few seconds.  ``add`` is the one way in:

1. Bronze: the records, typed; what is not understood in quarantine.
2. Records that were there before are left out.  Journals number their records, so that a few counts for each process
   tell whether there can be any (``duplicates``); only then they are looked for.
3. Partitions' histories go on from each partition's last row.  Where a row is *late*, before that last one, the
   partition's history is taken back and told anew; what it had contributed is subtracted.
4. Facts of the batch.  Then the commit; before it nothing counts, so that an attempt cut short is simply done again.
5. Gold, from the facts of all batches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from aiocontroller.analytics import bronze, gold, journal_files, schema, silver
from aiocontroller.analytics.clocks import clocks as clocks_of
from aiocontroller.analytics.duplicates import Seen, without_repeated
from aiocontroller.analytics.gold import facts as of
from aiocontroller.analytics.gold import leadership
from aiocontroller.analytics.journal_files import DAY_US
from aiocontroller.analytics.journal_reader import journal_records
from aiocontroller.analytics.session import suited_to_little
from aiocontroller.analytics.sources import SourceFile
from aiocontroller.analytics.store import Store

log = logging.getLogger(__name__)

EVENTS: Final = "bronze/events"
ODD: Final = "bronze/odd"
"""Lines on their way into one of the other two."""
QUARANTINE: Final = "bronze/quarantine"
SILVER: Final = "silver/events"
CLOCKS: Final = "silver/clocks"
TIMELINE: Final = "silver/timeline"
FACTS: Final = "silver/facts"
REPEATED: Final = "repeated"

_WRITERS: Final = "spark.sql.maxConcurrentOutputFileWriters"


def add(
    store: Store,
    new: Sequence[SourceFile] | DataFrame,
    note: dict[str, Any] | None = None,
    step: Callable[[str], None] = log.info,
    *,
    most_quarantined: float = 1.0,
) -> None:
    """Add files, or records (bronze's columns, and ``line`` and ``reason``), as the next batch; ``note`` goes into its
    commit.

    ``step`` hears what is done next.  ``BadInputError``, and no commit, when more than the share ``most_quarantined``
    of them was not understood.
    """
    before = store.last_commit()
    batch = 0 if before is None else before["batch"] + 1
    step(f"batch {batch}: reading")
    _write_bronze(store, batch, new)
    understood = store.read(EVENTS, [batch], schema.EVENTS_BRONZE)
    bronze.refuse_quarantined(understood, store.read(QUARANTINE, [batch], schema.QUARANTINE), most_quarantined)
    seen = Seen(before["seen"]) if before is not None else Seen({})
    every = _silver(store, batch, understood)
    step(f"batch {batch}: counting")
    first = of.tallies(every).persist()
    try:
        events, seen, repeated = without_repeated(every, first, seen)
        facts = {name: make(events) for name, make in of.OF_EVENTS.items()}
        if repeated is None:
            facts["tallies"] = first
        else:
            facts[REPEATED] = repeated
        step(f"batch {batch}: partitions' histories")
        history = _timeline(store, batch, leadership.rows(events))
        _write_all(store, batch, {f"{FACTS}/{name}": table for name, table in facts.items()} | {TIMELINE: history})
    finally:
        first.unpersist()
    rows = store.read(TIMELINE, [batch]).where("NOT carried")
    _write_all(store, batch, {f"{FACTS}/{name}": of.OF_PARTITIONS[name](rows) for name in of.COUNTED})
    store.commit({**(note or {}), "batch": batch, "seen": seen.ranges})


def _write_bronze(store: Store, batch: int, new: Sequence[SourceFile] | DataFrame) -> None:
    facts = (f"{FACTS}/{name}" for name in (*of.OF_EVENTS, *of.COUNTED, REPEATED))
    for table in (EVENTS, ODD, QUARANTINE, *facts):
        store.forget(table, batch)
    records = new if isinstance(new, DataFrame) else _decoded(store, batch, new)
    if records is None:
        return
    spark = store.spark
    before = spark.conf.get(_WRITERS, "0")
    spark.conf.set(_WRITERS, "16")  # or Spark sorts every record by its day
    try:
        rejected = Observation()
        counted = records.observe(rejected, F.count_if(F.col("reason").isNotNull()).alias("lines"))
        day = F.expr(f"date_from_unix_date(CAST(floor(ts / {DAY_US}) AS INT)) AS day")
        store.append(EVENTS, batch, bronze.accepted(counted).select("*", day), "day")
    finally:
        spark.conf.set(_WRITERS, before or "0")
    if rejected.get["lines"]:  # or there is no need to parse everything a second time
        store.write(QUARANTINE, batch, bronze.quarantine(records))
    store.forget(ODD, batch)


def _decoded(store: Store, batch: int, files: Sequence[SourceFile]) -> DataFrame | None:
    """Writes what ``journal_files`` can; the rest as records that are still to be written, None where all is done."""
    quick = [file for file in files if journal_files.suits(file, store.out)]
    others = [file for file in files if file not in quick]
    records = bronze.read(store.spark, others) if others else None
    if not journal_files.decode(store.spark, quick, store.of_batch(EVENTS, batch), store.of_batch(ODD, batch)):
        return records
    odd = journal_records(store.read(ODD, [batch]))
    return odd if records is None else odd.unionByName(records)


def _write_all(store: Store, batch: int, tables: dict[str, DataFrame]) -> None:
    """At once: while one is planned, and while the last tasks of another one run, there are processors free."""
    with ThreadPoolExecutor(len(tables)) as pool:
        for written in [pool.submit(store.write, name, batch, table) for name, table in tables.items()]:
            written.result()


def _silver(store: Store, batch: int, understood: DataFrame) -> DataFrame:
    """``schema.EVENTS``.  Those of logs take many steps, which Spark would do again for each fact: they are kept."""
    if understood.where(F.col("source") != schema.JOURNAL_SOURCE).isEmpty():
        return silver.journal_events(understood)
    clocks = clocks_of(understood)
    store.write(CLOCKS, batch, clocks)
    store.write(SILVER, batch, silver.events(understood, clocks))
    return store.read(SILVER, [batch])


def _timeline(store: Store, batch: int, new: DataFrame) -> DataFrame:
    """Histories with weights ``n``: what is new counts 1, what is taken back -1."""
    if batch == 0:
        return of.history(new).withColumn("n", F.lit(1).cast("long"))
    last = store.read(TIMELINE, [batch - 1]).where("is_last")
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
    told = store.read(TIMELINE, range(batch)).where("NOT carried").join(late, [*leadership.KEY], "left_semi")
    known = told.groupBy(*leadership.ROW).agg(F.sum("n").alias("n")).where("n > 0").drop("n")
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
    """Gold of all batches that are committed, unless it is there."""
    commit = store.last_commit()
    assert commit is not None, "nothing was ever added"
    if store.published() == commit["id"]:
        return
    batches = range(commit["batch"] + 1)
    told = {name: store.read(f"{FACTS}/{name}", batches) for name in (*of.OF_EVENTS, *of.COUNTED)}
    rows = store.read(TIMELINE, batches).where("NOT carried")
    told |= {name: make(rows) for name, make in of.OF_PARTITIONS.items() if name not in told}
    facts = told if len(batches) == 1 else {name: of.merge(name, table) for name, table in told.items()}
    repeated = store.read(f"{FACTS}/{REPEATED}", batches, schema.REPEATED)
    last_rows = store.read(TIMELINE, [batches[-1]]).where("is_last")
    quarantine = store.read(QUARANTINE, batches, schema.QUARANTINE)
    pinned: list[DataFrame] = []

    def fit(name: str) -> AbstractContextManager[None]:
        return nullcontext() if name in gold.LARGE else suited_to_little(store.spark)

    def pin(name: str, table: DataFrame) -> DataFrame:
        with fit(name):
            pinned.append(table.persist())
        return pinned[-1]

    try:
        made = gold.tables(facts, last_rows, repeated, quarantine, pin)
        for name, table in made.items():
            step(f"gold: {name}")
            # Sorted: the same input gives the same rows in the same order; in one file where they are few.
            order = gold.SORTED_BY[name]
            ordered = table.orderBy(*order) if name == "windows" else table.repartition(1).sortWithinPartitions(*order)
            with fit(name):
                store.publish(name, ordered)
    finally:
        for table in pinned:
            table.unpersist()
    store.move(made, commit["id"])
