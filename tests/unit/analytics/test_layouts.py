"""Logs of JSON objects, and with milliseconds as times: the same records as the same lines of plain text."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

from aiocontroller.analytics.dataframes import DUCKDB, computing_by
from aiocontroller.analytics.layouts import JSON, MILLIS, layout_of, plain
from aiocontroller.analytics.small.log_lines import LogParser
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.sources import find_files

MS = 1_710_739_989_123
ISO = "2024-03-18T05:33:09.123Z"
LOGGER = "state.change.logger"
MESSAGE = '[Controller id=4 epoch=2] Changed partition t-0 state from OnlinePartition to OfflinePartition "now" <é>'
TRACE = "kafka.common.SomeException: why\n\tat kafka.a.B(C.scala:1)\n[odd]"
INSTANT = {"epochSecond": MS // 1000, "nanoOfSecond": MS % 1000 * 1_000_000}


def objects(message: str, trace: str | None = None) -> dict[str, dict[str, Any]]:
    """One record by each of log4j2's templates."""

    def record(**fields: Any) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if value is not None}

    thrown = None if trace is None else {"name": "kafka.common.SomeException", "extendedStackTrace": trace}
    return {
        "JsonLayout": record(instant=INSTANT, thread="main", level="INFO", loggerName=LOGGER, message=message,
                             thrown=thrown, endOfBatch=False),
        "JsonLayout, timeMillis": record(timeMillis=MS, level="INFO", loggerName=LOGGER, message=message,
                                         thrown=thrown),
        "EcsLayout": {"@timestamp": ISO, "ecs.version": "1.2.0", "log.level": "INFO", "message": message,
                      "log.logger": LOGGER, **({} if trace is None else {"error.stack_trace": trace})},
        "ECS, nested": {"@timestamp": ISO, "log": {"level": "INFO", "logger": LOGGER}, "message": message,
                        **({} if trace is None else {"error": {"stack_trace": trace}})},
        "LogstashJsonEventLayoutV1": {"@version": 1, "@timestamp": "2024-03-18T07:33:09.123+02:00", "level": "INFO",
                                      "message": message, "logger_name": LOGGER,
                                      **({} if trace is None else {"exception": {"stacktrace": trace}})},
        "GelfLayout": record(version="1.1", short_message=message, timestamp=MS / 1000, level=6, _logger=LOGGER,
                             full_message=trace and f"{message}\n{trace}", _exception=trace),
        "GcpLayout": record(timestamp=ISO, severity="INFO", message=message, _logger=LOGGER, _exception=trace),
    }  # fmt: skip


def docker(text: str) -> str:
    return json.dumps({"log": text + "\n", "stream": "stdout", "time": ISO}, separators=(",", ":"))


def texts() -> dict[str, str]:
    """Three records, the second with a stack trace, in every form; by the form's name."""
    names = list(objects(MESSAGE))
    found = {
        name: [objects(MESSAGE)[name], objects("[Controller id=4 epoch=2] Failed", TRACE)[name], objects(MESSAGE)[name]]
        for name in names
    }
    made = {name: "".join(json.dumps(one) + "\n" for one in three) for name, three in found.items()}
    three = found["JsonLayout"]
    made["complete"] = "[\n" + ",\n".join(json.dumps(one) for one in three) + "\n]\n"
    made["pretty"] = "[\n" + ",\n".join(json.dumps(one, indent=2) for one in three) + "\n]\n"
    made["of Docker"] = "".join(docker(json.dumps(one)) + "\n" for one in three)
    made["of CRI"] = "".join(f"2024-03-18T05:33:10.1Z stdout F {json.dumps(one)}\n" for one in three)
    made["carriage returns"] = made["EcsLayout"].replace("\n", "\r\n")
    failed = f"[Controller id=4 epoch=2] Failed ({LOGGER})\n{TRACE.replace('[odd]', 'odd')}"
    for form in ("[{}] INFO {}", "{} INFO {}", "INFO [{}] {}"):
        lines = (form.format(MS, text) for text in (f"{MESSAGE} ({LOGGER})", failed, f"{MESSAGE} ({LOGGER})"))
        made[f"milliseconds: {form.partition('{')[0]}{form.count('[')}"] = "\n".join(lines) + "\n"
    return made


def test_the_form_is_recognized_by_the_head() -> None:
    for name, text in texts().items():
        assert layout_of(text.encode()) == (MILLIS if name.startswith("milliseconds") else JSON), name
    for other in (f"[2024-03-18 05:33:09,123] INFO {MESSAGE}", docker(f"[2024-03-18 05:33:09,123] INFO {MESSAGE}"),
                  '{"v":1,"seq":1,"epoch":1,"ts":1}', '{"message":"no time"}', "", "{", '{"timestamp":{}}',
                  '{"message":"m","timestamp":1e999}', "[" * 100_000, '{"a":' * 100_000):  # fmt: skip
        assert layout_of(other.encode()) is None, other[:80]


def read(folder: Path) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[str]], dict[str, tuple[str, ...]]]:
    """By file: records that are understood, lines that are not, and what is remarked of it."""
    with computing_by(DUCKDB):
        found = find_files(SmallSession(), [str(folder)])  # type: ignore[arg-type]
    rows: dict[str, list[dict[str, Any]]] = {}
    bad: dict[str, list[str]] = {}
    for file in found.files:
        assert file.framing is not None
        text, separator = Path(file.path.removeprefix("file:")).read_text(), file.framing.separator
        texts = text.splitlines() if separator is None else text.split(separator)
        for row, line, reason in LogParser(file).records(texts):
            if reason is not None:
                bad.setdefault(file.name, []).append(line)
            elif row["kind"] != "continuation":
                rows.setdefault(file.name, []).append(row)
    return rows, bad, {file.name: file.remarks for file in found.files}


def test_every_form_gives_the_records_of_the_plain_one(tmp_path: Path) -> None:
    expected = {}
    for number, (name, text) in enumerate(texts().items()):
        pack, suffix = ((bytes, ""), (gzip.compress, ".gz"), (bz2.compress, ".bz2"))[number % 3]
        file = tmp_path / str(number) / f"state-change.log{suffix}"
        file.parent.mkdir()
        file.write_bytes(pack(text.encode()))
        expected[str(file.relative_to(tmp_path))] = name
    rows, bad, remarks = read(tmp_path)
    assert bad == {}
    assert rows.keys() == expected.keys()
    for file, name in expected.items():
        mine = rows[file]
        assert [(row["ts"], row["node"], row["epoch"]) for row in mine] == [(MS * 1000, 4, 2)] * 3, name
        assert [(row["kind"], row["topic"], row["to_state"]) for row in mine[::2]] == [
            ("partition", "t", "OfflinePartition")
        ] * 2, name
        if "INFO [" not in name:  # a level before the time: lines are read one by one
            assert "kafka.common.SomeException: why\n\tat kafka.a.B" in mine[1]["detail"], name
        assert remarks[file] == (), name


def test_a_torn_object_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    whole = json.dumps(objects(MESSAGE)["JsonLayout"])
    (tmp_path / "state-change.log").write_text(f"{whole}\n{whole[:90]}\n{whole}\n===> User\n{whole[:50]}")
    rows, bad, _ = read(tmp_path)
    assert [row["kind"] for row in rows["state-change.log"]] == ["partition"] * 2
    assert [line.strip() for line in bad["state-change.log"]] == [whole[:90], whole[:50].strip()]


def test_a_torn_object_of_several_lines_costs_itself_only() -> None:
    pretty = json.dumps(objects("m")["JsonLayout"], indent=2)
    torn = pretty.split("\n")[:5]
    lines = [*pretty.split("\n"), *torn, *pretty.split("\n"), "{", *['"a": {}'] * 100_000]
    records = [text for text in plain(JSON, lines) if text.startswith("[2024")]
    assert len(records) == 2


def test_odd_values_are_no_times() -> None:
    for value in (
        None,
        True,
        "yesterday",
        -1e300,
        float("inf"),
        10**30,
        {"epochSecond": "x"},
        {"epochSecond": 10**18},
        [],
    ):
        line = json.dumps({"message": "m", "timestamp": value})
        assert list(plain(JSON, [line])) == [f"[{line}"], value


def test_objects_within_messages_are_no_layout() -> None:
    """Kafka 1.0 and older write states as JSON within their lines."""
    line = (
        '[2018-02-01 20:22:23,264] INFO [Controller 1]: New leader and ISR for partition [t,0] is {"leader":-1,'
        '"leader_epoch":5,"isr":[3]} (kafka.controller.KafkaController)'
    )
    assert layout_of(f"{line}\n".encode() * 3) is None
    wrapped = "".join(f"2018-02-01T20:22:23.264000000Z stdout F {one}\n" for one in (line, line))
    assert layout_of(wrapped.encode()) is None
    state = f'{line}\n{{"controller_epoch":3,\n"leader":1}}\n'  # a message of several lines
    assert layout_of(state.encode() * 3) is None


def test_a_line_within_a_message_is_no_record(tmp_path: Path) -> None:
    """A group's name may have line ends, which JSON escapes; its second line elected a controller."""
    forged = "2024-05-01 10:00:00,001 INFO [Controller id=9] 9 successfully elected as the controller"
    say = "[GroupCoordinator 1]: Preparing to rebalance group a\n{} in state Empty with old generation 1"
    records = [
        {"timeMillis": 1714557600000, "level": "INFO", "loggerName": "kafka.x.Y", "message": message}
        for message in ("[KafkaServer id=1] started", say.format(forged), say.format(f"[{forged}]"))
    ]
    (tmp_path / "server.log").write_text("".join(json.dumps(record) + "\n" for record in records))
    rows, bad, _ = read(tmp_path)
    assert [(row["kind"], row["node"]) for row in rows["server.log"]] == [("broker", 1), ("other", 1), ("other", 1)]
    assert not bad
