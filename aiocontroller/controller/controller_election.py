"""Controller election: winning the role, noticing its loss, giving it back (``elect``, ``maybeResign``).

The role is held by the session that owns ``/controller``, not by the id in it: two instances of this program may share
an id.  One multi creates ``/controller`` and raises ``/controller_epoch``; every later write is fenced by the version
of the latter, so a controller that does not know it was deposed can write nothing.

A standby registers in one round trip when ``/controller`` vanishes (``seize``), because it competes with the brokers:
 1. While another controller holds the role, it reads ``/controller_epoch``, and the guard judges every few seconds.
 2. At the vacancy it sends the multi at once, if the guard's last judgement permits.  Whatever has changed since step 1
    makes the multi fail, and the election takes its usual course.
 3. Once registered, it has the guard judge again.  Only then does its term begin; if there are reasons against it, it
    deletes ``/controller`` and has written nothing else.

A standby may watch the active controller (``heartbeats``) and take over as soon as it seems to be dead, with the
multi that wins an election plus one operation.  A wrong suspicion is harmless: one of the two finds its fence gone at
its next write.

``/controller`` can be ours without a term, and then blocks every other candidate:
 1. The session expires while a handler runs, and ``Expire`` is queued; the handler's write is refused, so it steps down
    and wins again with the new session; then ``Expire`` ends that term, but not its session.
 2. The answer to a registration is lost, and another process writes ``/controller_epoch`` before we look: nothing
    shows any more which epoch we won.
 3. Another process writes ``/controller_epoch`` before we delete ``/controller``, so the fence refuses the delete.
So a process that finds it contends for it or, if it only observes or the guard objects, deletes it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Sequence

from aiocontroller.controller import broker_starts
from aiocontroller.controller.controller_eligibility import Reason
from aiocontroller.controller.deposing import IDLE_WITHIN_S, LeftUnfinished, left_unfinished, wait_until_idle
from aiocontroller.controller.failover import (
    StepFailedError,
    on_controller_failover,
    on_controller_resignation,
    stop_hearing,
)
from aiocontroller.controller.guard import Guard, Permit, StandingPermit
from aiocontroller.controller.heartbeats import Heartbeats
from aiocontroller.controller.mirror import Mirror
from aiocontroller.controller.obeying import apply_settings
from aiocontroller.controller.shell import ControllerShell, address_of
from aiocontroller.controller.warm_failover import on_warm_failover
from aiocontroller.core.errors import ControllerMovedError, OutrankedError
from aiocontroller.core.events import ControllerSuspected
from aiocontroller.core.text import not_registered
from aiocontroller.net.ports import Timer
from aiocontroller.zookeeper import registration
from aiocontroller.zookeeper.errors import SessionExpiredError
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.migration_rollback import Rollback, plan_rollback
from aiocontroller.zookeeper.paths import DELETE_TOPICS
from aiocontroller.zookeeper.registration import KnownEpoch, TopicsBeingDeletedError
from aiocontroller.zookeeper.znodes import SOFTWARE, BadZNode, ControllerZNode

log = logging.getLogger(__name__)

KRAFT_SILENT_S = 3.0
"""How long a KRaft controller must not have written before its migration is rolled back.  It writes ``/migration``
whenever its metadata log grows, which it does twice a second (``metadata.max.idle.interval.ms``)."""
CONNECTION_SETTLED_S = 2.0
"""How long a standby must have been connected to ZooKeeper before it acts on a suspicion."""


class ControllerElection:
    """Wins, keeps and gives up the role (Kafka's ``elect``, ``onControllerFailover``, ``resign``)."""

    def __init__(self, shell: ControllerShell, guard: Guard) -> None:
        self._shell = shell
        self._guard = guard
        self.active = False
        self.since_us = 0
        """Wall time at which this term began; 0 while not the controller."""
        self.holder: ControllerZNode | None = None
        """The holder of the role at the last check."""
        self.observing = False
        """The role was released on request: this process contends again only after ``take_over``."""
        self.refusals: tuple[str, ...] = ()
        """Why this process did not take the role when it could have."""
        self.failure = ""
        """Why the latest failover failed; empty when it succeeded."""
        self.heartbeats: Heartbeats | None = None
        """Watches the active controller while standing by, where early detection of controllers is on."""
        self.mirror: Mirror | None = None
        """A copy of the cluster, kept while standing by, where the standby is warm."""
        self.has_read_holder = False
        """``/controller`` has been read at least once, so ``holder`` is known."""
        self._watched: ControllerZNode | None = None
        self._known_epoch: KnownEpoch | None = None
        """The epoch of the holder's term; None unless another controller holds the role and we may take it."""
        self._followed_epoch: KnownEpoch | None = None
        """The epoch of the last term of another aiocontroller that this process has stood by for."""
        self._suspicion_timer: Timer | None = None
        """Checks a suspicion again."""
        self._unfinished: dict[int, LeftUnfinished] = {}
        """Broker -> what it left unfinished when this process deposed it."""
        self._takes_over = False
        """Depose a broker that is the controller (policy ``takeover``); false once a term has begun here."""

    async def startup(self) -> None:
        """Stand for election; with the policy ``takeover``, also depose a broker that is the controller."""
        self._takes_over = self._shell.config.aiocontroller_takeover_policy == "takeover"
        await self.stand()

    async def stand(self) -> None:
        """Contend if ``/controller`` is absent, or ours without a term; an observer only deletes it if it is ours."""
        holder = await self._read_holder()
        if self.active:
            return  # if the role is lost after the last look, the watch fires and this runs again
        if self.observes:
            if holder is not None and self._is_ours(holder):
                await self._vacate()
            return
        if holder is None or self._is_ours(holder):
            await self._contend(holder)
        elif self._takes_back(holder):
            await self._contend(holder, deposing=holder)
        elif self._takes_over:
            await self._take_over(holder)
        elif self._shell.config.aiocontroller_takeover_policy == "standby" and holder.software != SOFTWARE:
            log.info(
                "Not taking the role back from controller %d: found %s, before %s",
                holder.controller_id,
                self._known_epoch,
                self._followed_epoch,
            )

    async def seize(self) -> bool:
        """Register at once after ``/controller`` has vanished; returns False if the caller must ``stand`` instead."""
        return await self._seize(replacing=False)

    async def _seize(self, *, replacing: bool) -> bool:
        """Register with the standing permit; ``replacing`` deposes the present holder."""
        known, self._known_epoch = self._known_epoch, None
        if self.active:
            return False
        standing = self._guard.standing_permit()
        if known is None or standing is None or self.observes:
            log.info("Not registering at once: controller epoch %s, %s", known, self._guard.standing())
            return False
        zk, clock = self._shell.zk, self._shell.world.clock
        won = await self._register(
            standing,
            registration.seize_controller(
                zk.client,
                known,
                self._shell.id,
                clock.wall_time_us() // 1000,
                replacing=replacing,
                address=self.own_address(),
            ),
        )
        if won is None:
            return False
        await self._begin_if_permitted(*won)
        return True

    async def _begin_if_permitted(self, epoch: int, fence: int) -> None:
        """Begin the term that was just registered if the guard permits it; otherwise delete ``/controller`` again."""
        found = await self._guard.permit()
        if isinstance(found, Permit):
            await self._begin_term(found, epoch, fence)
            return
        self._refuse(found)
        log.error("Giving the role back, epoch %d, before its term has begun", epoch)
        self._guard.withdrawals.inc()
        await broker_starts.pass_on(self._shell, epoch, fence)
        await self._delete_controller(fence)
        await self._read_holder()

    @property
    def may_contend(self) -> bool:
        """Whether the role, as last seen, is vacant, ours without a term, or held by who is to be replaced."""
        holder = self.holder
        return not self.active and (holder is None or self._is_ours(holder) or self._takes_back(holder))

    def _takes_back(self, holder: ControllerZNode) -> bool:
        """With the policy ``standby``: whether a broker holds a role that an aiocontroller lost but did not release."""
        known, followed = self._known_epoch, self._followed_epoch
        return (
            self._shell.config.aiocontroller_takeover_policy == "standby"
            and known is not None
            and followed is not None
            and known.releases == followed.releases
            and holder.controller_id >= 0
            and holder.software != SOFTWARE
            and holder.kraft_controller_epoch <= 0
        )

    async def take_over(self) -> list[str]:
        """Take over on request; returns the reasons if it is refused.

        If another aiocontroller is active, a process that released the role stands by again.
        """
        await self._guard.all_asked()
        holder = await self._read_holder()
        if self.active:
            return []
        reasons = await self._take_over(holder)
        if not reasons:
            self.observing = False
            if not self.active:
                reasons = ["another controller was elected first"]
        elif self.observing and holder is not None and holder.software == SOFTWARE:
            self.observing = False
            if self.mirror is not None:
                self.mirror.wake()
            reasons = [f"{reason}; this process stands by again" for reason in reasons]
            await self._read_holder()
        return reasons

    async def roll_back(self, *, dry_run: bool, force: bool = False) -> tuple[Rollback, list[str]]:
        """Take the role from a KRaft controller that is gone; returns what is written, and any reasons for refusing.

        Refuses if brokers in KRaft mode, which are not registered in ZooKeeper, would lose all their leaders; ``force``
        overrides that.  Raises RollbackRefusedError if there is no migration to roll back.
        """
        await self._guard.all_asked()
        before = await plan_rollback(self._shell.zk)
        await self._shell.world.clock.sleep(KRAFT_SILENT_S)
        plan = await plan_rollback(self._shell.zk)
        if plan.deleted[-1] != before.deleted[-1]:
            return plan, [f"{plan.deleted[-1].path} changes: the KRaft controller still writes; stop the whole quorum"]
        if plan.missing_brokers and not force:
            return plan, [
                f"{not_registered(plan.missing_brokers)}: restart in migration mode first (--force: these replicas are "
                "taken for offline)"
            ]
        found = await self._guard.permit_to_roll_back()
        if not isinstance(found, StandingPermit):
            self._refuse(found)
            return plan, [reason.text for reason in found]
        if dry_run:
            return plan, []
        log.warning("Rolling the migration to KRaft back: epoch %d, as %s", plan.epoch, plan.because)
        clock = self._shell.world.clock
        won = await self._register(
            found,
            registration.roll_back_migration(
                self._shell.zk.client,
                plan,
                self._shell.id,
                clock.wall_time_us() // 1000,
                address=self.own_address(),
            ),
        )
        if won is None:
            return plan, ["/controller, /controller_epoch or /migration has changed meanwhile: stop the KRaft quorum"]
        self.observing = False
        await self._begin_if_permitted(*won)
        return plan, [] if self.active else list(self.refusals) or ["another controller was elected at once"]

    async def _take_over(self, holder: ControllerZNode | None) -> list[str]:
        """Take over, but never from an aiocontroller: else a restarted standby would depose the active controller."""
        if holder is None or self._is_ours(holder):
            return await self._contend(holder)
        if holder.software == SOFTWARE:
            self._takes_over = False
            log.info("Controller %d is already an aiocontroller: standing by", holder.controller_id)
            return [f"controller {holder.controller_id} is an aiocontroller already: have it release the role first"]
        return await self._contend(holder, deposing=holder)

    async def _contend(
        self, holder: ControllerZNode | None, *, deposing: ControllerZNode | None = None, session: int | None = None
    ) -> list[str]:
        """Win the role, or return the reasons against it; every election but ``_seize`` goes through here.

        ``holder`` is replaced if it is our own znode, a working broker's (``deposing``), or that of the controller with
        this ``session``; never a znode that took its place meanwhile.
        """
        clock = self._shell.world.clock
        idle_until_s = clock.monotonic() + IDLE_WITHIN_S
        while isinstance(found := await self._guard.permit(deposing=deposing), Permit):
            idle = deposing is not None and clock.monotonic() < idle_until_s
            try:
                await self._win(found, broker=deposing, session=session, idle=idle)
                return []
            except TopicsBeingDeletedError:
                await wait_until_idle(self._shell, idle_until_s)
            except (exc.NoAuth, exc.InvalidACL) as error:
                if not idle:
                    raise
                log.warning(
                    "No permission to replace %s: taking over even if a topic is being deleted: %r",
                    DELETE_TOPICS,
                    error,
                )
                idle_until_s = clock.monotonic()
        self._refuse(found)
        if holder is not None and self._is_ours(holder):
            await self._vacate()
        return [reason.text for reason in found]

    def _refuse(self, reasons: Sequence[Reason]) -> None:
        for reason in reasons:
            if reason.text not in self.refusals:
                log.log(
                    logging.INFO if reason.is_normal_at_startup else logging.ERROR,
                    "Not taking the role: %s",
                    reason.text,
                )
        self.refusals = tuple(reason.text for reason in reasons)

    async def _vacate(self) -> None:
        """Delete our ``/controller`` although no term is running, so that others may contend."""
        while True:
            epoch = await self._shell.zk.get_controller_epoch()
            holder = await self._read_holder()
            if epoch is None or holder is None or not self._is_ours(holder):
                return
            try:
                await self._shell.zk.delete_controller(epoch[1])
                return
            except ControllerMovedError:
                log.info("/controller_epoch was written meanwhile: looking again")

    async def _delete_controller(self, fence: int) -> None:
        """Delete the ``/controller`` that this fence was won with."""
        try:
            await self._shell.zk.delete_controller(fence)
        except ControllerMovedError:
            await self._vacate()  # the epoch was written by the next controller, or by hand

    async def maybe_resign(self) -> None:
        """Read ``/controller``, which re-arms the watch; resign if we have lost the role."""
        holder = await self._read_holder()
        if self.active and (holder is None or not self._is_ours(holder)):
            await self._resign()
            await self._read_holder()  # resigning drops all watches; this one is needed

    async def step_down(self) -> None:
        """A fenced write was refused: end this term, whatever ``/controller`` says, and stand again.

        Kafka stays active with a dead fence when ``/controller`` still names it.
        """
        if self.active:
            await self._resign()
        await self.stand()

    async def replace_suspect(self) -> None:
        """Take over from an active controller that is suspected to be dead, before its session expires."""
        assert self.heartbeats is not None
        suspicion = next(iter(self.heartbeats.suspects().values()), None)
        if suspicion is None or self.active:
            return
        if not self._shell.is_connected_for(CONNECTION_SETTLED_S) or self.heartbeats.answers_again(suspicion.peer):
            # ZooKeeper may have been down for both, and the other controller may reconnect a little later than we did.
            # After false alarms, a peer that answers again is trusted only after some time.
            self._check_suspicion_later()
            return
        if self.holder is None or self.holder.owner_session != suspicion.epoch:
            await self.stand()
            return
        log.warning(
            "Controller %d seems to be dead (%s, silent for %.3f s): taking over",
            suspicion.peer,
            suspicion.reason,
            suspicion.quiet_s,
        )
        self._shell.journal.append("suspicion", event="alarm", state="controller", broker=suspicion.peer)
        if await self._seize(replacing=True):
            return
        holder = await self._read_holder()
        if self.may_contend:
            await self.stand()
        elif holder is not None and holder.owner_session == suspicion.epoch:
            await self._contend(holder, session=holder.owner_session)

    def _check_suspicion_later(self) -> None:
        """Check the suspicion again later.  The queue's timers end with a term, so this one is set at the clock."""
        if self._suspicion_timer is not None:
            self._suspicion_timer.cancel()
        suspected = functools.partial(self._shell.queue.append, ControllerSuspected())
        self._suspicion_timer = self._shell.world.clock.call_later(CONNECTION_SETTLED_S, suspected)

    async def expire(self) -> None:
        """The session has expired, and ``/controller`` is gone with it."""
        self._set_holder(None)
        self._known_epoch = None
        if self.active:
            await self._resign()

    async def trigger_controller_move(self, *, for_good: bool = False) -> None:
        """Resign and delete ``/controller``, so that all candidates contend.  ``for_good``: standbys wait first."""
        if not self.active:
            return
        client, epoch, fence = self._shell.zk.client, self._shell.context.epoch, self._shell.context.epoch_zk_version
        await self._resign()
        if not for_good:
            await self._delete_controller(fence)
            return
        try:
            await registration.release_controller(client, epoch, fence)
        except ControllerMovedError:
            await self._vacate()  # the fence is another controller's, or that of our own write whose answer was lost

    async def reload(self) -> None:
        """Reload the cluster in the same term, because memory may differ from ZooKeeper.

        Raises ControllerMovedError when the role is lost.
        """
        shell = self._shell
        epoch, fence = shell.context.epoch, shell.context.epoch_zk_version
        await shell.zk.check_controller_epoch(fence=fence)
        shell.faults.reloads.inc()
        stop_hearing(shell)
        shell.begin_term(epoch, fence, again=True)
        await on_controller_failover(shell)

    async def shutdown(self) -> None:
        """The process ends: give the role up."""
        if self._suspicion_timer is not None:
            self._suspicion_timer.cancel()
        await self.trigger_controller_move()

    async def _read_holder(self) -> ControllerZNode | None:
        """Read ``/controller``, re-arm its watch, and record the holder of the role; None: it is vacant."""
        found = await self._shell.zk.get_controller(watch=True)
        if isinstance(found, BadZNode):
            # The znode cannot be read, so the holder is unknown: stand by, as brokers do.
            self._shell.report_bad_znodes([found])
            found = ControllerZNode(-1, 0, 0, 0, -1)
        if found is not None and (self.holder is None or found.owner_session != self.holder.owner_session):
            log.info(
                "Controller %d is active%s", found.controller_id, " (this process)" if self._is_ours(found) else ""
            )
        self._set_holder(found)
        self._known_epoch = None
        if found is not None and not (self.active or self.observes or self._is_ours(found)):
            self._known_epoch = await registration.known_epoch(self._shell.zk.client, found)
            if found.software == SOFTWARE and self._known_epoch is not None:  # None: it has just lost the role
                self._followed_epoch = self._known_epoch
        self.has_read_holder = True
        return found

    def _set_holder(self, holder: ControllerZNode | None) -> None:
        """Record the holder of the role; another aiocontroller is watched while it holds it."""
        self.holder = holder
        if self.mirror is not None:
            self.mirror.wake()
        if self.heartbeats is None:
            return
        if holder is not None and (self.active or self.observes or self._is_ours(holder)):
            holder = None
        if holder == self._watched:
            return
        if self._watched is not None:
            self.heartbeats.forget(self._watched.controller_id)
        self._watched = holder
        endpoint = address_of(holder, self._shell.config) if holder is not None else None
        if holder is not None and endpoint is not None:
            self.heartbeats.watch(holder.controller_id, holder.owner_session, lambda: endpoint)

    @property
    def active_and_connected(self) -> bool:
        """Whether a term is running and ZooKeeper is connected, without which nothing can be decided."""
        return self.active and self._shell.zk.client.connected

    @property
    def stands_by(self) -> bool:
        """Whether another controller was last seen to hold the role, and this process may take it next."""
        vacant = self.holder is None or self._is_ours(self.holder)
        return not (self.active or self.observes or vacant)

    @property
    def standing_by_for(self) -> int | None:
        """The id of the active controller, if it is watched and has answered heartbeats."""
        if self.heartbeats is None or self._watched is None:
            return None
        peer = self.heartbeats.detector.peers.get(self._watched.controller_id)
        return self._watched.controller_id if peer is not None and peer.answered_s is not None else None

    def _is_ours(self, holder: ControllerZNode) -> bool:
        return holder.owner_session == self._shell.zk.client.session_id

    @property
    def observes(self) -> bool:
        """Whether this process stands for no election."""
        return self.observing or self._shell.config.aiocontroller_takeover_policy == "observe"

    def only_observe(self) -> None:
        """Stand for no election, and keep no copy, until the role is requested."""
        self.observing = True
        if self.mirror is not None and not self.active:
            self.mirror.give_up()

    def own_address(self) -> str:
        """The address at which standbys reach us; empty if we listen on all interfaces and advertise no name."""
        own = self._shell.own_endpoints()
        if not own or own[0].host in ("", "0.0.0.0", "::"):
            return ""
        host = f"[{own[0].host}]" if ":" in own[0].host else own[0].host
        return f"{own[0].listener}://{host}:{own[0].port}"

    async def _win(self, permit: Permit, *, broker: ControllerZNode | None, session: int | None, idle: bool) -> None:
        """Register, deposing this broker or the controller with this session, and begin a term.

        With ``idle``, raises TopicsBeingDeletedError if the broker is deleting topics.
        """
        if broker is not None and broker.controller_id >= 0:  # else /controller is unreadable, and its owner unknown
            session = broker.owner_session
        won = await self._register(
            permit,
            self._shell.zk.register_controller_and_increment_controller_epoch(
                self._shell.id,
                self._shell.world.clock.wall_time_us() // 1000,
                takeover=broker is not None or session is not None,
                deposing=session,
                idle=idle,
                address=self.own_address(),
            ),
        )
        if won is None:
            await self._read_holder()
            return
        if broker is not None:
            log.info("Took the role from controller %d, a broker", broker.controller_id)
            if not idle and (found := await left_unfinished(self._shell, broker.controller_id)) is not None:
                log.warning("Note: %s", found)
                self._unfinished[found.broker] = found
        await self._begin_term(permit, *won)

    def unfit(self) -> list[LeftUnfinished]:
        """Brokers that may fail as the controller until they are restarted, as far as this process knows."""
        brokers = self._shell.context.brokers
        return [
            found
            for broker, found in sorted(self._unfinished.items())
            if broker in brokers and brokers[broker].epoch == found.broker_epoch
        ]

    async def _register(
        self, permit: Permit | StandingPermit, attempt: Awaitable[tuple[int, int]]
    ) -> tuple[int, int] | None:
        """Await a registration; returns epoch and fence, or None if another controller was elected first."""
        try:
            return await attempt
        except ControllerMovedError as error:
            log.info("Another controller was elected first: %s", error)
            return None

    async def _begin_term(self, permit: Permit, epoch: int, fence: int) -> None:
        """Begin a term; a permit is good for one term."""
        shell = self._shell
        self._takes_over = False
        self.refusals = ()
        self._known_epoch = self._followed_epoch = None
        apply_settings(shell)
        shell.begin_term(epoch, fence, copy=self.mirror.take() if self.mirror is not None else None)
        self.active = True
        self.since_us = shell.world.clock.wall_time_us()
        log.info("%d successfully elected as the controller, epoch %d", shell.id, epoch)
        shell.journal.append("elected", controller_epoch=epoch)
        for what in shell.settings.not_enforced:
            log.warning("Not enforced by this controller: %s", what)
        try:
            await self._fail_over()
        except OutrankedError as error:
            log.info("The term ends at once: %s", error)
            await self._resign()
            await self._read_holder()
            if self.may_contend:
                await self._contend(self.holder)  # even if it observes: it was asked
        self.failure = ""

    async def _fail_over(self) -> None:
        """Fail over with the standby's copy if there is one; if that fails, read everything in the same term."""
        if self._shell.copy is None:
            await self._watch_own()
            await on_controller_failover(self._shell)
            return
        log.info("Failing over with the copy of the cluster")
        try:
            await on_warm_failover(self._shell, self._watch_own)
        except (ControllerMovedError, SessionExpiredError, StepFailedError):
            raise
        except Exception:
            log.exception("Bug in the failover with a copy of the cluster: reading the whole cluster")
            self._shell.faults.failed_events.inc()
            await self._watch_own()  # this may be what failed
            await self.reload()

    async def _watch_own(self) -> None:
        """Arm the watch on our ``/controller``.  Raises ControllerMovedError if it is already gone."""
        holder = await self._read_holder()
        if holder is None or not self._is_ours(holder):
            # No watch was armed to report it: the one that led to ``seize`` has fired.
            raise ControllerMovedError(
                f"/controller of epoch {self._shell.context.epoch} was deleted before it was watched"
            )

    async def _resign(self) -> None:
        self._shell.journal.append("resigned", controller_epoch=self._shell.context.epoch)
        self.active = False
        self.since_us = 0
        await on_controller_resignation(self._shell)
