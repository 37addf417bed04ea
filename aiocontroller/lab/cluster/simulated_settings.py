"""A simulated broker's answers to DescribeConfigs: Kafka's defaults for the settings that controllers ask for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.cluster.generations import Generation
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.primitives import Buffer

_BROKER = 4
"""Kafka's ``ConfigResource.Type``."""
PROTOCOL = "inter.broker.protocol.version"
_DEFAULTS: Mapping[str, str | None] = {
    "authorizer.class.name": "",
    "control.plane.listener.name": None,
    "default.replication.factor": "1",
    "inter.broker.listener.name": None,
    "num.partitions": "1",
    "security.inter.broker.protocol": "PLAINTEXT",
}
_OF_POLICY: Mapping[str, str | None] = {
    "alter.config.policy.class.name": None,
    "auto.create.topics.enable": "true",
    "auto.leader.rebalance.enable": "true",
    "create.topic.policy.class.name": None,
    "delete.topic.enable": "true",
    "leader.imbalance.check.interval.seconds": "300",
    "leader.imbalance.per.broker.percentage": "10",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
}
"""Settings that a controller obeys, as it does the protocol, unless it keeps its own."""


class Source(IntEnum):
    """Kafka's ``ConfigSource``; version 0 of DescribeConfigs only has whether the value is the default."""

    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Settings:
    """The settings of one broker, with their defaults.

    ``protocol`` is ``inter.broker.protocol.version`` as it was set, or empty; ``others`` are further settings.
    ``policy``: whether answers also have the settings that a controller obeys.
    """

    def __init__(
        self,
        generation: Generation,
        protocol: str = "",
        others: Mapping[str, str] = MappingProxyType({}),
        *,
        policy: bool = True,
    ) -> None:
        self._defaults = {
            **_DEFAULTS,
            **({PROTOCOL: generation.protocol, **_OF_POLICY} if policy else {}),
            "principal.builder.class": generation.principal_builder,
            "ssl.principal.mapping.rules": generation.principal_mapping_rules,
        }
        self._set = {**({PROTOCOL: protocol} if protocol else {}), **others}

    def encode_describe_configs_response(self, version: int, body: Buffer, broker_id: int) -> bytes:
        """Describe this broker's own settings; INVALID_REQUEST for any other resource."""
        results = []
        for asked in cold.decode_request(ApiKey.DESCRIBE_CONFIGS, version, body).resources:
            known = {**self._defaults, **self._set}
            names = known if asked.configuration_keys is None else asked.configuration_keys
            own = (asked.resource_type, asked.resource_name) == (_BROKER, str(broker_id))
            results.append(
                {
                    "error_code": 0 if own else KafkaErrorCode.INVALID_REQUEST,
                    "resource_type": asked.resource_type,
                    "resource_name": asked.resource_name,
                    "configs": [self._described(name) for name in names if own and name in known],
                }
            )
        message = cold.response(ApiKey.DESCRIBE_CONFIGS, version, results=results)
        return cold.encode_response(ApiKey.DESCRIBE_CONFIGS, version, message)

    def _described(self, name: str) -> dict[str, object]:
        if name in self._set:
            return {"name": name, "value": self._set[name], "config_source": Source.STATIC_BROKER_CONFIG}
        return {
            "name": name,
            "value": self._defaults[name],
            "config_source": Source.DEFAULT_CONFIG,
            "is_default": True,
        }
