"""Compares the data pipeline's speed with hand-written programs that compute the same figures from the same files.

    scripts/bench pipeline [--inputs logs,long-logs,twelve,1M,10M,100M] [--subjects …] [--runs 5] [--json FILE]

Without options: ``logs``, ``1M`` and ``10M`` by ``duckdb``, ``query`` and ``python``, five times each (``10M`` three
times), then ``1M`` by ``spark-1`` and ``spark-2``, once each.  That takes about twenty minutes.

| subject | what it is |
| --- | --- |
| `duckdb` | `aiocontroller analyze --engine duckdb`: all tables |
| `spark-1`, `spark-2` | the same by Spark on a standalone master with one and two workers, each of one core |
| `local-1`, `local-2` | the same by Spark in one process, with one and two threads |
| `query` | one hand-written query of DuckDB for the figures below, and nothing else |
| `python` | one process that decodes each record by msgspec and keeps the figures in dicts |

Each run is a process of its own, and its start is included; Spark's master and workers start before the clock does,
and are not (their executors are).  The subjects take turns, so that other work on the machine affects all of them; load
averages are printed.  All must find the same figures: for journals, the number of records, closed windows without a
leader, changes of leaders and requests, and the sum over APIs and brokers of the 99th percentile of their times; for
logs, the number of records, windows without a leader and requests, and the total time of controllers' failovers.

The last table gives for elapsed and processor seconds the median, the spread (least to most) and the noise: the median
distance of a run from the median, in percent of it.  A difference between two subjects that is not well above their
noise means nothing.  "a core" is the rate divided by the cores that a subject has, and GB the peak memory of all
processes of a run.

`logs` are twelve logs of three real brokers as they were recorded, 3,303 lines; `long-logs` are 141,000 lines, 23 MB,
made from the same recording (`_broker_logs.py`).

`twelve` are twelve journals, of twelve terms, with 500 to 40,000 records and 40 to 20,000 partitions; a third of them
are packed.

`100M` are 100 million records in packed journals of ten terms, each with 100,000 partitions of its own.  The terms
differ in nothing else, so plain Python computes from the first one what all subjects must find.  It runs only where it
is named, once, by `spark-1` and `spark-2` unless others are named.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import _broker_logs

START_US = 1_700_000_000_000_000
BROKERS = 60
FILE_RECORDS = 330_000
"""About 64 MB, the size at which the journal rotates."""
OTHERS = 4
"""Each election of a partition is followed by this many requests, answers and events, as under a busy controller."""


def journal_lines(records: int, partitions: int, term: int = 1, start_us: int = START_US) -> Iterator[str]:
    """Yield the records of brokers that die and come back, and of the partitions that lose their leader by it.

    ``term`` is the controller's epoch, and the seed; each term has topics of its own.
    """
    chance = random.Random(term)
    leaders = [p % BROKERS for p in range(partitions)]
    epochs, versions = [0] * partitions, [0] * partitions
    by_leader: list[list[int]] = [[p for p in range(partitions) if p % BROKERS == b] for b in range(BROKERS)]
    seq = 0
    now = start_us

    def head(kind: str) -> str:
        nonlocal seq, now
        seq += 1
        now += 40
        return f'{{"v":1,"seq":{seq},"epoch":{term},"node":1,"ts":{now},"kind":"{kind}"'

    yield head("elected") + f',"controller_epoch":{term}}}\n'
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
            where = f',"topic":"topic-{term}-{p // 100}","partition":{p % 100}'
            details = f',"replicas":{r},"controller_epoch":{term}'
            yield (
                head("partition") + where + ',"from_state":"OnlinePartition","to_state":"OfflinePartition"'
                f',"leader":{dead},"leader_epoch":{epochs[p]},"isr":{r}{details},"partition_epoch":{versions[p]}}}\n'
            )
            epochs[p] += 1
            versions[p] += 1
            leaders[p] = stay[n % len(stay)]
            by_leader[leaders[p]].append(p)
            yield (
                head("partition") + where + ',"from_state":"OfflinePartition","to_state":"OnlinePartition"'
                f',"leader":{leaders[p]},"leader_epoch":{epochs[p]},"isr":{stay}{details},"partition_epoch":{versions[p]}'
                ',"detail":"OfflinePartitionLeaderElectionStrategy"}\n'
            )
            versions[p] += 1
            yield (
                head("isr") + where + f',"leader":{leaders[p]},"leader_epoch":{epochs[p]},"isr":{r}{details}'
                f',"partition_epoch":{versions[p]}}}\n'
            )
            for _ in range(OTHERS):
                broker = n % BROKERS
                us = int(chance.expovariate(1 / 900)) + 90
                fields = f',"broker":{broker},"broker_epoch":{broker + 7},"api":"LEADER_AND_ISR","api_version":7'
                yield head("request") + fields + f',"correlation_id":{seq},"partitions":3,"bytes":400,"queue_us":20}}\n'
                yield head("response") + fields + f',"correlation_id":{seq - 1},"bytes":60,"duration_us":{us}}}\n'
                yield (
                    head("event") + ',"event":"LeaderAndIsrResponseReceived","state":"LeaderAndIsrResponseReceived"'
                    f',"queue_us":{us // 7},"processing_us":{us // 3}}}\n'
                )
            if seq >= records:
                return
        now += 5_000_000
        yield head("broker") + f',"broker":{dead},"detail":"added"}}\n'


def segments(records: int, partitions: int) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each of a journal's files."""
    lines = journal_lines(records, partitions)
    for number, written in enumerate(range(0, records, FILE_RECORDS), 1):
        yield number, "".join(itertools.islice(lines, min(FILE_RECORDS, records - written)))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def write_journal(folder: Path, records: int, partitions: int) -> int:
    """Write segments as the service does; return their size in bytes."""
    for number, text in segments(records, partitions):
        (folder / f"journal-1-1-{START_US}-{number:06d}.jsonl").write_text(text)
    return size_of(folder)


TERMS: Final = 10
TERM_US: Final = 10_000_000_000
"""Two terms begin so far apart, and no term lasts as long, so that their times differ in one digit."""
OF_FIRST_TERM: Final = b'"epoch":1,"node":1,"ts":%d' % (START_US // TERM_US)


def write_terms(folder: Path, records: int) -> int:
    """Write the packed journals of ten terms with ``records`` each; return their size in bytes."""

    def write(number: int, text: bytes, term: int) -> None:
        start_us = START_US + (term - 1) * TERM_US
        own = text.replace(OF_FIRST_TERM, b'"epoch":%d,"node":1,"ts":%d' % (term, start_us // TERM_US))
        own = own.replace(b'"controller_epoch":1', b'"controller_epoch":%d' % term)
        own = own.replace(b'"topic":"topic-1-', b'"topic":"topic-%d-' % term)
        name = f"journal-1-{term}-{start_us}-{number:06d}.jsonl.gz"
        (folder / name).write_bytes(gzip.compress(own, 1, mtime=0))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, text in segments(records, records // 100):
            list(pool.map(partial(write, number, text.encode()), range(1, TERMS + 1)))
    return size_of(folder)


def expected_of_terms(folder: Path) -> dict[str, int]:
    """Return the figures of ``write_terms`` from its first term."""
    return _in_python(sorted(folder.glob("journal-1-1-*")), TERMS)


def write_twelve(folder: Path) -> int:
    """Write the journals of a dozen terms; return their size in bytes."""
    chance = random.Random(12)
    for term in range(1, 13):
        start_us = START_US + term * 3_600_000_000
        lines = journal_lines(chance.randrange(500, 40_001), chance.randrange(40, 20_001), term, start_us)
        text = "".join(lines).encode()
        name = f"journal-1-1-{start_us}-000001.jsonl"
        if term % 3 == 0:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text, mtime=0))
        else:
            (folder / name).write_bytes(text)
    return size_of(folder)


INPUTS: Final[dict[str, Callable[[Path], int]]] = {
    "logs": lambda folder: _broker_logs.write_logs(folder, 1),
    "long-logs": lambda folder: _broker_logs.write_logs(folder, 24),
    "twelve": write_twelve,
    "1M": lambda folder: write_journal(folder, 1_000_000, 100_000),
    "10M": lambda folder: write_journal(folder, 10_000_000, 100_000),
    "100M": lambda folder: write_terms(folder, 10_000_000),
}
EXPECTED: Final = {"100M": expected_of_terms}
"""What all subjects must find, where it is known otherwise."""

# -- subjects ----------------------------------------------------------------------------------------------------------

HERE: Final = ("duckdb", "query", "python")
USUAL: Final = (("logs", HERE, 5), ("1M", HERE, 5), ("10M", HERE, 3), ("1M", ("spark-1", "spark-2"), 1))
"""Inputs, subjects and runs without options."""
ON_REQUEST: Final = {"100M": (["spark-1", "spark-2"], 1)}
"""Inputs that run only where they are named, with their subjects and runs unless others are named."""
FIGURES: Final = ("records", "windows", "leader_changes", "requests", "p99_us")


def _has_journals(folder: Path) -> bool:
    return any(folder.glob("journal-*"))


def by_python(folder: Path) -> dict[str, int]:
    """Compute the figures record by record, in dicts."""
    if not _has_journals(folder):
        return _broker_logs.by_python(folder)
    return _in_python(sorted(folder.iterdir()))


def _in_python(files: Iterable[Path], times: int = 1) -> dict[str, int]:
    """Return the figures of these journals and as many others, ``times`` together, that differ in their topics only."""
    import msgspec

    decode = msgspec.json.Decoder().decode
    down: set[tuple[str, int]] = set()
    leaders: dict[tuple[str, int], int] = {}
    took: dict[tuple[str, int], list[int]] = defaultdict(list)
    found, p99_us = dict.fromkeys(FIGURES, 0), 0
    for path in files:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for line in lines:
                record = decode(line)
                found["records"] += 1
                kind = record["kind"]
                if kind in ("partition", "isr"):
                    key = (record["topic"], record["partition"])
                    if record.get("to_state", "OnlinePartition") != "OnlinePartition":
                        down.add(key)
                    elif key in down:
                        down.remove(key)
                        found["windows"] += 1
                    leader = record["leader"]
                    found["leader_changes"] += leader >= 0 and leader != leaders.get(key, leader)
                    leaders[key] = leader
                elif kind == "response":
                    took[record["api"], record["broker"]].append(record["duration_us"])
                elif kind == "request":
                    found["requests"] += 1
    for values in took.values():
        values.sort()
        place = 0.99 * (len(values) * times - 1)
        low = int(place)
        one, next_one = (values[min(at // times, len(values) - 1)] for at in (low, low + 1))
        p99_us += int(one + (place - low) * (next_one - one) + 0.5)
    return {name: count * times for name, count in found.items()} | {"p99_us": p99_us}


QUERY: Final = """
    WITH records AS MATERIALIZED (
        SELECT * FROM read_ndjson('{folder}/*.jsonl*', columns = {{
            seq: 'BIGINT', epoch: 'INTEGER', kind: 'VARCHAR', topic: 'VARCHAR', partition: 'INTEGER',
            to_state: 'VARCHAR', leader: 'INTEGER', api: 'VARCHAR', broker: 'INTEGER', duration_us: 'BIGINT'}})
    ), rows AS (
        SELECT leader, lag(leader) OVER history AS led,
               coalesce(to_state, 'OnlinePartition') <> 'OnlinePartition' AS down, lag(down) OVER history AS was_down
        FROM records WHERE kind IN ('partition', 'isr')
        WINDOW history AS (PARTITION BY topic, partition ORDER BY epoch, seq)
    ), took AS (
        SELECT round(quantile_cont(duration_us, 0.99)) AS p99_us FROM records WHERE kind = 'response'
        GROUP BY api, broker
    )
    SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM rows WHERE was_down AND NOT down),
           (SELECT count(*) FROM rows WHERE leader >= 0 AND leader <> led),
           (SELECT count(*) FROM records WHERE kind = 'request'), (SELECT sum(p99_us)::BIGINT FROM took)"""


def by_query(folder: Path) -> dict[str, int]:
    import duckdb

    query, figures = (QUERY, FIGURES) if _has_journals(folder) else (_broker_logs.QUERY, _broker_logs.FIGURES)
    row = duckdb.connect(config={"threads": os.cpu_count() or 1}).execute(query.format(folder=folder)).fetchone()
    assert row is not None
    return dict(zip(figures, map(int, row), strict=True))


def by_analyze(folder: Path, **how: Any) -> dict[str, int]:
    from aiocontroller.analytics.job import Job, perform

    with tempfile.TemporaryDirectory(prefix="aiocontroller-bench-out-") as out:
        perform(Job((str(folder),), out, **how), lambda words: None)
        found = _figures_of(Path(out))
    return {name: found[name] for name in (FIGURES if _has_journals(folder) else _broker_logs.FIGURES)}


def _figures_of(out: Path) -> dict[str, int]:
    import duckdb

    def one(what: str, table: str, condition: str = "true") -> int:
        found = duckdb.execute(f"SELECT {what} FROM '{out}/{table}' WHERE {condition}").fetchone()
        return int(found[0] or 0) if found else 0

    without_leader = "kind <> 'under_replicated' AND cause NOT IN ('creation', 'deletion') AND end_us IS NOT NULL"
    return {
        "records": one("count(*)", "runs/*/bronze/events/**/*.parquet"),
        "windows": one("count(*)", "gold/windows/*.parquet", without_leader),
        "leader_changes": one("sum(leader_changes)", "gold/churn/*.parquet"),
        "requests": one("sum(count)", "gold/requests/*.parquet"),
        "p99_us": one("sum(p99_us)", "gold/latencies/*.parquet", "what = 'request' AND broker IS NOT NULL"),
        "failovers_ms": one("sum(duration_us) // 1000", "gold/failovers/*.parquet"),
    }


WORKERS: Final = {"spark-1": 1, "spark-2": 2}
CORES: Final = WORKERS | {"local-1": 1, "local-2": 2, "python": 1}
"""Of subjects that do not use all; a Spark master, its workers and the driver need little beside their executors."""
LARGE_BYTES: Final = 1 << 30
"""Spark's processes get more memory for a larger input."""
MASTER: Final = "AIOCONTROLLER_BENCH_MASTER"
SUBJECTS: Final[dict[str, Callable[[Path], dict[str, int]]]] = {
    "duckdb": lambda folder: by_analyze(folder, engine="duckdb"),
    "spark-1": lambda folder: by_analyze(folder, engine="spark", master=os.environ[MASTER]),
    "spark-2": lambda folder: by_analyze(folder, engine="spark", master=os.environ[MASTER]),
    "local-1": lambda folder: by_analyze(folder, engine="spark", master="local[1]"),
    "local-2": lambda folder: by_analyze(folder, engine="spark", master="local[2]"),
    "query": by_query,
    "python": by_python,
}

# -- the run -----------------------------------------------------------------------------------------------------------


class Processors:
    """Processor seconds and peak memory of this process and all its descendants, including Spark's Java and its Python
    workers.  Those workers end when they are idle, and their time is not counted anywhere, so this polls ``/proc``."""

    def __init__(self) -> None:
        self.most_bytes = 0
        self._of: dict[int, float] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.used_s()
            time.sleep(0.5)

    def used_s(self) -> float:
        parents: dict[int, int] = {}
        used: dict[int, float] = {}
        pages: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(stat.parent.name)
            parents[pid], used[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            pages[pid] = int(fields[21])
        held_bytes = 0
        for pid, seconds in used.items():
            above: int | None = pid
            while above is not None and above != os.getpid():
                above = parents.get(above)
            if above is not None:
                self._of[pid] = seconds
                held_bytes += pages[pid] * os.sysconf("SC_PAGE_SIZE")
        self.most_bytes = max(self.most_bytes, held_bytes)
        return sum(list(self._of.values()))


def _waited_s() -> float:
    """Return the processor seconds of descendants that have ended, and were waited for by their parents."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def one_run(subject: str, folder: Path, processors: Processors) -> dict[str, Any]:
    """Run a subject in a process of its own, with a Spark master of its own if it needs one."""
    if subject not in WORKERS:
        return _timed(subject, folder, processors, dict(os.environ))
    from benchmarks import _spark_master

    with tempfile.TemporaryDirectory(prefix="aiocontroller-bench-spark-", ignore_cleanup_errors=True) as own:
        heap, worker = ("4g", "5g") if size_of(folder) > LARGE_BYTES else ("1500m", "2g")
        environment = _spark_master.environment(Path(own), executor_memory=heap, driver_memory=heap)
        with _spark_master.standalone(Path(own), environment, WORKERS[subject], worker) as master:
            return _timed(subject, folder, processors, {**environment, MASTER: master})


def _timed(subject: str, folder: Path, processors: Processors, environment: dict[str, str]) -> dict[str, Any]:
    processors.most_bytes = 0
    before_s, waited_s, started = processors.used_s(), _waited_s(), time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.pipeline", "--one", subject, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    took = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"{subject} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    used = max(processors.used_s() - before_s, _waited_s() - waited_s)  # polling misses most of a short process
    return {
        "s": took, "cpu_s": used, "bytes": processors.most_bytes, "load": os.getloadavg()[0],
        "figures": json.loads(done.stdout.splitlines()[-1]),
    }  # fmt: skip


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def in_words(values: list[float]) -> str:
    """Return the median, the spread and the noise as text."""
    median = statistics.median(values)
    noise = statistics.median(abs(value - median) for value in values) / median if median else 0.0
    return f"{median:7.1f} ({min(values):.1f}–{max(values):.1f}) ±{noise:3.0%}"


def compared(name: str, folder: Path, subjects: list[str], runs: int, processors: Processors) -> dict[str, Any]:
    size = INPUTS[name](folder)
    files = sum(path.is_file() for path in folder.rglob("*"))
    say(f"{name}: {files} files, {size / 1e6:,.0f} MB; {os.cpu_count()} processors")
    of: dict[str, list[dict[str, Any]]] = {subject: [] for subject in subjects}
    for number in range(runs):
        for subject in subjects:
            run = one_run(subject, folder, processors)
            of[subject].append(run)
            times = f"{run['s']:7.1f} s {run['cpu_s']:7.1f} processor s"
            say(f"  {number + 1}/{runs} {subject:<8} {times}, load {run['load']:.0f}")
    figures = [run["figures"] for each in of.values() for run in each]
    if name in EXPECTED:
        figures.insert(0, EXPECTED[name](folder))
    if any(other != figures[0] for other in figures):
        differ = {subject: each[0]["figures"] for subject, each in of.items()}
        raise AssertionError(f"the figures differ: {differ}, expected {figures[0]}")
    say(f"  all found {figures[0]}")
    say(f"  {'':<8} {'clock s':>28} {'processor s':>28} {'records/s':>12} {'a core':>10} {'GB':>5}")
    for subject, each in of.items():
        seconds, used = [run["s"] for run in each], [run["cpu_s"] for run in each]
        most = max(run["bytes"] for run in each) / 1e9
        rate = figures[0]["records"] / statistics.median(seconds)
        a_core = rate / CORES.get(subject, os.cpu_count() or 1)
        say(f"  {subject:<8} {in_words(seconds):>28} {in_words(used):>28} {rate:12,.0f} {a_core:10,.0f} {most:5.1f}")
    return {"input": name, "bytes": size, "figures": figures[0], "runs": of}


def plan(options: argparse.Namespace) -> list[tuple[str, list[str], int]]:
    """Return what to compare: (input, subjects, runs)."""
    if not (options.inputs or options.subjects):
        return [(name, list(subjects), options.runs or runs) for name, subjects, runs in USUAL]
    inputs = options.inputs.split(",") if options.inputs else [name for name in INPUTS if name not in ON_REQUEST]
    given = options.subjects.split(",") if options.subjects else None
    usual = {name: ON_REQUEST.get(name, ([*SUBJECTS], 5)) for name in inputs}
    return [(name, given or subjects, options.runs or runs) for name, (subjects, runs) in usual.items()]


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", help=f"Some of {','.join(INPUTS)}.")
    parser.add_argument("--subjects", help=f"Some of {','.join(SUBJECTS)}.")
    parser.add_argument("--runs", type=int, help="Of each subject on each input.")
    parser.add_argument("--json", type=Path, help="Where all runs are written to.")
    parser.add_argument("--term-records", type=int, help=argparse.SUPPRESS)  # of each term of 100M, to try it
    parser.add_argument("--one", nargs=2, metavar=("SUBJECT", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    options = parsed()
    if options.one:
        say(json.dumps(SUBJECTS[options.one[0]](Path(options.one[1]))))
        return
    if options.term_records:
        INPUTS["100M"] = partial(write_terms, records=options.term_records)
    processors = Processors()
    found = []
    for name, subjects, runs in plan(options):
        folder = Path(tempfile.mkdtemp(prefix="aiocontroller-bench-"))
        try:
            found.append(compared(name, folder, subjects, runs, processors))
        finally:
            shutil.rmtree(folder)
    if options.json:
        options.json.write_text(json.dumps({"processors": os.cpu_count(), "inputs": found}, indent=1))


if __name__ == "__main__":
    main()
