"""What silver makes of logs against the truth: a simulated journal as logs of each release, by clocks that are off.

Prints what ``docs/pipeline.md`` publishes (``pytest -s``).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from aiocontroller.analytics import schema, silver, stream
from aiocontroller.analytics.clocks import ASSUMED_FASTEST_US, offsets
from aiocontroller.analytics.clocks import clocks as clocks_of
from aiocontroller.analytics.dataframes import F
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.sources import find_files
from aiocontroller.analytics.store import Store
from aiocontroller.journal.records import Record, encode_records
from aiocontroller.lab.scenarios.scenario import read_scenario
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.lab.virtual_loop import run
from tests.integration.analytics.kafka_log_writer import VERSIONS, LogWriter

HISTORY = Path(__file__).with_name("truth.txt")
OFFSETS_US = {1: -2_500_000, 2: 700_000, 3: 90_000, 4: 0, 1_000_001: 40_000, 1_000_002: -3_000_000}
ZONES = {1: "Europe/Berlin", 1_000_001: "Asia/Kolkata"}


class Down(NamedTuple):
    topic: str
    partition: int
    start_us: int
    end_us: int
    error_us: int


def windows(rows: Iterable[Any]) -> list[Down]:
    """When there was no leader, by the records in order: the plain model."""
    since: dict[tuple[str, int], tuple[int, int] | None] = defaultdict(lambda: None)
    found = []
    for r in rows:
        key = (r["topic"], r["partition"])
        up = r["to_state"] in (None, "OnlinePartition") and r["leader"] is not None and r["leader"] >= 0
        down = not up and r["to_state"] != "NonExistentPartition"
        began = since[key]
        if down and began is None:
            since[key] = (r["ts_us"], r["ts_error_us"])
        elif not down and began is not None:
            found.append(Down(*key, began[0], r["ts_us"], began[1] + r["ts_error_us"]))
            since[key] = None
    return sorted(found)


def simulated() -> list[list[Record]]:
    simulation = Simulation(read_scenario(HISTORY))
    run(simulation.run())
    return [journal.records for journal in simulation.journals if journal.records]


def logs_of_each_release(journals: list[list[Record]], folder: Path) -> list[dict[str, Any]]:
    """Written below ``folder``, each release a cluster of its own; the manifest's entries."""
    entries: list[dict[str, Any]] = [{"glob": f"*broker-{node}/*", "time_zone": zone} for node, zone in ZONES.items()]
    for version in VERSIONS:
        writer = LogWriter(version, OFFSETS_US, ZONES)
        for journal in journals:
            writer.add(journal)
        writer.write(folder / version)
        entries.append({"glob": f"{version}/*", "cluster": version})
    return entries


def in_order(journals: list[list[Record]]) -> list[Record]:
    """As docs/journal.md says; a partition is not recorded twice in a term."""
    return sorted((r for journal in journals for r in journal), key=lambda r: (r.epoch, r.ts, r.seq))


def true_rows(journals: list[list[Record]]) -> list[dict[str, Any]]:
    return [
        {
            "topic": r.topic,
            "partition": r.partition,
            "to_state": r.to_state,
            "leader": r.leader,
            "ts_us": r.ts,
            "ts_error_us": 0,
            "leader_epoch": r.leader_epoch,
            "isr": list(r.isr or ()),
        }
        for r in in_order(journals)
        if r.kind in ("partition", "isr")
    ]


def test_windows_and_clocks_from_logs_of_each_release(spark: Any, tmp_path: Path) -> None:
    journals = simulated()
    entries = logs_of_each_release(journals, tmp_path)
    found = find_files(spark, [str(tmp_path)], manifest=Manifest(entries))
    store = Store(spark, str(tmp_path / "out"))
    stream._write_bronze(store, 0, found.files)
    quarantine = store.read(stream.QUARANTINE, [0], schema.QUARANTINE)
    assert {r["line"].split(".")[0] for r in quarantine.collect()} == {"\tat kafka"}
    accepted = store.read(stream.EVENTS, [0], schema.EVENTS_BRONZE)
    table = clocks_of(accepted).localCheckpoint()
    known: dict[str, dict[int, Any]] = defaultdict(dict)
    for row in table.collect():
        known[row["cluster"]][row["node"]] = row
    events = silver.events(accepted, table).where("kind IN ('partition', 'isr')")
    causes = silver.events(accepted, table).where(
        "kind = 'broker' AND detail = 'dead' OR to_state = 'OfflinePartition'"
    )
    same_time = causes.groupBy("cluster", "ts_us").agg(
        F.expr("max(if(kind = 'broker', seq, NULL)) AS death"), F.expr("min(if(kind = 'partition', seq, NULL)) AS loss")
    )
    together = same_time.where("death IS NOT NULL AND loss IS NOT NULL").collect()
    assert {r["cluster"][:3] for r in together} >= {"0.1", "1.1", "2.4"}
    assert all(r["death"] <= r["loss"] for r in together)
    rows = events.orderBy("epoch", "ts_us", "seq").collect()
    lines = []
    expected = windows(true_rows(journals))
    assert len(expected) >= 10
    for version in VERSIONS:
        reference = next(node for node, row in known[version].items() if row["method"] == "reference")
        shift = OFFSETS_US[reference]
        for node, row in known[version].items():
            off = row["offset_us"] - (OFFSETS_US[node] - shift)
            alone = row["method"].startswith("no message")
            assert alone or abs(off) <= row["error_us"] + 1_500, (version, node, row)
        got = windows([r.asDict() for r in rows if r["cluster"] == version])
        lines.append(_compare(version, expected, got, shift))
        both_ways = [r for r in known[version].values() if r["method"] == "messages both ways"]
        assert len(both_ways) >= (2 if version in ("1.1", "2.4") else 0), version
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


INFO_ONLY = ("3.5",)
"""Releases whose usual logs do not tell of every loss; of their windows some may be missing, but none may be false."""


def _compare(cluster: str, expected: list[Down], got: list[Down], shift: int) -> str:
    """Each window found is one that was, within its error; what was is found."""
    worst = 0
    left = list(expected)
    for found in got:
        allowed = found.error_us + 12_000
        true = next(
            (
                down
                for down in left
                if (down.topic, down.partition) == (found.topic, found.partition)
                and abs(found.start_us - shift - down.start_us) <= allowed
                and abs(found.end_us - shift - down.end_us) <= allowed
            ),
            None,
        )
        assert true is not None, f"{cluster}: {found} is none of {left}"
        left.remove(true)
        worst = max(worst, abs(found.start_us - shift - true.start_us), abs(found.end_us - shift - true.end_us))
    assert len(left) <= (len(expected) // 5 if cluster in INFO_ONLY else 0), f"{cluster}: not found: {left}"
    return f"{cluster}: {len(got)} windows of {len(expected)}, none false, worst error of a bound {worst / 1000:.1f} ms"


def test_a_journals_requests_are_found_in_brokers_logs_by_their_own_epoch(spark: Any, tmp_path: Path) -> None:
    """Correlation ids begin anew in each term, and a partition's state may bear the epoch of an earlier one."""
    sent_us = 1_700_000_000_000_000  # 22:13:20
    requests = [
        Record(1, seq, epoch, 7, sent_us + after_us, "request", broker=1, api="LEADER_AND_ISR", correlation_id=5)
        for seq, (epoch, after_us) in enumerate(((1, -60_000_000), (3, 0)), 1)
    ]
    (tmp_path / "journal-7-1-1-000001.jsonl").write_bytes(encode_records(requests))
    (tmp_path / "server.log").write_text(
        "[2023-11-14 22:13:20,400] TRACE [Broker id=1] Received LeaderAndIsr request PartitionState(controllerEpoch=1, "
        "leader=1, leaderEpoch=0, isr=1, zkVersion=0, replicas=1, isNew=false) correlation id 5 from controller 7 "
        "epoch 3 for partition t-0 (state.change.logger)\n"
    )
    store = Store(spark, str(tmp_path / "out"))
    stream._write_bronze(store, 0, find_files(spark, [str(tmp_path)]).files)
    table = clocks_of(store.read(stream.EVENTS, [0], schema.EVENTS_BRONZE))
    (broker,) = [row for row in table.collect() if row["node"] == 1]
    assert (broker["method"], broker["offset_us"]) == ("messages one way", 400_000 - ASSUMED_FASTEST_US // 2)


def test_offsets_follow_from_chains_of_messages() -> None:
    least = {(1, 2): 1_200, (2, 1): -800, (2, 3): 5_500, (3, 2): -4_500, (1, 4): 100_000}
    found = offsets([1, 2, 3, 4, 5], least, 1)
    assert found[1] == (0, 0, "reference")
    assert found[2][:2] == (1_000, 200)
    assert found[3][:2] == (6_000, 700)
    assert found[4][:2] == (100_000 - ASSUMED_FASTEST_US // 2, ASSUMED_FASTEST_US // 2)
    assert found[5][2] == "no message in common with the reference"
    contradiction = offsets([1, 2], {(1, 2): -1_000, (2, 1): -1_000}, 1)
    assert contradiction[2].method.endswith("a clock was set, or drifts")
