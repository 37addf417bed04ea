"""Finds logs that go back in time: a broker's clock was set back, or summer time ended in its time zone.

Log lines are ordered by time, so a partition that lost its leader before such a step and got one after it would seem
never to have lost it.

Some logs only seem to go back.  A paused thread writes its line late.  A file may be joined from several others, in any
order (``OUT_OF_ORDER``); then no two of its parts cover the same time, unless they come from several brokers or kinds
of logs, which are kept apart here.
"""

from __future__ import annotations

from typing import Final

from aiocontroller.analytics.clocks import CONTRADICTION, contradictory
from aiocontroller.analytics.dataframes import DataFrame, F, Window

WENT_BACK: Final = f"times of one of its logs, which {CONTRADICTION}: they go back"
OUT_OF_ORDER: Final = "times of one of its logs: its parts are apart, and each is earlier than the one before"
BACK_US: Final = 60_000_000
"""Two lines in a row are rarely this late."""
_ORDER_US: Final = 1_500_000
"""Lines of several threads are out of order by less than this."""
_MOST_STEPS: Final = 20
"""The number of steps that are examined in one log."""
_PART: Final = """CASE
    WHEN kind IN ('partition', 'replica', 'told', 'request', 'response', 'received') THEN 'states'
    WHEN kind IN ('elected', 'failover', 'loaded', 'active', 'resigned', 'topic_deleted') OR kind = 'broker'
        AND detail IN ('added', 'dead', 'bounced', 'controlled shutdown') THEN 'decisions'
    WHEN kind IN ('isr', 'cluster_id', 'peer_lost', 'broker') THEN 'service' END"""
"""The kind of log that has such a line; null for lines that any kind may have."""


def went_back(logs: DataFrame) -> DataFrame:
    """Return ``schema.CLOCKS`` of the brokers with a log that goes back by more than ``BACK_US``; ``error_us`` is how
    far, ``file`` a log that shows it.  The method is ``WENT_BACK`` if it then repeats earlier times, else
    ``OUT_OF_ORDER``."""
    lines = _of_one_kind(logs.where("ts IS NOT NULL AND node IS NOT NULL"))
    log = ("cluster", "file", "node", "part")
    in_order = Window.partitionBy(*log).orderBy("seq")
    steps = lines.withColumns(
        {
            "from_us": F.max("ts").over(in_order.rowsBetween(-2, -1)),
            "to_us": F.max("ts").over(in_order.rowsBetween(0, 1)),
        }
    ).where(f"from_us - to_us > {BACK_US}")
    largest = Window.partitionBy(*log).orderBy(F.expr("to_us - from_us"), "seq")
    few = (
        steps.withColumn("rank", F.row_number().over(largest))
        .where(f"rank <= {_MOST_STEPS}")
        .selectExpr(*log, "seq AS step", "from_us", "to_us")
    )
    both_sides = lines.join(F.broadcast(few), list(log)).groupBy(*log, "step", "from_us", "to_us")
    sides = both_sides.agg(
        F.min(F.expr("if(seq < step AND ts > to_us, ts, NULL)")).alias("first_us"),
        F.max(F.expr("if(seq >= step, ts, NULL)")).alias("last_us"),
    ).withColumn("repeats", F.expr(f"last_us - first_us > {_ORDER_US}"))
    by_node = sides.groupBy("cluster", "node", "repeats").agg(
        F.max(F.expr("from_us - to_us")).alias("error_us"), F.count("*").alias("pairs"), F.min("file").alias("file")
    )
    return contradictory(by_node.where("repeats"), WENT_BACK).unionByName(
        contradictory(by_node.where("NOT repeats"), OUT_OF_ORDER)
    )


def _of_one_kind(logs: DataFrame) -> DataFrame:
    """Return (cluster, file, node, part, seq, ts): all lines of a log of one kind; of a log of several kinds, the lines
    that show their kind."""
    in_file = Window.partitionBy("cluster", "file")
    lines = logs.selectExpr("cluster", "file", "node", "seq", "ts", f"{_PART} AS part").withColumns(
        {"one": F.min("part").over(in_file), "other": F.max("part").over(in_file)}
    )
    return lines.where("one IS NULL OR one = other OR part IS NOT NULL").selectExpr(
        "cluster", "file", "node", "if(one IS NULL OR one = other, 'all', part) AS part", "seq", "ts"
    )
