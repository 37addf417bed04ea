"""A warm standby: keeps a copy of the topics and partition states up to date while another controller is active.

 1. It arms one watch on everything, then reads everything (``core.mirror`` has the copy and its marks).
 2. A notification marks a topic or a partition.  What is marked is read again in batches, of up to 1,500 states, and
    taken in by steps of a few milliseconds.
 3. When this process wins the role, the consumer takes the copy (``take``), in the same turn in which its term begins.
    ZooKeeper replies to the election's multi after the notifications of all earlier writes, and from then on the
    fence keeps earlier controllers out: so everything that is not marked is as the copy has it.
 4. A lost connection may cost notifications.  The watch is armed again first, then everything is read again.  The next
    server may be of another release, so it has to confirm that the watch is armed; until then the copy cannot be used.
    ZooKeeper before 3.6 refuses and closes the connection, so each of its servers is asked only once, until a
    connection is lost for another reason.

The copy belongs to this task until it is taken.  Without a copy (``state``), a failover reads everything.  A bug here
costs the copy, not the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.columns import take
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.mirror import MirroredCluster
from aiocontroller.core.ownership import NotTheOwnerError
from aiocontroller.zookeeper.errors import RecursiveWatchUnsupportedError
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.session_events import SessionEvent
from aiocontroller.zookeeper.topics_watch import TopicsWatch
from aiocontroller.zookeeper.znode_json import BadZNode
from aiocontroller.zookeeper.znodes import PartitionStates

log = logging.getLogger(__name__)

TOPICS_AT_ONCE = 100
PARTITIONS_AT_ONCE = 1_000
"""Partitions of topics that one step takes in."""
STATES_AT_ONCE = 1_500
"""States that are read together and taken in by one step, in less than ten milliseconds."""
LOSSES, LOSSES_WITHIN_S = 5, 60.0
"""After so many lost connections within this time, the standby is cold for as long."""
RETRY_S, LONGEST_RETRY_S = 1.0, 30.0
"""How long to wait after a failed read; doubled each time."""
MOST_BEHIND = 1_000
"""A copy with more to read again than this, and than half the partitions, saves no time."""


class _LetGoError(Exception):
    """The copy was taken or given up while its task was reading."""


class Mirror:
    """Keeps the copy.  ``run`` never ends by itself; ``wake`` signals that the role may have moved."""

    def __init__(self, shell: ControllerShell, standing_by: Callable[[], bool]) -> None:
        self.state = "off"
        """``off``, ``loading``, ``warm``, ``taken`` (the role was won), or ``cold``, which ``reason`` explains."""
        self.reason = ""
        self._shell = shell
        self._standing_by = standing_by
        self._watch = TopicsWatch(shell.zk.client)
        self._cluster: MirroredCluster | None = None
        self._task: asyncio.Task[Any] | None = None
        self._woken = asyncio.Event()
        self._behind_since_s: float | None = None
        self._armed = False
        """The server of the current connection has confirmed the watch."""
        self._refusing: set[tuple[str, int] | None] = set()
        """Servers that do not support such watches; others may."""
        self._suspensions = 0
        self._failures = 0
        """Failed reads in a row."""
        self._losses: deque[float] = deque(maxlen=LOSSES)
        metrics = shell.metrics
        metrics.gauge("aiocontroller", "Standby", "Warm", lambda: int(self.state == "warm"))
        metrics.gauge("aiocontroller", "Standby", "Behind", lambda: self._cluster.behind if self._cluster else 0)
        metrics.gauge("aiocontroller", "Standby", "LagMs", lambda: int(1000 * self._lag_s()))
        metrics.gauge("aiocontroller", "Standby", "MemoryBytes", self._memory_bytes)
        self._reloads = metrics.counter("aiocontroller", "Standby", "Reloads")
        shell.on_copy_dropped = self.wake

    # -- notifications ---------------------------------------------------------------------------------------------

    def topic_changed(self, name: str, *, deleted: bool = False) -> None:
        """A topic's znode has changed, or is gone."""
        if self._cluster is not None:
            self._cluster.topic_changed(name, deleted=deleted)
            self._heard()

    def state_changed(self, topic: str, partition: int) -> None:
        """A partition's state has changed."""
        if self._cluster is not None:
            self._cluster.state_changed(topic, partition)
            self._heard()

    def _heard(self) -> None:
        if self._behind_since_s is None:
            self._behind_since_s = self._shell.world.clock.monotonic()
        self.wake()

    # -- from the consumer -----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Check again whether to keep a copy."""
        self._woken.set()

    def give_up(self) -> None:
        """Drop the copy: this process stands for no election."""
        if self._cluster is not None:
            self._let_go("taken")  # nothing has taken it, but in this state the watch is removed
        self.wake()

    def take(self) -> MirroredCluster | None:
        """Return the copy for a term that begins in this turn, if it can differ from ZooKeeper only in what is marked.

        From now on changes are reported to the consumer, for as long as it has the copy (``ControllerShell.copy``).
        """
        cluster, self._cluster = self._cluster, None
        self._watch.pass_on(self._is_moving)
        self._let_go("taken")
        self.wake()
        if cluster is None or not cluster.is_whole or not self._armed:
            return None
        if cluster.behind > max(MOST_BEHIND, len(cluster.context.table) // 2):
            log.info("%d parts of the copy of the cluster are out of date: reading all of it again", cluster.behind)
            return None
        return cluster

    def on_session(self, event: SessionEvent) -> bool:
        """Return whether the active controller may have missed changes, so that it has to load the cluster again."""
        if event in (SessionEvent.SUSPENDED, SessionEvent.EXPIRED):
            self._armed = False
            self._suspensions += 1
        elif not self._shell.zk.client.session.was_refused:
            self._refusing.clear()
        if event is SessionEvent.EXPIRED:
            self._let_go("off")
        elif self._cluster is not None:
            self._lost(self._cluster, again=event is SessionEvent.RECONNECTED)
        self.wake()
        return event is SessionEvent.RECONNECTED and self._shell.copy is not None

    @property
    def _refused(self) -> bool:
        """Whether the server of the current connection does not support such watches."""
        return self._shell.zk.client.session.connected_to in self._refusing

    def _lost(self, cluster: MirroredCluster, *, again: bool) -> None:
        """Mark everything: the connection is lost, or is back (``again``), and changes in between are not reported."""
        now_s = self._shell.world.clock.monotonic()
        self.state = "loading"
        self._behind_since_s = now_s if self._behind_since_s is None else self._behind_since_s
        cluster.mark_all()
        if again:
            self._losses.append(now_s)
            if len(self._losses) == LOSSES and self._losses[0] > now_s - LOSSES_WITHIN_S:
                self._become_cold(f"the connection to ZooKeeper was lost {LOSSES} times within {LOSSES_WITHIN_S:.0f} s")

    def _is_moving(self, topic: str, partition: int) -> bool:
        context = self._shell.context
        return context.table.row(topic, partition) in context.partitions_being_reassigned

    # -- the task --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the copy while this process stands by."""
        self._task = asyncio.current_task()
        while True:
            try:
                await self._go_on()
            except _LetGoError:
                pass
            except RecursiveWatchUnsupportedError as error:
                self._refusing.add(self._shell.zk.client.session.connected_to)
                self._become_cold(str(error))
            except (exc.ZKError, OSError) as error:
                log.debug("The standby cannot read the cluster: %s", error)
                self._let_go("off")
                if self.state == "off":
                    self.reason = f"the cluster cannot be read: {error!r}"
                self._failures += 1
                pause_s = RETRY_S * 2.0 ** min(self._failures - 1, 30)  # floats overflow
                await self._shell.world.clock.sleep(min(pause_s, LONGEST_RETRY_S))
            except Exception as error:
                log.exception("Bug in the standby's copy of the cluster")
                self._shell.journal.append("fault", event="copy of the cluster", detail=repr(error))
                self._shell.faults.failed_events.inc()
                self._become_cold(f"a bug: {error!r}")

    async def _go_on(self) -> None:
        if self._standing_by() and self.state != "cold":
            await self._follow()
        elif self.state == "cold" and not self._refused:
            await self._watch.remove()
            await self._shell.world.clock.sleep(LOSSES_WITHIN_S)
            self._losses.clear()
            self.state, self.reason = "off", ""
        elif self.state == "taken" and self._shell.copy is None:
            await self._watch.remove()
            self.state = "off"
        else:
            await self._woken.wait()
            self._woken.clear()
            if self.state == "cold" and not self._refused:
                self.state = "off"  # another server

    async def _follow(self) -> None:
        """Keep a copy until it is taken or given up (_LetGoError), or has to start afresh."""
        cluster = self._cluster = self._new_cluster()
        self.state, self.reason = "loading", ""
        self._armed = False
        while not cluster.is_crowded:
            self._check(cluster)
            cluster.time_is(self._shell.world.clock.wall_time_us())
            self._woken.clear()
            if not self._armed:
                await self._arm(cluster)
            elif cluster.list_is_marked:
                cluster.list_read(self._still(cluster, await self._shell.zk.get_all_topics_in_cluster(watch=False)))
            elif cluster.topics:
                await self._read_topics(cluster)
            elif cluster.behind:
                await self._read_states(cluster)
            else:
                self._behind_since_s = None
                await self._woken.wait()
            self._see_whether_warm(cluster)
        log.info("The standby's copy of the cluster starts afresh, as most of its values are no longer in use")

    async def _arm(self, cluster: MirroredCluster) -> None:
        """Arm the watch: reads after this miss no change, unless the connection is lost again."""
        suspensions = self._suspensions
        await self._watch.listen(self)
        self._check(cluster)
        if self._suspensions == suspensions:
            self._armed = True
            self._reloads.inc()
            cluster.mark_all()

    def _see_whether_warm(self, cluster: MirroredCluster) -> None:
        """Become warm once at most 1 % of the partitions are behind: on a busy cluster some always are."""
        partitions = len(cluster.context.table)
        if self.state == "loading" and self._armed and cluster.is_whole and cluster.behind <= partitions // 100:
            self.state, self._failures = "warm", 0
            cluster.became_complete()
            log.info("Warm standby: a copy of %d partitions is kept up to date", partitions)

    async def _read_topics(self, cluster: MirroredCluster) -> None:
        names = cluster.take_topics(TOPICS_AT_ONCE)
        read = self._still(cluster, await self._shell.zk.get_topic_assignments(names, watch=False))
        bad = {znode.path.rpartition("/")[2] for znode in read.bad}
        cluster.topics_read((), unreadable=[name for name in names if name in bad], missing=read.missing)
        step, partitions = [], 0
        for assignment in read.found:
            step.append(assignment)
            partitions += len(assignment.partitions)
            if partitions >= PARTITIONS_AT_ONCE:
                cluster.topics_read(step)
                step, partitions = [], 0
                await self._shell.breathe()
                self._check(cluster)
        cluster.topics_read(step)

    async def _read_states(self, cluster: MirroredCluster) -> None:
        rows = cluster.take_rows(STATES_AT_ONCE)
        if not cluster.waiting:
            self._behind_since_s = self._shell.world.clock.monotonic()  # this read covers all earlier changes
        table = cluster.context.table
        topics, numbers = take(rows, table.topic_of, table.index_of)
        names = {number: topic.name for number in set(topics) if (topic := table.topics[number]) is not None}
        read: list[PartitionStates] = []

        async def receive(states: PartitionStates) -> None:
            read.append(states)

        await self._shell.zk.each_topic_partition_states([names[n] for n in topics], numbers, receive)
        self._check(cluster)
        at = 0
        for states in read:
            part, at = rows[at : at + len(states.number)], at + len(states.number)
            unreadable = {number for number, value in enumerate(states.values) if isinstance(value, BadZNode)}
            cluster.states_read(
                part,
                [value if isinstance(value, LeaderAndIsr) else None for value in states.values],
                states.number,
                states.version,
                [row for row, number in zip(part, states.number, strict=True) if number in unreadable],
            )
        await self._shell.breathe()

    def _still(self, cluster: MirroredCluster, read: Any) -> Any:
        """Return what was read, unless the copy was taken or given up meanwhile (_LetGoError)."""
        self._check(cluster)
        return read

    def _check(self, cluster: MirroredCluster) -> None:
        if self._cluster is not cluster:
            raise _LetGoError

    def _new_cluster(self) -> MirroredCluster:
        made: list[MirroredCluster] = []

        def check() -> None:
            """In debug mode, before each change of the copy's context."""
            if made and self._cluster is not made[0]:
                self._shell.check_owner()
            elif (task := asyncio.current_task()) is not self._task:
                raise NotTheOwnerError(f"{task!r} changes the copy of {self._task!r}")

        made.append(MirroredCluster(self._shell.new_context(check)))
        return made[0]

    def _let_go(self, state: str) -> None:
        self._cluster = None
        self._behind_since_s = None
        if self.state != "cold":
            self.state = state

    def _become_cold(self, reason: str) -> None:
        log.warning("Cold standby, so a failover reads everything: %s", reason)
        self._let_go("cold")
        self.state, self.reason = "cold", reason
        self.wake()

    @property
    def copy(self) -> MirroredCluster | None:
        """The copy, for checkers; None while there is none."""
        return self._cluster

    # -- status ----------------------------------------------------------------------------------------------------

    def _lag_s(self) -> float:
        since_s = self._behind_since_s
        return 0.0 if since_s is None else self._shell.world.clock.monotonic() - since_s

    def _memory_bytes(self) -> int:
        return 0 if self._cluster is None else self._cluster.memory_bytes()

    def status(self) -> dict[str, Any]:
        """For ``/status``, as JSON values."""
        cluster = self._cluster
        return {
            "state": self.state,
            "reason": self.reason,
            "partitions": 0 if cluster is None else len(cluster.context.table),
            "behind": 0 if cluster is None else cluster.behind,
            "lag_ms": round(1000 * self._lag_s(), 1),
            "memory_bytes": self._memory_bytes(),
        }
