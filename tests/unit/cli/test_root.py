"""What the list of commands costs: it is on the way to every command."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASK = """
import sys
sys.argv = ["aiocontroller", {argument!r}]
from aiocontroller.cli import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""
HEAVY = {
    "asyncio",
    "logging",
    "json",
    "ssl",
    "socket",
    "msgspec",
    "anyio",
    "aiohttp",
    "numpy",
    "uvloop",
    "kio",
    "aiozk",
}


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_imports_nothing_but_click_and_the_table(argument: str) -> None:
    """A tenth of a second is click's own; each of these would add to it."""
    asked = subprocess.run(
        [sys.executable, "-S", "-c", ASK.format(argument=argument)],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    imported = set(asked.stderr.split())
    ours = {name for name in imported if name.startswith("aiocontroller.")}
    assert ours == {f"aiocontroller.{name}" for name in ("cli", "cli.root", "cli.extras", "core", "core.errors")}
    if argument == "--help":
        assert imported & HEAVY == set()
