"""``aiocontroller up``: runs ZooKeeper, brokers and a controller on this machine, with a live view."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from aiocontroller.cli.background import BackgroundFile
from aiocontroller.cli.long_running import LongRunning
from aiocontroller.cli.parameters import Finite
from aiocontroller.data_folder import DEFAULT_DATA
from aiocontroller.ending import SIGNALS, Ending

if TYPE_CHECKING:
    from aiocontroller.lab.cli.observer import Observer
    from aiocontroller.lab.cli.views import View
    from aiocontroller.lab.cluster.supervisor import ClusterOptions, ClusterSupervisor

LOOK_EVERY_S = 0.5
LAST_LOOK_WITHIN_S = 0.5
_PORT = click.IntRange(0, 65535)


@click.command()
@click.option("--brokers", type=click.IntRange(1, 200), default=3, show_default=True, help="Number of brokers.")
@click.option(
    "--kafka",
    metavar="VERSION",
    help="Run unmodified Kafka brokers of this release (3.9, 3.6, 3.4, 3.0, 2.8, or a full version); needs Java, and "
    "Maven to fetch them. Default: simulated brokers.",
)
@click.option("--topics", type=click.IntRange(0), default=4, show_default=True, help="Number of topics.")
@click.option("--partitions", type=click.IntRange(1), default=8, show_default=True, help="Partitions of each topic.")
@click.option("--replication-factor", type=click.IntRange(1), help="Default: 3, or the number of brokers if less.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    help="Folder for logs, journal and ZooKeeper's data; a later start resumes from it.",
)
@click.option("--minutes", type=Finite(0, min_open=True), help="End after this many minutes; without it, on Ctrl-C.")
@click.option(
    "--storm",
    "seed",
    type=int,
    is_flag=False,
    flag_value=1,
    metavar="[SEED]",
    help="Inject faults continuously: kill and restart brokers, move the controller.",
)
@click.option("--zookeeper-port", type=_PORT, default=0, help="0 takes a free port.")
@click.option(
    "--http-port", type=_PORT, default=0, help="Port of the controller's /status and /metrics; 0 takes a free port."
)
@click.option(
    "--controller-port", type=_PORT, default=0, help="Port where brokers reach the controller; 0 takes a free port."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line; the first is the ready line.")
def up(
    brokers: int,
    kafka: str | None,
    topics: int,
    partitions: int,
    replication_factor: int | None,
    data: Path,
    minutes: float | None,
    seed: int | None,
    zookeeper_port: int,
    http_port: int,
    controller_port: int,
    as_json: bool,
) -> None:
    """Start a whole cluster on this machine, with a live view.

    Ctrl-C, SIGTERM and --minutes end everything, with a summary: within 10 s (real brokers take up to 15 s more). A
    second signal ends it at once.
    """
    if replication_factor is not None and replication_factor > brokers:
        raise click.BadParameter(
            f"found {replication_factor}, expected at most the number of brokers, {brokers}",
            param_hint="--replication-factor",
        )
    process = LongRunning(as_json, (*SIGNALS, signal.SIGHUP))
    from aiocontroller.lab.cluster.supervisor import ClusterOptions
    from aiocontroller.zookeeper.topic_rules import check_partition_count

    check_partition_count("topic-0", partitions, replication_factor or min(3, brokers), range(1, brokers + 1))
    options = ClusterOptions(
        data_dir=data.resolve(),
        brokers=brokers,
        kafka=kafka,
        topics=topics,
        partitions=partitions,
        replication_factor=replication_factor or min(3, brokers),
        zookeeper_port=zookeeper_port,
        http_port=http_port,
        listen_port=controller_port,
    )
    view = _view(as_json, process)

    def work() -> int:
        # The loop stays open: closing it would wait for a thread that fetches Kafka.
        return asyncio.Runner().run(_up(options, view, minutes, seed, process.ending))

    process.finish(work)


def _log_to_file(data: Path) -> None:
    """Log to a file, since the live view owns the screen."""
    logging.basicConfig(
        filename=data / "up.log", level="INFO", format="%(asctime)s %(levelname)s %(message)s (%(name)s)"
    )


def _view(as_json: bool, process: LongRunning) -> View:
    from aiocontroller.lab.cli.views import JsonView, PlainView

    if as_json:
        return JsonView(process.errors.write)
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from rich.console import Console

        from aiocontroller.lab.cli.live import LiveView

        return LiveView(Console(file=cast(TextIO, BackgroundFile(process.output))))
    return PlainView()


class _Narrator(logging.Handler):
    """Passes the supervisor's log messages to the view as well."""

    def __init__(self, view: View) -> None:
        super().__init__(logging.INFO)
        self.show = view.progress

    def emit(self, record: logging.LogRecord) -> None:
        self.show(record.getMessage())


async def _up(options: ClusterOptions, view: View, minutes: float | None, seed: int | None, ending: Ending) -> int:
    from aiocontroller.lab.cluster.supervisor import ClusterSupervisor

    began, began_us = time.monotonic(), time.time_ns() // 1000
    stop = asyncio.Event()
    supervisor = ClusterSupervisor(options)
    ending.attach(stop.set, within_s=lambda: supervisor.stop_within_s + 1.0, doing=lambda: "ending the cluster")
    supervisor.claim()
    _log_to_file(options.data_dir)
    narrator = _Narrator(view)
    supervisor_log = logging.getLogger("aiocontroller.lab.cluster.supervisor")
    supervisor_log.addHandler(narrator)
    summary: dict[str, Any] = {"epoch": None, "partitions": {}}
    try:
        with view:
            if await _started(supervisor, stop):
                narrator.show = view.notice
                try:
                    until_s = None if minutes is None else began + 60 * minutes
                    async with _storm(supervisor, seed, view.notice, stop):
                        summary = await _show(supervisor, view, stop, until_s, began_us)
                    supervisor_log.removeHandler(narrator)
                finally:
                    await supervisor.stop()
            summary["duration_s"] = round(time.monotonic() - began, 1)
            _add_journal(summary, options.data_dir, began_us)
            view.summary(summary)
    finally:
        supervisor_log.removeHandler(narrator)
    return 0


@asynccontextmanager
async def _storm(
    supervisor: ClusterSupervisor, seed: int | None, say: Callable[[str], None], stop: asyncio.Event
) -> AsyncIterator[None]:
    """Run strikes during the block if there is a seed; healed at the end, unless the command is being stopped."""
    if seed is None:
        yield
        return
    from aiocontroller.lab.storms.strikes import storm

    over, brokers = asyncio.Event(), range(1, supervisor.options.brokers + 1)
    raging = asyncio.create_task(storm(supervisor.execute, supervisor.wait_until_led, brokers, seed, say, over))
    stopping = asyncio.create_task(stop.wait())
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({raging, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        strikes = f"after {raging.result()} strikes" if raging.done() else "in the middle of a strike"
        raging.cancel()
        say(f"storm: over {strikes}, seed {seed}; data in {_short(supervisor.options.data_dir)}")


async def _started(supervisor: ClusterSupervisor, stop: asyncio.Event) -> bool:
    """Start the cluster; returns False if stopped before everything ran, with nothing left running."""
    starting = asyncio.ensure_future(supervisor.start())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return False
        await starting
        return True
    finally:
        stopping.cancel()


async def _show(
    supervisor: ClusterSupervisor, view: View, stop: asyncio.Event, until_s: float | None, began_us: int
) -> dict[str, Any]:
    from aiocontroller.lab.cli.observer import Observer
    from aiocontroller.lab.cli.tail import JournalTail
    from aiocontroller.lab.cli.views import Facts
    from aiocontroller.net.real import real_world

    view.ready(
        Facts(
            supervisor.zookeeper_address,
            supervisor.bootstrap,
            supervisor.http,
            _short(supervisor.options.data_dir),
        )
    )
    observer = Observer(
        supervisor.zookeeper_address,
        lambda: [supervisor.http] if supervisor.snapshot().controller.running else [],
        JournalTail(supervisor.options.data_dir, began_us),
        real_world(),
    )

    async def look() -> None:
        await observer.start(LOOK_EVERY_S * 20)
        while True:
            view.show(await observer.look())
            await asyncio.sleep(LOOK_EVERY_S)

    # Do not wait for an observation that hangs.
    looking, stopping = asyncio.create_task(look()), asyncio.create_task(stop.wait())
    try:
        left_s = None if until_s is None else max(until_s - time.monotonic(), 0)
        await asyncio.wait({looking, stopping}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            await looking
        return await _last_look(observer)
    finally:
        looking.cancel()
        stopping.cancel()
        await observer.close(LAST_LOOK_WITHIN_S)


async def _last_look(observer: Observer) -> dict[str, Any]:
    try:
        async with asyncio.timeout(LAST_LOOK_WITHIN_S):
            cluster = await observer.cluster()
    except TimeoutError:
        cluster = None
    if cluster is None:
        return {"epoch": None, "partitions": {}}
    return {"epoch": cluster.controller.epoch, "partitions": cluster.counts()}


def _add_journal(summary: dict[str, Any], data: Path, since_us: int) -> None:
    from aiocontroller.journal.reading import journal_files
    from aiocontroller.lab.cli.summary import count_events

    summary["journal"] = _short(data / "controller" / "journal")
    summary.update(count_events(journal_files(data, since_us=since_us)))


def _short(path: Path) -> str:
    """Return the path, relative if it is below the current directory."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
