"""The requests that a controller answers: how each becomes an event, and how its answer becomes bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import AllocateProducerIds, AlterPartitionReceived, ControlledShutdown, Reply, Request
from aiocontroller.wire import messages
from aiocontroller.wire.alter_partition import decode_alter_partition_request, encode_alter_partition_response
from aiocontroller.wire.apis import ApiKey, VersionRange


class ControllerApi(NamedTuple):
    versions: VersionRange
    event: Callable[[int, bytes, Reply], Request]
    """(version, body, reply) -> event; FrameError when the body cannot be understood."""
    encode: Callable[[int, Any], bytes]
    """(version, what the event was answered with) -> body."""


def _alter_partition(version: int, body: bytes, reply: Reply) -> Request:
    request = decode_alter_partition_request(version, body)
    return AlterPartitionReceived(
        broker=request.broker,
        broker_epoch=request.broker_epoch,
        version=version,
        partitions=request.partitions,
        reply=reply,
    )


def _controlled_shutdown(version: int, body: bytes, reply: Reply) -> Request:
    request = messages.decode_controlled_shutdown_request(version, body)
    return ControlledShutdown(broker=request.broker, broker_epoch=request.broker_epoch, reply=reply)


def _allocate_producer_ids(version: int, body: bytes, reply: Reply) -> Request:
    request = messages.decode_allocate_producer_ids_request(version, body)
    return AllocateProducerIds(broker=request.broker, broker_epoch=request.broker_epoch, reply=reply)


def _or_error(encode: Callable[..., bytes]) -> Callable[[int, Any], bytes]:
    """An encoder that takes (version, error code, *result) as one that takes (version, result or error code)."""

    def encode_answer(version: int, result: Any) -> bytes:
        if isinstance(result, KafkaErrorCode):
            return encode(version, result)
        return encode(version, KafkaErrorCode.NONE, *result)

    return encode_answer


SERVED: dict[int, ControllerApi] = {
    ApiKey.ALTER_PARTITION: ControllerApi(
        VersionRange(0, 3), _alter_partition, _or_error(lambda v, code, *r: encode_alter_partition_response(v, code, r))
    ),
    ApiKey.CONTROLLED_SHUTDOWN: ControllerApi(
        VersionRange(0, 3),
        _controlled_shutdown,
        _or_error(lambda v, code, *r: messages.encode_controlled_shutdown_response(v, code, r)),
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: ControllerApi(
        VersionRange(0, 0), _allocate_producer_ids, _or_error(messages.encode_allocate_producer_ids_response)
    ),
}

PRELOADED = (ApiKey.API_VERSIONS, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALLOCATE_PRODUCER_IDS)
"""What goes through the cold codec; loading it takes long enough to be done before the first request."""

OFFERED: dict[int, VersionRange] = {
    ApiKey.API_VERSIONS: VersionRange(0, 4),
    **{api: served.versions for api, served in SERVED.items()},
}
