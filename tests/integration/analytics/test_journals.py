"""Journals into bronze and silver: every whole record arrives, everything else is in quarantine with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import bronze, journal_files, journal_reader, schema, silver, stream
from aiocontroller.analytics.journal_reader import journal_records, read_journal
from aiocontroller.analytics.lines import read_lines
from aiocontroller.analytics.sources import find_files
from aiocontroller.analytics.store import Store
from aiocontroller.core.errors import BadInputError
from aiocontroller.journal.records import Record, encode_records

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine

WHOLE = Record(
    1, 1, 3, 7, 1_700_000_000_000_001, "partition", event="e", state="s", topic="t-é", partition=4, from_state="a",
    to_state="b", replica=5, leader=6, leader_epoch=7, isr=[1, 2], replicas=[1, 2, 3], controller_epoch=8,
    partition_epoch=9, recovery_state=1, broker=10, broker_epoch=1 << 40, brokers=[4, 5], api="STOP_REPLICA",
    api_version=3, correlation_id=11, path="/p", partitions=12, count=1 << 41, conflicts=13, bytes=1 << 42, code=14,
    queue_us=1 << 43, processing_us=15, duration_us=16, detail={"why": ["x", 1]},
)  # fmt: skip
"""Every field has a value of its own."""


def record(seq: int, epoch: int = 3, kind: str = "partition", **fields: Any) -> Record:
    return Record(1, seq, epoch, 7, 1_700_000_000_000_000 + seq, kind, **fields)


def write(path: Path, *parts: bytes | Record) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(encode_records([p]) if isinstance(p, Record) else p for p in parts))
    return path


def line(seq: int, **fields: Any) -> bytes:
    return encode_records([record(seq, **fields)]).rstrip()


ODD_LINES = (
    (line(2) + line(3, detail={"v": 1, "seq": 5}) + b"\n",),
    (line(2) + b"\n", b'{"v":1,"seq":4,"ep' + line(5) + b"\n"),
    (b'{"v":1,\n', line(6)[7:] + b"\n"),
    (line(7) + b"\r\n" + line(8) + b"\r" + line(9) + b"\n",),
    (b"\n \n\t\r\n",),
    (line(10, detail={"of": ["x", 1e5, None, {"é": True}]}) + b"\n",),
    (b'{"v":2,"seq":6,"epoch":"three"}\n', b'{"v":3,"seq":6,"epoch":3,"node":7,"ts":1,"kind":"isr"}\n'),
    (b'{"kind":"isr","seq":11,"epoch":3,"node":7,"ts":1,"v":1}\n', b' {"v":1,"seq":12}\n'),
    (b'{"v":1,"seq":13,"epoch":3,"node":7,"ts":1,"kind":"isr","leader":2147483648}\n',),
    (b'{"v":1,"seq":14,"epoch":3,"node":7,"ts":1,"kind":"isr","leader":1.0,"isr":[1,null]}\n',),
    (b'{"v":1,"seq":15,"epoch":3,"node":7,"ts":1,"kind":"isr","leader":1,"leader":2,"new":[{}]}\n',),
    (b'{"v":1,"seq":16,"epoch":3,"node":7,"ts":1,"kind":"isr","topic":5,"detail":true}\n',),
    (b'{"v":1,"seq":17,"epoch":3,"node":7,"ts":1,"kind":"isr","broker":null,"isr":[]}\n',),
    (b'{"v":1,"seq":18,"epoch":3,"node":7,"ts":null,"kind":"isr"}\n', b'{"v":1,"seq":19,"epoch":3,"node":true}\n'),
    (b'{"v":1,"seq":20,"epoch":3,"node":7,"ts":1,"kind":"isr","topic":"\xff\xc3\\u00e9\\u0000"}\n',),
    (b'{"v":1,"seq":21,"epoch":3,"node":7,"ts":1,"kind":"isr"}\0\n', b'{"level":"info"}\n', b"Error\n", b"[1]\n{}\n"),
)
"""Lines that are not one whole record of the journal's types, or only just."""


def test_every_field_of_a_record_arrives(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "journal-7-3-1699999999999999-000001.jsonl", WHOLE, record(2))
    records = read_journal(spark, find_files(spark, [str(tmp_path)]).files)
    assert [f.dataType.simpleString() for f in records.schema if f.name in schema.JOURNAL.names] == [
        f.dataType for f in schema.JOURNAL
    ]
    whole, sparse = records.orderBy("seq").collect()
    expected = {name: getattr(WHOLE, name) for name in schema.JOURNAL.names} | {"detail": '{"why":["x",1]}'}
    assert {name: whole[name] for name in schema.JOURNAL.names} == expected
    assert (sparse["isr"], sparse["detail"]) == (None, None)
    assert (whole["process"], whole["start_us"], whole["reference"], whole["cluster"]) == (
        "7-1699999999999999", 1699999999999999, None, "default",
    )  # fmt: skip


def test_what_is_no_whole_record_goes_into_quarantine(spark: Any, tmp_path: Path) -> None:
    write(
        tmp_path / "journal-7-3-1-000001.jsonl",
        record(1),
        line(2) + line(3, detail={"v": 1, "seq": 5}) + b"\n",
        b'{"v":1,"seq":4,"ep' + line(5) + b"\n",
        b'{"v":2,"seq":6,"epoch":"three"}\n',
        b'{"v":1,"seq":7,"epoch":3,"node":7,"ts":1}\n',
        b'{"level":"info","msg":"another program\'s"}\n',
        b'{"v":1,"seq":8,"epoch":3,"node":99999999999,"ts":1,"kind":"isr"}\n',
        b"\n",
        b"\0" * 900 + b"\n",
        line(9)[:-9],
    )
    records = read_journal(spark, find_files(spark, [str(tmp_path)]).files).cache()
    kept = bronze.accepted(records).orderBy("seq").collect()
    assert [(r["seq"], r["joined"]) for r in kept] == [(1, False), (2, False), (3, True), (5, True)]
    rejected = {r["reason"]: r for r in bronze.quarantine(records).collect()}
    assert {reason: row["count"] for reason, row in rejected.items()} == {
        "torn: it ends within a record": 2,
        "format version 2; this program reads 1": 1,
        "not a journal record: no kind": 1,
        "not a journal record: no v, seq, epoch, node, ts, kind": 1,
        "not JSON, or a field of another type than the journal's": 1,
        "NUL bytes: a part of the file that was never written": 1,
    }
    assert all(row["file"] == "journal-7-3-1-000001.jsonl" and row["source"] == "journal" for row in rejected.values())
    assert rejected["NUL bytes: a part of the file that was never written"]["line"] == "␀" * schema.SAMPLE_CHARACTERS
    records.unpersist()


def test_copies_are_read_once_and_files_in_progress_on_demand(spark: Any, tmp_path: Path) -> None:
    first = write(tmp_path / "a" / "journal-7-3-1-000001.jsonl", record(1), record(2))
    write(tmp_path / "b c" / "copied (1), ~é.jsonl", first.read_bytes())
    write(tmp_path / "b c" / "cut.jsonl", first.read_bytes()[:150])
    write(tmp_path / "a" / "_journal-7-3-1-000002.jsonl", record(3), line(4)[:-9])
    write(tmp_path / "a" / "_journal-8-3-1-000001.jsonl")
    write(tmp_path / "readme.txt", b"not ours\n")
    ours = b"2026-11-22 01:02:31,414 INFO [7] Controller 7 epoch 3 elected (aiocontroller.controller.election)\n"
    write(tmp_path / "service.log", ours)
    found = find_files(spark, [str(tmp_path)])
    assert [f.name for f in found.files] == ["a/journal-7-3-1-000001.jsonl"]
    assert found.copies == (
        ("b c/copied (1), ~é.jsonl", "a/journal-7-3-1-000001.jsonl"),
        ("b c/cut.jsonl", "a/journal-7-3-1-000001.jsonl"),
    )
    assert found.unknown == ("readme.txt", "service.log")
    assert found.remarks() == {
        "not read: a copy of a/journal-7-3-1-000001.jsonl": ["b c/copied (1), ~é.jsonl", "b c/cut.jsonl"],
        "not read: it is still being written (--in-progress reads such journals)": [
            "a/_journal-7-3-1-000002.jsonl", "a/_journal-8-3-1-000001.jsonl",
        ],
        "not read: neither a journal nor a Kafka log": ["readme.txt", "service.log"],
    }  # fmt: skip
    assert found.in_progress == ("a/_journal-7-3-1-000002.jsonl", "a/_journal-8-3-1-000001.jsonl")
    everything = find_files(spark, [str(tmp_path)], in_progress=True)
    rows = read_journal(spark, everything.files).orderBy("seq").collect()
    assert [(r["seq"], r["file"], r["reason"]) for r in rows] == [
        (1, "a/journal-7-3-1-000001.jsonl", None),
        (2, "a/journal-7-3-1-000001.jsonl", None),
        (3, "a/_journal-7-3-1-000002.jsonl", None),
    ]


def test_the_fast_reader_finds_what_the_careful_one_finds(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a query wants few of the columns: Spark then tells the reader not to look at the others."""
    wrong_type = b'{"v":1,"seq":8,"epoch":3,"node":7,"ts":1,"kind":"isr","leader":99999999999}\n'
    write(tmp_path / "journal-7-3-1-000001.jsonl", WHOLE, record(2), wrong_type, b"\n", record(4, detail={"a": 1}))
    write(tmp_path / "journal-7-3-1-000002.jsonl", line(5) + line(6) + b"\n")
    write(tmp_path / "journal-7-3-1-000003.jsonl", record(7), line(8) + b"\0\0\n")
    write(tmp_path / "journal-7-3-1-000004.jsonl", b'{"v":1,"seq":9,"epoch":3,"node":7,"ts":1}\n', line(10)[:-4])
    write(tmp_path / "journal-7-3-1-000005.jsonl", b'{"v":2,"seq":11,"epoch":3,"node":7,"ts":1,"kind":"isr"}\n')
    files = find_files(spark, [str(tmp_path)]).files
    monkeypatch.setattr(journal_reader, "PLAIN_FROM_BYTES", 0)
    assert [f.name for f in journal_reader._plain(spark, files)] == ["journal-7-3-1-000001.jsonl"]
    fast, careful = read_journal(spark, files), journal_records(read_lines(spark, files))
    assert fast.schema.names == careful.schema.names
    order = ("file", "seq", "line")
    rows = careful.orderBy(*order).collect()
    assert fast.orderBy(*order).collect() == rows
    assert [r["seq"] for r in rows if r["reason"] is None] == [1, 2, 4, 5, 6, 7]
    assert bronze.accepted(fast).count() == 6
    assert sum(r["seq"] for r in bronze.accepted(fast).select("seq").collect()) == 25
    assert sum(r["count"] for r in bronze.quarantine(fast).select("count").collect()) == 5


@pytest.mark.parametrize("slice_bytes, here_below", [(1 << 20, 1 << 20), (150, 0)])
def test_files_that_workers_decode_hold_what_the_careful_reader_finds(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_bytes: int, here_below: int
) -> None:
    """Wherever the files are cut, and whichever kinds and days stand in them."""
    day_us = 86_400_000_000
    bounds = record(2, replica=-(1 << 31), leader=(1 << 31) - 1, broker_epoch=(1 << 63) - 1, count=-(1 << 63))
    write(tmp_path / "journal-7-3-1-000001.jsonl", WHOLE, bounds, *(record(3 + n, kind="isr") for n in range(9)))
    write(
        tmp_path / "journal-7-3-1-000002.jsonl",
        *(
            Record(1, n, 3, 7, at_us, "event")
            for n, at_us in enumerate((-1, 0, day_us - 1, day_us, (1 << 63) - 1, -(1 << 63)))
        ),
    )
    write(tmp_path / "journal-7-3-1-000003.jsonl", record(1, detail='\0 \x1f \r\n " é 😀 '), line(2)[:-9])
    write(tmp_path / "journal-7-3-1-000004.jsonl", *(part for parts in ODD_LINES for part in (*parts, record(99))))
    write(tmp_path / "journal-7-3-1-000005.jsonl", b"\0" * 999)
    files = find_files(spark, [str(tmp_path)]).files
    assert len(files) == 5
    monkeypatch.setattr(journal_files, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(journal_files, "HERE_BELOW_BYTES", here_below)
    store = Store(spark, str(tmp_path / "out"))
    for _ in range(2):  # the second attempt at a batch finds what the first one left
        stream._write_bronze(store, 0, files)
    careful = journal_records(read_lines(spark, files)).localCheckpoint()
    order = ("file", "seq", "epoch", "kind", "leader", "partition")
    found = store.read(stream.EVENTS, [0], schema.EVENTS_BRONZE).select(*schema.EVENTS_BRONZE.names)
    assert found.orderBy(*order).collect() == bronze.accepted(careful).orderBy(*order).collect()
    rejected = [
        {(row["file"], row["reason"]): (row["count"], row["line"]) for row in table.collect()}
        for table in (store.read(stream.QUARANTINE, [0]), bronze.quarantine(careful))
    ]
    assert rejected[0] == rejected[1]
    assert not (tmp_path / "out/bronze/odd/batch=0").exists()


def test_files_are_parsed_once_though_lines_are_rejected(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quarantine was made of the files again; here they are gone by then."""
    good = "[2024-05-01 10:00:0{0},000] INFO [KafkaServer id={0}] started (kafka.server.KafkaServer)\n"
    bad = good.replace("-05-", "-99-")
    logs = [tmp_path / "in" / f"broker-{broker}" / "server.log" for broker in (1, 2)]
    for broker, log in enumerate(logs, 1):
        write(log, "".join(line.format(broker) for line in (good, bad, bad, good)).encode())

    def written(self: Store, table: str, *rest: Any) -> None:
        if table == stream.QUARANTINE:
            for log in logs:
                log.unlink()
        original(self, table, *rest)

    original = Store.write
    monkeypatch.setattr(Store, "write", written)
    store = Store(spark, str(tmp_path / "out"))
    stream._write_bronze(store, 0, find_files(spark, [str(tmp_path / "in")]).files)
    assert not any(log.exists() for log in logs)
    rows = store.read(stream.QUARANTINE, [0], schema.QUARANTINE).collect()
    assert sorted((row["file"], row["count"], row["reason"]) for row in rows) == [
        (f"broker-{broker}/server.log", 2, "its time is invalid") for broker in (1, 2)
    ]
    events = store.read(stream.EVENTS, [0], schema.EVENTS_BRONZE).collect()
    assert sorted((row["file"], row["node"]) for row in events) == [
        (f"broker-{broker}/server.log", broker) for broker in (1, 1, 2, 2)
    ]
    assert list(Path(store.of_batch(stream.EVENTS, 0)).glob("day=*")) == [
        Path(store.of_batch(stream.EVENTS, 0), "day=2024-05-01")
    ]


def test_files_of_one_name_are_distinguished_by_their_folders(spark: Any, tmp_path: Path) -> None:
    paths = [write(tmp_path / folder / "j.jsonl", record(n)) for n, folder in enumerate(("a", "b/c"))]
    found = find_files(spark, [str(path) for path in paths] + [str(paths[0])])
    assert [f.name for f in found.files] == ["a/j.jsonl", "b/c/j.jsonl"]


def test_a_renamed_journal_in_an_odd_folder_keeps_its_name(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "b c" / "[ab] {1}, ~é%20+#*.jsonl", record(1))
    files = find_files(spark, [str(tmp_path / "b c")]).files
    for plain_from in (0, 1 << 20):
        monkeypatch.setattr(journal_reader, "PLAIN_FROM_BYTES", plain_from)
        rows = read_journal(spark, files).collect()
        assert [(r["file"], r["process"]) for r in rows] == [("[ab] {1}, ~é%20+#*.jsonl",) * 2]


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "no such file or folder"),
        ({}, "no files in"),
        ({"journal.jsonl": b""}, "only empty files in"),
        ({"nginx.log": b"GET / 200\n" * 9}, "1 other files, nginx.log for example"),
    ],
)
def test_nothing_to_read_is_a_clear_error(
    spark: Any, tmp_path: Path, content: dict[str, bytes] | None, words: str
) -> None:
    folder = tmp_path / "in"
    if content is not None:
        folder.mkdir()
        for name, data in content.items():
            (folder / name).write_bytes(data)
    with pytest.raises(BadInputError, match=words):
        find_files(spark, [str(folder)])


def test_the_timeline_is_ordered_by_epoch_process_and_number_never_by_time(spark: Any, tmp_path: Path) -> None:
    def change(seq: int, epoch: int, leader: int, kind: str = "partition") -> Record:
        ts = 2_000_000 - 1000 * epoch - seq  # the clock runs backwards
        return Record(1, seq, epoch, 7, ts, kind, topic="t", partition=0, leader=leader, leader_epoch=seq, isr=[leader])

    write(tmp_path / "journal-7-1-100-000001.jsonl", change(1, 1, 11), change(10, 1, 12), change(9, 1, 13, "isr"))
    write(tmp_path / "journal-7-2-300-000001.jsonl", change(1, 2, 31), record(2, kind="event"))
    write(tmp_path / "journal-7-2-200-000001.jsonl", change(5, 2, 21))
    records = read_journal(spark, find_files(spark, [str(tmp_path)]).files)
    rows = silver.timeline(silver.events(bronze.accepted(records))).collect()
    by_leader = {r["leader"]: (r["prev_leader"], r["next_leader"], r["next_isr"]) for r in rows}
    assert by_leader == {
        11: (None, 13, [13]), 13: (11, 12, [12]), 12: (13, 21, [21]), 21: (12, 31, [31]), 31: (21, None, None),
    }  # fmt: skip
