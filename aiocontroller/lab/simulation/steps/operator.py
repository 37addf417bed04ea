"""The operator's work: topics, partitions, reassignments and elections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import RecoverPartitions
from aiocontroller.core.ids import NO_LEADER, TopicPartition
from aiocontroller.core.request_content import ElectionType
from aiocontroller.lab.checkers.history import MOST_BROKERS
from aiocontroller.lab.scenarios.arguments import NAMES
from aiocontroller.lab.scenarios.catching_up import CATCH_UP_WITHIN_S, still_behind
from aiocontroller.lab.scenarios.facts import EXPECT_WITHIN_S, judge
from aiocontroller.lab.simulation.steps.asking import (
    AskingSteps,
    by_topic,
    codes_of_elections,
    codes_of_reassignment,
    reassignment_fields,
    reassignments_listed,
)
from aiocontroller.lab.simulation.steps.base import Targets
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import decode_reassignment, encode_partitions, encode_reassignment

ELECT_WITHIN_MS = LIST_WITHIN_MS = 30_000


class OperatorSteps(AskingSteps):
    """Steps of operators, and of brokers on behalf of their clients."""

    async def step_create_topic(self) -> None:
        ids = sorted(self.simulation.brokers)
        free = [name for name in NAMES if name not in self.topics]
        name, lists = self._given.take("topic"), self._given.take("placed")
        if lists is not None:
            self.topics[name] = len(lists)
            await self._administer(self.simulation.admin.create_topic(name, dict(enumerate(lists))))
            return
        if not ids or not (free or name):
            return
        name = name or self.chance.choice(free)
        factor = self.chance.randint(1, min(3, len(ids)))
        count = self.chance.randint(1, 6)
        self.topics[name] = count
        drawn = {p: self.chance.sample(ids, factor) for p in range(count)}
        await self._administer(self.simulation.admin.create_topic(name, drawn))

    async def step_auto_create_topic(self) -> None:
        """Let a broker auto-create a topic for a client, on the brokers that it believes to be alive.

        These include the controller that it knows, as one more live broker, even if it is no longer active.
        """
        simulation = self.simulation
        broker = self._one(simulation.brokers)
        free = [name for name in NAMES if name not in self.topics]
        if broker is None or not free:
            return
        alive = sorted(simulation.brokers[broker][0].metadata.alive)
        if not alive:
            return
        name, count = self.chance.choice(free), self.chance.randint(1, 3)
        factor = self.chance.randint(1, min(3, len(alive)))
        placed = {number: self.chance.sample(alive, factor) for number in range(count)}
        if any(max(ids) > MOST_BROKERS for ids in placed.values()):
            simulation.history.probe("a controller named as a replica")
        self.topics[name] = count
        await self._administer(simulation.admin.create_topic(name, placed))

    def _topic(self) -> str | None:
        named: str | None = self._given.take("topic")
        if named is not None:
            return named
        return self.chance.choice(sorted(self.topics)) if self.topics else None

    async def step_delete_topic(self) -> None:
        name = self._topic()
        await self._delete_topics([] if name is None else [name])

    async def _delete_topics(self, names: Sequence[str]) -> None:
        for name in names:
            self.topics.pop(name, None)
            self._forget_targets(name)
            await self._administer(self.simulation.admin.delete_topic(name))

    async def step_add_partitions(self) -> None:
        simulation = self.simulation
        name = self._topic()
        if name is None or not simulation.brokers:
            return
        node = simulation.model.tree.nodes.get(paths.topic(name))
        if node is None:
            return
        await self._administer(self._add_partitions(name))

    async def _add_partitions(self, name: str) -> None:
        simulation = self.simulation
        read = await simulation.zk.get_topic_assignments([name], watch=False)
        if read.found and 0 in read.found[0].partitions:
            present = read.found[0].partitions
            factor = min(len(present[0].replicas), len(simulation.brokers))
            added = self._given.take("placed") or [self.chance.sample(sorted(simulation.brokers), factor)]
            new = {len(present) + n: on for n, on in enumerate(added)}
            self.topics[name] = len(present) + len(new)
            await simulation.admin.add_partitions(name, new)

    async def step_allow_unclean(self) -> None:
        name = self._topic()
        if name is not None:
            value = self._given.take("value") or self.chance.choice(("true", "true", "false"))
            change = {"unclean.leader.election.enable": value}
            await self._administer(self.simulation.admin.change_topic_configs(name, change))

    async def step_alter_topic_configs(self) -> None:
        """Replace a topic's settings."""
        name, settings = self._given.need("topic"), dict(self._given.need("settings"))
        await self._administer(self.simulation.admin.change_topic_configs(name, settings))

    async def step_catch_up(self) -> None:
        simulation, leader = self.simulation, self._given.take("until-leader")
        partition = self._given.need("partition")
        until_s = simulation.clock.monotonic() + CATCH_UP_WITHIN_S
        while (missing := await still_behind(simulation.zk, partition, leader, simulation.facts())) is not None:
            if simulation.clock.monotonic() > until_s:
                simulation.problems.append(missing)
                return
            await simulation.clock.sleep(0.1)

    async def step_expect(self) -> None:
        """Wait until the expectation holds, for EXPECT_WITHIN_S at most."""
        fact, simulation = self._given.take("fact") or [], self.simulation
        until_s = simulation.clock.monotonic() + EXPECT_WITHIN_S
        while (wrong := judge(fact, simulation.facts())) is not None:
            if simulation.clock.monotonic() > until_s:
                simulation.problems.append(wrong)
                return
            await simulation.clock.sleep(0.1)

    async def step_notify_isr_change(self) -> None:
        partitions = self._partitions(3)
        if partitions:
            await self._administer(self.simulation.zk.propagate_isr_changes(partitions))

    async def step_elect_by_znode(self) -> None:
        partitions = self._partitions(3)
        if partitions:
            client = self.simulation.zk.client
            data = encode_partitions(partitions)
            await self._administer(client.create(paths.PREFERRED_REPLICA_ELECTION, data))

    async def step_reassign_by_znode(self) -> None:
        targets = {tp: target for tp, target in self._targets().items() if target}
        self._forget_moves(targets)
        if targets and not await self._reassignment_waits():
            client = self.simulation.zk.client
            await self._administer(client.create(paths.REASSIGN_PARTITIONS, encode_reassignment(targets)))

    async def _reassignment_waits(self) -> bool:
        return paths.REASSIGN_PARTITIONS in self.simulation.model.tree.nodes

    def _partitions(self, most: int) -> list[TopicPartition]:
        named: list[TopicPartition] | None = self._given.take("partitions")
        if named is not None:
            return named
        known = [TopicPartition(name, n) for name in sorted(self.topics) for n in range(self.topics[name])]
        return self.chance.sample(known, min(self.chance.randint(1, most), len(known)))

    def _targets(self) -> Targets:
        moves: list[tuple[TopicPartition, tuple[int, ...] | None]] | None = self._given.take("moves")
        if moves is not None:
            return dict(moves)
        ids = sorted(self.simulation.brokers)
        if not ids:
            return {}
        factor = self.chance.randint(1, min(3, len(ids)))
        return {tp: tuple(self.chance.sample(ids, factor)) for tp in self._partitions(3)}

    def step_reassign(self) -> None:
        self.reassign(self._targets())

    def _forget_moves(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Forget the targets of these partitions before a new request; return the number of that request for each."""
        for tp in partitions:
            self.simulation.targets.pop(tp, None)
            self._moves[tp] = self._moves.get(tp, 0) + 1
        return {tp: self._moves[tp] for tp in partitions}

    def step_cancel_reassignment(self) -> None:
        moving = [tp for tp in sorted(self.simulation.targets) if tp.topic in self.topics]
        chosen = self.chance.sample(moving, 1) if moving and "partitions" not in self._given else self._partitions(2)
        self.reassign(dict.fromkeys(chosen))

    def reassign(self, targets: Targets) -> None:
        """Request a reassignment; record the targets only if it is acknowledged, since otherwise it may or may not have
        taken effect."""
        known = self.simulation.targets
        self._last_asked = dict(targets)
        moves = self._forget_moves(targets)
        asked_s = self.simulation.clock.monotonic()

        def answered(answer: Any) -> None:
            for tp in targets:
                known.pop(tp, None)  # even if all of it is refused: an earlier try may have taken effect
            if answer is None:
                return
            named = self._named_by_znode()  # the znode may move them again, if the controller has not seen it yet
            for tp, code in codes_of_reassignment(answer).items():
                by_hand = tp.topic in self.simulation.history.written_by_hand  # perhaps another target, unnoticed yet
                if code == KafkaErrorCode.NONE and (wanted := targets[tp]) is not None and not by_hand:
                    self.simulation.history.answers.operations.moved(asked_s, tp, wanted)
                target = targets[tp] if tp not in named else None
                last = self._moves[tp] == moves[tp]  # otherwise a later request may already have taken effect
                if code == KafkaErrorCode.NONE and target is not None and last and tp.topic in self.topics:
                    known[tp] = target

        if targets:
            self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, answered, **reassignment_fields(targets))

    async def step_delete_while_moving(self) -> None:
        """Delete a topic while its replicas are being moved."""
        self.step_reassign()
        moving = sorted({tp.topic for tp in self._last_asked if tp.topic in self.topics})
        if moving:
            name = self.chance.choice(moving)
            await self.simulation.clock.sleep(self.chance.choice((0.0, 0.02, 0.1)))
            del self.topics[name]
            self._forget_targets(name)
            await self._administer(self.simulation.admin.delete_topic(name))

    async def step_move_and_fail(self) -> None:
        """Override or cancel a move at a moment when a careless controller would remove all in-sync replicas.

        The move adds two replicas: one gets in sync, and the other is suspended, so the move does not end.  The
        original replicas die.  Then the move is overridden or cancelled.
        """
        simulation = self.simulation
        found = self._partitions(1)
        state = simulation.history.states.get((found[0].topic, found[0].partition)) if found else None
        others = [b for b in sorted(simulation.brokers) if state is not None and b not in state.isr]
        if state is None or len(others) < 2:
            return
        added, slow = self.chance.sample(others, 2)
        self._pause_process(simulation.brokers[slow][1], self.chance.choice((2.5, 12.0)))
        self.reassign({found[0]: (added, slow)})
        await simulation.clock.sleep(1.0)
        for broker in state.isr:
            if broker in simulation.brokers:
                simulation.kill(simulation.brokers.pop(broker)[1])
        await simulation.clock.sleep(self.chance.choice((0.1, 5.0, 7.0)))
        ids = [b for b in sorted(simulation.brokers) if b != added]
        self.reassign({found[0]: (self.chance.choice(ids),) if ids and self.chance.random() < 0.4 else None})

    async def step_undo_under_another(self) -> None:
        """Start a move that cannot end; let another controller take over and override it; then let the first one
        return."""
        simulation = self.simulation
        found = self._partitions(1)
        state = simulation.history.states.get((found[0].topic, found[0].partition)) if found else None
        others = [b for b in sorted(simulation.brokers) if state is not None and b not in state.isr]
        if state is None or not others:
            return
        slow = self.chance.choice(others)
        self._pause_process(simulation.brokers[slow][1], 2.5)
        for target in ((slow,), state.isr[:1]):
            self.reassign({found[0]: target})
            await simulation.clock.sleep(0.2)
            holder = simulation.holder()
            if holder in simulation.controllers:
                self._pause_process(simulation.controllers[holder][1], 0.3)  # so that another controller wins
            simulation.model.remove(paths.CONTROLLER, simulation.zookeeper.now_ms())
            await simulation.clock.sleep(0.5)

    def _named_by_znode(self) -> set[TopicPartition]:
        node = self.simulation.model.tree.nodes.get(paths.REASSIGN_PARTITIONS)
        requested = None if node is None else decode_reassignment(node.data or b"")
        return set(requested) if isinstance(requested, dict) else set()

    def _forget_targets(self, topic: str) -> None:
        known = self.simulation.targets
        for tp in [tp for tp in known if tp.topic == topic]:
            del known[tp]

    def step_elect_preferred(self) -> None:
        """Ask for preferred leaders; drawn, the step now and then asks for an unclean election."""
        named = "partitions" in self._given
        partitions = tuple(self._partitions(3))
        drawn = self.chance.choice((ElectionType.PREFERRED, ElectionType.PREFERRED, ElectionType.UNCLEAN))
        if partitions:
            self._elect(ElectionType.PREFERRED if named else drawn, partitions)

    def step_elect_unclean(self) -> None:
        if partitions := tuple(self._partitions(3)):
            self._elect(ElectionType.UNCLEAN, partitions)

    def step_recover(self) -> None:
        """Make the best log lead, or a given broker whatever its log holds, as ``aiocontroller recover`` does.

        Drawn, the step takes a partition without a leader, if there is one.
        """
        simulation, named = self.simulation, "partitions" in self._given
        partitions, states = self._partitions(1), simulation.history.states
        offline = [TopicPartition(*tp) for tp, state in sorted(states.items()) if state.leader == NO_LEADER]
        if offline and not named:
            partitions = [self.chance.choice(offline)]
        holder, leader = simulation.holder(), self._given.take("leader")
        if not partitions or holder not in simulation.controllers:
            return
        partition = partitions[0]
        if leader is None and not named and self.chance.random() < 0.5:
            leader = self._one(simulation.brokers)
        simulation.history.ordered(partition, leader)

        def answered(answer: object) -> None:
            found = answer if isinstance(answer, list) else []
            simulation.history.probe(f"recover: {found[0].result if found else 'refused'}")

        asked = RecoverPartitions(
            reply=Reply(answered), topic=partition.topic, partition=partition.partition, leader=leader
        )
        simulation.controllers[holder][0].queue.append(asked)

    def step_elect_everywhere(self) -> None:
        """Ask for elections in the whole cluster, as kafka-leader-election --all-topic-partitions does."""
        self._elect(self.chance.choice((ElectionType.PREFERRED, ElectionType.UNCLEAN)), None)

    def _elect(self, kind: ElectionType, partitions: tuple[TopicPartition, ...] | None) -> None:
        history, asked_s = self.simulation.history, self.simulation.clock.monotonic()
        if kind is ElectionType.UNCLEAN:
            history.unclean.requested(partitions)

        def answered(answer: Any) -> None:
            if answer is not None:
                history.answers.elected(kind, asked_s, codes_of_elections(answer), history.written_by_hand)

        asked = {"election_type": kind.value, "topic_partitions": by_topic(partitions), "timeout": ELECT_WITHIN_MS}
        self._ask(ApiKey.ELECT_LEADERS, answered, lowest=1, **asked)

    def step_allocate_producer_ids(self) -> None:
        broker, history = self._one(self.simulation.brokers), self.simulation.history

        def answered(block: Any) -> None:
            if block is not None:
                history.answers.allocated(broker or 0, block.producer_id_start, block.producer_id_len)

        if broker is not None:
            epoch = self.simulation.brokers[broker][0].epoch
            self._ask(ApiKey.ALLOCATE_PRODUCER_IDS, answered, broker_id=broker, broker_epoch=epoch)

    def step_list_reassignments(self) -> None:
        history, asked_s = self.simulation.history, self.simulation.clock.monotonic()

        def answered(answer: Any) -> None:
            if answer is not None:
                history.answers.listed(asked_s, None, reassignments_listed(answer), history.written_by_hand)

        self._ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, answered, timeout=LIST_WITHIN_MS, topics=None)
