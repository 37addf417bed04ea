"""The controller's requests: decodes each into an event, and encodes its answer."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import msgspec

from aiocontroller.authorizer.authorizer import AclOperation
from aiocontroller.controller.obeying import broker_configs
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.core.events import (
    AllocateProducerIds,
    AlterPartitionReceived,
    AlterUserScramCredentials,
    ApiPartitionReassignment,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ListPartitionReassignments,
    ReplicaLeaderElection,
    UpdateFeatures,
)
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.request_content import ElectionType, ScramUpsertion, TopicResult, TopicSetting
from aiocontroller.core.text import as_a_name
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
from aiocontroller.wire import admin_messages, elect_leaders, messages, reassignments, topic_messages
from aiocontroller.wire.alter_partition import decode_alter_partition_request, encode_alter_partition_response
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.zookeeper.broker_configs import BrokerConfigs
from aiocontroller.zookeeper.from_aiozk import exc

log = logging.getLogger(__name__)

NOT_AUTHORIZED = "Cluster authorization failed."
WORDS = {KafkaErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster."}
"""Messages of errors that concern a whole request; other codes have none."""
FIRST_WITH_CONFIGS = 5
"""The first CreateTopics version whose answer includes configs."""


class ControllerApi(NamedTuple):
    """An API that is answered by an event in the controller's queue."""

    versions: VersionRange
    event: Callable[[int, bytes, Reply], Request]
    """(version, body, reply) -> event; FrameError when the body is malformed."""
    encode: Callable[..., bytes]
    """(version, the event's answer) -> body; with a quota also the throttle time in milliseconds."""
    check: Check
    """The authorization check of the sender."""


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
    request = elect_leaders.decode_elect_leaders_request(version, body)
    known = request.election_type in (ElectionType.PREFERRED, ElectionType.UNCLEAN)

    def answer(result: Any) -> None:
        if not known and not isinstance(result, KafkaErrorCode):
            code = KafkaErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka, whose handler fails on the number
            reply.answer((code, dict.fromkeys(request.partitions or (), (code, ""))))
            return
        # As in Kafka, an error of the whole request is set on each partition: version 0 has no other place for it.
        code = KafkaErrorCode.NONE
        if isinstance(result, KafkaErrorCode):
            if request.partitions is None or result == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = result
            result = dict.fromkeys(request.partitions or (), (result, ""))
        reply.answer((code, result))

    return ReplicaLeaderElection(
        partitions=request.partitions if known else (),
        election_type=ElectionType(request.election_type) if known else ElectionType.PREFERRED,
        reply=Reply(answer),
    )


def _alter_partition_reassignments(version: int, body: bytes, reply: Reply) -> Request:
    targets = reassignments.decode_alter_partition_reassignments_request(version, body)
    not_allowed = (KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_AUTHORIZED)
    return ApiPartitionReassignment(targets=targets, reply=_or_refused(reply, dict.fromkeys(targets, not_allowed)))


def _list_partition_reassignments(version: int, body: bytes, reply: Reply) -> Request:
    partitions = reassignments.decode_list_partition_reassignments_request(version, body)
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
        reply=_of_each(list(dict.fromkeys(t.topic for t in asked.topics)), reply),
    )


def _delete_topics(version: int, body: bytes, reply: Reply) -> Request:
    asked = topic_messages.decode_delete_topics_request(version, body)
    return DeleteTopics(
        topics=asked.topics,
        timeout_ms=asked.timeout_ms,
        contradictory=asked.contradictory,
        reply=_of_each(asked.topics, reply),
    )


def _of_each(topics: Sequence[str | bytes], reply: Reply) -> Reply:
    """A reply that sets an error of the whole request on each topic, since these answers have no other place for it."""

    def answer(result: Any) -> None:
        if isinstance(result, KafkaErrorCode):
            result = dict.fromkeys(topics, TopicResult(result))
        for topic, times in Counter(topics).items():
            if times > 1:
                result[topic] = msgspec.structs.replace(result[topic], times=times)
        reply.answer(result)

    return Reply(answer)


class _Refused(NamedTuple):
    """The whole request is refused, with the results that Kafka includes in such an answer."""

    code: KafkaErrorCode
    message: str
    results: dict[Any, Any]


def _or_refused(reply: Reply, not_allowed: dict[Any, Any]) -> Reply:
    """``not_allowed``: the results included when the sender is not authorized."""

    def answer(result: Any) -> None:
        if result == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            result = _Refused(result, NOT_AUTHORIZED, not_allowed)
        elif isinstance(result, KafkaErrorCode):
            result = _Refused(result, WORDS.get(result, ""), {})
        reply.answer(result)

    return Reply(answer)


def _dict_or_error(encode: Callable[..., bytes]) -> Callable[[int, Any], bytes]:
    """An encoder that takes (version, error code, results by key) as one that takes (version, results or error)."""

    def encode_answer(version: int, result: Any) -> bytes:
        if isinstance(result, _Refused):
            return encode(version, result.code, result.results, error_message=result.message)
        return encode(version, KafkaErrorCode.NONE, result)

    return encode_answer


def _or_error(encode: Callable[..., bytes]) -> Callable[[int, Any], bytes]:
    """An encoder that takes (version, error code, *result) as one that takes (version, result or error code)."""

    def encode_answer(version: int, result: Any) -> bytes:
        if isinstance(result, KafkaErrorCode):
            return encode(version, result)
        return encode(version, KafkaErrorCode.NONE, *result)

    return encode_answer


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
        lambda version, result: elect_leaders.encode_elect_leaders_response(version, *result),
        on_cluster(AclOperation.ALTER),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ControllerApi(
        VersionRange(0, 0),
        _alter_partition_reassignments,
        _dict_or_error(reassignments.encode_alter_partition_reassignments_response),
        on_cluster(AclOperation.ALTER),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ControllerApi(
        VersionRange(0, 0),
        _list_partition_reassignments,
        _dict_or_error(reassignments.encode_list_partition_reassignments_response),
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
        on_cluster(AclOperation.ALTER, role_first=True),
    ),
    ApiKey.UPDATE_FEATURES: ControllerApi(
        VersionRange(0, 1),
        _update_features,
        _dict_or_error(admin_messages.encode_update_features_response),
        on_cluster(AclOperation.ALTER),
    ),
}

PRELOADED = (ApiKey.API_VERSIONS, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALLOCATE_PRODUCER_IDS)
"""Messages of the cold codec, which is slow to load and so is loaded before the first request."""


STRICT_SINCE = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}
"""The first versions whose clients understand a quota's refusal; older clients are only throttled."""


def apis(shell: ControllerShell) -> Apis:
    """The requests that only the active controller carries out, each by an event."""
    admission = RequestAdmission(shell)
    registered = {key: Api(served.versions, _submission(shell, served, admission)) for key, served in SERVED.items()}
    for key in STRICT_SINCE:
        registered[key] = Api(SERVED[key].versions, _mutation(shell, key, admission))
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
    complete: Callable[[Request, Any], Any] | None = None,
) -> None:
    """``complete`` turns the event and its answer into the value to be encoded."""
    context = request.context
    asked: list[Request] = []

    def answer(result: Any) -> None:
        """Encode and send the answer; an error in encoding must not reach the handler that answers."""
        try:
            body = served.encode(context.version, result if complete is None else complete(asked[0], result))
        except Exception as error:
            could_not_answer(request, error)
        else:
            request.respond(body)

    def event() -> Request | None:
        made = served.event(context.version, request.body, Reply(answer))
        if context.api not in OF_BROKERS:
            made = msgspec.structs.replace(made, by=f"{as_a_name(context.principal)} at {context.host}")
        asked.append(made)
        return served.check(shell, context, made)

    admission.admit(request, event)


def _mutation(
    shell: ControllerShell, api: ApiKey, admission: RequestAdmission
) -> Callable[[KafkaRequest], Coroutine[Any, Any, None]]:
    """Like ``_submission``, with the sender's quota, and for CreateTopics with the topics' configs in the answer."""
    served = SERVED[api]

    async def mutate(request: KafkaRequest) -> None:
        context = request.context
        if shell.channels is None:
            _submit(shell, served, admission, request)  # to be refused
            return
        strict = context.version >= STRICT_SINCE[api]
        quota = await shell.mutation_quotas.quota_for(context.principal, context.client_id, strict=strict)

        def event(version: int, body: bytes, reply: Reply) -> Request:
            return msgspec.structs.replace(served.event(version, body, reply), quota=quota)

        def encode(version: int, result: Any) -> bytes:
            request.mute_ms = quota.throttle_time_ms()
            if request.mute_ms:
                shell.mutation_quotas.throttled()
            return served.encode(version, result, request.mute_ms)

        complete = None
        if api == ApiKey.CREATE_TOPICS and context.version >= FIRST_WITH_CONFIGS:
            complete = _with_configs(topic_describer(await _brokers_configs(shell)))
        _submit(shell, served._replace(event=event, encode=encode), admission, request, complete)

    return mutate


async def _brokers_configs(shell: ControllerShell) -> BrokerConfigs:
    try:
        return await broker_configs(shell)
    except exc.ZKError as error:
        log.warning("Using Kafka's defaults for the configurations of new topics: %s", error)
        return BrokerConfigs()


def _with_configs(describe: Describe) -> Callable[[Request, Any], Any]:
    """Return a function that adds the topics' configs; topics with equal configs share one description."""

    def complete(event: Request, results: dict[str | bytes, TopicResult]) -> dict[str | bytes, TopicResult]:
        assert isinstance(event, CreateTopics)
        given = {topic.name: topic.configs for topic in event.topics}
        described: dict[tuple[tuple[str, str], ...], tuple[TopicSetting, ...]] = {}
        for name, result in results.items():
            if not result.error_code and not result.config_error_code:
                configs = {key: value for key, value in given[str(name)].items() if value is not None}
                key = tuple(configs.items())
                if key not in described:
                    described[key] = tuple(describe(configs))
                results[name] = msgspec.structs.replace(result, configs=described[key])
        return results

    return complete
