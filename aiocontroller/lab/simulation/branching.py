"""Forks a run, by ``os.fork``, into several futures where it reaches a rare mark.

A simulation is one process and one thread, and uses neither files nor sockets, so a copy of its process can continue
with other random numbers.  Its report names the recipe: a run of the plan with these forks gives the same one.

The futures of a place run one after another, so a run has at most one other process and twice the memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection
from typing import NoReturn

import msgspec

from aiocontroller.lab.cluster.processes import die_with_parent
from aiocontroller.lab.scenarios.forks import Fork, format_forks, parse_forks
from aiocontroller.lab.scenarios.plan import Plan
from aiocontroller.lab.simulation.chance import Lookout
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.lab.virtual_loop import run

PLACES = 2
"""Places of a run at which it forks."""
LONGEST_S = 600
"""A future that takes longer, by the wall clock, hangs."""


def failed(plan: Plan, why: str) -> SimulationReport:
    """Return the report of a run that did not come to its end."""
    return SimulationReport(plan.seed, [f"bug: {why}"], 0.0, 0, 0, 0, 0, {}, {}, "", plan.forks)


class Branching:
    """One run with its forks."""

    def __init__(
        self,
        plan: Plan,
        common: Collection[str],
        futures: int,
        judged: Collection[str] = (),
        *,
        longest_s: int = LONGEST_S,
    ) -> None:
        self._plan, self._common, self._judged = plan, common, judged
        self._futures = futures
        self._longest_s = longest_s
        self._places = 0
        self._reports: list[SimulationReport] = []
        self._report_to = 0
        """In a child the file descriptor of the pipe to its parent."""

    def run(self) -> list[SimulationReport]:
        """Return the reports of the futures in the order of their forks, and then that of the plan itself."""
        try:
            report = run(Simulation(self._plan, judged=self._judged, lookout=self._lookout()).run())
        except BaseException as error:
            if not self._report_to and not isinstance(error, Exception):
                raise
            report = failed(self._plan, f"the simulation itself ended with {error!r}")
        if self._report_to:
            self._end(report)
        return [*self._reports, report]

    def _lookout(self) -> Lookout:
        return Lookout(self._common, self._fork)

    def _fork(self, number: int) -> Fork | None:
        """Run futures from this await point to their ends; return a fork in their processes, None in this one."""
        if self._report_to or self._places == PLACES:
            return None
        self._places += 1
        loop = asyncio.get_running_loop()
        for branch in range(1, self._futures + 1):
            fork = Fork(number, branch)
            plan = msgspec.structs.replace(self._plan, forks=format_forks([*parse_forks(self._plan.forks), fork]))
            reader, writer = os.pipe()
            if (child := os.fork()) == 0:
                os.close(reader)
                die_with_parent()
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(self._longest_s)
                asyncio._set_running_loop(loop)  # which os.fork has reset
                self._plan, self._report_to = plan, writer
                return fork
            os.close(writer)
            self._reports.append(self._result(child, reader, plan))
        return None

    def _result(self, child: int, reader: int, plan: Plan) -> SimulationReport:
        with open(reader, "rb") as pipe:
            content = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return msgspec.json.decode(content, type=SimulationReport)
        why = f"took longer than {self._longest_s} s" if code == -signal.SIGALRM else f"ended with code {code}"
        return failed(plan, f"the process of this future {why}")

    def _end(self, report: SimulationReport) -> NoReturn:
        """Report to the parent, and exit without running the parent's cleanup."""
        code = 1
        try:
            with open(self._report_to, "wb") as pipe:
                pipe.write(msgspec.json.encode(report))
            code = 0
        finally:
            os._exit(code)
