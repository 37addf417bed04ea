"""Asks brokers about themselves before the answers are needed: once per registration, concurrently with the consumer.

An election must neither wait for brokers nor be won without their answers.  So each broker is asked as soon as it is
seen, by standbys and the active controller, until it answers; the answer is kept by broker id and epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio
import anyio.abc

from aiocontroller.config import ConfigError
from aiocontroller.controller.broker_client import BrokerClient, asking
from aiocontroller.controller.controller_eligibility import BrokerAnswer, BrokerAnswers, settings_asked
from aiocontroller.controller.obeyed_settings import ASKED, reported_by
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import AioControllerError, KafkaErrorCode
from aiocontroller.core.ids import Broker
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.config_messages import (
    DescribedSetting,
    decode_describe_broker_response,
    encode_describe_broker_request,
)
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.messages import ApiVersions

ANSWER_WITHIN_S = 5.0
ASK_AGAIN_S = 0.2
"""A broker registers before its listener is open."""
MAX_ASK_AGAIN_S = 3.0
SETTLE_POLL_S = 0.02
_VERSION = 1
"""The first DescribeConfigs version that includes the sources of values."""


class SettingsRefusedError(AioControllerError):
    """A broker answers without reporting its settings; the message says why, with the broker as "it"."""


class BrokerSurvey:
    """``changed`` is called after each answer, and when a broker fails to answer for the first time."""

    def __init__(self, shell: ControllerShell, changed: Callable[[], None]) -> None:
        self._shell = shell
        self._changed = changed
        self._tasks: anyio.abc.TaskGroup | None = None
        self._registered: dict[int, Broker] = {}
        self._answers: dict[int, BrokerAnswer] = {}
        self._why_unanswered: dict[int, str] = {}

    @property
    def known(self) -> BrokerAnswers:
        """What brokers have answered, and why others have not."""
        return BrokerAnswers(self._answers, self._why_unanswered)

    @property
    def unanswered(self) -> list[int]:
        """Registered brokers that have not answered."""
        return [broker.id for broker in self._registered.values() if not self._has_answered(broker)]

    def start(self, tasks: anyio.abc.TaskGroup) -> None:
        """Run the asking tasks in this group."""
        self._tasks = tasks

    def see(self, brokers: Iterable[Broker]) -> None:
        """Take in the registered brokers; start asking the new ones."""
        before, self._registered = self._registered, {broker.id: broker for broker in brokers}
        for gone in before.keys() - self._registered.keys():
            self._why_unanswered.pop(gone, None)
        for broker in self._registered.values():
            known = before.get(broker.id)
            if known is not None and known.epoch == broker.epoch:
                continue  # it has answered, or its task is still asking
            self._why_unanswered.pop(broker.id, None)
            if not self._has_answered(broker) and self._tasks is not None:
                self._tasks.start_soon(self._follow, broker.id, broker.epoch, name=f"survey of broker {broker.id}")

    async def settled(self, within_s: float) -> None:
        """Wait, at most ``within_s``, until each broker has answered or failed once."""
        clock = self._shell.world.clock
        deadline_s = clock.monotonic() + within_s
        while any(broker not in self._why_unanswered for broker in self.unanswered) and clock.monotonic() < deadline_s:
            await clock.sleep(SETTLE_POLL_S)

    def _has_answered(self, broker: Broker) -> bool:
        answer = self._answers.get(broker.id)
        return answer is not None and answer.epoch == broker.epoch

    async def _follow(self, broker_id: int, epoch: int) -> None:
        """Ask the broker until it answers or is gone."""
        pause_s = ASK_AGAIN_S
        while (broker := self._registered.get(broker_id)) is not None and broker.epoch == epoch:
            try:
                answer = await self._ask(broker)
            except SettingsRefusedError as error:
                self._failed(broker, str(error))
            except (OSError, FrameError, ConfigError) as error:
                self._failed(broker, f"it does not answer: {error or type(error).__name__}")
            else:
                self._answers[broker_id] = answer
                self._why_unanswered.pop(broker_id, None)
                self._changed()
                return
            await self._shell.world.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_ASK_AGAIN_S)

    def _failed(self, broker: Broker, why: str) -> None:
        known = self._registered.get(broker.id)
        if known is None or known.epoch != broker.epoch:
            return
        first = broker.id not in self._why_unanswered
        self._why_unanswered[broker.id] = why
        if first:
            self._changed()

    async def _ask(self, broker: Broker) -> BrokerAnswer:
        shell = self._shell
        async with asking(shell, broker, ANSWER_WITHIN_S) as client:
            offered = await client.api_versions()
            leader_and_isr = offered.versions.get(ApiKey.LEADER_AND_ISR)
            names = dict.fromkeys((*settings_asked(shell.own_endpoints()), *ASKED))
            described: list[DescribedSetting] | None
            try:
                described = await describe_broker(client, offered, broker.id, names)
            except SettingsRefusedError:
                if shell.config.authorizer_class_name is None:
                    raise
                # Brokers need no right to describe each other, so their principal, which is also ours, may not have it.
                described = None
        settings = None if described is None else {setting.name: setting.value for setting in described}
        if settings is not None and "authorizer.class.name" not in settings:
            raise SettingsRefusedError("it does not report its authorizer.class.name")
        return BrokerAnswer(
            broker=broker.id,
            epoch=broker.epoch,
            leader_and_isr=leader_and_isr,
            settings=settings,
            reported=None if described is None else reported_by(each for each in described if each.name in _OBEYED),
            certificate=client.certificate,
            host=client.host,
        )


_OBEYED = frozenset(ASKED)


async def describe_broker(
    client: BrokerClient, offered: ApiVersions, broker: int, names: Iterable[str]
) -> list[DescribedSetting]:
    """A broker's settings of these names, where it has them.  Raises OSError, FrameError, SettingsRefusedError."""
    versions = offered.versions.get(ApiKey.DESCRIBE_CONFIGS)
    if versions is None or not versions.min <= _VERSION <= versions.max:
        raise SettingsRefusedError("it does not offer DescribeConfigs")
    body = encode_describe_broker_request(_VERSION, broker, names)
    code, settings = decode_describe_broker_response(
        _VERSION, await client.request(ApiKey.DESCRIBE_CONFIGS, _VERSION, body)
    )
    if code == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise SettingsRefusedError("it refuses DescribeConfigs (CLUSTER_AUTHORIZATION_FAILED), so it has an authorizer")
    if code:
        raise SettingsRefusedError(f"it answers DescribeConfigs with error {code}")
    return settings
