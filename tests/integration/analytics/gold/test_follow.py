"""Journals followed while they grow: the tables of one batch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest

from aiocontroller.analytics import batch, compaction, stream, tail
from aiocontroller.analytics.dataframes import DUCKDB, computing_by
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.store import Store
from aiocontroller.core.errors import BadInputError
from tests.integration.analytics.gold import histories
from tests.integration.analytics.gold.build import T0, lines
from tests.integration.analytics.gold.test_incremental import gold


def test_a_segment_that_grows_and_is_completed(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its two batches are merged, and give the same tables again.

    Spark makes gold once, of both batches: that takes it ten seconds of a processor.
    """
    monkeypatch.setattr(compaction, "MERGED_AT_ONCE", 2)
    publish = stream.publish

    def of_both(store: Store, step: Any) -> None:
        commit = store.last_commit()
        assert commit is not None
        if commit["batch"] == 1:
            publish(store, step)

    def follow() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(stream, "publish", of_both)
            tail.follow(spark, [str(folder)], out, to_the_end_only=True).wait()

    chance = random.Random(11)
    records = histories.history([chance.randrange(10**6) for _ in range(150)], topics=8, terms=1)
    text = b"".join(lines(records))
    cut = len(text) // 2
    folder, out = tmp_path / "in", str(tmp_path / "out")
    folder.mkdir()
    growing, complete = (folder / f"{mark}journal-1-1-{T0}-000001.jsonl" for mark in ("_", ""))
    growing.write_bytes(text[:cut])
    follow()
    with growing.open("ab") as more:
        more.write(text[cut:])
    growing.rename(complete)
    follow()
    with computing_by(DUCKDB):  # whose tables are Spark's (``test_engines``), for a tenth of the time
        duckdb = cast(Any, SmallSession())
        batch.run(duckdb, [str(folder)], str(tmp_path / "whole"))
        followed, whole = gold(duckdb, tmp_path / "out"), gold(duckdb, tmp_path / "whole")
        store = Store(duckdb, out)
        commit = store.last_commit()
        assert commit is not None
        assert commit["parts"] == [[2, 1]]
        with store.writing(), monkeypatch.context() as patch:
            patch.setattr(Store, "published", lambda self: None)
            publish(store)
        merged = gold(duckdb, tmp_path / "out")
    for name in whole:
        assert followed[name] == merged[name] == whole[name], name
    assert whole["quality"] == [{"records": len(records), "duplicates": 0}]


def test_only_folders_of_this_machine_can_be_followed(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="expected a folder on this machine"):
        tail.follow(spark, ["s3a://bucket/x"], str(tmp_path / "out"))
