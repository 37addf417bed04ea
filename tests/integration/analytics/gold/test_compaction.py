"""Merged batches: the same tables, few files, and a kill at any step costs nothing."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiocontroller.analytics import batch, compaction, stream
from aiocontroller.analytics.files import LocalFiles
from aiocontroller.analytics.gold import facts as of
from aiocontroller.analytics.gold import leadership
from aiocontroller.analytics.store import Store, batches_of
from tests.integration.analytics.gold import histories
from tests.integration.analytics.gold.build import lines
from tests.integration.analytics.gold.test_incremental import gold
from tests.integration.analytics.kills import left_by_kills

PIECES = 6


@pytest.fixture(autouse=True)
def merged_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MERGED_AT_ONCE", 2)


def arriving(folder: Path) -> Callable[[int], None]:
    """Puts pieces of two terms' journals into ``folder``: with late and repeated lines, a line of garbage in each."""
    chance = random.Random(3)
    records = histories.history([chance.randrange(10**6) for _ in range(200)], topics=9)
    pieces: list[list[tuple[str, bytes]]] = [[] for _ in range(PIECES)]
    for at, (record, line) in enumerate(zip(records, lines(records), strict=True)):
        late = chance.random() < 0.1
        pieces[chance.randrange(PIECES) if late else PIECES * at // len(records)].append((record["process"], line))
    pieces[-1] += chance.sample(pieces[0], 5)
    folder.mkdir()

    def arrive(number: int) -> None:
        for process in sorted({process for process, _ in pieces[number]}):
            path = folder / f"journal-{process.replace('-', '-1-')}-{number:06d}.jsonl"
            path.write_bytes(b"".join(line for p, line in pieces[number] if p == process) + b"garbage\n")

    return arrive


def add(spark: Any, inputs: Path, out: Path) -> None:
    batch.run_incremental(spark, [str(inputs)], str(out), most_quarantined=1.0)


def known(spark: Any, out: Path) -> dict[str, Counter[str]]:
    """What the batches that count say together, however many they are."""
    store = Store(spark, str(out))
    commit = store.last_commit()
    assert commit is not None
    batches = batches_of(commit)
    by_name = {name: store.read(f"{stream.FACTS}/{name}", batches) for name in (*of.OF_EVENTS, *of.COUNTED)}
    rows = store.read(stream.TIMELINE, batches).where("NOT carried")
    by_name |= {name: make(rows) for name, make in of.OF_PARTITIONS.items() if name not in by_name}
    made = {name: of.merge(name, table) for name, table in by_name.items()}
    made["events"] = store.read(stream.EVENTS, batches).select("process", "seq", "ts", "kind", "topic")
    last = store.read(stream.TIMELINE, batches[-1:]).where("is_last")
    made["last"] = last.select(*leadership.ROW, "phase", "down_since", "under_since")
    return {name: Counter(map(repr, table.collect())) for name, table in made.items()}


class Judge:
    """``known`` and ``gold`` of a folder; the same bytes are read once, however often a kill leaves them."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._found: dict[tuple[str, str], Any] = {}

    def known(self, out: Path) -> dict[str, Counter[str]]:
        commit = Store(self._spark, str(out)).last_commit()
        assert commit is not None
        parts = {f"batch={number}" for number in batches_of(commit)}
        files = [path for path in out.glob("runs/*/**/*.parquet") if parts & set(path.parts)]
        return self._once("known", f"{batches_of(commit)}", out, files, known)

    def gold(self, out: Path) -> dict[str, list[Any]]:
        return self._once("gold", "", out, list((out / "gold").resolve().rglob("*.parquet")), gold)

    def _once(self, what: str, more: str, out: Path, files: list[Path], look: Callable[[Any, Path], Any]) -> Any:
        """Names of files are drawn; those of their folders are not, but for the snapshot's."""
        digests = sorted(
            f"{path.parent.name} {path.parent.parent.name if what == 'known' else ''} "
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}"
            for path in files
        )
        key = (what, "\n".join([more, *digests]))
        if key not in self._found:
            self._found[key] = look(self._spark, out)
        return self._found[key]


def batches_there(out: Path) -> set[str]:
    return {path.name for path in out.glob("runs/*/**/batch=*")}


def batches_of_snapshots(out: Path) -> set[int]:
    snapshots = (json.loads(path.read_text()) for path in (out / "snapshots").iterdir())
    return {number for snapshot in snapshots for number in snapshot["batches"]}


class Arrived(NamedTuple):
    """Folders that stay as they are."""

    inputs: Path
    all_but_one: Path
    """The tables of all pieces but the last, each added when it arrived."""
    all_of_them: Path
    readable: list[bool]
    """After each piece: whether readers of the snapshot find the files of its quarantine, and those of the snapshot
    before it all batches."""


@pytest.fixture(scope="module")
def arrived(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Arrived:
    folder = tmp_path_factory.mktemp("arrived")
    found = Arrived(folder / "in", folder / "but-one", folder / "out", [])
    arrive = arriving(found.inputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "MERGED_AT_ONCE", 2)
        for piece in range(PIECES):
            if piece == PIECES - 1:
                shutil.copytree(found.all_of_them, found.all_but_one, symlinks=True)
            arrive(piece)
            add(spark, found.inputs, found.all_of_them)
            folders = Store(spark, str(found.all_of_them)).published_batches(stream.QUARANTINE)
            named = {f"batch={number}" for number in batches_of_snapshots(found.all_of_them)}
            found.readable.append(
                bool(folders)
                and all(any(Path(each).iterdir()) for each in folders)
                and named <= batches_there(found.all_of_them)
            )
    return found


def test_merged_batches_give_the_tables_of_one_batch_and_go_when_no_snapshot_needs_them(
    spark: Any, tmp_path: Path, arrived: Arrived
) -> None:
    inputs, out = arrived.inputs, arrived.all_of_them
    assert arrived.readable == [True] * PIECES
    store = Store(spark, str(out))
    commit = store.last_commit()
    assert commit is not None
    needed = {*batches_of(commit), *batches_of_snapshots(out)}
    assert len(needed) < commit["batch"]
    assert batches_there(out) == {f"batch={number}" for number in needed}
    assert len(list(out.glob("runs/*/_commits/*.json"))) <= 3
    assert [level for _, level in commit["parts"]] == [2, 1]  # 6 = 110 in binary
    batch.run(spark, [str(inputs)], str(tmp_path / "whole"), most_quarantined=1.0)
    pieces, whole = gold(spark, out), gold(spark, tmp_path / "whole")
    for name in whole:
        assert pieces[name] == whole[name], name
    assert whole["windows"]
    assert whole["quality"][0]["duplicates"] == 5
    rows = store.read(stream.TIMELINE, batches_of(commit)[:1])
    assert rows.where("n <> 1").count() == 0  # what was taken back is gone
    assert rows.where("NOT carried").count() > 100


STEPS = ((Store, "forget"), (Store, "append"), (Store, "write"), (Store, "commit"), (Store, "draft"),
         (LocalFiles, "write_new"), (LocalFiles, "link"), (LocalFiles, "delete_tree"))  # fmt: skip


def tree(folder: Path) -> str:
    """All names and bytes."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def test_a_kill_at_any_step_of_merging_leaves_the_tables_as_they_were(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, prepared = tmp_path / "in", tmp_path / "prepared"
    arrive = arriving(inputs)
    with monkeypatch.context() as patch:
        patch.setattr(compaction, "MERGED_AT_ONCE", 99)
        for piece in range(3):
            arrive(piece)
            add(spark, inputs, prepared)
    judge = Judge(spark)
    before, tables = judge.known(prepared), judge.gold(prepared)

    def merge(out: Path) -> None:
        store = Store(spark, str(out))
        with store.writing():
            compaction.compact(store)

    left = left_by_kills(lambda: merge(prepared), prepared, tmp_path / "left", STEPS)
    states: set[str] = set()
    for out in left:
        if tree(out) in states:  # a step that changed nothing: what follows is known
            continue
        states.add(tree(out))
        assert judge.known(out) == before, out.name
        assert judge.gold(out) == tables, out.name
        merge(out)
        assert judge.known(out) == before, out.name
        commit = Store(spark, str(out)).last_commit()
        assert commit is not None
        assert len(commit["parts"]) == 1, out.name
    assert len(left) > 30  # each table is deleted and written, and there is a commit
    assert len(states) > 12


def test_a_kill_at_any_step_of_publishing_what_was_merged_costs_nothing(
    spark: Any, tmp_path: Path, arrived: Arrived
) -> None:
    """The snapshot, the link, and the deletion of what was merged."""
    out = tmp_path / "out"
    shutil.copytree(arrived.all_but_one, out, symlinks=True)
    judge = Judge(spark)
    tables = [judge.gold(folder) for folder in (out, arrived.all_of_them)]

    def wanted(call: int) -> bool:
        return call < 6 or call % 13 == 6  # from the sixth on, they are deletions

    # From its draft on the batch is complete.
    left = left_by_kills(
        lambda: add(spark, arrived.inputs, out), out, tmp_path / "left", STEPS, since="draft", wanted=wanted
    )
    assert judge.gold(left[0]) == tables[0]
    for folder in left:
        assert judge.gold(folder) in tables, folder.name
        add(spark, arrived.inputs, folder)
        assert judge.gold(folder) == tables[1], folder.name
        store = Store(spark, str(folder))
        assert all(any(Path(each).iterdir()) for each in store.published_batches(stream.QUARANTINE))
    assert int(left[-1].name) > 30
