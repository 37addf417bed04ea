"""Giving the role back to the brokers on request, with nothing left undone.

 1. Replicas on this controller (or an earlier one), of topics that brokers created by themselves, are moved to brokers.
 2. The brokers hear of a live broker list without this controller, so that none places a replica on it any more.  Not
    earlier: they look for the controller in that list, and without their ISR changes no replica moves.
 3. Topics that were made until then are looked at, and requests under way are waited for.
 4. ``/controller`` is deleted under the fence, and one of the brokers wins.  This process looks on from then, until it
    is asked to take over.

Between these steps other events are treated as ever: a broker that dies meanwhile gets its successors elected.
"""

from __future__ import annotations

import logging

from aiocontroller.controller.controller_election import ControllerElection
from aiocontroller.controller.own_replicas import move_own_replicas, naming_controllers
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.topics import topic_change
from aiocontroller.core.events import GoOnReleasing, OwnReplicas, Release, Released, TopicChange

log = logging.getLogger(__name__)

MOVED_WITHIN_S = 10.0
"""After so long the role goes back whatever replicas are left here."""
ANSWERED_WITHIN_S = 2.0
"""How long brokers may take to answer; one that is dead and still registered never does."""
RELEASE_WITHIN_S = MOVED_WITHIN_S + ANSWERED_WITHIN_S
LOOK_AGAIN_S = 0.1
_TAG = "release"


class RoleRelease:
    def __init__(self, shell: ControllerShell, election: ControllerElection) -> None:
        self._shell = shell
        self._election = election
        self._asked: list[Release] = []
        self._began_s = self._hidden_s = 0.0
        self._epoch = 0

    async def begin(self, event: Release) -> None:
        shell, election = self._shell, self._election
        election.observing = election.observing or event.for_good
        if not election.active:
            event.reply.answer(Released(0))
            return
        event.reply.defer()
        self._asked.append(event)
        if len(self._asked) > 1:
            return  # one release for all who ask
        log.info("Giving the role back")
        self._epoch = shell.context.epoch
        self._began_s = shell.world.clock.monotonic()
        shell.queue.append(GoOnReleasing())

    async def go_on(self) -> None:
        shell = self._shell
        if not self._asked or self._lost:
            return
        now_s = shell.world.clock.monotonic()
        await topic_change(shell, TopicChange())
        left = naming_controllers(shell)
        if left and not shell.leaving and now_s < self._began_s + MOVED_WITHIN_S:
            await move_own_replicas(shell, OwnReplicas())
            shell.queue.schedule(_TAG, LOOK_AGAIN_S, GoOnReleasing())
        elif not shell.leaving:
            self._hidden_s = now_s
            await self._hide()
        elif self._requests_under_way() and now_s < self._hidden_s + ANSWERED_WITHIN_S:
            shell.queue.schedule(_TAG, LOOK_AGAIN_S, GoOnReleasing())
        else:
            await self._give_back(left)

    async def _hide(self) -> None:
        shell = self._shell
        shell.leaving = True
        batch = shell.new_batch()
        batch.add_update_metadata_request_for_brokers(shell.context.brokers, ())
        sent = await shell.send(batch)
        shell.queue.schedule(_TAG, ANSWERED_WITHIN_S, GoOnReleasing())
        sent.metadata.when_all(lambda: shell.queue.schedule(_TAG, 0, GoOnReleasing()))

    async def _give_back(self, left: list[int]) -> None:
        if left:
            log.warning("Still naming a controller as a replica: %s", self._shell.sample(left))
        names = tuple(str(self._shell.topic_partition(pid)) for pid in left)
        await self._election.trigger_controller_move()
        self._end(names)

    def resume(self) -> None:
        """The cluster was loaded anew, and what was scheduled is gone."""
        if self._asked is not None:
            self._shell.queue.append(GoOnReleasing())

    def settle(self) -> None:
        """Called after every event: the term may have ended otherwise meanwhile, with all that was scheduled."""
        if self._asked and self._lost:
            self._end(())

    @property
    def under_way(self) -> bool:
        return bool(self._asked)

    @property
    def _lost(self) -> bool:
        return not self._election.active or self._shell.context.epoch != self._epoch

    def _requests_under_way(self) -> bool:
        channels = self._shell.channels
        return channels is not None and any(s.queued or s.in_flight for s in channels.statistics())

    def _end(self, left: tuple[str, ...]) -> None:
        asked, self._asked = self._asked, []
        for each in asked:
            each.reply.ensure(Released(self._epoch, left))
