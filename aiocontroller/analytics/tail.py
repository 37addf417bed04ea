"""``--follow``: reads journals while they are written.

Spark's own file source reads a file once and never sees appended data.  This source remembers how many bytes of each
file it has returned, always up to the end of a line, so a partial line waits until it is complete.  A completed segment
is renamed (``_journal-…`` to ``journal-…``); both names are the same file here.

``compaction`` merges batches when there are many; Spark itself keeps the last hundred entries of its checkpoint.

Offsets go into Spark's checkpoint before a batch is read, and ``stream.add`` notes the batch's number in its commit, so
each byte counts once, whichever process is killed and whenever.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery

from aiocontroller.analytics import compaction, stream
from aiocontroller.analytics.journal_reader import journal_records
from aiocontroller.analytics.lacks import JOURNAL_NAME
from aiocontroller.analytics.schema import JOURNAL_SOURCE
from aiocontroller.analytics.store import FOLLOWED, Store, batches_of
from aiocontroller.core.errors import BadInputError

log = logging.getLogger(__name__)

SOURCE: Final = "aiocontroller-journal"
BYTES_AT_ONCE: Final = 64 << 20
"""The limit for all files together in one batch; the next batch continues."""
LINES: Final = "value string, file string, source string, cluster string, process string, start_us long"
_BLOCK: Final = 64 << 10
STARTS: Final = 5
WORKER_LATE: Final = "Python worker failed to connect back"

Step = Callable[[str], None]


def follow(
    spark: SparkSession,
    inputs: Sequence[str],
    out: str,
    step: Step = log.info,
    *,
    every_s: float = 5.0,
    to_the_end_only: bool = False,
) -> Following:
    """Bring ``out`` up to date with the journals below the local folders ``inputs``, and keep it up to date.

    With ``to_the_end_only`` it ends when it has caught up.  Raises ``BadInputError`` for an input that is not a local
    folder.
    """
    for folder in inputs:
        if not Path(folder).is_dir():
            raise BadInputError(f"--follow: found {folder!r}, expected a folder on this machine")
    store = Store(spark, out)
    store.lock()
    try:
        store.refuse_lost()
        commit = store.last_commit()
        if commit is not None:
            store.refuse_damaged(batches_of(commit))
            stream.publish(store, step)  # the process may have been killed between its last commit and the publication
    except BaseException:
        store.unlock()
        raise
    spark.dataSource.register(JournalTail)
    lines = (
        spark.readStream.format(SOURCE).option("folders", json.dumps([str(Path(f).resolve()) for f in inputs])).load()
    )

    def add(batch: DataFrame, number: int) -> None:
        before = store.last_commit() or {"files": {}}
        if before.get("followed", -1) >= number:
            return  # it was committed, but Spark was killed before it noted that
        batch.persist()
        try:
            if not batch.isEmpty():
                kept: dict[str, Any] = {name: before[name] for name in ("files", "prints") if name in before}
                note = {**kept, "lacks": before.get("lacks", []), "followed": number}
                stream.add(store, journal_records(batch), note, step)
                stream.publish(store, step)
                compaction.compact(store, step)
        finally:
            batch.unpersist()

    writer = lines.writeStream.foreachBatch(add).option("checkpointLocation", store.in_run(FOLLOWED))
    timed = (
        writer.trigger(availableNow=True) if to_the_end_only else writer.trigger(processingTime=f"{every_s} seconds")
    )
    return Following(timed.start, store, step)


class Following:
    """A running query; the folder is locked until it ends."""

    def __init__(self, start: Callable[[], StreamingQuery], store: Store, step: Step = log.info) -> None:
        self._start = start
        self._query = start()
        self._store = store
        self._step = step

    def wait(self) -> None:
        """Wait until the query ends by itself or fails; KeyboardInterrupt ends it.

        Spark gives the Python process of a source ten seconds to start, a constant in its code, which a busy machine
        may exceed.  The query is then started again and continues from its checkpoint.
        """
        try:
            for tries_left in reversed(range(STARTS)):
                try:
                    self._query.awaitTermination()
                    return
                except StreamingQueryException as error:
                    if not tries_left or WORKER_LATE not in str(error):
                        raise
                self._step("Spark's Python process did not start within 10 s: starting the query again")
                self._query = self._start()
        finally:
            self._query.stop()
            self._store.unlock()


class JournalTail(DataSource):
    """Lines of journals; the option ``folders`` is a JSON list."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which ``readStream.format`` finds it."""
        return SOURCE

    def schema(self) -> str:
        """Return the columns of ``LINES``: a line, and where it comes from."""
        return LINES

    def streamReader(self, schema: Any) -> JournalTailReader:
        """Return a reader; Spark makes one for each query."""
        return JournalTailReader(self.options)


class Slice(InputPartition):
    """Bytes ``begin`` to ``end`` of a file: whole lines."""

    def __init__(self, path: str, begin: int, end: int) -> None:
        super().__init__((path, begin, end))


class JournalTailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is ``{path: bytes}``, with the names that files have when they are complete."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._folders = [Path(folder) for folder in json.loads(options["folders"])]
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        """Return an empty offset: the first batch begins at the first byte of each file."""
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what is there now, so that the query ends when it has read that."""
        self._target = whole_lines(self._folders)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """Return where the next batch ends: at line ends, at most ``BYTES_AT_ONCE`` bytes after ``start``."""
        there = whole_lines(self._folders) if self._target is None else self._target
        reached, left = dict(start), BYTES_AT_ONCE
        for path in sorted(there):
            begin = reached.get(path, 0)
            if there[path] > begin and left > 0:
                end = there[path] if there[path] - begin <= left else _end_of_line(path, begin, begin + left)
                left -= end - begin
                reached[path] = end
        return reached

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return one slice for each file that has grown, sorted by name."""
        return [Slice(path, start.get(path, 0), end[path]) for path in sorted(end) if end[path] > start.get(path, 0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the slice's lines in a worker process; bytes that are not UTF-8 are replaced."""
        path, begin, end = partition.value
        named = JOURNAL_NAME.fullmatch(os.path.basename(path))
        assert named is not None, path
        node, start = named[1], int(named[3])
        with open_journal(path) as file:
            file.seek(begin)
            data = file.read(end - begin)
        about = (os.path.basename(path), JOURNAL_SOURCE, "default", f"{node}-{start}", start)
        for line in data.decode("utf-8", "replace").removesuffix("\n").split("\n"):
            yield (line, *about)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing, since no data are kept."""

    def stop(self) -> None:
        """Do nothing, since nothing is open."""


def whole_lines(folders: Sequence[Path]) -> dict[str, int]:
    """Return, for each journal below ``folders``, how many of its bytes are complete lines."""
    found: dict[str, int] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*journal-*.jsonl")):
            if JOURNAL_NAME.fullmatch(path.name) is None:
                continue
            try:
                found[str(path.with_name(path.name.removeprefix("_")))] = _last_newline(path)
            except FileNotFoundError:
                pass  # completed and renamed after it was listed: it is found under its new name now or next time
    return found


def open_journal(path: str) -> BinaryIO:
    """Open a journal under its current name, since it may have been renamed."""
    folder, name = os.path.split(path)
    for present in (path, os.path.join(folder, f"_{name}")):
        try:
            return open(present, "rb")
        except FileNotFoundError:
            pass
    return open(path, "rb")


def _last_newline(path: Path) -> int:
    """Return the number of bytes up to and including the last newline."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(0, end - _BLOCK)
            file.seek(begin)
            at = file.read(end - begin).rfind(b"\n")
            if at >= 0:
                return begin + at + 1
            end = begin
    return 0


def _end_of_line(path: str, begin: int, near: int) -> int:
    """Return the end of the last line that ends before ``near``, or of the first line if it is longer."""
    with open_journal(path) as file:
        file.seek(begin)
        data = file.read(near - begin)
        at = data.rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        return near + len(file.readline())
