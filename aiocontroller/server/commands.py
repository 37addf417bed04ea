"""Operators' commands to a running controller, by HTTP: take over the role, release it, roll a migration back,
recover partitions.

A command needs the token in the data folder's ``controller.json``: without a data folder there are no commands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from aiocontroller.controller.kafka_controller import KafkaController
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import AioControllerError, BadInputError, KafkaErrorCode
from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.core.events import (
    RecoverPartitions,
    Release,
    RollBack,
    TakeOver,
)
from aiocontroller.core.request_content import Released
from aiocontroller.core.unreadable_json import UNREADABLE_JSON
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import encode_controller

log = logging.getLogger(__name__)

LOST_AGAIN = (
    "it lost the role, or its ZooKeeper session, before it was in charge: see 'aiocontroller status', try again"
)

Command = Callable[[bytes], Awaitable[Mapping[str, Any]]]
"""Takes JSON and returns an object; AioControllerError says why the command failed."""


class CommandRefusedError(AioControllerError):
    """The command is not possible now; the message has one line per reason, and ``details`` are for programs."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


class TakeOverAsked(msgspec.Struct, frozen=True):
    """Body of ``POST /takeover``."""

    keep_ours: tuple[str, ...] = ()
    """Settings for which our values override the brokers'; ``all``: every setting."""


class RollBackAsked(msgspec.Struct, frozen=True):
    """Body of ``POST /rollback``."""

    dry_run: bool = False
    """Say what would be written, and write nothing."""
    force: bool = False
    """Roll back even if brokers that have replicas are not registered."""


class ReleaseAsked(msgspec.Struct, frozen=True):
    """Body of ``POST /release``."""

    exit: bool = False
    """End the process afterwards."""
    linger_ms: int | None = None
    """How long to keep answering before the end; None: ``aiocontroller.release.linger.ms``."""
    to_kraft: bool = False
    """Keep the role until a KRaft controller claims it, and do not stand for it afterwards."""


class RecoverAsked(msgspec.Struct, frozen=True):
    """Body of ``POST /recover``, with the fields of ``RecoverPartitions``."""

    topic: str
    partition: int | None = None
    leader: int | None = None
    dry_run: bool = False


class Commands:
    """The commands, by HTTP; ``stop`` ends the process."""

    def __init__(self, shell: ControllerShell, controller: KafkaController, stop: Callable[[], object]) -> None:
        self._shell = shell
        self._controller = controller
        self._stop = stop

    def by_name(self) -> dict[str, Command]:
        """Name in the URL -> command."""
        return {
            "takeover": self.take_over,
            "release": self.release,
            "rollback": self.roll_back,
            "recover": self.recover,
        }

    def settings(self) -> Mapping[str, Any]:
        """The content of ``GET /settings``."""
        settings = self._shell.settings
        return {"id": self._shell.id, **settings.summary(), "settings": [each.as_json() for each in settings.settings]}

    async def take_over(self, body: bytes) -> Mapping[str, Any]:
        """Take the role from a broker; CommandRefusedError with the guard's reasons, BadInputError for a bad body."""
        try:
            asked = msgspec.json.decode(body or b"{}", type=TakeOverAsked)
        except UNREADABLE_JSON as error:
            raise BadInputError(f"takeover: found {error}, expected keep_ours") from None
        settings = self._shell.settings
        settings.check_names(asked.keep_ours)
        before = self._controller.election.holder
        was_active = self._controller.election.active
        reasons = await self._ask(lambda reply: TakeOver(keep_ours=asked.keep_ours, reply=reply))
        if reasons == KafkaErrorCode.UNKNOWN_SERVER_ERROR:
            raise CommandRefusedError("it failed; the log names the reason")
        if isinstance(reasons, KafkaErrorCode):
            raise CommandRefusedError(LOST_AGAIN)
        if reasons:
            contradicting = [setting.as_json() for setting in settings.contradicting]
            raise CommandRefusedError("\n".join(reasons), settings=contradicting)
        return {
            "id": self._shell.id,
            "epoch": self._shell.context.epoch,
            "was_active": was_active,
            "before": None if before is None else before.controller_id,
            "settings": [setting.as_json() for setting in settings.settings if setting.matters],
            "not_enforced": settings.not_enforced,
            "unfit": [str(each) for each in self._controller.election.unfit()],
        }

    async def roll_back(self, body: bytes) -> Mapping[str, Any]:
        """Roll a migration to KRaft back; CommandRefusedError with the reasons, BadInputError for a bad body."""
        try:
            asked = msgspec.json.decode(body or b"{}", type=RollBackAsked)
        except UNREADABLE_JSON as error:
            raise BadInputError(f"rollback: found {error}, expected dry_run and force") from None
        found = await self._ask(lambda reply: RollBack(dry_run=asked.dry_run, force=asked.force, reply=reply))
        if found == KafkaErrorCode.UNKNOWN_SERVER_ERROR:
            raise CommandRefusedError("it failed; the log names the reason")
        if isinstance(found, KafkaErrorCode):
            raise CommandRefusedError(LOST_AGAIN)
        if isinstance(found, str):
            raise CommandRefusedError(found)
        plan, reasons = found
        if reasons:
            raise CommandRefusedError("\n".join(reasons))
        now_ms, address = self._shell.world.clock.wall_time_us() // 1000, self._controller.election.own_address()
        created = encode_controller(self._shell.id, now_ms, address=address)
        return {
            "id": self._shell.id,
            "dry_run": asked.dry_run,
            **plan._asdict(),
            "created": (paths.CONTROLLER, created.decode()),
        }

    async def release(self, body: bytes) -> Mapping[str, Any]:
        """Give the role back; ``exit`` ends the process after its linger time.  BadInputError for an unknown body."""
        try:
            asked = msgspec.json.decode(body or b"{}", type=ReleaseAsked)
        except UNREADABLE_JSON as error:
            raise BadInputError(f"release: found {error}, expected exit, linger_ms and to_kraft") from None
        released = await self._ask(lambda reply: Release(to_kraft=asked.to_kraft, reply=reply))
        if isinstance(released, KafkaErrorCode):
            released = Released(0)  # the session ended: the role is gone with it
        linger_ms = self._shell.config.aiocontroller_release_linger_ms if asked.linger_ms is None else asked.linger_ms
        if asked.exit:
            log.info("Answering NOT_CONTROLLER for %d ms, then ending", linger_ms)
            self._shell.world.clock.call_later(linger_ms / 1000, self._stop)
        return {
            "id": self._shell.id,
            "epoch": released.epoch,
            "active": self._controller.election.active,
            "left": list(released.left),
            "owed": list(released.owed),
            "unfit": list(released.unfit),
            "ends_in_ms": linger_ms if asked.exit else None,
        }

    async def recover(self, body: bytes) -> Mapping[str, Any]:
        """Elect leaders by what their logs hold; CommandRefusedError if the topic has no such partition, or if this is
        not the controller; BadInputError for a bad body."""
        try:
            asked = msgspec.json.decode(body, type=RecoverAsked)
        except UNREADABLE_JSON as error:
            raise BadInputError(f"recover: found {error}, expected topic, partition, leader and dry_run") from None
        found = await self._ask(
            lambda reply: RecoverPartitions(
                reply=reply,
                topic=asked.topic,
                partition=asked.partition,
                leader=asked.leader,
                dry_run=asked.dry_run,
            )
        )
        if found == KafkaErrorCode.NOT_CONTROLLER:
            raise CommandRefusedError("it is not the active controller, or no longer: ask the active one")
        if isinstance(found, KafkaErrorCode):
            raise CommandRefusedError("it failed; the log names the reason")
        if isinstance(found, str):
            raise CommandRefusedError(found)
        return {"dry_run": asked.dry_run, "partitions": found}

    async def _ask(self, event: Callable[[Reply], Request]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(found: Any) -> None:
            if not answer.done():  # the caller may be gone
                answer.set_result(found)

        self._shell.queue.append(msgspec.structs.replace(event(Reply(answered)), by="an operator's command"))
        return await answer
