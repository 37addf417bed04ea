"""What clients ask of each node for itself: a broker's answer would be taken for ours.

The groups, transactions and log directories of a node that has none; the settings of a broker that is none.  All else
is relayed: any broker's answer is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiocontroller.authorizer.authorizer import AclOperation
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.server.apis import Apis, all_versions, decoded, respond
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.relay_rule import relay_or_refuse
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.primitives import Buffer

NO_LOG_DIR = "(none: this node is the controller and keeps no logs)"
"""Kafka's AdminClient takes an empty list for a refusal."""
_BROKER = 4
"""A resource type in DescribeConfigs and IncrementalAlterConfigs."""
_DELETE = 1
"""What to do with a setting, in IncrementalAlterConfigs."""
NO_SETTINGS = "this node is the controller and no broker: it takes no dynamic settings"

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
    def answering(make: Callable[[int, Buffer, int], Fields | None]) -> Callable[[KafkaRequest], None]:
        def answer(request: KafkaRequest) -> None:
            fields = make(request.context.version, request.body, shell.id)
            if fields is None:
                relay_or_refuse(shell, request)
            else:
                respond(request, fields)

        return answer

    def permitted(make: Callable[[Permissions, Any], Fields]) -> Callable[[KafkaRequest], None]:
        return lambda request: respond(request, make(Permissions(shell.authorizer, request.context), decoded(request)))

    return {
        **{api: all_versions(api, answering(make)) for api, make in _SETTINGS.items()},
        **{api: all_versions(api, permitted(make)) for api, make in _PER_NODE.items()},
    }


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


def _own_configs(version: int, body: Buffer, own_id: int) -> Fields | None:
    asked = cold.decode_request(ApiKey.DESCRIBE_CONFIGS, version, body).resources
    names = [each.resource_name for each in asked if each.resource_type == _BROKER]
    if names != [str(own_id)] * len(asked):
        return None
    return {"results": [{"error_code": 0, "resource_type": _BROKER, "resource_name": name} for name in names]}


def _own_configs_altered(version: int, body: Buffer, own_id: int) -> Fields | None:
    """kafka-reassign-partitions --verify takes throttles off every node that metadata lists, so off this one too."""
    asked = cold.decode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, body).resources
    if not asked or any((each.resource_type, each.resource_name) != (_BROKER, str(own_id)) for each in asked):
        return None
    nothing_set = all(config.config_operation == _DELETE for each in asked for config in each.configs)
    result: Fields = {"resource_type": _BROKER, "resource_name": str(own_id), "error_code": 0}
    if not nothing_set:
        result |= {"error_code": KafkaErrorCode.INVALID_REQUEST, "error_message": NO_SETTINGS}
    return {"responses": [result] * len(asked)}


_PER_NODE: dict[ApiKey, Callable[[Permissions, Any], Fields]] = {
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
}
_SETTINGS: dict[ApiKey, Callable[[int, Buffer, int], Fields | None]] = {
    ApiKey.DESCRIBE_CONFIGS: _own_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _own_configs_altered,
}
