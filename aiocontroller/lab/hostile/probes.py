"""Probes of a controller under attack: its health page, a broker's AlterPartition, its role and its memory.

Each probe repeats until it is cancelled and records one sample per try.  A try without an answer within ``GIVE_UP_S``
counts as one of that length.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.wire.alter_partition import (
    AlterPartitionRequest,
    decode_alter_partition_response,
    encode_alter_partition_request,
)
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_response_header, request_frame

GIVE_UP_S = 5.0
HEALTH_EVERY_S = 0.1
ALTER_EVERY_S = 0.05
LOOK_EVERY_S = 0.2
_VERSION = 3


class Samples(msgspec.Struct):
    """The samples of one probe, in seconds."""

    seconds: list[float] = []
    failures: list[str] = []
    """The wrong answers and errors."""

    def add(self, seconds: float, failure: str = "") -> None:
        self.seconds.append(seconds)
        if failure:
            self.failures.append(failure)

    def quantile(self, q: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0

    def taken_since(self, at: int) -> Samples:
        """Return the samples after the first ``at``."""
        return Samples(self.seconds[at:])


async def probe_health(port: int, samples: Samples) -> None:
    """Request ``/healthz`` on a new connection each time, as a load balancer or a supervisor does."""
    while True:
        began_s, failure = time.monotonic(), ""
        try:
            async with asyncio.timeout(GIVE_UP_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(b"GET /healthz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")
                    answer = await reader.read()
                finally:
                    writer.transport.abort()
            if not answer.startswith(b"HTTP/1.1 200"):
                failure = f"/healthz answered {answer[:60]!r}"
        except (OSError, TimeoutError) as error:
            failure = f"/healthz: {error!r}"
        samples.add(GIVE_UP_S if failure else time.monotonic() - began_s, failure)
        await asyncio.sleep(HEALTH_EVERY_S)


class Leadership(msgspec.Struct, frozen=True):
    """A partition with one replica, and the registration of its broker."""

    topic_id: bytes
    state: LeaderAndIsr
    broker: int
    broker_epoch: int


async def probe_alter_partition(port: int, of: Leadership, samples: Samples) -> None:
    """Send AlterPartition for the ISR that the leader already has, on one connection.

    The controller answers such a request without a write.
    """
    change = AlterPartition(
        of.topic_id,
        0,
        isr=of.state.isr,
        leader_epoch=of.state.leader_epoch,
        partition_epoch=of.state.partition_epoch,
        recovery_state=of.state.recovery_state,
    )
    body = encode_alter_partition_request(_VERSION, AlterPartitionRequest(of.broker, of.broker_epoch, (change,)))
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while True:
        began_s, failure = time.monotonic(), ""
        try:
            async with asyncio.timeout(GIVE_UP_S):
                if streams is None:
                    streams = await asyncio.open_connection("127.0.0.1", port)
                failure = await _alter(*streams, body)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            failure = f"AlterPartition: {error!r}"
            if streams is not None:
                streams[1].transport.abort()
            streams = None
        samples.add(GIVE_UP_S if failure else time.monotonic() - began_s, failure)
        await asyncio.sleep(ALTER_EVERY_S)


async def _alter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> str:
    """Return what is wrong with the answer; empty if nothing is."""
    writer.writelines(request_frame(ApiKey.ALTER_PARTITION, _VERSION, 7, "probe", body))
    size = int.from_bytes(await reader.readexactly(4), "big")
    _, answer = decode_response_header(ApiKey.ALTER_PARTITION, _VERSION, await reader.readexactly(size))
    response = decode_alter_partition_response(_VERSION, answer)
    codes = [response.error_code, *(result.error_code for result in response.results)]
    return f"AlterPartition answered {codes}" if any(codes) or len(codes) < 2 else ""


class Process(msgspec.Struct):
    """The controller's process according to the operating system."""

    rss_mib: float = 0.0
    """The latest sample."""
    max_rss_mib: float = 0.0
    descriptors: int = 0


async def watch_process(pid: int, seen: Process) -> None:
    """Sample the process until it ends."""
    folder = Path(f"/proc/{pid}")
    while True:
        try:
            resident = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS"))
            seen.rss_mib = int(resident.split()[1]) / 1024
            seen.descriptors = max(seen.descriptors, sum(1 for _ in (folder / "fd").iterdir()))
        except (OSError, StopIteration):
            return
        seen.max_rss_mib = max(seen.max_rss_mib, seen.rss_mib)
        await asyncio.sleep(LOOK_EVERY_S)


async def controller_epoch(zk: Any) -> tuple[int, int]:
    """Return (id of the active controller, its epoch) from ZooKeeper; -1 for what does not exist."""
    holder, epoch = await asyncio.gather(zk.get_controller(watch=False), zk.get_controller_epoch())
    return getattr(holder, "controller_id", -1), -1 if epoch is None else epoch[0]
