"""Metadata, DescribeCluster and FindCoordinator, answered as any broker would.

A long Metadata answer is made in slices, one such answer at a time, so that no step of the loop takes long; if the
cluster changes between slices so that they become inconsistent, the answer is made again from the start.

Source: ``KafkaApis`` of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

import anyio

from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import AioControllerError, KafkaErrorCode
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.core.partitions import Topic
from aiocontroller.server.apis import Apis, all_versions, decoded, respond
from aiocontroller.server.auto_topic_creation import AutoTopicCreation
from aiocontroller.server.cluster_reader import ClusterSource
from aiocontroller.server.cluster_view import INTERNAL_TOPICS, ClusterView, in_charge
from aiocontroller.server.find_coordinator import CoordinatorFinder
from aiocontroller.server.permissions import OPERATIONS_UNKNOWN, Permissions
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.metadata import MetadataAsked, MetadataHead, MetadataTopicEncoder, encode_metadata
from aiocontroller.zookeeper.topic_rules import TopicError, check_topic_name

SLICE = 2_000
"""Partitions encoded before other tasks may run: a few milliseconds."""
TOPIC_COSTS = 10
"""A topic's own cost, mainly its authorization, counted in partitions."""
ATTEMPTS = 3
BROKER, CONTROLLER = 1, 2
"""Types of endpoints."""


def apis(shell: ControllerShell) -> Apis:
    """Metadata, DescribeCluster and FindCoordinator."""
    source, creation = ClusterSource(shell), AutoTopicCreation(shell)
    metadata = MetadataApi(shell, source, creation)
    cluster = ClusterApi(shell, source)
    finder = CoordinatorFinder(shell, source, creation)
    return {
        ApiKey.METADATA: all_versions(ApiKey.METADATA, metadata.handle),
        ApiKey.DESCRIBE_CLUSTER: all_versions(ApiKey.DESCRIBE_CLUSTER, cluster.handle),
        ApiKey.FIND_COORDINATOR: all_versions(ApiKey.FIND_COORDINATOR, finder.handle),
    }


class MovedError(AioControllerError):
    """The cluster changed while an answer was being made."""


class TopicsAsked:
    """The topics of a Metadata request."""

    def __init__(self, version: int, asked: MetadataAsked) -> None:
        self.all = asked.all
        self.invalid = version < 12 and any(name is None or topic_id != NO_TOPIC_ID for name, topic_id in asked.topics)
        self.ids = list(dict.fromkeys(topic_id for _, topic_id in asked.topics if topic_id != NO_TOPIC_ID))
        self.names = [] if self.ids else list(dict.fromkeys(name for name, _ in asked.topics if name is not None))
        """Ids take precedence over names: in a request with both, the ids count."""
        self.may_create = asked.allow_auto_topic_creation and not self.all
        self.with_operations = asked.include_topic_authorized_operations
        self.with_cluster_operations = asked.include_cluster_authorized_operations

    @property
    def to_read(self) -> Sequence[str] | None:
        """The names to read from ZooKeeper; None for all topics."""
        return None if self.all or self.ids else self.names


class MetadataApi:
    """Serves Metadata."""

    def __init__(self, shell: ControllerShell, source: ClusterSource, creation: AutoTopicCreation) -> None:
        self._shell = shell
        self._source = source
        self._creation = creation
        self._turn = anyio.Lock()
        """Held while an answer is made in slices."""

    async def handle(self, request: KafkaRequest) -> None:
        """Answer a request, in slices so that others run between them."""
        version = request.context.version
        message = MetadataAsked(version, request.body)
        while not message.read(SLICE):
            await self._shell.world.clock.sleep(0)
        asked = TopicsAsked(version, message)
        if asked.invalid:
            refusal = {"error_code": KafkaErrorCode.INVALID_REQUEST}
            names = [{"name": name or "", "topic_id": topic_id, **refusal} for name, topic_id in message.topics]
            respond(request, {"topics": names})
            return
        cluster_id = await self._source.cluster_id()
        for attempt in range(ATTEMPTS):
            try:
                async with AsyncExitStack() as stack:
                    if self._is_long(asked):
                        await stack.enter_async_context(self._turn)
                    request.respond(await self._answer(request, asked, cluster_id))
                return
            except MovedError:
                if attempt == ATTEMPTS - 1:
                    raise

    async def _answer(self, request: KafkaRequest, asked: TopicsAsked, cluster_id: str | None) -> bytes:
        creating = self._creates(asked)
        view, controller = await self._source.view(asked.to_read)
        answer = _Answer(self._shell, request, asked, view, creating=creating)
        await answer.make()
        begun = self._creation.create(answer.missing) if creating else frozenset()
        answer.add_missing(begun)
        return answer.body(cluster_id, controller)

    def _is_long(self, asked: TopicsAsked) -> bool:
        """Whether the answer takes more than one slice."""
        table = self._shell.context.table
        if asked.all:
            return len(table) + TOPIC_COSTS * len(table.topic_by_name) > SLICE
        known = (table.topic_by_name.get(name) for name in asked.names)
        sizes = sum(len(topic.rows) for topic in known if topic is not None)
        return sizes + TOPIC_COSTS * (len(asked.names) + len(asked.ids)) > SLICE

    def _creates(self, asked: TopicsAsked) -> bool:
        """Whether topics that do not exist are created."""
        return asked.may_create and in_charge(self._shell) and self._creation.enabled


class _Answer:
    """One Metadata answer being built."""

    def __init__(
        self, shell: ControllerShell, request: KafkaRequest, asked: TopicsAsked, view: ClusterView, *, creating: bool
    ) -> None:
        self._shell = shell
        self._asked = asked
        self._view = view
        self._creating = creating
        self._version = request.context.version
        self._permissions = Permissions(shell.authorizer, request.context)
        self._nodes = view.nodes(request.context.listener)
        context = view.context
        self._encoder = MetadataTopicEncoder(
            self._version,
            context.table,
            nodes=self._nodes,
            alive=[broker.id for broker in view.brokers()],
            live=context.live,
            offline_dirs=context.offline_dirs,
        )
        self._pieces: list[bytes] = []
        self._count = 0
        self._work = 0
        self.missing: list[str] = []
        """Topics that do not exist and may be created if auto-creation is enabled."""
        self._forbidden: list[str] = []
        self._hidden: list[tuple[str | None, bytes]] = []

    def body(self, cluster_id: str | None, controller: int) -> bytes:
        operations = OPERATIONS_UNKNOWN
        if self._asked.with_cluster_operations:
            operations = cluster_operations(self._permissions)
        head = MetadataHead(list(self._nodes.values()), cluster_id, controller, operations)
        return encode_metadata(self._version, head, self._pieces, self._count)

    async def make(self) -> None:
        view, asked = self._view, self._asked
        unauthorized: list[tuple[str | None, bytes]] = []
        wanted: Iterable[str] = asked.names
        if asked.all:
            wanted = list(view.context.table.topic_by_name)
        elif asked.ids:
            wanted = self._of_ids(asked.ids)
        absent: list[str] = []
        for name in wanted:
            await self._breathe(TOPIC_COSTS)
            if not self._permissions.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                topic = view.topic(name) if asked.ids else None
                unauthorized.append((name, NO_TOPIC_ID) if topic is None else (None, topic.id))
            elif (topic := view.topic(name)) is None:
                absent.append(name)
            else:
                await self._existing(topic)
        if asked.all:
            return  # topics that the client may not see, or that were deleted meanwhile, are left out
        self._forbidden = self._may_not_be_created(absent) if self._creating else []
        self._hidden = unauthorized
        for name in absent:
            if name not in self._forbidden:
                self._absent(name)

    def add_missing(self, begun: frozenset[str]) -> None:
        """Add the missing topics; those in ``begun`` are being created."""
        for name in self.missing:
            code = KafkaErrorCode.LEADER_NOT_AVAILABLE if name in begun else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._without_partitions(code, name)
        for name in self._forbidden:
            self._error(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, name, internal=name in INTERNAL_TOPICS)
        for hidden, topic_id in self._hidden:
            self._error(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, hidden, topic_id)

    def _of_ids(self, ids: Iterable[bytes]) -> list[str]:
        found = [(topic_id, self._view.topic_of_id(topic_id)) for topic_id in ids]
        for topic_id, topic in found:
            if topic is None:
                self._error(KafkaErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        return [topic.name for _, topic in found if topic is not None]

    async def _existing(self, topic: Topic) -> None:
        encoder, name = self._encoder, topic.name
        led = encoder.led(topic)
        internal = name in INTERNAL_TOPICS
        if not led:  # created a moment ago: brokers do not know it yet
            if not self._asked.all:
                self._error(KafkaErrorCode.LEADER_NOT_AVAILABLE, name, internal=internal)
            return
        self._pieces.append(encoder.begin(0, name, topic.id, len(led), internal=internal))
        for at in range(0, len(led), SLICE):
            if at and self._view.context.table.topic_by_name.get(name) is not topic:
                raise MovedError(f"topic {name} was deleted while it was being described")
            self._pieces.append(encoder.partitions(led[at : at + SLICE]))
            await self._breathe(min(SLICE, len(led) - at))
        operations = self._permissions.operations(ResourceType.TOPIC, name) if self._asked.with_operations else None
        self._pieces.append(encoder.finish(OPERATIONS_UNKNOWN if operations is None else operations))
        self._count += 1

    def _may_not_be_created(self, absent: list[str]) -> list[str]:
        if not absent or self._permissions.may_cluster(AclOperation.CREATE):
            return []
        allowed = self._permissions.of_topics(AclOperation.CREATE, absent)
        return [name for name in absent if name not in allowed]

    def _absent(self, name: str) -> None:
        try:
            check_topic_name(name)
            self.missing.append(name)
        except TopicError:
            self._without_partitions(KafkaErrorCode.INVALID_TOPIC_EXCEPTION, name)

    def _without_partitions(self, code: KafkaErrorCode, name: str) -> None:
        operations = OPERATIONS_UNKNOWN
        if self._asked.with_operations:
            operations = self._permissions.operations(ResourceType.TOPIC, name)
        begin = self._encoder.begin(code, name, NO_TOPIC_ID, 0, internal=name in INTERNAL_TOPICS)
        self._pieces += (begin, self._encoder.finish(operations))
        self._count += 1

    def _error(
        self, code: KafkaErrorCode, name: str | None, topic_id: bytes = NO_TOPIC_ID, *, internal: bool = False
    ) -> None:
        self._pieces.append(self._encoder.error(code, name, topic_id, internal=internal))
        self._count += 1

    async def _breathe(self, work: int) -> None:
        self._work += work
        if self._work < SLICE:
            return
        self._work = 0
        before = self._shell.context
        await self._shell.world.clock.sleep(0)
        if self._shell.context is not before:
            raise MovedError("the term ended while the cluster was being described")


def cluster_operations(permissions: Permissions) -> int:
    """The operations on the cluster that the sender may do, as a bit field (KIP-430)."""
    if not permissions.may_cluster(AclOperation.DESCRIBE):
        return 0
    return permissions.operations(ResourceType.CLUSTER, CLUSTER_NAME)


class ClusterApi:
    """DescribeCluster."""

    def __init__(self, shell: ControllerShell, source: ClusterSource) -> None:
        self._shell = shell
        self._source = source

    async def handle(self, request: KafkaRequest) -> None:
        """Answer DescribeCluster; endpoints of KRaft controllers are refused (KIP-919)."""
        asked = decoded(request)
        endpoints = getattr(asked, "endpoint_type", BROKER)
        if endpoints != BROKER:
            known = endpoints == CONTROLLER
            code = KafkaErrorCode.MISMATCHED_ENDPOINT_TYPE if known else KafkaErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            if not known:
                message = f"Unsupported endpoint type {endpoints}"
            respond(request, {"error_code": code, "error_message": message})
            return
        cluster_id = await self._source.cluster_id()
        view, controller = await self._source.view(())
        nodes = view.nodes(request.context.listener)
        brokers = [{"broker_id": n.id, "host": n.host, "port": n.port, "rack": n.rack} for n in nodes.values()]
        operations = OPERATIONS_UNKNOWN
        if asked.include_cluster_authorized_operations:
            operations = cluster_operations(Permissions(self._shell.authorizer, request.context))
        respond(
            request,
            {
                "cluster_id": cluster_id or "",
                "controller_id": controller if controller in nodes else -1,
                "brokers": brokers,
                "cluster_authorized_operations": operations,
            },
        )
