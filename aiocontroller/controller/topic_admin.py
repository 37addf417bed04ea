"""What administrators ask of topics: ``CreateTopics``, ``CreatePartitions`` and ``DeleteTopics``.

The znodes are written as Kafka's tools write them, under the controller's fence, and treated at once: the watch that
they fire finds nothing new.  Departure from Kafka, which answers when its own cache knows the leaders: here an answer
means that every live broker has acknowledged them, or that the time which the caller gave is up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aiocontroller.controller.broker_settings import broker_settings
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.topic_deletion import topic_deletion
from aiocontroller.controller.topics import partition_modifications, topic_change
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    PartitionModifications,
    Reply,
    TopicChange,
    TopicDeletion,
    TopicResult,
)
from aiocontroller.core.replica_placement import PlacementError, assign_replicas_to_brokers
from aiocontroller.core.request_batch import Sent
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.topic_rules import TopicError

log = logging.getLogger(__name__)

Assignment = dict[int, tuple[int, ...]]
Results = dict[str | bytes, TopicResult]


async def create_topics(shell: ControllerShell, event: CreateTopics) -> None:
    admin = _admin(shell)
    settings: dict[str, str] = {}
    if any(t.partitions == -1 or t.replication_factor == -1 for t in event.topics if not t.assignment):
        settings = await broker_settings(shell)
    results: Results = {}
    names = [t.name for t in event.topics]
    for topic in event.topics:
        try:
            if names.count(topic.name) > 1:
                raise TopicError(KafkaErrorCode.INVALID_REQUEST, f"topic {topic.name!r} stands in the request twice")
            assignment = _placed(shell, topic, settings)
            configs = _configs(topic)
            await admin.check_create_topic(topic.name, assignment, configs)
            if not event.validate_only:
                await admin.create_topic(topic.name, assignment, configs=configs)
            results[topic.name] = TopicResult(
                KafkaErrorCode.NONE, partitions=len(assignment), replication_factor=len(assignment[0])
            )
        except (TopicError, PlacementError) as error:
            results[topic.name] = _refused(error)
    created = [name for name, result in results.items() if not result.error_code]
    sent = await topic_change(shell, TopicChange()) if created and not event.validate_only else None
    for name in created:
        known = shell.context.table.topic_by_name.get(str(name))
        if known is not None:
            results[name] = msgspec.structs.replace(results[name], topic_id=known.id)
    _answer_when_known(shell, event.reply, results, [sent], event.timeout_ms)


async def create_partitions(shell: ControllerShell, event: CreatePartitions) -> None:
    admin = _admin(shell)
    results: Results = {}
    sent: list[Sent | None] = []
    for topic in event.topics:
        try:
            assignment = await _expanded(shell, admin, topic)
            if not event.validate_only:
                await admin.add_partitions(topic.topic, assignment)
                sent.append(await partition_modifications(shell, [PartitionModifications(topic.topic)]))
            results[topic.topic] = TopicResult(KafkaErrorCode.NONE)
        except (TopicError, PlacementError) as error:
            results[topic.topic] = _refused(error)
    _answer_when_known(shell, event.reply, results, sent, event.timeout_ms)


async def delete_topics(shell: ControllerShell, event: DeleteTopics) -> None:
    admin = _admin(shell)
    table = shell.context.table
    results: Results = {}
    waiting: dict[str, str | bytes] = {}
    for asked in event.topics:
        known = table.topic_by_id.get(asked) if isinstance(asked, bytes) else table.topic_by_name.get(asked)
        if known is None:
            unknown = isinstance(asked, bytes)
            code = KafkaErrorCode.UNKNOWN_TOPIC_ID if unknown else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results[asked] = TopicResult(code, "This server does not host this topic.")
            continue
        results[asked] = TopicResult(KafkaErrorCode.REQUEST_TIMED_OUT, name=known.name, topic_id=known.id)
        try:
            if not shell.config.delete_topic_enable:
                raise TopicError(KafkaErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
            if known.name not in shell.context.topics_to_be_deleted:
                await admin.delete_topic(known.name)
            waiting[known.name] = asked
        except TopicError as error:
            results[asked] = _refused(error)
    _answer_when_gone(shell, event, results, waiting)
    await topic_deletion(shell, TopicDeletion())


def _admin(shell: ControllerShell) -> AdminZkClient:
    return AdminZkClient(shell.zk, fence=shell.context.epoch_zk_version)


def _refused(error: TopicError | PlacementError) -> TopicResult:
    return TopicResult(error.code, str(error))


def _configs(topic: NewTopic) -> dict[str, str]:
    configs = {name: value for name, value in topic.configs.items() if value is not None}
    if len(configs) != len(topic.configs):
        null = ", ".join(name for name, value in topic.configs.items() if value is None)
        raise TopicError(KafkaErrorCode.INVALID_CONFIG, f"found null values for {null}, expected texts")
    return configs


def _placed(shell: ControllerShell, topic: NewTopic, settings: Mapping[str, str]) -> Assignment:
    """The assignment that was given, or one over the live brokers."""
    if topic.assignment:
        if topic.partitions != -1 or topic.replication_factor != -1:
            found = "both a number of partitions or replicas and an assignment"
            raise TopicError(KafkaErrorCode.INVALID_REQUEST, f"topic {topic.name!r}: found {found}, expected one")
        # Who is not there is not asked for, unlike when a topic grows: a replica waits for its broker.
        named = sorted(
            shell.context.controllers.intersection(r for replicas in topic.assignment.values() for r in replicas)
        )
        if named:
            found = f"found {named[0]}, a controller, in the assignment: it holds no replicas"
            raise TopicError(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, found)
        return dict(sorted(topic.assignment.items()))
    partitions = int(settings["num.partitions"]) if topic.partitions == -1 else topic.partitions
    factor = topic.replication_factor
    if factor == -1:
        factor = int(settings["default.replication.factor"])
    return _assign(shell, partitions, factor, 0, _chance(shell))


def _chance(shell: ControllerShell) -> tuple[int, int]:
    """Start index and shift, drawn anew for each topic so that leaders spread."""
    count = max(1, len(shell.context.live))
    return shell.world.random.randrange(count), shell.world.random.randrange(count)


def _assign(shell: ControllerShell, partitions: int, factor: int, first: int, start: tuple[int, int]) -> Assignment:
    live = [(broker, shell.context.brokers[broker].rack) for broker in sorted(shell.context.live)]
    racked = sum(rack is not None for _, rack in live)
    if 0 < racked < len(live):
        live = [(broker, None) for broker, _ in live]
    return assign_replicas_to_brokers(
        live, partitions, factor, start_index=start[0], first_partition=first, start_shift=start[1]
    )


def _check_known(shell: ControllerShell, replica_lists: Iterable[Sequence[int]]) -> None:
    registered = shell.context.brokers
    unknown = sorted({b for replicas in replica_lists for b in replicas if b not in registered})
    if unknown:
        raise TopicError(
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"found brokers {unknown} in the assignment, registered are {sorted(registered)}",
        )


async def _expanded(shell: ControllerShell, admin: AdminZkClient, topic: NewPartitions) -> Assignment:
    """The new partitions' replicas, placed as those of the topic's first partition suggest (as Kafka does)."""
    read = await shell.zk.get_topic_assignments([topic.topic], watch=False)
    if not read.found or topic.topic in shell.context.topics_to_be_deleted:
        raise TopicError(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {topic.topic!r} does not exist.")
    present = read.found[0].partitions
    added = topic.count - len(present)
    if added <= 0:
        raise TopicError(
            KafkaErrorCode.INVALID_PARTITIONS,
            f"Topic {topic.topic!r} has {len(present)} partitions, found {topic.count}, expected more",
        )
    if topic.assignment is not None:
        if len(topic.assignment) != added:
            raise TopicError(
                KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"found {len(topic.assignment)} assignments, expected {added}, one for each new partition",
            )
        _check_known(shell, topic.assignment)
        return {len(present) + i: replicas for i, replicas in enumerate(topic.assignment)}
    first = present[min(present)].replicas
    live = sorted(shell.context.live)
    start = live.index(first[0]) if first and first[0] in live else 0
    return _assign(shell, added, len(first), len(present), (start, start))


def _answer_when_known(
    shell: ControllerShell, reply: Reply, results: Results, sent: Sequence[Sent | None], timeout_ms: int
) -> None:
    """When all brokers have acknowledged what was sent; after ``timeout_ms`` without it, with REQUEST_TIMED_OUT."""
    open_ones = [one for one in sent if one is not None]
    if not open_ones:
        reply.answer(results)
        return
    reply.defer()
    timed_out = {
        name: result if result.error_code else TopicResult(KafkaErrorCode.REQUEST_TIMED_OUT)
        for name, result in results.items()
    }
    timer = shell.world.clock.call_later(timeout_ms / 1000, lambda: reply.ensure(timed_out))
    left = len(open_ones)

    def one_known() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            timer.cancel()
            reply.ensure(results)

    for one in open_ones:
        one.metadata.when_all(one_known)


def _answer_when_gone(
    shell: ControllerShell, event: DeleteTopics, results: Results, waiting: dict[str, str | bytes]
) -> None:
    reply = event.reply
    if not waiting:
        reply.answer(results)
        return
    reply.defer()
    timer = shell.world.clock.call_later(event.timeout_ms / 1000, lambda: reply.ensure(results))

    def gone(name: str) -> None:
        asked = waiting.pop(name)
        results[asked] = msgspec.structs.replace(results[asked], error_code=KafkaErrorCode.NONE)
        if not waiting:
            timer.cancel()
            reply.ensure(results)

    for name in waiting:
        shell.on_topic_deleted(name, gone)
