"""Make .venv in the checkout: `_make_env.py ROOT run|dev STAMP`.  Standard library only; called by scripts/_env.

One process at a time does this (the lock dies with its holder), all packages are checked by the lock files' hashes, and
the stamp is written last, so that an interrupted run is simply repeated.  Packages that come as source are built with
the locked setuptools, not with whatever is newest that day.
"""

from __future__ import annotations

import collections
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path


def say(text: str) -> None:
    print(text, flush=True)


def pip(venv: Path, what: str, *arguments: str) -> None:
    """Run pip and show that it is alive; print its own output only if it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET")}
    environment["PIP_USER"] = "0"
    command = [str(venv / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    started = shown_s = time.monotonic()
    say(f"  {what} …")
    process = subprocess.Popen(
        [*command, "--progress-bar", "off", *arguments],
        env=environment,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    tail: collections.deque[str] = collections.deque(maxlen=30)
    assert process.stdout is not None
    for line in process.stdout:
        tail.append(line.rstrip())
        if time.monotonic() - shown_s > 5 and line.strip():
            shown_s = time.monotonic()
            say(f"    {shown_s - started:.0f} s: {line.strip()[:100]}")
    if process.wait() != 0:
        say("\n".join(tail))
        sys.exit(f"{what}: pip ended with {process.returncode}. Its last lines are above; the next run tries again.")


def make(root: Path, kind: str, stamp: str, venv: Path) -> None:
    made_for = venv / f".made-for-{kind}"
    for enough in (made_for, venv / ".made-for-dev"):
        if enough.exists() and enough.read_text() == stamp + "\n":
            return  # another process made it while this one waited for the lock
    started = time.monotonic()
    say(f"Making the environment for '{kind}' in {venv} (once; a minute or two, mostly download)")
    old_home = venv / ".made-at"
    moved = not old_home.exists() or old_home.read_text() != str(root)
    if (moved and any(venv.glob(".made-for-*"))) or not (venv / "bin/python").exists():
        for entry in venv.iterdir():
            if entry.name != ".lock":
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        say(f"  Python {sys.version.split()[0]}")
        if subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False).returncode != 0:
            sys.exit(f"{sys.executable} could not make an environment in {venv}; it says why above.")
    old_home.write_text(str(root))
    for stale in venv.glob(".made-for-*"):
        stale.unlink()
    locked = root / "requirements"
    pip(venv, "what builds packages", "--require-hashes", "-r", str(locked / "build.txt"))
    pip(venv, "the locked packages", "--require-hashes", "--no-build-isolation", "-r", str(locked / f"{kind}.txt"))
    pip(venv, "this checkout", "--no-deps", "--no-build-isolation", "-e", str(root))
    made_for.write_text(stamp + "\n")
    say(f"  done in {time.monotonic() - started:.0f} s")


def main() -> None:
    root, kind, stamp = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    venv = root / ".venv"
    try:
        make_alone(root, kind, stamp, venv)
    except OSError as error:
        where = error.filename or venv
        sys.exit(f"The environment cannot be made: {where}: {error.strerror}. The checkout {root} must be writable.")


def make_alone(root: Path, kind: str, stamp: str, venv: Path) -> None:
    venv.mkdir(exist_ok=True)
    with open(venv / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Another process is making the environment; waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        make(root, kind, stamp, venv)


if __name__ == "__main__":
    main()
