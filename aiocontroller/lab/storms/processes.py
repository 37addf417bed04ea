"""A storm: faults from a seed against real processes, in rounds.

A round takes about twenty steps, drawn from the seed and the round's number.  Then the storm heals everything, the
cluster must become whole within bounded time, and the checkers examine what ZooKeeper, brokers and controllers have
recorded (``replay``).  So each violation is assigned to a round, and a lost watch is not hidden by the next change.

The seed determines the steps and their times, but not how the operating system interleaves the processes: violations
are found in the records, and may be reproduced as a scenario in the simulation.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from aiocontroller.journal.records import Record
from aiocontroller.lab.processes.cluster import Actor, ProcessCluster, Shape
from aiocontroller.lab.processes.measures import Span, Times
from aiocontroller.lab.processes.recovery_checks import process_missing
from aiocontroller.lab.processes.replay import Replay
from aiocontroller.lab.processes.steps import ProcessSteps
from aiocontroller.lab.scenarios.plan import ScenarioStep

ROUND_S = 25.0
WHOLE_WITHIN_S = 120.0
QUIET_S = 1.0
"""A whole cluster must still be whole after this time, without any writes meanwhile."""
FIRST_TOPICS = 3
PAUSES_S = (0.0, 0.05, 0.3, 1.0, 2.0)

WEIGHTS = {
    "create_topic": 6,
    "delete_topic": 4,
    "add_partitions": 1,
    "reassign": 5,
    "reassign_by_znode": 3,
    "cancel_reassignment": 1,
    "elect_preferred": 1,
    "elect_by_znode": 1,
    "notify_isr_change": 1,
    "kill_broker": 4,
    "stop_broker": 2,
    "bounce_broker": 2,
    "fail_log_dir": 1,
    "expire_broker": 2,
    "pause_broker": 3,
    "cut_broker": 2,
    "kill_controller": 3,
    "stop_controller": 2,
    "expire_controller": 3,
    "pause_controller": 3,
    "cut_controller": 3,
    "delete_controller_znode": 1,
    "rewrite_controller_epoch": 1,
    "trap_controller": 4,
    "block": 2,
    "block_brokers": 1,
    "lag": 2,
    "restart_zookeeper": 2,
    "pause_zookeeper": 2,
    "jump_clock": 1,
    "fill_disk": 1,
    "free_disk": 1,
    "start_broker": 8,
    "start_controller": 8,
    "heal": 3,
    "wait": 3,
}
"""How often each kind of step is drawn; each round omits a quarter of the faults, at random."""
ALWAYS = frozenset({"create_topic", "reassign", "start_broker", "start_controller", "heal", "wait"})


class Moment(msgspec.Struct, frozen=True):
    """A step or a milestone, ``at_s`` after the start."""

    at_s: float
    what: str


class StormVerdict(msgspec.Struct, frozen=True):
    """The result of a storm; ``examined`` counts what the checkers saw."""

    seed: int
    seconds: float
    rounds: int
    brokers: int
    controllers: int
    ensemble: bool
    faults: dict[str, int]
    failovers: int
    times: list[Times]
    violations: list[str]
    examined: dict[str, int]
    suspicions: dict[str, int] = {}
    """The actions of early detection, such as ``broker: alarm`` (docs/journal.md).

    A false alarm may concern a broker that the storm suspended or cut off and that came back.
    """
    moments: list[Moment] = []
    spans: list[Span] = []
    began_ms: int = 0

    @property
    def ok(self) -> bool:
        return not self.violations


def draw_round(
    seed: int,
    number: int,
    of: Mapping[str, int] = WEIGHTS,
    *,
    pauses_s: Sequence[float] = PAUSES_S,
    pausing_s: float = ROUND_S * 0.6,
) -> list[ScenarioStep]:
    """Draw the steps of a round, independent of earlier rounds: kinds and their weights are those of ``of``, and the
    pauses together make ``pausing_s`` or a little more."""
    chance = random.Random(f"storm {seed} {number}")
    kinds = [kind for kind in of if kind in ALWAYS or chance.random() < 0.75]
    weights = [of[kind] for kind in kinds]
    steps: list[ScenarioStep] = []
    while sum(step.pause_s for step in steps) < pausing_s:
        kind = chance.choices(kinds, weights)[0]
        steps.append(ScenarioStep(kind, chance.randrange(1 << 32), chance.choice(pauses_s)))
    return steps


class Storm:
    """Runs once.  ``steps`` are played as the only round; without them, rounds are drawn until time is up."""

    def __init__(
        self,
        shape: Shape,
        seed: int,
        seconds: float,
        *,
        steps: Sequence[ScenarioStep] = (),
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.cluster = ProcessCluster(shape)
        self.seed = seed
        self.seconds = seconds
        self._scenario = steps
        self._show_progress = progress
        self._steps: ProcessSteps
        self._replay: Replay
        self._moments: list[Moment] = []
        self._problems: list[str] = []
        self._healed_s: list[float] = []
        self._began_s = 0.0
        self._began_ms = 0

    async def run(self) -> StormVerdict:
        """Play the storm and judge it."""
        return self._verdict(await self._play())

    async def _play(self) -> int:
        """Play the rounds; returns their number."""
        self._show_progress("starting the processes")
        async with self.cluster as cluster:
            self._steps = ProcessSteps(cluster)
            self._replay = Replay(
                [server.data_dir / "data" for server in cluster.servers],
                [actor.folder for actor in cluster.brokers.values()],
                [actor.folder for actor in cluster.controllers.values()],
            )
            self._began_s, self._began_ms = time.monotonic(), time.time_ns() // 1_000_000
            if not self._scenario:
                for number in range(FIRST_TOPICS):
                    await self._steps.take(ScenarioStep("create_topic", self.seed + number, 0.0))
            await self._must_become_whole()
            rounds = 0
            while not self._problems and not self._time_is_up(rounds):
                rounds += 1
                await self._round(rounds, self._scenario or self._drawn(rounds))
            return rounds

    def _time_is_up(self, rounds: int) -> bool:
        return rounds > 0 and (bool(self._scenario) or self._passed_s >= self.seconds)

    def _drawn(self, number: int) -> list[ScenarioStep]:
        return draw_round(self.seed, number)

    @property
    def _passed_s(self) -> float:
        return time.monotonic() - self._began_s

    async def _round(self, number: int, steps: Sequence[ScenarioStep]) -> None:
        for step in steps:
            self._moments.append(Moment(round(self._passed_s, 2), str(step)))
            await self._steps.take(step)
            self._look_for_the_fallen()
        self._problems += self._steps.problems
        self._moments.append(Moment(round(self._passed_s, 2), "all healed"))
        healing_s = self._passed_s
        await self._steps.heal_everything()
        if await self._must_become_whole():
            self._healed_s.append(self._passed_s - healing_s - QUIET_S)
            self._moments.append(Moment(round(self._passed_s, 2), "whole"))
        self._problems += [wrong for wrong in await self._violations() if wrong not in self._problems]
        self._show_progress(
            f"{self._passed_s / 60:5.1f} min  round {number}: {len(steps)} steps, "
            f"whole after {self._healed_s[-1] if self._healed_s else float('nan'):.1f} s, "
            f"controller epoch {self._replay.history.controller_epoch}, violations: {len(self._problems)}"
        )

    def _look_for_the_fallen(self) -> None:
        """Report processes that ended without a request to.

        A broker whose id is taken exits on purpose, as Kafka's does.
        """
        for actor in [*self.cluster.brokers.values(), *self.cluster.controllers.values()]:
            if actor.meant_to_run and not actor.running:
                actor.meant_to_run = False
                assert actor.child is not None
                tail = actor.child.log_tail(40)
                if "BrokerIdInUseError" not in tail:
                    self._problems.append(f"bug: {actor.name} ended with {actor.child.exit_code}: {_last_line(tail)}")

    async def _violations(self) -> list[str]:
        return await asyncio.to_thread(self._replay.violations) + self._tracebacks()

    def _tracebacks(self) -> list[str]:
        return [
            f"bug: {actor.name} logged a traceback: {actor.folder / 'log'}"
            for actor in self.cluster.controllers.values()
            if "Traceback (most recent call last)" in _read(actor)
        ]

    # -- the healing phase -----------------------------------------------------------------------------------------

    async def _must_become_whole(self) -> bool:
        """Wait until the cluster is whole and still is after QUIET_S without writes."""
        deadline_s = self._passed_s + WHOLE_WITHIN_S
        quiet_since_s, writes = 0.0, -1
        while True:
            await asyncio.to_thread(self._replay.read)
            history = self._replay.history
            missing = await process_missing(self.cluster, history)
            if missing or history.writes != writes:
                quiet_since_s, writes = self._passed_s, history.writes
            elif self._passed_s - quiet_since_s >= QUIET_S:
                return True
            if self._passed_s > deadline_s:
                missing = missing or ["I9: states are still being written in a cluster that is whole"]
                self._problems += [f"after {WHOLE_WITHIN_S:.0f} s of peace: {problem}" for problem in missing[:10]]
                return False
            self._look_for_the_fallen()
            await self._raise_the_dead()
            await asyncio.sleep(0.2)

    async def _raise_the_dead(self) -> None:
        """Restart brokers with a failed disk, which would need an operator."""
        for number, actor in self.cluster.brokers.items():
            try:
                status = await self.cluster.broker_status(number) if actor.running else None
            except (OSError, TimeoutError):
                continue
            if status is not None and status.failed:
                actor.kill()
                status = None
            if status is None:
                await self._steps.take(ScenarioStep("start_broker", 0, 0.0, (str(number),)))
                await self._steps.settle()

    # -- the verdict -----------------------------------------------------------------------------------------------

    def _verdict(self, rounds: int) -> StormVerdict:
        shape, replay = self.cluster.shape, self._replay
        journals = list(replay.journals())
        records = [record for journal in journals for record in journal]
        return StormVerdict(
            self.seed,
            round(self._passed_s, 1),
            rounds,
            shape.brokers,
            shape.controllers,
            shape.ensemble,
            dict(sorted(self._steps.taken.items())),
            sum(record.kind == "elected" for record in records),
            [
                *replay.measures.times(),
                Times.of("won → failover complete", [ms for journal in journals for ms in _failovers_ms(journal)]),
                Times.of("all healed → cluster whole", [1000 * seconds for seconds in self._healed_s]),
            ],
            self._problems,
            {
                "transactions of ZooKeeper": replay.transactions,
                "partition states written": replay.history.writes,
                "observations of brokers": replay.observations,
                "journal records": len(records),
                "controller processes": len(journals),
            },
            _suspicions(records),
            self._moments,
            replay.measures.all_spans(),
            self._began_ms,
        )


def _failovers_ms(journal: Sequence[Record]) -> list[float]:
    """Return the duration of each term's failover, the sum of its steps."""
    taken: dict[int, float] = {}
    for record in journal:
        if record.kind == "failover":
            taken[record.epoch] = taken.get(record.epoch, 0.0) + (record.duration_us or 0) / 1000
    return list(taken.values())


def _suspicions(records: Sequence[Record]) -> dict[str, int]:
    counts = Counter(f"{record.state}: {record.event}" for record in records if record.kind == "suspicion")
    return dict(sorted(counts.items()))


def _read(actor: Actor) -> str:
    path: Path = actor.folder / "log"
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
