"""Stores of tables that tests make, damage and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from aiocontroller.analytics.store import Store


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def published(store: Store, spark: Any, value: int, commit: str) -> None:
    drafts = store.draft(("a", "b"), value)
    for folder in drafts.values():
        spark.createDataFrame([(value,)], "id long").write.parquet(folder)
    store.publish(drafts, {"id": commit, "parts": [[0, 0]]})


def value(folder: Path | str) -> int:
    return int(pq.read_table(str(folder)).column(0)[0].as_py())
