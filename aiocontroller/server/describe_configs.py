"""DescribeConfigs: configs of topics and of all brokers, as any broker answers them (Kafka's ``ConfigHelper``).

A config that a topic does not set has the value of a broker without dynamic configs of its own.  This node has no
settings itself, and like any broker it does not describe other nodes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from aiocontroller.controller.obeying import broker_configs
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.request_content import TopicSetting
from aiocontroller.server.outcomes import AdminOutcome, check_size, refused
from aiocontroller.server.request import KafkaRequest
from aiocontroller.server.turns import in_turns
from aiocontroller.wire.config_messages import (
    ConfigEntry,
    DescribeConfigsQuestion,
    ResourceAsked,
    ResourceDescribed,
    encode_config_entry,
    encode_describe_configs_response,
    encode_described,
)
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.broker_configs import (
    DYNAMIC_CONFIGS,
    QUOTAS,
    BrokerConfigs,
    ConfigSource,
    type_of,
)
from aiocontroller.zookeeper.config_def import ConfigType, text_of
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.topic_configs import TopicConfigs, topic_configs_of, topic_default
from aiocontroller.zookeeper.topic_rules import TopicError, check_topic_name

log = logging.getLogger(__name__)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
"""Kafka's ``ConfigResource.Type``."""
MAX_QUESTION_BYTES = 2 << 20
MAX_ANSWER_BYTES = 100 << 20
"""Limit for requests that name many topics."""
_E = KafkaErrorCode
_SENSITIVE = (ConfigType.UNKNOWN, ConfigType.PASSWORD)


def invalid(message: str) -> TopicError:
    """The error for a request that makes no sense by itself."""
    return TopicError(_E.INVALID_REQUEST, message)


def node_id(text: str) -> int:
    """Parse a node id; INVALID_REQUEST if it is not a number."""
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text):
        raise invalid(f"Node id must be an integer, found {text[:100]!r}")
    return int(text)


class DescribeConfigs:
    """Serves DescribeConfigs, in slices."""

    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell

    async def handle(self, request: KafkaRequest) -> None:
        """Answer a request in slices; ZooKeeper's errors become codes."""
        check_size(request, MAX_QUESTION_BYTES)
        version = request.context.version
        question = DescribeConfigsQuestion(version, request.body)
        asked = [each async for each in in_turns(question)]
        unknown = next((r for r in asked if r.type not in (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS)), None)
        if unknown is not None:
            results = _all_refused(asked, _E.INVALID_REQUEST, f"Unexpected resource type {unknown.type}")
        else:
            try:
                results = await self._described(request, asked, with_synonyms=question.include_synonyms)
            except exc.ZKError as error:
                log.error("Cannot read configurations from ZooKeeper", exc_info=error)
                results = _all_refused(asked, _E.UNKNOWN_SERVER_ERROR)
        if sum(len(entry) for result in results for entry in result.entries) > MAX_ANSWER_BYTES:
            found = f"An answer about {len(results)} resources would have more than {MAX_ANSWER_BYTES} bytes"
            results = _all_refused(asked, _E.INVALID_REQUEST, found)
        encoded = [encode_described(version, each) async for each in in_turns(results)]
        request.respond(encode_describe_configs_response(version, encoded))

    async def _described(
        self, request: KafkaRequest, asked: list[ResourceAsked], *, with_synonyms: bool
    ) -> list[ResourceDescribed]:
        """Describe the resources that the client may see, then refuse the others."""
        context, authorizer = request.context, self._shell.authorizer
        allowed: list[ResourceAsked] = []
        forbidden: list[ResourceAsked] = []
        async for each in in_turns(asked):
            resource = (ResourceType.TOPIC, each.name) if each.type == TOPIC else (ResourceType.CLUSTER, CLUSTER_NAME)
            may = authorizer.authorize(context.principal, context.host, AclOperation.DESCRIBE_CONFIGS, *resource)
            (allowed if may else forbidden).append(each)
        of_brokers = any(each.type == TOPIC or (each.type == BROKER and not each.name) for each in allowed)
        brokers = await broker_configs(self._shell) if of_brokers else BrokerConfigs()
        entries = _Entries(context.version, brokers, with_synonyms=with_synonyms)
        topics = await self._topics([each.name for each in allowed if each.type == TOPIC])
        described = [self._one(each, topics, entries) async for each in in_turns(allowed)]
        async for each in in_turns(forbidden):
            code = _E.TOPIC_AUTHORIZATION_FAILED if each.type == TOPIC else _E.CLUSTER_AUTHORIZATION_FAILED
            described.append(_refusal(each, AdminOutcome(code, "Not authorized to describe these configurations.")))
        return described

    async def _topics(self, names: list[str]) -> dict[str, dict[str, str] | TopicError]:
        """Each topic's own configs, without topics that do not exist."""
        found: dict[str, dict[str, str] | TopicError] = {}
        legal = []
        async for name in in_turns(dict.fromkeys(names)):
            try:
                check_topic_name(name)
                legal.append(name)
            except TopicError as error:
                found[name] = error
        if not legal:
            return found
        exists = await self._shell.zk.client.exists_many([paths.topic(name) for name in legal])
        present = [name for name, code in zip(legal, exists.code, strict=True) if code == 0]
        configs = await self._shell.zk.get_topic_configs(present)
        unreadable = {bad.path: bad for bad in configs.bad}
        for name in present:
            bad = unreadable.get(paths.config_entity("topics", name))
            found[name] = configs[name] if bad is None else TopicError(_E.INVALID_CONFIG, str(bad))
        return found

    def _one(
        self, asked: ResourceAsked, topics: Mapping[str, dict[str, str] | TopicError], entries: _Entries
    ) -> ResourceDescribed:
        try:
            if asked.type == TOPIC:
                configs = topics.get(asked.name)
                if configs is None:
                    return _refusal(asked, AdminOutcome(_E.UNKNOWN_TOPIC_OR_PARTITION, ""))
                if isinstance(configs, TopicError):
                    raise configs
                return ResourceDescribed(asked.type, asked.name, entries=entries.of_topic(configs, asked.keys))
            if asked.type == CLIENT_METRICS:
                raise invalid("Configurations of client metrics are only supported on KRaft clusters")
            if not asked.name and asked.type == BROKER:
                return ResourceDescribed(asked.type, asked.name, entries=entries.of_all_brokers(asked.keys))
            if not asked.name or node_id(asked.name) != self._shell.id:
                raise invalid(f"Unexpected broker id, expected {self._shell.id}, found {asked.name[:100]!r}")
            return ResourceDescribed(asked.type, asked.name)  # this node has no settings, and no loggers to set
        except TopicError as error:
            return _refusal(asked, refused(error))


def _all_refused(
    asked: Iterable[ResourceAsked], code: KafkaErrorCode, message: str | None = None
) -> list[ResourceDescribed]:
    outcome = AdminOutcome(code, message)
    return [_refusal(each, outcome) for each in asked]


def _refusal(asked: ResourceAsked, outcome: AdminOutcome) -> ResourceDescribed:
    return ResourceDescribed(asked.type, asked.name, outcome.code, outcome.message)


class _Entries:
    """The entries of one answer; default values are encoded once for all topics."""

    def __init__(self, version: int, brokers: BrokerConfigs, *, with_synonyms: bool) -> None:
        self._version = version
        self._brokers = brokers
        self._with_synonyms = with_synonyms
        self.known = topic_configs_of(brokers.release)
        self._synonyms = {
            name: brokers.synonyms(key.synonyms[0]) if key.synonyms else [] for name, key in self.known.keys.items()
        }
        self._defaults: dict[str, bytes] = {}

    def of_topic(self, configs: Mapping[str, str], keys: frozenset[str] | None) -> list[bytes]:
        return [
            self._encoded(self.given(name, configs[name])) if name in configs else self._default(name)
            for name in topic_settings(configs, self.known)
            if keys is None or name in keys
        ]

    def _default(self, name: str) -> bytes:
        known = self._defaults.get(name)
        if known is None:
            known = self._defaults[name] = self._encoded(self.default(name))
        return known

    def default(self, name: str) -> ConfigEntry:
        synonyms = self._synonyms[name]
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        entry = ConfigEntry(name, topic_default(name, self._brokers), source, self.known.keys[name].type)
        return entry._replace(synonyms=synonyms)

    def given(self, name: str, value: str) -> ConfigEntry:
        """A config set on a topic; an unknown one may be a password and is treated as sensitive."""
        key = self.known.keys.get(name)
        kind = ConfigType.UNKNOWN if key is None else key.type
        shown = None if key is None else text_of(kind, value)
        synonyms = [(name, shown, ConfigSource.TOPIC_CONFIG), *self._synonyms.get(name, [])]
        return ConfigEntry(name, shown, ConfigSource.TOPIC_CONFIG, kind, sensitive=key is None, synonyms=synonyms)

    def of_all_brokers(self, keys: frozenset[str] | None) -> list[bytes]:
        return [
            self._encoded(entry)
            for entry in _dynamic_defaults(self._brokers.dynamic_default)
            if keys is None or entry.name in keys
        ]

    def _encoded(self, entry: ConfigEntry) -> bytes:
        return encode_config_entry(self._version, entry if self._with_synonyms else entry._replace(synonyms=()))


def topic_settings(configs: Mapping[str, str], known: TopicConfigs) -> list[str]:
    """The names of configs described for a topic that has set these."""
    return [*known.described, *(name for name in sorted(configs) if name not in known.described)]


Describe = Callable[[Mapping[str, str]], list[TopicSetting]]


def topic_describer(brokers: BrokerConfigs) -> Describe:
    """Configs as in CreateTopics answers: the topic's own, and the brokers' values for the rest."""
    entries = _Entries(0, brokers, with_synonyms=False)
    defaults = {name: _setting(entries.default(name)) for name in entries.known.described}

    def describe(configs: Mapping[str, str]) -> list[TopicSetting]:
        return [
            _setting(entries.given(name, configs[name])) if name in configs else defaults[name]
            for name in topic_settings(configs, entries.known)
        ]

    return describe


def _setting(entry: ConfigEntry) -> TopicSetting:
    return TopicSetting(entry.name, entry.value, int(entry.source), entry.sensitive)


def _dynamic_defaults(configs: Mapping[str, str]) -> Iterator[ConfigEntry]:
    only_these = BrokerConfigs(dynamic_default=configs)
    for name in sorted(configs):
        kind = type_of(name)
        sensitive = kind in _SENSITIVE
        yield ConfigEntry(
            name,
            None if sensitive else configs[name],
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            kind,
            read_only=name not in DYNAMIC_CONFIGS or name in QUOTAS,
            sensitive=sensitive,
            synonyms=[s._replace(value=None) if sensitive else s for s in only_these.synonyms(name)],
        )
