"""The brokers' own settings, asked from a broker (DescribeConfigs): nothing has to be configured twice."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from aiocontroller.controller.broker_client import BrokerClient, asking
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import AioControllerError, KafkaErrorCode
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.messages import ApiVersions
from aiocontroller.wire.topic_messages import decode_describe_configs_response, encode_describe_broker_configs_request

log = logging.getLogger(__name__)

DEFAULTS = {"num.partitions": "1", "default.replication.factor": "1"}
"""Kafka's, for brokers that do not say."""
ANSWER_WITHIN_S = 5.0
_VERSION = 1


class SettingsRefusedError(AioControllerError):
    """A broker answers, and does not tell its settings; the message says why, with the broker as "it"."""


async def broker_settings(shell: ControllerShell, defaults: Mapping[str, str] = DEFAULTS) -> dict[str, str]:
    """The settings of the first live broker that answers; ``defaults`` where it does not say, and of which to ask."""
    for broker_id in sorted(shell.context.live):
        try:
            async with asking(shell, shell.context.brokers[broker_id], ANSWER_WITHIN_S) as client:
                found = await described(client, await client.api_versions(), broker_id, defaults)
        except (OSError, FrameError, SettingsRefusedError) as error:
            log.warning("Broker %d does not tell its settings: %s", broker_id, error)
            continue
        return {**defaults, **{name: value for name, value in found.items() if value is not None}}
    return dict(defaults)


async def described(
    client: BrokerClient, offered: ApiVersions, broker: int, names: Iterable[str]
) -> dict[str, str | None]:
    """A broker's settings of these names, as far as it has them.  OSError, FrameError, SettingsRefusedError."""
    versions = offered.versions.get(ApiKey.DESCRIBE_CONFIGS)
    if versions is None or not versions.min <= _VERSION <= versions.max:
        raise SettingsRefusedError("it does not offer DescribeConfigs")
    body = encode_describe_broker_configs_request(_VERSION, broker, names)
    code, settings = decode_describe_configs_response(
        _VERSION, await client.request(ApiKey.DESCRIBE_CONFIGS, _VERSION, body)
    )
    if code == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise SettingsRefusedError(
            "it does not let us ask (DescribeConfigs: CLUSTER_AUTHORIZATION_FAILED), so it has one"
        )
    if code:
        raise SettingsRefusedError(f"it answers DescribeConfigs with error {code}")
    return settings
