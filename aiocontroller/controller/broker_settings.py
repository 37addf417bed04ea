"""The brokers' own settings, asked from a broker (DescribeConfigs): nothing has to be configured twice."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from aiocontroller.controller.broker_client import asking
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.ids import Broker
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.topic_messages import decode_describe_configs_response, encode_describe_broker_configs_request

log = logging.getLogger(__name__)

DEFAULTS = {"num.partitions": "1", "default.replication.factor": "1"}
"""Kafka's, for brokers that do not say."""
ANSWER_WITHIN_S = 5.0
_VERSION = 1


async def broker_settings(shell: ControllerShell) -> dict[str, str]:
    """The settings of the first live broker that answers; ``DEFAULTS`` where it does not say."""
    for broker_id in sorted(shell.context.live):
        try:
            found = await described(shell, shell.context.brokers[broker_id], DEFAULTS)
        except (OSError, FrameError) as error:
            log.warning("Broker %d does not tell its settings: %s", broker_id, error)
            continue
        return DEFAULTS | {name: value for name, value in found.items() if value is not None}
    return dict(DEFAULTS)


async def described(shell: ControllerShell, broker: Broker, names: Iterable[str]) -> dict[str, str | None]:
    """A broker's settings of these names; nothing from one that does not tell any.  OSError, FrameError."""
    async with asking(shell, broker, ANSWER_WITHIN_S) as client:
        versions = (await client.api_versions()).versions.get(ApiKey.DESCRIBE_CONFIGS)
        if versions is None or not versions.min <= _VERSION <= versions.max:
            return {}
        body = encode_describe_broker_configs_request(_VERSION, broker.id, names)
        return decode_describe_configs_response(_VERSION, await client.request(ApiKey.DESCRIBE_CONFIGS, _VERSION, body))
