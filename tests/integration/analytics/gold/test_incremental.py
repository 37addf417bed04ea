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
"""Each costs half a minute of a processor, nearly all of it Spark's planning."""
STEPS = ("write", "commit", "publish", "move", "_rename")
"""What a run does to the disk; it is killed before one of these."""


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


def test_pieces_late_and_twice_with_kills_give_the_tables_of_one_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, aside = tmp_path / "in", tmp_path / "aside"
    inputs.mkdir()
    aside.mkdir()
    files = delivered(aside, seed=7)
    chance = random.Random(7)
    left = 0

    def killed(name: str) -> Any:
        original = getattr(Store, name)

        def step(self: Store, *args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed(name)
            return original(self, *args, **kwargs)

        return step

    for name in STEPS:
        monkeypatch.setattr(Store, name, killed(name))
    kills = 0
    for number in range(PIECES):
        for path in files:
            if path.name.endswith(f"{number:06d}.jsonl"):
                path.rename(inputs / path.name)
        left = chance.randrange(1, 36)
        while True:
            try:
                batch.run_incremental(spark, [str(inputs)], str(tmp_path / "pieces"))
                break
            except Killed:
                kills += 1
                left = 0
        left = 0
    assert kills == PIECES
    batch.run(spark, [str(inputs)], str(tmp_path / "whole"))
    pieces, whole = gold(spark, tmp_path / "pieces"), gold(spark, tmp_path / "whole")
    for name in whole:
        assert pieces[name] == whole[name], name
    assert whole["windows"]
    assert whole["quality"][0]["duplicates"] == 10


DIES = """
import os, sys
from aiocontroller.analytics import batch
from aiocontroller.analytics.session import spark_session
from aiocontroller.analytics.store import Store
from tests.integration.analytics.conftest import SMALL
commit = Store.commit
def die(self, note):
    if sys.argv[3] == "after":
        commit(self, note)
    os._exit(9)
Store.commit = die
batch.run_incremental(spark_session("local[1]", options=SMALL), [sys.argv[1]], sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_at_its_commit(spark: Any, tmp_path: Path, when: str) -> None:
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    delivered(inputs, seed=3)
    died = subprocess.run([sys.executable, "-c", DIES, str(inputs), str(out), when], check=False)
    assert died.returncode == 9
    assert (Store(spark, str(out)).last_commit() is not None) == (when == "after")
    batch.run_incremental(spark, [str(inputs)], str(out))
    batch.run(spark, [str(inputs)], str(tmp_path / "whole"))
    assert gold(spark, out) == gold(spark, tmp_path / "whole")


def test_a_store_that_was_killed_while_it_moved_tables_finishes_that(spark: Any, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path / "out"))
    for value in (1, 2):
        for name in ("a", "b"):
            store.publish(name, spark.range(value, value + 1))
        if value == 1:
            store.move(["a", "b"])
    (tmp_path / "out/gold/_moving.json").write_text('["a", "b"]')
    (tmp_path / "out/gold/_new/a").rename(tmp_path / "moved")  # as if it had been moved when the process died
    again = Store(spark, str(tmp_path / "out"))
    assert again.out == store.out
    assert spark.read.parquet(str(tmp_path / "out/gold/b")).first()[0] == 2
    assert not (tmp_path / "out/gold/_moving.json").exists()
