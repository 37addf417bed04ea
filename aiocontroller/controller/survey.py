"""What brokers say of themselves, asked before it is needed: each registration once, beside the consumer.

An election must not wait for brokers, and must not be won without their answers.  So each broker is asked as soon as
it is seen, while standing by and in office, again until it answers, and what it said is kept by its id and epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio
import anyio.abc

from aiocontroller.config import ConfigError
from aiocontroller.controller.broker_client import asking
from aiocontroller.controller.broker_settings import SettingsRefusedError, described
from aiocontroller.controller.rules_of_office import Answer, Known, settings_asked
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.ids import Broker
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError

ANSWER_WITHIN_S = 5.0
ASK_AGAIN_S = 0.2
"""A broker registers before it listens."""
MAX_ASK_AGAIN_S = 3.0
SETTLE_POLL_S = 0.02


class BrokerSurvey:
    """``changed`` is called after each answer, and when one fails for the first time."""

    def __init__(self, shell: ControllerShell, changed: Callable[[], None]) -> None:
        self._shell = shell
        self._changed = changed
        self._tasks: anyio.abc.TaskGroup | None = None
        self._registered: dict[int, Broker] = {}
        self._answers: dict[int, Answer] = {}
        self._why_none: dict[int, str] = {}

    @property
    def known(self) -> Known:
        return Known(self._answers, self._why_none)

    @property
    def unanswered(self) -> list[int]:
        """Registered brokers of which this is missing."""
        return [broker.id for broker in self._registered.values() if not self._has_answered(broker)]

    def start(self, tasks: anyio.abc.TaskGroup) -> None:
        """The tasks that ask are the group's."""
        self._tasks = tasks

    def see(self, brokers: Iterable[Broker]) -> None:
        """These are registered now; who has not been asked yet is asked."""
        before, self._registered = self._registered, {broker.id: broker for broker in brokers}
        for gone in before.keys() - self._registered.keys():
            self._why_none.pop(gone, None)
        for broker in self._registered.values():
            known = before.get(broker.id)
            if known is not None and known.epoch == broker.epoch:
                continue  # it has answered, or its task goes on asking
            self._why_none.pop(broker.id, None)
            if not self._has_answered(broker) and self._tasks is not None:
                self._tasks.start_soon(self._follow, broker.id, broker.epoch, name=f"survey of broker {broker.id}")

    async def settled(self, within_s: float) -> None:
        """Until each broker has answered, or has failed to once; at most so long."""
        clock = self._shell.world.clock
        deadline_s = clock.monotonic() + within_s
        while any(broker not in self._why_none for broker in self.unanswered) and clock.monotonic() < deadline_s:
            await clock.sleep(SETTLE_POLL_S)

    def _has_answered(self, broker: Broker) -> bool:
        answer = self._answers.get(broker.id)
        return answer is not None and answer.epoch == broker.epoch

    async def _follow(self, broker_id: int, epoch: int) -> None:
        """Ask until it answers, or is gone."""
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
                self._why_none.pop(broker_id, None)
                self._changed()
                return
            await self._shell.world.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_ASK_AGAIN_S)

    def _failed(self, broker: Broker, why: str) -> None:
        if self._registered.get(broker.id) is not broker:
            return
        first = broker.id not in self._why_none
        self._why_none[broker.id] = why
        if first:
            self._changed()

    async def _ask(self, broker: Broker) -> Answer:
        shell = self._shell
        async with asking(shell, broker, ANSWER_WITHIN_S) as client:
            offered = await client.api_versions()
            leader_and_isr = offered.versions.get(ApiKey.LEADER_AND_ISR)
            names = settings_asked(shell.own_endpoints())
            settings: dict[str, str | None] | None
            try:
                settings = await described(client, offered, broker.id, names)
            except SettingsRefusedError:
                if shell.config.authorizer_class_name is None:
                    raise
                # Brokers need no right to each other's settings, so their principal, which is ours, may have none.
                settings = None
        if settings is not None and "authorizer.class.name" not in settings:
            raise SettingsRefusedError("it does not tell its authorizer.class.name")
        return Answer(
            broker=broker.id,
            epoch=broker.epoch,
            zk_migration_ready=offered.zk_migration_ready,
            leader_and_isr=leader_and_isr,
            settings=settings,
            certificate=client.certificate,
            host=client.host,
        )
