"""Stalls as rows and lines."""

from __future__ import annotations

import io

from rich.console import Console

from aiocontroller.lab.kafka.events import Felt, Stall
from aiocontroller.lab.kafka.report import felt_line, percentile, stall_markdown, stall_table, stalls, surfaced_in
from aiocontroller.lab.kafka.view import PartitionView, led_by, moved_off, whole

KILL = "broker SIGKILL"


def felt(subject: str, event: str = KILL, led: tuple[float, ...] = (), errors: tuple[str, ...] = ()) -> Felt:
    stalls = [Stall("java", True, ms, 10 * ms) for ms in led] + [Stall("java", False, ms, 0.0) for ms in (1.0, 3.0)]
    return Felt(event, subject, tuple(stalls), 1.0, errors, interference_ms=sum(led))


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(v) for v in range(1, 101)]
    assert (percentile(values, 0.99), percentile(values, 0.5), percentile([7.0], 0.99)) == (99.0, 50.0, 7.0)


def test_rows_join_trials_and_keep_subjects_side_by_side() -> None:
    rows = stalls([felt("ours", led=(10.0,)), felt("kafka", led=(30.0,)), felt("ours", led=(20.0, 40.0))])
    assert [(r.partitions, r.subject, r.trials, r.samples, r.median_ms, r.max_ms) for r in rows] == [
        ("led", "ours", 2, 3, 20.0, 40.0),
        ("led", "kafka", 1, 1, 30.0, 30.0),
        ("others", "ours", 2, 4, 2.0, 3.0),
        ("others", "kafka", 1, 2, 2.0, 3.0),
    ]


def test_clients_are_told_apart() -> None:
    one = Felt(KILL, "ours", (Stall("java", True, 5.0, 0.0), Stall("librdkafka", True, 7.0, 0.0)), 1.0, ())
    assert [(r.client, r.samples, r.max_ms) for r in stalls([one])] == [("java", 1, 5.0), ("librdkafka", 1, 7.0)]


def test_a_slow_brokers_partitions_are_shown_to_flow_again() -> None:
    rows = stalls(
        [felt("ours", "slow disk", (10.0, 30.0)), felt("ours", "slow disk", (20.0,)), felt("ours", led=(9.0,))]
    )
    assert [(r.event, r.partitions, r.flows_after_ms, r.interference_ms) for r in rows] == [
        (KILL, "led", 90.0, 9.0),
        (KILL, "others", 0.0, 9.0),
        ("slow disk", "led", 250.0, 40.0),
        ("slow disk", "others", 0.0, 40.0),
    ]
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(stall_table(rows, "t"))
    shown = [line.split("│")[1:-1] for line in console.export_text().splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line] for line in shown] == [
        [KILL, "java", "led", "ours", "1", "9", "9", "9", "", "9"],
        ["", "", "others", "ours", "1", "2", "3", "3", "", "9"],
        ["slow disk", "java", "led", "ours", "2", "20", "30", "30", "250", "40"],
        ["", "", "others", "ours", "2", "2", "3", "3", "0", "40"],
    ]
    assert stall_markdown(rows)[1:4] == [
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| {KILL} | java | led | ours | 1 | 9 | 9 | 9 |  | 9 |",
        "|  |  | others | ours | 1 | 2 | 3 | 3 |  | 9 |",
    ]


def test_an_event_that_deposed_no_leader_has_no_such_row() -> None:
    assert [row.partitions for row in stalls([felt("ours", "takeover")])] == ["others"]


def test_only_errors_of_the_named_events_and_subject_surface() -> None:
    all_felt = [
        felt("ours", "takeover", errors=("a",)),
        felt("ours", errors=("b",)),
        felt("kafka", "takeover", errors=("c",)),
    ]
    assert surfaced_in(all_felt, ("takeover", "release"), "ours") == ["takeover: a"]
    assert "1 errors: a" in felt_line(all_felt[0])


def test_a_view_tells_the_leaders_and_whether_all_are_in_sync() -> None:
    full = {
        ("t", 0): PartitionView(1, (1, 2), frozenset((1, 2))),
        ("t", 1): PartitionView(2, (2, 1), frozenset((1, 2))),
    }
    assert whole(full)
    assert led_by(full, 1) == {("t", 0)}
    assert not moved_off(full, frozenset((1,)))
    shrunk = full | {("t", 0): PartitionView(2, (1, 2), frozenset((2,)))}
    assert not whole(shrunk)
    assert not moved_off(shrunk, frozenset((1,)))  # still in sync in the other
    off = {key: PartitionView(2, view.replicas, frozenset((2,))) for key, view in full.items()}
    assert moved_off(off, frozenset((1,)))
    assert not moved_off(off | {("t", 0): PartitionView(-1, (1, 2), frozenset((2,)))}, frozenset((1,)))


def test_no_answer_is_no_view() -> None:
    assert not whole({})
    assert not moved_off({}, frozenset((1,)))
