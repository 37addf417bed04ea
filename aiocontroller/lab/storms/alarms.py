"""``aiocontroller storm alarms``: what false alarms of early detection cost, on real brokers and with real clients.

Each case (``lab.kafka.alarm_cases``) stops or cuts off a live process, and kills a broker in the middle of that.  Both
controllers are restarted before each case and have run for ``uptime`` seconds when it begins.  It is a violation if an
acknowledged record is lost, doubled or out of order, or if a case misses a goal: it has a stall of more than a second
beyond the one that the fault itself causes, or the kill is detected after more than a second.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from aiocontroller.lab.cluster.load.clients import kept_its_word, now_us
from aiocontroller.lab.cluster.load.tally import LoadVerdict
from aiocontroller.lab.kafka.alarm_cases import Case, Outcome, misses_of
from aiocontroller.lab.kafka.alarm_stage import KILLED, STRUCK, AlarmStage, alarm_stage
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.leadership_watch import POLL_S, LeadershipWatch
from aiocontroller.lab.kafka.report import verdict_lines

SETTLE_S = 0.3
"""The measurement continues for this time, to include a stall that begins late."""
OVER_WITHIN_S = 120.0


class Options(NamedTuple):
    cases: Sequence[Case]
    uptimes_s: Sequence[float]
    clients: Sequence[str]
    partitions: int
    """Partitions of each client's topic."""
    version: str
    """Kafka's version."""
    properties: Mapping[str, str]
    """Properties of aiocontroller."""


class Report(msgspec.Struct):
    version: str
    properties: dict[str, str]
    outcomes: list[Outcome]
    verdicts: dict[str, LoadVerdict]
    """Verdicts by kind of client."""
    unfinished: str
    """The reason if the suite ended early; otherwise empty."""

    @property
    def ok(self) -> bool:
        missed = any(outcome.misses for outcome in self.outcomes)
        return kept_its_word(self.verdicts) and not missed and not self.unfinished


class Played(NamedTuple):
    """A case, its outcome except for lost records, and when it was played."""

    case: Case
    outcome: Outcome
    since_us: int
    until_us: int


class AlarmSuite:
    def __init__(self, stage: AlarmStage, options: Options, console: Console) -> None:
        self.stage = stage
        self.played: list[Played] = []
        self._options = options
        self._console = console
        self._started_s = time.monotonic()

    async def run(self) -> None:
        cases = [(uptime_s, case) for uptime_s in self._options.uptimes_s for case in self._options.cases]
        for number, (uptime_s, case) in enumerate(cases, 1):
            self._say(f"{number} of {len(cases)}: {case.name}, after {uptime_s:g} s")
            await self.stage.begin_term()
            await self.stage.cluster.heal()
            await asyncio.sleep(max(0.0, self.stage.since_s + uptime_s - time.monotonic()))
            self.played.append(await self.play(case, uptime_s))
            self._say(outcome_line(self.played[-1].outcome))
            await self.stage.cluster.heal()

    async def play(self, case: Case, uptime_s: float) -> Played:
        """Play one case: strike, kill in the middle, wait until the rest of the cluster is whole, and measure."""
        stage, cluster = self.stage, self.stage.cluster
        replicas = dict(cluster.made())
        watch = LeadershipWatch(sorted(replicas))
        await watch.read(stage.zk)
        led, doomed = set(watch.led_by(STRUCK)), watch.led_by(KILLED)
        watching = asyncio.create_task(watch.run(stage.zk))
        try:
            since_us = now_us()
            striking = asyncio.create_task(self._strike(case))
            await asyncio.sleep(case.seconds / 2)
            killed_s = time.monotonic()
            await asyncio.to_thread(cluster.brokers[KILLED].kill)
            detected_s = await _moved_after_s(watch, doomed, killed_s)
            ended_s = await striking
            await until(_whole(watch, replicas), "every replica but the killed broker's is in sync", OVER_WITHIN_S)
            whole_s = time.monotonic()
            await cluster.load.settled()
            await asyncio.sleep(SETTLE_S)
        finally:
            watching.cancel()
        until_us = now_us()
        gaps_us = cluster.load.longest_gaps_us(since_us, until_us)
        stalls_s = {"led": 0.0, "others": 0.0, "killed": 0.0}
        for key, gap_us in gaps_us.items():
            whose = "killed" if KILLED in replicas[key] else "led" if key in led else "others"
            stalls_s[whose] = max(stalls_s[whose], gap_us / 1e6)
        outcome = Outcome(
            case=case.name,
            uptime_s=uptime_s,
            alarms=sum(broker != KILLED for broker in stage.alarms()),
            moves=max((watch.moves.get(key, 0) for key in replicas if KILLED not in replicas[key]), default=0),
            outside_s=watch.outside_s(STRUCK, whole_s),
            outside_after_s=watch.outside_s(STRUCK, whole_s, since_s=ended_s),
            stall_led_s=stalls_s["led"],
            stall_others_s=stalls_s["others"],
            stall_killed_s=stalls_s["killed"],
            detected_s=detected_s,
            lost=0,
            load=os.getloadavg()[0],
        )
        return Played(case, msgspec.structs.replace(outcome, misses=misses_of(outcome, case)), since_us, until_us)

    async def _strike(self, case: Case) -> float:
        """Carry out the fault; returns the time at which it ended."""
        began_s = time.monotonic()
        for at_s, begins in case.edges_s():
            await asyncio.sleep(max(0.0, began_s + at_s - time.monotonic()))
            (self.stage.begin if begins else self.stage.end)(case.fault)
        return time.monotonic()

    def _say(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._started_s:6.0f} s  {text}", markup=False)


async def _moved_after_s(watch: LeadershipWatch, doomed: Sequence[tuple[str, int]], killed_s: float) -> float:
    async def moved() -> bool:
        return all(watch.states[key].leader not in (KILLED, -1) for key in doomed)

    await until(moved, "the killed broker's partitions have other leaders", OVER_WITHIN_S)
    return time.monotonic() - killed_s - POLL_S / 2


def _whole(
    watch: LeadershipWatch, replicas: dict[tuple[str, int], tuple[int, ...]]
) -> Callable[[], Coroutine[None, None, bool]]:
    async def is_whole() -> bool:
        return watch.whole_without((KILLED,), replicas)

    return is_whole


async def storm(options: Options, folder: Path, console: Console) -> Report:
    """Play every case at every uptime in one new cluster, whose files are in the folder."""
    started = alarm_stage(folder, options.version, options.clients, options.partitions, options.properties)
    async with started as stage:
        console.print(f"four Kafka {options.version} brokers are up; {' and '.join(options.clients)} clients write")
        suite = AlarmSuite(stage, options, console)
        unfinished = ""
        try:
            await suite.run()
        except (TimeoutError, AssertionError) as error:
            unfinished = str(error)
            console.print(f"the suite ends early: {error}", style="red", markup=False)
            for broker in stage.cluster.brokers.values():
                broker.resume()
        tallies = [client.tally for client in stage.cluster.load.clients]
        verdicts = await stage.cluster.load.finish()
        outcomes = []
        for case, outcome, since_us, until_us in suite.played:
            lost = sum(tally.lost_between(since_us, until_us) for tally in tallies)
            outcome = msgspec.structs.replace(outcome, lost=lost)
            outcomes.append(msgspec.structs.replace(outcome, misses=misses_of(outcome, case)))
        return Report(options.version, dict(options.properties), outcomes, verdicts, unfinished)


def outcome_line(outcome: Outcome) -> str:
    stalls = f"{outcome.stall_led_s:.2f} / {outcome.stall_others_s:.2f} / {outcome.stall_killed_s:.2f}"
    missed = f"; missed: {'; '.join(outcome.misses)}" if outcome.misses else ""
    return (
        f"alarms {outcome.alarms}, moves {outcome.moves}, outside {outcome.outside_s:.2f} s, "
        f"stalls (led / others / killed) {stalls} s, kill detected after {outcome.detected_s:.2f} s{missed}"
    )


def alarm_table(outcomes: Sequence[Outcome], title: str) -> Table:
    table = Table(title=title, caption="seconds; stalls are the longest time without an acknowledged record")
    table.add_column("uptime", justify="right")
    table.add_column("case", no_wrap=True)
    for heading in (
        "false\nalarms",
        "leader\nmoves",
        "outside\nISR",
        "after\nthe fault",
        "stall:\nled",
        "stall:\nothers",
        "stall:\nkilled",
        "kill\ndetected",
        "records\nlost",
        "load",
    ):
        table.add_column(heading, justify="right")
    for o in outcomes:
        times = (o.outside_s, o.outside_after_s, o.stall_led_s, o.stall_others_s, o.stall_killed_s, o.detected_s)
        cells = [str(o.alarms), str(o.moves), *(f"{t:.2f}" for t in times), str(o.lost), f"{o.load:.1f}"]
        table.add_row(f"{o.uptime_s:g}", o.case + (" *" if o.misses else ""), *cells)
    return table


def show(report: Report, console: Console) -> None:
    console.print(
        alarm_table(report.outcomes, f"Kafka {report.version}: pauses and cuts, a kill in the middle of each")
    )
    for line in verdict_lines(report.verdicts):
        console.print(line, markup=False)
    for outcome in report.outcomes:
        for miss in outcome.misses:
            console.print(f"* {outcome.case}, after {outcome.uptime_s:g} s: {miss}", style="red", markup=False)
