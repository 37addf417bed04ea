"""Podman, as the test of the image uses it: with storage of its own in memory, without a network or a base image.

The base image is empty, and this machine's /usr and Python are mounted in their places, to be read only.  Needs root.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

PYTHON = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
BASE = "localhost/base"
IMAGE = "localhost/aiocontroller"


def here() -> list[str]:
    """Options of builds and runs: what the base image would have, and limits.

    By default podman asks for higher limits, which root may not set everywhere.
    """
    folders = [Path(each) for each in ("/usr", "/bin", "/sbin", "/lib", "/lib64") if Path(each).is_dir()]
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        folders.append(Path(sys.base_prefix))
    volumes = [word for each in folders for word in ("--volume", f"{each}:{each}:ro")]
    return [*volumes, "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]


class Engine:
    """Its images and containers are below ``folder``, until ``leave``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.command = ["podman", "--root", str(folder / "root"), "--runroot", str(folder / "run")]

    def missing(self) -> str | None:
        """Why no container runs here; None if one does, with the first runtime that can run it."""
        if os.geteuid() != 0:
            return "not root"
        if shutil.which("podman") is None:
            return "no podman on PATH"
        mount = ["mount", "-t", "tmpfs", "none", str(self._folder)]  # a disk takes minutes
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return "no tmpfs can be mounted"
        nothing = self._folder / "nothing.tar"
        nothing.write_bytes(_empty_tar())
        change = f"ENV PATH={PYTHON.parent}:/usr/bin:/bin"
        tried = self.does("import", "--quiet", "--change", change, str(nothing), BASE)
        if tried.returncode != 0:
            return f"podman imports nothing: {tried.stderr.strip()}"
        plain = list(self.command)
        for runtime in filter(shutil.which, ("crun", "runc")):
            self.command = [*plain, "--runtime", runtime]
            tried = self.does("run", "--rm", "--network", "none", *here(), BASE, "true")
            if tried.returncode == 0:
                return None
        return f"podman runs no container: {tried.stderr.strip()}"

    def does(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Carry out a command of podman."""
        environment = {**os.environ, "TMPDIR": str(self._folder)}
        return subprocess.run(
            [*self.command, *words], capture_output=True, text=True, check=False, timeout=500, env=environment
        )

    def leave(self) -> None:
        """Remove all that there is, and what is mounted for it."""
        if not self._folder.is_mount():
            return
        self.does("rm", "--all", "--force", "--time", "0")
        deadline = time.monotonic() + 60
        while self._works() and time.monotonic() < deadline:
            time.sleep(0.05)
        subprocess.run(["umount", "--recursive", str(self._folder)], check=True)

    def _works(self) -> bool:
        """Whether a process works here: what watches a container cleans up after it."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{self._folder}/" in (process / "cmdline").read_text(errors="replace"):
                    return True
        return False


def _empty_tar() -> bytes:
    written = io.BytesIO()
    tarfile.open(fileobj=written, mode="w").close()
    return written.getvalue()
