"""The same tables whether records come at once or in pieces, late, twice, and with a kill at any point."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.gold import SORTED_BY
from aiocontroller.analytics.store import Store
from tests.integration.analytics.gold import histories
from tests.integration.analytics.gold.build import lines

PIECES = 2


class Killed(BaseException):
    """Nobody catches it."""


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
from aiocontroller.analytics.session import spark_session
from aiocontroller.analytics.store import Store
from tests.integration.analytics.conftest import SMALL
commit = Store.commit
def die(self, note):
    commit(self, note)
    os._exit(9)
Store.commit = die
batch.run_incremental(spark_session("local[1]", options=SMALL, for_little=True), [sys.argv[1]], sys.argv[2])
"""


@pytest.mark.slow
def test_pieces_late_and_twice_with_kills_give_the_tables_of_one_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after a commit (a whole process dies), right before one, and while tables are moved.

    Each run costs a quarter of a minute of a processor, nearly all of it Spark's planning.
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
    died = subprocess.run([sys.executable, "-c", DIES, str(inputs), str(out)], check=False)
    assert died.returncode == 9
    arrive(1)
    killed_at("commit", 1)
    killed_at("_rename", 6)
    batch.run_incremental(spark, [str(inputs)], str(out))
    commit = Store(spark, str(out)).last_commit()
    assert commit is not None
    assert commit["batch"] == 1
    written = (out / "gold/windows").stat().st_mtime_ns
    batch.run_incremental(spark, [str(inputs)], str(out))
    assert (out / "gold/windows").stat().st_mtime_ns == written  # nothing new: nothing is written
    batch.run(spark, [str(inputs)], str(tmp_path / "whole"))
    pieces, whole = gold(spark, out), gold(spark, tmp_path / "whole")
    for name in whole:
        assert pieces[name] == whole[name], name
    assert whole["windows"]
    assert whole["quality"][0]["duplicates"] == 10


def test_a_store_that_was_killed_while_it_moved_tables_finishes_that(spark: Any, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path / "out"))
    for value in (1, 2):
        for name in ("a", "b"):
            store.publish(name, spark.range(value, value + 1))
        if value == 1:
            store.move(["a", "b"], "first")
    (tmp_path / "out/gold/_moving.json").write_text('{"names": ["a", "b"], "commit": "second"}')
    (tmp_path / "out/gold/_new/a").rename(tmp_path / "moved")  # as if it had been moved when the process died
    again = Store(spark, str(tmp_path / "out"))
    assert again.out == store.out
    assert spark.read.parquet(str(tmp_path / "out/gold/b")).first()[0] == 2
    assert not (tmp_path / "out/gold/_moving.json").exists()
    assert again.published() == "second"
