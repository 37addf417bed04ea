"""What a process leaves that is killed at any of its steps: one run, whose folder is copied before each of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Step = tuple[type, str]


def left_by_kills(
    work: Callable[[], object],
    folder: Path,
    to: Path,
    steps: Sequence[Step],
    *,
    since: str = "",
    wanted: Callable[[int], bool] = lambda call: True,
) -> list[Path]:
    """Copies of ``folder`` below ``to``, each named after the step that comes next; the last is of the finished work.

    ``steps`` are methods, counted from 1, or from the first that is named ``since``; only those ``wanted`` make a copy.
    """
    call, copies = 0, []

    def copy() -> None:
        copies.append(to / str(call))
        shutil.copytree(folder, copies[-1], symlinks=True)

    def counting(name: str, original: Any) -> Any:
        def step(*arguments: Any) -> Any:
            nonlocal call
            if call or name == since or not since:
                call += 1
                if wanted(call):
                    copy()
            return original(*arguments)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for kind, name in steps:
            patch.setattr(kind, name, counting(name, getattr(kind, name)))
        work()
    call += 1
    copy()
    return copies
