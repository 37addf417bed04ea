"""Compares our codecs with kio's, in one run: µs per partition and how many times faster.

    python benchmarks/wire.py [--partitions 100000] [--brokers 100] [--rounds 5] [--json FILE]

Both start from the partition table, as a controller does, so the time for building kio's entities is included.  Each
figure is the best of the rounds; kio encodes only a tenth of the partitions.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from aiocontroller.core.alter_partition import AlterPartitionResult
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.wire import cold
from aiocontroller.wire.alter_partition import decode_alter_partition_request, encode_alter_partition_response
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import FrameReader, request_frame
from aiocontroller.wire.leader_and_isr import EncodedValues, LeaderAndIsrEncoder, decode_leader_and_isr_response
from aiocontroller.wire.update_metadata import UpdateMetadataEncoder

Rows = list[dict[str, Any]]


def cluster(topics: int, partitions: int, brokers: int) -> PartitionTable:
    """Return a table with replication factor 3, all in sync, and replicas spread as Kafka does."""
    table = PartitionTable()
    for t in range(topics):
        topic = table.add_topic(f"topic-{t:06}", (t + 1).to_bytes(16, "big"))
        shift = 1 + t % max(1, brokers - 3)
        for p in range(partitions):
            first = (t * 7 + p) % brokers
            replicas = tuple(dict.fromkeys((first, (first + shift) % brokers, (first + shift + 1) % brokers)))
            row = table.add_partition(topic, p, ReplicaAssignment(replicas))
            table.set_leadership(row, LeaderAndIsr(replicas[0], 3, replicas, 5, 7))
    return table


def best(rounds: int, work: Callable[[], object]) -> float:
    """Return the shortest time in seconds; the collector runs between the rounds, as it would between requests."""
    seconds = []
    for _ in range(rounds):
        gc.collect()
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


# -- kio's side --------------------------------------------------------------------------------------------------------


def parts(api: ApiKey, version: int) -> tuple[Any, dict[str, Any]]:
    request = load_request_schema(api, version)
    module = sys.modules[request.__module__]
    return request, vars(module)


def kio_request(api: ApiKey, table: PartitionTable, rows: Sequence[int]) -> bytes:
    """Build and encode LeaderAndIsr 7 or UpdateMetadata 8."""
    lisr = api == ApiKey.LEADER_AND_ISR
    request, names = parts(api, 7 if lisr else 8)
    name = "LeaderAndIsr" if lisr else "UpdateMetadata"
    partition_class, topic_class = names[f"{name}PartitionState"], names[f"{name}TopicState"]
    by_topic: dict[int, list[Any]] = {}
    for row in rows:
        assignment = table.assignment(row)
        common = {
            "partition_index": table.index_of[row],
            "controller_epoch": table.controller_epoch[row],
            "leader": table.leader[row],
            "leader_epoch": table.leader_epoch[row],
            "isr": table.isr(row),
            "replicas": assignment.replicas,
        }
        if lisr:
            state = partition_class(partition_epoch=table.partition_epoch[row], is_new=False, **common)
        else:
            state = partition_class(zk_version=table.partition_epoch[row], offline_replicas=(), **common)
        by_topic.setdefault(table.topic_of[row], []).append(state)
    states = []
    for number, members in by_topic.items():
        topic = table.topics[number]
        assert topic is not None
        topic_id = UUID(bytes=topic.id)
        states.append(topic_class(topic_name=topic.name, topic_id=topic_id, partition_states=tuple(members)))
    head = {"controller_id": 1, "is_k_raft_controller": False, "controller_epoch": 1, "broker_epoch": 1}
    rest = {"type_": 0, "live_leaders": ()} if lisr else {"live_brokers": ()}
    out = io.BytesIO()
    entity_writer(request)(out, request(**head, topic_states=tuple(states), **rest))
    return out.getvalue()


# -- encoding ----------------------------------------------------------------------------------------------------------


def encoders(table: PartitionTable, rows: Sequence[int]) -> dict[ApiKey, Callable[[], Any]]:
    live = range(10_000)
    return {
        ApiKey.LEADER_AND_ISR: lambda: LeaderAndIsrEncoder(
            7, controller_id=1, controller_epoch=1, table=table, rows=rows
        ),
        ApiKey.UPDATE_METADATA: lambda: UpdateMetadataEncoder(
            8, controller_id=1, controller_epoch=1, table=table, rows=rows, live_brokers=(), live=live
        ),
    }


def measure_encoders(rows: Rows, partitions: int, brokers: int, rounds: int) -> None:
    for per_topic in (1000, 100, 10, 1):
        table = cluster(partitions // per_topic, per_topic, brokers)
        wanted = list(table.rows())
        sample = wanted[: max(per_topic, len(wanted) // 10)]
        for api, make in encoders(table, wanted).items():
            assert encoders(table, sample)[api]().body().for_broker(1) == kio_request(api, table, sample)
            ours = best(rounds, lambda make=make: make().body()) / len(wanted)
            kio = best(2, lambda api=api: kio_request(api, table, sample)) / len(sample)  # noqa: B023
            rows.append(row(f"{api.name} encode, {per_topic} partitions a topic", len(wanted), ours, kio))
        if per_topic == 100:
            on_broker = table.partitions_on_broker(1)
            make = encoders(table, on_broker)[ApiKey.LEADER_AND_ISR]
            ours = best(rounds, lambda make=make: make().body()) / len(on_broker)
            rows.append(row("LEADER_AND_ISR encode, one broker's partitions", len(on_broker), ours))
            kept = EncodedValues(table)
            arguments: Any = {
                "controller_id": 1,
                "controller_epoch": 1,
                "table": table,
                "rows": on_broker,
                "kept": kept,
            }
            ours = best(rounds, lambda a=arguments: LeaderAndIsrEncoder(7, **a).body()) / len(on_broker)
            rows.append(row("the same, encoded values kept", len(on_broker), ours))
            measure_sharing(rows, encoders(table, wanted)[ApiKey.UPDATE_METADATA]().body(), brokers, rounds)


def measure_sharing(rows: Rows, body: Any, brokers: int, rounds: int) -> None:
    def frames() -> None:
        for broker in range(brokers):
            request_frame(ApiKey.UPDATE_METADATA, 8, broker, "controller", *body.pieces_for_broker(broker))

    rows.append(
        {
            "what": f"one UPDATE_METADATA body ({len(body)} bytes) framed for {brokers} brokers",
            "ms": round(best(rounds, frames) * 1e3, 3),
        }
    )


# -- decoding ----------------------------------------------------------------------------------------------------------


def measure_decoders(rows: Rows, partitions: int, rounds: int) -> None:
    answer = cold.encode_response(
        ApiKey.LEADER_AND_ISR,
        7,
        cold.response(
            ApiKey.LEADER_AND_ISR,
            7,
            topics=[
                {"topic_id": bytes([1] * 16), "partition_errors": [{"partition_index": p} for p in range(100)]}
                for _ in range(partitions // 100)
            ],
        ),
    )
    native = entity_reader(load_response_schema(ApiKey.LEADER_AND_ISR, 7))
    ours = best(rounds, lambda: decode_leader_and_isr_response(7, answer)) / partitions
    kio = best(rounds, lambda: native(answer, 0)) / partitions
    rows.append(row("LEADER_AND_ISR response decode, no errors", partitions, ours, kio))
    chunks = [answer[at : at + 65536] for at in range(0, len(answer), 65536)]
    prefix = len(answer).to_bytes(4, "big")

    def read_frame() -> None:
        reader = FrameReader()
        reader.feed(prefix)
        for chunk in chunks:
            reader.feed(chunk)

    seconds = best(rounds, read_frame)
    rows.append({"what": f"a frame of {len(answer)} bytes in chunks of 64 KiB", "ms": round(seconds * 1e3, 3)})


def measure_alter_partition(rows: Rows, rounds: int) -> None:
    n = 5000
    held = LeaderAndIsr(1, 3, (1, 2, 3), 0, 8)
    results = [AlterPartitionResult((1 + i // 100).to_bytes(16, "big"), i % 100, 0, held) for i in range(n)]
    fields = {"leader_id": 1, "leader_epoch": 3, "isr": (1, 2, 3), "partition_epoch": 8}

    def kio() -> bytes:
        topics = [
            {
                "topic_id": (1 + t).to_bytes(16, "big"),
                "partitions": [{"partition_index": p, **fields} for p in range(100)],
            }
            for t in range(n // 100)
        ]
        message = cold.response(ApiKey.ALTER_PARTITION, 3, topics=topics)
        return cold.encode_response(ApiKey.ALTER_PARTITION, 3, message)

    assert kio() == encode_alter_partition_response(3, 0, results)
    ours = best(rounds, lambda: encode_alter_partition_response(3, 0, results)) / n
    rows.append(row("ALTER_PARTITION response encode", n, ours, best(rounds, kio) / n))
    isr = [{"broker_id": b, "broker_epoch": -1} for b in (1, 2, 3)]
    message = cold.request(
        ApiKey.ALTER_PARTITION,
        3,
        topics=[
            {
                "topic_id": (1 + t).to_bytes(16, "big"),
                "partitions": [{"partition_index": p, "new_isr_with_epochs": isr} for p in range(100)],
            }
            for t in range(n // 100)
        ],
    )
    body = cold.encode_request(ApiKey.ALTER_PARTITION, 3, message)
    native = entity_reader(load_request_schema(ApiKey.ALTER_PARTITION, 3))
    ours = best(rounds, lambda: decode_alter_partition_request(3, body)) / n
    rows.append(row("ALTER_PARTITION request decode", n, ours, best(rounds, lambda: native(body, 0)) / n))


# -- the table ---------------------------------------------------------------------------------------------------------


def row(what: str, n: int, ours: float, kio: float | None = None) -> dict[str, Any]:
    made = {"what": what, "partitions": n, "us_per_partition": round(ours * 1e6, 3)}
    if kio is not None:
        made |= {"kio_us_per_partition": round(kio * 1e6, 3), "times_faster": round(kio / ours, 1)}
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows: Rows = []
    measure_encoders(rows, options.partitions, options.brokers, options.rounds)
    measure_decoders(rows, options.partitions, options.rounds)
    measure_alter_partition(rows, options.rounds)
    print(f"{'':58}{'µs/partition':>14}{'kio':>9}{'ratio':>8}")
    for found in rows:
        if "ms" in found:
            print(f"{found['what']:58}{found['ms']:>11} ms")
        else:
            kio, ratio = found.get("kio_us_per_partition", ""), found.get("times_faster", "")
            print(f"{found['what']:58}{found['us_per_partition']:>14}{kio:>9}{ratio:>8}")
    if options.json:
        about = {"benchmark": "wire", "python": platform.python_version(), "machine": platform.machine()}
        options.json.write_text(json.dumps({**about, **vars(options), "json": None, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
