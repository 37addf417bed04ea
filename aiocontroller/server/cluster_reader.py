"""A standby's view of the cluster: read from ZooKeeper when a client asks, and cached for a moment.

A client asks a standby when it has not learned of the new controller yet, or when it was configured with this address.
It gets the current metadata, which no longer lists this node, so it moves on at once; a refusal would make it wait for
its back-off.  An active aiocontroller is listed as a node, with its address from ``/controller``.

Work is bounded: one read at a time, of at most ``MAX_PARTITIONS``; larger requests are refused by closing the
connection, which sends the client to another node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import anyio

from aiocontroller.controller.shell import ControllerShell, address_of, entry_of
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Broker, LeaderAndIsr
from aiocontroller.server.cluster_view import ClusterView, cluster_view, in_charge
from aiocontroller.zookeeper.znodes import BadZNode, ControllerZNode

KEPT_S = 1.0
WITHIN_S = 5.0
MAX_TOPICS = 2_000
MAX_PARTITIONS = 20_000
Topics = Sequence[str] | None
"""Topic names; None for all topics."""


class Found(NamedTuple):
    """``context`` holds the requested topics and all brokers."""

    context: ControllerContext
    controller: int
    """-1: no controller, or one whose address is not known."""
    other: Broker | None
    """The active controller as a live broker, if it is an aiocontroller."""


class TooLargeError(BadInputError):
    """The request needs more data than a standby reads for one client."""


class ClusterReader:
    """Reads brokers and topics from ZooKeeper for a process that is not active; keeps what it read for a second."""

    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell
        self._turn = anyio.Lock()
        self._kept: tuple[float, frozenset[str] | None, Found] | None = None

    async def read(self, topics: Topics) -> Found:
        """Read brokers and these topics; TooLargeError; TimeoutError when ZooKeeper does not answer in time."""
        wanted = None if topics is None else frozenset(topics)
        with anyio.fail_after(WITHIN_S):
            return await self._in_turn(wanted)

    async def _in_turn(self, wanted: frozenset[str] | None) -> Found:
        async with self._turn:
            now_s = self._shell.world.clock.monotonic()
            if self._kept is not None:
                since_s, held, found = self._kept
                if now_s - since_s < KEPT_S and (held is None or (wanted is not None and wanted <= held)):
                    return found
            found = await self._read(None if wanted is None else sorted(wanted))
            self._kept = now_s, wanted, found
            return found

    async def _read(self, topics: list[str] | None) -> Found:
        zk, context = self._shell.zk, ControllerContext()
        brokers, _ = await zk.get_all_brokers_in_cluster(watch=False)
        context.add_brokers(brokers)
        holder = await zk.get_controller(watch=False)
        controller, other = self._controller(holder, context)
        if topics is None:
            topics = await zk.get_all_topics_in_cluster(watch=False)
        if len(topics) > MAX_TOPICS:
            raise TooLargeError(
                f"found {len(topics)} topics asked for, expected at most {MAX_TOPICS} of a process that is not active"
            )
        await self._take(context, topics)
        context.loaded = True
        return Found(context, controller, other)

    def _controller(
        self, holder: ControllerZNode | BadZNode | None, context: ControllerContext
    ) -> tuple[int, Broker | None]:
        if holder is None or isinstance(holder, BadZNode) or holder.controller_id == self._shell.id:
            return -1, None  # our own term is starting or ending
        if holder.controller_id in context.brokers:
            return holder.controller_id, None
        config = self._shell.config
        at = address_of(holder, config)
        if at is None:
            return -1, None
        return holder.controller_id, entry_of(holder.controller_id, [at], config, context)

    async def _take(self, context: ControllerContext, topics: Sequence[str]) -> None:
        table = context.table
        read = await self._shell.zk.get_topic_assignments(topics, watch=False)
        found = sum(len(topic.partitions) for topic in read.found)
        if found > MAX_PARTITIONS:
            raise TooLargeError(
                f"found {found} partitions asked for, expected at most {MAX_PARTITIONS} of a process that is not active"
            )
        rows: list[int] = []
        names: list[str] = []
        for topic in read.found:
            rows += table.add_partitions(table.add_topic(topic.topic, topic.topic_id), topic.partitions)
            names += [topic.topic] * len(topic.partitions)
        states = await self._shell.zk.get_topic_partition_states(names, [table.index_of[row] for row in rows])
        for row, state in zip(rows, states, strict=True):
            if isinstance(state, LeaderAndIsr):
                table.set_leadership(row, state)


class ClusterSource:
    """Views of the cluster, of the active controller and of a standby."""

    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell
        self._reader = ClusterReader(shell)
        self._cluster_id: str | None = None

    async def cluster_id(self) -> str | None:
        """The cluster id, which never changes."""
        if self._cluster_id is None:
            found = await self._shell.zk.get_cluster_id()
            self._cluster_id = None if isinstance(found, BadZNode) else found
        return self._cluster_id

    async def view(self, topics: Topics) -> tuple[ClusterView, int]:
        """A view with at least these topics, and the controller's id.  The active controller does not wait."""
        if in_charge(self._shell):
            return cluster_view(self._shell), self._shell.id
        context, controller, other = await self._reader.read(topics)
        if self._shell.channels is not None:
            # Brokers list us already: clients drop a node that is missing from an answer, with their requests to it.
            return ClusterView(self._shell.config, context, self._shell.own_entry()), self._shell.id
        return ClusterView(self._shell.config, context, other), controller
