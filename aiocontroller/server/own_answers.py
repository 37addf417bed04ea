"""Requests about a node itself, which cannot be answered on behalf of a broker.

This node has no groups, transactions or log directories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiocontroller.authorizer.authorizer import AclOperation
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.server.apis import Apis, all_versions, decoded, respond
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey

NO_LOG_DIR = "(none: this node is the controller and keeps no logs)"
"""Kafka's AdminClient takes an empty list as a refusal."""
TRANSACTION_STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)

Fields = dict[str, Any]


def apis(shell: ControllerShell) -> Apis:
    """Requests about a node itself, answered as by one that has no logs and no groups."""

    def permitted(make: Callable[[Permissions, Any], Fields]) -> Callable[[KafkaRequest], None]:
        return lambda request: respond(request, make(Permissions(shell.authorizer, request.context), decoded(request)))

    return {api: all_versions(api, permitted(make)) for api, make in _PER_NODE.items()}


def _list_groups(permissions: Permissions, asked: Any) -> Fields:
    return {}


def _list_transactions(permissions: Permissions, asked: Any) -> Fields:
    return {"unknown_state_filters": [name for name in asked.state_filters if name not in TRANSACTION_STATES]}


def _describe_log_dirs(permissions: Permissions, asked: Any) -> Fields:
    if not permissions.may_cluster(AclOperation.DESCRIBE):
        return {"error_code": KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    return {"results": [{"error_code": 0, "log_dir": NO_LOG_DIR, "topics": []}]}


def _alter_replica_log_dirs(permissions: Permissions, asked: Any) -> Fields:
    """The request has topics by directory, its answer directories by topic."""
    allowed = permissions.may_cluster(AclOperation.ALTER)
    code = KafkaErrorCode.LOG_DIR_NOT_FOUND if allowed else KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED
    found: dict[str, dict[int, None]] = {}
    for directory in asked.dirs:
        for topic in directory.topics:
            found.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return {
        "results": [
            {"topic_name": name, "partitions": [{"partition_index": n, "error_code": code} for n in partitions]}
            for name, partitions in found.items()
        ]
    }


_PER_NODE: dict[ApiKey, Callable[[Permissions, Any], Fields]] = {
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
}
