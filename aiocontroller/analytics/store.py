"""The output folder: what is in it, and how it changes so that a kill at any point leaves it whole.

    bronze/events/batch=N/day=…   typed records           silver/timeline/batch=N   partitions' histories (leadership)
    bronze/quarantine/batch=N     what was not understood  silver/facts/NAME/batch=N what gold is made of (facts)
    silver/events/batch=N         one vocabulary, where there are logs; silver/clocks: of those who wrote them
    gold/NAME                     the answers, whole tables
    _commits/N.json               batch N is complete: from here on it counts

A batch writes only below its own ``batch=N``, and what no commit names does not exist for readers here; so a batch that
was cut short is simply done again.  Gold is written beside the old tables and moved over them at the end; a move that
was cut short is finished by the next run.  All of it on any file system of Hadoop's.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from aiocontroller.core.errors import BadInputError

LAYOUT: Final = 2
"""Grows when tables that batches add to change their columns."""
_NEW: Final = "gold/_new"
_MOVING: Final = "gold/_moving.json"
_PUBLISHED: Final = "gold/_commit"
_COMMITS: Final = "_commits"
FOLLOWED: Final = "_followed"
"""Spark's checkpoint of ``--follow``."""


class Store:
    """``out`` is a folder of any Hadoop file system."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self.spark = spark
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        root = jvm.org.apache.hadoop.fs.Path(out)
        self._files = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self.out = str(self._files.makeQualified(root).toString())
        self._finish_moving()

    # -- batches ---------------------------------------------------------------------------------------------------

    def last_commit(self) -> dict[str, Any] | None:
        """What the last complete batch noted; None before the first.  ``BadInputError`` if we cannot go on from it."""
        numbers = sorted(int(name[:-5]) for name in self._names(_COMMITS) if name.endswith(".json"))
        if not numbers:
            return None
        note: dict[str, Any] = json.loads(self._read(f"{_COMMITS}/{numbers[-1]}.json"))
        if note.get("layout") != LAYOUT:
            raise BadInputError(f"{self.out}: its tables are another version's; begin anew, without --incremental")
        return note

    def remarks(self) -> dict[str, list[str]]:
        """What was assumed of the files and what was not read, as of the last batch: words -> names."""
        return dict((self.last_commit() or {}).get("remarks", {}))

    def commit(self, note: dict[str, Any]) -> None:
        """From now on batch ``note["batch"]`` counts, and what is there has an ``id``."""
        whole = {**note, "id": uuid.uuid4().hex, "layout": LAYOUT}
        self._write_whole(f"{_COMMITS}/{note['batch']}.json", json.dumps(whole, sort_keys=True))

    def write(self, table: str, batch: int, rows: DataFrame) -> None:
        rows.write.mode("overwrite").option("partitionOverwriteMode", "static").parquet(self.of_batch(table, batch))

    def append(self, table: str, batch: int, rows: DataFrame, *partitions: str) -> None:
        """Beside what the batch has already."""
        rows.write.mode("append").partitionBy(*partitions).parquet(self.of_batch(table, batch))

    def read(self, table: str, batches: Iterable[int], schema: StructType | None = None) -> DataFrame:
        """A table of these batches; ``schema`` gives an empty one where none of them has it."""
        paths = [path for batch in batches if self._exists(path := self.of_batch(table, batch))]
        if not paths:
            assert schema is not None, f"{table}: no batch has it"
            return self.spark.createDataFrame([], schema)
        # Partition columns above ``batch=N`` are not wanted.  Without a schema, the first file's is looked up.
        reader = self.spark.read if schema is None else self.spark.read.schema(schema)
        return reader.parquet(*paths)

    def of_batch(self, table: str, batch: int) -> str:
        """The folder of a batch's part of a table."""
        return self._path(f"{table}/batch={batch}")

    def forget(self, table: str, batch: int) -> None:
        """What an attempt at this batch may have left."""
        self._delete(self.of_batch(table, batch))

    def clear(self) -> None:
        """Begin anew: the commits go first, so that a kill half way leaves a store that knows of nothing."""
        for name in (_COMMITS, FOLLOWED, "bronze", "silver"):
            self._delete(self._path(name))

    # -- gold ------------------------------------------------------------------------------------------------------

    def publish(self, name: str, rows: DataFrame) -> None:
        """Write a gold table; ``move`` makes it the present one."""
        rows.write.mode("overwrite").option("partitionOverwriteMode", "static").parquet(self._path(f"{_NEW}/{name}"))

    def move(self, names: Iterable[str], commit: str) -> None:
        """All tables that were published, of the batches up to ``commit``, take the place of the old ones."""
        self._write_whole(_MOVING, json.dumps({"names": sorted(names), "commit": commit}))
        self._finish_moving()

    def published(self) -> str | None:
        """Up to which commit (its ``id``) gold tells."""
        return self._read(_PUBLISHED) if self._exists(self._path(_PUBLISHED)) else None

    def _finish_moving(self) -> None:
        if not self._exists(self._path(_MOVING)):
            return
        moving = json.loads(self._read(_MOVING))
        for name in moving["names"]:
            new = self._path(f"{_NEW}/{name}")
            if self._exists(new):
                self._delete(self._path(f"gold/{name}"))
                self._rename(new, self._path(f"gold/{name}"))
        self._write_whole(_PUBLISHED, moving["commit"])
        self._delete(self._path(_MOVING))

    # -- files -----------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self.out}/{name}"

    def _hadoop(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _exists(self, path: str) -> bool:
        return bool(self._files.exists(self._hadoop(path)))

    def _delete(self, path: str) -> None:
        self._files.delete(self._hadoop(path), True)

    def _rename(self, old: str, new: str) -> None:
        if not self._files.rename(self._hadoop(old), self._hadoop(new)):
            raise OSError(f"{old}: could not be renamed to {new}")

    def _names(self, folder: str) -> list[str]:
        path = self._path(folder)
        return [f.getPath().getName() for f in self._files.listStatus(self._hadoop(path))] if self._exists(path) else []

    def _read(self, name: str) -> str:
        stream = self._files.open(self._hadoop(self._path(name)))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def _write_whole(self, name: str, text: str) -> None:
        """There, or not there, never half: by renaming."""
        folder, _, base = name.rpartition("/")
        draft = self._path(f"{folder}/_draft-{base}")
        stream = self._files.create(self._hadoop(draft), True)
        stream.write(bytearray(text.encode()))
        stream.close()
        self._delete(self._path(name))
        self._rename(draft, self._path(name))
