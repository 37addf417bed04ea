"""The program as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def aiocontroller(
    *arguments: str, code: int = 0, cwd: Path | None = None, timeout_s: float = 200, answer: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end and insist on its exit code; ``answer`` is what is typed."""
    done = subprocess.run(
        [sys.executable, "-m", "aiocontroller", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        input=answer,
        timeout=timeout_s,
    )
    assert done.returncode == code, f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done
