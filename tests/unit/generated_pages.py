"""Runs the scripts that make pages of the documentation from the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script; ``script`` is a file's name in ``scripts``."""
    return subprocess.run(
        [sys.executable, f"scripts/{script}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
