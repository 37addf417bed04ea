"""The requests that a controller answers: how each becomes an event, and how its answer becomes bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import msgspec
from aiozk import exc

from aiocontroller.authorizer.authorizer import AclOperation
from aiocontroller.controller.broker_defaults import BrokerDefaults
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    AllocateProducerIds,
    AlterPartitionReceived,
    AlterUserScramCredentials,
    ApiPartitionReassignment,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectionType,
    ListPartitionReassignments,
    ReplicaLeaderElection,
    Reply,
    Request,
    ScramUpsertion,
    TopicResult,
    UpdateFeatures,
)
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.server.admission import OF_BROKERS, RequestAdmission
from aiocontroller.server.apis import Api, Apis, could_not_answer
from aiocontroller.server.controller_authorization import (
    Check,
    create_partitions,
    create_topics,
    delete_topics,
    on_cluster,
)
from aiocontroller.server.describe_configs import Describe, topic_describer
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire import admin_messages, messages, topic_messages
from aiocontroller.wire.alter_partition import decode_alter_partition_request, encode_alter_partition_response
from aiocontroller.wire.apis import ApiKey, VersionRange, api_name
from aiocontroller.wire.errors import FrameError

log = logging.getLogger(__name__)

NOT_AUTHORIZED = "Cluster authorization failed."
FIRST_WITH_CONFIGS = 5
"""The version of CreateTopics whose answer has place for configurations."""
MOST_DESCRIBED = 100
"""Topics of one CreateTopics whose configurations are told, some 40 settings each; of more, none is."""


class ControllerApi(NamedTuple):
    versions: VersionRange
    event: Callable[[int, bytes, Reply], Request]
    """(version, body, reply) -> event; FrameError when the body cannot be understood."""
    encode: Callable[[int, Any], bytes]
    """(version, what the event was answered with) -> body."""
    check: Check
    """What the sender must be allowed."""


def _alter_partition(version: int, body: bytes, reply: Reply) -> Request:
    request = decode_alter_partition_request(version, body)
    return AlterPartitionReceived(
        broker=request.broker,
        broker_epoch=request.broker_epoch,
        version=version,
        partitions=request.partitions,
        reply=reply,
    )


def _controlled_shutdown(version: int, body: bytes, reply: Reply) -> Request:
    request = messages.decode_controlled_shutdown_request(version, body)
    return ControlledShutdown(broker=request.broker, broker_epoch=request.broker_epoch, reply=reply)


def _allocate_producer_ids(version: int, body: bytes, reply: Reply) -> Request:
    request = messages.decode_allocate_producer_ids_request(version, body)
    return AllocateProducerIds(broker=request.broker, broker_epoch=request.broker_epoch, reply=reply)


def _elect_leaders(version: int, body: bytes, reply: Reply) -> Request:
    request = admin_messages.decode_elect_leaders_request(version, body)
    try:
        election_type = ElectionType(request.election_type)
    except ValueError:
        raise FrameError(f"ElectLeaders: found election type {request.election_type}, expected 0 or 1") from None

    def answer(result: Any) -> None:
        # An error that concerns all is told for each partition, as Kafka does: version 0 knows no other place for it.
        code = KafkaErrorCode.NONE
        if isinstance(result, KafkaErrorCode):
            if request.partitions is None or result == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = result
            result = dict.fromkeys(request.partitions or (), (result, ""))
        reply.answer((code, result))

    return ReplicaLeaderElection(partitions=request.partitions, election_type=election_type, reply=Reply(answer))


def _alter_partition_reassignments(version: int, body: bytes, reply: Reply) -> Request:
    targets = admin_messages.decode_alter_partition_reassignments_request(version, body)
    not_allowed = (KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_AUTHORIZED)
    return ApiPartitionReassignment(targets=targets, reply=_or_refused(reply, dict.fromkeys(targets, not_allowed)))


def _list_partition_reassignments(version: int, body: bytes, reply: Reply) -> Request:
    partitions = admin_messages.decode_list_partition_reassignments_request(version, body)
    none = dict.fromkeys(partitions or (), ReplicaAssignment(()))
    return ListPartitionReassignments(partitions=partitions, reply=_or_refused(reply, none))


def _update_features(version: int, body: bytes, reply: Reply) -> Request:
    updates = admin_messages.decode_update_features_request(version, body)
    return UpdateFeatures(updates=updates, reply=_or_refused(reply, {}))


def _alter_user_scram_credentials(version: int, body: bytes, reply: Reply) -> Request:
    deletions, upsertions = admin_messages.decode_alter_user_scram_credentials_request(version, body)
    users = dict.fromkeys([user for user, _ in deletions] + [each.user for each in upsertions])

    def answer(result: Any) -> None:
        if isinstance(result, KafkaErrorCode):
            result = dict.fromkeys(users, (result, ""))
        reply.answer(result)

    return AlterUserScramCredentials(
        deletions=tuple(deletions), upsertions=tuple(ScramUpsertion(*each) for each in upsertions), reply=Reply(answer)
    )


def _create_topics(version: int, body: bytes, reply: Reply) -> Request:
    asked = topic_messages.decode_create_topics_request(version, body)
    return CreateTopics(
        topics=asked.topics,
        timeout_ms=asked.timeout_ms,
        validate_only=asked.validate_only,
        reply=_of_each([t.name for t in asked.topics], reply),
    )


def _create_partitions(version: int, body: bytes, reply: Reply) -> Request:
    asked = topic_messages.decode_create_partitions_request(version, body)
    return CreatePartitions(
        topics=asked.topics,
        timeout_ms=asked.timeout_ms,
        validate_only=asked.validate_only,
        reply=_of_each([t.topic for t in asked.topics], reply),
    )


def _delete_topics(version: int, body: bytes, reply: Reply) -> Request:
    asked = topic_messages.decode_delete_topics_request(version, body)
    return DeleteTopics(topics=asked.topics, timeout_ms=asked.timeout_ms, reply=_of_each(asked.topics, reply))


def _of_each(topics: Sequence[str | bytes], reply: Reply) -> Reply:
    """These answers have no place for an error that concerns all: it is told for each topic."""

    def answer(result: Any) -> None:
        if isinstance(result, KafkaErrorCode):
            result = dict.fromkeys(topics, TopicResult(result))
        reply.answer(result)

    return Reply(answer)


class _Refused(NamedTuple):
    """Not authorized; what Kafka tells besides of what was asked for."""

    results: dict[Any, Any]


def _or_refused(reply: Reply, results: dict[Any, Any]) -> Reply:
    def answer(result: Any) -> None:
        reply.answer(_Refused(results) if result == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED else result)

    return Reply(answer)


def _dict_or_error(encode: Callable[..., bytes]) -> Callable[[int, Any], bytes]:
    """An encoder that takes (version, error code, results by key) as one that takes (version, results or error)."""

    def encode_answer(version: int, result: Any) -> bytes:
        if isinstance(result, _Refused):
            code = KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return encode(version, code, result.results, error_message=NOT_AUTHORIZED)
        if isinstance(result, KafkaErrorCode):
            return encode(version, result, {})
        return encode(version, KafkaErrorCode.NONE, result)

    return encode_answer


def _or_error(encode: Callable[..., bytes]) -> Callable[[int, Any], bytes]:
    """An encoder that takes (version, error code, *result) as one that takes (version, result or error code)."""

    def encode_answer(version: int, result: Any) -> bytes:
        if isinstance(result, KafkaErrorCode):
            return encode(version, result)
        return encode(version, KafkaErrorCode.NONE, *result)

    return encode_answer


MAX_NAMED = 50_000
"""Topics, partitions or users in one request."""

SERVED: dict[int, ControllerApi] = {
    ApiKey.ALTER_PARTITION: ControllerApi(
        VersionRange(0, 3),
        _alter_partition,
        _or_error(lambda v, code, *r: encode_alter_partition_response(v, code, r)),
        on_cluster(AclOperation.CLUSTER_ACTION),
    ),
    ApiKey.CONTROLLED_SHUTDOWN: ControllerApi(
        VersionRange(0, 3),
        _controlled_shutdown,
        _or_error(lambda v, code, *r: messages.encode_controlled_shutdown_response(v, code, r)),
        on_cluster(AclOperation.CLUSTER_ACTION),
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: ControllerApi(
        VersionRange(0, 0),
        _allocate_producer_ids,
        _or_error(messages.encode_allocate_producer_ids_response),
        on_cluster(AclOperation.CLUSTER_ACTION),
    ),
    ApiKey.ELECT_LEADERS: ControllerApi(
        VersionRange(0, 2),
        _elect_leaders,
        lambda version, result: admin_messages.encode_elect_leaders_response(version, *result),
        on_cluster(AclOperation.ALTER),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ControllerApi(
        VersionRange(0, 0),
        _alter_partition_reassignments,
        _dict_or_error(admin_messages.encode_alter_partition_reassignments_response),
        on_cluster(AclOperation.ALTER),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ControllerApi(
        VersionRange(0, 0),
        _list_partition_reassignments,
        _dict_or_error(admin_messages.encode_list_partition_reassignments_response),
        on_cluster(AclOperation.DESCRIBE),
    ),
    ApiKey.CREATE_TOPICS: ControllerApi(
        VersionRange(0, 7),
        _create_topics,
        topic_messages.encode_create_topics_response,
        create_topics,
    ),
    ApiKey.CREATE_PARTITIONS: ControllerApi(
        VersionRange(0, 3),
        _create_partitions,
        topic_messages.encode_create_partitions_response,
        create_partitions,
    ),
    ApiKey.DELETE_TOPICS: ControllerApi(
        VersionRange(0, 6),
        _delete_topics,
        topic_messages.encode_delete_topics_response,
        delete_topics,
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ControllerApi(
        VersionRange(0, 0),
        _alter_user_scram_credentials,
        admin_messages.encode_alter_user_scram_credentials_response,
        on_cluster(AclOperation.ALTER, office_first=True),
    ),
    ApiKey.UPDATE_FEATURES: ControllerApi(
        VersionRange(0, 1),
        _update_features,
        _dict_or_error(admin_messages.encode_update_features_response),
        on_cluster(AclOperation.ALTER),
    ),
}

PRELOADED = (ApiKey.API_VERSIONS, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALLOCATE_PRODUCER_IDS)
"""What goes through the cold codec; loading it takes long enough to be done before the first request."""


def apis(shell: ControllerShell) -> Apis:
    admission = RequestAdmission(shell)
    registered = {key: Api(served.versions, _submission(shell, served, admission)) for key, served in SERVED.items()}
    creation = SERVED[ApiKey.CREATE_TOPICS]
    registered[ApiKey.CREATE_TOPICS] = Api(creation.versions, _creation(shell, creation, admission))
    return registered


def _submission(
    shell: ControllerShell, served: ControllerApi, admission: RequestAdmission
) -> Callable[[KafkaRequest], None]:
    return lambda request: _submit(shell, served, admission, request)


def _submit(
    shell: ControllerShell,
    served: ControllerApi,
    admission: RequestAdmission,
    request: KafkaRequest,
    told: Callable[[Request, Any], Any] | None = None,
) -> None:
    """``told`` makes of the event, and of what it was answered with, what is encoded."""
    context = request.context
    asked: list[Request] = []

    def answer(result: Any) -> None:
        """Whatever is wrong with it, the handler that answers goes on."""
        try:
            body = served.encode(context.version, result if told is None else told(asked[0], result))
        except Exception as error:
            could_not_answer(request, error)
        else:
            request.respond(body)

    def event() -> Request | None:
        made = served.event(context.version, request.body, Reply(answer))
        asked.append(made)
        _check_count(context.api, made)
        return served.check(shell, context, made)

    admission.admit(request, event)


def _check_count(api: int, event: Request) -> None:
    """FrameError for one that names too much: an answer for each of them would be made in one step of the loop."""
    if api in OF_BROKERS or api == ApiKey.LIST_PARTITION_REASSIGNMENTS:  # answered for what is under way only
        return
    for field in ("topics", "partitions", "targets", "updates", "deletions", "upsertions"):
        named = getattr(event, field, None)
        if named is not None and len(named) > MAX_NAMED:
            raise FrameError(
                f"{api_name(api)}: found {len(named)} {field} in one request, expected {MAX_NAMED} at most"
            )


def _creation(
    shell: ControllerShell, served: ControllerApi, admission: RequestAdmission
) -> Callable[[KafkaRequest], Coroutine[Any, Any, None]]:
    """As ``_submission``; from version 5 on it is told how the topics are configured, with the brokers' defaults."""
    defaults = BrokerDefaults(shell)

    async def create(request: KafkaRequest) -> None:
        describe: Describe | None = None
        if request.context.version >= FIRST_WITH_CONFIGS and shell.channels is not None:
            try:
                brokers = await defaults.current()
                describe = topic_describer(brokers) if defaults.known else None
            except exc.ZKError as error:
                log.warning("Topics are created without telling their configurations: %s", error)
        _submit(shell, served, admission, request, None if describe is None else _with_configs(describe))

    return create


def _with_configs(describe: Describe) -> Callable[[Request, Any], Any]:
    def told(event: Request, results: dict[str | bytes, TopicResult]) -> dict[str | bytes, TopicResult]:
        assert isinstance(event, CreateTopics)
        if len(event.topics) > MOST_DESCRIBED:
            return results
        given = {topic.name: topic.configs for topic in event.topics}
        for name, result in results.items():
            if not result.error_code and not result.config_error_code:
                configs = {key: value for key, value in given[str(name)].items() if value is not None}
                results[name] = msgspec.structs.replace(result, configs=tuple(describe(configs)))
        return results

    return told
