"""Topic administration: ``CreateTopics``, ``CreatePartitions`` and ``DeleteTopics``.

The znodes are written as Kafka's tools write them, under the controller's fence, and processed at once, so the watch
that they fire finds nothing new.  Departure from Kafka, which answers when its own cache knows the leaders: here every
live broker has acknowledged them, or had two seconds to do so.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.topic_deletion import topic_deletion
from aiocontroller.controller.topics import partition_modifications, topic_change
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    PartitionModifications,
    TopicChange,
    TopicDeletion,
)
from aiocontroller.core.ids import MAX_PARTITIONS_PER_TOPIC
from aiocontroller.core.mutation_quotas import ThrottlingQuotaExceededError
from aiocontroller.core.replica_placement import (
    PlacementError,
    assign_replicas_to_brokers,
    start_index_of_new_partitions,
)
from aiocontroller.core.request_batch import Sent
from aiocontroller.core.request_content import NewPartitions, NewTopic, TopicResult
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient, TopicToCreate
from aiocontroller.zookeeper.topic_configs import topic_configs_of
from aiocontroller.zookeeper.topic_rules import TopicError, check_expansion, check_partition_count

log = logging.getLogger(__name__)

MAX_TOPICS_PER_REQUEST = 10_000
MAX_PARTITIONS_PER_REQUEST = 100_000
"""Limit for requests with several topics; a single topic is limited by the size of its znode."""
TOPICS_AT_ONCE = 20
NAMES_AT_ONCE = 1_000
"""Partitions checked before other tasks may run."""
ACKNOWLEDGED_WITHIN_S = 2.0
"""How long an answer waits for brokers to acknowledge their requests."""
FIRST_CHECK_AFTER_S, LONGEST_CHECK_INTERVAL_S = 0.1, 2.0
"""The pause before the second check of a condition; it doubles with each check, up to the longest."""

Assignment = dict[int, tuple[int, ...]]
Results = dict[str | bytes, TopicResult]
Refusals = dict[str, TopicError | ThrottlingQuotaExceededError]


async def create_topics(shell: ControllerShell, event: CreateTopics) -> None:
    """Create topics; answers when all brokers know them, or after ``ACKNOWLEDGED_WITHIN_S``."""
    asked = [(t.name, _partitions_asked_for(shell, t)) for t in event.topics]
    results, permitted = await _permitted(shell, asked)
    wanted: dict[str, TopicToCreate] = {}
    for number, topic in enumerate(t for t in event.topics if t.name in permitted):
        if number % TOPICS_AT_ONCE == 0:
            await shell.breathe()
        try:
            wanted[topic.name] = _to_create(shell, topic)
        except (TopicError, PlacementError) as error:
            results[topic.name] = _refused(error)
    admin, topics = _admin(shell), list(wanted.values())
    if event.validate_only:
        refused: Refusals = dict(await admin.check_create_topics(topics))
    else:
        refused = await admin.create_topics(topics, lambda topic: event.quota.record(len(topic.assignment)))
    for name, topic_wanted in wanted.items():
        results[name] = _refused(refused[name]) if name in refused else _created(topic_wanted.assignment)
    created = [name for name in wanted if name not in refused]
    sent = await topic_change(shell, TopicChange()) if created and not event.validate_only else None
    for name in created:
        known = shell.context.table.topic_by_name.get(name)
        if known is not None:
            results[name] = msgspec.structs.replace(results[name], topic_id=known.id)
    _answer_when_known(shell, event, _in_order(results, asked), sent)


async def create_partitions(shell: ControllerShell, event: CreatePartitions) -> None:
    """Add partitions to topics; answers like ``create_topics``."""
    admin = _admin(shell)
    known = shell.context.table.topic_by_name
    asked = [(t.topic, t.count - (len(known[t.topic].rows) if t.topic in known else 0)) for t in event.topics]
    results, permitted = await _permitted(shell, asked)
    grown: list[str] = []
    for topic in [t for t in event.topics if t.topic in permitted]:
        try:
            assignment = await _expanded(shell, admin, topic)
            if not event.validate_only:
                event.quota.record(len(assignment))
                await admin.add_partitions(topic.topic, assignment)
                grown.append(topic.topic)
            results[topic.topic] = TopicResult(KafkaErrorCode.NONE)
        except (TopicError, PlacementError, ThrottlingQuotaExceededError) as error:
            results[topic.topic] = _refused(error)
    sent = await partition_modifications(shell, [PartitionModifications(topic) for topic in grown]) if grown else None
    _answer_when_known(shell, event, _in_order(results, asked), sent)


async def delete_topics(shell: ControllerShell, event: DeleteTopics) -> None:
    """Delete topics; if one is requested both by name and by id, it is deleted once, and both get the result."""
    context, table = shell.context, shell.context.table
    results: Results = {}
    waiting: dict[str, list[str | bytes]] = {}
    for number, asked in enumerate(event.topics):
        if number % NAMES_AT_ONCE == 0:
            await shell.breathe()
        known = table.topic_by_id.get(asked) if isinstance(asked, bytes) else table.topic_by_name.get(asked)
        if known is None:
            unknown = isinstance(asked, bytes)
            code = KafkaErrorCode.UNKNOWN_TOPIC_ID if unknown else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results[asked] = TopicResult(code)
        elif not shell.policy.delete_topic_enable:
            results[asked] = TopicResult(KafkaErrorCode.TOPIC_DELETION_DISABLED, name=known.name)
        elif known.name in context.topics_with_deletion_started:  # brokers have forgotten it
            results[asked] = TopicResult(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=known.name)
        elif asked not in waiting.setdefault(known.name, []):
            waiting[known.name].append(asked)
    refused: dict[str, KafkaErrorCode] = {}
    for name in waiting:
        try:
            event.quota.record(len(table.topic_by_name[name].rows))
        except ThrottlingQuotaExceededError as exceeded:
            refused[name] = exceeded.code
    unmarked = [name for name in waiting if name not in refused and name not in context.topics_to_be_deleted]
    for name, error in (await _admin(shell).delete_topics(unmarked)).items():
        if error.code != KafkaErrorCode.TOPIC_ALREADY_EXISTS:  # else another client has just requested it
            refused[name] = error.code
    for name, code in refused.items():
        results |= {asked: TopicResult(code, name=name) for asked in waiting.pop(name)}
    _answer_when_gone(shell, event, results, waiting)
    await topic_deletion(shell, TopicDeletion())


# -- limits ------------------------------------------------------------------------------------------------------------


async def _permitted(shell: ControllerShell, asked: Sequence[tuple[str, int]]) -> tuple[Results, set[str]]:
    """Refuse requests that are too large, because other events wait meanwhile.

    Returns refusals, and the names of the other topics.
    """
    results: Results = {}
    times = Counter(name for name, _ in asked)
    partitions = 0
    for number, (name, count) in enumerate(asked):
        if number % NAMES_AT_ONCE == 0:
            await shell.breathe()
        if times[name] > 1:
            message = f"topic {name[:300]!r} is in the request {times[name]} times"
            results[name] = TopicResult(KafkaErrorCode.INVALID_REQUEST, message)
        elif len(asked) > MAX_TOPICS_PER_REQUEST:
            message = f"found {len(asked)} topics in one request, expected {MAX_TOPICS_PER_REQUEST} at most"
            results[name] = TopicResult(KafkaErrorCode.POLICY_VIOLATION, message)
        elif 0 < count <= MAX_PARTITIONS_PER_TOPIC:  # other counts are refused later, each topic by itself
            partitions += count
    left = {name for name, _ in asked if name not in results}
    if partitions > MAX_PARTITIONS_PER_REQUEST and len(left) > 1:
        message = f"found {partitions} partitions in one request, expected {MAX_PARTITIONS_PER_REQUEST} at most"
        results |= dict.fromkeys(left, TopicResult(KafkaErrorCode.POLICY_VIOLATION, message))
        left = set()
    return results, left


def _partitions_asked_for(shell: ControllerShell, topic: NewTopic) -> int:
    if topic.assignment:
        return len(topic.assignment)
    return shell.policy.num_partitions if topic.partitions == -1 else topic.partitions


def _in_order(results: Results, asked: Sequence[tuple[str, int]]) -> Results:
    return {name: results[name] for name, _ in asked}


# -- checks and placement ----------------------------------------------------------------------------------------------


def _admin(shell: ControllerShell) -> AdminZkClient:
    fence = shell.context.epoch_zk_version
    return AdminZkClient(shell.zk, fence=fence, brokers=shell.settings.known_broker_configs)


def _refused(error: TopicError | PlacementError | ThrottlingQuotaExceededError) -> TopicResult:
    if isinstance(error, ThrottlingQuotaExceededError):
        return TopicResult(error.code)  # without a message, as in Kafka
    return TopicResult(error.code, str(error))


def _created(assignment: Mapping[int, Sequence[int]]) -> TopicResult:
    return TopicResult(KafkaErrorCode.NONE, partitions=len(assignment), replication_factor=len(assignment[0]))


def _to_create(shell: ControllerShell, topic: NewTopic) -> TopicToCreate:
    """Validate and place a topic.

    Checks come in Kafka's order; ``AdminZkClient`` does the checks that need ZooKeeper.
    """
    known = shell.context.table.topic_by_name.get(topic.name)
    if known is not None and known.name not in shell.context.topics_with_deletion_started:
        raise TopicError(KafkaErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    null = [name for name, value in topic.configs.items() if value is None]
    if null:
        found = f"Null value not supported for topic configs: {','.join(null)}"
        raise TopicError(topic_configs_of(shell.settings.release).bad_value, found)
    configs = {name: value for name, value in topic.configs.items() if value is not None}
    return TopicToCreate(topic.name, _placed(shell, topic), configs)


def _placed(shell: ControllerShell, topic: NewTopic) -> Assignment:
    """The requested assignment, or one over the live brokers."""
    if topic.assignment:
        if topic.partitions != -1 or topic.replication_factor != -1:
            raise TopicError(
                KafkaErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        # Brokers need not be live, unlike when partitions are added: a replica waits for its broker.
        named = sorted(
            shell.context.controllers.intersection(r for replicas in topic.assignment.values() for r in replicas)
        )
        if named:
            found = f"found {named[0]}, a controller, in the assignment: it holds no replicas"
            raise TopicError(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, found)
        return dict(sorted(topic.assignment.items()))
    partitions, factor = _partitions_asked_for(shell, topic), topic.replication_factor
    if factor == -1:
        factor = shell.policy.default_replication_factor
    _check_count(shell, topic.name, partitions, factor)
    return _assign(shell, partitions, factor, 0, _random_start(shell))


def _available(shell: ControllerShell) -> list[int]:
    """The live brokers; as in Kafka, these include brokers that are shutting down."""
    return sorted(broker for broker in shell.context.brokers if broker not in shell.context.suspected)


def _check_count(shell: ControllerShell, topic: str, partitions: int, factor: int) -> None:
    available = _available(shell)
    check_partition_count(topic, partitions, min(factor, len(available)), available)


def _random_start(shell: ControllerShell) -> tuple[int, int]:
    """A random start index and shift for each topic, so that leaders spread over the brokers."""
    count = max(1, len(_available(shell)))
    return shell.world.random.randrange(count), shell.world.random.randrange(count)


def _assign(shell: ControllerShell, partitions: int, factor: int, first: int, start: tuple[int, int]) -> Assignment:
    brokers = [(broker, shell.context.brokers[broker].rack) for broker in _available(shell)]
    racked = sum(rack is not None for _, rack in brokers)
    if 0 < racked < len(brokers):
        brokers = [(broker, None) for broker, _ in brokers]
    return assign_replicas_to_brokers(
        brokers, partitions, factor, start_index=start[0], first_partition=first, start_shift=start[1]
    )


def _check_known(shell: ControllerShell, replica_lists: Iterable[Sequence[int]]) -> None:
    registered = shell.context.brokers
    unknown = dict.fromkeys(b for replicas in replica_lists for b in replicas if b not in registered)
    if unknown:
        found = ", ".join(map(str, unknown))
        raise TopicError(
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Unknown broker(s) in replica assignment: {found}."
        )


async def _expanded(shell: ControllerShell, admin: AdminZkClient, topic: NewPartitions) -> Assignment:
    """Validate a request in Kafka's order, and place the new partitions' replicas as the first partition's are."""
    if topic.topic in shell.context.topics_to_be_deleted:
        raise TopicError(KafkaErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
    present = await admin.topic_that_may_grow(topic.topic)
    count = len(present.partitions)
    added = topic.count - count
    if added < 0:
        raise TopicError(
            KafkaErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {count} partitions, which is higher than the requested {topic.count}.",
        )
    if added == 0:
        raise TopicError(KafkaErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partitions.")
    if 0 not in present.partitions or any(count <= number < topic.count for number in present.partitions):
        found = f"Topic {topic.topic} has other partitions than 0 to {count - 1}: some are missing from its znode."
        raise TopicError(KafkaErrorCode.UNKNOWN_SERVER_ERROR, found)
    first = present.partitions[0].replicas
    if topic.assignment is not None:
        _check_known(shell, topic.assignment)
        if len(topic.assignment) != added:
            raise TopicError(
                KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {added} but {len(topic.assignment)} assignments provided.",
            )
        assignment = {count + i: replicas for i, replicas in enumerate(topic.assignment)}
        check_expansion(present.topic, assignment, len(first))
        return assignment
    _check_count(shell, topic.topic, topic.count, len(first))
    brokers = [(broker, None) for broker in _available(shell)]
    start = start_index_of_new_partitions(brokers, first[0]) if first else 0
    return _assign(shell, added, len(first), count, (start, start))


# -- delayed answers ---------------------------------------------------------------------------------------------------


def _answer_when_known(
    shell: ControllerShell, event: CreateTopics | CreatePartitions, results: Results, sent: Sent | None
) -> None:
    """Answer when every partition has a leader and all brokers have acknowledged it, or had ``ACKNOWLEDGED_WITHIN_S``.

    After ``timeout_ms``, topics with a leaderless partition get REQUEST_TIMED_OUT, as from Kafka.
    """
    reply = event.reply
    accepted = [str(name) for name, result in results.items() if not result.error_code]
    if event.validate_only or not accepted:
        reply.answer(results)
        return
    if event.timeout_ms <= 0:
        reply.answer(_timed_out(results, accepted))
        return
    reply.defer()
    clock = shell.world.clock
    missing, acknowledged = list(accepted), False

    def time_is_up() -> None:
        if not reply.answered:
            reply.answer(_timed_out(results, [name for name in accepted if not _has_leaders(shell, name)]))

    def all_have_leaders() -> bool:
        while missing and _has_leaders(shell, missing[-1]):
            missing.pop()
        return not missing

    def answer() -> None:
        timer.cancel()
        reply.answer(results)

    def all_acknowledged() -> None:
        nonlocal acknowledged
        if not acknowledged:
            acknowledged = True
            _call_when(shell, reply, all_have_leaders, answer)

    timer = clock.call_later(event.timeout_ms / 1000, time_is_up)
    if sent is None:
        all_acknowledged()
    else:
        sent.metadata.when_all(all_acknowledged)
        clock.call_later(ACKNOWLEDGED_WITHIN_S, all_acknowledged)


def _call_when(shell: ControllerShell, reply: Reply, done: Callable[[], bool], then: Callable[[], object]) -> None:
    """Check ``done`` until it holds, the reply is answered, or the term ends; then call ``then``."""
    context, delay_s = shell.context, FIRST_CHECK_AFTER_S

    def look() -> None:
        nonlocal delay_s
        if reply.answered or shell.context is not context:
            return
        if done():
            then()
        else:
            shell.world.clock.call_later(delay_s, look)
            delay_s = min(2 * delay_s, LONGEST_CHECK_INTERVAL_S)

    look()


def _has_leaders(shell: ControllerShell, name: str) -> bool:
    """Whether the topic exists and each of its partitions has a leader."""
    table = shell.context.table
    topic = table.topic_by_name.get(name)
    return topic is not None and all(table.leader[row] >= 0 for row in topic.partitions())


def _timed_out(results: Results, topics: Sequence[str]) -> Results:
    """Replace the topics' results by REQUEST_TIMED_OUT, keeping only their ids."""
    timed_out = KafkaErrorCode.REQUEST_TIMED_OUT
    return results | {name: TopicResult(timed_out, topic_id=results[name].topic_id) for name in topics}


def _answer_when_gone(
    shell: ControllerShell, event: DeleteTopics, results: Results, waiting: dict[str, list[str | bytes]]
) -> None:
    """Answer when the topics are gone, or their deletion has started: brokers no longer know them in either case.

    After ``timeout_ms``, topics whose deletion could not start get REQUEST_TIMED_OUT, as from Kafka.
    """
    reply, clock = event.reply, shell.world.clock
    if not waiting or event.timeout_ms <= 0:
        reply.answer(results | _same_result(waiting, KafkaErrorCode.REQUEST_TIMED_OUT))
        return
    reply.defer()
    left = dict.fromkeys(waiting)
    blocked = list(waiting)
    """Topics whose deletion has not been seen to start.  (During a reload, the context does not know it.)"""
    acknowledged_until_s = clock.monotonic() + ACKNOWLEDGED_WITHIN_S

    def has_begun(name: str) -> bool:
        return name in shell.context.topics_with_deletion_started

    def answer() -> None:
        timer.cancel()
        late = {name: waiting.pop(name) for name in blocked if name in left and not has_begun(name)}
        done = _same_result(waiting, KafkaErrorCode.NONE)
        reply.ensure(results | done | _same_result(late, KafkaErrorCode.REQUEST_TIMED_OUT))

    def all_begun() -> bool:
        """All deletions have started, although some brokers may be dead or silent."""
        while blocked and (blocked[-1] not in left or has_begun(blocked[-1])):
            blocked.pop()
        if blocked:
            return False
        halted = shell.context.topics_ineligible_for_deletion
        return clock.monotonic() >= acknowledged_until_s or all(name in halted for name in left)

    def gone(name: str) -> None:
        left.pop(name, None)
        if not left:
            answer()

    timer = clock.call_later(event.timeout_ms / 1000, answer)
    clock.call_later(FIRST_CHECK_AFTER_S, lambda: _call_when(shell, reply, all_begun, answer))
    for name in waiting:
        shell.on_topic_deleted(name, gone)


def _same_result(topics: Mapping[str, Iterable[str | bytes]], code: KafkaErrorCode) -> Results:
    """The same code for all ``topics``, each with the names and ids by which it was requested."""
    return {each: TopicResult(code, name=name) for name, asked in topics.items() for each in asked}
