"""Recorded runs small enough to keep: the lines that say something, and the truth of the steps that are kept.

    python -m tests.truth.trimming PLAYED KEPT STEP …

``PLAYED`` is a folder that ``play`` wrote.  What goes: stack traces, settings, and lines that no pattern knows, but for
the last one of each life of a broker.  The folder it ran in becomes ``/kafka``.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from datetime import datetime
from pathlib import Path

from aiocontroller.analytics.kafka_logs import PATTERNS

_RECORD = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] ")
_START = "kafka.Log4jController MBean"
REST_US = 3_000_000


def at_us(line: str) -> int | None:
    found = _RECORD.match(line)
    if found is None:
        return None
    local = datetime.strptime(found.group(1), "%Y-%m-%d %H:%M:%S,%f")  # noqa: DTZ007  (as log4j: local time)
    return int(local.timestamp() * 1_000_000)


def kept(lines: list[str], until_us: int) -> list[str]:
    records = [line for line in lines if (us := at_us(line)) is not None and us <= until_us]
    last = {n - 1 for n, line in enumerate(records) if _START in line} | {len(records) - 1}
    return [line for n, line in enumerate(records) if n in last or any(p.needle in line for p in PATTERNS)]


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(text)


def trim(played: Path, to: Path, steps: list[str]) -> None:
    truth = json.loads((played / "truth.json").read_text())
    truth["steps"] = [step for step in truth["steps"] if step["what"] in steps]
    until_us = truth["steps"][-1]["to_us"]
    truth["deaths"] = [death for death in truth["deaths"] if death["at_us"] <= until_us]
    for name in ("changes", "registrations", "felt", "registered", "controllers"):
        truth[name] = [each for each in truth.get(name, ()) if each[1] <= until_us]
    for name in ("stalls", "cuts"):
        truth[name] = [each for each in truth.get(name, ()) if each["to_us"] <= until_us]
    ended = [each for each in truth.get("controllers_killed", ()) if each["at_us"] <= until_us]
    truth["controllers_killed"] = ended
    truth["complete"] = [each for each in truth.get("complete", ()) if each[0] <= until_us]
    for journal in sorted((played / "logs").glob("*.jsonl")):
        records = [line for line in journal.read_bytes().splitlines(keepends=True)
                   if json.loads(line)["ts"] <= until_us + REST_US]  # fmt: skip
        _write(to / "logs" / f"{journal.name}.gz", b"".join(records))
    for log in sorted((played / "logs").rglob("*.log")):
        name = to / "logs" / log.relative_to(played / "logs")
        text = log.read_text(errors="replace").replace(str(played.resolve()), "/kafka")
        lines = kept(text.splitlines(keepends=True), until_us + REST_US)
        _write(Path(f"{name}.gz"), "".join(lines).encode())
    (to / "truth.json").write_text(json.dumps(truth, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    trim(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
