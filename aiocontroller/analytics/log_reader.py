"""Bronze of Kafka's logs: each record in the journal's columns, with null for what it lacks.

Spark reads the files once for each framing (``framing``).  One regex finds the time and the writer, another one the
message (``kafka_logs``).  Times without a zone are in the file's zone and become UTC here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from aiocontroller.analytics import kafka_logs, schema
from aiocontroller.analytics.dataframes import Column, DataFrame, F, SparkSession
from aiocontroller.analytics.framing import LIKE_A_RECORD, OF_KAFKA, Framing
from aiocontroller.analytics.kafka_logs import HEADER_SLOTS, PATTERNS, SELF, SEPARATOR, SLOTS
from aiocontroller.analytics.lines import read_lines, sample
from aiocontroller.analytics.source_files import SourceFile

MOST_DETAIL = 2000
"""The number of characters kept from a record without a matching pattern, or from a failure's stack trace."""
CONTINUATION = "continuation"
"""The kind of a line without a time in a file that is read line by line: it belongs to the record before it."""
UNKNOWN_LAYOUT = "its time has a form that is not known"
"""The reason to reject such a line if it looks like a Kafka record."""
API_NAMES = {
    "LeaderAndIsr": "LEADER_AND_ISR",
    "StopReplica": "STOP_REPLICA",
    "UpdateMetadata": "UPDATE_METADATA",
    "update metadata": "UPDATE_METADATA",
    "UPDATE_METADATA_KEY": "UPDATE_METADATA",
    "CONTROLLED_SHUTDOWN_KEY": "CONTROLLED_SHUTDOWN",
}
EVENT_NAMES = {"Leader": "become-leader", "Follower": "become-follower"}


def read_logs(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """Return ``schema.EVENTS_BRONZE`` and ``schema.REJECTED`` of logs."""
    by_framing: dict[Framing, list[SourceFile]] = {}
    for file in files:
        assert file.framing is not None, file.name
        by_framing.setdefault(file.framing, []).append(file)
    parts = [parse(read_lines(spark, group, framing.separator), framing) for framing, group in by_framing.items()]
    return reduce(DataFrame.unionByName, parts)


def parse(records: DataFrame, framing: Framing) -> DataFrame:
    """Return bronze for ``value`` and the attributes of its file from ``read_lines``."""
    header = F.regexp_replace("text", F.lit(framing.header), F.lit(kafka_logs.header_replacement()))
    return (
        records.withColumn("text", F.rtrim("value", F.lit(" \t\r\n")))
        .where(F.col("text") != "")
        .withColumn("header", F.split(header, SEPARATOR, len(HEADER_SLOTS)))
        .withColumn("rest", _header("rest"))
        .withColumn("message", _first_line(F.col("rest"), framing))
        .withColumn("row", F.split(_row(F.col("message")), SEPARATOR, len(SLOTS)))
        .withColumn("utc", _utc())
        .withColumn("speaker", F.coalesce(_header("node").try_cast("int"), "node"))
        .withColumn("rejected", _why_rejected(framing))
        .select(*_bronze())
    )


def _header(name: str) -> Column:
    """Return a slot of the header; null if it is empty or there is no header."""
    return F.when(
        F.size("header") == len(HEADER_SLOTS), F.nullif(F.get("header", F.lit(HEADER_SLOTS.index(name))), F.lit(""))
    )


def _slot(name: str) -> Column:
    """Return a slot of the message's row; null if it is empty or no pattern matched."""
    return F.when(F.size("row") == len(SLOTS), F.nullif(F.get("row", F.lit(SLOTS.index(name))), F.lit("")))


def _first_line(rest: Column, framing: Framing) -> Column:
    """Return the unescaped message without its stack trace."""
    line = F.substring_index(rest, "\n", 1)
    if not framing.docker:
        return line
    line = F.regexp_replace(line, F.lit(r'(?:\\n)?","(?:stream|time|attrs)":.*$'), F.lit(""))
    for escaped, plain in (('\\"', '"'), ("\\t", "\t"), ("\\u003c", "<"), ("\\u003e", ">"), ("\\u0026", "&")):
        line = F.replace(line, F.lit(escaped), F.lit(plain))
    return line


def _row(message: Column) -> Column:
    """Return the row of the first pattern whose needle is in the message; without a separator, it did not match."""
    rows = None
    for pattern in PATTERNS:
        row = F.regexp_replace(message, F.lit(kafka_logs.whole(pattern.regex)), F.lit(kafka_logs.replacement(pattern)))
        found = message.contains(pattern.needle)
        rows = F.when(found, row) if rows is None else rows.when(found, row)
    assert rows is not None
    return rows


def _local_time() -> Column:
    day = F.coalesce(F.concat(F.lit("20"), _header("date")), "date")
    fraction = F.coalesce(F.concat(F.lit("."), _header("fraction")), F.lit(""))
    return F.concat(day, F.lit(" "), _header("time"), fraction)


def _utc() -> Column:
    """Return microseconds since 1970; the zone is the line's own, otherwise its file's."""
    zone = F.regexp_replace(_header("zone"), F.lit(r"^([+-]\d\d):?(\d\d)$"), F.lit("$1:$2"))
    with_zone = F.concat(_local_time(), zone).try_cast("timestamp")
    without = F.to_utc_timestamp(_local_time().try_cast("timestamp"), F.col("time_zone"))
    return F.unix_micros(F.when(zone.isNotNull(), with_zone).otherwise(without))


def _why_rejected(framing: Framing) -> Column:
    no_header = F.size("header") != len(HEADER_SLOTS)
    no_time = F.when(no_header, F.lit("no time where a record of this file begins"))
    if framing.separator is None:
        of_kafka = F.col("text").rlike(f"^{LIKE_A_RECORD}") & F.col("text").rlike(OF_KAFKA)
        no_time = F.when(no_header & of_kafka, F.lit(UNKNOWN_LAYOUT)).when(
            no_header,
            F.lit(None).cast("string"),  # a continuation
        )
    return no_time.when(_local_time().isNull(), F.lit("no date in the line, its file's name or the manifest")).when(
        F.col("utc").isNull(), F.lit("its time is invalid")
    )


def _bronze() -> list[Column]:
    kind = F.when(F.size("header") != len(HEADER_SLOTS), CONTINUATION).otherwise(
        F.coalesce(_slot("kind"), F.lit("other"))
    )
    self_broker = F.when(_slot("broker") == SELF, F.col("speaker"))
    self_leader = F.when(_slot("leader") == SELF, F.col("speaker"))
    epoch = F.coalesce(_slot("epoch").try_cast("int"), _header("epoch").try_cast("int"))
    long_text = _slot("kind").isNull() | (_slot("kind") == "failed")
    made: dict[str, Column] = {
        "seq": F.col("position"),
        "epoch": epoch,
        "node": F.col("speaker"),
        "ts": F.col("utc"),
        "kind": kind,
        "event": _renamed(_slot("event"), EVENT_NAMES),
        "api": _renamed(_slot("api"), API_NAMES),
        "broker": F.coalesce(self_broker, _slot("broker").try_cast("int")),
        "leader": F.coalesce(self_leader, _slot("leader").try_cast("int")),
        "controller_epoch": F.coalesce(_slot("controller_epoch").try_cast("int"), F.when(kind == "partition", epoch)),
        "recovery_state": F.when(_slot("recovery_state") == "RECOVERING", 1).when(
            _slot("recovery_state") == "RECOVERED", 0
        ),
        "partitions": _slot("partitions").try_cast("int")
        + F.coalesce(_slot("more_partitions").try_cast("int"), F.lit(0)),
        "duration_us": _slot("duration_ms").try_cast("long") * 1000,
        "detail": F.coalesce(
            _slot("detail"), F.when(long_text, F.substring(F.coalesce("rest", "text"), 1, MOST_DETAIL))
        ),
        "reference": F.concat("file", F.lit(":"), F.replace(_local_time(), F.lit("."), F.lit(","))),
        "joined": F.lit(False),
    }
    columns = []
    for field in schema.EVENTS_BRONZE:
        if field.name in made:
            column = made[field.name]
        elif field.name in schema.ORIGIN.names:
            column = F.col(field.name)
        elif field.name not in SLOTS:
            column = F.lit(None)
        elif field.dataType == schema.INTS:
            column = _numbers(_slot(field.name))
        elif field.dataType in (schema.INT, schema.LONG):
            column = _slot(field.name).try_cast(field.dataType)
        else:
            column = _slot(field.name)
        columns.append(column.cast(field.dataType).alias(field.name))
    rejected = F.col("rejected")
    return [*columns, F.when(rejected.isNotNull(), sample(F.col("text"))).alias("line"), rejected.alias("reason")]


def _renamed(name: Column, names: dict[str, str]) -> Column:
    table = F.create_map(*(F.lit(text) for pair in names.items() for text in pair))
    return F.coalesce(F.try_element_at(table, name), name)


def _numbers(text: Column) -> Column:
    """Return the brokers of ``1,2``, ``1, 2`` or ``BrokerState(brokerId=1, brokerEpoch=5), …``."""
    ids = F.regexp_extract_all(F.regexp_replace(text, F.lit(r"brokerEpoch=-?\d+"), F.lit("")), F.lit(r"(-?\d+)"))
    return F.when(text.isNotNull(), F.transform(ids, lambda number: number.try_cast("int")))
