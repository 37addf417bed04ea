"""The steps of a plan on real processes.  They have the simulation's names (``lab.scenarios.plan``), and use signals,
proxies and znodes.

An argument names the step's target (``kill_broker 2``, ``pause_controller active 6``); missing arguments are drawn from
the step's own seed.  A step whose target does not exist (no broker runs) does nothing, as in the simulation.
"""

from __future__ import annotations

import asyncio
import logging
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import ElectionType
from aiocontroller.lab.cluster.asking import ask
from aiocontroller.lab.processes.cluster import Actor, ProcessCluster
from aiocontroller.lab.processes.recovery_checks import process_facts
from aiocontroller.lab.scenarios.arguments import NAMES, StepArgumentError, known_number, naming
from aiocontroller.lab.scenarios.background import ADMIN_TIMEOUT_S, PATIENCE_S, BackgroundTasks
from aiocontroller.lab.scenarios.catching_up import CATCH_UP_WITHIN_S, still_behind
from aiocontroller.lab.scenarios.facts import EXPECT_WITHIN_S, judge
from aiocontroller.lab.scenarios.plan import ScenarioStep
from aiocontroller.lab.scenarios.shapes import Given
from aiocontroller.lab.scenarios.verbs import VERBS, verb_of
from aiocontroller.lab.zookeeper.fault_proxy import Do
from aiocontroller.lab.zookeeper.zookeeper_model import MULTI
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import encode_partitions, encode_reassignment

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 15_000


class ProcessSteps(BackgroundTasks):
    """Takes one step after another; ``taken`` counts them."""

    def __init__(self, cluster: ProcessCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.taken: Counter[str] = Counter()
        self.problems: list[str] = []
        """Expectations that were not met."""
        self.topics: dict[str, int] = {}
        """The topics that the operator has created -> their number of partitions."""
        self.chance = random.Random(0)
        self._given = Given()
        """The arguments of the step that is being taken."""
        self._repairs: dict[asyncio.TimerHandle, Callable[[], None]] = {}
        self._full: dict[Actor, tuple[int, int]] = {}

    async def take(self, step: ScenarioStep) -> None:
        self.chance = random.Random(step.seed)
        method = getattr(self, f"step_{step.kind}", None)
        if method is None:
            raise StepArgumentError(f"{step}: found a verb that storms do not play (docs/scenarios.md)")
        self.taken[step.kind] += 1
        log.info("%s", step)
        with naming(step):
            self._given = VERBS[verb_of(step.kind)].shape.read(step.arguments)
            result = method()
            if result is not None:
                await result
            self._given.refuse_rest()
        await asyncio.sleep(step.pause_s)

    def _later(self, delay_s: float, repair: Callable[[], object]) -> None:
        """Run ``repair`` after ``delay_s``, or earlier if everything is healed before."""

        def due() -> None:
            del self._repairs[timer]
            repair()

        timer = asyncio.get_running_loop().call_later(delay_s, due)
        self._repairs[timer] = due

    # -- targets -----------------------------------------------------------------------------------------------

    def _named(self, group: dict[int, Actor], *, running: bool = True) -> Actor | None:
        """Return the broker or controller that the step names, otherwise one of those that run (or that do not run)."""
        number = self._given.take("controller" if group is self.cluster.controllers else "broker")
        if number is not None:
            return group[known_number(number, group)]
        chosen = [actor for actor in group.values() if actor.running is running]
        return self.chance.choice(chosen) if chosen else None

    async def _controller(self) -> Actor | None:
        word = self._given.get("controller")
        if word not in ("active", "standby"):
            return self._named(self.cluster.controllers)
        del self._given["controller"]
        active = await self._active()
        others = [a for a in self.cluster.controllers.values() if a is not active and a.running]
        return active if word == "active" else (self.chance.choice(others) if others else None)

    async def _active(self) -> Actor | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                number = await self.cluster.active_controller()
        except Exception:  # ZooKeeper may be down
            return None
        return None if number is None else self.cluster.controllers[number]

    def _seconds(self, *choices: float) -> float:
        given: float | None = self._given.take("seconds")
        return self.chance.choice(choices) if given is None else given

    # -- the operator ------------------------------------------------------------------------------------------

    async def step_create_topic(self) -> None:
        name, lists = self._given.take("topic"), self._given.take("placed")
        free = [known for known in NAMES if known not in self.topics]
        if not name and not free:
            return
        name = name or self.chance.choice(free)
        placed = dict(enumerate(lists)) if lists else self._placed(self.chance.randint(1, 6))
        self.topics[name] = len(placed)
        await self._administer(self.cluster.admin.create_topic(name, placed))

    def _placed(self, count: int) -> dict[int, list[int]]:
        ids = sorted(self.cluster.brokers)
        factor = min(len(ids), self.chance.choice((2, 3)))
        return {number: self.chance.sample(ids, factor) for number in range(count)}

    async def step_delete_topic(self) -> None:
        name = self._topic()
        if name is not None:
            self.topics.pop(name, None)
            await self._administer(self.cluster.admin.delete_topic(name))

    async def step_add_partitions(self) -> None:
        name = self._topic()
        if name is None:
            return
        found = await self.cluster.zk.get_topic_assignments([name], watch=False)
        if found.found and 0 in found.found[0].partitions:
            present = found.found[0].partitions
            ids = sorted(self.cluster.brokers)
            added = self._given.take("placed") or [self.chance.sample(ids, min(len(ids), len(present[0].replicas)))]
            self.topics[name] = len(present) + len(added)
            new = {len(present) + n: on for n, on in enumerate(added)}
            await self._administer(self.cluster.admin.add_partitions(name, new))

    async def step_allow_unclean(self) -> None:
        name = self._topic()
        if name is not None:
            value = self._given.take("value") or self.chance.choice(("true", "true", "false"))
            change = {"unclean.leader.election.enable": value}
            await self._administer(self.cluster.admin.change_topic_configs(name, change))

    async def step_notify_isr_change(self) -> None:
        if partitions := self._partitions(3):
            await self._administer(self.cluster.zk.propagate_isr_changes(partitions))

    async def step_elect_preferred(self) -> None:
        await self._elect(ElectionType.PREFERRED)

    async def step_elect_unclean(self) -> None:
        await self._elect(ElectionType.UNCLEAN)

    async def _elect(self, kind: ElectionType) -> None:
        if partitions := self._partitions(3):
            topics = [
                {"topic": topic, "partitions": tuple(numbers)} for topic, numbers in _by_topic(partitions).items()
            ]
            wanted = {"election_type": int(kind), "topic_partitions": topics, "timeout": REQUEST_TIMEOUT_MS}
            await self._administer(self._ask(ApiKey.ELECT_LEADERS, 2, **wanted))

    async def step_elect_by_znode(self) -> None:
        if partitions := self._partitions(3):
            data = encode_partitions(partitions)
            await self._administer(self.cluster.client.create(paths.PREFERRED_REPLICA_ELECTION, data))

    def _targets(self) -> dict[TopicPartition, tuple[int, ...] | None]:
        moves: list[tuple[TopicPartition, tuple[int, ...] | None]] = self._given.take("moves", [])
        ids = sorted(self.cluster.brokers)
        return dict(moves) or {
            tp: tuple(self.chance.sample(ids, self.chance.randint(1, len(ids)))) for tp in self._partitions(3)
        }

    async def step_reassign(self) -> None:
        await self._reassign(self._targets())

    async def step_cancel_reassignment(self) -> None:
        await self._reassign(dict.fromkeys(self._partitions(2)))

    async def _reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> None:
        if targets:
            topics = [
                {"name": topic, "partitions": [_move(n, targets[TopicPartition(topic, n)]) for n in numbers]}
                for topic, numbers in _by_topic(targets).items()
            ]
            asked = self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout=REQUEST_TIMEOUT_MS, topics=topics)
            await self._administer(asked)

    async def step_reassign_by_znode(self) -> None:
        if targets := {tp: target for tp, target in self._targets().items() if target}:
            data = encode_reassignment(targets)
            await self._administer(self.cluster.client.create(paths.REASSIGN_PARTITIONS, data))

    async def _ask(self, api: ApiKey, version: int, **fields: Any) -> None:
        """Send a request to the active controller, through its proxy."""
        actor = await self._active()
        if actor is not None:
            host, port = actor.front.address.rsplit(":", 1)
            log.info("%s: %s", api.name, await ask(self.cluster.world.network, host, int(port), api, version, **fields))

    def _topic(self) -> str | None:
        named: str | None = self._given.take("topic")
        if named is not None:
            return named
        return self.chance.choice(sorted(self.topics)) if self.topics else None

    def _partitions(self, most: int) -> list[TopicPartition]:
        named: list[TopicPartition] | None = self._given.take("partitions")
        if named is not None:
            return named
        known = [TopicPartition(name, n) for name in sorted(self.topics) for n in range(self.topics[name])]
        return self.chance.sample(known, min(self.chance.randint(1, most), len(known)))

    # -- brokers -----------------------------------------------------------------------------------------------

    def _each_broker(self, *, running: bool = True) -> list[Actor]:
        """Return the brokers that the step names, otherwise one that is drawn, if there is any."""
        named: list[int] | None = self._given.take("brokers")
        if named is not None:
            return [self.cluster.brokers[known_number(number, self.cluster.brokers)] for number in named]
        drawn = self._named(self.cluster.brokers, running=running)
        return [] if drawn is None else [drawn]

    def step_kill_broker(self) -> None:
        for actor in self._each_broker():
            actor.kill()

    async def step_stop_broker(self) -> None:
        for actor in self._each_broker():
            await self._administer(actor.stop(ADMIN_TIMEOUT_S))

    async def step_bounce_broker(self) -> None:
        for actor in self._each_broker():
            await self._bounce(actor)

    async def _bounce(self, actor: Actor) -> None:
        """Restart a broker with a new epoch before the controller notices."""
        active = await self._active()
        if not actor.running:
            return
        if active is not None:
            active.send(signal.SIGSTOP)
        try:
            await actor.stop(2.0, signal.SIGINT)
            starting = self._begin(self._start(self.cluster.start_broker, actor.id))
            await asyncio.wait([starting], timeout=self.cluster.shape.session_timeout_ms / 2000)
        finally:
            if active is not None:
                active.send(signal.SIGCONT)

    def step_fail_log_dir(self) -> None:
        """Make a log directory fail, if the broker is registered: the signal would kill a process that is still
        starting.  All replicas of a broker are in one directory, whichever the step names."""
        actor = self._named(self.cluster.brokers)
        self._given.take("partitions")
        if actor is not None and actor.ready and not self.cluster.shape.kafka:
            actor.send(signal.SIGUSR1)

    def step_expire_broker(self) -> None:
        if (actor := self._named(self.cluster.brokers)) is not None:
            self._keep_from_zookeeper(actor)

    def step_pause_broker(self) -> None:
        if (actor := self._named(self.cluster.brokers)) is not None:
            self._pause(actor, self._seconds(1.0, 3.0, 8.0))

    def step_cut_broker(self) -> None:
        if (actor := self._named(self.cluster.brokers)) is not None:
            _cut(actor)

    def step_start_broker(self) -> None:
        for actor in self._each_broker(running=False):
            if not actor.running:
                self._begin(self._start(self.cluster.start_broker, actor.id))

    async def _start(self, start: Callable[[int], Awaitable[None]], number: int) -> None:
        try:
            await start(number)
        except Exception as error:  # it may be killed, or ZooKeeper may be down, before it is ready
            log.info("not started: %s", str(error).partition("\n")[0])

    # -- controllers -------------------------------------------------------------------------------------------

    async def step_kill_controller(self) -> None:
        if (actor := await self._controller()) is not None:
            actor.kill()

    async def step_stop_controller(self) -> None:
        if (actor := await self._controller()) is not None:
            await self._administer(actor.stop())

    async def step_expire_controller(self) -> None:
        actor = await self._controller()
        if actor is not None:
            number = next(n for n, a in self.cluster.controllers.items() if a is actor)
            await self._administer(self.cluster.ask(number, "POST", "/debug/expire-session"))

    async def step_pause_controller(self) -> None:
        """Suspend a controller, often for longer than its session lasts."""
        if (actor := await self._controller()) is not None:
            self._pause(actor, self._seconds(0.5, 2.0, 6.0, 10.0))

    async def step_cut_controller(self) -> None:
        if (actor := await self._controller()) is not None:
            _cut(actor)

    async def step_delete_controller_znode(self) -> None:
        await self._administer(self.cluster.client.delete(paths.CONTROLLER))

    async def step_rewrite_controller_epoch(self) -> None:
        async def raise_it() -> None:
            found = await self.cluster.zk.get_controller_epoch()
            if found is not None:
                value = self._given.take("number", found[0] + 1)
                await self.cluster.client.set(paths.CONTROLLER_EPOCH, b"%d" % value, found[1])

        await self._administer(raise_it())

    async def step_trap_controller(self) -> None:
        """Strike at one of the active controller's next fenced writes."""
        actor = await self._active()
        if actor is None:
            return
        countdown, what = self.chance.choice((1, 1, 2, 3, 5)), self.chance.choice(("lose", "lose", "kill", "freeze"))
        before = self.chance.random() < 0.4

        def judge(link: int, xid: int, opcode: int, frame: bytes) -> Do:
            nonlocal countdown
            countdown -= opcode == MULTI
            if opcode != MULTI or countdown:
                return Do.PASS
            if what == "kill":
                actor.kill()
            elif what == "freeze":
                self._pause(actor, 6.0)
            return Do.CUT if before else Do.CUT_AFTER

        for proxy in actor.to_zookeeper:
            proxy.on_request = judge

    def step_start_controller(self) -> None:
        actor = self._named(self.cluster.controllers, running=False)
        if actor is not None and not actor.running:
            number = next(n for n, a in self.cluster.controllers.items() if a is actor)
            self._begin(self._start(self.cluster.start_controller, number))

    async def step_jump_clock(self) -> None:
        """Set a controller's wall clock forwards or back, if the machine allows it."""
        actor = self._named(self.cluster.controllers)
        if actor is not None and not actor.wall_clock.jump(self.chance.choice((-86_400, -5, 5, 3_600))):
            self.taken["jump_clock"] -= 1
            self.taken["jump_clock: cannot be done here (no libfaketime)"] += 1

    async def step_fill_disk(self) -> None:
        """Make all disk writes of a controller fail, so that its journal has to wait.

        This affects only a controller that serves requests: one that cannot write its log does not start.
        """
        actor = await self._controller()
        if actor is not None and actor.child is not None and actor.running and actor.ready and actor not in self._full:
            limits = self._full[actor] = resource.prlimit(actor.child.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(actor.child.pid, resource.RLIMIT_FSIZE, (0, limits[1]))

    def step_free_disk(self) -> None:
        for actor, limits in self._full.items():
            if actor.child is not None and actor.running:
                resource.prlimit(actor.child.pid, resource.RLIMIT_FSIZE, limits)
        self._full.clear()

    # -- links and ZooKeeper -----------------------------------------------------------------------------------

    async def step_block(self) -> None:
        """Block requests from the active controller to one broker.

        If the step names the broker, and otherwise half of the time, also block requests from the broker.
        """
        cluster, host, other = self.cluster, self._given.take("host"), self._given.take("other")
        if isinstance(host, str) or other not in (None, "active"):
            raise StepArgumentError(f"found {host} and {other}, expected a broker, and perhaps active")
        broker = self._named(cluster.brokers) if host is None else cluster.brokers[known_number(host, cluster.brokers)]
        controller = await self._active() or self._any_running(cluster.controllers)
        if broker is not None and controller is not None:
            broker.front.blocked.add(controller.id)
            if self.chance.random() < 0.5 or host is not None:
                controller.front.blocked.add(broker.id)

    def _any_running(self, group: dict[int, Actor]) -> Actor | None:
        running = [actor for actor in group.values() if actor.running]
        return self.chance.choice(running) if running else None

    def step_block_brokers(self) -> None:
        """Freeze the existing connections to a broker; new ones work."""
        if (actor := self._named(self.cluster.brokers)) is not None:
            actor.front.freeze()

    def step_lag(self) -> None:
        group = self.chance.choice((self.cluster.brokers, self.cluster.controllers))
        actor = self._any_running(group)
        if actor is not None:
            self.chance.choice([*actor.to_zookeeper, actor.front]).delay_s = self.chance.choice((0.2, 0.8))

    def step_heal(self) -> None:
        """Restore all links; suspended processes stay suspended."""
        for actor in [*self.cluster.brokers.values(), *self.cluster.controllers.values()]:
            for proxy in actor.proxies():
                proxy.thaw()
            for proxy in actor.to_zookeeper:
                proxy.on_request = None

    async def heal_everything(self) -> None:
        """Restore all links, resume and restart all processes, and wait for background work to end."""
        for timer, repair in list(self._repairs.items()):
            timer.cancel()
            repair()
        self.step_heal()
        self.step_free_disk()
        cluster = self.cluster
        for actor in [*cluster.brokers.values(), *cluster.controllers.values()]:
            actor.heal()
        for server in cluster.servers:
            server.resume()
        await self.settle()
        await asyncio.gather(*(server.start_async() for server in cluster.servers if not server.running))
        starts = [cluster.start_broker(number) for number, actor in cluster.brokers.items() if not actor.running]
        starts += [
            cluster.start_controller(number) for number, actor in cluster.controllers.items() if not actor.running
        ]
        await asyncio.gather(*starts)

    async def step_restart_zookeeper(self) -> None:
        """Restart the leading ZooKeeper server, or the only one."""
        server = await asyncio.to_thread(self.cluster.leader_server)
        if server.running:
            server.kill()
            await asyncio.sleep(self._seconds(0.1, 1.0, 3.0))
            self._begin(self._start(lambda _: server.start_async(), 0))

    async def step_pause_zookeeper(self) -> None:
        """Suspend ZooKeeper: connections succeed and requests get no answer, as in a long garbage collection or disk
        stall."""
        server = await asyncio.to_thread(self.cluster.leader_server)
        server.suspend()
        self._later(self._seconds(0.5, 2.0, 6.0), server.resume)

    async def step_catch_up(self) -> None:
        partition, leader = self._given.need("partition"), self._given.take("until-leader")
        until_s = time.monotonic() + CATCH_UP_WITHIN_S
        while (missing := await self._still_behind(partition, leader)) is not None:
            if time.monotonic() > until_s:
                self.problems.append(missing)
                return
            await asyncio.sleep(0.2)

    async def _still_behind(self, partition: TopicPartition, leader: int | None) -> str | None:
        facts = await process_facts(self.cluster)
        return await still_behind(self.cluster.zk, partition, leader, facts)

    async def step_expect(self) -> None:
        """Wait until the expectation holds, for EXPECT_WITHIN_S at most."""
        fact, until_s = self._given.take("fact", []), time.monotonic() + EXPECT_WITHIN_S
        while (wrong := judge(fact, await process_facts(self.cluster))) is not None:
            if time.monotonic() > until_s:
                self.problems.append(wrong)
                return
            await asyncio.sleep(0.2)

    async def step_wait(self) -> None:
        await asyncio.sleep(self._seconds(1.0, 3.0, 5.0))

    # -- helpers -----------------------------------------------------------------------------------------------

    def _pause(self, actor: Actor, duration_s: float) -> None:
        if actor.running and not actor.paused:
            actor.send(signal.SIGSTOP)
            self._later(duration_s, lambda: actor.send(signal.SIGCONT))

    def _keep_from_zookeeper(self, actor: Actor) -> None:
        """Keep an actor from ZooKeeper for longer than its session lasts."""
        for proxy in actor.to_zookeeper:
            proxy.hang = True
            proxy.cut_all()

        def let_in() -> None:
            for proxy in actor.to_zookeeper:
                proxy.hang = False
                proxy.cut_all()

        self._later(1.5 * self.cluster.shape.session_timeout_ms / 1000, let_in)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def _move(number: int, replicas: tuple[int, ...] | None) -> dict[str, Any]:
    return {"partition_index": number, "replicas": replicas}


def _cut(actor: Actor) -> None:
    for proxy in actor.proxies():
        proxy.cut_all()
