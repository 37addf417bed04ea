"""Silver events from logs: combines several lines, files and nodes into what a journal states directly.

* Every node's times are converted to one clock (``clocks``).
* Lines without a controller epoch get the one that was active when they were written.
* A line about several brokers becomes one event for each; a failover's step lasts until the line of the next step.
* Up to 1.0 an election names only the leader; the request that follows has the leader epoch and the ISR.  If a
  controller's log is missing, the requests that brokers received show its decisions.
* A request proves only that a controller had read or written the state before.  The state is left out if a later
  version is known: before protocol 2.7, leaders write ISRs themselves, and controllers learn of it later.
* From 2.6 on there is no log line for the end of a partition: its partitions end when the controller logs that the
  topic is deleted.  Where that log is missing, brokers tell of deletions (``log_deletions``).  Topic ids tell lives of
  one name apart.
* From 2.6 on there is no log line for a partition that goes offline.  If an election came *from* Offline, and the
  broker of the last leader was seen to fail in the same term, the partition went offline then.
* Indirect evidence (``log_evidence``, ``log_gaps``): the end of a broker's log, the time from which its followers get
  no answer from it, controllers that left no log, and what one log shows to be missing from another.
"""

from __future__ import annotations

from aiocontroller.analytics import schema
from aiocontroller.analytics.clocks import applied
from aiocontroller.analytics.dataframes import Column, DataFrame, F, Keep, Window, WindowSpec, checkpointed
from aiocontroller.analytics.log_deletions import (
    ended_by_brokers,
    ended_by_ids,
    in_their_lives,
    named_lives,
    notices,
    with_creations,
)
from aiocontroller.analytics.log_evidence import with_evidence
from aiocontroller.analytics.log_gaps import gaps, skipped
from aiocontroller.analytics.log_reader import CONTINUATION

INFERRED = "not in the log: when its leader's broker was seen to fail"
DELETED = "not in the log: when its topic's deletion was completed"
_OF_REQUEST = "if(api IS NULL, 'from the line of its first leader', 'from a request')"
_FIRST = 1 << 60
"""More than the position of any line."""
_KEY = ("cluster", "topic", "partition")


def _history() -> WindowSpec:
    return Window.partitionBy(*_KEY).orderBy("epoch", "ts_us", "seq")


def log_events(bronze: DataFrame, clocks: DataFrame, keep: Keep = checkpointed) -> DataFrame:
    """Return ``schema.EVENTS`` of the logs in ``schema.EVENTS_BRONZE``.

    Each step uses the previous one several times, and Spark's plans are trees: without ``keep``, which computes its
    rows at once, a plan would contain the lines a thousand times.
    """
    lines = applied(bronze.where((F.col("kind") != CONTINUATION) & F.col("ts").isNotNull()), clocks)
    lines = lines.withColumn(
        "process", F.concat(F.lit("broker-"), F.coalesce(F.col("node").cast("string"), F.lit("?")))
    )
    # A controller logs what it sees before its decisions, but in another file and often in the same millisecond.
    lines = lines.withColumn("seq", F.expr(f"IF(kind IN ('broker', 'elected', 'failover'), seq - {_FIRST}, seq)"))
    timed = keep("timed", with_epochs(with_evidence(lines, gaps(lines))))
    records = timed.transform(one_per_broker).transform(with_durations)
    of_partitions = F.col("partition").isNotNull() & (
        F.col("kind").isin("partition", "isr")
        | (F.col("kind").isin("told", "received") & (F.col("api") == "LEADER_AND_ISR") & F.col("leader").isNotNull())
    )
    handled = records.where("kind = 'handled'")
    noticed, completed = notices(records.where("kind = 'deleted'")), records.where("kind = 'topic_deleted'")
    lives = keep("lives", named_lives(records.where(of_partitions), handled, completed, noticed))
    noticed, completed = in_their_lives(noticed, lives), in_their_lives(completed, lives)
    by_ids = ended_by_ids(lives, completed)
    states = with_creations(records.where(of_partitions), handled, noticed, completed.unionByName(by_ids))
    histories = keep("led", leaderships(states))
    histories = histories.unionByName(inferred_losses(histories, records.where("kind = 'broker' AND detail = 'dead'")))
    histories = histories.unionByName(deleted(histories, completed))
    histories = histories.unionByName(ended_by_brokers(histories, noticed))
    histories = keep("histories", histories)
    histories = histories.unionByName(deleted(histories, by_ids))
    others = records.where(~of_partitions | F.col("kind").isin("told", "received"))
    jumps = skipped(histories, records.where("kind = 'reassigning'"))
    return _as_events(others).unionByName(_as_events(histories)).unionByName(_as_events(jumps))


def with_epochs(lines: DataFrame) -> DataFrame:
    """Fill ``epoch`` in lines without one with the term in which they were written.

    A term begins with the election, whose line lacks the epoch up to 2.2.  If the controller has no log (ours has a
    journal), the term begins with the first request that a broker received from it.
    """
    epoch = F.coalesce("epoch", F.when(F.col("kind") != "stale", F.col("controller_epoch")))
    named = lines.withColumn("epoch", epoch)
    by_controllers = named.where(
        "kind IN ('partition', 'replica', 'told', 'request', 'elected', 'failover', 'loaded') AND epoch IS NOT NULL"
        " AND node IS NOT NULL"
    )
    first = by_controllers.groupBy("cluster", "node", "epoch").agg(F.min("ts_us").alias("ts_us"))
    elections = named.where("kind = 'elected' AND epoch IS NULL").select("cluster", "node", "epoch", "ts_us")
    in_order = Window.partitionBy("cluster", "node").orderBy("ts_us", F.col("epoch").asc_nulls_first())
    before = F.lag(F.struct("epoch", "ts_us")).over(in_order)
    begins = F.when(before["epoch"].isNull(), before["ts_us"])
    known = first.unionByName(elections).select(
        "cluster", "epoch", F.coalesce(begins, "ts_us").alias("from_us")
    )  # fmt: skip
    obeyed = named.where("kind = 'received'").select("cluster", "epoch", F.col("ts_us").alias("from_us"))
    terms = (
        known.unionByName(obeyed)
        .where("epoch IS NOT NULL")
        .groupBy("cluster", "epoch")
        .agg(F.min("from_us").alias("from_us"))
        .groupBy("cluster")
        .agg(F.array_sort(F.collect_list(F.struct("epoch", "from_us"))).alias("terms"))
    )
    ruling = F.expr("try_element_at(filter(terms, t -> t.from_us <= ts_us), -1).epoch")
    return (
        named.join(F.broadcast(terms), "cluster", "left").withColumn("epoch", F.coalesce("epoch", ruling)).drop("terms")
    )


def one_per_broker(lines: DataFrame) -> DataFrame:
    """Turn each line about several brokers into one row per broker."""
    several = F.col("kind").isin("broker", "request") & F.col("brokers").isNotNull()
    each = F.when(several, F.col("brokers")).otherwise(F.array("broker"))
    return lines.withColumn("one", F.explode(each)).withColumn("broker", F.col("one")).drop("one")


def with_durations(lines: DataFrame) -> DataFrame:
    """Add the durations of a failover's steps: a step lasts until the line of the next step, or until all is loaded."""
    of_failovers = F.col("kind").isin("failover", "loaded")
    term = Window.partitionBy("cluster", "node", "epoch").orderBy("ts_us", "seq")
    steps = lines.where(of_failovers).withColumn(
        "duration_us", F.when(F.col("kind") == "failover", F.lead("ts_us").over(term) - F.col("ts_us"))
    )
    return lines.where(~of_failovers).unionByName(steps)


def leaderships(lines: DataFrame) -> DataFrame:
    """Return the kinds ``partition`` and ``isr``, and what ``told`` and ``received`` add to them, as ``partition``.

    A version is compared with those since the last write that a controller logged: if a topic is created again, its
    versions begin at zero.
    """
    # In each term once: when the next controller sends the state, it may be an old one.
    known = (*_KEY, "epoch", "controller_epoch", "leader_epoch", "leader", "isr")
    created = F.col("kind").isin("told", "received") & F.coalesce(F.col("from_state") == "NewPartition", F.lit(False))
    requests = lines.where(F.col("kind").isin("told", "received") & ~created)
    rest = [name for name in lines.columns if name not in known]
    first = F.min_by(F.struct(*rest), F.struct(F.col("kind") == "received", F.col("ts_us"), F.col("seq")))
    once = requests.groupBy(*known).agg(first.alias("r")).select(*known, "r.*")
    rows = lines.where(F.col("kind").isin("partition", "isr") | created).unionByName(once)

    decision, request = F.col("kind") == "partition", F.col("kind").isin("told", "received")
    following = F.lead(F.struct("kind", "leader", "leader_epoch", "isr", "partition_epoch", "replicas")).over(
        _history()
    )
    completes = (
        decision & F.col("leader_epoch").isNull() & following["kind"].isin("told", "received")
        & (following["leader"] == F.col("leader"))
    )  # fmt: skip
    filled = rows.withColumn("following", following).withColumn("completes", completes)
    filled = filled.withColumns(
        {
            name: F.when(F.col("completes"), F.coalesce(name, f"following.{name}")).otherwise(F.col(name))
            for name in ("leader_epoch", "isr", "partition_epoch", "replicas")
        }
    )
    versioned = F.col("partition_epoch").isNotNull()
    until_here = _history().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    writes = F.count(F.when(decision & versioned, 1)).over(until_here)
    filled = filled.withColumns(
        {
            "version": F.struct(writes.alias("writes"), "partition_epoch"),
            "life": F.sum(created.cast("int")).over(until_here),
        }
    )
    of_life = Window.partitionBy(*_KEY, "life").orderBy("epoch", "ts_us", "seq")
    so_far = of_life.rowsBetween(Window.unboundedPreceding, -1)
    state = F.when(F.col("leader").isNotNull() & F.col("isr").isNotNull(), F.struct("leader", "isr"))
    added = filled.withColumns(
        {
            "last_state": F.last(state, ignorenulls=True).over(so_far),
            "highest": F.max("leader_epoch").over(so_far),
            "known": F.max(F.when(versioned, F.col("version"))).over(so_far),
            "by_controller": F.max(F.when(versioned & (decision | request), F.col("version"))).over(so_far),
        }
    )
    same = (F.col("last_state.leader") == F.col("leader")) & (F.col("last_state.isr") == F.col("isr"))
    says_nothing = request & (
        (F.col("leader_epoch") < F.col("highest")) | (same & (F.col("leader_epoch") == F.col("highest")))
    )
    outdated = request & _before("known")
    # A starved leader may log its change after the controller's next one, which includes it; and one thread of a broker
    # a millisecond after another thread's line about the request that followed.
    late = (F.col("kind") == "isr") & _before("by_controller")
    return (
        added.where(~F.coalesce(says_nothing | outdated | late, F.lit(False)))
        .withColumn("detail", F.when(request, F.expr(_OF_REQUEST)).otherwise(F.col("detail")))
        .withColumn("kind", F.when(request, F.lit("partition")).otherwise(F.col("kind")))
        .select(*lines.columns)
    )


def _before(known: str) -> Column:
    """Whether a row's version is lower than that in the column ``known``, and no logged write of a controller lies
    between."""
    same_write = F.col("version.writes") == F.col(f"{known}.writes")
    return same_write & (F.col("version.partition_epoch") < F.col(f"{known}.partition_epoch"))


def inferred_losses(histories: DataFrame, deaths: DataFrame) -> DataFrame:
    """Return the change to Offline for partitions where only the change from Offline was logged."""
    before = F.lag(F.struct("epoch", "to_state", "leader", "ts_us")).over(_history())
    out_of_offline = (
        histories.where("kind = 'partition'")
        .withColumn("before", before)
        .where(
            "(from_state = 'OfflinePartition' OR (to_state IS NULL AND leader = -1))"
            " AND before.epoch <= epoch AND before.leader >= 0"
            " AND coalesce(before.to_state, 'OnlinePartition') = 'OnlinePartition'"
        )
    )
    seen = deaths.selectExpr(
        "cluster", "epoch AS death_epoch", "broker AS dead", "ts_us AS death_us", "ts_error_us AS death_error_us",
        "node AS death_node", "reference AS death_reference", "seq AS death_seq",
    )  # fmt: skip
    same = F.expr("epoch = death_epoch AND before.leader = dead AND death_us BETWEEN before.ts_us AND ts_us")
    candidates = out_of_offline.join(F.broadcast(seen), "cluster").where(same)
    latest = candidates.groupBy(*_KEY, "epoch", "ts_us", "seq").agg(
        F.max_by(F.struct(*candidates.columns), F.struct("death_us", "death_node", "death_reference")).alias("c")
    )
    empty = {name: F.lit(None) for name in histories.columns}
    made = empty | {name: F.col(f"c.{name}") for name in (*_KEY, "epoch", "source", "process", "start_us", "file")}
    made |= {
        "node": F.col("c.death_node"),
        "seq": F.col("c.death_seq"),
        "ts": F.col("c.death_us"),
        "ts_us": F.col("c.death_us"),
        "ts_error_us": F.col("c.death_error_us"),
        "kind": F.lit("partition"),
        "from_state": F.lit("OnlinePartition"),
        "to_state": F.lit("OfflinePartition"),
        "leader": F.col("c.dead"),
        "broker": F.col("c.dead"),
        "detail": F.lit(INFERRED),
        "reference": F.col("c.death_reference"),
    }
    types = {field.name: field.dataType for field in histories.schema}
    return latest.select(*(made[name].cast(types[name]).alias(name) for name in histories.columns))


def deleted(histories: DataFrame, finished: DataFrame) -> DataFrame:
    """Return the end of each partition of a deleted topic if no line shows it."""
    of_topic = Window.partitionBy("cluster", "topic").orderBy("ts_us", "seq")
    deletions = finished.select(
        "cluster",
        "topic",
        F.struct(*(F.col(name) for name in finished.columns if name not in _KEY)).alias("end"),
        F.coalesce(F.lag("ts_us").over(of_topic), F.lit(0)).alias("since_us"),
    )
    life = histories.join(F.broadcast(deletions), ["cluster", "topic"]).where("ts_us > since_us AND ts_us <= end.ts_us")
    last = life.groupBy(*_KEY, "end").agg(F.max_by("to_state", F.struct("epoch", "ts_us", "seq")).alias("state"))
    ended = last.where("state IS DISTINCT FROM 'NonExistentPartition'")
    made = {name: F.col(f"end.{name}") for name in finished.columns if name not in _KEY}
    made |= {name: F.col(name) for name in _KEY}
    made |= {
        "kind": F.lit("partition"),
        "from_state": F.lit("OfflinePartition"),
        "to_state": F.lit("NonExistentPartition"),
        "detail": F.lit(DELETED),
    }
    types = {field.name: field.dataType for field in histories.schema}
    return ended.select(*(made[name].cast(types[name]).alias(name) for name in histories.columns))


def _as_events(lines: DataFrame) -> DataFrame:
    columns: list[Column] = []
    for field in schema.EVENTS:
        column = F.lit(None) if field.name == "conflicts" else F.col(field.name)
        columns.append(column.cast(field.dataType).alias(field.name))
    return lines.select(*columns)
