"""InitProducerId: an id for an idempotent producer, from a block that this controller allocated to itself.

A transactional producer is sent to its coordinator.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import AllocateProducerIds
from aiocontroller.server.apis import Apis, all_versions, decoded, respond
from aiocontroller.server.cluster_view import in_charge
from aiocontroller.server.error_answers import NO_PRODUCER_ID
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey

NO_ID, NO_EPOCH = -1, -1
NO_BLOCK = KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""The code that brokers answer while they wait for a block: producers of every release retry on it."""


def apis(shell: ControllerShell) -> Apis:
    """InitProducerId, for producers without a transactional id."""
    return {ApiKey.INIT_PRODUCER_ID: all_versions(ApiKey.INIT_PRODUCER_ID, ProducerIds(shell).handle)}


class ProducerIds:
    """Serves InitProducerId from blocks of producer ids."""

    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell
        self._next = 0
        self._left = 0
        self._coming: asyncio.Future[None] | None = None
        """One block is requested at a time, for all waiting producers."""

    async def handle(self, request: KafkaRequest) -> None:
        """Answer with the next id of our block, or ask for another block first."""
        asked = decoded(request)
        code = self._refused(request, asked)
        if code:
            respond(request, {**NO_PRODUCER_ID, "error_code": code})
            return
        if not self._left:
            await self._another_block()
        if not self._left:
            respond(request, {**NO_PRODUCER_ID, "error_code": NO_BLOCK})
            return
        producer_id = self._next
        self._next += 1
        self._left -= 1
        respond(request, {"producer_id": producer_id, "producer_epoch": 0})

    def _refused(self, request: KafkaRequest, asked: Any) -> KafkaErrorCode:
        permissions = Permissions(self._shell.authorizer, request.context)
        transactional_id = asked.transactional_id
        if transactional_id is not None:
            if not permissions.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
                return KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not permissions.may_cluster(AclOperation.IDEMPOTENT_WRITE) and not permissions.may_any(
            AclOperation.WRITE, ResourceType.TOPIC
        ):
            return KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED
        one_without_the_other = (getattr(asked, "producer_id", NO_ID) == NO_ID) != (
            getattr(asked, "producer_epoch", NO_EPOCH) == NO_EPOCH
        )
        if one_without_the_other or transactional_id == "":
            return KafkaErrorCode.INVALID_REQUEST
        if transactional_id is None:
            return KafkaErrorCode.NONE
        timed = asked.transaction_timeout.total_seconds() > 0
        return KafkaErrorCode.NOT_COORDINATOR if timed else KafkaErrorCode.INVALID_TRANSACTION_TIMEOUT

    async def _another_block(self) -> None:
        """Wait for a new block, or for the failure to get one."""
        if not in_charge(self._shell):
            return
        if self._coming is None:
            self._coming = asyncio.get_running_loop().create_future()
            event = AllocateProducerIds(broker=self._shell.id, broker_epoch=0, own=True, reply=Reply(self._came))
            self._shell.queue.append(event)
        await asyncio.shield(self._coming)

    def _came(self, result: Any) -> None:
        if not isinstance(result, KafkaErrorCode):
            self._next, self._left = result
        coming, self._coming = self._coming, None
        if coming is not None and not coming.done():
            coming.set_result(None)
