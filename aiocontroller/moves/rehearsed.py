"""Shows what a move would send and write, by running the mover on a copy of the cluster, where moves end at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiocontroller.core.ids import NO_LEADER, ReplicaAssignment, TopicPartition
from aiocontroller.core.moving import MoveView
from aiocontroller.core.throttles import Entity
from aiocontroller.moves.mover import MoverChange, MoverCluster


class RehearsedCluster:
    """Answers as ``cluster`` did at the first look; moves change only that answer.

    ``report`` is called with each request and write, as values for JSON.
    """

    def __init__(self, cluster: MoverCluster, report: Callable[[dict[str, Any]], object]) -> None:
        self._cluster, self._report = cluster, report
        self._view: MoveView | None = None
        self._rated: set[Entity] = set()  # membership only

    async def look(self) -> MoveView:
        """Return the view; only the first look asks the real cluster."""
        if self._view is None:
            self._view = await self._cluster.look()
        return self._view

    async def sizes(self, partitions: Sequence[TopicPartition]) -> Mapping[int, Mapping[TopicPartition, int]]:
        """Ask the real cluster."""
        return await self._cluster.sizes(partitions)

    async def check_controller(self) -> None:
        """Ask the real cluster."""
        await self._cluster.check_controller()

    async def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, str]:
        """End every move at once."""
        assert self._view is not None
        partitions = dict(self._view.partitions)
        for tp, target in targets.items():
            now = partitions[tp]
            replicas = now.assignment.origin if target is None else target
            leads = now.leader in replicas or not replicas
            in_sync = tuple(broker for broker in replicas if broker in self._view.live)
            leader = now.leader if leads else next(iter(in_sync), NO_LEADER)
            partitions[tp] = now._replace(assignment=ReplicaAssignment(replicas), leader=leader, isr=in_sync)
        self._view = self._view._replace(partitions=partitions)
        self._report({"send": "AlterPartitionReassignments", "partitions": [(*tp, to) for tp, to in targets.items()]})
        return {}

    async def elect(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
        """Report the request, and refuse nothing."""
        self._report({"send": "ElectLeaders", "partitions": [tuple(tp) for tp in partitions]})
        return {}

    async def change(self, entity: Entity, change: MoverChange) -> None:
        """Report a broker's throttle only once: how its rate would adapt to the cluster is unknown."""
        assert self._view is not None
        present = dict(self._view.throttles.get(entity, {}))
        changes = dict(change(present))
        now = {name: value for name, value in {**present, **changes}.items() if value is not None}
        self._view = self._view._replace(throttles={**self._view.throttles, entity: now})
        if entity in self._rated and entity[0] == "brokers" and now:
            return
        self._rated.add(entity)
        self._report({"write": f"/config/{entity[0]}/{entity[1]}", "settings": changes})
