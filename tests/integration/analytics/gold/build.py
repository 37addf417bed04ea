"""Histories made by hand: journal records of a controller, as silver has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from aiocontroller.analytics import gold, schema
from aiocontroller.analytics.gold import facts as of
from aiocontroller.analytics.gold import leadership
from aiocontroller.analytics.journal_files import arrow_schema
from aiocontroller.journal.records import Record, encode_records

T0 = 1_700_000_000_000_000
ON, OFF, NEW, NONE = "OnlinePartition", "OfflinePartition", "NewPartition", "NonExistentPartition"


class Controller:
    """One controller process: each call is a record, 1,000 µs after the one before unless ``at_ms`` says when."""

    def __init__(self, node: int = 1, start_us: int = T0, cluster: str = "c") -> None:
        self.node, self.start_us, self.cluster = node, start_us, cluster
        self.process = f"{node}-{start_us}"
        self.epoch = self.seq = 0
        self.now_us = start_us
        self.records: list[dict[str, Any]] = []

    def say(self, kind: str, *, at_ms: float | None = None, **fields: Any) -> dict[str, Any]:
        self.seq += 1
        self.now_us = self.now_us + 1000 if at_ms is None else T0 + int(at_ms * 1000)
        record = {
            "cluster": self.cluster, "source": "journal", "node": self.node, "process": self.process,
            "start_us": self.start_us, "epoch": self.epoch, "seq": self.seq, "ts_us": self.now_us, "ts_error_us": 0,
            "kind": kind, "file": f"journal-{self.process}", "reference": f"{self.process}:{self.seq}", **fields,
        }  # fmt: skip
        self.records.append(record)
        return record

    def elected(self, epoch: int, brokers: Iterable[int] = (1, 2, 3), **fields: Any) -> None:
        self.epoch = epoch
        self.say("elected", controller_epoch=epoch, **fields)
        self.say("loaded", brokers=list(brokers), partitions=0, count=0)

    def moved(
        self, topic: str, before: str, after: str, leader: int | None = None, epoch: int = 0, isr: Iterable[int] = (),
        version: int = 0, replicas: Iterable[int] = (1, 2, 3), **fields: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """A partition's record; without ``leader`` it has no leadership."""
        if leader is not None:
            own = {"leader": leader, "leader_epoch": epoch, "isr": list(isr), "partition_epoch": version}
            fields = {**own, "controller_epoch": self.epoch, **fields}
        moved = {"topic": topic, "partition": 0, "from_state": before, "to_state": after, "replicas": list(replicas)}
        return self.say("partition", **{**moved, **fields})

    def isr(self, topic: str, leader: int, epoch: int, isr: Iterable[int], version: int, **fields: Any) -> None:
        state = {"topic": topic, "partition": 0, "leader": leader, "leader_epoch": epoch, "isr": list(isr)}
        more = {"partition_epoch": version, "controller_epoch": self.epoch, "replicas": [1, 2, 3]}
        self.say("isr", **{**state, **more, **fields})

    def created(self, topic: str, leader: int = 1, replicas: Iterable[int] = (1, 2, 3), **fields: Any) -> None:
        self.moved(topic, NONE, NEW, replicas=replicas, **fields)
        self.moved(topic, NEW, ON, leader, 0, replicas, 0, replicas)


def frame(spark: SparkSession, records: Iterable[Mapping[str, Any]]) -> DataFrame:
    """silver/events of records; what they do not name is null."""
    arrow = arrow_schema(schema.EVENTS)
    rows = [{name: record.get(name) for name in schema.EVENTS.names} for record in records]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=arrow), schema=schema.EVENTS.ddl)


def here(table: DataFrame) -> DataFrame:
    """The same rows without the plan that made them: plans of plans take Spark seconds to optimise."""
    return table.localCheckpoint()


def tables(spark: SparkSession, records: Iterable[Mapping[str, Any]]) -> dict[str, DataFrame]:
    """All gold of them, as one batch."""
    events = frame(spark, records)
    history = here(of.history(leadership.rows(events)).selectExpr("*", "1L AS n"))
    facts = {name: here(of.merge(name, make(events))) for name, make in of.OF_EVENTS.items()}
    facts |= {name: here(of.merge(name, make(history))) for name, make in of.OF_PARTITIONS.items()}
    nothing = spark.createDataFrame([], schema.QUARANTINE.ddl)
    repeated = spark.createDataFrame([], schema.REPEATED.ddl)
    read = spark.createDataFrame([], schema.READ.ddl)
    return gold.tables(facts, history.where("is_last"), repeated, read, nothing)


def found(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.collect()]


def lines(records: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """The records as a journal's lines."""
    names = {"ts": "ts_us"}
    return [
        encode_records([Record(**{f: r[k] for f in Record.__struct_fields__ if (k := names.get(f, f)) in r}, v=1)])
        for r in records
    ]
