"""The file operations of the store, on this machine and on any Hadoop file system.

Names are relative to one folder.  No operation overwrites an existing file.
"""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from aiocontroller.analytics.dataframes import SparkSession

_PARQUET: Final = b"PAR1"
_LEAST_PARQUET: Final = 12
"""The bytes of a Parquet file around its data and its metadata."""


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


class Files(Protocol):
    """What the store needs from a file system."""

    folder: str
    """In the form that Spark accepts."""

    def exists(self, name: str) -> bool:
        """Return whether the name is taken, by a file or a folder."""

    def names(self, name: str = "") -> list[str]:
        """Return the sorted names in a folder; empty if it does not exist.  Raises NotADirectoryError for a file."""

    def sizes(self, name: str) -> dict[str, int]:
        """Return the size in bytes of each file below a folder, by its name within it; empty if it does not exist.

        Names that begin with ``_`` or ``.``, which readers of tables skip, are left out.
        """

    def read(self, name: str) -> str:
        """Return the text of a UTF-8 file.  Raises OSError if it cannot be read."""

    def write_new(self, name: str, text: str) -> None:
        """Create a file atomically.  Raises FileExistsError if it exists."""

    def delete_tree(self, name: str) -> None:
        """Delete a file, or a folder with its content, if it exists.  Links are not followed."""

    def link(self, name: str, target: str) -> None:
        """Make a link point to another folder, atomically, if the file system has links."""

    def target_of(self, name: str) -> str | None:
        """Return a link's target, as given; None if the name is not a link."""

    def is_whole_parquet(self, name: str) -> bool:
        """Return whether a Parquet file was written to its end."""


class LocalFiles:
    """Files below a folder of this machine; the folder need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()
        self.folder = str(self._root)

    def exists(self, name: str) -> bool:
        """Return whether the name is taken, by a dangling link too."""
        return os.path.lexists(self._root / name)

    def names(self, name: str = "") -> list[str]:
        """Return the sorted names, without ``.`` and ``..``; empty if the folder does not exist."""
        try:
            return sorted(os.listdir(self._root / name))
        except FileNotFoundError:
            return []

    def sizes(self, name: str) -> dict[str, int]:
        """Return the size in bytes of each file below a folder; a link counts as its target."""
        top = self._root / name
        found: dict[str, int] = {}
        for folder, below, files in os.walk(top):
            below[:] = sorted(each for each in below if not _is_hidden(each))
            for file in filter(lambda each: not _is_hidden(each), files):
                path = Path(folder, file)
                with suppress(FileNotFoundError):
                    found[str(path.relative_to(top))] = path.stat().st_size
        return found

    def read(self, name: str) -> str:
        """Return the whole text.  Raises FileNotFoundError."""
        return (self._root / name).read_text(encoding="utf-8")

    def write_new(self, name: str, text: str) -> None:
        """Write and sync a draft, then link it to its name, so that it is whole.  Raises FileExistsError."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"_draft-{uuid.uuid4().hex}")
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links
                if path.exists():
                    raise FileExistsError(str(path)) from None
                draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)

    def delete_tree(self, name: str) -> None:
        """Delete a folder as far as possible, or a file or link; does nothing if there is none."""
        path = self._root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def link(self, name: str, target: str) -> None:
        """Point the link to ``target`` in one step, whether it existed or not; the target need not exist."""
        draft = self._root / f"_draft-{uuid.uuid4().hex}"
        draft.symlink_to(target)
        draft.replace(self._root / name)

    def target_of(self, name: str) -> str | None:
        """Return the link's target, as given; None if the name is not a link."""
        path = self._root / name
        return os.readlink(path) if path.is_symlink() else None

    def is_whole_parquet(self, name: str) -> bool:
        """Return whether the file ends like Parquet, with a footer that fits into it; reads 8 bytes."""
        with (self._root / name).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < _LEAST_PARQUET:
                return False
            file.seek(size - 8)
            end = file.read()
            return end[4:] == _PARQUET and int.from_bytes(end[:4], "little") <= size - _LEAST_PARQUET


class HadoopFiles:
    """Files below a folder of any file system that Hadoop knows by its scheme (``hdfs:``, ``s3a:``, …)."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        root = self._path_of(folder)
        self._system = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self.folder = str(self._system.makeQualified(root).toString())

    def _path_of(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _path(self, name: str) -> Any:
        return self._path_of(f"{self.folder}/{name}" if name else self.folder)

    def exists(self, name: str) -> bool:
        """Return whether the name is taken; one call to the JVM and the file system."""
        return bool(self._system.exists(self._path(name)))

    def names(self, name: str = "") -> list[str]:
        """Return the sorted names; empty if the folder does not exist.  Raises NotADirectoryError for a file."""
        path = self._path(name)
        if not self._system.exists(path):
            return []
        if not self._system.getFileStatus(path).isDirectory():
            raise NotADirectoryError(str(path))
        return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def sizes(self, name: str) -> dict[str, int]:
        """Return the size in bytes of each file below a folder; a few calls per thousand files."""
        path = self._path(name)
        if not self._system.exists(path):
            return {}
        above = len(str(self._system.makeQualified(path).toString()).rstrip("/")) + 1
        found: dict[str, int] = {}
        files = self._system.listFiles(path, True)
        while files.hasNext():
            file = files.next()
            below = str(file.getPath().toString())[above:]
            if not any(map(_is_hidden, below.split("/"))):
                found[below] = int(file.getLen())
        return found

    def read(self, name: str) -> str:
        """Return the whole text.  Raises OSError with the JVM's message."""
        from py4j.protocol import Py4JJavaError

        try:
            stream = self._system.open(self._path(name))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise OSError(str(error.java_exception)) from None

    def write_new(self, name: str, text: str) -> None:
        """Create a file by renaming; it appears as a whole, even where that is not atomic.  Raises FileExistsError."""
        path = self._path(name)
        if self._system.exists(path):
            raise FileExistsError(str(path))
        folder, _, base = name.rpartition("/")
        draft = self._path(f"{folder}/_draft-{uuid.uuid4().hex}-{base}" if folder else f"_draft-{uuid.uuid4().hex}")
        stream = self._system.create(draft, False)
        stream.write(bytearray(text.encode()))
        stream.close()
        if not self._system.rename(draft, path):
            self._system.delete(draft, False)
            raise FileExistsError(str(path))

    def delete_tree(self, name: str) -> None:
        """Delete a folder with its content, or a file; not atomic, and does nothing if there is none."""
        self._system.delete(self._path(name), True)

    def link(self, name: str, target: str) -> None:
        """Hadoop file systems have no links."""

    def target_of(self, name: str) -> str | None:
        """Return None, since there are no links."""
        return None

    def is_whole_parquet(self, name: str) -> bool:
        """Return True: a check would cost a request, and a file that has its original length is whole."""
        return True
