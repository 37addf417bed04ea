"""Requests to the coordinator of a group or transaction, which this node never is.

Authorization comes first, then NOT_COORDINATOR in the form of each version's answer.
Source: ``KafkaApis``, ``GroupCoordinator`` and ``TransactionCoordinator`` of Kafka 3.9.

Departure from Kafka: version 0 of OffsetCommit and OffsetFetch, which brokers keep in ZooKeeper for clients before
Kafka 0.8.2, is not served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.server.apis import Api, Apis, Fields, all_versions, decoded, respond
from aiocontroller.server.cluster_view import INTERNAL_TOPICS, cluster_view
from aiocontroller.server.error_answers import (
    ADDED_BY_TRANSACTION,
    ADDED_TOPICS,
    LEVELS,
    OFFSETS_FETCHED,
    mirrored,
    refusal,
)
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange

NOT_COORDINATOR = KafkaErrorCode.NOT_COORDINATOR
NO_GROUP = KafkaErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TRANSACTION = KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_PROTOCOL_NAMED_FROM = 5
"""First version of SyncGroup that must name protocol type and protocol."""

Answer = Callable[["Asked"], Fields]


class Asked:
    """A decoded request with its sender's permissions."""

    def __init__(self, shell: ControllerShell, request: KafkaRequest) -> None:
        self.request = request
        self.version = request.context.version
        self.body = decoded(request)
        self.permissions = Permissions(shell.authorizer, request.context)
        self.view = cluster_view(shell)

    def may_group(self, operation: AclOperation, group: str) -> bool:
        """Whether the sender may do this to the group."""
        return self.permissions.may(operation, ResourceType.GROUP, group)

    def may_transaction(self, operation: AclOperation, transactional_id: str) -> bool:
        """Whether the sender may do this to the transactional id."""
        return self.permissions.may(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def refused(self, code: KafkaErrorCode) -> Fields:
        """The answer with this code in each of its places."""
        return refusal(self.request, self.body, code)


def apis(shell: ControllerShell) -> Apis:
    """Requests to coordinators of groups and transactions, answered as by a broker that coordinates none."""

    def answering(answer: Answer) -> Callable[[KafkaRequest], None]:
        return lambda request: respond(request, answer(Asked(shell, request)))

    found: dict[int, Api] = {api: all_versions(api, answering(answer)) for api, answer in _ANSWERS.items()}
    for api in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        found[api] = Api(VersionRange(1, SUPPORTED[api].max), found[api].handle)
    return found


# -- groups ------------------------------------------------------------------------------------------------------------


def _of_group(group: str) -> KafkaErrorCode:
    """For APIs that refuse an empty group id; commit, fetch, describe and delete accept it for compatibility."""
    return NOT_COORDINATOR if group else KafkaErrorCode.INVALID_GROUP_ID


def _member(asked: Asked) -> Fields:
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
    group = asked.body.group_id
    if not asked.may_group(AclOperation.READ, group):
        return asked.refused(NO_GROUP)
    return asked.refused(_of_group(group))


def _join_group(asked: Asked) -> Fields:
    fields = _member(asked)
    has_member = fields["error_code"] != NO_GROUP
    return {**fields, "member_id": asked.body.member_id} if has_member else fields


def _sync_group(asked: Asked) -> Fields:
    body = asked.body
    if asked.version >= _PROTOCOL_NAMED_FROM and None in (body.protocol_type, body.protocol_name):
        return asked.refused(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return _member(asked)


def _committed(asked: Asked, at_last: KafkaErrorCode) -> Callable[[Any, Any], KafkaErrorCode]:
    """Return a function for the error of each partition in a commit; ``at_last`` where nothing else is wrong."""
    allowed = asked.permissions.of_topics(AclOperation.READ, [topic.name for topic in asked.body.topics])

    def judge(topic: Any, partition: Any) -> KafkaErrorCode:
        if topic.name not in allowed:
            return KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not asked.view.contains(topic.name, partition.partition_index):
            return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return at_last

    return judge


def _offset_commit(asked: Asked) -> Fields:
    if not asked.may_group(AclOperation.READ, asked.body.group_id):
        return asked.refused(NO_GROUP)
    return mirrored(LEVELS[ApiKey.OFFSET_COMMIT], asked.body, _committed(asked, NOT_COORDINATOR))


def _offset_fetch(asked: Asked) -> Fields:
    def judge(group: str) -> KafkaErrorCode:
        return NOT_COORDINATOR if asked.may_group(AclOperation.DESCRIBE, group) else NO_GROUP

    if asked.version >= 8:
        return {"groups": [{"group_id": g.group_id, "error_code": judge(g.group_id)} for g in asked.body.groups]}
    code = judge(asked.body.group_id)
    if asked.version >= 2:
        return {"error_code": code}
    return mirrored(OFFSETS_FETCHED, asked.body, lambda topic, partition: code)


def _offset_delete(asked: Asked) -> Fields:
    allowed = asked.may_group(AclOperation.DELETE, asked.body.group_id)
    return {"error_code": _of_group(asked.body.group_id) if allowed else NO_GROUP}


def _describe_groups(asked: Asked) -> Fields:
    def judge(group: str) -> KafkaErrorCode:
        return NOT_COORDINATOR if asked.may_group(AclOperation.DESCRIBE, group) else NO_GROUP

    return mirrored(LEVELS[ApiKey.DESCRIBE_GROUPS], asked.body, judge)


def _delete_groups(asked: Asked) -> Fields:
    groups = dict.fromkeys(asked.body.groups_names)
    codes = {g: NOT_COORDINATOR if asked.may_group(AclOperation.DELETE, g) else NO_GROUP for g in groups}
    return {"results": [{"group_id": group, "error_code": code} for group, code in codes.items()]}


# -- transactions ------------------------------------------------------------------------------------------------------


def _of_transaction(transactional_id: str) -> KafkaErrorCode:
    return NOT_COORDINATOR if transactional_id else KafkaErrorCode.INVALID_REQUEST


def _add_partitions_to_txn(asked: Asked) -> Fields:
    """Sent by clients up to version 3, and by brokers from version 4 on, with many transactions."""
    body = asked.body
    if asked.version >= 4:
        if not asked.permissions.may_cluster(AclOperation.CLUSTER_ACTION):
            return {"error_code": KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        judges = {id(t): _added(asked, t.transactional_id, t.topics) for t in body.transactions}
        return mirrored(ADDED_BY_TRANSACTION, body, lambda t, topic, partition: judges[id(t)](topic.name, partition))
    transactional_id = body.v3_and_below_transactional_id
    if not asked.may_transaction(AclOperation.WRITE, transactional_id):
        return asked.refused(NO_TRANSACTION)
    judge = _added(asked, transactional_id, body.v3_and_below_topics)
    return mirrored(ADDED_TOPICS, body, lambda topic, partition: judge(topic.name, partition))


def _added(asked: Asked, transactional_id: str, topics: Any) -> Callable[[str, int], KafkaErrorCode]:
    """Errors per partition; if one partition cannot be added, none is."""
    names = [topic.name for topic in topics]
    if asked.version < 4:
        names = [name for name in names if name not in INTERNAL_TOPICS]
        allowed = asked.permissions.of_topics(AclOperation.WRITE, names)
    else:
        allowed = set(names)
    wrong: dict[tuple[str, int], KafkaErrorCode] = {}
    for topic in topics:
        for partition in topic.partitions:
            if topic.name not in allowed:
                wrong[topic.name, partition] = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not asked.view.contains(topic.name, partition):
                wrong[topic.name, partition] = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other = KafkaErrorCode.OPERATION_NOT_ATTEMPTED if wrong else _of_transaction(transactional_id)
    return lambda name, partition: wrong.get((name, partition), other)


def _add_offsets_to_txn(asked: Asked) -> Fields:
    if not asked.may_transaction(AclOperation.WRITE, asked.body.transactional_id):
        return asked.refused(NO_TRANSACTION)
    if not asked.may_group(AclOperation.READ, asked.body.group_id):
        return asked.refused(NO_GROUP)
    return asked.refused(_of_transaction(asked.body.transactional_id))


def _end_txn(asked: Asked) -> Fields:
    if not asked.may_transaction(AclOperation.WRITE, asked.body.transactional_id):
        return asked.refused(NO_TRANSACTION)
    return asked.refused(_of_transaction(asked.body.transactional_id))


def _txn_offset_commit(asked: Asked) -> Fields:
    if not asked.may_transaction(AclOperation.WRITE, asked.body.transactional_id):
        return asked.refused(NO_TRANSACTION)
    if not asked.may_group(AclOperation.READ, asked.body.group_id):
        return asked.refused(NO_GROUP)
    return mirrored(LEVELS[ApiKey.TXN_OFFSET_COMMIT], asked.body, _committed(asked, _of_group(asked.body.group_id)))


def _write_txn_markers(asked: Asked) -> Fields:
    """Markers are for partition leaders; a node without logs does not have the partition, even if others do."""
    may = asked.permissions.may_cluster
    if not may(AclOperation.ALTER) and not may(AclOperation.CLUSTER_ACTION):
        return asked.refused(KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return asked.refused(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _describe_transactions(asked: Asked) -> Fields:
    def judge(transactional_id: str) -> KafkaErrorCode:
        if not asked.may_transaction(AclOperation.DESCRIBE, transactional_id):
            return NO_TRANSACTION
        return _of_transaction(transactional_id)

    return mirrored(LEVELS[ApiKey.DESCRIBE_TRANSACTIONS], asked.body, judge)


_ANSWERS: dict[ApiKey, Answer] = {
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.HEARTBEAT: _member,
    ApiKey.LEAVE_GROUP: _member,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
}
