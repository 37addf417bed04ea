"""The live view of ``aiocontroller up`` on a terminal: one screen, redrawn for each observation."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aiocontroller.cli.cluster_state import BrokerState
from aiocontroller.lab.cli.observer import Observation
from aiocontroller.lab.cli.views import Facts, View, silent_controller, summary_tables, worth_showing

BROKERS_SHOWN = 12
EVENTS_KEPT = 50
BAR_WIDTH = 20


class LiveView(View):
    """Shows the latest events that fit into the window."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._events: deque[tuple[int, str]] = deque(maxlen=EVENTS_KEPT)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._facts: Facts | None = None
        self._progress: list[str] = []

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def progress(self, text: str) -> None:
        self._progress.append(text)
        self._live.update(Group(*(Text(line, style="dim") for line in self._progress[-8:])), refresh=True)

    def ready(self, facts: Facts) -> None:
        self._facts = facts

    def show(self, observation: Observation) -> None:
        self._events.extend(worth_showing(observation.new_events))
        self._live.update(self._screen(observation), refresh=True)

    def notice(self, text: str) -> None:
        self._live.console.print(Text(text, style="yellow"))

    def summary(self, summary: dict[str, Any]) -> None:
        self._live.stop()
        for part in summary_tables(summary):
            self._console.print(part if isinstance(part, str) else _rich_table(*part), highlight=False)

    def _screen(self, observation: Observation) -> Group:
        head = [self._where(), Text(), self._controller(observation), self._partitions(observation), Text()]
        brokers = [] if observation.cluster is None else observation.cluster.brokers
        shown = self._brokers(brokers)
        tail = Text.from_markup(
            "[dim]In a second terminal, in this directory: "
            "[bold]aiocontroller cluster kill-broker 2[/bold], [bold]… start-broker 2[/bold], "
            "[bold]aiocontroller status[/bold].  Ctrl-C ends everything.[/dim]"
        )
        used = len(head) + min(len(brokers), BROKERS_SHOWN + 1) + 8
        return Group(*head, shown, Text(), self._event_table(max(self._console.height - used, 3)), Text(), tail)

    def _where(self) -> Text:
        if self._facts is None:
            return Text("aiocontroller")
        facts = self._facts
        return Text.assemble(
            ("aiocontroller", "bold cyan"),
            f"  ZooKeeper {facts.zookeeper}  brokers {facts.bootstrap}  {facts.http}",
            overflow="ellipsis",
            no_wrap=True,
        )

    def _controller(self, observation: Observation) -> Text:
        status = observation.status
        if status is None:
            return Text(silent_controller(observation).capitalize(), style="bold red")
        since = datetime.fromtimestamp(status["since_us"] / 1e6).astimezone().strftime("%H:%M:%S")
        return Text.assemble(
            "Controller ",
            (str(status["id"]), "bold green"),
            f"  epoch {status['epoch']}  since {since}  {status['queue_size']} events waiting",
        )

    def _partitions(self, observation: Observation) -> Text:
        counts = observation.counts
        if not counts:
            return Text("Partitions: not read yet", style="dim")
        topics = "" if observation.status is None else f" in {observation.status['topics']:,} topics"
        parts: list[str | tuple[str, str]] = [f"{counts['total']:,} partitions{topics}"]
        for name, style in (("offline", "bold red"), ("under_replicated", "yellow"), ("not_preferred", "yellow")):
            number = counts[name]
            label = {"under_replicated": "under-replicated", "not_preferred": "not led by their preferred replica"}
            parts += ["  ", (f"{number:,} {label.get(name, name)}", style if number else "green")]
        return Text.assemble(*parts)

    def _brokers(self, brokers: list[BrokerState]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading, side in (
            ("broker", "right"),
            ("", "left"),
            ("leaders", "right"),
            ("replicas", "right"),
            ("", "left"),
        ):
            table.add_column(heading, justify="right" if side == "right" else "left")
        most = max((b.leaders for b in brokers), default=0) or 1
        for broker in brokers[:BROKERS_SHOWN]:
            state = Text("live", style="green") if broker.live else Text("gone", style="bold red")
            bar = Text("█" * round(BAR_WIDTH * broker.leaders / most), style="cyan")
            table.add_row(str(broker.id), state, f"{broker.leaders:,}", f"{broker.replicas:,}", bar)
        if len(brokers) > BROKERS_SHOWN:
            table.add_row("…", f"{len(brokers) - BROKERS_SHOWN} more", "", "", "")
        return table

    def _event_table(self, height: int) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        table.add_column("time")
        table.add_column("what happened", ratio=1, no_wrap=True, overflow="ellipsis")
        for at_us, text in list(self._events)[-height:][::-1]:
            at = datetime.fromtimestamp(at_us / 1e6).astimezone().strftime("%H:%M:%S.%f")[:-3]
            table.add_row(at, Text(text))
        return table


def _rich_table(headings: list[str], rows: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table
