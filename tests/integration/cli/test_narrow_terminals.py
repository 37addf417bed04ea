"""All that people read fits a terminal of 60 and of 80 columns, with every name whole."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from aiocontroller.cli import output
from aiocontroller.cli import overview as on_terminal
from aiocontroller.journal.records import encode_records
from tests.integration.cli.test_broken import broken, cluster, described
from tests.integration.cli.test_incidents import WATCH, of_command, stop_watching
from tests.integration.controller.harness import Cluster, journal_of, until
from tests.unit.cli.test_fitting import too_wide

__all__ = ["cluster"]
LONG = "payments.of-the-whole-world.settled.version-2"
NAMES = ("t-0", "t-1", "u-0", f"{LONG}-0", f"{LONG}-1", "broker", "leader")
COMMANDS = (
    "status",
    WATCH,
    "brokers",
    "topics list --offline",
    "topics list --under-replicated",
    "topics list --under-min-isr",
    "incidents",
    "explain t-0",
    "check",
    "what-if --kill 2",
    "plan --leaders",
)


async def test_every_table_fits_and_keeps_its_names(
    cluster: Cluster, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_terminal, "time", SimpleNamespace(sleep=stop_watching))
    service = await broken(cluster)
    await cluster.create_topic(LONG, {0: [1, 2, 3], 1: [1, 2]})
    await cluster.until_leaders(LONG, [1, 1])
    await until(lambda: len(service.shell.context.table.broken.under_replicated) == 3)
    folder = described(service, zk_connect, tmp_path)
    (folder / f"journal-{service.shell.id}-1-1-000000.jsonl").write_bytes(encode_records(journal_of(service).records))
    for command in COMMANDS:
        monkeypatch.setattr(output, "terminal_width", lambda: None)
        piped = await asyncio.to_thread(of_command, command, folder)
        names = [name for name in NAMES if name in piped]
        assert names, (command, piped)
        for width in (60, 80):
            monkeypatch.setattr(output, "terminal_width", lambda width=width: width)
            shown = await asyncio.to_thread(of_command, command, folder)
            lines = [line for line in shown.split("\n") if not line.startswith('{"version":1')]  # the plan is for tools
            assert too_wide("\n".join(lines), width) == [], command
            assert [name for name in names if name not in shown] == [], command
