"""A process of brokers that report the ends of their logs, for ``scripts/bench recovery``; commands are its input.

The logs follow from the names of broker, topic and partition, so the benchmark knows which one is the best.  Each log
has records of an early epoch and of a late one, and, like real logs, phantoms: epochs without records.

    python -m benchmarks._log_reporting_brokers --zookeeper HOST:PORT/CHROOT
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import zlib
from struct import Struct
from typing import NamedTuple

import uvloop

from aiocontroller.lab.recording_brokers import timed_broker
from aiocontroller.lab.recording_brokers.timed_broker import TimedBroker
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.frames import decode_request_header, response_frame
from aiocontroller.wire.list_offsets import LATEST
from aiocontroller.wire.primitives import NO_TAGS, UNLIMITED, Buffer, Cursor, array_length, string

BROKERS = (1, 2, 3)
EPOCHS = 500
EARLY_END = 400
LIST_OFFSETS_VERSION, FETCH_VERSION = 9, 12
OUT_OF_RANGE = 1

_OFFSET_ASKED = Struct(">iiqB")
_OFFSET_ANSWER = Struct(">ihqqiB")
_EPOCH_ASKED = Struct(">iiqiqiB")
_EPOCH_ANSWER = Struct(">ihqqqBiBBBBiqB")
_UNKNOWN_EPOCH_ANSWER = Struct(">ihqqqBiBB")
_EPOCH_END_BYTES = 13


class ReplicaLog(NamedTuple):
    """One replica's log."""

    state_epoch: int
    """The partition's leader epoch; the log knows it, with or without records."""
    last_epoch: int
    """The leader epoch of the log's last record."""
    end: int

    def end_of(self, epoch: int) -> tuple[int, int] | None:
        """Return the highest epoch up to this one that the log knows, and its end; None if this epoch is too high."""
        if epoch > self.state_epoch:
            return None
        if epoch >= self.last_epoch:
            return (self.state_epoch if epoch == self.state_epoch else self.last_epoch), self.end
        return 0, EARLY_END


def log_of(broker: int, topic: str, partition: int) -> ReplicaLog:
    drawn = zlib.crc32(f"{topic}-{partition}".encode())
    own = zlib.crc32(f"{broker} {topic}-{partition}".encode())
    epoch = 10 + drawn % EPOCHS
    return ReplicaLog(epoch, epoch - own % 4, 1000 + own // 4 % 500)


class LogReportingBroker(TimedBroker):
    """Answers questions about logs, and everything else as a recording broker does."""

    def answer(self, frame: bytes) -> list[bytes]:
        api = int.from_bytes(frame[:2], "big")
        if api not in (ApiKey.LIST_OFFSETS, ApiKey.FETCH):
            return super().answer(frame)
        header, body = decode_request_header(frame)
        answer = self._offsets(body) if api == ApiKey.LIST_OFFSETS else self._epoch_ends(body)
        return response_frame(api, header.api_version, header.correlation_id, *answer)

    def _offsets(self, body: Buffer) -> list[bytes]:
        cursor = Cursor("ListOffsets", body, flexible=True)
        cursor.tags_left = UNLIMITED
        cursor.skip(5, "replica and isolation level")
        topics = cursor.array_length("topics", 3)
        parts = [b"\0" * 4, array_length(topics, flexible=True)]
        for _ in range(topics):
            topic, count = cursor.string("topic"), cursor.array_length("partitions", _OFFSET_ASKED.size)
            parts += (string(topic, flexible=True), array_length(count, flexible=True))
            for _ in range(count):
                partition, _, timestamp, _ = cursor.unpack(_OFFSET_ASKED, "partition")
                offset = log_of(self.id, topic, partition).end if timestamp == LATEST else 0
                parts.append(_OFFSET_ANSWER.pack(partition, 0, -1, offset, -1, 0))
            parts.append(NO_TAGS)
            cursor.tags()
        return [*parts, NO_TAGS]

    def _epoch_ends(self, body: Buffer) -> list[bytes]:
        cursor = Cursor("Fetch", body, flexible=True)
        cursor.tags_left = UNLIMITED
        cursor.skip(25, "head")
        topics = cursor.array_length("topics", 3)
        parts = [b"\0" * 10, array_length(topics, flexible=True)]
        for _ in range(topics):
            topic, count = cursor.string("topic"), cursor.array_length("partitions", _EPOCH_ASKED.size)
            parts += (string(topic, flexible=True), array_length(count, flexible=True))
            for _ in range(count):
                partition, _, _, epoch, *_ = cursor.unpack(_EPOCH_ASKED, "partition")
                found = log_of(self.id, topic, partition).end_of(epoch)
                if found is None:
                    parts.append(_UNKNOWN_EPOCH_ANSWER.pack(partition, OUT_OF_RANGE, -1, -1, -1, 0, -1, 0, 0))
                else:
                    tagged = (1, 0, _EPOCH_END_BYTES, *found, 0)
                    parts.append(_EPOCH_ANSWER.pack(partition, 0, 0, -1, 0, 0, -1, 0, *tagged))
            parts.append(NO_TAGS)
            cursor.tags()
        return [*parts, NO_TAGS]


async def serve(zookeeper: str) -> None:
    """Answer commands: ``start N`` with the time at which the broker was registered, ``latest`` with the time of the
    last request."""
    timed_broker.OFFERED |= {
        ApiKey.LIST_OFFSETS: VersionRange(1, LIST_OFFSETS_VERSION),
        ApiKey.FETCH: VersionRange(4, FETCH_VERSION),
    }
    brokers = {number: LogReportingBroker(zookeeper, number) for number in BROKERS}
    print(json.dumps({"answer": "ready"}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        words = line.split()
        if words[0] == "start":
            await brokers[int(words[1])].start()
            answer = time.monotonic()
        else:
            answer = max((broker.heard[-1][0] for broker in brokers.values() if broker.heard), default=0.0)
        print(json.dumps({"answer": answer}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zookeeper", required=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(parser.parse_args().zookeeper))


if __name__ == "__main__":
    main()
