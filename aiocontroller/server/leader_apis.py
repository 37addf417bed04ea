"""Requests to partition leaders: this node leads none, and answers like a broker without the replica.

Each partition is checked in Kafka's order: authorization of its topic, existence, and then NOT_LEADER_OR_FOLLOWER.
Source: ``KafkaApis`` and ``ReplicaManager`` of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.server.apis import Apis, Fields, all_versions, decoded, respond
from aiocontroller.server.cluster_view import INTERNAL_TOPICS, ClusterView, cluster_view
from aiocontroller.server.error_answers import LEVELS, MESSAGES, mirrored, refusal
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.topic_rules import TopicError, check_topic_name

ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may produce to internal topics."""
_BATCH = Struct(">16xb4xh")
"""Magic and attributes of a record batch."""
_TRANSACTIONAL = 0x10
ACKS = (-1, 0, 1)
NO_SESSION = 0
SESSIONLESS = (0, -1)
"""Epochs of a fetch that names all its partitions."""
LATEST_TIMESTAMP, EARLIEST_TIMESTAMP = -1, -2
_OLDEST_VERSION_OF_TIMESTAMP = {EARLIEST_TIMESTAMP: 1, LATEST_TIMESTAMP: 1, -3: 7, -4: 8, -5: 9}
"""Special timestamps: earliest, latest, max timestamp, earliest local, latest tiered."""

Partitioned = Callable[[ControllerShell, KafkaRequest, Any], Fields | None]


def apis(shell: ControllerShell) -> Apis:
    """Requests to leaders, answered as by a broker that leads nothing."""

    def answering(answer: Partitioned) -> Callable[[KafkaRequest], None]:
        def handle(request: KafkaRequest) -> None:
            fields = answer(shell, request, decoded(request))
            if fields is not None:
                respond(request, fields)

        return handle

    return {api: all_versions(api, answering(answer)) for api, answer in _ANSWERS.items()}


def _not_led(view: ClusterView, name: str, partition: int) -> KafkaErrorCode:
    """Like ``ReplicaManager.getPartitionOrError`` on a broker without replicas."""
    if view.contains(name, partition):
        return KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
    return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _authorized(
    shell: ControllerShell, request: KafkaRequest, operation: AclOperation, topics: list[str]
) -> Callable[[str, int], KafkaErrorCode]:
    """Return a function (topic, partition) -> error code."""
    view = cluster_view(shell)
    allowed = Permissions(shell.authorizer, request.context).of_topics(operation, topics)

    def judge(name: str, partition: int) -> KafkaErrorCode:
        return _not_led(view, name, partition) if name in allowed else KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED

    return judge


class Leaders:
    """The leaders named in an answer, and their endpoints (KIP-951)."""

    def __init__(self, shell: ControllerShell, request: KafkaRequest) -> None:
        self._view = cluster_view(shell)
        self._nodes = self._view.nodes(request.context.listener)
        self._named: dict[int, None] = {}

    def current(self, name: str, partition: int) -> Fields:
        """The leader and its epoch, as a refusal names them."""
        leader, epoch = self._view.leader(name, partition)
        if leader in self._nodes:
            self._named[leader] = None
        return {"leader_id": leader, "leader_epoch": epoch}

    def endpoints(self) -> list[Fields]:
        """The nodes of all leaders that were named, each once."""
        found = [self._nodes[leader] for leader in self._named]
        return [{"node_id": n.id, "host": n.host, "port": n.port, "rack": n.rack} for n in found]


# -- Produce -----------------------------------------------------------------------------------------------------------


def _produce(shell: ControllerShell, request: KafkaRequest, asked: Any) -> Fields | None:
    """With acks=0 there is no answer, so the connection is closed, and the producer refreshes its metadata."""
    if asked.acks == 0:
        request.refuse("PRODUCE(0) without acknowledgement: no partition is led here")
        return None
    permissions = Permissions(shell.authorizer, request.context)
    transactional_id = getattr(asked, "transactional_id", None)
    if _is_transactional(asked) and not (
        transactional_id is not None
        and permissions.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        return refusal(request, asked, KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    judge = _authorized(shell, request, AclOperation.WRITE, [topic.name for topic in asked.topic_data])
    leaders = Leaders(shell, request) if request.context.version >= 10 else None
    of_admin = request.context.client_id == ADMIN_CLIENT_ID

    def fill(topic: Any, partition: Any) -> Fields:
        code = judge(topic.name, partition.index)
        if code == KafkaErrorCode.NOT_LEADER_OR_FOLLOWER:
            if asked.acks not in ACKS:
                code = KafkaErrorCode.INVALID_REQUIRED_ACKS
            elif topic.name in INTERNAL_TOPICS and not of_admin:
                code = KafkaErrorCode.INVALID_TOPIC_EXCEPTION
            elif leaders is not None:
                return {"error_code": code, "current_leader": leaders.current(topic.name, partition.index)}
        return {"error_code": code}

    fields = mirrored(LEVELS[ApiKey.PRODUCE], asked, fill)
    return fields if leaders is None else fields | {"node_endpoints": leaders.endpoints()}


def _is_transactional(asked: Any) -> bool:
    for topic in asked.topic_data:
        for partition in topic.partition_data:
            records = partition.records or b""
            if len(records) >= _BATCH.size:
                magic, attributes = _BATCH.unpack_from(records)
                if magic >= 2 and attributes & _TRANSACTIONAL:
                    return True
    return False


# -- Fetch -------------------------------------------------------------------------------------------------------------


def _fetch(shell: ControllerShell, request: KafkaRequest, asked: Any) -> Fields:
    """No fetch session is started: the answer has session id 0, like that of a broker with a full session cache."""
    version = request.context.version
    if getattr(asked, "session_epoch", -1) not in SESSIONLESS:
        return {"error_code": KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND, "session_id": NO_SESSION}
    if _is_follower(asked) and not Permissions(shell.authorizer, request.context).may_cluster(
        AclOperation.CLUSTER_ACTION
    ):
        return mirrored(LEVELS[ApiKey.FETCH], asked, lambda *path: KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED)
    view = cluster_view(shell)
    names = {id(topic): _name(view, topic) for topic in asked.topics}
    judge = _readable(shell, request, asked, [name for name in names.values() if name is not None])
    leaders = Leaders(shell, request) if version >= 16 else None

    def fill(topic: Any, partition: Any) -> Fields:
        name = names[id(topic)]
        code = KafkaErrorCode.UNKNOWN_TOPIC_ID if name is None else judge(name, partition.partition)
        if name is None or code != KafkaErrorCode.NOT_LEADER_OR_FOLLOWER:
            return {"error_code": code}
        # A broker sets the list of aborted transactions to null for partitions that it tries to read.
        refusal: Fields = {"error_code": code, "aborted_transactions": None}
        if leaders is None:
            return refusal
        return {**refusal, "current_leader": leaders.current(name, partition.partition)}

    fields = mirrored(LEVELS[ApiKey.FETCH], asked, fill)
    return fields if leaders is None else fields | {"node_endpoints": leaders.endpoints()}


def _name(view: ClusterView, topic: Any) -> str | None:
    """The topic's name; from version 13 on the request has its id."""
    if hasattr(topic, "topic"):
        return str(topic.topic)
    found = view.topic_of_id(NO_TOPIC_ID if topic.topic_id is None else topic.topic_id.bytes)
    return None if found is None else found.name


def _is_follower(asked: Any) -> bool:
    replica = asked.replica_state.replica_id if hasattr(asked, "replica_state") else asked.replica_id
    return bool(replica >= 0)


def _readable(
    shell: ControllerShell, request: KafkaRequest, asked: Any, names: list[str]
) -> Callable[[str, int], KafkaErrorCode]:
    """Followers need ClusterAction, consumers Read on the topics."""
    if not _is_follower(asked):
        return _authorized(shell, request, AclOperation.READ, names)
    view = cluster_view(shell)
    return lambda name, partition: _not_led(view, name, partition)


# -- offsets and the rest ----------------------------------------------------------------------------------------------


def _list_offsets(shell: ControllerShell, request: KafkaRequest, asked: Any) -> Fields:
    version = request.context.version
    judge = _authorized(shell, request, AclOperation.DESCRIBE, [topic.name for topic in asked.topics])
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in asked.topics:
        for partition in topic.partitions:
            key = topic.name, partition.partition_index
            (twice if key in seen else seen).add(key)

    def fill(topic: Any, partition: Any) -> KafkaErrorCode:
        code = judge(topic.name, partition.partition_index)
        if code == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return code
        if version > 0 and (topic.name, partition.partition_index) in twice:
            return KafkaErrorCode.INVALID_REQUEST
        return code if _is_known(version, partition.timestamp) else KafkaErrorCode.UNSUPPORTED_VERSION

    return mirrored(LEVELS[ApiKey.LIST_OFFSETS], asked, fill)


def _is_known(version: int, timestamp: int) -> bool:
    if version == 0:
        return timestamp >= EARLIEST_TIMESTAMP
    return timestamp >= 0 or version >= _OLDEST_VERSION_OF_TIMESTAMP.get(timestamp, version + 1)


def _offset_for_leader_epoch(shell: ControllerShell, request: KafkaRequest, asked: Any) -> Fields:
    """Followers need ClusterAction, consumers Describe on the topics."""
    view = cluster_view(shell)
    if Permissions(shell.authorizer, request.context).may_cluster(AclOperation.CLUSTER_ACTION):
        judge: Callable[[str, int], KafkaErrorCode] = lambda name, partition: _not_led(view, name, partition)  # noqa: E731
    else:
        judge = _authorized(shell, request, AclOperation.DESCRIBE, [topic.topic for topic in asked.topics])
    level = LEVELS[ApiKey.OFFSET_FOR_LEADER_EPOCH]
    return mirrored(level, asked, lambda topic, partition: judge(topic.topic, partition.partition))


def _delete_records(shell: ControllerShell, request: KafkaRequest, asked: Any) -> Fields:
    judge = _authorized(shell, request, AclOperation.DELETE, [topic.name for topic in asked.topics])

    def fill(topic: Any, partition: Any) -> KafkaErrorCode:
        code = judge(topic.name, partition.partition_index)
        if code == KafkaErrorCode.NOT_LEADER_OR_FOLLOWER and topic.name in INTERNAL_TOPICS:
            return KafkaErrorCode.INVALID_TOPIC_EXCEPTION
        return code

    return mirrored(LEVELS[ApiKey.DELETE_RECORDS], asked, fill)


def _describe_producers(shell: ControllerShell, request: KafkaRequest, asked: Any) -> Fields:
    judge = _authorized(shell, request, AclOperation.READ, [topic.name for topic in asked.topics])

    def fill(topic: Any, partition: int) -> Fields:
        try:
            check_topic_name(topic.name)
        except TopicError as error:
            return {"error_code": KafkaErrorCode.INVALID_TOPIC_EXCEPTION, "error_message": str(error)}
        code = judge(topic.name, partition)
        return {"error_code": code, "error_message": MESSAGES[code]}

    return mirrored(LEVELS[ApiKey.DESCRIBE_PRODUCERS], asked, fill)


_ANSWERS: dict[ApiKey, Partitioned] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
}
