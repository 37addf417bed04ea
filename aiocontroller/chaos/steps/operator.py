"""The operator's work: topics, partitions, reassignments, elections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiocontroller.chaos.facts import EXPECT_WITHIN_S, judge
from aiocontroller.chaos.history import MOST_BROKERS
from aiocontroller.chaos.steps.taking import StepTaker, Targets
from aiocontroller.chaos.words import NAMES, assignment, partition, replicas
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    AllocateProducerIds,
    ApiPartitionReassignment,
    ElectionType,
    ListPartitionReassignments,
    ReplicaLeaderElection,
    Reply,
    Request,
)
from aiocontroller.core.ids import TopicPartition
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import decode_reassignment, encode_partitions, encode_reassignment


class OperatorSteps(StepTaker):
    """What operators do, and brokers in their name."""

    async def step_create_topic(self) -> None:
        ids = sorted(self.simulation.brokers)
        free = [name for name in NAMES if name not in self.topics]
        if words := self._rest():
            placed = assignment(words[1:])
            self.topics[words[0]] = len(placed)
            await self._administer(self.simulation.admin.create_topic(words[0], placed))
            return
        if not ids or not free:
            return
        name = self.chance.choice(free)
        factor = self.chance.randint(1, min(3, len(ids)))
        count = self.chance.randint(1, 6)
        self.topics[name] = count
        drawn = {p: self.chance.sample(ids, factor) for p in range(count)}
        await self._administer(self.simulation.admin.create_topic(name, drawn))

    async def step_auto_create_topic(self) -> None:
        """A broker makes a topic that somebody asked it for, among the brokers that it takes for alive.

        The controller that it knows stands among those, as one more live broker; it may be out of office by now.
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
        if self._words:
            return self._words.popleft()
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
            placed = list(assignment(self._rest()).values())
            added = placed or [self.chance.sample(sorted(simulation.brokers), factor)]
            new = {len(present) + n: on for n, on in enumerate(added)}
            self.topics[name] = len(present) + len(new)
            await simulation.admin.add_partitions(name, new)

    async def step_allow_unclean(self) -> None:
        name = self._topic()
        if name is not None:
            value = self._words.popleft() if self._words else self.chance.choice(("true", "true", "false"))
            change = {"unclean.leader.election.enable": value}
            await self._administer(self.simulation.admin.change_topic_configs(name, change))

    async def step_expect(self) -> None:
        """What must hold, now or soon."""
        words, simulation = self._rest(), self.simulation
        until_s = simulation.clock.monotonic() + EXPECT_WITHIN_S
        while (wrong := judge(words, simulation.facts())) is not None:
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
        if self._words:
            return [partition(word) for word in self._rest()]
        known = [TopicPartition(name, n) for name in sorted(self.topics) for n in range(self.topics[name])]
        return self.chance.sample(known, min(self.chance.randint(1, most), len(known)))

    def _targets(self) -> Targets:
        if words := self._rest():
            return {partition(name): replicas(to) for name, to in zip(words[::2], words[1::2], strict=True)}
        ids = sorted(self.simulation.brokers)
        if not ids:
            return {}
        factor = self.chance.randint(1, min(3, len(ids)))
        return {tp: tuple(self.chance.sample(ids, factor)) for tp in self._partitions(3)}

    def step_reassign(self) -> None:
        self._reassign(self._targets())

    def _forget_moves(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Something else is asked of them now; returns the number of this request, for each."""
        for tp in partitions:
            self.simulation.targets.pop(tp, None)
            self._moves[tp] = self._moves.get(tp, 0) + 1
        return {tp: self._moves[tp] for tp in partitions}

    def step_cancel_reassignment(self) -> None:
        moving = [tp for tp in sorted(self.simulation.targets) if tp.topic in self.topics]
        chosen = self.chance.sample(moving, 1) if moving and not self._words else self._partitions(2)
        self._reassign(dict.fromkeys(chosen))

    def _reassign(self, targets: Targets) -> None:
        """What is not acknowledged may have happened: then nothing is known of where the partition is to be."""
        known = self.simulation.targets
        self._last_asked = dict(targets)
        moves = self._forget_moves(targets)

        def answered(answers: Any) -> None:
            for tp in targets:
                known.pop(tp, None)  # also where all of it is refused: it may have been carried out before
            if isinstance(answers, KafkaErrorCode):
                return
            named = self._named_by_znode()  # by which they may be moved again, if the controller did not see it yet
            for tp, (code, _) in answers.items():
                target = targets[tp] if tp not in named else None
                last = self._moves[tp] == moves[tp]  # else what was asked later may have been done already
                if code == KafkaErrorCode.NONE and target is not None and last and tp.topic in self.topics:
                    known[tp] = target

        self._ask(ApiPartitionReassignment(targets=targets, reply=Reply(answered)) if targets else None)

    async def step_delete_while_moving(self) -> None:
        """A topic is asked to go while its replicas are on their way."""
        self.step_reassign()
        moving = sorted({tp.topic for tp in self._last_asked if tp.topic in self.topics})
        if moving:
            name = self.chance.choice(moving)
            await self.simulation.clock.sleep(self.chance.choice((0.0, 0.02, 0.1)))
            del self.topics[name]
            self._forget_targets(name)
            await self._administer(self.simulation.admin.delete_topic(name))

    async def step_move_and_fail(self) -> None:
        """Of two replicas that are added one comes into sync, the other stands still, so that the move goes on; those
        from before die; then the move is overridden or cancelled: what is in sync would go."""
        simulation = self.simulation
        found = self._partitions(1)
        state = simulation.history.states.get((found[0].topic, found[0].partition)) if found else None
        others = [b for b in sorted(simulation.brokers) if state is not None and b not in state.isr]
        if state is None or len(others) < 2:
            return
        added, slow = self.chance.sample(others, 2)
        self._pause_process(simulation.brokers[slow][1], self.chance.choice((2.5, 12.0)))
        self._reassign({found[0]: (added, slow)})
        await simulation.clock.sleep(1.0)
        for broker in state.isr:
            if broker in simulation.brokers:
                simulation.kill(simulation.brokers.pop(broker)[1])
        await simulation.clock.sleep(self.chance.choice((0.1, 5.0, 7.0)))
        ids = [b for b in sorted(simulation.brokers) if b != added]
        self._reassign({found[0]: (self.chance.choice(ids),) if ids and self.chance.random() < 0.4 else None})

    async def step_undo_under_another(self) -> None:
        """A move that cannot end; another controller takes over and is told otherwise; the first comes back."""
        simulation = self.simulation
        found = self._partitions(1)
        state = simulation.history.states.get((found[0].topic, found[0].partition)) if found else None
        others = [b for b in sorted(simulation.brokers) if state is not None and b not in state.isr]
        if state is None or not others:
            return
        slow = self.chance.choice(others)
        self._pause_process(simulation.brokers[slow][1], 2.5)
        for target in ((slow,), state.isr[:1]):
            self._reassign({found[0]: target})
            await simulation.clock.sleep(0.2)
            holder = simulation.holder()
            if holder in simulation.controllers:
                self._pause_process(simulation.controllers[holder][1], 0.3)  # somebody else is to win
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
        partitions = tuple(self._partitions(3))
        kind = self.chance.choice((ElectionType.PREFERRED, ElectionType.PREFERRED, ElectionType.UNCLEAN))
        if kind is ElectionType.UNCLEAN:
            self.simulation.history.allow_unclean({tp.topic for tp in partitions})
        if partitions:
            self._ask(ReplicaLeaderElection(partitions=partitions, election_type=kind, reply=Reply(lambda _: None)))

    def step_allocate_producer_ids(self) -> None:
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            epoch = self.simulation.brokers[broker][0].epoch
            self._ask(AllocateProducerIds(broker=broker, broker_epoch=epoch, reply=Reply(lambda _: None)))

    def step_list_reassignments(self) -> None:
        self._ask(ListPartitionReassignments(partitions=None, reply=Reply(lambda _: None)))

    def _ask(self, request: Request | None) -> None:
        """Whoever says that it is in office gets the request; a deposed controller may, too."""
        active = [s for s, process in self.simulation.controllers.values() if s.controller.election.active]
        if request is not None and active:
            self.chance.choice(active).queue.append(request)
