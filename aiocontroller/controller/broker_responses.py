"""Brokers' responses to LeaderAndIsr, StopReplica and UpdateMetadata (``LeaderAndIsrResponseReceived`` and others)."""

from __future__ import annotations

import logging

from aiocontroller.controller import broker_starts
from aiocontroller.controller.brokers import on_replicas_become_offline
from aiocontroller.controller.debts import debts_answered
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.topic_deletion import resume_deletions
from aiocontroller.controller.topic_deletion import stop_replica_response_received as deletion_answered
from aiocontroller.core.apply import apply
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    LeaderAndIsrResponseReceived,
    StopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from aiocontroller.core.log_dirs import read_answer

log = logging.getLogger(__name__)


async def leader_and_isr_response_received(shell: ControllerShell, event: LeaderAndIsrResponseReceived) -> None:
    """Take replicas offline whose log directory has failed."""
    found = read_answer(shell.context, event)
    if found is None:
        return
    if event.error_code:
        _log_refusal(event.broker, "LeaderAndIsr", event.error_code)
        return
    apply(shell.context, found.change)
    if found.newly_offline:
        log.error("Log directory failures on broker %d: %s", event.broker, shell.sample(found.newly_offline))
        shell.journal.append("broker", broker=event.broker, detail="log directory failed")
        await broker_starts.disk_failed(shell, event.broker)
        await on_replicas_become_offline(shell, {event.broker: found.newly_offline})


async def stop_replica_response_received(shell: ControllerShell, event: StopReplicaResponseReceived) -> None:
    """Take in which replicas a broker has deleted: first those of reassignments, then those of deleted topics."""
    await debts_answered(shell, event)
    if event.asked.debts:
        await resume_deletions(shell)  # a topic without an id waits for them
    await deletion_answered(shell, event)


async def update_metadata_response_received(shell: ControllerShell, event: UpdateMetadataResponseReceived) -> None:
    """Log a refusal; other answers carry no information."""
    if event.error_code:
        _log_refusal(event.broker, "UpdateMetadata", event.error_code)


def _log_refusal(broker: int, request: str, code: int) -> None:
    """Log a refusal: a stale broker epoch is a bounce about to be reported; other errors need attention."""
    level = logging.INFO if code == KafkaErrorCode.STALE_BROKER_EPOCH else logging.ERROR
    log.log(level, "Broker %d refused %s with %s", broker, request, _named(code))


def _named(code: int) -> str:
    try:
        return KafkaErrorCode(code).name
    except ValueError:
        return f"error {code}"
