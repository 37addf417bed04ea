"""Every table's columns, in one place.

Times (``*_us``) are microseconds since 1970 UTC as bigint, durations bigint microseconds, names snake_case.  Columns
are only ever added.  Bronze of journals is read with ``JOURNAL``, made from the journal's own schema; both sources meet
in ``EVENTS``.  ``docs/pipeline.md`` explains the tables to people.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from aiocontroller.journal.records import FORMAT_VERSION, Record

INT, LONG, STRING, DOUBLE, BOOLEAN = IntegerType(), LongType(), StringType(), DoubleType(), BooleanType()
INTS = ArrayType(INT)
STRINGS = ArrayType(STRING)

JOURNAL_VERSIONS: Final = frozenset({FORMAT_VERSION})
"""Values of ``v`` that mean what ``JOURNAL`` says; a record with another one goes into quarantine."""
JOURNAL_REQUIRED: Final = ("v", "seq", "epoch", "node", "ts", "kind")

JOURNAL_SOURCE, CONTROLLER_LOG, STATE_CHANGE_LOG, SERVER_LOG = (
    "journal",
    "controller.log",
    "state-change.log",
    "server.log",
)
SOURCES: Final = (JOURNAL_SOURCE, CONTROLLER_LOG, STATE_CHANGE_LOG, SERVER_LOG)

_WIDE = frozenset({"seq", "ts", "broker_epoch", "count", "bytes"})
"""Journal fields that need 64 bits, besides all that end in ``_us``."""


def _table(columns: str) -> StructType:
    """``name type`` pairs, separated by commas or lines."""
    types: dict[str, DataType] = {
        "int": INT, "long": LONG, "string": STRING, "double": DOUBLE, "ints": INTS, "strings": STRINGS,
        "boolean": BOOLEAN,
    }  # fmt: skip
    pairs = (pair.split() for pair in columns.replace("\n", ",").split(",") if pair.strip())
    return StructType([StructField(name, types[kind]) for name, kind in pairs])


def _journal_type(name: str, annotation: str) -> DataType:
    if "Sequence" in annotation:
        return INTS
    if "int" in annotation:
        return LONG if name in _WIDE or name.endswith("_us") else INT
    return STRING  # str; and detail, of which an object becomes its JSON text


JOURNAL: Final = StructType(
    [StructField(name, _journal_type(name, str(kind))) for name, kind in Record.__annotations__.items()]
)
"""One journal record, version 1 (``docs/journal.md``)."""

ORIGIN: Final = _table(
    """
    source string, cluster string, process string, start_us long, file string, reference string, joined boolean
    """
)
"""Where a bronze record comes from.

``process`` is one writer: ``node-start`` for a journal, of which ``start_us`` is the start; the log's file for a log.
``reference`` is how a person finds the record again: ``file:time as it stands there`` for a log; of a journal's records
silver makes it when it is needed, ``process:seq``.  ``joined``: it stood on one line with the record before it.
"""

EVENTS_BRONZE: Final = StructType([*JOURNAL.fields, *ORIGIN.fields])
"""bronze/events, from journals and logs alike: records as they stand in their files, under the journal's names."""

REJECTED: Final = _table("line string, reason string")
"""Beside bronze's columns in what the readers return: both null for a record that was understood."""

QUARANTINE: Final = _table("line string, file string, reason string, source string, cluster string, count long")
"""bronze/quarantine: ``count`` lines of a file that could not be read for one reason; ``line`` is one of them."""
REPEATED: Final = _table("file string, duplicates long")
"""How many of a file's records had been read before."""
SAMPLE_CHARACTERS: Final = 500

EVENTS: Final = _table(
    """
    cluster string, source string, node int, process string, start_us long, epoch int, seq long
    ts_us long, ts_error_us long, kind string, event string, state string
    topic string, partition int, replica int, from_state string, to_state string
    leader int, leader_epoch int, isr ints, replicas ints, recovery_state int
    controller_epoch int, partition_epoch int
    broker int, broker_epoch long, brokers ints
    api string, api_version int, correlation_id int
    partitions long, conflicts long, count long, bytes long, code int
    queue_us long, processing_us long, duration_us long
    detail string, file string, reference string
    """
)
"""silver/events, from journals and logs alike.

``kind`` has the journal's words (``docs/journal.md``).  Order: ``ORDER``; never ``ts_us`` across nodes.  A log's
``seq`` is good for ordering only: it may differ from one reading to the next.
"""
ORDER: Final = ("epoch", "start_us", "process", "seq")

TIMELINE: Final = _table(
    """
    cluster string, topic string, partition int
    source string, node int, process string, start_us long, epoch int, seq long, ts_us long, ts_error_us long
    kind string, from_state string, to_state string, replicas ints
    leader int, leader_epoch int, isr ints, controller_epoch int, partition_epoch int
    detail string, reference string
    prev_to_state string, prev_leader int, prev_leader_epoch int, prev_isr ints, prev_ts_us long
    prev_controller_epoch int
    next_to_state string, next_leader int, next_leader_epoch int, next_isr ints, next_ts_us long
    next_controller_epoch int
    """
)
"""silver/timeline: a row for each change of a partition's leadership or state, with its neighbours in order."""

CLOCKS: Final = _table("cluster string, node int, offset_us long, error_us long, pairs long, method string")
"""silver/clocks: ``offset_us`` is what a node's clock is ahead of the cluster's reference, give or
take ``error_us``."""

GOLD: Final = {
    "windows": _table(
        """
        cluster string, topic string, partition int, start_us long, end_us long, duration_us long, kind string
        cause string, broker int, leader_before int, leader_after int, error_us long, evidence strings
        """
    ),
    "failovers": _table(
        """
        cluster string, node int, epoch int, elected_us long, loaded_us long, duration_us long
        partitions long, brokers long, topics long
        """
    ),
    "failover_phases": _table(
        "cluster string, node int, epoch int, phase string, duration_us long, position int"
    ),
    "latencies": _table(
        """
        cluster string, what string, name string, broker int, count long
        p50_us long, p90_us long, p99_us long, p999_us long, max_us long, mean_us long
        """
    ),
    "churn": _table(
        """
        cluster string, hour_us long, topic string, broker int
        leader_changes long, isr_changes long, elections_unclean long
        """
    ),
    "imbalance": _table(
        "cluster string, ts_us long, broker int, leaders long, preferred_leaders long, replicas long, imbalance double"
    ),
    "requests": _table(
        """
        cluster string, broker int, api string, count long, partitions long, bytes long, errors long, unanswered long
        p50_us long, p99_us long, max_us long
        """
    ),
    "violations": _table(
        """
        cluster string, invariant string, topic string, partition int, node int, epoch int, ts_us long
        words string, evidence strings
        """
    ),
    "availability": _table(
        """
        cluster string, level string, name string, from_us long, to_us long
        partitions long, unavailable_us long, availability double
        """
    ),
    "brokers": _table(
        """
        cluster string, broker int, broker_epoch long, event string, ts_us long
        partitions_led long, processing_us long, windows long, longest_window_us long
        """
    ),
    "data_quality": _table(
        """
        file string, source string, records long, quarantined long, torn long, duplicates long, gaps long
        first_us long, last_us long, words string
        """
    ),
}  # fmt: skip
