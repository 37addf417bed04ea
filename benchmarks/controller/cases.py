"""The cases: changes of a cluster, and how long its controller takes for each.

A case is a coroutine that makes one change and returns seconds by row.  The time begins just before the change in
ZooKeeper (or the request) that starts it, and ends with the last byte of the last request at the last broker, unless
the case says otherwise.  After each case every broker's knowledge is compared with ZooKeeper, partition by partition:
an incomplete answer does not count as a fast one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count, islice
from typing import Any, NamedTuple

from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.writes import Create
from benchmarks.controller.preloaded_cluster import REPLICATION_FACTOR, PreloadedCluster, Shape, topic_id
from benchmarks.controller.resources import Meter, Usage
from benchmarks.controller.subjects import Subject

FEW_QUIET_S = 3.0
"""An event that concerns few partitions is over when no broker has received anything for this long."""
ELECTED = 10_000
REASSIGNED = 1000
ALTERED_ONE_BY_ONE = 200
ALTERED_BY_EACH = 500
CREATIONS = (Shape(1, 1000), Shape(500, 1), Shape(100, 10))
POLL_S = 0.02
LONGEST_QUIET_S = 30.0

Seconds = Mapping[str, float]
"""By row of the table."""

Heard = dict[str, dict[str, Any]]


class Cost(NamedTuple):
    usage: Usage
    requests: int
    megabytes: float
    """Sent to brokers."""


class IncompleteError(AssertionError):
    """A broker was not told what is in ZooKeeper; the message gives samples."""


class Bench:
    """One subject and the cluster that it controls."""

    def __init__(self, cluster: PreloadedCluster, subject: Subject) -> None:
        self.cluster = cluster
        self.subject = subject
        self.zk: KafkaZkClient = cluster.zk
        self.brokers = cluster.brokers
        self.whole_quiet_s = min(1.5 + cluster.shape.partitions * subject.silent_s, LONGEST_QUIET_S)
        """How long a slow controller may be silent between reading, deciding and sending."""
        self.victims = (n % self.cluster.shape.brokers + 1 for n in count())
        self.names = count()

    async def measure(self, case: Case) -> tuple[Seconds, Cost]:
        await self.brokers.ask_async("mark")
        self.requests = 0
        self.megabytes = 0.0
        meter = Meter(self.subject.pids(), self.cluster.servers)
        seconds = await case(self)
        spent = meter.read()
        await self.heard()
        await self.check()
        return seconds, Cost(spent, self.requests, round(self.megabytes, 1))

    async def heard(self) -> Heard:
        found: Heard = await self.brokers.ask_async("heard")
        self.requests += sum(sum(report["requests"].values()) for report in found.values())
        self.megabytes += sum(report["bytes"] for report in found.values()) / 1e6
        return found

    async def check(self) -> None:
        found = await self.brokers.ask_async("check")
        if found["differences"]:
            raise IncompleteError(
                f"{self.subject.name}: {found['differences']} differences from ZooKeeper: {'; '.join(found['samples'])}"
            )

    async def check_in_time(self, within_s: float = 60.0) -> None:
        """As ``check``, for a storm: brokers that are behind get time to catch up."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                return await self.check()
            except IncompleteError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.5)

    async def address(self) -> str:
        host, port = self.subject.address(await self.subject.active(self.zk))
        return f"{host} {port}"

    async def heal(self) -> None:
        """Let all replicas catch up."""
        started = time.monotonic()
        found = await self.brokers.ask_async(f"catch_up_everywhere {await self.address()}")
        if found["refused"]:
            raise IncompleteError(f"{found['refused']} of {found['asked']} ISRs did not grow")
        if found["asked"]:
            await self.brokers.quiet(started, FEW_QUIET_S)

    async def preferred_election(self, broker: int) -> float:
        """Give ``broker`` its leaders back; return the time just before."""
        topics = (await self.zk.get_topic_assignments(await self.zk.get_all_topics_in_cluster(watch=False))).found
        wanted = (
            TopicPartition(t.topic, p) for t in topics for p, r in t.partitions.items() if r.replicas[0] == broker
        )
        partitions = list(islice(wanted, ELECTED))
        started = time.monotonic()
        data = znodes.encode_partitions(partitions)
        await self.zk.client.write_many([Create(paths.PREFERRED_REPLICA_ELECTION, data)], fence=None)
        return started

    async def restore(self, broker: int) -> None:
        """Restore ISRs and leaders for the next case."""
        await self.heal()
        started = await self.preferred_election(broker)
        try:
            await self.brokers.quiet(started, FEW_QUIET_S, within_s=FEW_QUIET_S)
        except TimeoutError:
            pass  # it led all its partitions already


Case = Callable[[Bench], Awaitable[Seconds]]


async def failover(bench: Bench) -> Seconds:
    """``/controller`` is deleted; one of two running candidates wins, loads, and sends everything to all brokers."""
    started = time.monotonic()
    await bench.zk.client.delete(paths.CONTROLLER)
    ended = await bench.brokers.quiet(started, bench.whole_quiet_s)
    _check_everything_was_sent(bench, await bench.heard())
    return {"failover": ended - started}


async def first_failover(bench: Bench) -> Seconds:
    """The active candidate is killed and its ``/controller`` deleted at once; the other wins for the first time."""
    active = await bench.subject.active(bench.zk)
    bench.subject.kill_one(active)
    started = time.monotonic()
    await bench.zk.client.delete(paths.CONTROLLER)
    ended = await bench.brokers.quiet(started, bench.whole_quiet_s)
    _check_everything_was_sent(bench, await bench.heard())
    other = next(number for number in bench.subject.ids if number != active)
    assert await bench.subject.active(bench.zk) == other
    await bench.subject.start_one(active)
    return {"failover, fresh process": ended - started}


def _check_everything_was_sent(bench: Bench, heard: Heard) -> None:
    received = sum(report["partitions"].get("LEADER_AND_ISR", 0) for report in heard.values())
    wanted = bench.cluster.shape.partitions * REPLICATION_FACTOR
    if received < wanted:
        raise IncompleteError(f"{received} of {wanted} replicas were told of themselves")


async def broker_failure(bench: Bench) -> Seconds:
    """A broker is removed: until the first and last LeaderAndIsr.  It returns: until its last UpdateMetadata."""
    victim = next(bench.victims)
    started: float = await bench.brokers.ask_async(f"kill-broker {victim}")
    await bench.brokers.quiet(started, bench.whole_quiet_s)
    heard = await bench.heard()
    informed = [report for report in heard.values() if "LEADER_AND_ISR" in report["last"]]
    last = max(report["last"]["LEADER_AND_ISR"] for report in informed)
    first = min(report["first"]["LEADER_AND_ISR"] for report in informed)
    await bench.check()
    back: float = await bench.brokers.ask_async(f"start-broker {victim}")
    await bench.brokers.quiet(back, bench.whole_quiet_s)
    report = (await bench.heard())[str(victim)]
    return {
        "broker failure": last - started,
        "broker failure, first LeaderAndIsr": first - started,
        "broker startup": report["last"]["UPDATE_METADATA"] - back,
        **await _preferred(bench, victim),
    }


async def _preferred(bench: Bench, broker: int) -> Seconds:
    await bench.heal()
    await bench.heard()
    started = await bench.preferred_election(broker)
    await bench.brokers.quiet(started, FEW_QUIET_S)
    heard = await bench.heard()
    last = max(r["last"]["LEADER_AND_ISR"] for r in heard.values() if "LEADER_AND_ISR" in r["last"])
    return {f"preferred election of up to {ELECTED:,}": last - started}


async def bounce(bench: Bench) -> Seconds:
    """A broker's registration is replaced by a new one in one transaction: until the last request to it."""
    victim = next(bench.victims)
    started: float = await bench.brokers.ask_async(f"bounce-broker {victim}")
    await bench.brokers.quiet(started, bench.whole_quiet_s)
    report = (await bench.heard())[str(victim)]
    await bench.restore(victim)
    return {"broker bounce": max(report["last"].values()) - started}


async def controlled_shutdown(bench: Bench) -> Seconds:
    """A broker asks for a controlled shutdown: until it is answered."""
    victim = next(bench.victims)
    started = time.monotonic()
    await bench.brokers.ask_async(f"controller {await bench.address()}")
    seconds: float = await bench.brokers.ask_async(f"controlled-shutdown {victim}")
    await bench.brokers.quiet(started, bench.whole_quiet_s)
    await _restart(bench, victim)
    await bench.restore(victim)
    return {"controlled shutdown": seconds}


async def _restart(bench: Bench, broker: int) -> None:
    gone: float = await bench.brokers.ask_async(f"kill-broker {broker}")
    await asyncio.sleep(0.5)
    back: float = await bench.brokers.ask_async(f"start-broker {broker}")
    assert back > gone
    await bench.brokers.quiet(back, bench.whole_quiet_s)


async def rolling_restart(bench: Bench) -> Seconds:
    """Every broker in turn does a controlled shutdown, dies and returns: until the last request."""
    started = time.monotonic()
    await bench.brokers.ask_async(f"controller {await bench.address()}")
    for broker in range(1, bench.cluster.shape.brokers + 1):
        await bench.brokers.ask_async(f"controlled-shutdown {broker}")
        await bench.brokers.ask_async(f"kill-broker {broker}")
        await bench.brokers.ask_async(f"start-broker {broker}")
    ended = await bench.brokers.quiet(time.monotonic() - 0.1, bench.whole_quiet_s)
    for broker in range(1, bench.cluster.shape.brokers + 1):
        await bench.restore(broker)
    return {"rolling restart": ended - started}


async def topics(bench: Bench) -> Seconds:
    """Topics are created (last LeaderAndIsr), the last ones grow, all are deleted (until no znode is left)."""
    seconds: dict[str, float] = {}
    for creation in CREATIONS:
        shape = bench.cluster.shape._replace(topics=creation.topics, per_topic=creation.per_topic)
        tag, start = f"{shape.topics}x{shape.per_topic}", next(bench.names) * 1000 + 100_000
        names = {start + t: f"new-{start + t}" for t in range(shape.topics)}
        seconds[f"creation {tag}"] = await _put_topics(bench, shape, names, 0)
        if shape.topics == 100:
            grown = shape._replace(per_topic=shape.per_topic * 2)
            seconds[f"expansion {tag}"] = await _put_topics(bench, grown, names, shape.per_topic)
        seconds[f"deletion {tag}"] = await _delete_topics(bench, list(names.values()))
    return seconds


async def _put_topics(bench: Bench, shape: Shape, names: Mapping[int, str], already: int) -> float:
    """Create or expand topics; return the seconds until the last replica's broker has been told about it."""
    assignments = [
        TopicAssignment(
            name, topic_id(number), {p: ReplicaAssignment(own) for p, own in enumerate(shape.replicas(number))}
        )
        for number, name in names.items()
    ]
    where = [paths.topic(name) for name in names.values()]
    data = [znodes.encode_topic(assignment) for assignment in assignments]
    started = time.monotonic()
    if already:
        await bench.zk.client.set_many(where, data, [-1] * len(where), fence=None)
    else:
        ops = [Create(path, value) for path, value in zip(where, data, strict=True)]
        await bench.zk.client.write_many(ops, fence=None)
    await bench.brokers.quiet(started, FEW_QUIET_S)
    heard = await bench.heard()
    received = sum(report["partitions"].get("LEADER_AND_ISR", 0) for report in heard.values())
    wanted = shape.topics * (shape.per_topic - already) * REPLICATION_FACTOR
    if received < wanted:
        raise IncompleteError(f"{received} of {wanted} new replicas were told of themselves")
    last: float = max(r["last"]["LEADER_AND_ISR"] for r in heard.values() if "LEADER_AND_ISR" in r["last"])
    return last - started


async def _delete_topics(bench: Bench, names: Sequence[str]) -> float:
    started = time.monotonic()
    await bench.zk.client.write_many([Create(f"{paths.DELETE_TOPICS}/{name}", b"") for name in names], fence=None)
    wanted = set(names)
    async with asyncio.timeout(300):
        while wanted.intersection(await bench.zk.get_all_topics_in_cluster(watch=False)):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)  # a watch would have to be set again after each of 500 changes
    ended = time.monotonic()
    await bench.brokers.quiet(started, FEW_QUIET_S)
    await bench.heard()
    return ended - started


async def reassignment(bench: Bench) -> Seconds:
    """One replica of each of 1,000 partitions moves; followers catch up at once.  Until the last request."""
    names = [n for n in await bench.zk.get_all_topics_in_cluster(watch=False) if n.startswith("topic-")]
    found = (await bench.zk.get_topic_assignments(names, watch=False)).found
    keys = islice(((t.topic, p, r.replicas) for t in found for p, r in t.partitions.items()), REASSIGNED)
    everyone = range(1, bench.cluster.shape.brokers + 1)
    target = {
        TopicPartition(topic, p): (*replicas[:-1], next(b for b in everyone if b not in replicas))
        for topic, p, replicas in keys
    }
    await bench.brokers.ask_async(f"follow {await bench.address()}")
    started = time.monotonic()
    data = znodes.encode_reassignment(target)
    await bench.zk.client.write_many([Create(paths.REASSIGN_PARTITIONS, data)], fence=None)
    ended = await bench.brokers.quiet(started, FEW_QUIET_S)
    while await bench.zk.get_partition_reassignment() is not None:
        ended = await bench.brokers.quiet(ended - 0.001, FEW_QUIET_S)
    asked = await bench.brokers.ask_async("unfollow")
    after = {t.topic: t for t in (await bench.zk.get_topic_assignments(names, watch=False)).found}
    undone = sum(after[tp.topic].partitions[tp.partition].replicas != want for tp, want in target.items())
    if undone:
        raise IncompleteError(f"{undone} of {len(target)} reassignments did not end ({asked})")
    return {f"reassignment of {len(target):,}": ended - started}


async def alter_partition(bench: Bench) -> Seconds:
    """Leaders alter single partitions, one after the other; then all brokers alter 500 each, at once."""
    address = await bench.address()
    one_by_one = sorted(await bench.brokers.ask_async(f"alter_one_by_one {address} {ALTERED_ONE_BY_ONE}"))
    waves = await bench.brokers.ask_async(f"alter_at_once {address} {ALTERED_BY_EACH}")
    refused = sum(wave["refused"] for wave in waves)
    if refused:
        raise IncompleteError(f"{refused} ISR changes were refused")
    await bench.brokers.quiet(0.0, FEW_QUIET_S)
    return {
        "AlterPartition p50": one_by_one[len(one_by_one) // 2],
        "AlterPartition p99": one_by_one[int(len(one_by_one) * 0.99)],
        f"AlterPartition, {bench.cluster.shape.brokers} brokers x {ALTERED_BY_EACH}": sum(w["seconds"] for w in waves)
        / len(waves),
    }


CASES: dict[str, Case] = {
    "failover": failover,
    "first-failover": first_failover,
    "broker-failure": broker_failure,
    "bounce": bounce,
    "controlled-shutdown": controlled_shutdown,
    "topics": topics,
    "reassignment": reassignment,
    "alter-partition": alter_partition,
    "rolling-restart": rolling_restart,
}
USUAL = tuple(name for name in CASES if name != "rolling-restart")
OF_THE_LARGEST = ("failover", "broker-failure", "controlled-shutdown")
LARGEST_FROM = 1_000_000
"""From this many partitions on, these are the default cases, once each: those whose times grow with the cluster."""
