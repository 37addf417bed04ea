"""A controller that is asked as one more broker: brokers, a topic, and clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.config import load_config
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests.unit.server.front import Front, settle
from tests.unit.server.front import front as any_front

DESCRIBE, CREATE, WRITE = AclOperation.DESCRIBE, AclOperation.CREATE, AclOperation.WRITE
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
OTHER_ID = b"\x07" * 16
US = 1_000_001
UNKNOWN, HIDDEN = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
BEGUN = KafkaErrorCode.LEADER_NOT_AVAILABLE
NOT_FOUND = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE


@asynccontextmanager
async def front(**settings: str) -> AsyncIterator[Front]:
    """Brokers 1 (with a rack) and 2, topic orders with partitions led by 1, 2 and the dead 3."""

    async def cluster_id() -> str:
        return "abc"

    async with any_front() as it:
        it.shell.zk = SimpleNamespace(get_cluster_id=cluster_id)
        it.shell.policy, _ = load_config(overrides=settings)
        for number, rack in ((1, "r1"), (2, None)):
            at = (Endpoint("PLAINTEXT", f"b{number}", 9092), Endpoint("OTHER", f"other{number}", 9099))
            it.context.add_brokers([Broker(number, 7, at, rack)])
        it.topic("orders", 1, 2, 3)
        yield it


async def ask(it: Front, api: ApiKey, version: int, **fields: Any) -> Any:
    client = await it.connect()
    client.request(api, version, cold.encode_request(api, version, cold.request(api, version, **fields)))
    await settle()
    answer = cold.decode_response(api, version, client.answer(api, version))
    client.close()
    return answer


async def metadata(it: Front, version: int, *topics: str | bytes | None, **fields: Any) -> Any:
    """Of these topics; of none with None alone; of all without any."""
    asked: Any = [{"name": t} if isinstance(t, str) else {"topic_id": t, "name": None} for t in topics if t is not None]
    if not topics and version:
        asked = None
    return await ask(it, ApiKey.METADATA, version, topics=asked, **fields)


def topic_errors(answer: Any) -> dict[str | None, int]:
    return {topic.name: int(topic.error_code) for topic in answer.topics}
