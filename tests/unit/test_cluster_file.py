"""How a running cluster is found: the lock shows whether it runs, the file has its addresses."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from aiocontroller.cluster_file import (
    CLUSTER_FILE,
    ClusterFile,
    ClusterNotRunningError,
    read_cluster_file,
    write_cluster_file,
)
from aiocontroller.core.errors import BadInputError
from aiocontroller.data_folder import FolderLock

CONTENTS = ClusterFile(4_194_999, "h:1", "h:2,h:3", "http://h:4", "http://127.0.0.1:1", "token", {"zookeeper": 5})


def test_what_is_written_can_be_read_while_the_lock_is_held(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.acquire()
    contents = msgspec.structs.replace(CONTENTS, pid=os.getpid())
    write_cluster_file(tmp_path, contents)
    assert read_cluster_file(tmp_path) == contents
    write_cluster_file(tmp_path, CONTENTS)
    with pytest.raises(ClusterNotRunningError, match="left over from process 4194999, which is gone"):
        read_cluster_file(tmp_path)
    lock.release()


def test_no_cluster_and_one_that_was_killed(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotRunningError, match=r"no cluster runs in .*: start one with scripts/up"):
        read_cluster_file(tmp_path)
    write_cluster_file(tmp_path, CONTENTS)
    with pytest.raises(ClusterNotRunningError, match="left over from process 4194999, which is gone"):
        read_cluster_file(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / CLUSTER_FILE).write_bytes(b'{"zookeeper": "\xdd"}')
    with pytest.raises(BadInputError, match=rf"{CLUSTER_FILE}: found .*utf-8"):
        read_cluster_file(tmp_path)
    (tmp_path / CLUSTER_FILE).write_text('{"pid": "x"}')
    with pytest.raises(BadInputError, match=rf"{CLUSTER_FILE}: found Expected `int`"):
        read_cluster_file(tmp_path)
