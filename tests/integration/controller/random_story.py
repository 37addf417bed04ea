"""Random events happen to a cluster on virtual time; then everything is healed, and all must agree.

``python -m tests.integration.controller.random_story FIRST [COUNT]`` plays that many seeds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from aiozk import exc

from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import LEADER_DURING_DELETE, LeaderAndIsr, TopicPartition
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.lab import virtual_loop
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.codec import SetData
from aiocontroller.zookeeper.errors import ZooKeeperError
from aiocontroller.zookeeper.registration import BrokerIdInUseError
from tests.integration.controller.harness import Cluster, idle, journal_of, running, until

BROKERS = (1, 2, 3, 4)
STEPS = 25
HEALED_WITHIN_S = 120.0


class Story:
    def __init__(self, cluster: Cluster, server: ZooKeeperServer, network: SimulatedNetwork, chance: Any) -> None:
        self.cluster = cluster
        self.server = server
        self.network = network
        self.chance = chance
        self.steps: list[str] = []
        self.topics = 0
        self.sizes: dict[str, int] = {}
        self.deaf: dict[int, int] = {}
        self.all_services: list[Service] = []
        self.all_brokers: list[RecordingBroker] = []

    # -- dice ------------------------------------------------------------------------------------------------------

    def below(self, stop: int) -> int:
        return int(self.chance.randrange(stop))

    def one_of(self, items: Any) -> Any:
        return list(items)[self.below(len(items))] if items else None

    def replicas(self) -> list[int]:
        ids = list(BROKERS)
        return [ids.pop(self.below(len(ids))) for _ in range(1 + self.below(3))]

    async def controller(self) -> None:
        service = await self.cluster.add_controller(
            aiocontroller_id=101 + len(self.all_services), leader_imbalance_check_interval_seconds=30
        )
        self.all_services.append(service)

    def active(self) -> Service | None:
        return next((s for s in self.cluster.services if s.controller.election.active), None)

    # -- what may happen -------------------------------------------------------------------------------------------

    async def kill_broker(self) -> None:
        broker = self.one_of(self.cluster.brokers)
        if broker is not None and len(self.cluster.brokers) > 1:
            self.steps.append(f"stop {broker}")
            self.deaf.pop(broker, None)
            await self.cluster.kill_broker(broker)

    async def start_broker(self) -> None:
        broker = self.one_of([b for b in BROKERS if b not in self.cluster.brokers])
        if broker is not None:
            self.steps.append(f"start {broker}")
            await self.add_broker(broker)

    async def add_broker(self, broker: int) -> None:
        """Register the broker, retrying: if its connection was cut, its last session may not have ended yet."""
        while True:
            try:
                self.all_brokers.append(await self.cluster.add_broker(broker))
                return
            except BrokerIdInUseError:
                await self.cluster.kill_broker(broker)
                await asyncio.sleep(1)

    async def bounce_broker(self) -> None:
        broker = self.one_of(self.cluster.brokers)
        if broker is not None:
            self.steps.append(f"bounce {broker}")
            await self.cluster.bounce_broker(broker)

    async def cut_broker(self) -> None:
        broker = self.one_of([b for b in self.cluster.brokers if b not in self.deaf])
        if broker is not None:
            self.steps.append(f"cut {broker}")
            self.network.cut(self.cluster.brokers[broker].port)

    async def deafen_broker(self) -> None:
        broker = self.one_of([b for b in self.cluster.brokers if b not in self.deaf])
        if broker is not None:
            self.steps.append(f"deafen {broker}")
            self.deaf[broker] = self.cluster.brokers[broker].port
            self.cluster.brokers[broker].deafen()

    async def fail_disk(self) -> None:
        broker, topic = self.one_of(self.cluster.brokers), self.one_of(self.sizes)
        if topic is not None and broker is not None:
            self.steps.append(f"disk of {broker} fails for {topic}-0")
            self.cluster.brokers[broker].errors[(topic, 0)] = KafkaErrorCode.KAFKA_STORAGE_ERROR

    async def create_topic(self) -> None:
        name = f"t{self.topics}"
        self.topics += 1
        assignment = {p: self.replicas() for p in range(1 + self.below(3))}
        self.steps.append(f"create {name} {assignment}")
        await self.cluster.create_topic(name, assignment)
        self.sizes[name] = len(assignment)

    async def add_partition(self) -> None:
        topic = self.one_of(self.sizes)
        read = await self.cluster.zk.get_topic_assignments([topic], watch=False) if topic else None
        if read is not None and read.found:
            data, stat = (
                msgspec.json.decode(await self.cluster.client.get_data(f"/brokers/topics/{topic}")),
                read.found[0],
            )
            data["partitions"][str(len(stat.partitions))] = self.replicas()
            self.steps.append(f"expand {topic}")
            await self.cluster.client.set_data(f"/brokers/topics/{topic}", msgspec.json.encode(data))
            self.sizes[topic] = len(data["partitions"])

    async def delete_topic(self) -> None:
        topic = self.one_of(self.sizes)
        if topic is not None:
            self.steps.append(f"delete {topic}")
            del self.sizes[topic]
            await self.cluster.client.create(f"/admin/delete_topics/{topic}")

    async def controlled_shutdown(self) -> None:
        service, broker = self.active(), self.one_of(self.cluster.brokers)
        if service is not None and broker is not None:
            self.steps.append(f"controlled shutdown {broker}")
            answers: list[Any] = []
            epoch = self.cluster.brokers[broker].epoch
            service.queue.append(ev.ControlledShutdown(broker=broker, broker_epoch=epoch, reply=Reply(answers.append)))
            await until(lambda: answers)
            if self.below(2):
                self.deaf.pop(broker, None)
                await self.cluster.kill_broker(broker)

    async def alter_partition(self) -> None:
        topic = self.one_of(self.sizes)
        if topic is not None:
            await self.alter(topic, 0, lambda replica: bool(self.below(2)))

    async def alter(self, topic: str, number: int, joins: Callable[[int], bool]) -> None:
        """Have the partition's leader ask for an ISR of itself and the replicas that ``joins`` picks."""
        service = self.active()
        (state,) = await self.cluster.zk.get_topic_partition_states([topic], [number])
        if service is None or not isinstance(state, LeaderAndIsr) or state.leader not in self.cluster.brokers:
            return
        table = service.shell.context.table
        row = table.row(topic, number)
        isr = tuple(r for r in (table.replicas(row) if row >= 0 else ()) if r == state.leader or joins(r))
        self.steps.append(f"isr {topic}-{number} {isr}")
        change = AlterPartition(topic, number, state.leader_epoch, isr, state.partition_epoch, state.recovery_state)
        answers: list[Any] = []
        service.queue.append(
            ev.AlterPartitionReceived(
                broker=state.leader,
                broker_epoch=self.cluster.brokers[state.leader].epoch,
                version=1,
                partitions=(change,),
                reply=Reply(answers.append),
            )
        )
        await until(lambda: answers)

    async def mute_broker(self) -> None:
        broker = self.one_of(self.cluster.brokers)
        if broker is not None:
            self.steps.append(f"mute {broker}")
            self.cluster.brokers[broker].unanswered.add(self.one_of((ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA)))

    async def refuse_stop_replica(self) -> None:
        broker = self.one_of(self.cluster.brokers)
        if broker is not None:
            self.steps.append(f"{broker} refuses StopReplica")
            self.cluster.brokers[broker].stop_replica_errors.append(KafkaErrorCode.KAFKA_STORAGE_ERROR)

    async def notify_isr(self) -> None:
        """Write an ISR as the leader of an old version does."""
        topic = self.one_of(self.sizes)
        (state,) = await self.cluster.zk.get_topic_partition_states([topic], [0]) if topic else (None,)
        if isinstance(state, LeaderAndIsr) and state.leader >= 0:
            isr = tuple(r for r in state.isr if r == state.leader or self.below(2))
            self.steps.append(f"{topic}-0 {isr} by znode")
            path = f"/brokers/topics/{topic}/partitions/0/state"
            data = msgspec.json.decode(await self.cluster.client.get_data(path)) | {"isr": isr}
            try:
                await self.cluster.client.multi([SetData(path, msgspec.json.encode(data), state.partition_epoch)])
            except ZooKeeperError:
                return
            await self.cluster.zk.propagate_isr_changes([TopicPartition(topic, 0)])

    async def damage_state(self) -> None:
        """Damage a state, and repair it a little later."""
        topic = self.one_of(self.sizes)
        path = f"/brokers/topics/{topic}/partitions/0/state"
        (state,) = await self.cluster.zk.get_topic_partition_states([topic], [0]) if topic else (None,)
        if isinstance(state, LeaderAndIsr):
            self.steps.append(f"damage {topic}-0")
            good = await self.cluster.client.get_data(path)
            results = await self.cluster.client.multi([SetData(path, b"?", state.partition_epoch)])
            if results[0].code == 0:
                await asyncio.sleep(self.below(30) / 1000)
                await self.cluster.client.multi([SetData(path, good, state.partition_epoch + 1)])

    async def reassign(self) -> None:
        topic = self.one_of(self.sizes)
        if topic is not None:
            replicas = self.replicas()
            self.steps.append(f"reassign {topic}-0 {replicas}")
            data = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}
            try:
                await self.cluster.client.create("/admin/reassign_partitions", data=msgspec.json.encode(data))
            except exc.NodeExists:
                self.steps[-1] += " (refused)"

    async def prefer(self) -> None:
        topic = self.one_of(self.sizes)
        if topic is not None:
            self.steps.append(f"prefer {topic}-0")
            data = {"version": 1, "partitions": [{"topic": topic, "partition": 0}]}
            try:
                await self.cluster.client.create("/admin/preferred_replica_election", data=msgspec.json.encode(data))
            except exc.NodeExists:
                self.steps[-1] += " (refused)"

    async def expire_session(self) -> None:
        service = self.active()
        if service is not None and service.client.session_id:
            self.steps.append("expire")
            await expire_session(service.client)

    async def cut_zookeeper(self) -> None:
        self.steps.append("cut")
        self.network.cut(self.server.port)

    async def hand_over(self) -> None:
        service = self.active()
        if service is not None:
            self.steps.append("hand over")
            self.cluster.services.remove(service)
            await self.cluster.stop_controller(service)
            await self.controller()

    async def depose(self) -> None:
        self.steps.append("depose")
        found = await self.cluster.zk.get_controller_epoch()
        if found is not None:
            await self.cluster.client.set_data("/controller_epoch", str(found[0] + 1).encode())

    async def wait(self) -> None:
        await asyncio.sleep(self.below(20))

    # -- the play --------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        for broker in BROKERS:
            self.all_brokers.append(await self.cluster.add_broker(broker))
        await self.controller()
        await self.controller()
        often = {self.start_broker: 4, self.create_topic: 4, self.alter_partition: 4, self.kill_broker: 3, self.wait: 3}
        now_and_then = (
            *(self.bounce_broker, self.add_partition, self.reassign, self.cut_zookeeper, self.expire_session),
            *(self.bounce_broker, self.add_partition, self.reassign, self.cut_zookeeper, self.expire_session),
            *(self.deafen_broker, self.mute_broker, self.cut_broker, self.fail_disk, self.refuse_stop_replica),
            *(self.delete_topic, self.prefer, self.controlled_shutdown, self.hand_over, self.depose),
            *(self.notify_isr, self.damage_state),
        )
        acts = [*(act for act, times in often.items() for _ in range(times)), *now_and_then]
        for _ in range(STEPS):
            await self.one_of(acts)()
            await asyncio.sleep(self.below(30) / self.one_of((1000, 10_000)))  # before or after it has been handled
        self.steps.append("heal")
        await self.heal()

    async def heal(self) -> None:
        for broker, port in self.deaf.items():
            await self.cluster.brokers[broker].listen(port)
        for broker in self.cluster.brokers.values():
            broker.errors.clear()
            broker.unanswered.clear()
            broker.stop_replica_errors.clear()
        await asyncio.sleep(1)
        for broker_id in BROKERS:
            if broker_id in self.cluster.brokers:
                await self.cluster.bounce_broker(broker_id)
            else:
                await self.add_broker(broker_id)
            await asyncio.sleep(1)
        await asyncio.sleep(HEALED_WITHIN_S)
        # deletions wait for reassignments, so topics to be deleted are served, too
        topics = await self.cluster.zk.get_all_topics_in_cluster(watch=False)
        for assignment in (await self.cluster.zk.get_topic_assignments(topics, watch=False)).found:
            for number in sorted(assignment.partitions):
                await self.alter(assignment.topic, number, lambda replica: True)
        await asyncio.sleep(HEALED_WITHIN_S)
        await idle(await self.cluster.active())

    # -- what must hold --------------------------------------------------------------------------------------------

    async def wrong(self) -> list[str]:
        wrong = self.wrong_history()
        for service in self.all_services:
            wrong += [f"fault: {r.event} {r.detail}" for r in journal_of(service).of_kind("fault")]
        service = await self.cluster.active()
        context = service.shell.context
        epoch = await self.cluster.zk.get_controller_epoch()
        if self.sizes and (context.epoch, context.epoch_zk_version) != epoch:
            wrong.append(f"epoch: we think {context.epoch}, there is {epoch}")
        if [s for s in self.cluster.services if s.controller.election.active] != [service]:
            wrong.append("more than one is active")
        topics = await self.cluster.zk.get_all_topics_in_cluster(watch=False)
        if topics != sorted(self.sizes):
            wrong.append(f"topics: {topics}, expected {sorted(self.sizes)}")
        if context.partitions_being_reassigned:
            wrong.append(f"still being reassigned: {context.partitions_being_reassigned}")
        left = await self.cluster.zk.get_partition_reassignment(watch=False)
        if left is not None:
            wrong.append(f"/admin/reassign_partitions is left: {left}")
        if await self.cluster.zk.get_preferred_replica_election(watch=False) is not None:
            wrong.append("/admin/preferred_replica_election is left")
        if sorted(context.table.topic_by_name) != topics:
            wrong.append(f"topics in the context: {sorted(context.table.topic_by_name)}, there are {topics}")
        for topic in topics:
            read = await self.cluster.zk.get_topic_assignments([topic], watch=False)
            for number, assigned in read.found[0].partitions.items():
                wrong += await self.wrong_partition(service, topic, number, assigned.replicas)
        return wrong

    def wrong_history(self) -> list[str]:
        """Return violations: each leader epoch must have one leader, in its own ISR, in what all brokers received."""
        wrong: list[str] = []
        leaders: dict[tuple[Any, int, int], int] = {}
        for broker in self.all_brokers:
            for api, _, request in broker.received:
                if api is ApiKey.STOP_REPLICA:
                    continue
                for t in request.topic_states:
                    for p in t.partition_states:
                        if p.leader == LEADER_DURING_DELETE:
                            continue
                        first_leader = leaders.setdefault((t.topic_id, p.partition_index, p.leader_epoch), p.leader)
                        if first_leader != p.leader or (p.leader >= 0 and p.leader not in p.isr):
                            wrong.append(f"{t.topic_name}-{p.partition_index}: {first_leader} leads, and {p}")
        return wrong

    async def wrong_partition(self, service: Service, topic: str, number: int, replicas: tuple[int, ...]) -> list[str]:
        name, table = f"{topic}-{number}", service.shell.context.table
        (state,) = await self.cluster.zk.get_topic_partition_states([topic], [number])
        if not isinstance(state, LeaderAndIsr):
            return [f"{name} has no state"]
        wrong = []
        if state.leader not in state.isr or state.leader not in replicas:
            wrong.append(f"{name} is led badly: {state} of {replicas}")
        held = table.leadership(table.row(topic, number))
        if held != state:
            wrong.append(f"{name}: we think {held}, there is {state}")
        for broker in self.cluster.brokers.values():
            known = last_sent(broker, ApiKey.UPDATE_METADATA, topic, number)
            if known is None or (known.leader, known.leader_epoch, tuple(known.isr)) != (
                state.leader, state.leader_epoch, state.isr,
            ):  # fmt: skip
                wrong.append(f"{name}: broker {broker.id}'s metadata says {known}, there is {state}")
            ordered = last_sent(broker, ApiKey.LEADER_AND_ISR, topic, number)
            if broker.id in replicas and (
                ordered is None or (ordered.leader, ordered.leader_epoch) != (state.leader, state.leader_epoch)
            ):
                wrong.append(f"{name}: broker {broker.id} received {ordered}, there is {state}")
        return wrong


def last_sent(broker: Any, api: ApiKey, topic: str, number: int) -> Any:
    """Return the last state that the broker's present incarnation got and did not refuse as a deposed controller's."""
    found, latest = None, 0
    for received in broker.received:
        request = received.request
        if request.broker_epoch != broker.epoch or request.controller_epoch < latest:
            continue
        latest = request.controller_epoch
        if received.api is api:
            for t in request.topic_states:
                for p in t.partition_states:
                    if (t.topic_name, p.partition_index) == (topic, number):
                        found = p
    return found


async def _play(seed: int) -> list[str]:
    network = SimulatedNetwork()
    world = simulated_world(network, seed)
    server = await ZooKeeperServer(world).start()
    async with running(world, server.address) as cluster:
        story = Story(cluster, server, network, world.random)
        try:
            await story.play()
            wrong = await story.wrong()
        except Exception as error:
            wrong = [repr(error)]
    server.stop()
    return [*wrong[:10], f"seed {seed}: " + "; ".join(story.steps)] if wrong else []


def play(seed: int) -> list[str]:
    """Play a seed; return what was wrong at the end, and what had happened; empty if all agreed."""
    return virtual_loop.run(_play(seed))


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for seed in range(first, first + count):
        for line in play(seed):
            sys.stdout.write(line + "\n")
