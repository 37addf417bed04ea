"""Clients that ask the controller to create, grow and delete topics; each answer is judged by what happened."""

from __future__ import annotations

from typing import Any

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import CreatePartitions, CreateTopics, DeleteTopics, Reply
from aiocontroller.core.request_content import NewPartitions, NewTopic
from aiocontroller.lab.scenarios.arguments import NAMES, assignment
from aiocontroller.lab.scenarios.plan import DELETION
from aiocontroller.lab.simulation.steps.operator import OperatorSteps
from aiocontroller.zookeeper import paths

TIMEOUTS_MS = (0, 500, 5_000)
BAD_FACTOR = 9


class AdminSteps(OperatorSteps):
    """Steps of clients with CreateTopics, CreatePartitions and DeleteTopics."""

    def step_request_topics(self) -> None:
        """Ask for one topic to three; some exist, some ask for too many replicas, some are only to be checked."""
        simulation, chance = self.simulation, self.chance
        answers, asked_s = simulation.history.answers, simulation.clock.monotonic()
        words = self._rest()
        names = words[:1] or chance.sample(NAMES, chance.randint(1, 3))
        only_check = not words and chance.random() < 0.2
        existed = {name: paths.topic(name) in simulation.model.tree.nodes for name in names}
        topics = [NewTopic(name, chance.randint(1, 6), chance.choice((1, 1, 2, BAD_FACTOR)), {}, {}) for name in names]
        if words:
            placed = {number: tuple(on) for number, on in assignment(words[1:]).items()}
            topics = [NewTopic(words[0], -1, -1, placed, {})]

        def answered(results: Any) -> None:
            if isinstance(results, KafkaErrorCode):
                return
            if only_check:
                simulation.history.probe("new topics only checked")
                return
            answers.created(asked_s, results)
            for topic in topics:
                simulation.history.probe(f"CreateTopics answered with {results[topic.name].error_code}")

        if not only_check:
            for topic in topics:
                if not existed[topic.name] and topic.replication_factor != BAD_FACTOR:
                    self.topics.setdefault(topic.name, len(topic.assignment) or topic.partitions)
        timeout_ms = chance.choice(TIMEOUTS_MS)
        reply = Reply(answered)
        self._ask(CreateTopics(topics=tuple(topics), timeout_ms=timeout_ms, validate_only=only_check, reply=reply))

    def step_request_partitions(self) -> None:
        """Ask for more partitions of a topic, or for fewer, which is refused."""
        simulation, name = self.simulation, self._topic()
        if name is None:
            return
        placed = tuple(tuple(on) for on in assignment(self._rest()).values())
        count = max(self.topics.get(name, 1) + (len(placed) or self.chance.choice((-1, 0, 1, 2))), 1)
        asked_s = simulation.clock.monotonic()

        def answered(results: Any) -> None:
            if not isinstance(results, KafkaErrorCode):
                simulation.history.answers.grown(asked_s, {name: count}, results)
                simulation.history.probe(f"CreatePartitions answered with {results[name].error_code}")

        self.topics[name] = max(count, self.topics.get(name, 1))
        wanted = NewPartitions(name, count, placed or None)
        timeout_ms = self.chance.choice(TIMEOUTS_MS)
        request = CreatePartitions(topics=(wanted,), timeout_ms=timeout_ms, validate_only=False, reply=Reply(answered))
        self._ask(request)

    def step_request_deletion(self) -> None:
        """Ask for the deletion of a topic, which may be unknown, or may be just going."""
        simulation = self.simulation
        name = self._topic() if self._arguments or self.chance.random() < 0.8 else self.chance.choice(NAMES)
        if name is None:
            return
        asked_s = simulation.clock.monotonic()
        if "true" in simulation.settings.ever(DELETION):
            self.topics.pop(name, None)
            self._forget_targets(name)

        def answered(results: Any) -> None:
            if not isinstance(results, KafkaErrorCode):
                simulation.history.answers.removed(asked_s, results)
                simulation.history.probe(f"DeleteTopics answered with {results[name].error_code}")

        timeout_ms = self.chance.choice(TIMEOUTS_MS)
        self._ask(DeleteTopics(topics=(name,), timeout_ms=timeout_ms, reply=Reply(answered)))
