"""Administrators' requests to the controller of a stage, over its listener, in any version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.service import Service
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests.conformance.simulated_cluster import SimulatedCluster
from tests.integration.controller.asking import Asking, asking
from tests.integration.controller.harness import until

Errors = Mapping[str, KafkaErrorCode]


class Admin:
    def __init__(self, client: Asking) -> None:
        self.client = client

    async def ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        return cold.decode_response(api, version, await self.client.request(api, version, body))

    async def create_topics(
        self, *topics: dict[str, Any], version: int = 7, validate_only: bool = False, timeout_ms: int = 10_000
    ) -> Any:
        more = {"validate_only": validate_only} if version >= 1 else {}
        return await self.ask(ApiKey.CREATE_TOPICS, version, topics=topics, timeout=timeout_ms, **more)

    async def delete_topics(self, *names: str, version: int = 6, timeout_ms: int = 10_000) -> Any:
        fields: dict[str, Any] = {"topic_names": names}
        if version >= 6:
            fields = {"topics": [{"name": name, "topic_id": bytes(16)} for name in names]}
        return await self.ask(ApiKey.DELETE_TOPICS, version, timeout=timeout_ms, **fields)

    async def delete_topics_by_id(self, *ids: bytes, timeout_ms: int = 10_000) -> Any:
        topics = [{"name": None, "topic_id": topic_id} for topic_id in ids]
        return await self.ask(ApiKey.DELETE_TOPICS, 6, timeout=timeout_ms, topics=topics)

    async def create_partitions(
        self, counts: Mapping[str, int], *, version: int = 3, validate_only: bool = False, timeout_ms: int = 10_000
    ) -> Any:
        topics = [{"name": name, "count": count, "assignments": None} for name, count in counts.items()]
        more = {"timeout": timeout_ms, "validate_only": validate_only}
        return await self.ask(ApiKey.CREATE_PARTITIONS, version, topics=topics, **more)


@asynccontextmanager
async def admin_of(service: Service) -> AsyncIterator[Admin]:
    async with asking(service) as client:
        yield Admin(client)


def topic_req(
    name: str,
    partitions: int | None = None,
    replication_factor: int | None = None,
    *,
    config: Mapping[str, str] | None = None,
    assignment: Mapping[int, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Kafka's ``topicReq``: one partition and replica, unless an assignment is given."""
    default = -1 if assignment else 1
    return {
        "name": name,
        "num_partitions": default if partitions is None else partitions,
        "replication_factor": default if replication_factor is None else replication_factor,
        "assignments": [{"partition_index": p, "broker_ids": ids} for p, ids in (assignment or {}).items()],
        "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
    }


def errors_of(answer: Any) -> dict[str, KafkaErrorCode]:
    """By topic, of CreateTopics, DeleteTopics and CreatePartitions."""
    for field in ("topics", "responses", "results"):
        if hasattr(answer, field):
            return {each.name: KafkaErrorCode(each.error_code) for each in getattr(answer, field)}
    raise AssertionError(answer)


async def exists_everywhere(stage: SimulatedCluster, name: str, partitions: int = 1) -> None:
    """Every broker knows the leader of each of its partitions."""

    def known() -> bool:
        cached = [stage.cached(broker, name, p) for broker in stage.simulated for p in range(partitions)]
        return all(each is not None and each.leader >= 0 for each in cached)

    await until(known, f"{name} is known to all brokers")


async def gone_everywhere(stage: SimulatedCluster, name: str) -> None:
    await until(lambda: all(stage.cached(broker, name) is None for broker in stage.simulated), f"{name} is forgotten")
