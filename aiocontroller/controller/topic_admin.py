"""What administrators ask of topics: ``CreateTopics``, ``CreatePartitions`` and ``DeleteTopics``.

The znodes are written as Kafka's tools write them, under the controller's fence, and treated at once: the watch that
they fire finds nothing new.  Departure from Kafka, which answers when its own cache knows the leaders: here an answer
means that every live broker has acknowledged them, or that the time which the caller gave is up.
"""

from __future__ import annotations

import logging
from collections import Counter
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
from aiocontroller.core.ids import MAX_PARTITIONS_PER_TOPIC
from aiocontroller.core.replica_placement import PlacementError, assign_replicas_to_brokers
from aiocontroller.core.request_batch import Sent
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient, TopicToCreate
from aiocontroller.zookeeper.topic_rules import TopicError, check_partition_count, check_topic_name

log = logging.getLogger(__name__)

MAX_TOPICS_PER_REQUEST = 10_000
MAX_PARTITIONS_PER_REQUEST = 100_000
"""Of several topics; one topic has as many as fit into its znode."""
TOPICS_AT_ONCE = 20
NAMES_AT_ONCE = 1_000
"""What is looked at before others may run."""

Assignment = dict[int, tuple[int, ...]]
Results = dict[str | bytes, TopicResult]


async def create_topics(shell: ControllerShell, event: CreateTopics) -> None:
    settings: dict[str, str] = {}
    if any(t.partitions == -1 or t.replication_factor == -1 for t in event.topics if not t.assignment):
        settings = await broker_settings(shell)
    asked = [(t.name, _partitions_asked_for(t, settings)) for t in event.topics]
    results, permitted = await _permitted(shell, asked)
    wanted: dict[str, TopicToCreate] = {}
    for number, topic in enumerate(t for t in event.topics if t.name in permitted):
        if number % TOPICS_AT_ONCE == 0:
            await shell.breathe()
        try:
            wanted[topic.name] = TopicToCreate(topic.name, _placed(shell, topic, settings), _configs(topic))
        except (TopicError, PlacementError) as error:
            results[topic.name] = _refused(error)
    admin, topics = _admin(shell), list(wanted.values())
    refused = await (admin.check_create_topics(topics) if event.validate_only else admin.create_topics(topics))
    for name, topic_wanted in wanted.items():
        results[name] = _refused(refused[name]) if name in refused else _created(topic_wanted.assignment)
    created = [name for name in wanted if name not in refused]
    sent = await topic_change(shell, TopicChange()) if created and not event.validate_only else None
    for name in created:
        known = shell.context.table.topic_by_name.get(name)
        if known is not None:
            results[name] = msgspec.structs.replace(results[name], topic_id=known.id)
    _answer_when_known(shell, event.reply, _in_order(results, asked), [sent], event.timeout_ms)


async def create_partitions(shell: ControllerShell, event: CreatePartitions) -> None:
    admin = _admin(shell)
    known = shell.context.table.topic_by_name
    asked = [(t.topic, t.count - (len(known[t.topic].pids) if t.topic in known else 0)) for t in event.topics]
    results, permitted = await _permitted(shell, asked)
    grown: list[str] = []
    for topic in [t for t in event.topics if t.topic in permitted]:
        try:
            assignment = await _expanded(shell, topic)
            if not event.validate_only:
                await admin.add_partitions(topic.topic, assignment)
                grown.append(topic.topic)
            results[topic.topic] = TopicResult(KafkaErrorCode.NONE)
        except (TopicError, PlacementError) as error:
            results[topic.topic] = _refused(error)
    sent = await partition_modifications(shell, [PartitionModifications(topic) for topic in grown]) if grown else None
    _answer_when_known(shell, event.reply, _in_order(results, asked), [sent], event.timeout_ms)


async def delete_topics(shell: ControllerShell, event: DeleteTopics) -> None:
    table = shell.context.table
    results: Results = {}
    waiting: dict[str, str | bytes] = {}
    for number, asked in enumerate(event.topics):
        if number % NAMES_AT_ONCE == 0:
            await shell.breathe()
        known = table.topic_by_id.get(asked) if isinstance(asked, bytes) else table.topic_by_name.get(asked)
        if known is None:
            unknown = isinstance(asked, bytes)
            code = KafkaErrorCode.UNKNOWN_TOPIC_ID if unknown else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results[asked] = TopicResult(code)
        elif not shell.config.delete_topic_enable:
            results[asked] = TopicResult(KafkaErrorCode.INVALID_REQUEST, "Topic deletion is disabled.", known.name)
        elif known.name in waiting and waiting[known.name] != asked:
            found = "the topic stands in the request by its name and by its id"
            results[asked] = TopicResult(KafkaErrorCode.INVALID_REQUEST, found, known.name, known.id)
        else:
            results[asked] = TopicResult(KafkaErrorCode.REQUEST_TIMED_OUT, name=known.name, topic_id=known.id)
            waiting[known.name] = asked
    unmarked = [name for name in waiting if name not in shell.context.topics_to_be_deleted]
    for name, error in (await _admin(shell).delete_topics(unmarked)).items():
        if error.code != KafkaErrorCode.TOPIC_ALREADY_EXISTS:  # else somebody asked for the same just now
            results[waiting.pop(name)] = _refused(error)
    _answer_when_gone(shell, event, results, waiting)
    await topic_deletion(shell, TopicDeletion())


# -- how much is asked for ---------------------------------------------------------------------------------------------


async def _permitted(shell: ControllerShell, asked: Sequence[tuple[str, int]]) -> tuple[Results, set[str]]:
    """Refusals by the counts alone, before anything is done that grows with them, and the topics that are left.

    Events of brokers wait while a request is at work, so what one may ask for is bounded.
    """
    results: Results = {}
    times = Counter(name for name, _ in asked)
    partitions = 0
    for number, (name, count) in enumerate(asked):
        if number % NAMES_AT_ONCE == 0:
            await shell.breathe()
        if times[name] > 1:
            message = f"topic {name[:300]!r} stands in the request {times[name]} times"
            results[name] = TopicResult(KafkaErrorCode.INVALID_REQUEST, message)
        elif len(asked) > MAX_TOPICS_PER_REQUEST:
            message = f"found {len(asked)} topics in one request, expected {MAX_TOPICS_PER_REQUEST} at most"
            results[name] = TopicResult(KafkaErrorCode.POLICY_VIOLATION, message)
        elif 0 < count <= MAX_PARTITIONS_PER_TOPIC:  # what is more or less is refused for itself
            partitions += count
    left = {name for name, _ in asked if name not in results}
    if partitions > MAX_PARTITIONS_PER_REQUEST and len(left) > 1:
        message = f"found {partitions} partitions in one request, expected {MAX_PARTITIONS_PER_REQUEST} at most"
        results |= dict.fromkeys(left, TopicResult(KafkaErrorCode.POLICY_VIOLATION, message))
        left = set()
    return results, left


def _partitions_asked_for(topic: NewTopic, settings: Mapping[str, str]) -> int:
    if topic.assignment:
        return len(topic.assignment)
    return int(settings["num.partitions"]) if topic.partitions == -1 else topic.partitions


def _in_order(results: Results, asked: Sequence[tuple[str, int]]) -> Results:
    return {name: results[name] for name, _ in asked}


# -- what is asked for -------------------------------------------------------------------------------------------------


def _admin(shell: ControllerShell) -> AdminZkClient:
    return AdminZkClient(shell.zk, fence=shell.context.epoch_zk_version)


def _refused(error: TopicError | PlacementError) -> TopicResult:
    return TopicResult(error.code, str(error))


def _created(assignment: Mapping[int, Sequence[int]]) -> TopicResult:
    return TopicResult(KafkaErrorCode.NONE, partitions=len(assignment), replication_factor=len(assignment[0]))


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
    partitions, factor = _partitions_asked_for(topic, settings), topic.replication_factor
    if factor == -1:
        factor = int(settings["default.replication.factor"])
    _check_count(shell, topic.name, partitions, factor)
    return _assign(shell, partitions, factor, 0, _chance(shell))


def _check_count(shell: ControllerShell, topic: str, partitions: int, factor: int) -> None:
    live = shell.context.live
    check_partition_count(topic, partitions, min(factor, len(live)), live)


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
            f"found brokers {unknown[:20]} in the assignment, registered are {sorted(registered)}",
        )


async def _expanded(shell: ControllerShell, topic: NewPartitions) -> Assignment:
    """The new partitions' replicas, placed as those of the topic's first partition suggest (as Kafka does)."""
    check_topic_name(topic.topic)
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
    _check_count(shell, topic.topic, topic.count, len(first))
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
