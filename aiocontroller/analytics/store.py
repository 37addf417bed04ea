"""The output folder: its content, its owner, and updates that leave it consistent after a crash at any point.

    _aiocontroller.json        the marker with the owner, the layout and the run that made the folder
    snapshots/N.json           what readers see: the run, its gold, and the files of every table with their sizes; the
                               highest N counts
    gold                       a link to the tables of the current snapshot, if the file system has links
    runs/M-ID/                 everything that one run, and later batches added to it, have written:
      _run.json                  marks the folder as ours, and names the run
      bronze/events/batch=N/day=…   typed records
      bronze/quarantine/batch=N     what was not understood
      silver/events/batch=N         one vocabulary, if there are logs; silver/clocks: of the logs' writers
      silver/timeline/batch=N       partitions' histories (leadership)
      silver/facts/NAME/batch=N     the facts from which gold is made
      gold/N-ID/NAME                the gold tables
      _files/N.json                 the files of batch N, with their sizes
      _commits/N.json               batch N is complete: from here on it counts, and the ``parts`` that it names

Rules.
 * Only marked folders are ever deleted: folders below ``runs`` that hold a ``_run.json`` of ours.  In a folder without
   the marker, anything with one of the names above is reported by name and not touched.
 * A batch writes only below its own ``batch=N``, and our readers ignore files that no commit names, so an interrupted
   batch is simply repeated.
 * The last commit names the batches that count, its ``parts``.  A merged batch (``compaction``) replaces others in that
   list.  Their files stay until neither the last commit nor a kept snapshot names them.
 * Lost, truncated and foreign files are found, by name and size, before a batch is added to others and before a table
   is read.
 * No file is overwritten.  All tables change at once, with the snapshot; the previous one stays for readers that still
   use it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

import msgspec

from aiocontroller.analytics.dataframes import SPARK, DataFrame, SparkSession, engine
from aiocontroller.analytics.files import Files, HadoopFiles, LocalFiles
from aiocontroller.analytics.reading import as_glob, is_local, local_name
from aiocontroller.analytics.schema import Table
from aiocontroller.core.errors import BadInputError
from aiocontroller.data_folder import FolderLock

LAYOUT: Final = 9
"""Increases when the folder changes, or the columns of tables to which batches add."""
OWNER: Final = "aiocontroller analyze"
FOLLOWED: Final = "_followed"
"""Spark's checkpoint of ``--follow``, within a run."""
SNAPSHOTS_KEPT: Final = 2

MARKER: Final = "_aiocontroller.json"
_RUN_MARKER: Final = "_run.json"
_COMMITS: Final = "_commits"
_FILES: Final = "_files"
_GOLD: Final = "gold"
OURS: Final = ("runs", "snapshots", _GOLD)
_BATCH: Final = "batch="
_GIVE_ALL_INPUT: Final = "give all input again without --incremental and --follow, which makes all tables anew"
_GIVE_SAME_INPUT: Final = "give the same input again with --incremental, which makes the tables that are read anew"
_OURS_EXPECTED: Final = "expected a file of ours: give another --out"
_RUN_NAME: Final = re.compile(r"[0-9]{6}-[0-9a-f]{8}")
_NUMBERED: Final = re.compile(r"(?:0|[1-9][0-9]{0,17})\.json")


class _LackNeeds(TypedDict):
    file: str
    words: str
    source: str
    cluster: str | None
    node: int | None
    process: str


class _Lack(_LackNeeds, total=False):
    at_end: bool


class _CommitNeeds(TypedDict):
    id: str
    batch: int
    parts: list[tuple[int, int]]
    files: dict[str, int]
    seen: dict[str, dict[str, list[tuple[int, int]]]]


class _Commit(_CommitNeeds, total=False):
    """A complete batch; ``parts`` are (batch, level), ``files`` those that were read, with their sizes, and ``prints``
    their fingerprints."""

    engine: Literal["spark", "duckdb"]
    given: list[str]
    prints: dict[str, str]
    remarks: dict[str, list[str]]
    lacks: list[_Lack]
    followed: int


class _Snapshot(TypedDict):
    """What readers see; ``tables``: table -> its files, with their sizes."""

    run: str
    gold: str
    commit: str
    batches: list[int]
    tables: dict[str, dict[str, int]]


class _Written(TypedDict):
    """The files of a batch, with their sizes, by table."""

    tables: dict[str, dict[str, int]]


class Store:
    """The output folder ``out``, on this machine or on any Hadoop file system; ``lock`` it before writing."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self.spark = spark
        self._files: Files = LocalFiles(Path(local_name(out))) if is_local(out) else HadoopFiles(spark, out)
        self.out = self._files.folder
        self._lock: FolderLock | None = None
        self._check()
        self._run = self._last_run()
        self._next: str | None = None
        """The name of the next run, if the marker has it."""

    # -- ownership -------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise BadInputError if the folder has another owner or another layout."""
        try:
            names = self._files.names()
        except NotADirectoryError:
            raise BadInputError(f"{self.out}: found a file, expected a folder for the tables") from None
        if MARKER in names:
            found = _parsed(self._read(MARKER))
            for folder in ("runs", "snapshots"):
                try:
                    self._files.names(folder)
                except NotADirectoryError:
                    raise BadInputError(f"{self.out}/{folder}: found a file, expected a folder of ours") from None
            if found.get("owner") != OWNER:
                raise BadInputError(f"{self.out}/{MARKER}: found owner {found.get('owner')!r}, expected {OWNER!r}")
            if found.get("layout") != LAYOUT:
                raise BadInputError(
                    f"{self.out}: found tables of layout {found.get('layout')}, expected {LAYOUT}; "
                    "another version wrote them: give another folder by --out"
                )
            return
        if in_the_way := [name for name in names if name in OURS]:
            raise BadInputError(
                f"{self.out}: found {', '.join(in_the_way)}, which this version did not write; nothing was touched: "
                "give another folder by --out"
            )

    def lock(self) -> None:
        """Mark the folder as ours, and keep other processes on this machine from writing to it until ``unlock``.

        Raises FolderInUseError if another process has the lock (there are none on Hadoop file systems), BadInputError
        if the folder cannot be created.
        """
        self._check()
        if isinstance(self._files, LocalFiles):
            try:
                Path(self.out).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise BadInputError(f"{self.out}: cannot be made: {error.strerror}") from None
            lock = FolderLock(Path(self.out), "--out")
            lock.acquire()
            self._lock = lock
        try:
            self._begin_writing()
        except BaseException:
            self.unlock()
            raise

    def _begin_writing(self) -> None:
        if not self._files.exists(MARKER):
            self._next = self._new_run()
            self._files.write_new(MARKER, _marker(self._next))
        self._run = self._last_run()
        present = self.snapshot()
        if present is not None:
            self._point_to(present["gold"])  # its writer may have been killed just before

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the folder; afterwards, delete the run if it has no complete batch."""
        self.lock()
        try:
            yield
        finally:
            try:
                self.abandon()
            finally:
                self.unlock()

    def unlock(self) -> None:
        """Release the lock, if any, so that other processes can write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- runs ------------------------------------------------------------------------------------------------------

    def _last_run(self) -> str | None:
        """Return the latest run with a complete batch."""
        return next((run for run in reversed(self._runs()) if self._files.names(f"runs/{run}/{_COMMITS}")), None)

    def _runs(self) -> list[str]:
        """Return our runs, oldest first."""
        return [
            name
            for name in self._files.names("runs")
            if _RUN_NAME.fullmatch(name)
            and self._files.exists(f"runs/{name}/{_RUN_MARKER}")
            and _is_of(_parsed(self._read(f"runs/{name}/{_RUN_MARKER}")), name)
        ]

    def begin(self) -> None:
        """Begin a new run without batches; readers still see the last snapshot."""
        self._run, self._next = self._next or self._new_run(), None
        self._files.write_new(f"runs/{self._run}/{_RUN_MARKER}", _marker(self._run))

    def _new_run(self) -> str:
        number = max((int(name[:6]) for name in self._files.names("runs") if _RUN_NAME.fullmatch(name)), default=0)
        return f"{number + 1:06d}-{uuid.uuid4().hex[:8]}"

    def abandon(self) -> None:
        """Delete the current run if it has no complete batch."""
        if self._run is not None and self.last_commit() is None:
            self._files.delete_tree(f"runs/{self._run}")
            self._run = self._last_run()

    def in_run(self, name: str) -> str:
        """Return a path within the current run."""
        if self._run is None:
            self.begin()
        return f"{self.out}/runs/{self._run}/{name}"

    # -- batches ---------------------------------------------------------------------------------------------------

    def last_commit(self) -> dict[str, Any] | None:
        """Return the last complete batch's commit; None before the first.  Raises BadInputError if it is not ours."""
        numbers = self._numbers(f"runs/{self._run}/{_COMMITS}") if self._run is not None else []
        if not numbers:
            return None
        name = f"runs/{self._run}/{_COMMITS}/{numbers[-1]}.json"
        found = self._json(name, _Commit)
        counting = batches_of(found)
        if found["batch"] != numbers[-1] or not counting or not all(0 <= each <= found["batch"] for each in counting):
            raise BadInputError(
                f"{self.out}/{name}: found batch {found['batch']} and the parts {counting}, {_OURS_EXPECTED}"
            )
        return found

    def remarks(self) -> dict[str, list[str]]:
        """Return the last batch's remarks: assumption about files, or reason for skipping them -> their names."""
        return dict((self.last_commit() or {}).get("remarks", {}))

    def commit(self, note: dict[str, Any]) -> None:
        """Commit: from now on the batches in ``note["parts"]`` count; ``note["batch"]`` is the new one.

        A new commit gets an ``id``; a note that has one states that the records are those of that commit.
        """
        self._files.delete_tree(f"runs/{self._run}/{_FILES}/{note['batch']}.json")  # of an interrupted attempt
        tables = json.dumps({"tables": self._tables_of(note["batch"], self._parts())}, sort_keys=True)
        self._files.write_new(f"runs/{self._run}/{_FILES}/{note['batch']}.json", tables)
        whole = {"id": uuid.uuid4().hex, **note}
        self._files.write_new(f"runs/{self._run}/{_COMMITS}/{note['batch']}.json", json.dumps(whole, sort_keys=True))

    def write(self, table: str, batch: int, rows: DataFrame) -> None:
        """Replace the table of this batch; parts of other batches stay."""
        rows.write.mode("overwrite").option("partitionOverwriteMode", "static").parquet(self.of_batch(table, batch))

    def append(self, table: str, batch: int, rows: DataFrame, *partitions: str) -> None:
        """Add rows to what the batch already has."""
        rows.write.mode("append").partitionBy(*partitions).parquet(self.of_batch(table, batch))

    def read(self, table: str, batches: Iterable[int], schema: Table | None = None) -> DataFrame:
        """Read a table of these batches; if none of them has it, return an empty table with ``schema``."""
        paths = [self.of_batch(table, batch) for batch in self.having(table, batches)]
        if not paths:
            assert schema is not None, f"{table}: no batch has it"
            return self.spark.createDataFrame([], schema.ddl)
        # Without a schema, Spark uses the first file's.
        return read_parquet(self.spark, paths, schema)

    def having(self, table: str, batches: Iterable[int]) -> list[int]:
        """Return those of the batches that have a part of the table."""
        there = set(self._files.names(f"runs/{self._run}/{table}"))
        return [batch for batch in batches if _batch(batch) in there]

    def _parts(self) -> dict[str, set[str]]:
        """Return the folders of batches in each table of the current run."""
        run = f"runs/{self._run}"
        return {table.removeprefix(f"{run}/"): set(self._files.names(table)) for table in self._tables(run)}

    def _tables_of(self, batch: int, parts: Mapping[str, Collection[str]]) -> dict[str, dict[str, int]]:
        """Return the files of a batch, with their sizes, by table; ``parts`` are those of all batches."""
        part = _batch(batch)
        return {table: self._files.sizes(f"runs/{self._run}/{table}/{part}") for table in parts if part in parts[table]}

    def refuse_lost(self) -> None:
        """Raise BadInputError if readers see a run whose commits are lost: new tables would lack its records."""
        present = self.snapshot()
        if present is not None and (self._run is None or self._run < present["run"]):
            place = f"{self.out}/runs/{present['run']}"
            raise BadInputError(
                f"{place}: found no commit of ours there, expected those of the tables: {_GIVE_ALL_INPUT}"
            )

    def refuse_damaged(self, batches: Iterable[int]) -> None:
        """Raise BadInputError if a file of these batches is lost, has another size, is half written, or was not written
        by this program."""
        parts = self._parts()
        for batch in batches:
            written, there = self._written(str(self._run), batch), self._tables_of(batch, parts)
            for table in sorted({*written, *there}):
                folder = f"runs/{self._run}/{table}/{_batch(batch)}"
                self._refuse(self._damage(folder, written.get(table, {}), there.get(table, {})), _GIVE_ALL_INPUT)

    def _written(self, run: str, batch: int) -> dict[str, dict[str, int]]:
        """Return the files of a batch as they were written, with their sizes, by table."""
        name = f"runs/{run}/{_FILES}/{batch}.json"
        if not self._files.exists(name):
            self._refuse(f"{self.out}/{name}: found no file there, expected one of ours", _GIVE_ALL_INPUT)
        return dict(self._json(name, _Written)["tables"])

    def _refuse(self, problem: str | None, remedy: str) -> None:
        if problem is not None:
            raise BadInputError(f"{problem}: {remedy}")

    def _damage(self, folder: str, written: Mapping[str, int], there: Mapping[str, int]) -> str | None:
        """Return what is wrong with the first changed file of a folder; None if all files are as they were written."""
        for name in sorted({*written, *there}):
            path = f"{folder}/{name}"
            if name not in there:
                return f"{self.out}/{path}: found no file there, expected one of {written[name]:,} bytes"
            if name not in written:
                return f"{self.out}/{path}: found a file that this program did not write, expected none"
            if there[name] != written[name]:
                return f"{self.out}/{path}: found {there[name]:,} bytes, expected {written[name]:,}"
            if name.endswith(".parquet") and not self._files.is_whole_parquet(path):
                return f"{self.out}/{path}: found half a Parquet file, expected a whole one"
        return None

    def of_batch(self, table: str, batch: int) -> str:
        """Return the folder of a batch's part of a table."""
        return self.in_run(f"{table}/{_batch(batch)}")

    def forget(self, table: str, batch: int, partition: str = "") -> None:
        """Delete the batch's part of a table, which an earlier attempt may have left, or one partition of it."""
        self._files.delete_tree(f"runs/{self._run}/{table}/{_batch(batch)}/{partition}".rstrip("/"))

    # -- gold ------------------------------------------------------------------------------------------------------

    def publish(self, tables: Mapping[str, Any], commit: Mapping[str, Any]) -> None:
        """Publish these tables (folders from ``draft``) and the batches in ``commit``, all at once."""
        gold = {folder.rpartition("/")[0] for folder in tables.values()}
        assert len(gold) == 1, "tables of one snapshot are in one folder"
        where = gold.pop().removeprefix(f"{self.out}/")
        manifest = {
            "run": self._run,
            "gold": where,
            "commit": commit["id"],
            "batches": batches_of(commit),
            "tables": {name: self._files.sizes(f"{where}/{name}") for name in sorted(tables)},
        }
        number = (self._numbers("snapshots") or [0])[-1] + 1
        self._files.write_new(f"snapshots/{number}.json", json.dumps(manifest, indent=1))
        self._point_to(where)
        self._clean()

    def draft(self, names: Iterable[str], batch: int) -> dict[str, str]:
        """Return the folders for the gold tables of a new snapshot, by name."""
        folder = self.in_run(f"{_GOLD}/{batch:06d}-{uuid.uuid4().hex[:8]}")
        return {name: f"{folder}/{name}" for name in names}

    def snapshot(self) -> dict[str, Any] | None:
        """Return what readers see; None before the first snapshot."""
        numbers = self._numbers("snapshots")
        return self._snapshot(numbers[-1]) if numbers else None

    def published(self) -> str | None:
        """Return the ``id`` of the commit that gold includes."""
        present = self.snapshot()
        return None if present is None else present["commit"]

    def gold(self, name: str) -> str:
        """Return the folder of a table that readers see.

        Raises BadInputError if there is none yet, or if one of its files is lost, truncated or foreign.
        """
        present = self.snapshot()
        if present is None:
            raise BadInputError(f"{self.out}: it holds no tables")
        self._refuse(self._damage_of_gold(present, name), _GIVE_SAME_INPUT)
        return f"{self.out}/{present['gold']}/{name}"

    def damage_of_gold(self) -> str | None:
        """Return what is wrong with the first changed file that readers see; None if all are as they were written."""
        present = self.snapshot()
        if present is None:
            return None
        problems = (self._damage_of_gold(present, name) for name in sorted(present["tables"]))
        return next((problem for problem in problems if problem is not None), None)

    def _damage_of_gold(self, present: Mapping[str, Any], name: str) -> str | None:
        folder = f"{present['gold']}/{name}"
        return self._damage(folder, present["tables"].get(name, {}), self._files.sizes(folder))

    def published_batches(self, table: str) -> list[str]:
        """Return the folders of a table's batches that the snapshot includes.

        Raises BadInputError if one of their files is lost, truncated or foreign.
        """
        present = self.snapshot()
        if present is None:
            return []
        found = []
        for batch in present["batches"]:
            folder = f"runs/{present['run']}/{table}/{_batch(batch)}"
            written = self._written(present["run"], batch).get(table)
            self._refuse(self._damage(folder, written or {}, self._files.sizes(folder)), _GIVE_ALL_INPUT)
            if written is not None:
                found.append(f"{self.out}/{folder}")
        return found

    def _point_to(self, where: str) -> None:
        if not self._gold_is_foreign():
            self._files.link(_GOLD, where)

    def _gold_is_foreign(self) -> bool:
        return self._files.exists(_GOLD) and not (self._files.target_of(_GOLD) or "").startswith("runs/")

    def gold_in_the_way(self) -> str | None:
        """Return a message if readers cannot find the tables at ``gold`` because something else is there; otherwise
        None."""
        present = self.snapshot()
        if present is None or not self._gold_is_foreign():
            return None
        return (
            f"{self.out}/gold: found what this program did not make, and left it untouched: "
            f"the tables are in {self.out}/{present['gold']}"
        )

    def _clean(self) -> None:
        """Delete what no kept snapshot needs; readers may still use the kept ones."""
        numbers = self._numbers("snapshots")
        kept = [self._snapshot(number) for number in numbers[-SNAPSHOTS_KEPT:]]
        for number in numbers[:-SNAPSHOTS_KEPT]:
            self._files.delete_tree(f"snapshots/{number}.json")
        runs, gold = {each["run"] for each in kept}, {each["gold"] for each in kept}
        for run in self._runs():
            if run not in runs and run < str(self._run):
                self._files.delete_tree(f"runs/{run}")
                continue
            for name in self._files.names(f"runs/{run}/{_GOLD}"):
                if f"runs/{run}/{_GOLD}/{name}" not in gold:
                    self._files.delete_tree(f"runs/{run}/{_GOLD}/{name}")
        self._clean_batches({batch for each in kept if each["run"] == self._run for batch in each["batches"]})

    def _clean_batches(self, seen: set[int]) -> None:
        """Delete commits before the last one, and merged batches that are in no kept snapshot (``seen``)."""
        commit = self.last_commit()
        if commit is None:
            return
        for number in self._numbers(f"runs/{self._run}/{_COMMITS}")[:-1]:
            self._files.delete_tree(f"runs/{self._run}/{_COMMITS}/{number}.json")
        needed = set(map(_batch, seen | set(batches_of(commit))))
        old = set(map(_batch, range(commit["batch"]))) - needed
        for table in self._tables(f"runs/{self._run}"):
            for name in old.intersection(self._files.names(table)):
                self._files.delete_tree(f"{table}/{name}")
        for number in self._numbers(f"runs/{self._run}/{_FILES}"):
            if _batch(number) in old:
                self._files.delete_tree(f"runs/{self._run}/{_FILES}/{number}.json")

    def _tables(self, folder: str) -> Iterator[str]:
        """Yield the folders of tables, which hold batches, below ``folder``."""
        try:
            names = self._files.names(folder)
        except NotADirectoryError:  # a foreign file
            return
        for name in names:
            if name.startswith(_BATCH):
                yield folder
                return
            if not name.startswith("_") and name != _GOLD:
                yield from self._tables(f"{folder}/{name}")

    def _snapshot(self, number: int) -> dict[str, Any]:
        name = f"snapshots/{number}.json"
        found = self._json(name, _Snapshot)
        if not _RUN_NAME.fullmatch(found["run"]) or not found["gold"].startswith(f"runs/{found['run']}/{_GOLD}/"):
            raise BadInputError(
                f"{self.out}/{name}: found run {found['run']!r} with tables in {found['gold']!r}, {_OURS_EXPECTED}"
            )
        return found

    def _json(self, name: str, kind: Any) -> dict[str, Any]:
        """Return an object that this program wrote.  Raises BadInputError for anything else."""
        found = _parsed(self._read(name))
        if not found:
            raise BadInputError(f"{self.out}/{name}: found no JSON object, expected one of ours: give another --out")
        if missing := [key for key in kind.__annotations__ if key in kind.__required_keys__ and key not in found]:
            raise BadInputError(f"{self.out}/{name}: found no {', '.join(missing)} in it, {_OURS_EXPECTED}")
        try:
            msgspec.convert(found, kind)
        except (msgspec.ValidationError, UnicodeError) as error:
            raise BadInputError(
                f"{self.out}/{name}: found a value of another kind ({error}), {_OURS_EXPECTED}"
            ) from None
        return found

    def _read(self, name: str) -> str:
        """Return the text of a file.  Raises BadInputError if it cannot be read."""
        try:
            return self._files.read(name)
        except IsADirectoryError:
            raise BadInputError(f"{self.out}/{name}: found a folder, {_OURS_EXPECTED}") from None
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise BadInputError(f"{self.out}/{name}: cannot be read ({why}), {_OURS_EXPECTED}") from None

    # -- files -----------------------------------------------------------------------------------------------------

    def _numbers(self, folder: str) -> list[int]:
        """Return the numbers of the files named ``N.json``, ascending."""
        names = self._files.names(folder)
        return sorted(int(name[:-5]) for name in names if _NUMBERED.fullmatch(name))


def batches_of(commit: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the batches that a commit includes."""
    return [number for number, _ in commit["parts"]]


def read_parquet(spark: SparkSession, folders: Iterable[str], schema: Table | None = None) -> DataFrame:
    """Read all files below the folders, whose names are taken literally: not as patterns and not as columns."""
    reader = spark.read if schema is None else spark.read.schema(schema.ddl)
    if engine() == SPARK:
        return reader.option("recursiveFileLookup", "true").parquet(*map(as_glob, folders))
    return reader.parquet(*folders)


def _marker(run: str) -> str:
    return json.dumps({"owner": OWNER, "layout": LAYOUT, "run": run})


def _batch(number: int) -> str:
    return f"{_BATCH}{number}"


def _is_of(marker: Mapping[str, Any], run: str) -> bool:
    """Return whether a run's marker is ours and names this run: a copy under another name is not ours."""
    return marker.get("owner") == OWNER and marker.get("run") == run


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
