"""Where records are missing, availability is unknown, and the tables say why: from files to gold, on both engines."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.summary import sections, summarise
from tests.integration.analytics.test_recorded import RECORDED

KAFKA, OURS = RECORDED / "3.9" / "logs", RECORDED / "3.9-aiocontroller" / "logs"
"""In the first, broker 1 is controller in epochs 1 and 5, broker 3 in 2 and 4, broker 2 in 3 (02:07:16 to 02:09:56)."""


def unpacked(to: Path, *names: str, of: Path = KAFKA) -> None:
    """Writes the recorded logs and journals as plain files; ``names`` are patterns, all without any."""
    for path in of.rglob("*.gz"):
        name = str(path.relative_to(of)).removesuffix(".gz")
        if not names or any(re.search(pattern, name) for pattern in names):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes(gzip.decompress(path.read_bytes()))


def without(path: Path, from_time: str, to_time: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not from_time <= line[12:20] < to_time))


def by_hour(path: Path, from_time: str, to_time: str) -> None:
    """Rotated by time, where the file in the middle is lost: its name alone proves nothing."""
    lines = path.read_text().splitlines(keepends=True)
    path.with_name(f"{path.name}.2026-11-23-01").write_text("".join(x for x in lines if x[12:20] < from_time))
    path.write_text("".join(line for line in lines if line[12:20] >= to_time))


def only_servers(to: Path) -> None:
    unpacked(to, "server")


def epoch_two_without_logs(to: Path) -> None:
    """Broker 3 was controller of epochs 2 and 4."""
    unpacked(to, "broker-[12]")


def one_controller_without_state_changes(to: Path) -> None:
    unpacked(to)
    (to / "broker-3" / "state-change.log").unlink()


def middle_is_missing(to: Path) -> None:
    unpacked(to)
    by_hour(to / "broker-2" / "state-change.log", "02:07:50", "02:09:20")


def middle_is_missing_of_the_only_log(to: Path) -> None:
    unpacked(to, "broker-2")
    by_hour(to / "broker-2" / "state-change.log", "02:07:50", "02:09:20")


def middle_is_missing_of_both_logs(to: Path) -> None:
    middle_is_missing_of_the_only_log(to)
    without(to / "broker-2" / "controller.log", "02:07:50", "02:09:20")


def middle_number_is_missing(to: Path) -> None:
    """As log4j's RollingFileAppender numbers files; no outage is in the middle one."""
    unpacked(to)
    log = to / "broker-1" / "state-change.log"
    lines = log.read_text().splitlines(keepends=True)
    log.with_name("state-change.log.3").write_text("".join(lines[:200]))
    log.with_name("state-change.log.1").write_text("".join(lines[200:400]))
    log.write_text("".join(lines[400:]))


def end_is_missing(to: Path) -> None:
    """The last controller's logs end early, and other brokers go on."""
    unpacked(to)
    for log in ("controller.log", "state-change.log"):
        without(to / "broker-2" / log, "02:07:20", "02:10:00")


def corrupt(to: Path) -> None:
    unpacked(to)
    log = to / "broker-2" / "state-change.log"
    packed = bytearray(gzip.compress(log.read_bytes(), mtime=0))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
    log.with_name("state-change.log.gz").write_bytes(packed)
    log.unlink()


def unreadable(to: Path) -> None:
    unpacked(to)
    log = to / "broker-2" / "state-change.log"
    log.with_name("state-change.log.gz").write_bytes(b"\x1f\x8b" + bytes(500))
    log.unlink()


def garbled(to: Path) -> None:
    unpacked(to)
    log = to / "broker-2" / "state-change.log"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[300] = lines[300].replace(b"[2026-11-23 02", b"[2026-11-99 02")
    log.write_bytes(b"".join(lines))


def of_no_known_content(to: Path) -> None:
    unpacked(to)
    (to / "broker-2" / "state-change.log").write_bytes(bytes(range(256)) * 20)


def cut_off_within_a_line(to: Path) -> None:
    """The copy ended early: broker 2, the controller then, and the others go on."""
    unpacked(to)
    log = to / "broker-2" / "controller.log"
    log.write_bytes(log.read_bytes()[:-3000].rpartition(b"\n")[0][:-20])


def cut_off_before_a_line_end(to: Path) -> None:
    """The last line looks whole."""
    unpacked(to)
    log = to / "broker-2" / "state-change.log"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-5]).removesuffix(b"\n"))


def rotated_and_cut_off(to: Path) -> None:
    unpacked(to)
    log = to / "broker-2" / "state-change.log"
    lines = log.read_bytes().splitlines(keepends=True)
    log.with_name("state-change.log.1").write_bytes(b"".join(lines[:200]).removesuffix(b"\n"))
    log.write_bytes(b"".join(lines[200:]))


def controller_falls_silent(to: Path) -> None:
    """The copy of its logs ended exactly at line ends, and nothing more was elected; the others go on for half an
    hour."""
    others_go_on(to, broker=1)


def others_go_on(to: Path, broker: int) -> None:
    unpacked(to)
    for log in (to / f"broker-{broker}").iterdir():
        without(log, "02:12:55", "02:20:00")
    for other in {1, 2, 3} - {broker}:
        with (to / f"broker-{other}" / "server.log").open("a") as server:
            for minute in range(14, 45):
                server.write(f"[2026-11-23 02:{minute}:00,000] INFO [BrokerServer id={other}] goes on (kafka.Own)\n")


def clock_was_set(to: Path) -> None:
    """By five seconds, in the middle of the logs of broker 2, controller until then: no one offset is right."""
    unpacked(to)
    for log in (to / "broker-2").iterdir():
        log.write_text("".join(map(_later, log.read_text().splitlines(keepends=True))))


def _later(line: str) -> str:
    if not line[12:20] > "02:09:30":
        return line
    return f"[{datetime.fromisoformat(line[1:20]) + timedelta(seconds=5)}{line[20:]}"


def ahead(log: Path, by: timedelta) -> None:
    """Its times are those of an appender of another time zone."""
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(f"[{datetime.fromisoformat(line[1:20]) + by}{line[20:]}" for line in lines))


def server_log_ahead_by_no_zone(to: Path) -> None:
    with_threads(to)
    ahead(to / "broker-2" / "server.log", timedelta(minutes=7, seconds=13))


def ahead_until(log: Path, time: str, before: timedelta, after: timedelta) -> None:
    """Its time zone changes: summer time ends, or the broker is configured anew."""
    lines = log.read_text().splitlines(keepends=True)
    parts = [line for line in lines if line[12:20] <= time], [line for line in lines if line[12:20] > time]
    texts = []
    for part, by in zip(parts, (before, after), strict=True):
        log.write_text("".join(part))
        ahead(log, by)
        texts.append(log.read_text())
    log.write_text("".join(texts))


def state_changes_of_which_half_are_in_another_zone(to: Path) -> None:
    unpacked(to)
    ahead_until(to / "broker-3" / "state-change.log", "02:09:00", timedelta(0), timedelta(hours=-1))


def summer_time_ends_in_one_log(to: Path) -> None:
    unpacked(to)
    ahead_until(to / "broker-3" / "server.log", "02:10:38", timedelta(hours=2), timedelta(hours=1))


def summer_time_ends_in_all_logs(to: Path) -> None:
    """An hour comes twice: what lost its leader in the first one and got one in the second seemed to lose nothing."""
    unpacked(to)
    for log in to.rglob("*.log"):
        ahead_until(log, "02:12:10", timedelta(0), timedelta(hours=6))  # quiet hours
        ahead_until(log, "02:09:00", timedelta(0), timedelta(hours=-1))


def end_of_one_log_in_another_zone(to: Path) -> None:
    """No fact of its last seconds stands in another log."""
    unpacked(to)
    ahead_until(to / "broker-1" / "server.log", "02:12:49", timedelta(0), timedelta(hours=13))


def beginning_of_one_log_before_the_clock_was_set(to: Path) -> None:
    unpacked(to)
    ahead_until(to / "broker-2" / "server.log", "02:05:58", timedelta(days=-9000), timedelta(0))


def state_changes_45_s_ahead(to: Path) -> None:
    """Availability was 0.920 where it is 0.924, and called known."""
    unpacked(to, of=RECORDED / "2.8-aiocontroller" / "logs")
    ahead(to / "broker-2" / "state-change.log", timedelta(seconds=45))


def controller_log_of_a_short_term_in_another_zone(to: Path) -> None:
    """Broker 3 was controller for three seconds."""
    unpacked(to, of=RECORDED / "2.8-aiocontroller" / "logs")
    ahead(to / "broker-3" / "controller.log", timedelta(hours=2))


def starts_in_two_zones(to: Path) -> None:
    """Nothing but one start of broker 2 stands in both of its logs."""
    with_threads(to)
    for log in to.rglob("*.log"):
        if log.parent.name != "broker-2" or log.name == "state-change.log":
            log.unlink()
    log = to / "broker-2" / "server.log"
    starts = [line for line in log.read_text().splitlines(keepends=True) if "Registered" in line or "started" in line]
    log.write_text("".join(starts[:3]))
    ahead(log, timedelta(hours=2))


def with_threads(to: Path) -> None:
    """As recorded, with the line in controller.log that each start of a broker leaves there."""
    unpacked(to)
    for broker in (1, 2, 3):
        registered = [line for line in (to / f"broker-{broker}" / "server.log").read_text().splitlines()
                      if "Registered broker" in line]  # fmt: skip
        thread = f"[ControllerEventThread controllerId={broker}] Starting (kafka.controller.ControllerEventManager)"
        log = to / f"broker-{broker}" / "controller.log"
        lines = log.read_text().splitlines() + [f"{line[:25]} INFO {thread}" for line in registered]
        log.write_text("".join(f"{line}\n" for line in sorted(lines, key=lambda line: line[:25])))


def lost_segment(to: Path) -> None:
    unpacked(to, of=OURS)
    whole = to / "journal-1000001-6-1795415822092228-000002.jsonl"
    lines = whole.read_bytes().splitlines(keepends=True)
    whole.write_bytes(b"".join(lines[:500]))
    # the next one is lost: 500 to 1000
    (to / "journal-1000001-6-1795415822092228-000012.jsonl").write_bytes(b"".join(lines[1000:]))


def lost_first_segment(to: Path) -> None:
    unpacked(to, of=OURS)
    (to / "journal-1000002-7-1795415793505771-000002.jsonl").unlink()


def torn_journal(to: Path) -> None:
    unpacked(to, of=OURS)
    path = to / "journal-1000001-4-1795415805259891-000002.jsonl"
    path.write_bytes(path.read_bytes()[:-30])


def unread_end(to: Path) -> None:
    """The process was killed; what it was writing is not read without ``--in-progress``."""
    unpacked(to, of=OURS)
    name = "journal-1000001-4-1795415805259891-000002.jsonl"
    (to / name).rename(to / f"_{name}")


def clock_was_set_back(to: Path) -> None:
    """By an hour, at the 300th record: times of the rest are wrong, or those of the beginning."""
    unpacked(to, of=OURS)
    path = to / "journal-1000001-6-1795415822092228-000002.jsonl"
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    for record in records[300:]:
        record["ts"] -= 3_600_000_000
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))


def clock_was_set_back_on_a_quiet_day(to: Path) -> None:
    """By an hour, and within few records it passes the old time again."""
    unpacked(to, of=OURS)
    path = to / "journal-1000001-6-1795415822092228-000002.jsonl"
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    for number, record in enumerate(records[300:]):
        record["ts"] += -3_600_000_000 if number < 40 else 7_200_000_000
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))


def end_of_the_journal_is_missing(to: Path) -> None:
    """Only the brokers know that the controller went on."""
    unpacked(to, of=OURS)
    path = to / "journal-1000001-6-1795415822092228-000002.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:300]))
    (to / "journal-1000001-8-1795415822092228-000003.jsonl").unlink()


UNKNOWN: dict[Callable[[Path], None], str] = {
    only_servers: "no record of controller 1 in epoch 1|no record of any controller",
    epoch_two_without_logs: "no record of controller 3 in epoch 2",
    one_controller_without_state_changes: "state-change.log of broker 3 is missing, and that broker was controller",
    middle_is_missing: "state-change.log of broker 2 has a gap from 2026-11-23 02:07",
    middle_is_missing_of_the_only_log: "state-change.log of broker 2 has a gap from 2026-11-23 02:0",
    middle_is_missing_of_both_logs: "state-change.log of broker 2 has a gap from 2026-11-23 02:0",
    middle_number_is_missing: "rotated files of state-change.log, number 2 is missing",
    end_is_missing: "state-change.log of broker 2 has a gap from 2026-11-23 02:07",
    corrupt: r"broker-2/state-change.log.gz is damaged: [\d,]+ bytes of it could be unpacked",
    unreadable: "broker-2/state-change.log.gz cannot be read: ",
    garbled: "1 lines of .*broker-2/state-change.log were not understood: its time is invalid",
    of_no_known_content: "broker-2/state-change.log is not read: it is neither",
    cut_off_within_a_line: "broker-2/controller.log is cut off: its last line has no newline",
    cut_off_before_a_line_end: "broker-2/state-change.log is cut off: its last line has no newline",
    rotated_and_cut_off: "broker-2/state-change.log.1 is cut off: its last line has no newline",
    controller_falls_silent: "logs of broker 1 end at 2026-11-23 02:12:5.; other brokers' logs go on until .* 02:44",
    clock_was_set: r"the clock of broker \d was set while it logged, .*: its times are wrong by up to [2-5]\.\d s",
    server_log_ahead_by_no_zone: r"server.log of broker 2 \(.*/server.log\) is 0:07:1[34] ahead of its other logs, and "
    "its times are unknown: no time zones differ by that",
    state_changes_of_which_half_are_in_another_zone: r"state-change.log of broker 3 \(.*\) is 1:00:00 behind its other "
    "logs, and its times are unknown: the difference changed meanwhile",
    summer_time_ends_in_one_log: r"server.log of broker 3 \(.*\) is [12]:00:00 ahead of its other logs, and its times "
    "are unknown: the difference changed meanwhile",
    summer_time_ends_in_all_logs: r"the times of .*/broker-2/.*log go back by 0:5\d:\d\d, .*: the clock of "
    "broker 2 was set back, as where summer time ends",
    end_of_one_log_in_another_zone: "server.log of broker 1 goes on until 2026-11-23 15:1.:.., 1[23]:.* after all "
    "other logs, beyond a long silence",
    beginning_of_one_log_before_the_clock_was_set: "server.log of broker 2 begins at 2002-.*, 8999 days, .* before all",
    state_changes_45_s_ahead: r"state-change.log of broker 2 \(.*\) is 0:00:45 ahead of its other logs, and its times "
    "are unknown: no time zones differ by that",
    controller_log_of_a_short_term_in_another_zone: r"controller.log of broker 3 \(.*controller.log\) is 2:00:00 "
    "ahead of its other logs, and its times are unknown: too few records show it",
    starts_in_two_zones: "server.log and controller.log of broker 2 have no start in common",
    lost_segment: "500 records are missing in or before the journal .*-000012.jsonl",
    lost_first_segment: "records are missing in or before the journal ",
    clock_was_set_back: r"clock of controller 1000001 was set back while it wrote its journal: .* by up to 3,[56]",
    clock_was_set_back_on_a_quiet_day: r"clock of controller 1000001 was set back while it wrote .* 3,[56]",
    torn_journal: "1 lines of .*journal-1000001-4-.*-000002.jsonl were not understood",
    unread_end: "_journal-1000001-4-.*: --in-progress reads it",
    end_of_the_journal_is_missing: "journal of controller 1000001 in epoch 6 ends at .*, and brokers handled",
}


# -- where no controller's records are missing ------------------------------------------------------------------------


def state_changes_cut_at_a_line_end(to: Path) -> None:
    """Controllers sent requests to broker 2 until 02:12:59; it was no controller any more."""
    unpacked(to)
    without(to / "broker-2" / "state-change.log", "02:10:00", "02:20:00")


def came_back_without_a_line(to: Path) -> None:
    """Broker 2 was restarted at 02:11:36."""
    unpacked(to)
    for log in (to / "broker-2").iterdir():
        without(log, "02:10:50", "02:20:00")


def another_falls_silent(to: Path) -> None:
    others_go_on(to, broker=2)


NAMED: dict[Callable[[Path], None], str] = {
    state_changes_cut_at_a_line_end: "state-change.log of broker 2 has a gap from 2026-11-23 02:1",
    came_back_without_a_line: "logs of broker 2 end at 2026-11-23 02:10:..; a controller saw it .* 02:12:08",
    another_falls_silent: "logs of broker 2 end at 2026-11-23 02:12:48; other brokers' logs go on until .* 02:44",
}


# -- logs of another time zone than the others of their broker --------------------------------------------------------


def server_log_in_another_zone(to: Path) -> None:
    unpacked(to)
    ahead(to / "broker-2" / "server.log", timedelta(hours=2))


def controller_log_in_another_zone(to: Path) -> None:
    unpacked(to)
    ahead(to / "broker-2" / "controller.log", timedelta(hours=-5, minutes=-30))


def rotated_state_changes_in_another_zone(to: Path) -> None:
    unpacked(to)
    log = to / "broker-1" / "state-change.log"
    ahead(log, timedelta(hours=12, minutes=45))
    lines = log.read_text().splitlines(keepends=True)
    log.with_name("state-change.log.1").write_text("".join(lines[:300]))
    log.write_text("".join(lines[300:]))


def a_log_of_each_broker_in_another_zone(to: Path) -> None:
    unpacked(to)
    for broker, name in ((1, "server.log"), (2, "state-change.log"), (3, "controller.log")):
        ahead(to / f"broker-{broker}" / name, timedelta(hours=broker))


def server_log_beside_our_journal_in_another_zone(to: Path) -> None:
    """Availability was 0.998 where it is 0.924, and called known."""
    unpacked(to, of=RECORDED / "2.8-aiocontroller" / "logs")
    ahead(to / "broker-2" / "server.log", timedelta(hours=2))


def state_changes_beside_our_journal_in_another_zone(to: Path) -> None:
    """Availability was 0, and called known."""
    unpacked(to, of=OURS)
    ahead(to / "broker-3" / "state-change.log", timedelta(hours=2))


AHEAD: dict[Callable[[Path], None], tuple[Path, str]] = {
    server_log_in_another_zone: (KAFKA, r"server.log of broker 2 \(.*broker-2/server.log\) is 2:00:00 ahead of"),
    controller_log_in_another_zone: (KAFKA, r"controller.log of broker 2 \(.*/controller.log\) is 5:30:00 behind its"),
    rotated_state_changes_in_another_zone: (KAFKA, r"state-change.log of broker 1 \(.*log\) is 12:45:00 ahead of"),
    a_log_of_each_broker_in_another_zone: (KAFKA, r"controller.log of broker 3 \(.*log\) is 3:00:00 ahead of its"),
    server_log_beside_our_journal_in_another_zone: (
        RECORDED / "2.8-aiocontroller" / "logs", r"server.log of broker 2 \(.*log\) is 2:00:00 ahead of its other logs"
    ),
    state_changes_beside_our_journal_in_another_zone: (OURS, r"state-change.log of broker 3 .* is 2:00:00 ahead of"),
}  # fmt: skip


# -- what is whole, however it looks -----------------------------------------------------------------------------------


def as_recorded(to: Path) -> None:
    unpacked(to)


def as_recorded_by_ours(to: Path) -> None:
    unpacked(to, of=OURS)


def packed_and_rotated(to: Path) -> None:
    unpacked(to)
    for log in list(to.rglob("*.log")):
        lines = log.read_bytes().splitlines(keepends=True)
        third = len(lines) // 3
        log.with_name(f"{log.name}.2.gz").write_bytes(gzip.compress(b"".join(lines[:third])))
        log.with_name(f"{log.name}.1").write_bytes(b"".join(lines[third : 2 * third]))
        log.write_bytes(b"".join(lines[2 * third :]))


def cut_stack_trace(to: Path) -> None:
    """Rotation within a stack trace: the next file begins with the rest of it."""
    unpacked(to)
    log = to / "broker-2" / "state-change.log"
    log.write_text("\tat kafka.controller.ZkPartitionStateMachine.x(PartitionStateMachine.scala:1)\n" + log.read_text())


def damaged_where_nothing_is_decided(to: Path) -> None:
    """A server.log shows nothing of what a controller decided."""
    unpacked(to)
    log = to / "broker-2" / "server.log"
    log.with_name("server.log.gz").write_bytes(gzip.compress(log.read_bytes())[:-200])
    log.unlink()


def last_line_without_end(to: Path) -> None:
    """No other record is later, so the missing line end hides nothing that others would show."""
    unpacked(to)
    last = max((line[1:24], log) for log in to.rglob("*.log") for line in log.read_text().splitlines()[-1:])[1]
    last.write_bytes(last.read_bytes().removesuffix(b"\n"))


def server_log_without_end(to: Path) -> None:
    unpacked(to)
    log = to / "broker-2" / "server.log"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-3]).removesuffix(b"\n"))


def quiet(to: Path) -> None:
    """Nothing happens for hours, and logs are silent.  Broker 2 was restarted early and says nothing more."""
    unpacked(to)

    def later(line: str) -> str:
        return line.replace("[2026-11-23 02:", "[2026-11-23 11:") if line[12:20] > "02:10:30" else line

    for log in to.rglob("*.log"):
        log.write_text("".join(map(later, log.read_text().splitlines(keepends=True))))


def as_recorded_by_ours_of_an_older_release(to: Path) -> None:
    unpacked(to, of=RECORDED / "2.8-aiocontroller" / "logs")


WHOLE = (
    as_recorded, as_recorded_by_ours, as_recorded_by_ours_of_an_older_release, packed_and_rotated, cut_stack_trace,
    damaged_where_nothing_is_decided, quiet, last_line_without_end, server_log_without_end, with_threads,
)  # fmt: skip


ON_SPARK = (only_servers, epoch_two_without_logs, middle_is_missing, corrupt, starts_in_two_zones, lost_segment)
"""What ``test_engines`` computes by Spark, too: its tables are the same as those that are judged here."""


@pytest.fixture(scope="module")
def analyzed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The summary of one analysis, with a cluster for each case."""
    return analysed(spark, tmp_path_factory.mktemp("missing"), (*UNKNOWN, *NAMED, *AHEAD, *WHOLE))


def analysed(spark: Any, folder: Path, cases: Iterable[Callable[[Path], None]]) -> dict[str, Any]:
    for case in cases:
        (folder / "in" / case.__name__).mkdir(parents=True)
        case(folder / "in" / case.__name__)
    entries = [{"glob": f"{case.__name__}/*", "cluster": case.__name__, "time_zone": "UTC"} for case in cases]
    batch.run(spark, [str(folder / "in")], str(folder / "out"), manifest=Manifest(entries))
    summary = summarise(spark, str(folder / "out"))
    shutil.rmtree(folder / "in")
    return summary


def whole_of(summary: dict[str, Any], cluster: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    (availability,) = [row for row in summary["clusters"] if row["name"] == cluster]
    return availability, [row for row in summary["completeness"] if row["cluster"] == cluster]


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda case: case.__name__)
def test_availability_is_unknown_where_records_are_missing(
    analyzed: dict[str, Any], case: Callable[[Path], None]
) -> None:
    is_unknown(analyzed, case)


def is_unknown(analyzed: dict[str, Any], case: Callable[[Path], None]) -> None:
    availability, rows = whole_of(analyzed, case.__name__)
    assert (availability["availability"], availability["onset_availability"]) == (None, None)
    assert {row["partitions_led"] for row in analyzed["brokers"] if row["cluster"] == case.__name__} <= {None}
    (conclusion,) = [row for row in rows if row["what"] == "availability"]
    assert not conclusion["known"]
    assert re.search(UNKNOWN[case], conclusion["words"]), conclusion["words"]
    assert any(
        re.search(UNKNOWN[case], row["words"]) for row in rows if row is not conclusion and not row["known"]
    ) or (case is only_servers)
    text = next(part for part in sections(analyzed) if isinstance(part, str) and f"Cluster {case.__name__}," in part)
    assert f"availability unknown: {conclusion['words']}" in text


@pytest.mark.parametrize("case", NAMED, ids=lambda case: case.__name__)
def test_what_other_logs_show_to_be_missing_is_named(analyzed: dict[str, Any], case: Callable[[Path], None]) -> None:
    availability, rows = whole_of(analyzed, case.__name__)
    lacking = [row["words"] for row in rows if not row["known"]]
    assert any(re.search(NAMED[case], words) for words in lacking), lacking
    assert availability["availability"] is not None


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.__name__)
def test_nothing_is_said_to_be_missing_where_all_is_there(
    analyzed: dict[str, Any], case: Callable[[Path], None]
) -> None:
    availability, rows = whole_of(analyzed, case.__name__)
    lacking = [row["words"] for row in rows if not row["known"]]
    if case is damaged_where_nothing_is_decided:
        gap, damaged = sorted(lacking, key=len, reverse=True)
        assert re.search(r"broker-2/server.log.gz is damaged: [\d,]+ bytes of it could be unpacked", damaged)
        assert gap.startswith("server.log of broker 2 has a gap from 2026-11-23 02:")
    elif case in (last_line_without_end, server_log_without_end):
        (cut,) = lacking
        assert re.search(r"broker-\d/[a-z-]+.log is cut off: its last line has no newline", cut)
    else:
        assert lacking == []
    assert 0 < availability["onset_availability"] < 1
    died = [row for row in analyzed["brokers"] if (row["cluster"], row["event"]) == (case.__name__, "died")]
    assert None not in ([row["partitions_led"] for row in died] or [None])


@pytest.mark.parametrize("case", AHEAD, ids=lambda case: case.__name__)
def test_logs_of_another_time_zone_are_corrected_and_named(
    analyzed: dict[str, Any], case: Callable[[Path], None]
) -> None:
    of, named = AHEAD[case]
    as_it_was = {KAFKA: as_recorded, OURS: as_recorded_by_ours}.get(of, as_recorded_by_ours_of_an_older_release)
    whole, _ = whole_of(analyzed, as_it_was.__name__)
    availability, rows = whole_of(analyzed, case.__name__)
    assert [row["words"] for row in rows if not row["known"]] == []
    corrected = [row["words"] for row in rows if row["what"] == "clock"]
    assert len(corrected) == (3 if case is a_log_of_each_broker_in_another_zone else 1)
    assert any(re.search(named, words) for words in corrected), corrected
    assert all("as in another time zone; its times were corrected: " in words for words in corrected)
    figures = [name for name in whole if name not in ("name", "cluster")]
    assert {name: availability[name] for name in figures} == {name: whole[name] for name in figures}
    titles = [part for part in sections(analyzed) if isinstance(part, str)]
    assert "\nWhat was corrected:" in titles
