"""Compares our ZooKeeper layer with Kafka's form, plain aiozk, kazoo and a raw socket, on one server.

    python -m benchmarks.zookeeper [--partitions 100000] [--watches 20000] [--json FILE] [--connect HOST:PORT]

Three cases: reading partition states, writing them under a fence, arming data watches (including the reads that every
client has to do then).  Subjects:

  raw socket     the same large requests, prebuilt, sent by a thread and counted, not decoded: the ceiling.
  ours           ``get_many`` / ``set_many``: encoding, columns of bytes and versions.
  ours, typed    ``KafkaZkClient``: the same, with the states' JSON decoded or encoded.
  Kafka's form   one request per znode, ten in flight, through our layer (as ``ZooKeeperClient.handleRequests``; a write
                 is a multi of a check and one setData), encoded and decoded by the same code as ours.  ``ratio`` is
                 relative to this one.
  Kafka's form, raw   the same requests, prebuilt, sent and counted by a bare socket: the limit for any client in that
                 form.
  Kafka's form, Java  the same through ZooKeeper's own client on a warm JVM (``KafkasForm.java``): Kafka's real speed
                 limit.  These two make the comparison independent of Python.
  aiozk          plain aiozk 0.32.0, a thousand in flight; a fenced write is a Transaction of a check and one set.
  kazoo          ``get_async``, ``transaction().commit_async()``, a thousand in flight.

Slow subjects do only a part of the work, and their rate is shown.  For the raw socket, ours and Kafka's form the best
of ``--rounds`` counts: the machine is shared, and the question is what the code can do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import uvloop
from aiozk import ZKClient
from kazoo.client import KazooClient
from rich.console import Console
from rich.table import Table

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.java import find_java, zookeeper_class_path
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.client import Create, ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.reads import Reads
from aiocontroller.zookeeper.watches import set_watches_bodies

EPOCH_PATH = "/controller_epoch"
BASELINE = "Kafka's form"
RAW_BASELINE = "Kafka's form, raw"
JAVA_BASELINE = "Kafka's form, Java"
JAVA_PASSES = 6
KAFKAS_WINDOW = 10
"""``zookeeper.max.in.flight.requests``."""
PER_TOPIC = 100
SLOW_SHARE = 10_000
"""How many znodes the slow subjects handle."""

Rate = float


class World:
    """The server, the znodes, and the present version of each state."""

    def __init__(self, address: str, client: ZooKeeperClient, partitions: int, watches: int, rounds: int) -> None:
        self.address = address
        self.client = client
        self.typed = KafkaZkClient(client)
        self.rounds = rounds
        self.topics = [f"topic-{i // PER_TOPIC:05}" for i in range(partitions)]
        self.numbers = [i % PER_TOPIC for i in range(partitions)]
        self.paths = [
            f"/brokers/topics/{t}/partitions/{n}/state" for t, n in zip(self.topics, self.numbers, strict=True)
        ]
        self.raw_paths = [path.encode() for path in self.paths]
        self.versions = [0] * partitions
        self.watched = self.paths[:watches]
        self.slow = min(SLOW_SHARE, partitions)

    def data(self, i: int) -> bytes:
        return b'{"controller_epoch":7,"leader":%d,"version":1,"leader_epoch":%d,"isr":[1,2,3]}' % (i % 3 + 1, i % 9)

    def wrote(self, count: int) -> None:
        for i in range(count):
            self.versions[i] += 1


async def create_znodes(world: World) -> None:
    """Create the epoch, and every partition's state with its parents."""
    client = world.client
    await client.ensure_path("/brokers/topics")
    await client.write_many([Create(EPOCH_PATH, b"7")], fence=None)
    topics = list(dict.fromkeys(world.topics))
    await client.write_many([Create(f"/brokers/topics/{t}") for t in topics], fence=None)
    await client.write_many([Create(f"/brokers/topics/{t}/partitions") for t in topics], fence=None)
    await client.write_many([Create(path[: -len("/state")]) for path in world.paths], fence=None)
    states = [Create(path, world.data(i)) for i, path in enumerate(world.paths)]
    writes = await client.write_many(states, fence=None)
    assert writes.ok, "could not create the states"


async def timed(count: int, work: Callable[[], Awaitable[object]]) -> Rate:
    started = time.perf_counter()
    await work()
    return count / (time.perf_counter() - started)


async def best(rounds: int, subjects: dict[str, Callable[[], Awaitable[Rate]]]) -> dict[str, Rate]:
    """Return the best rate of each subject; they take turns, so that a noisy minute affects all alike."""
    rates = dict.fromkeys(subjects, 0.0)
    for _ in range(rounds):
        for subject, run in subjects.items():
            rates[subject] = max(rates[subject], await run())
    return rates


class ServerAsShipped(EmbeddedZooKeeper):
    """Uses both of the JVM's compilers, as ZooKeeper's own start script does; in tests the fast one is enough."""

    def _command(self) -> list[str]:
        return [part for part in super()._command() if part != "-XX:TieredStopAtLevel=1"]


# -- raw socket --------------------------------------------------------------------------------------------------------


class RawSocket:
    """Sends frames from a thread, and counts replies."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.sendall(codec.connect_frame(0, 30_000, 0, bytes(16)))
        self._left = b""
        self._take(1)

    def close(self) -> None:
        self._socket.sendall(struct.pack(">iii", 8, 1, -11))  # closeSession
        self._take(1)
        self._socket.close()

    def run(self, bodies: Sequence[bytes], operations: int) -> Rate:
        frames = [struct.pack(">ii", len(body) + 4, xid + 1) + body for xid, body in enumerate(bodies)]
        sender = threading.Thread(target=lambda: [self._socket.sendall(frame) for frame in frames])
        started = time.perf_counter()
        sender.start()
        self._take(len(frames))
        elapsed = time.perf_counter() - started
        sender.join()
        return operations / elapsed

    def run_windowed(self, bodies: Sequence[bytes], width: int) -> Rate:
        """Send requests singly, with at most ``width`` in flight."""
        frames = [struct.pack(">ii", len(body) + 4, xid + 1) + body for xid, body in enumerate(bodies)]
        started = time.perf_counter()
        self._socket.sendall(b"".join(frames[:width]))
        sent = taken = min(width, len(frames))
        while taken:
            answered = self._take_some(taken)
            more = frames[sent : sent + answered]
            if more:
                self._socket.sendall(b"".join(more))
            sent += len(more)
            taken += len(more) - answered
        return len(frames) / (time.perf_counter() - started)

    def _take_some(self, most: int) -> int:
        """Wait for an answer; return how many have arrived, at most ``most``."""
        self._take(1)
        count = 1
        while count < most and len(self._left) >= 4:
            (size,) = struct.unpack_from(">i", self._left)
            if len(self._left) < 4 + size:
                break
            self._left = self._left[4 + size :]
            count += 1
        return count

    def _take(self, count: int) -> None:
        data = bytearray(self._left)
        while count:
            while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
                chunk = self._socket.recv(1 << 20)
                if not chunk:
                    raise ConnectionError("the server closed the raw connection")
                data += chunk
            at = 0
            while (
                count and len(data) - at >= 4 and len(data) - at >= 4 + (size := struct.unpack_from(">i", data, at)[0])
            ):
                if size >= 16 and (code := struct.unpack_from(">i", data, at + 16)[0]) and size == 16:
                    raise RuntimeError(f"the raw request failed with code {code}")
                at += 4 + size
                count -= 1
            del data[:at]
        self._left = bytes(data)


def raw_reads(world: World, paths: Sequence[bytes], size: int = 1000) -> list[bytes]:
    return [codec.multi_read(paths[at : at + size]) for at in range(0, len(paths), size)]


def raw_writes(world: World, size: int = 500) -> list[bytes]:
    check = codec.check_op(EPOCH_PATH, 0)
    bodies = []
    for at in range(0, len(world.paths), size):
        end = min(at + size, len(world.paths))
        datas = [world.data(i) for i in range(at, end)]
        bodies.append(codec.multi_set(check, world.raw_paths[at:end], datas, world.versions[at:end]))
    return bodies


# -- Kafka's form through ZooKeeper's own client -----------------------------------------------------------------------


async def java_rate(world: World, mode: str, count: int) -> dict[str, Rate]:
    """Return the best rate of several passes; empty without a Java that compiles."""
    command = [str(find_java()), "-cp", zookeeper_class_path(), str(Path(__file__).with_name("KafkasForm.java"))]
    command += [world.address, mode, str(count), str(PER_TOPIC), str(JAVA_PASSES)]
    run = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    if run.returncode:
        print(f"no row for {JAVA_BASELINE}: {run.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    if mode == "write":
        for _ in range(JAVA_PASSES):
            world.wrote(count)
    return {JAVA_BASELINE: max(map(float, run.stdout.split()))}


# -- the three cases ---------------------------------------------------------------------------------------------------


async def in_flight(width: int, count: int, one: Callable[[int], Awaitable[object]]) -> None:
    """Run ``one(i)`` for each i below ``count``, ``width`` at a time."""
    numbers = iter(range(count))

    async def work() -> None:
        for i in numbers:
            await one(i)

    await asyncio.gather(*(work() for _ in range(width)))


async def reading(world: World) -> dict[str, Rate]:
    count, slow, client = len(world.paths), world.slow, world.client

    async def raw() -> Rate:
        raw_socket = RawSocket(world.address)
        try:
            return raw_socket.run(raw_reads(world, world.raw_paths), count)
        finally:
            raw_socket.close()

    async def one(i: int) -> None:
        [(code, payload)] = await client.session.exchange(
            [codec.path_and_watch(codec.GET_DATA, world.paths[i], False)], retry=True
        )
        Reads().add(code, payload)

    async def raw_kafkas() -> Rate:
        raw_socket = RawSocket(world.address)
        try:
            bodies = [codec.path_and_watch(codec.GET_DATA, path, False) for path in world.paths[:slow]]
            return raw_socket.run_windowed(bodies, KAFKAS_WINDOW)
        finally:
            raw_socket.close()

    plain = ZKClient(world.address, session_timeout=30)
    await plain.start()
    rates = await best(
        world.rounds,
        {
            "raw socket": raw,
            "ours": lambda: timed(count, lambda: client.get_many(world.paths)),
            "ours, typed": lambda: timed(
                count, lambda: world.typed.get_topic_partition_states(world.topics, world.numbers)
            ),
            BASELINE: lambda: timed(slow, lambda: in_flight(KAFKAS_WINDOW, slow, one)),
            RAW_BASELINE: raw_kafkas,
        },
    )
    rates |= await java_rate(world, "read", slow)
    rates["aiozk"] = await timed(slow, lambda: in_flight(1000, slow, lambda i: plain.get(world.paths[i])))
    rates["kazoo"] = kazoo_rate(world, lambda kazoo, i: kazoo.get_async(world.paths[i]))
    await plain.close()
    return rates


async def writing(world: World) -> dict[str, Rate]:
    count, slow, client = len(world.paths), world.slow, world.client
    datas = [world.data(i) for i in range(count)]

    async def raw() -> Rate:
        raw_socket = RawSocket(world.address)
        try:
            return raw_socket.run(raw_writes(world), count)
        finally:
            raw_socket.close()
            world.wrote(count)

    async def ours() -> Rate:
        rate = await timed(count, lambda: client.set_many(world.paths, datas, world.versions, fence=0))
        world.wrote(count)
        return rate

    async def typed() -> Rate:
        states = [LeaderAndIsr(i % 3 + 1, i % 9, (1, 2, 3), 7, world.versions[i]) for i in range(count)]
        rate = await timed(
            count, lambda: world.typed.set_topic_partition_states(world.topics, world.numbers, states, fence=0)
        )
        world.wrote(count)
        return rate

    check = codec.check_op(EPOCH_PATH, 0)

    def kafkas_body(i: int) -> bytes:
        return codec.multi_set(check, [world.raw_paths[i]], [datas[i]], [world.versions[i]])

    async def one(i: int) -> None:
        [(_, payload)] = await client.session.exchange([kafkas_body(i)], retry=False)
        assert codec.parse_set_results(payload, 1, 1)

    async def raw_kafkas() -> Rate:
        raw_socket = RawSocket(world.address)
        try:
            return raw_socket.run_windowed([kafkas_body(i) for i in range(slow)], KAFKAS_WINDOW)
        finally:
            raw_socket.close()
            world.wrote(slow)

    plain = ZKClient(world.address, session_timeout=30)
    await plain.start()

    async def plain_one(i: int) -> None:
        transaction = plain.begin_transaction()
        transaction.check_version(EPOCH_PATH, 0)
        transaction.set_data(world.paths[i], datas[i], world.versions[i])
        assert await transaction.commit()

    def kazoo_one(kazoo: KazooClient, i: int) -> object:
        transaction = kazoo.transaction()
        transaction.check(EPOCH_PATH, 0)
        transaction.set_data(world.paths[i], datas[i], world.versions[i])
        return transaction.commit_async()

    async def kafkas() -> Rate:
        rate = await timed(slow, lambda: in_flight(KAFKAS_WINDOW, slow, one))
        world.wrote(slow)
        return rate

    rates = await best(
        world.rounds,
        {"raw socket": raw, "ours": ours, "ours, typed": typed, BASELINE: kafkas, RAW_BASELINE: raw_kafkas},
    )
    rates |= await java_rate(world, "write", slow)
    rates["aiozk"] = await timed(slow, lambda: in_flight(1000, slow, plain_one))
    world.wrote(slow)
    rates["kazoo"] = kazoo_rate(world, kazoo_one)
    world.wrote(slow)
    await plain.close()
    reads = await client.get_many(world.paths)
    assert reads.version == world.versions, "a write was lost or applied twice"
    return rates


async def arming(world: World) -> dict[str, Rate]:
    """Arm watches, each round on a session of its own: a second watch on the same path would cost less."""
    count, slow = len(world.watched), min(world.slow, len(world.watched))

    async def raw() -> Rate:
        raw_paths = world.raw_paths[:count]
        arms = list(set_watches_bodies(1 << 62, world.watched))
        raw_socket = RawSocket(world.address)
        try:
            return raw_socket.run([*raw_reads(world, raw_paths), *arms], count)
        finally:
            raw_socket.close()

    async def with_client(work: Callable[[ZooKeeperClient], Awaitable[Rate]]) -> Rate:
        client = ZooKeeperClient(world.address, world=real_world(), session_timeout_s=30)
        await client.start(10)
        try:
            return await work(client)
        finally:
            await client.close()

    async def kafkas(client: ZooKeeperClient) -> Rate:
        async def one(i: int) -> None:
            [(code, payload)] = await client.session.exchange(
                [codec.path_and_watch(codec.GET_DATA, world.watched[i], True)], retry=True
            )
            Reads().add(code, payload)

        return await timed(slow, lambda: in_flight(KAFKAS_WINDOW, slow, one))

    async def raw_kafkas() -> Rate:
        raw_socket = RawSocket(world.address)
        try:
            bodies = [codec.path_and_watch(codec.GET_DATA, path, True) for path in world.watched[:slow]]
            return raw_socket.run_windowed(bodies, KAFKAS_WINDOW)
        finally:
            raw_socket.close()

    plain = ZKClient(world.address, session_timeout=30)
    await plain.start()

    async def ours(client: ZooKeeperClient) -> Rate:
        return await timed(count, lambda: client.get_many(world.watched, watch=True))

    rates = await best(
        world.rounds,
        {
            "raw socket": raw,
            "ours": lambda: with_client(ours),
            BASELINE: lambda: with_client(kafkas),
            RAW_BASELINE: raw_kafkas,
        },
    )
    rates |= await java_rate(world, "arm", slow)
    rates["aiozk"] = await timed(slow, lambda: in_flight(1000, slow, lambda i: plain.get(world.watched[i], watch=True)))
    rates["kazoo"] = kazoo_rate(world, lambda kazoo, i: kazoo.get_async(world.watched[i], watch=lambda _: None), slow)
    await plain.close()
    return rates


def kazoo_rate(world: World, one: Callable[[KazooClient, int], object], count: int | None = None) -> Rate:
    """Return kazoo's rate with a thousand in flight; it has its own threads, so blocking the idle loop is harmless."""
    count = world.slow if count is None else count
    kazoo = KazooClient(world.address, timeout=30)
    kazoo.start()
    try:
        started = time.perf_counter()
        for at in range(0, count, 1000):
            results = [one(kazoo, i) for i in range(at, min(at + 1000, count))]
            for result in results:
                result.get()  # type: ignore[attr-defined]
        return count / (time.perf_counter() - started)
    finally:
        kazoo.stop()
        kazoo.close()


# -- the report --------------------------------------------------------------------------------------------------------


def report(cases: dict[str, dict[str, Rate]], json_path: str | None) -> None:
    table = Table(title=f"ZooKeeper, one server, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    for heading in ("case", "subject", "znodes/s", f"× {BASELINE}", "of raw"):
        table.add_column(heading, justify="left" if heading in ("case", "subject") else "right")
    rows = []
    for case, rates in cases.items():
        for at, (subject, rate) in enumerate(rates.items()):
            ratio = rate / rates[BASELINE]
            share = f"{rate / rates['raw socket']:.0%}"
            table.add_row(case if not at else "", subject, f"{rate:,.0f}", f"{ratio:.1f}", share, end_section=False)
            rows.append({"case": case, "subject": subject, "rate": round(rate, 1), "ratio": round(ratio, 2)})
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if json_path:
        Path(json_path).write_text(json.dumps(rows, indent=1) + "\n")


async def measure(address: str, options: argparse.Namespace) -> dict[str, dict[str, Rate]]:
    client = ZooKeeperClient(f"{address}", world=real_world(), session_timeout_s=60)
    await client.start(30)
    try:
        world = World(address, client, options.partitions, options.watches, options.rounds)
        await create_znodes(world)
        return {
            f"read {options.partitions:,} partition states": await reading(world),
            f"write {options.partitions:,} fenced states": await writing(world),
            f"arm {options.watches:,} watches": await arming(world),
        }
    finally:
        await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="ZooKeeper: our layer against Kafka's form, aiozk, kazoo, raw bytes")
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--watches", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connect", help="an empty ZooKeeper that runs already; otherwise one is started")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    if options.connect:
        report(uvloop.run(measure(options.connect, options)), options.json)
        return
    with tempfile.TemporaryDirectory(prefix="bench-zookeeper-") as folder:
        server = ServerAsShipped(Path(folder))
        server.start()
        try:
            report(uvloop.run(measure(server.address, options)), options.json)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
