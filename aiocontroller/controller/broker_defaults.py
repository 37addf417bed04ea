"""What brokers have in their files and by default, which stands in for what a topic was not given.

A broker is asked under our own identity, for ourselves, and seldom: whatever clients ask in between is answered from
what it said.  What is set for all brokers while they run stands in ZooKeeper and is read there each time.
"""

from __future__ import annotations

import asyncio
import logging

from aiocontroller.config import ConfigError
from aiocontroller.controller.broker_client import asking
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.ids import Broker
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.config_messages import decode_describe_synonyms_response, encode_describe_synonyms_request
from aiocontroller.wire.errors import FrameError
from aiocontroller.zookeeper.broker_configs import THREAD_COUNTS, BrokerConfigs, ConfigSource, read_by_all
from aiocontroller.zookeeper.topic_configs import BROKER_SYNONYMS
from aiocontroller.zookeeper.znode_json import BadZNode

log = logging.getLogger(__name__)

ALTER_CONFIG_POLICY = "alter.config.policy.class.name"
ASKED = (*BROKER_SYNONYMS, *THREAD_COUNTS, ALTER_CONFIG_POLICY, "remote.log.storage.system.enable")
ANSWER_WITHIN_S = 5.0
GOOD_FOR_S = 60.0
"""A broker's file counts from its start on, so this is how long a restart with another file goes unnoticed."""
ASK_AGAIN_S = 5.0
"""After nobody answered."""
_VERSION = 1


class BrokerDefaults:
    """``current`` from any task; several that need an answer wait for the same one."""

    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell
        self._told = BrokerConfigs()
        self._known = False
        self._good_until_s = float("-inf")
        self._asking = asyncio.Lock()

    async def current(self) -> BrokerConfigs:
        """What a broker without settings of its own has; Kafka's defaults until some broker has told its own."""
        async with self._asking:
            if self._shell.world.clock.monotonic() >= self._good_until_s:
                await self._ask()
        dynamic = await self._shell.zk.get_broker_default_config()
        if isinstance(dynamic, BadZNode):
            self._shell.report_bad_znodes([dynamic])
            dynamic = {}
        return BrokerConfigs(read_by_all(dynamic), self._told.static, self._told.defaults)

    @property
    def known(self) -> bool:
        """Some broker has told its settings, or there was none to ask."""
        return self._known

    async def _ask(self) -> None:
        brokers, _ = await self._shell.zk.get_all_brokers_in_cluster(watch=False)
        for broker in brokers:
            try:
                self._told = await self._described(broker)
                break
            except (OSError, FrameError, ConfigError) as error:
                log.warning("Broker %d does not tell its settings: %s", broker.id, error or type(error).__name__)
        else:
            self._known = self._known or not brokers
            self._good_until_s = self._shell.world.clock.monotonic() + ASK_AGAIN_S
            return
        self._known = True
        self._good_until_s = self._shell.world.clock.monotonic() + GOOD_FOR_S

    async def _described(self, broker: Broker) -> BrokerConfigs:
        async with asking(self._shell, broker, ANSWER_WITHIN_S) as client:
            versions = (await client.api_versions()).versions.get(ApiKey.DESCRIBE_CONFIGS)
            if versions is None or not versions.min <= _VERSION <= versions.max:
                return BrokerConfigs()  # it has none
            body = encode_describe_synonyms_request(_VERSION, broker.id, ASKED)
            answer = await client.request(ApiKey.DESCRIBE_CONFIGS, _VERSION, body)
        code, told = decode_describe_synonyms_response(_VERSION, answer)
        if code:
            raise ConnectionError(f"it answers DescribeConfigs with error {code}")
        return BrokerConfigs(
            static={
                s.name: s.value for s in told if s.source == ConfigSource.STATIC_BROKER_CONFIG and s.value is not None
            },
            defaults={s.name: s.value for s in told if s.source == ConfigSource.DEFAULT_CONFIG},
        )
