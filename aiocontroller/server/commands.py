"""What an operator tells a running controller, by HTTP: take the role, give it back.

Only who can read the token in the data folder's ``controller.json`` may: without a data folder there are no commands.
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
from aiocontroller.core.events import Release, Released, Reply, Request, TakeOver

log = logging.getLogger(__name__)

Command = Callable[[bytes], Awaitable[Mapping[str, Any]]]
"""JSON in, an object out; AioControllerError says why it could not be."""


class CommandRefusedError(AioControllerError):
    """What was asked for is not possible now; one line for each reason."""


class ReleaseAsked(msgspec.Struct, frozen=True):
    """Body of ``POST /release``."""

    exit: bool = False
    """End the process afterwards."""
    linger_ms: int | None = None
    """How long to go on answering before that; None: ``aiocontroller.release.linger.ms``."""


class Commands:
    """``stop`` ends the process."""

    def __init__(self, shell: ControllerShell, controller: KafkaController, stop: Callable[[], object]) -> None:
        self._shell = shell
        self._controller = controller
        self._stop = stop

    def by_name(self) -> dict[str, Command]:
        return {"takeover": self.take_over, "release": self.release}

    async def take_over(self, body: bytes) -> Mapping[str, Any]:
        before = self._controller.election.holder
        was_active = self._controller.election.active
        reasons = await self._ask(lambda reply: TakeOver(reply=reply))
        if reasons == KafkaErrorCode.UNKNOWN_SERVER_ERROR:
            raise CommandRefusedError("it failed, for a reason that the log tells")
        if isinstance(reasons, KafkaErrorCode):
            raise CommandRefusedError("the ZooKeeper session ended meanwhile: try again")
        if reasons:
            raise CommandRefusedError("\n".join(reasons))
        return {
            "id": self._shell.id,
            "epoch": self._shell.context.epoch,
            "was_active": was_active,
            "before": None if before is None else before.controller_id,
        }

    async def release(self, body: bytes) -> Mapping[str, Any]:
        try:
            asked = msgspec.json.decode(body or b"{}", type=ReleaseAsked)
        except msgspec.MsgspecError as error:
            raise BadInputError(f"release: found {error}, expected exit and linger_ms") from None
        released = await self._ask(lambda reply: Release(reply=reply))
        if isinstance(released, KafkaErrorCode):
            released = Released(0)  # the session ended: the role is gone with it
        linger_ms = self._shell.config.aiocontroller_release_linger_ms if asked.linger_ms is None else asked.linger_ms
        if asked.exit:
            log.info("Answering NOT_CONTROLLER for %d ms, then ending", linger_ms)
            self._shell.world.clock.call_later(linger_ms / 1000, self._stop)
        return {
            "id": self._shell.id,
            "epoch": released.epoch,
            "left": list(released.left),
            "ends_in_ms": linger_ms if asked.exit else None,
        }

    async def _ask(self, event: Callable[[Reply], Request]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(found: Any) -> None:
            if not answer.done():  # whoever asked may be gone
                answer.set_result(found)

        self._shell.queue.append(event(Reply(answered)))
        return await answer
