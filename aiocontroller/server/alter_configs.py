"""AlterConfigs and IncrementalAlterConfigs (Kafka's ``ConfigAdminManager`` and ``ZkAdminManager``).

Each resource of a request is changed or refused separately.  As at a broker, changes of resources other than topics are
validated before they are authorized.  Configs are written as Kafka's tools write them; brokers and this controller
learn of them by the change notification.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from aiocontroller.controller.obeyed_settings import ALTER_CONFIG_POLICY
from aiocontroller.controller.obeying import broker_configs
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.net.complaints import shortened
from aiocontroller.server.apis import decoded, respond
from aiocontroller.server.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, invalid, node_id
from aiocontroller.server.outcomes import MAX_BODY_BYTES, AdminOutcome, outcome_of
from aiocontroller.server.request import KafkaRequest, RequestContext
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.broker_configs import (
    BrokerConfigs,
    check_default_configs,
    is_password,
    read_by_all,
    type_of,
)
from aiocontroller.zookeeper.config_def import NEWEST_RELEASE, ConfigType, KafkaRelease
from aiocontroller.zookeeper.topic_configs import check_topic_configs, topic_configs_of
from aiocontroller.zookeeper.topic_rules import TopicError, is_topic_name

log = logging.getLogger(__name__)

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations on a config."""
NO_SETTINGS = "this node is the controller and no broker: it takes no dynamic settings"
_E = KafkaErrorCode


class ConfigOp(NamedTuple):
    """One change of a setting; ``operation`` is that of IncrementalAlterConfigs."""

    name: str
    value: str | None
    operation: int = SET


class Alteration(NamedTuple):
    """Changes of one resource.  Incremental ones change the existing configs, others replace them."""

    type: int
    name: str
    ops: Sequence[ConfigOp]
    incremental: bool


class AlterConfigs:
    """Serves AlterConfigs and IncrementalAlterConfigs."""

    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell

    async def replace(self, request: KafkaRequest) -> None:
        """AlterConfigs."""
        await self._alter(request, incremental=False)

    async def change(self, request: KafkaRequest) -> None:
        """IncrementalAlterConfigs."""
        await self._alter(request, incremental=True)

    async def _alter(self, request: KafkaRequest, *, incremental: bool) -> None:
        message = decoded(request, MAX_BODY_BYTES)
        alterations = [_alteration(each, incremental=incremental) for each in message.resources]
        times = Counter((each.type, each.name) for each in alterations)
        responses = []
        for each in alterations:
            if times[each.type, each.name] > 1:
                outcome = AdminOutcome(_E.INVALID_REQUEST, "Each resource must appear at most once.")
            else:
                outcome = await outcome_of(self._one(request.context, each, validate_only=message.validate_only))
            responses.append(
                {
                    "error_code": outcome.code,
                    "error_message": outcome.message,
                    "resource_type": each.type,
                    "resource_name": each.name,
                }
            )
        respond(request, {"responses": responses})

    async def _one(self, context: RequestContext, alteration: Alteration, *, validate_only: bool) -> None:
        _check_ops(alteration)
        if alteration.type == TOPIC:
            self._authorize(context, ResourceType.TOPIC, alteration.name)
            await self._alter_topic(alteration, validate_only=validate_only)
        elif alteration.type == BROKER and not alteration.name:
            await self._alter_all_brokers(context, alteration, validate_only=validate_only)
        elif alteration.type == BROKER:
            self._check_own(alteration)
            self._authorize(context, ResourceType.CLUSTER, CLUSTER_NAME)
            if any(op.operation != DELETE for op in alteration.ops):
                raise invalid(NO_SETTINGS)
        elif alteration.type == BROKER_LOGGER and alteration.incremental:
            self._authorize(context, ResourceType.CLUSTER, CLUSTER_NAME)
            self._check_own(alteration)
            _check_loggers(alteration)
        elif alteration.type == CLIENT_METRICS:
            raise invalid("Configurations of client metrics are only supported on KRaft clusters")
        else:
            raise invalid(f"Unknown resource type {alteration.type}")

    def _authorize(self, context: RequestContext, resource: ResourceType, name: str) -> None:
        authorizer = self._shell.authorizer
        if authorizer.authorize(context.principal, context.host, AclOperation.ALTER_CONFIGS, resource, name):
            return
        topic = resource is ResourceType.TOPIC
        code = _E.TOPIC_AUTHORIZATION_FAILED if topic else _E.CLUSTER_AUTHORIZATION_FAILED
        raise TopicError(code, "")  # Kafka sends no message either

    def _check_own(self, alteration: Alteration) -> None:
        """Accept only deletions for this node, which has no settings, and refuse other nodes' ids.

        kafka-reassign-partitions --verify removes throttles from every node in the metadata, so from this one too.
        """
        if node_id(alteration.name) != self._shell.id:
            raise invalid(f"Unexpected broker id, expected {self._shell.id}, found {alteration.name[:100]!r}")

    # -- topics ----------------------------------------------------------------------------------------------------

    async def _alter_topic(self, alteration: Alteration, *, validate_only: bool) -> None:
        topic = alteration.name
        if not topic:
            raise invalid("Default topic resources are not allowed.")
        if alteration.incremental and not paths.is_path(paths.config_entity("topics", topic)):
            # A broker reads the settings first, and reports ZooKeeper's refusal of the path as a bad value.
            release = (await broker_configs(self._shell)).release
            raise TopicError(topic_configs_of(release).bad_value, f"No znode can have the name {topic[:300]!r}")
        zk = self._shell.zk
        if not is_topic_name(topic) or (await zk.client.exists_many([paths.topic(topic)])).code[0]:
            raise TopicError(_E.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {topic!r} does not exist.")
        brokers = await self._brokers()

        def change(configs: dict[str, str]) -> dict[str, str]:
            changed = altered(configs, alteration, brokers.release)
            check_topic_configs(topic, changed, brokers, topic_configs_of(brokers.release).bad_value)
            return changed

        admin = AdminZkClient(zk)
        if validate_only:
            change(await admin.get_entity_configs("topics", topic) if alteration.incremental else {})
        else:
            await admin.update_entity_configs("topics", topic, change)
            log.info("Configuration of topic %s altered: %s", topic, names_for_the_log(alteration.ops))

    async def _brokers(self) -> BrokerConfigs:
        """The brokers' settings; TopicError if no broker has reported its alter config policy, or if it has one."""
        brokers = await broker_configs(self._shell)
        if not self._shell.settings.known:
            raise TopicError(_E.REQUEST_TIMED_OUT, f"No broker reports its settings, including {ALTER_CONFIG_POLICY}")
        policy = brokers.effective((ALTER_CONFIG_POLICY,))
        if policy is not None and policy[1]:
            raise TopicError(
                _E.POLICY_VIOLATION, f"{policy[1]} decides on alterations, and runs in brokers only: ask one of them"
            )
        return brokers

    # -- all brokers -----------------------------------------------------------------------------------------------

    async def _alter_all_brokers(self, context: RequestContext, alteration: Alteration, *, validate_only: bool) -> None:
        """Change the cluster-wide broker configs.  As at a broker, INVALID_REQUEST comes before the authorization."""
        before = await broker_configs(self._shell)

        def change(configs: dict[str, str]) -> dict[str, str]:
            changed = altered(read_by_all(configs), alteration, before.release)
            check_default_configs(changed, before)
            passwords = sorted(filter(is_password, changed))
            if passwords:
                raise TopicError(_E.INVALID_CONFIG, f"{passwords[0]} is a password, which only one broker can be given")
            return changed

        admin = AdminZkClient(self._shell.zk)
        change(await admin.get_entity_configs("brokers", paths.DEFAULT_ENTITY))
        self._authorize(context, ResourceType.CLUSTER, CLUSTER_NAME)
        await self._brokers()
        if not validate_only:
            await admin.update_entity_configs("brokers", paths.DEFAULT_ENTITY, change)
            log.info("Configuration of all brokers altered: %s", names_for_the_log(alteration.ops))


def names_for_the_log(ops: Sequence[ConfigOp]) -> str:
    """Names of configs, shortened: one request may name tens of thousands."""
    return shortened(", ".join(op.name for op in ops))


def _alteration(resource: Any, *, incremental: bool) -> Alteration:
    ops = [ConfigOp(c.name, c.value, c.config_operation if incremental else SET) for c in resource.configs]
    return Alteration(resource.resource_type, resource.resource_name, ops, incremental)


def _check_loggers(alteration: Alteration) -> None:
    for op in alteration.ops:
        if op.operation in (APPEND, SUBTRACT):
            raise invalid("A level can be set and deleted, nothing else")
        raise TopicError(_E.INVALID_CONFIG, f"This node has no logger {op.name[:300]!r} that can be set")


def _check_ops(alteration: Alteration) -> None:
    names = [op.name for op in alteration.ops]
    if len(set(names)) != len(names):
        raise invalid("Error due to duplicate config keys")
    null = [op.name for op in alteration.ops if op.value is None and op.operation != DELETE]
    if null:
        raise invalid(f"Null value not supported for: {', '.join(null)}")
    unknown = next((op.operation for op in alteration.ops if op.operation not in (SET, DELETE, APPEND, SUBTRACT)), None)
    if unknown is not None:
        raise invalid(f"Unknown operation {unknown}")


def altered(
    configs: Mapping[str, str], alteration: Alteration, release: KafkaRelease = NEWEST_RELEASE
) -> dict[str, str]:
    """The configs after the alteration; TopicError when a value to be appended to or subtracted from is not a list."""
    changed = dict(configs) if alteration.incremental else {}
    for name, value, operation in alteration.ops:
        if operation == DELETE:
            changed.pop(name, None)
        elif operation == SET:
            changed[name] = value or ""
        else:
            elements = [
                each for each in changed.get(name, _list_default(alteration.type, name, release)).split(",") if each
            ]
            given = (value or "").rstrip(",").split(",")  # as Java splits
            if operation == APPEND:
                elements += [each for each in given if each not in elements]
            else:
                for each in given:
                    if each in elements:
                        elements.remove(each)
            changed[name] = ",".join(elements)
    return changed


_LIST_DEFAULTS = {"log.cleanup.policy": "delete"}


def _list_default(resource: int, name: str, release: KafkaRelease) -> str:
    """Default value of a list config."""
    known = topic_configs_of(release)
    key = known.keys.get(name) if resource == TOPIC else None
    kind = key.type if key is not None else type_of(name) if resource == BROKER else ConfigType.UNKNOWN
    if kind is ConfigType.UNKNOWN:
        raise TopicError(_E.INVALID_CONFIG, f"Unknown config name: {name[:300]!r}")
    if kind is not ConfigType.LIST:
        raise TopicError(known.bad_value, f"{name} is no list: nothing can be appended to it or subtracted from it")
    return (key.default or "") if key is not None else _LIST_DEFAULTS.get(name, "")
