"""Brokers that only listen, many in one process: answer at once, keep the bytes, count when asked.

    python -m benchmarks.recording_brokers --zookeeper HOST:PORT --brokers 10

Driven by lines on standard input, answered by one JSON line each: ``mark`` forgets what was heard, ``latest`` says when
anything was heard last, ``heard`` when the last request of each kind ended and how many partitions there were;
``kill N``, ``start N``, ``shutdown N HOST PORT`` (asks that controller for a controlled shutdown; the seconds that it
took).  Times are ``time.monotonic``, which a machine's processes share.  Nothing is decoded while requests come in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any, cast

import uvloop

from aiocontroller.cluster.broker_requests import IntArrays, decode_leader_and_isr, decode_update_metadata, run_to_end
from aiocontroller.cluster.broker_responses import encode_leader_and_isr_response
from aiocontroller.cluster.controller_requests import encode_controlled_shutdown
from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.net.ports import Listener
from aiocontroller.net.real import real_world
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.frames import FrameReader, decode_request_header, encode_request_header, response_frame
from aiocontroller.wire.messages import encode_api_versions_response
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znodes import BrokerInfo

OFFERED = {
    ApiKey.LEADER_AND_ISR: VersionRange(0, 7),
    ApiKey.STOP_REPLICA: VersionRange(0, 4),
    ApiKey.UPDATE_METADATA: VersionRange(0, 8),
    ApiKey.API_VERSIONS: VersionRange(0, 4),
}
_START = 8


class RecordingBroker:
    def __init__(self, zookeeper: str, broker_id: int) -> None:
        self.id = broker_id
        self.epoch = 0
        self.heard: list[tuple[float, bytes]] = []
        """(time at which its last byte came, request without its length)."""
        self._zookeeper = zookeeper
        self._world = real_world()
        self._client: ZooKeeperClient | None = None
        self._listener: Listener | None = None
        self.connections: set[_Connection] = set()

    async def start(self) -> None:
        self._listener = await self._world.network.serve(lambda: _Connection(self), "127.0.0.1", 0)
        self._client = ZooKeeperClient(self._zookeeper, world=self._world, session_timeout_s=30)
        await self._client.start(30)
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", self._listener.port)
        info = BrokerInfo(Broker(self.id, -1, (endpoint,)), time.time_ns() // 1_000_000)
        self.epoch = await KafkaZkClient(self._client).register_broker(info)

    async def kill(self) -> None:
        """Its registration goes at once, as if its session had expired just now."""
        assert self._client is not None
        assert self._listener is not None
        self._listener.close()
        for connection in list(self.connections):
            connection.close()
        await self._client.close()

    async def shut_down(self, host: str, port: int) -> float:
        _, connection = await self._world.network.connect(BrokerConnection, host, port, timeout_s=10)
        header = encode_request_header(ApiKey.CONTROLLED_SHUTDOWN, 3, 1, "benchmark")
        started = time.monotonic()
        await connection.request([header, encode_controlled_shutdown(self.id, self.epoch)])
        connection.close()
        return time.monotonic() - started

    def answer(self, frame: bytes) -> list[bytes]:
        api, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        correlation_id = int.from_bytes(frame[4:8], "big")
        match api:
            case ApiKey.API_VERSIONS:
                body = [encode_api_versions_response(version, OFFERED)]
            case ApiKey.LEADER_AND_ISR:
                body = encode_leader_and_isr_response(version, 0, {})
            case ApiKey.UPDATE_METADATA:
                body = [b"\0\0\0" if version >= 6 else b"\0\0"]
            case _:
                body = [b"\0\0\1\0" if version >= 2 else b"\0\0\0\0\0\0"]
        return response_frame(api, min(version, 4) if api == ApiKey.API_VERSIONS else version, correlation_id, *body)

    def report(self) -> dict[str, Any]:
        arrays = IntArrays()
        last: dict[str, float] = {}
        first: dict[str, float] = {}
        partitions: dict[str, int] = {}
        requests: dict[str, int] = {}
        size = 0
        for moment, frame in self.heard:
            header, body = decode_request_header(frame)
            name = ApiKey(header.api_key).name
            requests[name] = requests.get(name, 0) + 1
            size += len(frame)
            first.setdefault(name, moment)
            last[name] = moment
            count = 0
            if header.api_key == ApiKey.LEADER_AND_ISR:
                leader_and_isr = run_to_end(decode_leader_and_isr(header.api_version, bytes(body), arrays))
                count = sum(len(states) for _, _, states in leader_and_isr.topics)
            elif header.api_key == ApiKey.UPDATE_METADATA:
                metadata = run_to_end(decode_update_metadata(header.api_version, bytes(body), arrays))
                count = sum(len(states) for _, _, states in metadata.topics)
            partitions[name] = partitions.get(name, 0) + count
        return {"first": first, "last": last, "partitions": partitions, "requests": requests, "bytes": size}


class _Connection(asyncio.Protocol):
    def __init__(self, broker: RecordingBroker) -> None:
        self._broker = broker
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._broker.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.connections.discard(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if int.from_bytes(frame[:2], "big") != ApiKey.API_VERSIONS:
                self._broker.heard.append((time.monotonic(), frame))
            assert self._transport is not None
            self._transport.writelines(self._broker.answer(frame))


async def serve(zookeeper: str, count: int) -> None:
    brokers = {n: RecordingBroker(zookeeper, n) for n in range(1, count + 1)}
    for broker in brokers.values():
        await broker.start()
    print(json.dumps({"ready": count}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await obey(brokers, line.split())), flush=True)


async def obey(brokers: dict[int, RecordingBroker], words: list[str]) -> Any:
    match words:
        case ["mark"]:
            for broker in brokers.values():
                broker.heard.clear()
            return {}
        case ["latest"]:
            return max((b.heard[-1][0] for b in brokers.values() if b.heard), default=0.0)
        case ["heard"]:
            return {n: b.report() for n, b in brokers.items()}
        case ["kill", n]:
            at = time.monotonic()
            await brokers[int(n)].kill()
            return at
        case ["start", n]:
            at = time.monotonic()
            await brokers[int(n)].start()
            return at
        case ["shutdown", n, host, port]:
            return await brokers[int(n)].shut_down(host, int(port))
    raise ValueError(f"unknown command {words}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--brokers", type=int, default=10)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(given.zookeeper, given.brokers))


if __name__ == "__main__":
    main()
