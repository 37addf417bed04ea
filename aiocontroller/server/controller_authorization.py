"""Whether the sender of a request to the controller may have it done, as Kafka 3.9's ``KafkaApis`` checks it.

A check takes an event that is about to be queued and returns it, or what is left of it: of several topics those that
the sender may touch, with a reply that adds the others' errors to the answer.  None: all of it was refused, and is
answered.  A check comes before the queue, since the event may wait there while another term begins.

Who is refused by a controller that is not in office hears NOT_CONTROLLER where Kafka asks for the office first, and
CLUSTER_AUTHORIZATION_FAILED where it asks for the permission first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import CreatePartitions, CreateTopics, DeleteTopics, Reply, Request, TopicResult
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import RequestContext
from aiocontroller.wire.apis import ApiKey

_Op, _E = AclOperation, KafkaErrorCode

Check = Callable[[ControllerShell, RequestContext, Any], Request | None]
TopicRequest = TypeVar("TopicRequest", CreateTopics, CreatePartitions, DeleteTopics)
Refused = dict[str | bytes, TopicResult]

CLUSTER_METADATA_TOPIC = "__cluster_metadata"


def on_cluster(operation: AclOperation, *, office_first: bool = False) -> Check:
    """The operation on the cluster allows all of it."""

    def check(shell: ControllerShell, context: RequestContext, event: Request) -> Request | None:
        if Permissions(shell.authorizer, context).may_cluster(operation):
            return event
        if office_first and not _in_office(shell):
            event.reply.answer(_E.NOT_CONTROLLER)
        else:
            _note(shell, context, event)
            event.reply.answer(_E.CLUSTER_AUTHORIZATION_FAILED)
        return None

    return check


def create_topics(shell: ControllerShell, context: RequestContext, event: CreateTopics) -> Request | None:
    """Create on the cluster, or on each topic; DescribeConfigs on a topic decides what is told of it."""
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

    def told(name: str | bytes, result: TopicResult) -> TopicResult:
        if result.error_code or name in described:
            return result
        return msgspec.structs.replace(
            result,
            topic_id=NO_TOPIC_ID,
            partitions=-1,
            replication_factor=-1,
            config_error_code=_E.TOPIC_AUTHORIZATION_FAILED,
        )

    left = tuple(topic for topic in event.topics if topic.name not in refused)
    return _rest(shell, context, event, names, refused, left, told)


def create_partitions(shell: ControllerShell, context: RequestContext, event: CreatePartitions) -> Request | None:
    """Alter on each topic."""
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
    """Delete on each topic; who named it by its id hears its name only with Describe."""
    permissions = Permissions(shell.authorizer, context)
    table = shell.context.table
    refused: Refused = {}
    if not shell.config.delete_topic_enable:
        code = _E.INVALID_REQUEST if context.version < 3 else _E.TOPIC_DELETION_DISABLED
        refused = {asked: TopicResult(code) for asked in event.topics}
    for asked in event.topics:
        if asked in refused:
            continue
        known = table.topic_by_id.get(asked) if isinstance(asked, bytes) else None
        name = known.name if known is not None else asked
        if isinstance(name, bytes):
            refused[asked] = TopicResult(_E.UNKNOWN_TOPIC_ID)
        elif known is not None and not permissions.may(_Op.DESCRIBE, ResourceType.TOPIC, name):
            refused[asked] = TopicResult(_E.TOPIC_AUTHORIZATION_FAILED)
        elif not permissions.may(_Op.DELETE, ResourceType.TOPIC, name):
            refused[asked] = TopicResult(_E.TOPIC_AUTHORIZATION_FAILED, name=name)
    left = tuple(asked for asked in event.topics if asked not in refused)
    return _rest(shell, context, event, event.topics, refused, left)


def _note(shell: ControllerShell, context: RequestContext, event: Request) -> None:
    shell.refused_brokers.note(ApiKey(context.api), context.principal, context.host, event, shell.context)


def _in_office(shell: ControllerShell) -> bool:
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
    told: Callable[[str | bytes, TopicResult], TopicResult] = _as_it_is,
) -> TopicRequest | None:
    """The event with what is left of its topics, answered in the order in which they were asked."""
    reply = event.reply
    if refused and not _in_office(shell):
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
                name: refused[name] if name in refused else told(name, results[name])
                for name in dict.fromkeys(asked)
                if name in refused or name in results
            }
        reply.answer(results)

    return msgspec.structs.replace(event, topics=tuple(left), reply=Reply(answer))
