"""Foreign writes to znodes that only the controller may write, as by an operator with ``zkCli``, a script, or an old
backup.

Each step is one transaction; half of the time, the active controller receives nothing from ZooKeeper meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.lab.simulation.steps.base import StepTaker
from aiocontroller.lab.zookeeper.zookeeper_tree import OPEN, Transaction
from aiocontroller.service import Service
from aiocontroller.zookeeper import paths, znodes

Write = Callable[[Transaction], object]
Partition = tuple[str, int]

BLIND_S = (0.0, 0.0, 0.3, 1.0)
"""How long the controller receives nothing; less than a session."""
APART_S = (0.0, 0.0, 0.1, 1.0)
"""How long a topic that is recreated is absent."""


class ForeignSteps(StepTaker):
    async def step_write_state(self) -> None:
        """Write another leader, epoch or ISR, or the same state again."""
        found = self._a_partition()
        if found is None:
            return
        partition, state = found
        leader = self.chance.choice(state.isr)
        change = self.chance.choice(
            (
                {},
                {"leader": leader},
                {"leader": leader, "isr": (leader,)},
                {"leader": leader, "leader_epoch": 0, "controller_epoch": 0},
                {"leader": -1},
            )
        )
        [data] = znodes.encode_partition_states([msgspec.structs.replace(state, **change)])
        path = paths.topic_partition_state(*partition)
        await self._write(partition[0], lambda transaction: transaction.set_data(path, data, -1))

    async def step_delete_state(self) -> None:
        """Delete a state, and half of the time create it again, which resets its version."""
        found = self._a_partition()
        if found is None:
            return
        partition, state = found
        path = paths.topic_partition_state(*partition)
        [data] = znodes.encode_partition_states([msgspec.structs.replace(state, leader_epoch=0)])
        recreated = self.chance.random() < 0.5

        def write(transaction: Transaction) -> None:
            transaction.remove(path)
            if recreated:
                transaction.create(path, data, OPEN, 0)

        await self._write(partition[0], write)

    async def step_write_assignment(self) -> None:
        """Write other replicas, or remove a partition."""
        name = self._a_topic()
        assignment = None if name is None else self._assignment(name)
        ids = sorted(self.simulation.brokers)
        if name is None or assignment is None or not assignment.partitions or not ids:
            return
        number = self.chance.choice(sorted(assignment.partitions))
        partitions = dict(assignment.partitions)
        if len(partitions) > 1 and self.chance.random() < 0.3:
            del partitions[number]
        else:
            state = self.simulation.history.states.get((name, number))
            factor = self.chance.randint(1, min(3, len(ids)))
            drawn = self.chance.sample(ids, factor)
            if state is not None and not set(drawn) & set(state.isr):
                drawn[0] = self.chance.choice(state.isr)  # otherwise the next controller could not elect any replica
            partitions[number] = ReplicaAssignment(tuple(drawn))
        data = znodes.encode_topic(msgspec.structs.replace(assignment, partitions=partitions))
        await self._write(name, lambda transaction: transaction.set_data(paths.topic(name), data, -1))

    async def step_make_topic_anew(self) -> None:
        """Delete a topic with everything below it, and create it again under the same name, at once or soon."""
        name = self._a_topic()
        later_s = self.chance.choice(APART_S)
        ids = sorted(self.simulation.brokers)
        if name is None or not ids:
            return
        count = self.chance.randint(1, 3)
        factor = self.chance.randint(1, min(3, len(ids)))
        partitions = {n: ReplicaAssignment(tuple(self.chance.sample(ids, factor))) for n in range(count)}
        topic_id = self.chance.randrange(1, 1 << 128).to_bytes(16, "big")
        data = znodes.encode_topic(TopicAssignment(name, topic_id, partitions))
        top = paths.topic(name)
        self.topics[name] = count

        def delete(transaction: Transaction) -> None:
            below = [path for path in self.simulation.model.tree.nodes if path.startswith(f"{top}/")]
            for path in sorted(below, key=len, reverse=True):
                transaction.remove(path)
            transaction.remove(top)

        def create(transaction: Transaction) -> None:
            if top not in self.simulation.model.tree.nodes:  # otherwise another client has created it meanwhile
                transaction.create(top, data, OPEN, 0)

        def both(transaction: Transaction) -> None:
            delete(transaction)
            create(transaction)

        await self._write(name, delete if later_s else both)
        if later_s:
            await self.simulation.clock.sleep(later_s)
            await self._write(name, create)

    # -- existing topics ------------------------------------------------------------------------------------------

    def _a_topic(self) -> str | None:
        nodes = self.simulation.model.tree.nodes
        there = [
            name
            for name in sorted(self.topics)
            if paths.topic(name) in nodes and paths.delete_topics_topic(name) not in nodes
        ]
        if (name := self._given.take("topic")) is not None:
            return name if name in there else None
        return self.chance.choice(there) if there else None

    def _a_partition(self) -> tuple[Partition, LeaderAndIsr] | None:
        name = self._a_topic()
        states = self.simulation.history.states
        there = [(p, s) for p, s in sorted(states.items()) if p[0] == name]
        return self.chance.choice(there) if there else None

    def _assignment(self, name: str) -> TopicAssignment | None:
        node = self.simulation.model.tree.nodes[paths.topic(name)]
        found = znodes.decode_topic(name, node.data, node.version)
        return found if isinstance(found, TopicAssignment) else None

    async def _write(self, topic: str, write: Write) -> None:
        simulation = self.simulation
        blind_s = self.chance.choice(BLIND_S)
        number = simulation.holder()
        host = simulation.controllers[number][1].host.name if number in simulation.controllers else None
        if blind_s and host is not None:
            simulation.network.block("zookeeper", host)
        self._forget_moves_of(topic)
        simulation.foreign_writes += 1
        simulation.model.write_by_hand(write, simulation.zookeeper.now_ms())
        if number not in simulation.controllers or not _knows(simulation.controllers[number][0], topic):
            simulation.history.written_by_hand[topic] = {
                paths.topic(topic): -1
            }  # no controller knows the earlier state
        if blind_s and host is not None:
            await simulation.clock.sleep(blind_s)
            simulation.network.unblock("zookeeper", host)

    def _forget_moves_of(self, topic: str) -> None:
        """Forget the topic's targets: it is now unknown where its partitions should be."""
        known = self.simulation.targets
        for partition in [partition for partition in known if partition.topic == topic]:
            del known[partition]
        for partition in [partition for partition in self._moves if partition.topic == topic]:
            self._moves[partition] += 1


def _knows(service: Service, topic: str) -> bool:
    context = service.shell.context
    return context.loaded and topic in context.table.topic_by_name
