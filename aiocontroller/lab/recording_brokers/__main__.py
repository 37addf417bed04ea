"""The process that runs the recording brokers.

    python -m aiocontroller.lab.recording_brokers --zookeeper HOST:PORT --brokers 10

It reads commands as lines from standard input (``COMMANDS`` lists them), and answers each with one line of JSON.  Times
are ``time.monotonic``, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from aiocontroller.core.ids import LeaderAndIsr, TopicAssignment
from aiocontroller.lab.cluster.partition import IsrChange
from aiocontroller.lab.recording_brokers.isr import IsrAsker, isr_change
from aiocontroller.lab.recording_brokers.timed_broker import TimedBroker
from aiocontroller.lab.recording_brokers.views import Views
from aiocontroller.lab.scenarios.shapes import Given
from aiocontroller.lab.scenarios.verbs import VERBS, method_of, parse_line, played_by
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

MAX_SAMPLES = 5
MAX_CHANGES = 10_000
"""The most changes in one AlterPartition request."""
LOOKED_AT_ONCE = 10_000
"""The number of partitions to compare before the event loop runs, which keeps the brokers' ZooKeeper sessions alive."""


class Fleet:
    """All brokers of the process; its methods are the commands."""

    def __init__(self, zookeeper: str, count: int) -> None:
        self.brokers = {n: TimedBroker(zookeeper, n) for n in range(1, count + 1)}
        self.views = Views(self.brokers)
        self._client = ZooKeeperClient(zookeeper, world=real_world(), session_timeout_s=30)
        self._zk = KafkaZkClient(self._client)
        self._controller = ("", 0)

    async def begin(self) -> None:
        await self._client.start(30)
        for broker in self.brokers.values():
            await broker.start()

    async def mark(self) -> None:
        """Decode all recorded requests and discard them."""
        for number, broker in self.brokers.items():
            for _, frame in broker.take():
                self.views.settle(number, frame)
                await asyncio.sleep(0)

    async def latest(self) -> float:
        """Return the time of the latest recorded request; 0 if there is none."""
        return max((b.heard[-1][0] for b in self.brokers.values() if b.heard), default=0.0)

    async def heard(self) -> dict[int, dict[str, Any]]:
        """Decode all recorded requests, discard them, and return figures for each broker.

        The figures are, by API, the times of the first and the last request and the numbers of partitions and requests;
        and the number of bytes in total.
        """
        return {number: await self._heard(number, broker) for number, broker in self.brokers.items()}

    async def _heard(self, number: int, broker: TimedBroker) -> dict[str, Any]:
        first: dict[str, float] = {}
        last: dict[str, float] = {}
        partitions: dict[str, int] = {}
        requests: dict[str, int] = {}
        size = 0
        for moment, frame in broker.take():
            name, count = self.views.settle(number, frame)
            first.setdefault(name, moment)
            last[name] = moment
            partitions[name] = partitions.get(name, 0) + count
            requests[name] = requests.get(name, 0) + 1
            size += len(frame)
            await asyncio.sleep(0)
        return {"first": first, "last": last, "partitions": partitions, "requests": requests, "bytes": size}

    async def check(self) -> dict[str, Any]:
        """Compare what every broker received with ZooKeeper; returns the number of differences, and some of them."""
        await self.mark()
        assignments, states = await self._read_everything()
        alive = {number for number, broker in self.brokers.items() if broker.alive}
        replicas = {name: topic.partitions for name, topic in assignments.items()}
        differences, samples = 0, list[str]()
        rest = iter(states)
        while some := {key: states[key] for key in itertools.islice(rest, LOOKED_AT_ONCE)}:
            found = list(self.views.differences(alive, some, replicas))
            differences += len(found)
            samples += found[: MAX_SAMPLES - len(samples)]
            await asyncio.sleep(0)
        deleted = list(self.views.deleted_but_known(alive, replicas))
        samples += deleted[: MAX_SAMPLES - len(samples)]
        return {"differences": differences + len(deleted), "samples": samples, "partitions": len(states)}

    async def _read_everything(self) -> tuple[dict[str, TopicAssignment], dict[tuple[str, int], LeaderAndIsr]]:
        names = await self._zk.get_all_topics_in_cluster(watch=False)
        topics = {t.topic: t for t in (await self._zk.get_topic_assignments(names, watch=False)).found}
        keys = [(t.topic, p) for t in topics.values() for p in t.partitions]
        states = await self._zk.get_topic_partition_states([t for t, _ in keys], [p for _, p in keys])
        return topics, {key: s for key, s in zip(keys, states, strict=True) if isinstance(s, LeaderAndIsr)}

    async def dead(self) -> list[int]:
        return [number for number, broker in self.brokers.items() if not broker.alive]

    async def step_kill_broker(self, given: Given) -> float:
        """Remove the brokers' registrations at once; returns the time just before."""
        at = time.monotonic()
        for number in given["brokers"]:
            await self.brokers[number].kill()
            self.brokers[number].heard.clear()
            self.views.forget(number)
        return at

    async def step_start_broker(self, given: Given) -> float:
        at = time.monotonic()
        for number in given["brokers"]:
            await self.brokers[number].start()
        return at

    async def step_bounce_broker(self, given: Given) -> float:
        """Give the brokers new incarnations at once; returns the time just before."""
        at = time.monotonic()
        for number in given["brokers"]:
            await self.brokers[number].bounce()
        return at

    async def step_controlled_shutdown(self, given: Given) -> float:
        """Ask the controller for a controlled shutdown; returns the seconds until its answer."""
        return await self.brokers[given["broker"]].shut_down(*self._controller)

    async def controller(self, host: str, port: str) -> None:
        """Set the controller's address for ``controlled_shutdown``."""
        self._controller = host, int(port)

    async def follow(self, host: str, port: str) -> None:
        """Let replicas that are being added catch up at once, from now on."""
        asker = IsrAsker(host, int(port))
        for broker in self.brokers.values():
            broker.follow = asker

    async def unfollow(self) -> dict[str, int]:
        """End ``follow``; returns how many changes were requested and rejected."""
        asker = next(iter(self.brokers.values())).follow
        assert asker is not None
        for broker in self.brokers.values():
            broker.follow = None
        asker.close()
        return {"asked": asker.asked, "refused": asker.refused}

    async def alter_one_by_one(self, host: str, port: str, count: str) -> list[float]:
        """Shrink and grow one partition's ISR with ``count`` requests; returns the seconds that each took."""
        assignments, states = await self._read_everything()
        (topic, partition), state = next(
            (key, s) for key, s in sorted(states.items()) if s.leader in self.brokers and len(s.isr) > 1
        )
        asker = IsrAsker(host, int(port))
        broker, epoch, seconds = self.brokers[state.leader], state.partition_epoch, []
        smaller = tuple(r for r in state.isr if r == state.leader) + state.isr[2:]
        for turn in range(int(count)):
            isr = smaller if turn % 2 == 0 else state.isr
            change = isr_change(topic, assignments[topic].topic_id, partition, state, epoch, isr)
            took, [epoch] = await asker.ask(broker.id, broker.epoch, [change])
            seconds.append(took)
        asker.close()
        assert not asker.refused, f"{asker.refused} changes of {topic}-{partition} were refused"
        return seconds

    async def alter_at_once(self, host: str, port: str, each: str) -> list[dict[str, float]]:
        """Let all brokers at once request ``each`` smaller ISRs, and then the full ones again."""
        waves = []
        for whole in (False, True):
            changes = {n: some[: int(each)] for n, some in (await self._isr_changes(whole=whole)).items()}
            asker = IsrAsker(host, int(port))
            started = time.monotonic()
            await self._ask(asker, changes)
            waves.append({"seconds": time.monotonic() - started, "asked": asker.asked, "refused": asker.refused})
        return waves

    async def catch_up_everywhere(self, host: str, port: str) -> dict[str, int]:
        """Let all replicas catch up: the leaders request full ISRs."""
        asker = IsrAsker(host, int(port))
        await self._ask(asker, await self._isr_changes(whole=True))
        return {"asked": asker.asked, "refused": asker.refused}

    async def _ask(self, asker: IsrAsker, changes: dict[int, list[IsrChange]]) -> None:
        async def one(number: int, of_leader: list[IsrChange]) -> None:
            for start in range(0, len(of_leader), MAX_CHANGES):
                await asker.ask(number, self.brokers[number].epoch, of_leader[start : start + MAX_CHANGES])

        try:
            await asyncio.gather(*(one(number, of_leader) for number, of_leader in changes.items()))
        finally:
            asker.close()

    async def _isr_changes(self, *, whole: bool) -> dict[int, list[IsrChange]]:
        """Return changes by leader: to ISRs of the leader alone, or with ``whole`` to ISRs of all live replicas."""
        assignments, states = await self._read_everything()
        alive = {number for number, broker in self.brokers.items() if broker.alive}
        changes: dict[int, list[IsrChange]] = {number: [] for number in alive}
        for (topic, partition), state in sorted(states.items()):
            replicas = assignments[topic].partitions[partition].replicas
            wanted = tuple(r for r in replicas if r in alive) if whole else (state.leader,)
            if state.leader in alive and set(wanted) != set(state.isr):
                topic_id = assignments[topic].topic_id
                change = isr_change(topic, topic_id, partition, state, state.partition_epoch, wanted)
                changes[state.leader].append(change)
        return changes


COMMANDS: dict[str, Callable[..., Awaitable[Any]]] = {
    name: getattr(Fleet, name)
    for name in (
        *("mark", "latest", "heard", "check", "dead", "controller"),
        *("follow", "unfollow", "alter_one_by_one", "alter_at_once", "catch_up_everywhere"),
    )
}
COMMANDS |= {verb: getattr(Fleet, method_of(verb)) for verb in played_by(Fleet)}
"""The benchmarks' commands, and the scenario verbs that these brokers play (``lab.scenarios.verbs``)."""


async def serve(zookeeper: str, count: int) -> None:
    fleet = Fleet(zookeeper, count)
    await fleet.begin()
    print(json.dumps({"ready": count}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, *arguments = line.split()
        try:
            given = [parse_line(line).given] if name in VERBS else arguments
            answer = {"answer": await COMMANDS[name](fleet, *given)}
        except Exception as error:  # the driver decides what to do; this process goes on
            answer = {"error": f"{name}: {type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--brokers", type=int, default=10)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(given.zookeeper, given.brokers))


if __name__ == "__main__":
    main()
