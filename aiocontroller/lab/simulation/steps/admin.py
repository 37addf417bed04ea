"""Clients that ask the controller to create, grow and delete topics; each answer is judged by what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiocontroller.core.request_content import TopicResult
from aiocontroller.lab.scenarios.arguments import NAMES
from aiocontroller.lab.scenarios.plan import DELETION
from aiocontroller.lab.simulation.steps.operator import OperatorSteps
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths

TIMEOUTS_MS = (0, 500, 5_000)
BAD_FACTOR = 9


class AdminSteps(OperatorSteps):
    """Steps of clients with CreateTopics, CreatePartitions and DeleteTopics."""

    def step_request_topics(self) -> None:
        """Ask for one to three topics, some of which exist or get too many replicas; sometimes only validate them."""
        simulation, chance = self.simulation, self.chance
        answers, asked_s = simulation.history.answers, simulation.clock.monotonic()
        named, placed = self._given.take("topic"), self._given.take("placed") or []
        names = chance.sample(NAMES, chance.randint(1, 3)) if named is None else [named]
        only_check = named is None and chance.random() < 0.2
        existed = {name: paths.topic(name) in simulation.model.tree.nodes for name in names}
        topics = [_new(name, chance.randint(1, 6), chance.choice((1, 1, 2, -1, BAD_FACTOR))) for name in names]
        if named is not None:
            topics = [_new(named, -1, -1, dict(enumerate(placed)))]

        def answered(answer: Any) -> None:
            if answer is None:
                return
            if only_check:
                simulation.history.probe("new topics only checked")
                return
            results = {
                each.name: TopicResult(int(each.error_code), partitions=getattr(each, "num_partitions", -1))
                for each in answer.topics
            }
            answers.created(asked_s, results)
            self._probe("CreateTopics", results)

        if not only_check:
            for topic in topics:
                if not existed[topic["name"]] and topic["replication_factor"] != BAD_FACTOR:
                    self.topics.setdefault(topic["name"], len(topic["assignments"]) or topic["num_partitions"])
        fields = {"topics": topics, "timeout": chance.choice(TIMEOUTS_MS), "validate_only": only_check}
        self._ask(ApiKey.CREATE_TOPICS, answered, lowest=1, **fields)

    def step_request_partitions(self) -> None:
        """Ask for more partitions of a topic, or for fewer, which is refused."""
        simulation, name = self.simulation, self._topic()
        if name is None:
            return
        placed = tuple(self._given.take("placed") or ())
        count = max(self.topics.get(name, 1) + (len(placed) or self.chance.choice((-1, 0, 1, 2))), 1)
        asked_s = simulation.clock.monotonic()

        def answered(answer: Any) -> None:
            if answer is not None:
                results = {each.name: TopicResult(int(each.error_code)) for each in answer.results}
                simulation.history.answers.grown(asked_s, {name: count}, results)
                self._probe("CreatePartitions", results)

        self.topics[name] = max(count, self.topics.get(name, 1))
        added = [{"broker_ids": on} for on in placed] if placed else None
        topics = [{"name": name, "count": count, "assignments": added}]
        timeout_ms = self.chance.choice(TIMEOUTS_MS)
        self._ask(ApiKey.CREATE_PARTITIONS, answered, topics=topics, timeout=timeout_ms, validate_only=False)

    def step_request_deletion(self) -> None:
        """Ask for the deletion of a topic, which may be unknown or already being deleted."""
        simulation = self.simulation
        name = self._topic() if "topic" in self._given or self.chance.random() < 0.8 else self.chance.choice(NAMES)
        if name is None:
            return
        asked_s = simulation.clock.monotonic()
        if "true" in simulation.settings.ever(DELETION):
            self.topics.pop(name, None)
            self._forget_targets(name)

        def answered(answer: Any) -> None:
            if answer is not None:
                results = {each.name: TopicResult(int(each.error_code)) for each in answer.responses}
                simulation.history.answers.removed(asked_s, results)
                self._probe("DeleteTopics", results)

        topics = [{"name": name, "topic_id": None}]  # from version 6 on
        timeout_ms = self.chance.choice(TIMEOUTS_MS)
        self._ask(ApiKey.DELETE_TOPICS, answered, timeout=timeout_ms, topics=topics, topic_names=[name])

    def _probe(self, api: str, results: Mapping[str, TopicResult]) -> None:
        for result in results.values():
            self.simulation.history.probe(f"{api} answered with {result.error_code}")


def _new(name: str, partitions: int, factor: int, placed: Mapping[int, Sequence[int]] | None = None) -> dict[str, Any]:
    assignments = [{"partition_index": number, "broker_ids": on} for number, on in (placed or {}).items()]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": assignments,
        "configs": [],
    }
