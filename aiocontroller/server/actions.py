"""``POST /dry-run`` says what an action would do, ``POST /confirm`` does it.

    {"action":"elect","topic":"orders","name":"anna","password":"…"}     or cancel (topic, partition), or release
    {"confirmation":"…","name":"anna","password":"…"}

The answer to the first has a confirmation, a secret that holds once, for a short time, for the same actor, and only
while the action would do what was shown.  One action is carried out at a time.  Its event says who asked.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import actions
from aiocontroller.core.actions import DryRun
from aiocontroller.core.errors import BadInputError, KafkaErrorCode
from aiocontroller.core.events import ApiPartitionReassignment, Release, ReplicaLeaderElection, Reply, Request
from aiocontroller.core.request_content import ElectionType
from aiocontroller.server.actor_check import Actors, Peer
from aiocontroller.server.cluster_view import in_charge
from aiocontroller.server.commands import CommandRefusedError

log = logging.getLogger("aiocontroller.http")

CONFIRMED_WITHIN_S = 120.0
MOST_WAITING = 32
"""Dry runs that wait for their confirmation; one more takes the place of the oldest."""
LINES_SHOWN = 30


class Asked(msgspec.Struct, frozen=True):
    """Body of ``POST /dry-run``."""

    action: Literal["elect", "cancel", "release"]
    topic: str = ""
    partition: int = -1
    name: str = ""
    password: str = ""


class Confirmed(msgspec.Struct, frozen=True):
    """Body of ``POST /confirm``."""

    confirmation: str
    name: str = ""
    password: str = ""


class _Waiting(NamedTuple):
    who: str
    asked: Asked
    shown: DryRun
    until_s: float


class Actions:
    """Each method takes the peer and a body; NotAllowedError, BadInputError or CommandRefusedError say why not."""

    def __init__(self, shell: ControllerShell, actors: Actors) -> None:
        self._shell = shell
        self._actors = actors
        self._waiting: dict[str, _Waiting] = {}
        self._busy = ""

    def summary(self) -> Mapping[str, Any]:
        """For the overview: whether the page offers actions."""
        return {"possible": self._actors.exist}

    async def dry_run(self, peer: Peer, body: bytes) -> Mapping[str, Any]:
        """The answer to ``POST /dry-run``."""
        asked = _decoded(body, Asked)
        who = self._actors.who(peer, asked.name, asked.password)
        shown = self._planned(asked)
        confirmation = secrets.token_hex(16)
        until_s = self._shell.world.clock.monotonic() + CONFIRMED_WITHIN_S
        self._waiting[confirmation] = _Waiting(who, asked, shown, until_s)
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return {"title": shown.title, "lines": shown.lines, "who": who, "confirmation": confirmation}

    async def confirm(self, peer: Peer, body: bytes) -> Mapping[str, Any]:
        """The answer to ``POST /confirm``; a confirmation is used up whatever comes of it.

        CommandRefusedError if it does not hold, another action is under way, or the controller refuses.
        """
        confirmed = _decoded(body, Confirmed)
        who = self._actors.who(peer, confirmed.name, confirmed.password)
        waiting = self._waiting.pop(confirmed.confirmation, None)
        if waiting is None or waiting.who != who or waiting.until_s < self._shell.world.clock.monotonic():
            raise CommandRefusedError("this confirmation is unknown, used, too old, or another actor's: begin again")
        if self._busy:
            raise CommandRefusedError(f"another action is being carried out: {self._busy}")
        if self._planned(waiting.asked) != waiting.shown:
            raise CommandRefusedError("what it would do has changed since it was shown: begin again")
        self._busy = waiting.shown.title
        log.warning("%s asks: %s", who, waiting.shown.title)
        try:
            return {"title": waiting.shown.title, "lines": await self._carried_out(who, waiting.asked, waiting.shown)}
        finally:
            self._busy = ""

    def _planned(self, asked: Asked) -> DryRun:
        shell = self._shell
        if not in_charge(shell):
            raise CommandRefusedError(f"controller {shell.id} is not in charge of the cluster: ask the one that is")
        match asked.action:
            case "elect":
                return actions.elect_preferred(shell.context, asked.topic)
            case "cancel":
                return actions.cancel_reassignment(shell.context, asked.topic, asked.partition)
            case "release":
                return actions.release_role(shell.context, shell.id)

    async def _carried_out(self, who: str, asked: Asked, shown: DryRun) -> list[str]:
        if asked.action == "release":
            released = await self._ask(lambda reply: Release(reply=reply, by=who))
            left = [f"{each} still names this controller as a replica" for each in released.left[:LINES_SHOWN]]
            return [f"The role was given back after epoch {released.epoch}.", *left]
        preferred, targets = ElectionType.PREFERRED, dict.fromkeys(shown.partitions)
        answers = await self._ask(
            lambda reply: (
                ReplicaLeaderElection(reply=reply, by=who, partitions=shown.partitions, election_type=preferred)
                if asked.action == "elect"
                else ApiPartitionReassignment(reply=reply, by=who, targets=targets)
            )
        )
        failed = [f"{tp}: {message or KafkaErrorCode(code).name}" for tp, (code, message) in answers.items() if code]
        done = len(answers) - len(failed)
        return [f"Done for {done:,} of {len(answers):,} partitions.", *failed[:LINES_SHOWN]]

    async def _ask(self, event: Callable[[Reply], Request]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(found: Any) -> None:
            if not answer.done():
                answer.set_result(found)

        self._shell.queue.append(event(Reply(answered)))
        found = await answer
        if isinstance(found, KafkaErrorCode):
            raise CommandRefusedError(f"the controller answered {found.name}; its log may say why")
        return found


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadInputError(f"the request's body: {error}") from None
