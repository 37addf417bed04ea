"""Only one process at a time has a folder, and the lock names it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aiocontroller.data_folder import LOCK_FILE, FolderInUseError, FolderLock, holder_of, make_private_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_second_process_is_refused_with_the_owner_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    lock = FolderLock(folder)
    assert holder_of(folder) is None
    lock.acquire()
    assert holder_of(folder) == os.getpid()
    with pytest.raises(FolderInUseError, match=rf"process {os.getpid()} has the folder {folder} already: stop it, or"):
        FolderLock(folder).acquire()
    assert (mode(tmp_path / "new"), mode(folder), mode(folder / LOCK_FILE)) == (0o700, 0o700, 0o600)
    lock.release()
    lock.release()
    assert list(folder.iterdir()) == []
    again = FolderLock(folder)
    again.acquire()
    again.release()


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from aiocontroller.data_folder import FolderLock\n"
        "FolderLock(pathlib.Path(sys.argv[1])).acquire()\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert holder_of(tmp_path) == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert (tmp_path / LOCK_FILE).exists()
    assert holder_of(tmp_path) is None
    lock = FolderLock(tmp_path)
    lock.acquire()
    lock.release()


def test_a_folder_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path)
    assert mode(tmp_path) == 0o755
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "file")
