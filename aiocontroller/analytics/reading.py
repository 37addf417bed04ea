"""Reads files as unpacked streams of bytes, from disks and Hadoop file systems, and detects damage."""

from __future__ import annotations

import bz2
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD_BYTES = 64 << 10
"""How much of a file is read to determine its kind."""
CHUNK_BYTES = 1 << 20
PACKED_CHUNK_BYTES = 4 << 10
"""The most that is lost before damaged data."""
PACKED = (".gz", ".bz2", ".zst")
_FILE = "file:"
_TAR, _TAR_AT = b"ustar", 257
_DAMAGED = (OSError, EOFError, zlib.error, ValueError)
"""ValueError is the base of Arrow's errors."""


class DamagedError(Exception):
    """A packed file cannot be unpacked to its end, or a file cannot be read at all; the message states the reason."""


def is_local(path: str) -> bool:
    """Return whether the path is on a local disk and not on a Hadoop file system."""
    return path.startswith(_FILE) or "://" not in path


def local_name(path: str) -> str:
    """Return the local path: ``file:///a``, ``file:/a`` and ``/a`` are the same file."""
    return re.sub("^/+", "/", path.removeprefix(_FILE)) if path.startswith(_FILE) else path


def is_utf8(path: str) -> bool:
    """Return whether a path, as Python represents it, is UTF-8 in the file system."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def readable(name: str) -> str:
    """Return the name with escapes such as ``\\xff`` for control characters and for bytes that are not UTF-8, which
    tables and pages cannot hold."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return re.sub(r"[\x00-\x1f\x7f]", lambda control: f"\\x{ord(control[0]):02x}", text)


def as_glob(path: str) -> str:
    """Return the Hadoop pattern that matches this path alone."""
    return re.sub(r"([][{}*?\\])", r"\\\1", path)


def is_packed(name: str) -> bool:
    """Return whether the name has an ending of ``PACKED``; the content is not examined."""
    return name.endswith(PACKED)


def unpacked_name(name: str) -> str:
    """Return the name without an ending of ``PACKED``; others stay as they are."""
    return name.removesuffix(next((suffix for suffix in PACKED if name.endswith(suffix)), ""))


@contextmanager
def opened(spark: SparkSession, path: str) -> Iterator[IO[bytes]]:
    """Yield the unpacked content of a file.

    Raises OSError if it cannot be opened.  Damage shows only during reading (``chunks``).
    """
    with open(local_name(path), "rb") if is_local(path) else io.BufferedReader(_HadoopStream(spark, path)) as raw:
        if path.endswith(".gz"):
            yield cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        elif path.endswith(".bz2"):
            yield cast(IO[bytes], bz2.BZ2File(raw))
        elif path.endswith(".zst"):
            import pyarrow

            yield cast(IO[bytes], pyarrow.CompressedInputStream(raw, "zstd"))
        else:
            yield raw


def chunks(spark: SparkSession, path: str) -> Iterator[bytes]:
    """Yield the content in order.  Raises DamagedError after the part that can be read."""
    size = PACKED_CHUNK_BYTES if is_packed(path) else CHUNK_BYTES
    try:
        with opened(spark, path) as file:
            while data := file.read(size):
                yield data
    except _DAMAGED as error:
        raise DamagedError(_why(error)) from None


def head(spark: SparkSession, path: str) -> bytes:
    """Return the first ``HEAD_BYTES``, or what can be unpacked of them.

    Raises DamagedError if nothing can be unpacked, or if the file is a tar archive.
    """
    found = bytearray()
    try:
        with opened(spark, path) as file:
            while len(found) < HEAD_BYTES and (data := file.read(min(4096, HEAD_BYTES - len(found)))):
                found += data
    except _DAMAGED as error:
        if not found:
            raise DamagedError(_why(error)) from None
    if found[_TAR_AT:].startswith(_TAR):  # it would look like a log that begins with an odd line
        raise DamagedError("an archive of files: unpack it")
    return bytes(found)


def begins_with(spark: SparkSession, whole: str, part: str) -> bool:
    """Return whether the content of ``part`` is the beginning of the content of ``whole``."""
    try:
        with opened(spark, whole) as one, opened(spark, part) as other:
            while data := other.read(CHUNK_BYTES):
                if one.read(len(data)) != data:
                    return False
    except _DAMAGED:
        return False
    return True


def last_byte(spark: SparkSession, path: str) -> bytes:
    """Return the last byte of a file that is not packed; none if it is empty or cannot be read."""
    if is_local(path):
        with open(local_name(path), "rb") as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - 1))
            return file.read(1)
    try:
        with _HadoopStream(spark, path) as stream:
            stream.skip_to_last_byte()
            return stream.read(1) or b""
    except OSError:
        return b""


def whole_lines(spark: SparkSession, path: str, to: Path) -> int:
    """Write what can be unpacked, up to the last complete line, and return the number of bytes written."""
    with to.open("wb") as out:
        try:
            for data in chunks(spark, path):
                out.write(data)
        except DamagedError:
            pass
    with to.open("rb+") as written:
        end = written.seek(0, io.SEEK_END)
        while end > 0:
            begin = max(0, end - CHUNK_BYTES)
            written.seek(begin)
            newline = written.read(end - begin).rfind(b"\n")
            if newline >= 0:
                end = begin + newline + 1
                break
            end = begin
        written.truncate(end)
    return end


def _why(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "the packed data are incomplete"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class _HadoopStream(io.RawIOBase):
    def __init__(self, spark: SparkSession, path: str) -> None:
        from py4j.protocol import Py4JJavaError

        self._failed = Py4JJavaError
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        where = jvm.org.apache.hadoop.fs.Path(path)
        try:
            system = where.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
            self._left = int(system.getFileStatus(where).getLen())
            self._stream = system.open(where)
        except Py4JJavaError as error:
            raise OSError(0, _first_line(error)) from None

    def readable(self) -> bool:
        return True

    def skip_to_last_byte(self) -> None:
        if self._left:
            self._stream.seek(self._left - 1)
            self._left = 1

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._left)
        if not size:
            return 0
        try:
            data = bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(self._stream, size))
        except self._failed as error:
            raise OSError(0, _first_line(error)) from None
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _first_line(error: Any) -> str:
    return str(error.java_exception).splitlines()[0]
