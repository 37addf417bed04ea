"""``POST /dry-run`` says what an action would do, ``POST /confirm`` does it.

    {"action":"elect","topic":"orders","name":"anna","password":"…"}
    {"action":"elect-all"}          preferred leaders of the whole cluster
    {"action":"move","topic":"orders","partition":0,"replicas":[4,2,3]}
    {"action":"drain","broker":3}   moves all of its replicas to others
    {"action":"cancel","topic":"orders","partition":0}
    {"action":"release"}
    {"confirmation":"…","name":"anna","password":"…"}

The answer to a dry run has a confirmation: a secret that works once, for a short time, for the same actor, and only
while the action would still do what was shown.  That is checked again when the action's turn comes, after the events
that wait before it.  One action is carried out at a time.  Its event names the actor.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import dry_runs, move_dry_runs
from aiocontroller.core.dry_runs import DryRun
from aiocontroller.core.errors import AioControllerError, BadInputError, KafkaErrorCode
from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.core.events import ApiPartitionReassignment, Release, ReplicaLeaderElection
from aiocontroller.core.request_content import ElectionType
from aiocontroller.core.steps import Steps
from aiocontroller.core.unreadable_json import UNREADABLE_JSON
from aiocontroller.server.actor_check import Actors, HttpPeer
from aiocontroller.server.cluster_view import in_charge
from aiocontroller.server.commands import CommandRefusedError

log = logging.getLogger("aiocontroller.http")

CONFIRMED_WITHIN_S = 120.0
MOST_WAITING = 32
"""Dry runs that wait for their confirmation; one more replaces the oldest."""
LINES_SHOWN = 30
LONGEST_ERROR = 500
"""In characters: the error quotes the request."""
CHANGED = "what it would do has changed since it was shown: begin again"


class Asked(msgspec.Struct, frozen=True):
    """Body of ``POST /dry-run``."""

    action: Literal["elect", "elect-all", "move", "drain", "cancel", "release"]
    topic: str = ""
    partition: int = -1
    replicas: tuple[int, ...] = ()
    """Preferred leader first."""
    broker: int = -1
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
    """Without the password."""
    shown: DryRun
    until_s: float


class Actions:
    """Handlers that take a peer and a body; NotAllowedError, BadInputError or CommandRefusedError if they refuse."""

    def __init__(self, shell: ControllerShell, actors: Actors) -> None:
        self._shell = shell
        self._actors = actors
        self._waiting: dict[str, _Waiting] = {}
        self._busy = ""
        self._turn = asyncio.Lock()

    def summary(self) -> Mapping[str, Any]:
        """For the overview: whether the page offers actions."""
        return {"possible": self._actors.exist}

    async def dry_run(self, peer: HttpPeer, body: bytes) -> Mapping[str, Any]:
        """The answer to ``POST /dry-run``."""
        asked = _decoded(body, Asked)
        who = self._actors.who(peer, asked.name, asked.password)
        asked = msgspec.structs.replace(asked, name="", password="")
        async with self._turn:  # several at once would starve other tasks
            shown = await self._planned(asked)
        confirmation = self._awaited(who, asked, shown)
        return {"title": shown.title, "lines": shown.lines, "who": who, "confirmation": confirmation}

    def _awaited(self, who: str, asked: Asked, shown: DryRun) -> str:
        """Keep what was shown, and return the confirmation with which it may be carried out."""
        now_s = self._shell.world.clock.monotonic()
        self._waiting = {key: each for key, each in self._waiting.items() if each.until_s >= now_s}
        confirmation = secrets.token_hex(16)
        self._waiting[confirmation] = _Waiting(who, asked, shown.essence(), now_s + CONFIRMED_WITHIN_S)
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return confirmation

    async def confirm(self, peer: HttpPeer, body: bytes) -> Mapping[str, Any]:
        """The answer to ``POST /confirm``; it uses the confirmation up even if it fails.

        CommandRefusedError if the confirmation is not valid, another action is under way, or the controller refuses.
        """
        confirmed = _decoded(body, Confirmed)
        who = self._actors.who(peer, confirmed.name, confirmed.password)
        waiting = self._waiting.pop(confirmed.confirmation, None)
        if waiting is None or waiting.who != who or waiting.until_s < self._shell.world.clock.monotonic():
            raise CommandRefusedError("this confirmation is unknown, used, too old, or another actor's: begin again")
        if self._busy:
            raise CommandRefusedError(f"another action is being carried out: {self._busy}")
        self._busy = waiting.shown.title
        try:
            shown = await self._planned(waiting.asked)
            if shown.essence() != waiting.shown:
                raise CommandRefusedError(CHANGED)
            log.warning("%s asks: %s", who, shown.title)
            return {"title": shown.title, "lines": await self._carried_out(who, waiting.asked, shown)}
        finally:
            self._busy = ""

    async def _planned(self, asked: Asked) -> DryRun:
        self._check_in_charge()
        context = self._shell.context
        match asked.action:
            case "elect":
                return await self._in_slices(dry_runs.elect_preferred(context, asked.topic))
            case "elect-all":
                return await self._in_slices(dry_runs.elect_preferred(context, None))
            case "move":
                return move_dry_runs.move_partition(context, asked.topic, asked.partition, asked.replicas)
            case "drain":
                return await self._in_slices(move_dry_runs.drain_broker(context, asked.broker))
            case "cancel":
                return move_dry_runs.cancel_reassignment(context, asked.topic, asked.partition)
            case "release":
                return dry_runs.release_role(context, self._shell.id)

    def _check_in_charge(self) -> None:
        shell = self._shell
        if not in_charge(shell):
            raise CommandRefusedError(f"controller {shell.id} is not in charge of the cluster: ask the one that is")

    async def _in_slices(self, steps: Steps[DryRun]) -> DryRun:
        """Run the steps with other tasks between them; CommandRefusedError if the term ends meanwhile."""
        context = self._shell.context
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await asyncio.sleep(0)
            self._check_in_charge()
            if self._shell.context is not context:
                raise CommandRefusedError(CHANGED)

    async def _carried_out(self, who: str, asked: Asked, shown: DryRun) -> list[str]:
        ask = functools.partial(self._ask, asked, shown)
        if asked.action == "release":
            released = await ask(functools.partial(Release, by=who))
            left = [f"{each} still names this controller as a replica" for each in released.left[:LINES_SHOWN]]
            return [f"The role was given back after epoch {released.epoch}.", *left]
        if shown.targets:
            answers = await ask(functools.partial(ApiPartitionReassignment, by=who, targets=dict(shown.targets)))
        else:
            elect = functools.partial(ReplicaLeaderElection, election_type=ElectionType.PREFERRED)
            answers = await ask(functools.partial(elect, by=who, partitions=shown.elections))
        failed = [f"{tp}: {message or KafkaErrorCode(code).name}" for tp, (code, message) in answers.items() if code]
        done = len(answers) - len(failed)
        return [f"Done for {done:,} of {len(answers):,} partitions.", *dry_runs.bounded(failed)]

    async def _ask(self, asked: Asked, shown: DryRun, event: Callable[..., Request]) -> Any:
        """Queue the event, and return its answer; CommandRefusedError if by its turn it would not do what was shown."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        changed = ""

        def answered(found: Any) -> None:
            if not answer.done():
                answer.set_result(found)

        async def holds() -> bool:
            nonlocal changed
            try:
                changed = "" if (await self._planned(asked)).essence() == shown.essence() else CHANGED
            except AioControllerError as error:
                changed = f"{CHANGED}: {error}"
            except Exception as error:  # a bug here must not cause a reload
                log.exception("An action cannot be planned")
                changed = repr(error)
            return not changed

        self._shell.queue.append(event(reply=Reply(answered), holds=holds))
        found = await answer
        if changed:
            raise CommandRefusedError(changed)
        if isinstance(found, KafkaErrorCode):
            raise CommandRefusedError(f"the controller answered {found.name}; its log may say why")
        return found


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE_JSON as error:
        raise BadInputError(f"the request's body: {str(error)[:LONGEST_ERROR]}") from None
