"""Views of ``aiocontroller up``: the same facts on a terminal, in a log file, and as JSON lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import msgspec

from aiocontroller.cli.output import print_json, say, table
from aiocontroller.core.text import plural
from aiocontroller.journal.chronicle import microseconds
from aiocontroller.lab.cli.observer import Observation

SLOW_US = 100_000
"""An event that takes this long is shown even if it changed nothing, since all others wait for it."""


class Facts(msgspec.Struct, frozen=True):
    """The cluster's addresses; the first line in JSON."""

    zookeeper: str
    bootstrap: str
    http: str
    data: str


class View(ABC):
    """Used as a context manager around all output."""

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    @abstractmethod
    def progress(self, text: str) -> None:
        """Show a step of the startup."""

    @abstractmethod
    def ready(self, facts: Facts) -> None: ...

    @abstractmethod
    def show(self, observation: Observation) -> None: ...

    @abstractmethod
    def notice(self, text: str) -> None:
        """Show a notable event, such as the end of a process or a file that could not be removed."""

    @abstractmethod
    def summary(self, summary: dict[str, Any]) -> None: ...


class PlainView(View):
    """Prints lines, only when something has changed."""

    def __init__(self) -> None:
        self._last = ""

    def progress(self, text: str) -> None:
        say(text)

    def ready(self, facts: Facts) -> None:
        say(f"Ready: ZooKeeper {facts.zookeeper}, brokers {facts.bootstrap}, page {facts.http}/, data in {facts.data}")

    def show(self, observation: Observation) -> None:
        for at_us, text in worth_showing(observation.new_events):
            say(f"{_time(at_us)} {text}")
        line = _state_line(observation)
        if line != self._last:
            self._last = line
            say(f"{_now()} {line}")

    def notice(self, text: str) -> None:
        say(f"{_now()} {text}")

    def summary(self, summary: dict[str, Any]) -> None:
        for part in summary_tables(summary):
            say(part if isinstance(part, str) else table(*part))


class JsonView(View):
    """Prints one object per line; ``event`` is its type."""

    def __init__(self, aside: Callable[[str], object]) -> None:
        """``aside`` takes texts that must not go to standard output."""
        self._last: dict[str, Any] = {}
        self._aside = aside

    def progress(self, text: str) -> None:
        self._aside(text + "\n")  # the first line of the output is the ready line

    def ready(self, facts: Facts) -> None:
        print_json({"event": "ready", **msgspec.structs.asdict(facts)})

    def show(self, observation: Observation) -> None:
        for event in observation.new_events:
            print_json({"event": "handled", "what": event})
        state = {
            "controller": observation.controller,
            "epoch": None if observation.cluster is None else observation.cluster.controller.epoch,
            "answers": observation.status is not None,
            "brokers": [] if observation.cluster is None else observation.cluster.brokers,
            "partitions": observation.counts,
        }
        if state != self._last:
            self._last = state
            print_json({"event": "state", **state})

    def notice(self, text: str) -> None:
        print_json({"event": "notice", "text": text})

    def summary(self, summary: dict[str, Any]) -> None:
        print_json({"event": "summary", **summary})


def summary_tables(summary: dict[str, Any]) -> list[str | tuple[list[str], list[list[str]]]]:
    """Return the summary as sentences and (headings, rows) tables."""
    partitions = summary["partitions"]
    state = ", ".join(f"{partitions.get(k, 0):,} {k.replace('_', '-')}" for k in ("offline", "under_replicated"))
    took = f"{summary['duration_s']:.0f} s, controller epoch {summary['epoch'] or 0}"
    parts: list[str | tuple[list[str], list[list[str]]]] = [
        f"\nRan for {took}; at the end {plural(partitions.get('total', 0), 'partition')}, {state}."
    ]
    if summary["events"]:
        headings = ["event", "count", "waited p50", "waited max", "took p50", "took p99", "took max"]
        rows = [
            [
                row["event"],
                f"{row['count']:,}",
                *(microseconds(row["queue_us"][k]) for k in ("p50", "max")),
                *(microseconds(row["processing_us"][k]) for k in ("p50", "p99", "max")),
            ]
            for row in summary["events"]
        ]
        parts.append((headings, rows))
    parts.append(f"{plural(summary['records'], 'journal record')} in {summary['journal']}")
    return parts


def worth_showing(events: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    """Return (time, sentence) for the events that changed something, failed, or kept the others waiting.

    Routine events are left out: answers, ISR reports that change nothing, the check for preferred leaders.
    """
    shown = []
    for event in events:
        text = event["text"] or event["detail"]
        if not text and event["processing_us"] >= SLOW_US:
            text = f"{event['event']} took {microseconds(event['processing_us'])}"
        if text:
            shown.append((event["at_us"], text))
    return shown


def _state_line(observation: Observation) -> str:
    status, counts = observation.status, observation.counts
    if status is not None:
        head = f"controller {status['id']} epoch {status['epoch']}"
    else:
        head = silent_controller(observation)
    if observation.cluster is None:
        return head
    brokers = " ".join(f"{b.id}:{b.leaders if b.live else 'gone'}" for b in observation.cluster.brokers)
    numbers = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items())
    return f"{head}; leaders by broker {brokers or '-'}; partitions: {numbers}"


def silent_controller(observation: Observation) -> str:
    """Return the reason why there is no status."""
    if observation.controller is None:
        return "no active controller"
    return f"controller {observation.controller} does not answer at the moment"


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%H:%M:%S.%f")[:-3]


def _now() -> str:
    return datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
