"""The data pipeline's speed, beside what one would write by hand: records per second on the same input.

    scripts/bench pipeline [--records 10000000] [--partitions 100000] [--log-lines 1000000]

* ``batch``: journals to every gold table; ``incremental``: the same in ``--pieces``, every one published.
* ``logs``: lines of a state-change.log to bronze.
* ``python``: one process that decodes each record by msgspec and keeps windows, churn, latencies and requests in dicts.
* ``pandas``: lines that hold "partition" or "isr" filtered as grep would, the rest of the work in data frames.

The two by hand run on the first ``--by-hand`` records: their rate does not change with more.  A Spark session takes its
five seconds first and once; they are not counted.  Rates of a machine that does other things are what they are:
``cpu`` shows how much of it the run got.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

START_US = 1_700_000_000_000_000
BROKERS = 60
FILE_RECORDS = 330_000
"""About 64 MB, where the journal rotates."""
OTHERS = 4
"""Records of events, requests and answers for each two of partitions: what a journal of a busy controller holds."""


def journal_lines(records: int, partitions: int, seed: int = 1) -> Iterator[str]:
    """Brokers die and come back; of each partition that a death takes the leader from, all that is recorded."""
    chance = random.Random(seed)
    leaders = [p % BROKERS for p in range(partitions)]
    epochs, versions = [0] * partitions, [0] * partitions
    by_leader: list[list[int]] = [[p for p in range(partitions) if p % BROKERS == b] for b in range(BROKERS)]
    seq = 0
    now = START_US

    def head(kind: str) -> str:
        nonlocal seq, now
        seq += 1
        now += 40
        return f'{{"v":1,"seq":{seq},"epoch":1,"node":1,"ts":{now},"kind":"{kind}"'

    yield head("elected") + ',"controller_epoch":1}\n'
    yield (
        head("loaded") + f',"partitions":{partitions},"brokers":{list(range(BROKERS))},"count":{partitions // 100}}}\n'
    )
    while seq < records:
        dead = chance.randrange(BROKERS)
        now += 1_000_000
        yield head("broker") + f',"broker":{dead},"detail":"dead"}}\n'
        moved, by_leader[dead] = by_leader[dead], []
        for n, p in enumerate(moved):
            r = [p % BROKERS, (p + 1) % BROKERS, (p + 2) % BROKERS]
            stay = [b for b in r if b != dead] or r
            where = f',"topic":"topic-{p // 100}","partition":{p % 100}'
            told = f',"replicas":{r},"controller_epoch":1'
            yield (
                head("partition") + where + ',"from_state":"OnlinePartition","to_state":"OfflinePartition"'
                f',"leader":{dead},"leader_epoch":{epochs[p]},"isr":{r}{told},"partition_epoch":{versions[p]}}}\n'
            )
            epochs[p] += 1
            versions[p] += 1
            leaders[p] = stay[n % len(stay)]
            by_leader[leaders[p]].append(p)
            yield (
                head("partition") + where + ',"from_state":"OfflinePartition","to_state":"OnlinePartition"'
                f',"leader":{leaders[p]},"leader_epoch":{epochs[p]},"isr":{stay}{told},"partition_epoch":{versions[p]}'
                ',"detail":"OfflinePartitionLeaderElectionStrategy"}\n'
            )
            versions[p] += 1
            yield (
                head("isr") + where + f',"leader":{leaders[p]},"leader_epoch":{epochs[p]},"isr":{r}{told}'
                f',"partition_epoch":{versions[p]}}}\n'
            )
            for _ in range(OTHERS):
                broker = n % BROKERS
                us = int(chance.expovariate(1 / 900)) + 90
                said = f',"broker":{broker},"broker_epoch":{broker + 7},"api":"LEADER_AND_ISR","api_version":7'
                yield head("request") + said + f',"correlation_id":{seq},"partitions":3,"bytes":400,"queue_us":20}}\n'
                yield head("response") + said + f',"correlation_id":{seq - 1},"bytes":60,"duration_us":{us}}}\n'
                yield (
                    head("event") + ',"event":"LeaderAndIsrResponseReceived","state":"LeaderAndIsrResponseReceived"'
                    f',"queue_us":{us // 7},"processing_us":{us // 3}}}\n'
                )
            if seq >= records:
                return
        now += 5_000_000
        yield head("broker") + f',"broker":{dead},"detail":"added"}}\n'


def write_journal(folder: Path, records: int, partitions: int) -> int:
    """Segments as the service writes them; returns their bytes."""
    lines = journal_lines(records, partitions)
    size = number = written = 0
    while written < records:
        number += 1
        text = "".join(line for _, line in zip(range(min(FILE_RECORDS, records - written)), lines, strict=False))
        written += min(FILE_RECORDS, records - written)
        path = folder / f"journal-1-1-{START_US}-{number:06d}.jsonl"
        path.write_text(text)
        size += path.stat().st_size
    return size


def write_log(path: Path, lines: int) -> int:
    with path.open("w") as file:
        for n in range(lines):
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_700_000_000 + n // 1000))
            file.write(
                f"[{at},{n % 1000:03d}] INFO [Controller id=1 epoch=3] Changed partition topic-{n % 900}-{n % 7} from "
                "OfflinePartition to OnlinePartition with state LeaderAndIsr(leader=1, leaderEpoch=4, "
                "isr=List(1, 2, 3), leaderRecoveryState=RECOVERED, partitionEpoch=8) (state.change.logger)\n"
            )
    return path.stat().st_size


# -- by hand -----------------------------------------------------------------------------------------------------------


def by_python(files: list[Path], most: int) -> int:
    """Windows, churn, latencies and requests in dicts; returns the records."""
    decode = msgspec.json.Decoder().decode
    windows: list[tuple[Any, ...]] = []
    down: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], tuple[int, list[int]]] = {}
    churn: dict[tuple[str, int], int] = defaultdict(int)
    took: dict[tuple[str, Any], list[int]] = defaultdict(list)
    requests: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    records = 0
    for path in files:
        with path.open("rb") as lines:
            for line in lines:
                record = decode(line)
                records += 1
                kind = record["kind"]
                if kind in ("partition", "isr"):
                    key = (record["topic"], record["partition"])
                    state = record.get("to_state", "OnlinePartition")
                    if state != "OnlinePartition":
                        down.setdefault(key, record["ts"])
                    elif key in down:
                        windows.append((*key, down.pop(key), record["ts"]))
                    now = (record["leader"], record["isr"])
                    if key in last and last[key] != now:
                        churn[record["topic"], record["leader"]] += 1
                    last[key] = now
                elif kind == "event":
                    took["queue", record["event"]].append(record["queue_us"])
                    took["processing", record["event"]].append(record["processing_us"])
                elif kind == "response":
                    took[record["api"], record["broker"]].append(record["duration_us"])
                elif kind == "request":
                    count = requests[record["broker"], record["api"]]
                    count[0] += 1
                    count[1] += record["partitions"]
                    count[2] += record["bytes"]
                if records == most:
                    break
        if records == most:
            break
    for values in took.values():
        values.sort()
        [values[int(q * (len(values) - 1))] for q in (0.5, 0.9, 0.99, 0.999)]
    return records


def by_pandas(files: list[Path], most: int) -> int:
    """grep for the partitions' lines; pandas for windows and churn alone."""
    import pandas as pd

    wanted = re.compile(rb'"kind":"(partition|isr)"')
    records = 0
    frames = []
    for path in files:
        lines = path.read_bytes().splitlines()[: most - records]
        records += len(lines)
        frames.append(pd.read_json(io.BytesIO(b"\n".join(line for line in lines if wanted.search(line))), lines=True))
        if records >= most:
            break
    table = pd.concat(frames).sort_values(["topic", "partition", "epoch", "seq"])
    partitions = table.groupby(["topic", "partition"])
    down = table["to_state"].eq("OfflinePartition")
    ended = partitions["to_state"].shift().eq("OfflinePartition") & ~down
    (table["ts"] - partitions["ts"].shift())[ended].sum()
    (table["leader"] != partitions["leader"].shift()).groupby(table["topic"]).sum()
    return records


# -- the run -----------------------------------------------------------------------------------------------------------


class Processors:
    """Seconds of processors that this process and all its descendants took, Spark's Java and its Python workers among
    them.  These end when they are idle, and nobody counts the time of theirs: so we look every now and then."""

    def __init__(self) -> None:
        self._of: dict[int, float] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.used_s()
            time.sleep(0.5)

    def used_s(self) -> float:
        parents: dict[int, int] = {}
        used: dict[int, float] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(stat.parent.name)
            parents[pid], used[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for pid, seconds in used.items():
            above: int | None = pid
            while above is not None and above != os.getpid():
                above = parents.get(above)
            if above is not None:
                self._of[pid] = seconds
        return sum(list(self._of.values()))


def timed(name: str, work: Callable[[], int], rows: list[dict[str, Any]], processors: Processors) -> None:
    started, before_s = time.perf_counter(), processors.used_s()
    records = work()
    took, used = time.perf_counter() - started, processors.used_s() - before_s
    rows.append({"what": name, "records": records, "s": took, "cpu_s": used, "per_s": records / took})
    print(f"{name:<12} {records:>12,} {took:>9.1f} s {used:>9.1f} s cpu {records / took:>12,.0f} /s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--log-lines", type=int, default=1_000_000)
    parser.add_argument("--by-hand", type=int, default=1_000_000)
    parser.add_argument("--pieces", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--only", default="batch,incremental,logs,python,pandas", help="Some of these, by commas.")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="aiocontroller-bench-"))
    try:
        rows = run(options, folder)
    finally:
        shutil.rmtree(folder)
    if options.json:
        options.json.write_text(json.dumps({"cpus": os.cpu_count(), "rows": rows}, indent=1))


def run(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    from aiocontroller.analytics import batch, bronze, summary
    from aiocontroller.analytics.session import QUICK_COMPILER_BELOW_BYTES, spark_session
    from aiocontroller.analytics.sources import find_files

    only = options.only.split(",")
    journals, logs = folder / "journals", folder / "logs"
    journals.mkdir()
    logs.mkdir()
    started = time.perf_counter()
    size = write_journal(journals, options.records, options.partitions)
    files = sorted(journals.iterdir())
    took = time.perf_counter() - started
    print(f"{options.records:,} records, {size / 1e6:,.0f} MB, {took:.0f} s to write; {os.cpu_count()} cpus")
    rows: list[dict[str, Any]] = []
    processors = Processors()
    by_hand = min(options.by_hand, options.records)
    if "python" in only:
        timed("python", lambda: by_python(files, by_hand), rows, processors)
    if "pandas" in only:
        timed("pandas", lambda: by_pandas(files, by_hand), rows, processors)
    spark = spark_session(options.master, app_name="benchmark", for_little=size < QUICK_COMPILER_BELOW_BYTES)
    spark.range(10).count()

    def all_at_once() -> int:
        batch.run(
            spark,
            [str(journals)],
            str(folder / "out"),
            lambda step: print(f"  {time.perf_counter():.0f} {step}", file=sys.stderr),
        )
        return int(summary.summarise(spark, str(folder / "out"))["records"])

    def in_pieces() -> int:
        arriving = folder / "arriving"
        arriving.mkdir()
        for piece in range(options.pieces):
            for path in files[piece :: options.pieces]:
                path.rename(arriving / path.name)
            batch.run_incremental(spark, [str(arriving)], str(folder / "pieces"))
        return int(summary.summarise(spark, str(folder / "pieces"))["records"])

    def log_lines() -> int:
        write_log(logs / "state-change.log", options.log_lines)
        found = find_files(spark, [str(logs)]).files
        # As the pipeline does: who takes the accepted ones before they are written has the lines parsed twice.
        bronze.read(spark, found).write.parquet(str(folder / "bronze"))
        return int(bronze.accepted(spark.read.parquet(str(folder / "bronze"))).count())

    for name, work in (("batch", all_at_once), ("logs", log_lines), ("incremental", in_pieces)):
        if name in only:
            timed(name, work, rows, processors)
    spark.stop()
    return rows


if __name__ == "__main__":
    main()
