"""Which mutants of the controller which suites of tests notice: ``scripts/mutate --all``; docs/mutation.md explains.

Everything is kept in a folder (``.mutation``): the recording of which test runs which line, made anew for tests that
have changed or run what has, and each suite's verdict as soon as it is there.  A run that is broken off goes on where
it was.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.real_kafka import kafka_missing
from tests.mutation.mutants import ROOT, Mutant, modules, mutants_of, reasons
from tests.mutation.plugin import Job
from tests.mutation.recording import digest, kept
from tests.mutation.running import (
    LAST_RESORT,
    SUITE_PATHS,
    SUITES,
    Order,
    Result,
    Task,
    end,
    environment,
    pytest_command,
    unasked,
)
from tests.mutation.table import Judged, show

SAMPLE = 200
WITHIN_MINUTES = 60.0
WITHOUT_ZOOKEEPER = {"unit", "simulation"}


def main(arguments: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, end)
    given = _arguments().parse_args(arguments)
    wanted = modules() if given.all else [name.removeprefix("aiocontroller/") for name in given.modules]
    wanted = [name if name.endswith(".py") else f"{name}.py" for name in wanted]
    unknown = sorted(set(wanted) - set(modules()))
    if unknown or not wanted:
        print(f"no such module: {', '.join(unknown)}" if unknown else "name modules, or --all", file=sys.stderr)
        return 2
    suites = given.suites.split(",")
    every = [mutant for name in wanted for mutant in mutants_of(name) if (given.only or "") in mutant.key]
    drawn = draw(every, given.sample or (SAMPLE if given.all else len(every)), given.seed)
    run = Run(given, suites)
    run.judge(drawn)
    known = run.results()
    judged = [
        Judged(m, known[m.key], reasons().get(m.key)) for m in drawn if m.key in known and run.is_done(known[m.key])
    ]
    show(judged, len(drawn), suites, as_json=given.json)
    return int(any(one.unexplained for one in judged))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", help="such as core/reassignment")
    parser.add_argument("--all", action="store_true", help="all modules of core, controller, zookeeper and server")
    sample = f"that many mutants, beside those written by hand (default {SAMPLE} with --all, else all)"
    parser.add_argument("--sample", type=int, metavar="N", help=sample)
    parser.add_argument("--seed", type=int, default=1, help="which ones; a larger sample holds the smaller (default 1)")
    parser.add_argument("--only", metavar="TEXT", help="those whose key contains it, such as 'semantic:'")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (default 1)")
    within = f"begin no mutant after that time (default {WITHIN_MINUTES:.0f}; 0 for no end)"
    parser.add_argument("--within", type=float, default=WITHIN_MINUTES, metavar="MINUTES", help=within)
    parser.add_argument("--first-kill", action="store_true", help="once a suite kills a mutant, ask no other about it")
    parser.add_argument("--suites", default=",".join(SUITES), help=f"of {', '.join(SUITES)}")
    parser.add_argument("--tests", action="append", default=[], metavar="PATH", help="only tests in these files")
    seconds = "how long a suite may take to notice a mutant, by what its tests took without one (default 15)"
    parser.add_argument("--seconds", type=float, default=15, help=seconds)
    parser.add_argument("--again", action="store_true", help="ask once more about those that have survived")
    parser.add_argument("--record", action="store_true", help="record anew which test runs which line")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutation", help="where results are kept")
    return parser


def draw(mutants: list[Mutant], sample: int, seed: int) -> list[Mutant]:
    """Those written by hand, and the first of the others as the seed shuffles them: by their keys, so that a change of
    the program exchanges few."""
    by_hand = [mutant for mutant in mutants if mutant.key.startswith("semantic: ")]
    by_rule = [mutant for mutant in mutants if not mutant.key.startswith("semantic: ")]
    by_rule.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest())
    return [*by_hand, *by_rule[:sample]]


class Run:
    def __init__(self, given: Any, suites: list[str]) -> None:
        self._given = given
        self._suites = suites
        self._folder: Path = given.folder.resolve()
        self._moments = self._folder / "kafkas-moments"
        self._results = self._folder / "results.jsonl"
        self._until = time.time() + 60 * given.within if given.within else 0.0
        self._folder.mkdir(parents=True, exist_ok=True)

    def results(self) -> dict[str, Result]:
        """What is known of mutants in modules that have not changed since; the last word of each suite."""
        found: dict[str, Result] = {}
        digests = {name: digest(name) for name in modules()}
        lines = self._results.read_bytes().splitlines() if self._results.exists() else []
        for line in lines:
            result = msgspec.json.decode(line, type=Result)
            if digests.get(result.module) == result.source:
                earlier = found.get(result.key)
                suites = earlier.suites | result.suites if earlier else result.suites
                found[result.key] = msgspec.structs.replace(result, suites=suites)
        return found

    def is_done(self, result: Result, suites: list[str] | None = None) -> bool:
        return not unasked(suites or self._suites, result.suites, first_kill=self._given.first_kill)

    def judge(self, mutants: list[Mutant]) -> None:
        """Every suite but the last resort first, so that nothing need be recorded of that if all are killed."""
        before = self.results()
        if self._given.again:
            before = {key: result for key, result in before.items() if result.killers}
        early = [suite for suite in self._suites if suite not in LAST_RESORT]
        for suites in [early, self._suites] if early else [self._suites]:
            tasks = [Task(mutant, before[mutant.key].suites if mutant.key in before else {}) for mutant in mutants]
            tasks = [task for task in tasks if unasked(suites, task.verdicts, first_kill=self._given.first_kill)]
            if tasks:
                self._judge(tasks, suites)
            asked = {task.mutant.key for task in tasks}
            before |= {key: result for key, result in self.results().items() if key in asked}

    def _judge(self, tasks: list[Task], suites: list[str]) -> None:
        os.environ["KAFKAS_MOMENTS"] = str(self._moments)
        if "differential" in suites:
            self._ask_kafka()
        zookeeper = None
        if not set(suites) <= WITHOUT_ZOOKEEPER:
            zookeeper = EmbeddedZooKeeper(self._folder / "zookeeper")
            zookeeper.start()
        address = zookeeper.address if zookeeper else ""
        paths = self._given.tests or list(dict.fromkeys(path for suite in suites for path in SUITE_PATHS[suite]))
        try:
            self._record(paths, suites, address)
            given = self._given
            order = Order(tasks, paths, suites, given.first_kill, given.seconds, given.seed, self._until)
            (self._folder / "order.json").write_bytes(msgspec.json.encode(order))
            for name in ("taken", "done"):
                (self._folder / name).write_text("")
            self._watch([self._start("serve", n, address, paths) for n in range(given.jobs)], len(tasks))
        finally:
            if zookeeper:
                zookeeper.stop()

    def _ask_kafka(self) -> None:
        from tests.mutation.kafkas_moments import load

        missing = kafka_missing()
        if missing:
            _say(f"the differential suite has nothing to compare with: {missing}")
        elif not load(self._moments):
            _say("playing the differential scenarios on Kafka's own controller (a minute or two)")
            subprocess.run([sys.executable, "-m", "tests.mutation.kafkas_moments", self._moments], cwd=ROOT, check=True)

    def _record(self, paths: list[str], suites: list[str], zookeeper: str) -> None:
        _, stale = kept(self._folder, paths, suites)
        if not stale:
            return
        _say(f"recording which test runs which line, in {len(stale)} files (some minutes, where much has changed)")
        shares = [stale[n :: self._given.jobs] for n in range(min(self._given.jobs, len(stale)))]
        workers = [self._start("record", n, zookeeper, share, share, suites) for n, share in enumerate(shares)]
        try:
            for worker in workers:
                worker.wait()
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
        recording, left = kept(self._folder, paths, suites)
        if not recording.tests:
            raise SystemExit(f"the tests could not be recorded: {self._folder}/record-*.log")
        if left:
            _say(f"asked nothing, since they could not be recorded, or have changed meanwhile: {', '.join(left)}")
        _say(f"{len(recording.tests)} tests, {sum(recording.seconds):.0f} s; left out: {len(recording.left_out)}")

    def _start(
        self,
        kind: str,
        worker: int,
        zookeeper: str,
        paths: list[str],
        files: Sequence[str] = (),
        suites: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        path = self._folder / f"{kind}-{worker}.json"
        job = Job(kind, str(self._folder), worker, files=[*files], suites=[*suites], zookeeper=zookeeper)
        path.write_bytes(msgspec.json.encode(job))
        with (self._folder / f"{kind}-{worker}.log").open("wb") as log:
            command = pytest_command(path, paths)
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment(path), cwd=ROOT)

    def _watch(self, workers: list[subprocess.Popen[bytes]], count: int) -> None:
        began, shown = time.monotonic(), 0
        try:
            while any(worker.poll() is None for worker in workers):
                time.sleep(0.5)
                done = len((self._folder / "done").read_bytes())
                if done != shown:
                    minutes = (time.monotonic() - began) / 60
                    _say(f"{done} of {count} mutants, {minutes:.0f} min, {minutes / done * (count - done):.0f} to go")
                    shown = done
        except KeyboardInterrupt:
            _say("broken off: the same command goes on from here")
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
