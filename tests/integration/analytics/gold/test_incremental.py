"""The same tables whether records come at once or in pieces, late, twice, and with a kill at any point."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.dataframes import DUCKDB, SPARK, computing_by, engine
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


def gold(spark: Any, out: Path, where: str = "gold") -> dict[str, list[Any]]:
    """Every table but one: which of two files a record is counted for depends on which came first."""
    tables = {name: spark.read.parquet(f"{out}/{where}/{name}") for name in SORTED_BY}
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
    request: pytest.FixtureRequest, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after a commit (a whole process dies), right before one, and while tables are moved.

    A batch costs Spark ten seconds of a processor, and gold as much, nearly all of it planning.  So it makes gold once,
    and finds what an interrupted batch left instead of being interrupted; and its journals and tables are on a file
    system of Hadoop, where ``Store`` has no locks and no links.
    """
    if engine() == SPARK:
        root = request.getfixturevalue("viewfs")
    else:
        root = str(tmp_path)
        for name in ("in", "out"):
            (tmp_path / name).mkdir()
    inputs, out, aside = f"{root}/in", f"{root}/out/pieces", tmp_path / "aside"
    aside.mkdir()
    files = delivered(aside, seed=7)

    def arrive(piece: int) -> None:
        for path in files:
            if path.name.endswith(f"{piece:06d}.jsonl"):
                path.rename(tmp_path / "in" / path.name)

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
                batch.run_incremental(spark, [inputs], out)

    arrive(0)
    if engine() == DUCKDB:
        died = subprocess.run([sys.executable, "-c", DIES, inputs, out], check=False)
        assert died.returncode == 9
    else:
        killed_at("published", 1)
    arrive(1)
    if engine() == DUCKDB:
        killed_at("commit", 1)
        killed_at("publish", 1)
        killed_at("_point_to", 1)
    else:
        first = list((tmp_path / "out").rglob("batch=0"))
        assert len(first) > 5
        for table in first:
            shutil.copytree(table, table.with_name("batch=1"))
    found = batch.run_incremental(spark, [inputs], out)
    assert {file.name for file in found.files} == {path.name for path in files}
    store = Store(spark, out)
    commit, snapshot = store.last_commit(), store.snapshot()
    assert commit is not None
    assert commit["batch"] == 1
    assert snapshot is not None
    assert store.gold("windows") == f"{out}/{snapshot['gold']}/windows"
    batch.run_incremental(spark, [inputs], out)
    assert store.snapshot() == snapshot  # nothing new: nothing is written
    with computing_by(DUCKDB):  # whose tables are Spark's (``test_engines``), for a tenth of the time
        duckdb = cast(Any, SmallSession())
        batch.run(duckdb, [str(tmp_path / "in")], str(tmp_path / "whole"))
        pieces = gold(duckdb, tmp_path / "out" / "pieces", snapshot["gold"])
        whole = gold(duckdb, tmp_path / "whole")
    for name in whole:
        assert pieces[name] == whole[name], name
    assert whole["windows"]
    assert whole["quality"][0]["duplicates"] == 10
