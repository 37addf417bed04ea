"""The branches of core, controller, zookeeper and server that a fixed set of seeds reaches.

``branches.txt`` says which must be reached, and names all that are not, by themselves or by their module, under the
reason why.  A branch that is lost fails, as do a new one that no seed reaches and no line names, and a line that names
nothing: whoever renames a condition renames its marks, so that it stays required.

``REWRITE=1 scripts/test`` on this file writes anew what must be reached, drops lines that name nothing, and puts new
branches below ``NEW``; move each to a reason that is true, or have a seed reach it.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

import pytest

from aiocontroller.lab.simulation.branches import Marker, all_marks

FILE = Path(__file__).with_name("branches.txt")
SEEDS = (
    6,
    8,
    21,
    29,
    36,
    38,
    43,
    46,
    50,
    51,
    57,
    64,
    68,
    71,
    72,
    77,
    81,
    84,
    87,
    92,
    101,
    104,
    105,
    110,
    114,
    119,
    129,
    136,
    141,
    148,
    199,
    235,
    238,
)
OFTEN = 5
"""A branch that so many of the seeds reach must be reached; another change may move the others to other seeds."""
MUST = "must be reached"
SOME = "reached by fewer seeds"
NEW = "new, without a reason"


def read() -> dict[str, list[str]]:
    """Return the marks, or patterns of them, below each heading."""
    found: dict[str, list[str]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = found.setdefault(line.removeprefix("## "), [])
        elif line and not line.startswith("# "):
            heading.append(line)
    return found


def named(mark: str, lines: list[str]) -> bool:
    """A line is a mark, or a pattern of modules."""
    return mark in lines or any(fnmatch(mark.partition(":")[0], line) for line in lines if line.endswith(".py"))


@pytest.mark.timeout(1200)
def test_no_branch_is_lost_and_each_that_is_not_reached_is_named() -> None:
    words = [sys.executable, "-m", "aiocontroller.lab.simulation.branches", *map(str, SEEDS)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout)
    there, baseline = all_marks(), read()
    exist = set(there)  # membership only
    lost = [mark for mark in baseline[MUST] if mark in exist and mark not in counts]
    reasons = [line for heading, lines in baseline.items() if heading not in (MUST, NEW) for line in lines]
    unnamed = [mark for mark in there if mark not in counts and mark not in lost and not named(mark, reasons)]
    if os.environ.get("REWRITE"):
        _rewrite(baseline, counts, there, unnamed)
    assert not lost, "no seed reaches them any more"
    assert not unnamed, f"no seed reaches them: name each in {FILE.name} with a reason"


def _rewrite(baseline: dict[str, list[str]], counts: dict[str, int], there: list[str], unnamed: list[str]) -> None:
    kept = {heading: lines for heading, lines in baseline.items() if heading not in (MUST, SOME, NEW)}
    still = set(there) - counts.keys()  # membership only
    sections = {
        MUST: [mark for mark in there if counts.get(mark, 0) >= OFTEN],
        SOME: [mark for mark in there if 0 < counts.get(mark, 0) < OFTEN],
        **{
            heading: [line for line in lines if line in still or (line.endswith(".py") and not absent([line], there))]
            for heading, lines in kept.items()
        },
        NEW: unnamed,
    }
    text = ["# Branches by whether the seeds of test_branches.py reach them; test_branches.py explains this file."]
    for heading, lines in sections.items():
        text += ["", f"## {heading}", *lines]
    FILE.write_text("\n".join(text) + "\n", encoding="utf-8")


def absent(lines: Iterable[str], marks: Iterable[str]) -> list[str]:
    """Return the lines that are neither a mark nor a pattern of a module that has marks."""
    known = set(marks)
    files = {mark.partition(":")[0] for mark in known}
    return [line for line in lines if line not in known and not any(fnmatch(file, line) for file in files)]


def test_each_line_names_a_mark_or_a_module() -> None:
    lines = [line for heading, lines in read().items() for line in lines]
    assert absent(lines, all_marks()) == [], f"rename or remove them in {FILE.name}"
    assert len(lines) == len(set(lines)), "a line stands there twice"


def test_lines_that_name_nothing_are_found() -> None:
    lines = ["core/a.py:f: if a: yes", "core/a.py:f: if b: yes", "core/*.py", "server/*.py"]
    assert absent(lines, marks_of(SOURCE)) == ["core/a.py:f: if b: yes", "server/*.py"]


SOURCE = """
def f(a):
    if a:
        return 1
    for b in a:
        try:
            g()
        except E:
            pass
"""


def test_a_mark_keeps_its_name_when_lines_move() -> None:
    found = marks_of(SOURCE)
    assert found == [
        "core/a.py:f: if a: yes",
        "core/a.py:f: if a: no",
        "core/a.py:f: for b: body",
        "core/a.py:f: except E: caught",
    ]
    assert marks_of("# more\n" + SOURCE) == found
    assert marks_of(SOURCE + SOURCE)[4] == "core/a.py:f: if a: yes #2"


def marks_of(source: str) -> list[str]:
    marker = Marker("core/a.py")
    marker.visit(ast.parse(source))
    return marker.marks


def test_lines_name_marks_or_modules() -> None:
    lines = ["core/a.py:f: if a: yes", "server/*.py"]
    assert named("core/a.py:f: if a: yes", lines)
    assert named("server/b.py:g: if b: no", lines)
    assert not named("core/a.py:f: if a: no", lines)
