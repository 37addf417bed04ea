"""Requests of clients and brokers to a controller's listener: bytes on a connection of their own, and the answer.

``answered`` gets the answer's entity; None if the connection ended first, or if the whole request was refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.lab.cluster.asking import ask
from aiocontroller.lab.cluster.simulated_broker import LOOPBACK
from aiocontroller.lab.simulation.steps.base import StepTaker, Targets
from aiocontroller.service import Service
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.wire.errors import FrameError

log = logging.getLogger(__name__)

REASSIGN_WITHIN_MS = 60_000


class AskingSteps(StepTaker):
    """Steps that ask controllers."""

    def _ask(self, api: ApiKey, answered: Callable[[Any], None], *, lowest: int = 0, **fields: Any) -> None:
        """Send a request, in a version of at least ``lowest``, to a controller that considers itself active.

        The controller may have been deposed.  ``fields`` are those of all versions together.
        """
        active = [s for s, process in self.simulation.controllers.values() if s.controller.election.active]
        if not active:
            return
        service = self.chance.choice(active)
        version = self.chance.randint(lowest, SUPPORTED[api].max)
        self._begin(self._send(service, api, version, fields, answered))

    async def _send(
        self, service: Service, api: ApiKey, version: int, fields: Mapping[str, Any], answered: Callable[[Any], None]
    ) -> None:
        answer, port = None, service.endpoints[0].port
        try:
            answer = await ask(self.simulation.clients, LOOPBACK, port, api, version, **fields)
        except FrameError as error:
            self.simulation.problems.append(f"answers: {api.name} version {version}: {error}")
        except (OSError, TimeoutError) as error:
            log.info("%s version %d: no answer: %r", api.name, version, error)
        if answer is not None:
            self.simulation.history.probe(f"{api.name} answered")
        answered(None if getattr(answer, "error_code", 0) else answer)


def reassignment_fields(targets: Targets) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, replicas in targets.items():
        topics.setdefault(tp.topic, []).append({"partition_index": tp.partition, "replicas": replicas})
    asked = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"timeout": REASSIGN_WITHIN_MS, "topics": asked}


def codes_of_reassignment(answer: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): int(each.error_code)
        for topic in answer.responses
        for each in topic.partitions
    }


def reassignments_listed(answer: Any) -> dict[TopicPartition, ReplicaAssignment]:
    return {
        TopicPartition(topic.name, each.partition_index): ReplicaAssignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def by_topic(partitions: Iterable[TopicPartition] | None) -> list[dict[str, Any]] | None:
    """Return the field of ElectLeaders; None for all partitions of the cluster."""
    if partitions is None:
        return None
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]


def codes_of_elections(answer: Any) -> dict[TopicPartition, tuple[int, str]]:
    return {
        TopicPartition(topic.topic, each.partition_id): (int(each.error_code), each.error_message or "")
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }
