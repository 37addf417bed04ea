"""Twelve logs of three real brokers for the pipeline's benchmark, and two hand-written ways to read them.

The truth suite recorded the logs (Kafka 3.9; a cluster whose brokers are killed, hang and restart for eight minutes).
``write_logs`` plays the recording once or repeatedly.  Each round is ten minutes later, in later terms of controllers,
and has topics of its own; its server.log also contains lines that a busy broker writes besides.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

RECORDED: Final = Path(__file__).parents[1] / "tests" / "truth" / "recorded" / "3.9" / "logs"
FIGURES: Final = ("records", "windows", "requests", "failovers_ms")
_ROUND: Final = timedelta(minutes=10)
_TERMS: Final = 5
"""The number of controllers' terms in the recording."""
_OTHERS: Final = (
    "INFO [UnifiedLog partition=orders-{n}, dir=/kafka/logs] Rolled new log segment at offset {at} in 2 ms. "
    "(kafka.log.UnifiedLog)",
    "INFO [ProducerStateManager partition=orders-{n}] Wrote producer snapshot at offset {at} with 0 producer ids in "
    "1 ms. (org.apache.kafka.storage.internals.log.ProducerStateManager)",
)
"""Lines that no pattern of the pipeline matches; the recording leaves them out."""

_TIME: Final = re.compile(r"\[(.{19})(,\d{3}\] )")
_TERM: Final = re.compile(
    r"(ControllerEpoch:|[Cc]ontroller (?:id=)?\d epoch[= ]|with epoch |incremented to |version is now )(\d+)"
)
_TOPIC: Final = re.compile(r"\b(three-copies|two-copies|short-lived|unclean)\b")


def write_logs(folder: Path, rounds: int) -> int:
    """Write three files for each broker, and the older half of its state-change.log, packed for two of the brokers;
    return the size in bytes."""
    for recorded in sorted(RECORDED.iterdir()):
        broker = folder / recorded.name
        broker.mkdir()
        for recording in sorted(recorded.iterdir()):
            lines = [f"{line}\n" for line in _lines(recording, rounds)]
            path = broker / recording.name.removesuffix(".gz")
            if path.name == "state-change.log":
                older, lines = lines[: len(lines) // 2], lines[len(lines) // 2 :]
                rotated = broker / f"{path.name}.{lines[0][1:14].replace(' ', '-')}"
                if broker.name == "broker-1":
                    rotated.write_text("".join(older))
                else:
                    Path(f"{rotated}.gz").write_bytes(gzip.compress("".join(older).encode(), mtime=0))
            path.write_text("".join(lines))
    return sum(path.stat().st_size for path in folder.rglob("*.log*"))


def _lines(recording: Path, rounds: int) -> Iterator[str]:
    recorded = gzip.decompress(recording.read_bytes()).decode().splitlines()
    busy = rounds > 1 and recording.name.startswith("server.log")
    for number in range(rounds):
        for position, line in enumerate(recorded):
            text = _in_round(number, line)
            yield text
            if busy and (begins := _TIME.match(text)) is not None:
                for other in _OTHERS:
                    yield begins[0] + other.format(n=position % 50, at=number * 1_000_000 + position * 100)


def _in_round(number: int, line: str) -> str:
    if number == 0:
        return line
    line = _TIME.sub(lambda found: f"[{datetime.fromisoformat(found[1]) + number * _ROUND}{found[2]}", line, count=1)
    line = _TERM.sub(lambda found: f"{found[1]}{int(found[2]) + number * _TERMS}", line)
    return _TOPIC.sub(rf"\1-{number}", line)


# -- by hand -----------------------------------------------------------------------------------------------------------

_REQUEST: Final = re.compile(
    r"Sending (?:LeaderAndIsr|StopReplica|UpdateMetadata) request .*?(?:broker |Set\(([\d, ]*))"
)


def by_python(folder: Path) -> dict[str, int]:
    found = dict.fromkeys(FIGURES, 0)
    for path in sorted(folder.rglob("*.log*")):
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            _count(lines, found)
    return found


def _count(lines: Iterable[str], found: dict[str, int]) -> None:
    """Add what these lines contain to the figures."""
    for line in lines:
        if not line.startswith("[20"):
            continue
        found["records"] += 1
        if " from OfflinePartition to OnlinePartition with state " in line:
            found["windows"] += 1
        elif (request := _REQUEST.search(line)) is not None:
            brokers = request[1]
            found["requests"] += 1 if brokers is None else len(brokers.replace(",", " ").split())
        elif " successfully elected as the controller" in line:
            found["failovers_ms"] -= _ms(line)
        elif " Starting the controller scheduler" in line:
            found["failovers_ms"] += _ms(line)


def _ms(line: str) -> int:
    at = datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    return int(at.timestamp()) * 1000 + at.microsecond // 1000


QUERY: Final = r"""
    WITH lines AS MATERIALIZED (
        SELECT line FROM read_csv('{folder}/*/*.log*', columns = {{line: 'VARCHAR'}}, delim = '\x01', quote = '',
                                  escape = '', header = false, auto_detect = false)
        WHERE starts_with(line, '[20')
    ), requests AS (
        SELECT regexp_extract(line, 'Sending (LeaderAndIsr|StopReplica|UpdateMetadata) request (.*)', ['api', 'told']) r
        FROM lines WHERE contains(line, ' Sending ')
    ), steps AS (
        SELECT CASE WHEN contains(line, ' successfully elected as ') THEN -1 ELSE 1 END
               * epoch_ms(replace(line[2:24], ',', '.')::TIMESTAMP) AS ms
        FROM lines WHERE contains(line, ' successfully elected as the controller')
                      OR contains(line, ' Starting the controller scheduler')
    )
    SELECT (SELECT count(*) FROM lines),
           (SELECT count(*) FROM lines WHERE contains(line, ' from OfflinePartition to OnlinePartition with state ')),
           (SELECT sum(CASE WHEN r.api = 'UpdateMetadata'
                       THEN len(regexp_extract_all(regexp_extract(r.told, '\(([\d, ]*)\)', 1), '\d+')) ELSE 1 END)
            FROM requests WHERE r.api <> ''),
           (SELECT sum(ms) FROM steps)"""
