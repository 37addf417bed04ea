"""Computes the offsets of the nodes' clocks from messages, which cannot arrive before they are sent.

If ``a`` and ``b`` both logged a message from ``a`` to ``b``, it bounds the difference of their clocks from one side:
the receive time minus the send time is the offset of ``b`` relative to ``a`` plus a non-negative delay.  The minimum
over many messages is close to the offset.  Messages in the other direction bound it from the other side; the offset is
the middle of the remaining interval, and its error is half the interval.

The bounds form a graph.  Its shortest paths are the tightest bounds that follow from all messages, also for nodes that
never communicated with the reference.  If two nodes have messages in one direction only, the other bound is
``ASSUMED_FASTEST_US``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import NamedTuple

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import DataFrame, F, Window
from aiocontroller.analytics.kafka_logs import EVENT_THREAD
from aiocontroller.analytics.log_deletions import notices

ASSUMED_FASTEST_US = 50_000
"""Of several messages, one is assumed to have been at least this fast."""
UNKNOWN_ERROR_US = 1_000_000
"""The error for a node that shares no message with the reference: clocks under NTP differ by less."""
LEAST = 0.01
"""The quantile that stands for the minimum delay, so that a few wrong pairs (from a truncated log) do no harm."""


CONTRADICTION = "contradict each other"
MOST_DRIFT_US = 1_000_000
"""Within the period of a set of logs, clocks drift apart by less than this unless they are set."""
BACKWARDS = f"times of its own journal, which {CONTRADICTION}: the clock was set back"
SPLIT = f"starts in its own logs, which {CONTRADICTION}: no start in server.log is near one in controller.log"
_NEAR_US = 60_000_000
"""Longer than a broker takes from its registration (server.log) to the start of its controller thread
(controller.log)."""
_PIECES = 200_000
"""The number of pieces of journals whose times are compared: sorting all records of large ones would take seconds."""


class Offset(NamedTuple):
    """A node's clock minus the reference's, and which messages show it; zeros for the reference itself."""

    offset_us: int
    error_us: int
    method: str


def clocks(bronze: DataFrame) -> DataFrame:
    """Return ``schema.CLOCKS`` of all nodes in ``schema.EVENTS_BRONZE``; an action with a small result.

    The reference of a cluster is a node with a journal, otherwise the node that made the most decisions.
    """
    bounds: dict[str, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
    for row in _messages(bronze).collect():
        bounds[row["cluster"]][row["sender"], row["receiver"]] = (row["least_us"], row["pairs"])
    nodes: dict[str, list[int]] = defaultdict(list)
    for row in _nodes(bronze).collect():
        nodes[row["cluster"]].append(row["node"])  # the reference is the first
    found = []
    for cluster, members in nodes.items():
        pairs = bounds[cluster]
        least = {pair: us for pair, (us, _) in pairs.items()}
        for node, offset in offsets(members, least, members[0]).items():
            known = sum(count for pair, (_, count) in pairs.items() if node in pair)
            found.append((cluster, node, offset.offset_us, offset.error_us, known, offset.method, None, None))
    return bronze.sparkSession.createDataFrame(found, schema.CLOCKS.ddl)


def set_back(journals: DataFrame) -> DataFrame:
    """Return ``schema.CLOCKS`` of the processes whose journals go back in time within a term by more than any drift;
    ``error_us`` is how far.

    Small journals are compared record by record, since records of a quiet one may be later than those before the step
    again soon after it.
    """
    term = ("cluster", "node", "process", "start_us", "epoch")
    piece = F.expr(f"seq DIV {1 + journals.count() // _PIECES}")
    pieces = journals.groupBy(*term, piece.alias("piece")).agg(
        F.min("ts").alias("first"), F.max("ts").alias("last"), F.max_by("ts", F.struct("seq", "ts")).alias("at_end")
    )
    earlier = Window.partitionBy(*term).orderBy("piece")
    back_us = F.greatest(
        F.col("last") - F.col("at_end"),
        F.max("last").over(earlier.rowsBetween(Window.unboundedPreceding, -1)) - F.col("first"),
    )
    by_node = pieces.withColumn("back_us", back_us).groupBy("cluster", "node")
    found = by_node.agg(F.max("back_us").alias("error_us"), F.count("*").alias("pairs"))
    return contradictory(found.where(f"error_us > {MOST_DRIFT_US}"), BACKWARDS)


def contradictory(found: DataFrame, method: str) -> DataFrame:
    """Return ``schema.CLOCKS`` of nodes whose offset is unknown, from (cluster, node, error_us, pairs) and optionally
    the ``file`` that shows it."""
    nothing = F.lit(None)
    made = {"offset_us": F.lit(0), "method": F.lit(method), "source": nothing}
    if "file" not in found.columns:
        made["file"] = nothing
    return found.select(
        *(made.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name) for field in schema.CLOCKS)
    )


def split(logs: DataFrame) -> DataFrame:
    """Return ``schema.CLOCKS`` of the brokers whose server.log and controller.log have no start in common, for example
    because their appenders use different time zones; ``error_us`` is the least difference.

    A registration counts as a start only right after a process's first line, since a new session registers too.
    """
    begins = "kind = 'broker' AND detail = 'starting'"
    registers = "kind = 'broker' AND detail = 'registered'"
    thread = f"kind = 'other' AND event = '{EVENT_THREAD}'"
    few = logs.where("node IS NOT NULL AND ts IS NOT NULL").where(f"({begins}) OR ({registers}) OR ({thread})")
    own = few.where(f"NOT ({thread})")
    before = F.lag(F.expr(begins)).over(Window.partitionBy("cluster", "node").orderBy("ts", "seq"))
    registered = own.withColumn("began", before).where(f"{registers} AND began").selectExpr("cluster", "node", "ts")
    threads = few.where(thread).selectExpr("cluster", "node", "ts AS thread_ts")
    apart = registered.join(threads, ["cluster", "node"]).withColumn(
        "apart_us", F.abs(F.col("ts") - F.col("thread_ts"))
    )
    by_node = apart.groupBy("cluster", "node").agg(F.min("apart_us").alias("error_us"), F.count("*").alias("pairs"))
    return contradictory(by_node.where(f"error_us > {_NEAR_US}"), SPLIT)


def offsets(nodes: Iterable[int], least_us: Mapping[tuple[int, int], int], reference: int) -> dict[int, Offset]:
    """Return each node's offset; ``least_us[a, b]`` is an upper bound on how far the clock of ``b`` is ahead of that of
    ``a``."""
    everyone = sorted({*nodes, reference})
    known = _shortest(everyone, least_us)
    answers = {(b, a): ASSUMED_FASTEST_US - us for (a, b), us in least_us.items() if (b, a) not in least_us}
    assumed = _shortest(everyone, {**least_us, **answers})
    found = {}
    for node in everyone:
        pairs = (node, reference), (reference, node)
        if node == reference:
            found[node] = Offset(0, 0, "reference")
        elif all(pair in known for pair in pairs):
            found[node] = _between(-known[pairs[0]], known[pairs[1]], "messages both ways")
        elif all(pair in assumed for pair in pairs):
            found[node] = _between(-assumed[pairs[0]], assumed[pairs[1]], "messages one way")
        else:
            found[node] = Offset(0, UNKNOWN_ERROR_US, "no message in common with the reference")
    return found


def _shortest(nodes: list[int], least_us: Mapping[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """Return all shortest paths by the Floyd-Warshall algorithm, without the pairs that have no path."""
    ahead = {(a, a): 0 for a in nodes} | {pair: us for pair, us in least_us.items() if {*pair} <= {*nodes}}
    for via in nodes:
        onward = [(b, ahead[via, b]) for b in nodes if (via, b) in ahead]
        for a in nodes:
            first = ahead.get((a, via))
            if first is not None and a != via:
                for b, rest in onward:
                    if b != a and ahead.get((a, b), first + rest + 1) > first + rest:
                        ahead[a, b] = first + rest
    return ahead


def _between(low: int, high: int, method: str) -> Offset:
    if low > high:
        method += f", which {CONTRADICTION}: a clock was set, or drifts"
    return Offset((low + high) // 2, abs(high - low + 1) // 2, method)


def _messages(bronze: DataFrame) -> DataFrame:
    """Return (cluster, sender, receiver, least_us, pairs)."""
    gone = _deleted(bronze)
    each = reduce(DataFrame.union, (_pairs(bronze, *pair, gone) for pair in _PAIRS))
    by_pair = each.where("sender <> receiver").groupBy("cluster", "sender", "receiver")
    least = F.percentile(F.col("received_us") - F.col("sent_us"), F.lit(LEAST)).cast("long")
    return by_pair.agg(least.alias("least_us"), F.count("*").alias("pairs"))


def _deleted(bronze: DataFrame) -> DataFrame:
    """Return (cluster, topic) of the topics that are deleted: they may be created again, with the same epochs."""
    ends = bronze.where("kind = 'topic_deleted' OR kind = 'partition' AND to_state = 'NonExistentPartition'")
    named = ends.unionByName(notices(bronze.where("kind = 'deleted'")))
    return named.where("topic IS NOT NULL").select("cluster", "topic").distinct()


_PARTITION = ["topic", "partition", "leader_epoch", "controller_epoch"]
_CALL = ["api", "correlation_id"]
_PAIRS: tuple[tuple[str, str, list[str]], ...] = (
    # A LeaderAndIsr request, matched by partition: sent and received (TRACE).
    (
        "kind = 'told' AND api = 'LEADER_AND_ISR' AND broker IS NOT NULL | node | broker",
        "kind = 'received' AND api = 'LEADER_AND_ISR' AND topic IS NOT NULL | NULL | node",
        _PARTITION,
    ),
    # The response to it (TRACE).
    (
        "kind = 'handled' AND correlation_id IS NOT NULL | node | try_cast(detail AS INT)",
        "kind = 'response' AND correlation_id IS NOT NULL | broker | node",
        _CALL,
    ),
    # An election, and the leader or follower that it made (INFO, 2.6).
    (
        "kind = 'partition' AND leader_epoch IS NOT NULL AND to_state IS NOT NULL | node | NULL",
        "kind = 'handled' AND leader_epoch IS NOT NULL AND correlation_id IS NULL | NULL | node",
        ["topic", "partition", "leader_epoch"],
    ),
    # A journal's request and response, and the broker's log.
    (
        "source = 'journal' AND kind = 'request' | node | broker",
        "source <> 'journal' AND kind = 'received' AND correlation_id IS NOT NULL | try_cast(detail AS INT) | node",
        _CALL,
    ),
    # A broker's registration, and the controller that sees it (INFO).
    (
        "kind = 'broker' AND detail = 'registered' | node | NULL",
        "kind = 'broker' AND detail = 'added' AND brokers IS NOT NULL | get(brokers, 0) | node",
        [],
    ),
    # A controlled shutdown: requested, seen, allowed (INFO).
    (
        "kind = 'broker' AND detail = 'asks for a controlled shutdown' | node | NULL",
        "kind = 'broker' AND detail = 'controlled shutdown' | broker | node",
        [],
    ),
    (
        "kind = 'broker' AND detail = 'controlled shutdown' | node | broker",
        "kind = 'broker' AND detail = 'was allowed to shut down' | NULL | node",
        [],
    ),
)
"""(sent, received, columns that identify the message); each side is ``condition | sender | receiver``, NULL: any."""


def _pairs(bronze: DataFrame, sent: str, received: str, same: list[str], gone: DataFrame) -> DataFrame:
    """Return (cluster, sender, receiver, sent_us, received_us) of the messages that both sides logged.

    Ambiguous messages are left out: those sent or received more than once, those that two nodes may have sent (a
    controller repeats what its predecessor sent), and those about the topics in ``gone``.
    """

    def side(text: str, time: str, prefix: str) -> DataFrame:
        condition, sender, receiver = (part.strip() for part in text.split("|"))
        named = bronze.where(condition).where("ts IS NOT NULL AND node IS NOT NULL").selectExpr(
            "cluster", *same, f"CAST({sender} AS INT) AS {prefix}_sender",
            f"CAST({receiver} AS INT) AS {prefix}_receiver",
            f"coalesce(epoch, controller_epoch) AS {prefix}_epoch", "ts",
        )  # fmt: skip
        once = named.groupBy(*(column for column in named.columns if column != "ts")).agg(
            F.min("ts").alias(time), F.count("*").alias("times")
        )
        return once.where("times = 1").drop("times")

    fits = " AND ".join(
        f"(s_{part} = r_{part} OR s_{part} IS NULL OR r_{part} IS NULL)" for part in ("sender", "receiver", "epoch")
    )
    joined = side(sent, "sent_us", "s").join(side(received, "received_us", "r"), ["cluster", *same]).where(fits)
    if "topic" in same:
        joined = joined.join(F.broadcast(gone), ["cluster", "topic"], "left_anti")
    as_received = Window.partitionBy("cluster", *same, "r_sender", "r_receiver", "r_epoch")
    as_sent = Window.partitionBy("cluster", *same, "s_sender", "s_receiver", "s_epoch")
    unique = joined.withColumn("senders", F.count("*").over(as_received)).withColumn(
        "receivers", F.count("*").over(as_sent)
    )
    return unique.where("senders = 1 AND (receivers = 1 OR s_receiver IS NULL)").selectExpr(
        "cluster", "coalesce(s_sender, r_sender) AS sender", "coalesce(r_receiver, s_receiver) AS receiver", "sent_us",
        "received_us",
    )  # fmt: skip


def _nodes(bronze: DataFrame) -> DataFrame:
    """Return (cluster, node), with the references first."""
    decided = F.expr("kind IN ('partition', 'told', 'elected', 'loaded', 'request')")
    counted = bronze.where("node IS NOT NULL").groupBy("cluster", "node").agg(
        F.max(F.expr("source = 'journal'")).alias("writes_a_journal"), F.count_if(decided).alias("decided")
    )  # fmt: skip
    return counted.orderBy("cluster", F.desc("writes_a_journal"), F.desc("decided"), "node").select("cluster", "node")


def applied(logs: DataFrame, offsets: DataFrame) -> DataFrame:
    """Add ``ts_us`` on the clock of the cluster's reference, and ``ts_error_us``; ``ts`` has a resolution of 1 ms."""
    known = F.broadcast(offsets.selectExpr("cluster", "node", "offset_us", "error_us"))
    return logs.join(known, ["cluster", "node"], "left").withColumns(
        {
            "ts_us": F.expr("ts - coalesce(offset_us, 0)"),
            "ts_error_us": F.expr(f"coalesce(error_us, {UNKNOWN_ERROR_US}) + 1000"),
        }
    ).drop("offset_us", "error_us")  # fmt: skip
