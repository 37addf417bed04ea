"""One rehearsal: a staged cluster in the simulation, and all events that happen to it, one after the other.

The cluster begins in the state of the tree: with its epochs, leaders and ISRs, and without the brokers that were down.
Brokers' logs begin empty, and clients fill them.  The seed draws the order of the events, of which a migration to KRaft
is the last.  Between two events moved replicas return and preferred replicas lead again, so that each event meets the
same cluster.  In a quarter of the other events the controller dies at some moment, too.  At the end everything returns,
and the simulation's checks must hold.

A rehearsal is a function of the stage, the moves and the seed.

Kafka's own controller is not simulated: where it would be active, a broker holds the role and does nothing with it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from aiocontroller.check.rules import MIN_ISR, UNCLEAN, is_true
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import Release, RollBack, TakeOver
from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.checkers.leaderless import LeaderWatch
from aiocontroller.lab.cluster.simulated_kraft import SimulatedKRaft
from aiocontroller.lab.rehearsal.meter import Meter, Went
from aiocontroller.lab.rehearsal.stage import Stage, Staged
from aiocontroller.lab.scenarios.plan import Plan, ScenarioStep
from aiocontroller.lab.simulation.process import Process
from aiocontroller.lab.simulation.simulation import SESSION_TIMEOUT_MS, Simulation
from aiocontroller.lab.virtual_loop import run
from aiocontroller.net.ports import World
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient

CLIENTS = 3
CONTROLLERS = 2
POLL_S = 0.1
CALM_POLLS = 3
CALM_WITHIN_S = 120.0
AWAY_S = (5.0, 8.0, 12.0)
"""How long a killed broker stays down; its session expires after ``SESSION_TIMEOUT_MS``."""
SECOND_DEATH = 0.25
"""The share of events in which the controller dies, too."""
CONTROLLER_AWAY_S = 6.0
IN_OFFICE_S = 4.0
"""How long a broker or a KRaft controller holds the role."""
MOST_MOVES = 10
PREFERRED_WITHIN_S = 10.0
SESSION_S = SESSION_TIMEOUT_MS / 1000

KRAFT_EPOCHS_ABOVE = 50
"""A KRaft quorum's epoch is up to this much above ``/controller_epoch`` at its claim."""

FAILOVER, DEATH, RESTARTS, MOVES, ROLE, MIGRATION = "failover", "death", "restarts", "moves", "role", "migration"
SECOND_DEATH_IN = (DEATH, RESTARTS, MOVES)

Moves = Mapping[TopicPartition, tuple[int, ...]]
"""Targets of a reassignment, with the simulation's broker numbers; empty: they are drawn."""


class Event(NamedTuple):
    """``broker`` is the simulation's number of the broker that dies, if one does."""

    kind: str
    broker: int = 0


class Result(msgspec.Struct, frozen=True):
    """The effect of an event."""

    event: Event
    went: Went
    seconds: float
    """Time until the cluster was calm again, in the simulation's time."""
    also: str
    """What else happened; empty if nothing."""
    violations: tuple[str, ...]


class Rehearsed(msgspec.Struct, frozen=True):
    """One seed; the results are in the order of ``events``, not in that of the run."""

    seed: int
    results: tuple[Result, ...]
    violations: tuple[str, ...]
    """Those of the events, and those found after everything had returned."""
    virtual_s: float
    digest: str


def events(stage: Stage, moves: Moves) -> list[Event]:
    """Return all events of a rehearsal.

    Without moves if no replica has another broker to go to; without a migration if brokers are missing.
    """
    deaths = [Event(DEATH, number) for number in sorted(stage.alive)]
    moving = [Event(MOVES)] if moves or any(_can_move(staged, stage) for staged in stage.partitions) else []
    migrating = [] if stage.missing else [Event(MIGRATION)]
    return [Event(FAILOVER), *deaths, Event(RESTARTS), *moving, Event(ROLE), *migrating]


def _can_move(staged: Staged, stage: Stage) -> bool:
    replicas = set(staged.assignment.replicas)
    return not staged.assignment.being_reassigned and replicas < stage.alive


def rehearse(stage: Stage, moves: Moves, seed: int) -> Rehearsed:
    """Play one seed."""
    rehearsal = _Rehearsal(stage, moves, seed)
    report = run(rehearsal.run())
    found = {result.event: result for result in rehearsal.results}
    return Rehearsed(
        seed,
        tuple(found[event] for event in events(stage, moves) if event in found),
        tuple(report.violations),
        report.virtual_s,
        report.digest,
    )


def _plan(stage: Stage, seed: int) -> Plan:
    unclean = "true" if is_true(stage.defaults, UNCLEAN) else "false"
    return Plan(
        seed,
        brokers=len(stage.brokers),
        controllers=CONTROLLERS,
        shared_id=False,
        takeover=False,
        steps=(),
        settings=((UNCLEAN, unclean), (MIN_ISR, stage.defaults.get(MIN_ISR, "1").strip())),
        data=True,
        clients=CLIENTS,
        warm=True,
        task_order=True,
    )


class _Rehearsal(Simulation):
    def __init__(self, stage: Stage, moves: Moves, seed: int) -> None:
        super().__init__(_plan(stage, seed))
        self._stage, self._moves = stage, moves
        self._draw = random.Random(f"rehearsal {seed}")
        self._meter = Meter(self, stage.partitions)
        self.leader_watch = LeaderWatch(self, deaths=3 * len(stage.alive))  # some coincide with the controller's
        self._moved: set[TopicPartition] = set()
        """Partitions that the reassignment has moved; membership only."""
        self._wrong: list[str] = []
        """What went wrong in this event."""
        self.results: list[Result] = []
        self._kraft: tuple[SimulatedKRaft, Process] | None = None

    # -- the cluster as the tree says ------------------------------------------------------------------------------

    async def _start_cluster(self) -> None:
        self.model.begin_with(self._stage.znodes(), self.zookeeper.now_ms())
        self.steps.topics = {topic.topic: max(topic.partitions) + 1 for topic in self._stage.topics}
        for broker in sorted(self._stage.alive):
            self.start_broker(broker)
        await self._until(lambda: self._stage.alive <= self.history.registered, "the brokers have registered")
        for controller in range(1, CONTROLLERS + 1):
            self.start_controller(controller)
        await self._calm("the beginning")
        assert self.data is not None
        self.data.start_clients()
        self.leader_watch.start()
        self._meter.start()
        found = events(self._stage, self._moves)
        order = [event for event in found if event.kind != MIGRATION]
        self._draw.shuffle(order)
        order += [event for event in found if event.kind == MIGRATION]
        for event in order:
            await self._restore()
            if self.violations() or self._wrong:
                break
            self.results.append(await self._play(event))
        self.problems += self._wrong

    # -- one event -------------------------------------------------------------------------------------------------

    async def _play(self, event: Event) -> Result:
        began_s, before = self.clock.monotonic(), len(self.violations())
        second_s = self._draw.uniform(0.0, 5.0) if self._draw.random() < SECOND_DEATH else None
        plays: dict[str, Callable[[], Awaitable[None]]] = {
            FAILOVER: self._fail_over,
            DEATH: lambda: self._die(event.broker),
            RESTARTS: self._restart_all,
            MOVES: self._move,
            ROLE: self._give_and_take,
            MIGRATION: self._migrate,
        }
        self._meter.begin()
        also = ""
        if second_s is None or event.kind not in SECOND_DEATH_IN:
            await plays[event.kind]()
        else:
            also = f"the controller died after {second_s:.1f} s"
            second = asyncio.ensure_future(self._kill_controller(second_s))
            await plays[event.kind]()
            await second
        await self._calm("an event")
        went = self._meter.end()
        wrong = (*self.violations()[before:], *self._wrong)
        return Result(event, went, round(self.clock.monotonic() - began_s, 1), also, wrong)

    async def _restore(self) -> None:
        """Bring replicas and leaders back to where they were, as far as possible."""
        targets = {staged.name: staged.assignment.target for staged in self._stage.partitions}
        assigned = self.history.assigned
        if moved := {tp: to for tp, to in targets.items() if tp in self._moved and assigned[tp] != frozenset(to)}:
            await self._reassign(moved, "the replicas are back")
            await self._calm("their return")
        running, states = self._meter.running(), self.history.states

        def astray() -> list[str]:
            """Return the partitions whose preferred replica could lead, but does not."""
            return [
                str(tp)
                for tp, (first, *_) in targets.items()
                if first in running and tp in states and states[tp].leader != first and first in states[tp].isr
            ]

        if names := astray():
            await self.steps.take(ScenarioStep("elect_preferred", 0, POLL_S, tuple(names)))
            until_s = self.clock.monotonic() + PREFERRED_WITHIN_S
            while astray() and self.clock.monotonic() < until_s:
                await self.clock.sleep(POLL_S)
            await self._calm("the election of preferred leaders")

    async def _kill_controller(self, after_s: float) -> None:
        """Kill the active controller, and start it again some time later."""
        await self.clock.sleep(after_s)
        holder = self.holder()
        if holder is None or holder not in self.controllers:
            return
        self.kill(self.controllers.pop(holder)[1])
        await self.clock.sleep(CONTROLLER_AWAY_S)
        self.start_controller(holder)

    async def _fail_over(self) -> None:
        await self._kill_controller(0.0)
        await self._until(self._ruled, "a controller is active")

    async def _die(self, broker: int) -> None:
        self.kill(self.brokers.pop(broker)[1])
        await self.clock.sleep(self._draw.choice(AWAY_S))
        self.start_broker(broker)
        await self._until(lambda: broker in self.brokers and broker in self.history.registered, "it is back")

    async def _restart_all(self) -> None:
        """Restart one broker after the other by a controlled shutdown, waiting after each until the cluster is calm."""
        for broker in sorted(self._stage.alive):
            await self._restart(broker)

    async def _restart(self, broker: int) -> None:
        made, process = self.brokers.pop(broker)
        made.stop()
        await self._until(process.task.done, f"broker {broker} has shut down")
        self.start_broker(broker)
        await self._until(lambda: broker in self.brokers, f"broker {broker} is back")
        await self._calm("a restart")

    async def _move(self) -> None:
        moves = self._moves or self._drawn_moves()
        self._moved = set(moves)
        await self._reassign(moves, "the replicas have moved")

    async def _reassign(self, moves: Moves, what: str) -> None:
        self.steps.reassign(dict(moves))

        def moved() -> bool:
            return all(self.history.assigned[tp] == frozenset(target) for tp, target in moves.items())

        await self._until(moved, what, again=lambda: self.steps.reassign(dict(moves)))

    def _drawn_moves(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Draw some partitions, and for each of them one replica that moves to another live broker."""
        moves = {}
        able = [staged for staged in self._stage.partitions if _can_move(staged, self._stage)]
        for staged in self._draw.sample(able, min(MOST_MOVES, len(able))):
            replicas = staged.assignment.replicas
            leaving = self._draw.choice(replicas)
            coming = self._draw.choice(sorted(self._stage.alive.difference(replicas)))
            moves[staged.name] = tuple(coming if broker == leaving else broker for broker in replicas)
        return moves

    async def _give_and_take(self) -> None:
        """Stop the standby, release the role to a broker, and take it back some time later."""
        await self._until(self._ruled, "a controller is active")
        holder = self.holder()
        assert holder is not None
        standby = next(number for number in self.controllers if number != holder)
        self.controllers.pop(standby)[0].stop()
        service = self.controllers[holder][0]
        service.queue.append(Release(reply=Reply(lambda _: None)))
        await self._until(lambda: paths.CONTROLLER not in self.model.tree.nodes, "the role is released")
        broker = self._draw.choice(sorted(self.brokers))
        await self.brokers[broker][0].claim_role()
        await self.clock.sleep(IN_OFFICE_S)
        service.queue.append(TakeOver(reply=Reply(self._taken_over)))
        await self._until(lambda: self.holder() == holder, "the role is taken over")
        self.start_controller(standby)

    def _taken_over(self, reasons: Any) -> None:
        self._wrong += [f"the takeover was refused: {getattr(reason, 'text', reason)}" for reason in reasons or ()]

    # -- the migration ---------------------------------------------------------------------------------------------

    async def _migrate(self) -> None:
        """Migrate until ZooKeeper and KRaft are both written, and roll back; ends early if something is wrong."""
        phases = (
            self._provision,
            self._restart_all,
            self._be_claimed,
            self._restart_one,
            self._roll_back,
            self._restart_all,
        )
        for phase in phases:
            await phase()
            if self._wrong or self.violations():
                return

    async def _provision(self) -> None:
        """Start the KRaft controller, and have this one keep the role for it."""
        epoch = self.history.controller_epoch + self._draw.randint(2, KRAFT_EPOCHS_ABOVE)

        async def serve(world: World) -> None:
            kraft = SimulatedKRaft(world, self.zookeeper_connect, epoch=epoch, session_timeout_s=SESSION_S)
            self._kraft = kraft, process
            await kraft.run()

        process = self._start("kraft", serve)
        await self._until(lambda: paths.MIGRATION in self.model.tree.nodes, "the KRaft controller is provisioned")
        assert self._kraft is not None
        self.quorum = self._kraft[0].voters
        holder = self.holder()
        assert holder is not None
        self.controllers[holder][0].queue.append(Release(to_kraft=True, reply=Reply(lambda _: None)))

    async def _be_claimed(self) -> None:
        await self._until(self._kraft_leads, "the KRaft controller has claimed the cluster")
        if active := self._active():  # a watch has told them of the claim half a second ago
            self._wrong.append(f"controller {active[0]} has not stepped aside for the KRaft controller")
        await self.clock.sleep(IN_OFFICE_S)
        await self._calm("the claim")

    async def _restart_one(self) -> None:
        await self._restart(self._draw.choice(sorted(self._stage.alive)))

    async def _roll_back(self) -> None:
        """Stop the KRaft controller, and have a controller do what ``aiocontroller migration rollback`` asks for."""
        assert self._kraft is not None
        self.kill(self._kraft[1])
        self._kraft, self.quorum = None, ""
        number = self._draw.choice(sorted(self.controllers))
        self.controllers[number][0].queue.append(RollBack(reply=Reply(self._rolled_back)))
        await self._until(lambda: self.holder() == number, "the migration is rolled back")
        await self._calm("the rollback")

    def _rolled_back(self, answer: Any) -> None:
        reasons = answer[1] if isinstance(answer, tuple) else [answer]
        self._wrong += [f"the rollback was refused: {reason}" for reason in reasons]

    def _kraft_leads(self) -> bool:
        return self._kraft is not None and self._kraft[0].leads

    def is_controller(self, session_id: int) -> bool:
        return super().is_controller(session_id) or (
            self._kraft is not None and self._kraft[0].session_id == session_id
        )

    async def _end(self, client: ZooKeeperClient) -> None:
        if self._kraft is not None:
            self.kill(self._kraft[1])
        await super()._end(client)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _ruled(self) -> bool:
        return self._kraft_leads() or self.holder() in self._active()

    def _active(self) -> list[int]:
        return [number for number, (service, _) in self.controllers.items() if service.controller.election.active]

    async def _calm(self, after: str) -> None:
        polls = 0

        def calm() -> bool:
            nonlocal polls
            polls = polls + 1 if self._ruled() and self._meter.calm() else 0
            return polls >= CALM_POLLS

        await self._until(calm, f"all is calm after {after}")

    async def _until(self, done: Callable[[], bool], what: str, again: Callable[[], None] = lambda: None) -> None:
        """Wait until ``done()`` is true; ``again`` is called now and then, to repeat requests whose answer was lost."""
        until_s = self.clock.monotonic() + CALM_WITHIN_S
        asked_s = self.clock.monotonic()
        while not done():
            now_s = self.clock.monotonic()
            if now_s > until_s or self.violations():
                if not self.violations():
                    self._wrong.append(f"waited for {CALM_WITHIN_S:.0f} s in vain until {what}")
                return
            if now_s - asked_s > CONTROLLER_AWAY_S:
                asked_s = now_s
                again()
            await self.clock.sleep(POLL_S)
