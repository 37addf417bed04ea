"""Blocks of producer ids for brokers (``AllocateProducerIds``), which idempotent producers need to start."""

from __future__ import annotations

import logging

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import AllocateProducerIds
from aiocontroller.zookeeper.cluster_znodes import ProducerIdBlock
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)

BLOCK_SIZE = 1000
"""Number of ids that a broker gets at a time, as in Kafka."""
MAX_PRODUCER_ID = (1 << 63) - 1
MAX_ATTEMPTS = 16


async def allocate_producer_ids(shell: ControllerShell, event: AllocateProducerIds) -> None:
    """Answers with (first id, count), or an error code."""
    known = shell.context.brokers.get(event.broker)
    if known is None and not event.own:
        event.reply.answer(KafkaErrorCode.BROKER_ID_NOT_REGISTERED)
    elif known is not None and known.epoch != event.broker_epoch:
        event.reply.answer(KafkaErrorCode.STALE_BROKER_EPOCH)
    else:
        first = await _take_block(shell, event.broker)
        event.reply.answer(KafkaErrorCode.UNKNOWN_SERVER_ERROR if first is None else (first, BLOCK_SIZE))


async def _take_block(shell: ControllerShell, broker: int) -> int | None:
    """Allocate an unused block by compare-and-set on the znode, under the fence; returns its first id."""
    for _attempt in range(MAX_ATTEMPTS):
        last, version = await shell.zk.get_latest_producer_id_block()
        if isinstance(last, BadZNode):
            shell.report_bad_znodes([last])  # guessing the next block could hand out an id twice
            return None
        first = 0 if last is None else last.block_end + 1
        if first + BLOCK_SIZE - 1 > MAX_PRODUCER_ID:
            log.error("All producer ids have been given out, the last block ended at %d", first - 1)
            return None
        block = ProducerIdBlock(broker, first, first + BLOCK_SIZE - 1)
        if await shell.zk.set_latest_producer_id_block(block, version, fence=shell.context.epoch_zk_version):
            return first
    return None
