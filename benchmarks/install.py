"""Measures a plain install: its size by distribution, its time, and that of ``aiocontroller --help``.

    scripts/bench install

The wheel of this checkout and the locked distributions that it requires (distribution/plain.txt) are installed into an
environment without pip, compiled to bytecode as pip does it.  Sizes are blocks on the disk, as ``du`` counts them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from rich.table import Table

from benchmarks.controller.figures import wide_console

ROOT = Path(__file__).parents[1]
LOCKED = ROOT / "distribution" / "plain.txt"
MOST_MB, MOST_S = 60, 0.1
"""The goals."""
BLOCK_BYTES = 512
Figures = dict[str, object]


def install(venv: Path, wheel: Path, wheels: Path | None) -> float:
    """Install; return the seconds.  ``wheels``: a folder of the locked wheels; None: pip uses its configured index."""
    source = ["--no-index", "--find-links", str(wheels)] if wheels is not None else []
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(venv / "bin" / "python")]
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    locked = ["--require-hashes", "--only-binary", ":all:", "-r", str(LOCKED)]
    subprocess.run([*pip, "install", "--quiet", *source, *locked], check=True)
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    return time.monotonic() - began


def on_disk(path: Path) -> int:
    """Return the bytes of a file, or of a folder with everything in it."""
    return sum(each.lstat().st_blocks * BLOCK_BYTES for each in (path, *path.rglob("*")))


def by_distribution(venv: Path) -> dict[str, int]:
    """Return name and version -> bytes of the distribution's files, the largest first."""
    (packages,) = venv.glob("lib/python*/site-packages")
    sizes = {
        f"{each.name} {each.version}": sum(
            path.lstat().st_blocks * BLOCK_BYTES
            for file in each.files or ()
            if (path := Path(str(each.locate_file(file)))).exists()
        )
        for each in distributions(path=[str(packages)])
    }
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def helped(venv: Path, runs: int) -> tuple[list[float], list[float]]:
    """Return the elapsed seconds and the processor seconds of each ``--help``; the first run is not counted."""
    passed, worked = [], []
    for _ in range(1 + runs):
        before, began = getrusage(RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([venv / "bin" / "aiocontroller", "--help"], stdout=subprocess.DEVNULL, check=True)
        passed.append(time.monotonic() - began)
        after = getrusage(RUSAGE_CHILDREN)
        worked.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return passed[1:], worked[1:]


def measure(wheels: Path | None, runs: int) -> Figures:
    """Return all figures; the load is the one before the runs of ``--help``."""
    with tempfile.TemporaryDirectory() as folder:
        made, venv = Path(folder, "made"), Path(folder, "venv")
        subprocess.run(
            [sys.executable, ROOT / "scripts" / "_make_wheels.py", made], stdout=subprocess.DEVNULL, check=True
        )
        (wheel,) = made.iterdir()
        took_s = install(venv, wheel, wheels)
        load = os.getloadavg()[0]
        passed, worked = helped(venv, runs)
        return {
            "bytes": on_disk(venv),
            "distributions": by_distribution(venv),
            "install_s": took_s,
            "help_s": passed,
            "help_cpu_s": worked,
            "load": load,
        }


def show(found: Figures) -> None:
    """Print two tables."""
    sizes, total = found["distributions"], found["bytes"]
    assert isinstance(sizes, dict)
    assert isinstance(total, int)
    console = wide_console()
    table = Table(title=f"A plain install: {total / 1e6:.0f} MB (goal {MOST_MB}), {found['install_s']:.0f} s")
    table.add_column("distribution")
    table.add_column("MB", justify="right")
    for name, size in sizes.items():
        table.add_row(name, f"{size / 1e6:.1f}")
    console.print(table)
    table = Table(title=f"aiocontroller --help (goal {MOST_S} s), load {found['load']:.1f}")
    for heading in ("seconds", "median", "least", "most"):
        table.add_column(heading, justify="left" if heading == "seconds" else "right")
    for name, key in (("passed", "help_s"), ("of a processor", "help_cpu_s")):
        took = found[key]
        assert isinstance(took, list)
        table.add_row(name, *(f"{each:.3f}" for each in (statistics.median(took), min(took), max(took))))
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench install", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="of --help; default: 5")
    parser.add_argument("--wheels", type=Path, help="folder of the locked wheels, to install without a network")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    given = parser.parse_args(arguments)
    if given.runs < 1:
        parser.error(f"--runs: {given.runs} is not a positive number")
    if given.wheels is not None and not given.wheels.is_dir():
        parser.error(f"--wheels: {given.wheels} is not a folder")
    try:
        found = measure(given.wheels, given.runs)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(map(str, error.cmd[:6]))} … ended with {error.returncode}; it says why above.")
    print(json.dumps(found)) if given.as_json else show(found)


if __name__ == "__main__":
    main()
