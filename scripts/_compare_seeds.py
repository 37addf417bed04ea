"""Simulates the same seeds with two commits and compares their digests: a refactoring must not change any.

A digest covers every journal record and every znode write of a run.  Where two differ, the first differing records are
printed.  Results are cached by commit in .cache/seeds, so each commit is simulated once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "seeds"

PRINT_JOURNALS = """
import logging, sys
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.simulation.simulation import simulate
content = MemoryJournal.content
def printed(journal):
    sys.stdout.buffer.write(content(journal))
    return content(journal)
MemoryJournal.content = printed
logging.getLogger().addHandler(logging.NullHandler())
simulate(int(sys.argv[1]))
"""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def check_out(commit: str, folder: Path) -> Path:
    """Extract a commit's package; ``git archive`` leaves no trace in the repository."""
    archive = subprocess.run(["git", "archive", commit, "aiocontroller"], cwd=ROOT, check=True, capture_output=True)
    checkout = folder / commit[:12]
    checkout.mkdir()
    subprocess.run(["tar", "-x", "-C", str(checkout)], input=archive.stdout, check=True)
    return checkout


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run Python with the checkout's package instead of the installed one."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=checkout, env=environment, check=False, stdout=subprocess.PIPE
    )


def digests(checkout: Path, results: Path, first: int, seeds: int, jobs: int) -> dict[int, str]:
    """Simulate the seeds that are not among the results yet; return seed -> digest."""
    results.parent.mkdir(parents=True, exist_ok=True)
    options = ("--from", str(first), "--seeds", str(seeds), "--jobs", str(jobs), "--results", str(results))
    run(checkout, "-m", "aiocontroller", "simulate", *options)
    lines = results.read_text().splitlines()[1:]
    reports = [json.loads(line) for line in lines]
    found = {report["seed"]: report["digest"] for report in reports if first <= report["seed"] < first + seeds}
    if len(found) < seeds or not all(found.values()):
        raise SystemExit(f"{checkout.name}: found results of {len(found)} seeds, expected {seeds}: {results}")
    return found


def first_difference(before: bytes, after: bytes) -> Iterator[str]:
    """Yield the record before the first difference, and the two that differ."""
    previous = ""
    for old, new in zip_longest(before.decode().splitlines(), after.decode().splitlines(), fillvalue="(no record)"):
        if old != new:
            yield f"    both:   {previous[:300]}"
            yield f"    before: {old[:300]}"
            yield f"    after:  {new[:300]}"
            return
        previous = old
    yield "    the journals are the same: only writes to znodes differ"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", help="another commit; without it, the files of this checkout")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seeds", type=int, default=100, help="their number (100)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")
    parser.add_argument("--show", type=int, default=3, help="seeds whose first difference is printed (3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, found, checkouts = Path(temporary), [], []
        for name in (options.before, options.after):
            commit = git("rev-parse", "--verify", f"{name}^{{commit}}") if name else ""
            checkouts.append(ROOT if not commit else check_out(commit, folder))
            kept = CACHE / f"{commit[:12]}-{options.first}" if commit else folder / "results"
            found.append(digests(checkouts[-1], kept, options.first, options.seeds, options.jobs))
            folder = Path(tempfile.mkdtemp(dir=temporary))
        before, after = found
        different = sorted(seed for seed in before if before[seed] != after[seed])
        print(f"{len(before)} seeds compared, {len(different)} differ: {different[:20]}")
        for seed in different[: options.show]:
            print(f"  seed {seed}:")
            journals = [run(checkout, "-c", PRINT_JOURNALS, str(seed)).stdout for checkout in checkouts]
            print(*first_difference(*journals), sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
