"""Checks whether this process may be the controller: before every election, and continuously afterwards.

An election needs a ``Permit``, and only the guard issues one.  Concurrently with the consumer, it looks at the cluster
every few seconds, has new brokers asked (``survey``), and applies the rules of ``controller_eligibility``.  So the
election finds all answers ready, ``/readyz`` knows whether this process could be elected, and a refused election is
tried again when the reasons are gone.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence

import anyio.abc
import msgspec

from aiocontroller.controller.controller_eligibility import (
    CLAIMED_BY_KRAFT,
    ENDS_A_TERM,
    ClusterFacts,
    Reason,
    ReasonKind,
    ThisController,
    ineligibility_reasons,
    reasons_not_to_depose,
)
from aiocontroller.controller.obeying import read_dynamic_settings
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.survey import ANSWER_WITHIN_S, BrokerSurvey
from aiocontroller.core.ids import Broker
from aiocontroller.zookeeper.acl_store import AclStore
from aiocontroller.zookeeper.cluster_marks import ClusterMarks, read_cluster_marks
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.znodes import ControllerZNode

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 3.0
LOOK_AT_ALL_S = 30.0
"""How often registrations that seem unchanged are read again: their addresses may have changed."""


class Permit:
    """Permission to begin a term now."""


class StandingPermit:
    """Permission to register ``/controller`` at once, based on the last look; a term then needs a ``Permit``."""


class Guard:
    """Judges whether this process may be the controller; calls ``changed`` when the role must be checked again."""

    def __init__(self, shell: ControllerShell, changed: Callable[[], None]) -> None:
        self.survey = BrokerSurvey(shell, self._answered)
        self.reasons: tuple[Reason, ...] = ()
        """The latest reasons against being the controller."""
        self.on_brokers: Callable[[Sequence[Broker]], None] = lambda _: None
        """Called with the registered brokers at each look."""
        self.holder: Callable[[], ControllerZNode | None] = lambda: None
        """The holder of the role, as last seen by the election."""
        self._shell = shell
        self._changed = changed
        self._policy = shell.policy
        self._cluster: ClusterFacts | None = None
        self._refused = False
        self._hints = 0
        """How many times ``look_now`` was called."""
        self._followed = -1
        """``_hints`` as of the last look."""
        self._judged_s = 0.0
        """When the last look began."""
        self._wakeup = asyncio.Event()
        metrics = shell.metrics
        self._refusals = {
            kind: metrics.counter("aiocontroller", "Guard", "Refusals", tags={"kind": kind}) for kind in ReasonKind
        }
        for kind in ReasonKind:
            metrics.gauge(
                "aiocontroller", "Guard", "Reasons", functools.partial(self._count, kind), tags={"kind": kind}
            )
        metrics.gauge("aiocontroller", "Guard", "BrokersUnanswered", lambda: len(self.survey.unanswered))
        self.withdrawals = metrics.counter("aiocontroller", "Guard", "Withdrawals")

    # -- before an election ----------------------------------------------------------------------------------------

    async def permit(self, *, deposing: ControllerZNode | None = None) -> Permit | list[Reason]:
        """A permit to take the role, from ``deposing`` if given; or the reasons against it."""
        cluster = await self._look(deposing)
        self._judge(cluster)
        reasons = list(self.reasons)
        if deposing is not None:
            reasons += reasons_not_to_depose(cluster, self.survey.known)
        self._refused = bool(reasons)
        if not reasons:
            return Permit()
        for kind in dict.fromkeys(reason.kind for reason in reasons):
            self._refusals[kind].inc()
        return reasons

    async def permit_to_roll_back(self) -> StandingPermit | list[Reason]:
        """A permit to register in place of a KRaft controller that is gone; or the reasons against it."""
        self._judge(await self._look(None))
        reasons = [reason for reason in self.reasons if reason.kind not in CLAIMED_BY_KRAFT]
        return reasons or StandingPermit()

    def standing_permit(self) -> StandingPermit | None:
        """A permit to register without another look; None if there may be a reason against it."""
        recent = self._shell.world.clock.monotonic() <= self._judged_s + 2 * LOOK_AGAIN_S
        followed = self._hints == self._followed
        return StandingPermit() if recent and followed and not self.reasons and not self.survey.unanswered else None

    def standing(self) -> str:
        """Describe what ``standing_permit`` is based on, for the log."""
        ago_s, since = self._shell.world.clock.monotonic() - self._judged_s, self._hints - self._followed
        return (
            f"last look {ago_s:.1f} s ago, {since} changes since, {len(self.reasons)} reasons against it, no answer "
            f"from brokers {self.survey.unanswered}"
        )

    async def all_asked(self) -> None:
        """Wait until every broker has answered or could not be asked; for a takeover on request."""
        await self._look(None)
        await self.survey.settled(ANSWER_WITHIN_S)

    # -- afterwards ------------------------------------------------------------------------------------------------

    @property
    def looked(self) -> bool:
        """Whether the cluster has been checked, so that ``reasons`` are meaningful."""
        return self._cluster is not None

    @property
    def reasons_to_resign(self) -> list[Reason]:
        """The reasons that end a term."""
        return [reason for reason in self.reasons if reason.kind in ENDS_A_TERM]

    def start(self, tasks: anyio.abc.TaskGroup) -> None:
        """Begin to look, by tasks of this group."""
        self.survey.start(tasks)
        tasks.start_soon(self._keep_looking, name="guard of the office")
        if self._shell.acls is not None:
            tasks.start_soon(self._look_when_read, self._shell.acls, name="guard, waiting for the ACLs")

    def look_now(self) -> None:
        """Look now, not at the next round, because something has changed in ZooKeeper."""
        self._hints += 1
        self._wakeup.set()

    async def _look_when_read(self, acls: AclStore) -> None:
        await acls.loaded.wait()
        self.look_now()

    async def _keep_looking(self) -> None:
        seen: ClusterMarks | None = None
        looked_s = 0.0
        while True:
            now_s, hints = self._shell.world.clock.monotonic(), self._hints
            changed = hints != self._followed or now_s >= looked_s + LOOK_AT_ALL_S
            try:
                marks = await read_cluster_marks(self._shell.zk.client)
                if changed or marks != seen or self.survey.unanswered:
                    cluster = await self._look(self.holder())
                    seen, looked_s = marks, now_s
                else:
                    assert self._cluster is not None
                    cluster = msgspec.structs.replace(self._cluster, holder=self.holder())
            except (exc.ZKError, OSError) as error:
                log.debug("The guard cannot read the cluster's state: %s", error)
            else:
                self._judge(cluster)
                self._followed, self._judged_s = hints, now_s
                if self._refused and not self.reasons:
                    self._refused = False
                    self._changed()  # an election that was refused may be permitted now
            await self._pause()

    async def _pause(self) -> None:
        timer = self._shell.world.clock.call_later(LOOK_AGAIN_S, self._wakeup.set)
        try:
            await self._wakeup.wait()
        finally:
            timer.cancel()
        self._wakeup.clear()

    async def _look(self, holder: ControllerZNode | None) -> ClusterFacts:
        zk, known = self._shell.zk, self.survey.known.answers
        migration, acls, (brokers, bad), _ = await asyncio.gather(
            zk.get_migration(),
            zk.acls_exist(),
            zk.get_all_brokers_in_cluster(watch=False),
            read_dynamic_settings(self._shell, sorted(known)),
        )
        if any(broker.id not in known for broker in brokers):
            await read_dynamic_settings(self._shell, sorted({*known, *(broker.id for broker in brokers)}))
        self.survey.see(brokers)
        self.on_brokers(brokers)
        return ClusterFacts(brokers, bad, migration, acls, holder)

    def _answered(self) -> None:
        if self._cluster is not None:
            self._judge(self._cluster)

    def _judge(self, cluster: ClusterFacts) -> None:
        shell, before, policy = self._shell, self.reasons, self._policy
        self._cluster = cluster
        self._count_settings(cluster)
        us = ThisController(
            shell.id, shell.config, shell.own_endpoints(), shell.security, shell.authorizer, shell.settings
        )
        self.reasons = tuple(ineligibility_reasons(us, cluster, self.survey.known))
        self._policy = shell.settings.policy
        if self.reasons != before:
            _log(before, self.reasons)
        if self.reasons != before or self._policy != policy:
            self._changed()

    def _count_settings(self, cluster: ClusterFacts) -> None:
        """Apply the settings of registered brokers, even from earlier registrations; with no broker, the last known."""
        answers = self.survey.known.answers
        reported = {broker: answer.reported for broker, answer in answers.items() if answer.reported is not None}
        present = {broker.id: reported[broker.id] for broker in cluster.brokers if broker.id in reported}
        awaited = not reported and any(broker.id not in self.survey.known.why_unanswered for broker in cluster.brokers)
        self._shell.settings.heard(
            present or reported, no_brokers=not cluster.brokers and not cluster.bad, awaited=awaited
        )

    def _count(self, kind: ReasonKind) -> int:
        return sum(reason.kind is kind for reason in self.reasons)


def _log(before: Sequence[Reason], now: Sequence[Reason]) -> None:
    """Log each reason once, when it appears."""
    for reason in now:
        if reason not in before:
            log.log(
                logging.INFO if reason.is_normal_at_startup else logging.WARNING,
                "This process cannot be the controller: %s",
                reason.text,
            )
    if before and not now:
        log.info("This process can be the controller again")
