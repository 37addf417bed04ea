"""Gives the role back to the brokers on request, after finishing pending work.

 1. Replicas that name this controller (or an earlier one), in topics created by brokers, are moved to brokers.
 2. The brokers get a live broker list without this controller, so that they no longer place replicas on it.  This
    cannot come earlier: they find the controller in that list, and without their ISR changes no replica moves.
 3. Topics created until then are checked, and requests in flight are waited for, including those that pay debts.
    Remaining debts are reported: the next controller may not know of them.
 4. ``/controller`` is deleted under the fence, and one of the brokers wins.  From then on this process only observes,
    until it is asked to take over.

Before a migration to KRaft only step 1 is needed: a KRaft controller takes the role from its holder, but not while a
replica is on a broker that it does not know.  Until its claim the role is kept (``Release.to_kraft``).

Other events are handled as usual between these steps: when a broker dies meanwhile, new leaders are elected.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from aiocontroller.controller import debts
from aiocontroller.controller.controller_election import ControllerElection
from aiocontroller.controller.own_replicas import move_own_replicas
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.topics import topic_change
from aiocontroller.core.events import GoOnReleasing, OwnReplicas, PayDebts, Release, TopicChange
from aiocontroller.core.reassignment import naming_controllers
from aiocontroller.core.request_content import Released

log = logging.getLogger(__name__)

MOVED_WITHIN_S = 10.0
"""After this time the role is given back, even if replicas still name a controller."""
ANSWERED_WITHIN_S = 2.0
"""How long to wait for brokers' responses; one that is dead but still registered never answers."""
RELEASE_WITHIN_S = MOVED_WITHIN_S + ANSWERED_WITHIN_S
LOOK_AGAIN_S = 0.1
_TAG = "release"


class RoleRelease:
    """The release of the role, from its request to its answer."""

    def __init__(self, shell: ControllerShell, election: ControllerElection) -> None:
        self._shell = shell
        self._election = election
        self._asked: list[Release] = []
        self._began_s = self._hidden_s = 0.0
        self._epoch = 0

    async def begin(self, event: Release) -> None:
        """Begin the release, or answer at once if this process is not the controller."""
        shell, election = self._shell, self._election
        if event.for_good:
            election.only_observe()
        if not election.active:
            event.reply.answer(Released(0))
            return
        event.reply.defer()
        self._asked.append(event)
        if len(self._asked) > 1:
            return  # one release answers all requests
        log.info("Giving the role back")
        self._epoch = shell.context.epoch
        self._began_s = shell.world.clock.monotonic()
        for broker in shell.context.debts.brokers():
            shell.queue.append(PayDebts(broker))
        shell.queue.append(GoOnReleasing())

    async def go_on(self) -> None:
        """Check how far the release has come, and take the next step."""
        shell = self._shell
        if not self._asked or self._lost:
            return
        now_s = shell.world.clock.monotonic()
        await topic_change(shell, TopicChange())
        left = naming_controllers(shell.context)
        if left and not shell.leaving and now_s < self._began_s + MOVED_WITHIN_S:
            await move_own_replicas(shell, OwnReplicas())
            shell.queue.schedule(_TAG, LOOK_AGAIN_S, GoOnReleasing())
        elif not shell.leaving and all(each.to_kraft for each in self._asked):
            self._end(self._names(left), ())
        elif not shell.leaving:
            self._hidden_s = now_s
            await self._hide()
        elif self._requests_in_flight() and now_s < self._hidden_s + ANSWERED_WITHIN_S:
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
        sent.metadata.when_all(self._all_heard)

    def _all_heard(self) -> None:
        """Also called when the term ends, which gives up all requests; then there is nothing left to release."""
        if not self._lost:
            self._shell.queue.schedule(_TAG, 0, GoOnReleasing())

    async def _give_back(self, left: list[int]) -> None:
        if left:
            log.warning("Partitions still name a controller as a replica: %s", self._shell.sample(left))
        owed = tuple(debts.status(self._shell))
        for each in owed:
            log.warning("Broker %(broker)d still has %(replicas)d replicas to delete, of topics %(topics)s", each)
        unfit = tuple(map(str, self._election.unfit()))
        for why in unfit:
            log.warning("Note: %s", why)
        names = self._names(left)
        await self._election.trigger_controller_move(for_good=any(each.for_good for each in self._asked))
        self._end(names, owed, unfit)

    def _names(self, rows: Sequence[int]) -> tuple[str, ...]:
        return tuple(str(self._shell.topic_partition(row)) for row in rows)

    def resume(self) -> None:
        """Schedule the next step again after a reload, which cancels all scheduled events."""
        if self._asked:
            self._shell.queue.append(GoOnReleasing())

    def settle(self) -> None:
        """Called after every event: the term may have ended in another way, which cancels all scheduled events."""
        if self._asked and self._lost:
            self._end((), ())

    @property
    def in_progress(self) -> bool:
        """Whether a release was requested and not answered yet."""
        return bool(self._asked)

    @property
    def _lost(self) -> bool:
        return not self._election.active or self._shell.context.epoch != self._epoch

    def _requests_in_flight(self) -> bool:
        channels = self._shell.channels
        return channels is not None and any(s.queued or s.in_flight for s in channels.statistics())

    def _end(self, left: tuple[str, ...], owed: tuple[Mapping[str, Any], ...], unfit: tuple[str, ...] = ()) -> None:
        asked, self._asked = self._asked, []
        for each in asked:
            each.reply.ensure(Released(self._epoch, left, owed, unfit))
