"""The same tables whether records come at once or in pieces, late, twice, and with a kill at any point."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.dataframes import DUCKDB, computing_by, engine
from aiocontroller.analytics.gold import SORTED_BY
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.store import Store
from tests.integration.analytics.gold import histories
from tests.integration.analytics.gold.build import lines

PIECES = 2


class Killed(BaseException):
    """No handler catches it."""


def delivered(folder: Path, seed: int) -> list[Path]:
    """Journal files in the order in which they arrive: each with lines from anywhere, and some that came before."""
    chance = random.Random(seed)
    records = histories.history([chance.randrange(10**6) for _ in range(240)], topics=12)
    pieces: list[list[tuple[str, bytes]]] = [[] for _ in range(PIECES)]
    for record, line in zip(records, lines(records), strict=True):
        # Mostly in order; a fifth of them anywhere.
        in_order = PIECES * sum(map(len, pieces)) // len(records)
        pieces[chance.randrange(PIECES) if chance.random() < 0.2 else in_order].append((record["process"], line))
    pieces[-1] += chance.sample(pieces[0], 10)
    files = []
    for number, piece in enumerate(pieces):
        chance.shuffle(piece)
        for process in sorted({p for p, _ in piece}):
            path = folder / f"journal-{process.replace('-', '-1-')}-{number:06d}.jsonl"
            path.write_bytes(b"".join(line for p, line in piece if p == process))
            files.append(path)
    return files


def gold(spark: Any, out: Path) -> dict[str, list[Any]]:
    """Every table but one: which of two files a record is counted for depends on which came first."""
    tables = {name: spark.read.parquet(f"{out}/gold/{name}") for name in SORTED_BY}
    quality = tables.pop("data_quality").selectExpr("sum(records) AS records", "sum(duplicates) AS duplicates")
    return {name: [r.asDict() for r in table.collect()] for name, table in {**tables, "quality": quality}.items()}


DIES = """
import os, sys
from aiocontroller.analytics import batch
from aiocontroller.analytics.dataframes import DUCKDB, computing_by
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.store import Store
commit = Store.commit
def die(self, note):
    commit(self, note)
    os._exit(9)
Store.commit = die
with computing_by(DUCKDB):
    batch.run_incremental(SmallSession(), [sys.argv[1]], sys.argv[2])
"""


@pytest.mark.slow
def test_pieces_late_and_twice_with_kills_give_the_tables_of_one_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after a commit (a whole process dies), right before one, and while tables are moved.

    What follows a commit is done by ``Store`` alone, the same for both engines.  A run on Spark costs a quarter of a
    minute of a processor, nearly all of it planning: there the batch is cut short once, when all of it is written.
    """
    inputs, aside, out = tmp_path / "in", tmp_path / "aside", tmp_path / "pieces"
    inputs.mkdir()
    aside.mkdir()
    files = delivered(aside, seed=7)

    def arrive(piece: int) -> None:
        for path in files:
            if path.name.endswith(f"{piece:06d}.jsonl"):
                path.rename(inputs / path.name)

    def killed_at(name: str, call: int) -> None:
        """Before the ``call``-th call of the store's method."""
        original, calls = getattr(Store, name), 0

        def step(self: Store, *args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call:
                raise Killed(name)
            return original(self, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(Store, name, step)
            with pytest.raises(Killed):
                batch.run_incremental(spark, [str(inputs)], str(out))

    arrive(0)
    if engine() == DUCKDB:
        died = subprocess.run([sys.executable, "-c", DIES, str(inputs), str(out)], check=False)
        assert died.returncode == 9
    else:
        batch.run_incremental(spark, [str(inputs)], str(out))
    arrive(1)
    killed_at("commit", 1)
    if engine() == DUCKDB:
        killed_at("publish", 1)
        killed_at("_point_to", 1)
    batch.run_incremental(spark, [str(inputs)], str(out))
    commit = Store(spark, str(out)).last_commit()
    assert commit is not None
    assert commit["batch"] == 1
    snapshot = Store(spark, str(out)).snapshot()
    batch.run_incremental(spark, [str(inputs)], str(out))
    assert Store(spark, str(out)).snapshot() == snapshot  # nothing new: nothing is written
    with computing_by(DUCKDB):  # whose tables are Spark's (``test_engines``), for a tenth of the time
        batch.run(cast(Any, SmallSession()), [str(inputs)], str(tmp_path / "whole"))
    pieces, whole = gold(spark, out), gold(spark, tmp_path / "whole")
    for name in whole:
        assert pieces[name] == whole[name], name
    assert whole["windows"]
    assert whole["quality"][0]["duplicates"] == 10
