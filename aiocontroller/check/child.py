"""Checks the cluster in a process of its own (``python -m``, no command), for a controller that shows the findings.

It reads the controller's pickled ``Config`` from standard input, so that no password appears in arguments or in the
environment.  It prints a JSON object per line: first its progress, last the findings, limited to the first subjects of
each and their number.  It is the first process to be killed when memory runs out, runs at a low priority, and ends
after ``WITHIN_S`` even if its parent is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.check.broker_settings import ask_brokers
from aiocontroller.check.check import CheckReport, examine
from aiocontroller.check.findings import CheckFinding
from aiocontroller.config import Config
from aiocontroller.core.errors import AioControllerError
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.cluster_tree import OnProgress
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.securing import zookeeper_client

WITHIN_S = 120
CONNECTED_WITHIN_S = 10.0
NICE = 10
FINDINGS_SHOWN = 100
SUBJECTS_SHOWN = 20
LONGEST = 500
"""Characters shown of a text: evidence may be a megabyte."""


def summary(report: CheckReport) -> dict[str, Any]:
    """What a page shows of the report."""
    return {
        "controller": report.controller,
        "brokers": len(report.brokers),
        "topics": report.topics,
        "partitions": report.partitions,
        "count": len(report.findings),
        "findings": [_shown(finding) for finding in report.findings[:FINDINGS_SHOWN]],
    }


def _shown(finding: CheckFinding) -> dict[str, Any]:
    return {
        "severity": finding.severity,
        "title": finding.title[:LONGEST],
        "why": finding.why[:LONGEST],
        "consequence": finding.consequence[:LONGEST],
        "remedy": finding.remedy[:LONGEST],
        "count": len(finding.subjects),
        "subjects": [subject[:LONGEST] for subject in finding.subjects[:SUBJECTS_SHOWN]],
        "evidence": [(path[:LONGEST], zxid, content[:LONGEST]) for path, zxid, content in finding.evidence],
    }


async def check(config: Config) -> dict[str, Any]:
    """Read the cluster twice and ask its brokers; AioControllerError, OSError or aiozk's errors if that fails."""
    world = real_world()
    client = zookeeper_client(config, world)
    try:
        await client.start(CONNECTED_WITHIN_S, create_chroot=False)
        found = await examine(
            KafkaZkClient(client), world.clock, progress=progress_printer(), ask=partial(ask_brokers, world, config)
        )
    finally:
        await client.close()
    return summary(found.report)


def progress_printer() -> OnProgress:
    """Return a callback that prints a line for each slice of partitions read; every partition is read twice."""
    before, again = 0, False

    def show(what: str, done: int, total: int) -> None:
        nonlocal before, again
        again = again or done <= before
        before = done
        sys.stdout.buffer.write(msgspec.json.encode({"read": done, "of": total, "again": again}) + b"\n")
        sys.stdout.buffer.flush()

    return show


def main() -> None:
    """Exit code 0 with the findings, 1 with ``{"error": …}``."""
    signal.alarm(WITHIN_S)
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.nice(NICE)
    with contextlib.suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text("1000")
    config = pickle.loads(sys.stdin.buffer.read())
    try:
        answer = asyncio.run(check(config))
    except (AioControllerError, exc.ZKError, OSError) as error:
        notes = getattr(error, "__notes__", ())
        answer = {"error": "; ".join([str(error) or type(error).__name__, *notes])[:LONGEST]}
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.exit("error" in answer)


if __name__ == "__main__":
    main()
