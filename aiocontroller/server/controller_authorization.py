"""Authorization of requests to the controller, as in Kafka 3.9's ``KafkaApis``.

A check takes an event that is about to be queued and returns it, possibly reduced to the topics that the sender may
access, with a reply that adds the other topics' errors to the answer.  None means that the whole request was refused
and answered.  Checks run before queueing, since another term may start while the event waits.

On a standby, an unauthorized sender gets NOT_CONTROLLER for APIs where Kafka checks the controller's role first, and
CLUSTER_AUTHORIZATION_FAILED where it checks the permission first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.core.events import CreatePartitions, CreateTopics, DeleteTopics
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.core.request_content import TopicResult
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import RequestContext
from aiocontroller.wire.apis import ApiKey

_Op, _E = AclOperation, KafkaErrorCode

Check = Callable[[ControllerShell, RequestContext, Any], Request | None]
TopicRequest = TypeVar("TopicRequest", CreateTopics, CreatePartitions, DeleteTopics)
Refused = dict[str | bytes, TopicResult]

CLUSTER_METADATA_TOPIC = "__cluster_metadata"


def on_cluster(operation: AclOperation, *, role_first: bool = False) -> Check:
    """Permission for the operation on the cluster allows the whole request."""

    def check(shell: ControllerShell, context: RequestContext, event: Request) -> Request | None:
        if Permissions(shell.authorizer, context).may_cluster(operation):
            return event
        if role_first and not _is_active(shell):
            event.reply.answer(_E.NOT_CONTROLLER)
        else:
            _note(shell, context, event)
            event.reply.answer(_E.CLUSTER_AUTHORIZATION_FAILED)
        return None

    return check


def create_topics(shell: ControllerShell, context: RequestContext, event: CreateTopics) -> Request | None:
    """Needs Create on the cluster or on each topic; the answer includes configs with DescribeConfigs on the topic."""
    permissions = Permissions(shell.authorizer, context)
    names = [topic.name for topic in event.topics]
    creatable = set(names) if permissions.may_cluster(_Op.CREATE) else permissions.of_topics(_Op.CREATE, names)
    described = permissions.of_topics(_Op.DESCRIBE_CONFIGS, names)
    refused: Refused = {}
    for name, times in Counter(names).items():
        hidden = 0 if name in described else _E.TOPIC_AUTHORIZATION_FAILED
        if name == CLUSTER_METADATA_TOPIC:
            refused[name] = TopicResult(
                _E.INVALID_REQUEST, f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.", times=times
            )
        elif times > 1:
            message = "Found multiple entries for this topic."
            refused[name] = TopicResult(_E.INVALID_REQUEST, message, config_error_code=hidden, times=times)
        elif name not in creatable:
            message = "Authorization failed."
            refused[name] = TopicResult(_E.TOPIC_AUTHORIZATION_FAILED, message, config_error_code=hidden)

    def visible(name: str | bytes, result: TopicResult) -> TopicResult:
        if name in described:
            return result
        hidden = 0 if result.error_code else _E.TOPIC_AUTHORIZATION_FAILED
        return msgspec.structs.replace(
            result, topic_id=NO_TOPIC_ID, partitions=-1, replication_factor=-1, config_error_code=hidden
        )

    left = tuple(topic for topic in event.topics if topic.name not in refused)
    return _rest(shell, context, event, names, refused, left, visible)


def create_partitions(shell: ControllerShell, context: RequestContext, event: CreatePartitions) -> Request | None:
    """Needs Alter on each topic."""
    names = [topic.topic for topic in event.topics]
    alterable = Permissions(shell.authorizer, context).of_topics(_Op.ALTER, names)
    refused: Refused = {}
    for name, times in Counter(names).items():
        if times > 1:
            refused[name] = TopicResult(_E.INVALID_REQUEST, "Duplicate topic in request.")
        elif name not in alterable:
            refused[name] = TopicResult(_E.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
    left = tuple(topic for topic in event.topics if topic.topic not in refused)
    return _rest(shell, context, event, names, refused, left)


def delete_topics(shell: ControllerShell, context: RequestContext, event: DeleteTopics) -> Request | None:
    """Needs Delete on each topic; the answer names a topic that was given by its id only with Describe on it.

    A topic with neither a name nor an id counts as not authorized.
    """
    permissions = Permissions(shell.authorizer, context)
    table = shell.context.table
    refused: Refused = {}
    if not shell.policy.delete_topic_enable:
        code = _E.INVALID_REQUEST if context.version < 3 else _E.TOPIC_DELETION_DISABLED
        refused = {asked: TopicResult(code) for asked in event.topics}
    elif event.contradictory:
        refused = {asked: TopicResult(_E.INVALID_REQUEST) for asked in event.topics}
    for named, topic_id in event.contradictory.items():
        refused[named] = msgspec.structs.replace(refused[named], topic_id=topic_id)
    for asked in event.topics:
        if asked in refused:
            continue
        known = table.topic_by_id.get(asked) if isinstance(asked, bytes) else None
        name = known.name if known is not None else asked
        if isinstance(name, bytes):
            code = _E.TOPIC_AUTHORIZATION_FAILED if name == NO_TOPIC_ID else _E.UNKNOWN_TOPIC_ID
            refused[asked] = TopicResult(code)
        elif known is not None and not permissions.may(_Op.DESCRIBE, ResourceType.TOPIC, name):
            refused[asked] = TopicResult(_E.TOPIC_AUTHORIZATION_FAILED)
        elif not permissions.may(_Op.DELETE, ResourceType.TOPIC, name):
            refused[asked] = TopicResult(_E.TOPIC_AUTHORIZATION_FAILED, name=name)
    left = tuple(asked for asked in event.topics if asked not in refused)
    return _rest(shell, context, event, event.topics, refused, left)


def _note(shell: ControllerShell, context: RequestContext, event: Request) -> None:
    shell.refused_brokers.note(ApiKey(context.api), context.principal, context.host, event, shell.context)


def _is_active(shell: ControllerShell) -> bool:
    return shell.channels is not None


def _as_it_is(name: str | bytes, result: TopicResult) -> TopicResult:
    return result


def _rest(
    shell: ControllerShell,
    context: RequestContext,
    event: TopicRequest,
    asked: Iterable[str | bytes],
    refused: Refused,
    left: Sequence[Any],
    visible: Callable[[str | bytes, TopicResult], TopicResult] = _as_it_is,
) -> TopicRequest | None:
    """The event with its remaining topics, answered in the order of the request."""
    reply = event.reply
    if refused and not _is_active(shell):
        reply.answer(_E.NOT_CONTROLLER)
        return None
    if any(result.error_code == _E.TOPIC_AUTHORIZATION_FAILED for result in refused.values()):
        _note(shell, context, event)
    if refused and not left:
        reply.answer(refused)
        return None

    def answer(results: Any) -> None:
        if not isinstance(results, KafkaErrorCode):
            results = {
                name: refused[name] if name in refused else visible(name, results[name])
                for name in dict.fromkeys(asked)
                if name in refused or name in results
            }
        reply.answer(results)

    return msgspec.structs.replace(event, topics=tuple(left), reply=Reply(answer))
