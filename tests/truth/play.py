"""One cluster of real brokers through everything that may befall it: its logs, and beside them the truth.

    python -m tests.truth.play VERSION kafka|aiocontroller FOLDER [STEP …]

``FOLDER/logs`` is what an operator would have, ``FOLDER/truth.json`` what happened: see ``Truth``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.real_kafka import RealKafkaCluster, release
from aiocontroller.lab.kafka.controllers import OUR_ID, BrokerAsController, OurController, until
from aiocontroller.lab.kafka.played_cluster import BROKERS, PlayedCluster, cluster_on
from aiocontroller.lab.zookeeper.fault_proxy import FaultProxy
from tests.truth.watching import Watcher, Writer, now_us

SESSION_MS = 6000
HANG_S = 11.0
PARTITIONS = 4
TWO, ONE = "two-copies", "unclean"
TOPICS = ("three-copies", TWO)
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "4000",
    "auto.create.topics.enable": "false",
}
_FILES = ("server", "controller", "state-change")
LOG4J = """log4j.rootLogger=INFO, server
log4j.logger.kafka.controller=TRACE, controller
log4j.additivity.kafka.controller=false
log4j.logger.state.change.logger={state_changes}, state-change
log4j.additivity.state.change.logger=false
log4j.logger.org.apache.zookeeper=INFO
""" + "".join(
    f"log4j.appender.{name}=org.apache.log4j.FileAppender\n"
    f"log4j.appender.{name}.File=${{{{kafka.logs.dir}}}}/{name}.log\n"
    f"log4j.appender.{name}.layout=org.apache.log4j.PatternLayout\n"
    f"log4j.appender.{name}.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
    for name in _FILES
)
"""As Kafka ships it, but that nothing goes to the console; ``state_changes`` is TRACE up to 2.5."""


class Play:
    """``steps`` are what was done, each with the brokers that died of it: from when, until when."""

    def __init__(self, stage: PlayedCluster, zookeeper: EmbeddedZooKeeper, proxy: FaultProxy, watcher: Watcher) -> None:
        self.stage, self.zookeeper, self.proxy, self.watcher = stage, zookeeper, proxy, watcher
        self.steps: list[dict[str, Any]] = []
        self.deaths: list[dict[str, Any]] = []
        self.stalls: list[dict[str, Any]] = []
        self.cuts: list[dict[str, Any]] = []
        self.controllers_killed: list[dict[str, Any]] = []
        self.ours: dict[int, OurController] = {}
        """Our controllers, where ours are played: one holds it, the other one stands by."""

    # -- what the cluster looks like ---------------------------------------------------------------------------------

    async def controller(self) -> int:
        controller = self.stage.controller
        assert isinstance(controller, BrokerAsController | OurController)

        async def holder() -> int | None:
            return await controller.holder()

        return int(await until(holder, "there is a controller"))

    async def another(self) -> int:
        """A broker that is not the controller, and that leads something."""
        controller = await self.controller()
        led = {state[0] for state in self.watcher.states.values() if state}
        return next(number for number in self.stage.brokers if number != controller and number in led)

    async def _take_role_back(self) -> None:
        """A broker may win a vacancy, and ours depose one only when they start: start one anew, as operators would."""
        if not self.ours or await self.controller() in self.ours:
            return
        again = self.ours[OUR_ID]
        await again.give_up()
        again.launch()

        async def taken() -> bool:
            return await self.controller() in self.ours

        await until(taken, "one of ours is active")

    async def whole(self) -> None:
        await self._take_role_back()

        async def every() -> bool:
            states = [(key, state) for key, state in self.watcher.states.items() if state or key[0] in TOPICS]
            copies = {"three-copies": 3, TWO: 2, ONE: 2}
            return len(self.watcher.brokers or ()) == BROKERS and all(
                state and state[0] in self.stage.brokers and len(state[1]) == copies.get(topic, len(state[1]))
                for (topic, _), state in states
            )

        await until(every, "every replica is in sync", 180)
        led = {key: self.stage.made()[key][0] for key in self.watcher.states if key in self.stage.made()}
        if any(self.watcher.states[key][0] != leader for key, leader in led.items()):  # type: ignore[index]
            await self.stage.elect_preferred(led)

            async def preferred() -> bool:
                return all((self.watcher.states[key] or [-1])[0] == leader for key, leader in led.items())

            await until(preferred, "preferred leaders", 60)
        await asyncio.sleep(2)  # so that a new controller's words, and the brokers', are in the logs

    # -- what is done ------------------------------------------------------------------------------------------------

    async def moved_from(self, dead: set[int]) -> None:
        """No partition that a live broker could lead is led by one of ``dead``."""

        async def moved() -> bool:
            return all(
                state is None or state[0] not in dead or set(state[1]) <= dead for state in self.watcher.states.values()
            ) and not dead & set(self.watcher.brokers or ())

        await until(moved, f"the leaderships of {sorted(dead)} move")

    def died(self, broker: int, how: str, at_us: int, **more: Any) -> dict[str, Any]:
        death = {"broker": broker, "how": how, "at_us": at_us, "back_us": None, **more}
        self.deaths.append(death)
        return death

    async def kill(self, *victims: int) -> None:
        controller = await self.controller()
        deaths = []
        for victim in victims:
            deaths.append(self.died(victim, "killed", now_us(), was_controller=victim == controller))
            self.stage.brokers[victim].kill()
        await self.moved_from(set(victims))
        await asyncio.sleep(1)
        for death in deaths:
            await self.stage.start(self.stage.brokers[death["broker"]])
            death["back_us"] = now_us()

    async def kill_controller(self) -> None:
        await self.kill(await self.controller())

    async def kill_another(self) -> None:
        await self.kill(await self.another())

    async def kill_both(self) -> None:
        await self.kill(await self.another(), await self.controller())

    async def hang(self) -> None:
        victim = await self.another()
        death = self.died(victim, "hung", now_us(), was_controller=False)
        self.stage.freeze(victim)
        await self.moved_from({victim})
        await asyncio.sleep(HANG_S - SESSION_MS / 1000)
        death["back_us"] = now_us()
        self.stage.thaw(victim)

    async def bounce(self) -> None:
        await self._restart(await self.another())

    async def rolling_restart(self) -> None:
        for number in self.stage.brokers:
            await self._restart(number)
            await self.whole()

    async def _restart(self, number: int) -> None:
        broker = self.stage.brokers[number]
        await asyncio.to_thread(broker.stop)
        await self.stage.start(broker)

    async def reassign(self) -> None:
        moved = {(TWO, n): self.stage.made()[TWO, n] for n in range(PARTITIONS)}
        turned = {key: (replicas[1], 6 - sum(replicas)) for key, replicas in moved.items()}
        for wanted in (turned, moved):
            await asyncio.to_thread(self.stage._reassign, wanted)

            async def done(wanted: dict[Any, Any] = wanted) -> bool:
                return all(
                    sorted((self.watcher.states[key] or [0, []])[1]) == sorted(replicas)
                    for key, replicas in wanted.items()
                )

            await until(done, "the reassignment is done", 180)
            await asyncio.sleep(2)

    async def delete(self) -> None:
        topic = "short-lived"
        await asyncio.to_thread(self.stage._create, topic, {n: (n % 3 + 1, (n + 1) % 3 + 1) for n in range(PARTITIONS)})
        self.watcher.follow(topic, PARTITIONS)
        await until(lambda: self._all_led(topic), "the topic is led")
        await asyncio.sleep(2)
        await asyncio.to_thread(self.stage._ask, lambda admin: admin.delete_topics([topic]))

        async def gone() -> bool:
            return all(self.watcher.states[topic, n] is None for n in range(PARTITIONS))

        await until(gone, "the topic is deleted")
        self.watcher.forget(topic)
        await asyncio.sleep(2)

    async def _all_led(self, topic: str) -> bool:
        return all((self.watcher.states.get((topic, n)) or [-1])[0] > 0 for n in range(PARTITIONS))

    async def unclean(self) -> None:
        """The only replica in sync dies for good; the other one, which is behind, is made leader."""
        leader, follower = await self.controller(), await self.another()
        if leader not in self.stage.brokers:
            leader = next(number for number in self.stage.brokers if number != follower)
        settings = {"unclean.leader.election.enable": "true"}
        wanted = {ONE: {"assignments": {0: [leader, follower]}, "configs": settings}}
        await asyncio.to_thread(self.stage._ask, lambda admin: admin.create_topics(wanted))
        self.watcher.follow(ONE, 1)
        first = self.died(follower, "killed", now_us(), was_controller=False)
        self.stage.brokers[follower].kill()
        await self.moved_from({follower})
        was_controller = leader == await self.controller()  # asked before the clock is read
        second = self.died(leader, "killed", now_us(), was_controller=was_controller)
        self.stage.brokers[leader].kill()

        async def leaderless() -> bool:
            return (self.watcher.states.get((ONE, 0)) or [0])[0] in (-1, follower)

        await self.moved_from({leader})
        await self.stage.start(self.stage.brokers[follower])
        first["back_us"] = now_us()
        await until(leaderless, "the unclean election")
        await asyncio.sleep(2)
        await self.stage.start(self.stage.brokers[leader])
        second["back_us"] = now_us()

    async def zookeeper_stalls(self) -> None:
        """Shorter than a session, so no session ends."""
        await self._stall(2.5)

    async def zookeeper_stalls_long(self) -> None:
        """Longer than sessions.  It does not end sessions while it stands still, and seldom when it goes on: clients
        whose connections wait are heard first."""
        await self._stall(SESSION_MS / 1000 * 1.7)
        await asyncio.sleep(SESSION_MS / 1000)  # until ZooKeeper ended every session that it ends

    async def zookeeper_cut_off(self) -> None:
        """It goes on, and nothing passes between it and the cluster: every session ends, and no process does."""
        cut: dict[str, Any] = {"from_us": now_us(), "to_us": 0, "lost": sorted(self.watcher.sessions)}
        before = dict(self.watcher.sessions)
        self.proxy.hang = True
        self.proxy.freeze()

        async def ended() -> bool:
            return not self.watcher.sessions

        await until(ended, "every session has ended")
        await asyncio.sleep(1)
        self.proxy.thaw()
        self.proxy.cut_all()
        cut["to_us"] = now_us()
        self.cuts.append(cut)

        async def back() -> bool:
            now = self.watcher.sessions
            return before.keys() == now.keys() and all(before[each] != now[each] for each in before)

        await until(back, "every broker has registered anew")
        await asyncio.sleep(2)

    async def _stall(self, for_s: float) -> None:
        assert self.zookeeper.pid is not None
        stall = {"from_us": now_us(), "to_us": 0}
        os.kill(self.zookeeper.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
        finally:
            os.kill(self.zookeeper.pid, signal.SIGCONT)
        stall["to_us"] = now_us()
        self.stalls.append(stall)
        await asyncio.sleep(2)

    async def kill_active(self) -> None:
        """Our active controller alone; the other one stands by."""
        dead = self._kill_active(await self.controller())
        await self._succeeded(dead)

    async def kill_active_and_broker(self) -> None:
        """There is no election until the controller's own session has ended."""
        victim = await self.another()
        dead = self._kill_active(await self.controller())
        death = self.died(victim, "killed", now_us(), was_controller=False)
        self.stage.brokers[victim].kill()
        await self._succeeded(dead)
        await self.moved_from({victim})
        await asyncio.sleep(1)
        await self.stage.start(self.stage.brokers[victim])
        death["back_us"] = now_us()

    def _kill_active(self, controller: int) -> int:
        self.controllers_killed.append({"controller": controller, "at_us": now_us(), "successor_us": None})
        self.ours[controller].close()
        return controller

    async def _succeeded(self, dead: int) -> None:
        async def other() -> bool:
            controller = self.stage.controller
            assert isinstance(controller, OurController)
            return await controller.holder() not in (dead, None)

        await until(other, "another controller")
        self.controllers_killed[-1]["successor_us"] = now_us()
        await asyncio.sleep(1)
        self.ours[dead].launch()

    async def step(self, name: str) -> None:
        await self.whole()
        sys.stderr.write(f"{name}\n")
        entry = {"what": name, "from_us": now_us(), "to_us": 0, "controller": await self.controller()}
        self.steps.append(entry)
        action: Callable[[], Awaitable[None]] = getattr(self, name)
        await action()
        await self.whole()
        entry["to_us"] = now_us()


STEPS = (
    "kill_controller", "kill_another", "kill_both", "hang", "bounce", "reassign", "delete", "unclean",
    "rolling_restart", "zookeeper_stalls", "zookeeper_stalls_long", "zookeeper_cut_off",
)  # fmt: skip
OURS = (
    "kill_active",
    "kill_active_and_broker",
    *(each for each in STEPS if each not in ("kill_controller", "kill_both")),
)
"""Our controller is no broker."""


async def play(version: str, controller: str, folder: Path, steps: tuple[str, ...] = ()) -> dict[str, Any]:
    """The truth: steps, deaths, changes and registrations (``Watcher``), felt (``Writer``)."""
    folder.mkdir(parents=True, exist_ok=True)
    zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
    version = release(version)
    state_changes = "TRACE" if tuple(map(int, version.split(".")[:2])) < (2, 6) else "INFO"
    log4j = LOG4J.format(state_changes=state_changes)
    cluster = proxy = None
    tasks: list[asyncio.Task[None]] = []
    writer = None
    try:
        await zookeeper.start_async()
        proxy = await FaultProxy(zookeeper.port).start()  # what the cluster uses; the watcher does not
        cluster = RealKafkaCluster(BROKERS, proxy.address, folder, version=version, overrides=SETTINGS, log4j=log4j)
        await cluster.start_async()
        async with cluster_on(zookeeper.address, cluster.brokers, folder, session_ms=SESSION_MS) as stage:
            ours = await _ours(stage, folder, proxy.address) if controller != "kafka" else {}
            watcher = Watcher(stage.controllers["kafka"].zk)  # type: ignore[attr-defined]
            for topic, copies in zip(TOPICS, (3, 2), strict=True):
                assignment = {n: tuple((n + k) % BROKERS + 1 for k in range(copies)) for n in range(PARTITIONS)}
                await asyncio.to_thread(_created, stage, topic, assignment)
                stage._replicas |= {(topic, n): replicas for n, replicas in assignment.items()}
                watcher.follow(topic, PARTITIONS)
            tasks.append(asyncio.create_task(watcher.run()))
            writer = Writer(cluster.bootstrap, TOPICS, PARTITIONS)
            tasks.append(asyncio.create_task(writer.run()))
            made = Play(stage, zookeeper, proxy, watcher)
            made.ours = ours
            for name in steps or (STEPS if controller == "kafka" else _ours_of(version)):
                await made.step(name)
            for task in tasks:
                task.cancel()
            truth = {
                "version": version, "office": controller, "session_us": SESSION_MS * 1000, "steps": made.steps,
                "deaths": made.deaths, "changes": watcher.changes, "registrations": watcher.registrations,
                "registered": watcher.registered, "controllers": watcher.controllers,
                "stalls": made.stalls, "cuts": made.cuts,
                "controllers_killed": made.controllers_killed, "felt": writer.felt,
                "slowest_look_us": watcher.slowest_us,
            }  # fmt: skip
            for each in ours.values():
                await each.give_up()
            truth["complete"] = complete_elections(folder)
    finally:
        for task in tasks:
            task.cancel()
        if writer is not None:
            writer.close()
        if cluster is not None:
            cluster.kill()
        if proxy is not None:
            await proxy.close()
        zookeeper.kill()
    _keep(folder, truth)
    return truth


def _ours_of(version: str) -> tuple[str, ...]:
    """Brokers before 3.0 find no address of ours and shut down uncleanly: a death at a time that only they know."""
    unclean = ("bounce", "rolling_restart") if version.startswith("2.") else ()
    return tuple(step for step in OURS if step not in unclean)


async def _ours(stage: PlayedCluster, folder: Path, zookeeper: str) -> dict[int, OurController]:
    """Ours takes the role from the brokers, and another one of ours stands by."""
    given = stage.controllers[OurController.name]
    assert isinstance(given, OurController)
    active, standby = (
        OurController(given.zk, given.brokers, zookeeper, folder / name, given.properties, OUR_ID + n)
        for n, name in enumerate(("aiocontroller", "aiocontroller-standby"))
    )
    stage.controllers |= {active.name: active, "standby": standby}
    stage.controller = active
    await active.take()
    standby.launch()
    return {each.controller_id: each for each in (active, standby)}


def _created(stage: PlayedCluster, topic: str, assignment: dict[int, tuple[int, ...]]) -> None:
    stage._ask(lambda admin: admin.create_topics({topic: {"assignments": assignment}}))


def complete_elections(folder: Path) -> list[list[Any]]:
    """[µs, topic, partition, leader] of each election by logs that lost nothing, with no awaited log unknown."""
    found = []
    for line in itertools.chain.from_iterable(journal.read_text().splitlines() for journal in _journals(folder)):
        with suppress(ValueError):  # a controller that was killed leaves a torn line
            record = json.loads(line)
            what = [record.get(name) for name in ("kind", "event", "count", "brokers")]
            if what == ["recovery", "elected", 0, []]:
                found.append([record["ts"], record["topic"], record["partition"], record["leader"]])
    return sorted(found)


def _journals(folder: Path) -> list[Path]:
    return sorted(folder.glob("aiocontroller*/**/*journal-*.jsonl"))


def _keep(folder: Path, truth: dict[str, Any]) -> None:
    for number in range(1, BROKERS + 1):
        kept = folder / "logs" / f"broker-{number}"
        kept.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            shutil.copy(folder / f"broker-{number}" / f"{name}.log", kept)
    for journal in _journals(folder):
        shutil.copy(journal, folder / "logs" / journal.name.removeprefix("_"))
    (folder / "truth.json").write_text(json.dumps(truth))


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], sys.argv[2], Path(sys.argv[3]), tuple(sys.argv[4:])))
