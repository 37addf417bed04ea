"""The one door into office: what speaks against it is asked here, before every election, and looked at ever after.

``permit`` is what an election needs, and only the guard makes one.  Beside the consumer it looks at the cluster every
few seconds, has new brokers asked (``survey``), and applies the same rules (``rules_of_office``), so that the election
itself finds all answers there, ``/readyz`` knows whether this process could be elected, and a role that was refused is
tried again when nothing speaks against it any more.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence

import anyio.abc
import msgspec
from aiozk import exc

from aiocontroller.controller.rules_of_office import (
    ENDS_A_TERM,
    Cluster,
    Kind,
    Reason,
    Us,
    reasons_against,
    reasons_against_deposing,
)
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.survey import ANSWER_WITHIN_S, BrokerSurvey
from aiocontroller.zookeeper.acl_store import AclStore
from aiocontroller.zookeeper.cluster_marks import ClusterMarks, read_cluster_marks
from aiocontroller.zookeeper.znodes import ControllerZNode

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 3.0
LOOK_AT_ALL_S = 30.0
"""How often registrations are read that seem to be the same: their addresses may have changed."""


class Permit:
    """To take the role, now."""


class Guard:
    """``changed`` is called when there is something for the consumer to think about again."""

    def __init__(self, shell: ControllerShell, changed: Callable[[], None]) -> None:
        self.survey = BrokerSurvey(shell, self._answered)
        self.reasons: tuple[Reason, ...] = ()
        """What speaks against being the controller, as it was seen last."""
        self.holder: Callable[[], ControllerZNode | None] = lambda: None
        """Who has the role, as the election knows."""
        self._shell = shell
        self._changed = changed
        self._cluster: Cluster | None = None
        self._refused = self._stale = False
        self._wakeup = asyncio.Event()
        metrics = shell.metrics
        self._refusals = {
            kind: metrics.counter("aiocontroller", "Guard", "Refusals", tags={"kind": kind}) for kind in Kind
        }
        for kind in Kind:
            metrics.gauge(
                "aiocontroller", "Guard", "Reasons", functools.partial(self._count, kind), tags={"kind": kind}
            )
        metrics.gauge("aiocontroller", "Guard", "BrokersUnanswered", lambda: len(self.survey.unanswered))

    # -- before an election ----------------------------------------------------------------------------------------

    async def permit(self, *, deposing: ControllerZNode | None = None) -> Permit | list[Reason]:
        """Leave to take the role, from who is ``deposing`` if anybody; or what speaks against it."""
        cluster = await self._look(deposing)
        self._judge(cluster)
        reasons = list(self.reasons)
        if deposing is not None:
            reasons += reasons_against_deposing(cluster, self.survey.known)
        self._refused = bool(reasons)
        if not reasons:
            return Permit()
        for kind in dict.fromkeys(reason.kind for reason in reasons):
            self._refusals[kind].inc()
        return reasons

    async def all_asked(self) -> None:
        """Until every broker has answered, or could not be asked; for somebody who waits for an election."""
        await self._look(None)
        await self.survey.settled(ANSWER_WITHIN_S)

    # -- ever after ------------------------------------------------------------------------------------------------

    @property
    def looked(self) -> bool:
        """Whether ``reasons`` mean anything."""
        return self._cluster is not None

    @property
    def reasons_to_resign(self) -> list[Reason]:
        return [reason for reason in self.reasons if reason.kind in ENDS_A_TERM]

    def start(self, tasks: anyio.abc.TaskGroup) -> None:
        self.survey.start(tasks)
        tasks.start_soon(self._keep_looking, name="guard of the office")
        if self._shell.acls is not None:
            tasks.start_soon(self._look_when_read, self._shell.acls, name="guard, waiting for the ACLs")

    def look_now(self) -> None:
        """Something has changed in ZooKeeper: do not wait for the next round."""
        self._stale = True
        self._wakeup.set()

    async def _look_when_read(self, acls: AclStore) -> None:
        await acls.loaded.wait()
        self.look_now()

    async def _keep_looking(self) -> None:
        seen: ClusterMarks | None = None
        looked_s = 0.0
        while True:
            now_s = self._shell.world.clock.monotonic()
            try:
                marks = await read_cluster_marks(self._shell.zk.client)
                if marks != seen or self._stale or self.survey.unanswered or now_s >= looked_s + LOOK_AT_ALL_S:
                    self._stale = False
                    cluster = await self._look(self.holder())
                    seen, looked_s = marks, now_s
                else:
                    assert self._cluster is not None
                    cluster = msgspec.structs.replace(self._cluster, holder=self.holder())
            except (exc.ZKError, OSError) as error:
                log.debug("The guard cannot look at the cluster: %s", error)
            else:
                self._judge(cluster)
                if self._refused and not self.reasons:
                    self._refused = False
                    self._changed()  # what was refused then may be granted now
            await self._pause()

    async def _pause(self) -> None:
        timer = self._shell.world.clock.call_later(LOOK_AGAIN_S, self._wakeup.set)
        try:
            await self._wakeup.wait()
        finally:
            timer.cancel()
        self._wakeup.clear()

    async def _look(self, holder: ControllerZNode | None) -> Cluster:
        zk = self._shell.zk
        migration, acls, (brokers, bad) = await asyncio.gather(
            zk.get_migration(), zk.acls_exist(), zk.get_all_brokers_in_cluster(watch=False)
        )
        self.survey.see(brokers)
        return Cluster(brokers, bad, migration is not None, acls, holder)

    def _answered(self) -> None:
        if self._cluster is not None:
            self._judge(self._cluster)

    def _judge(self, cluster: Cluster) -> None:
        shell, before = self._shell, self.reasons
        self._cluster = cluster
        us = Us(shell.id, shell.config, shell.own_endpoints(), shell.security, shell.authorizer)
        self.reasons = tuple(reasons_against(us, cluster, self.survey.known))
        if self.reasons != before:
            _log(before, self.reasons)
            self._changed()

    def _count(self, kind: Kind) -> int:
        return sum(reason.kind is kind for reason in self.reasons)


def _log(before: Sequence[Reason], now: Sequence[Reason]) -> None:
    """Each reason once, when it comes."""
    for reason in now:
        if reason not in before:
            log.log(
                logging.INFO if reason.passing else logging.WARNING,
                "This process cannot be the controller: %s",
                reason.text,
            )
    if before and not now:
        log.info("Nothing speaks against being the controller any more")
