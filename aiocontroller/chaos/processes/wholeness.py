"""Is a cluster of real processes whole?  The simulation's question (``wholeness``), answered by HTTP and TCP."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
import msgspec

from aiocontroller.chaos.facts import Facts
from aiocontroller.chaos.history import Partition, ZNodeHistory
from aiocontroller.chaos.processes.cluster import ProcessCluster
from aiocontroller.chaos.wholeness import what_is_missing
from aiocontroller.cluster.broker_server import BrokerStatus
from aiocontroller.core.errors import AioControllerError
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.service import Inspection


class Forgiving(ZNodeHistory):
    """Where no history is kept, nobody is blamed for what a broker that was away still has."""

    def is_excused(self, partition: Partition, broker: int) -> bool:
        return True

    def may_not_know_of_end(self, topic: str, broker: int) -> bool:
        return True


async def process_missing(cluster: ProcessCluster, history: ZNodeHistory) -> list[str]:
    """Empty when the cluster is whole; what does not answer is missing."""
    try:
        brokers = {} if cluster.shape.kafka else {n: await cluster.broker_status(n) for n in cluster.brokers}
        controllers = [
            msgspec.convert(await cluster.ask(number, "POST", "/debug/inspect"), Inspection)
            for number in cluster.controllers
        ]
        if cluster.shape.kafka:
            return await _kafka_missing(cluster, controllers)
        return await what_is_missing(cluster.zk, controllers, brokers, {}, history)
    except (OSError, aiohttp.ClientError, AioControllerError, IndexError) as error:
        return [f"does not answer: {error!r}"]


async def _kafka_missing(cluster: ProcessCluster, controllers: list[Inspection]) -> list[str]:
    """Kafka's own brokers do not say what they think: only what ZooKeeper and the controllers say.

    They contend for the role like ours, and when ours dies one of them may win it.
    """
    active = [controller for controller in controllers if controller.active]
    holder = getattr(await cluster.zk.get_controller(watch=False), "controller_id", None)
    if [holder] != [controller.id for controller in active] and holder not in cluster.brokers:
        return [f"I6: {len(active)} controllers in office, /controller names {holder}"]
    live, _ = await cluster.zk.get_all_brokers_in_cluster(watch=False)
    if sorted(broker.id for broker in live) != sorted(cluster.brokers):
        return [f"I5: live brokers are {[broker.id for broker in live]}"]
    return [
        f"I5: {topic}-{number} is {'led by nobody' if state is None or state.leader < 0 else f'in sync on {state.isr}'}"
        for (topic, number), state in (await leaderships(cluster)).items()
        if state is None or state.leader < 0 or len(state.isr) < min(2, len(cluster.brokers))
    ]


async def leaderships(cluster: ProcessCluster) -> Mapping[Partition, LeaderAndIsr | None]:
    """What ZooKeeper says of every partition; None where it says nothing that can be read."""
    zk = cluster.zk
    topics = await zk.get_topic_assignments(await zk.get_all_topics_in_cluster(watch=False), watch=False)
    names = [(each.topic, number) for each in topics.found for number in sorted(each.partitions)]
    states = await zk.get_topic_partition_states([n[0] for n in names], [n[1] for n in names])
    return {n: s if isinstance(s, LeaderAndIsr) else None for n, s in zip(names, states, strict=True)}


async def process_facts(cluster: ProcessCluster) -> Facts:
    """What ZooKeeper says, and what those brokers believe that answer."""
    zk = cluster.zk
    controller, epoch = await cluster.active_controller(), await zk.get_controller_epoch()
    live, _ = await zk.get_all_brokers_in_cluster(watch=False)
    states = await leaderships(cluster)
    believed = {}
    for number, actor in cluster.brokers.items():
        try:
            status = await cluster.broker_status(number) if actor.running and not cluster.shape.kafka else None
        except OSError:
            continue
        if status is not None:
            believed[number] = {(p.topic, p.partition): (p.leader, p.leader_epoch) for p in status.metadata}
    return Facts(
        controller=controller,
        controller_runs=controller is not None and cluster.controllers[controller].running,
        epoch=0 if epoch is None else epoch[0],
        brokers=frozenset(broker.id for broker in live),
        states={name: state for name, state in states.items() if state is not None},
        topics=frozenset(await zk.get_all_topics_in_cluster(watch=False)),
        believed=believed,
    )


def strays(status: BrokerStatus, history: ZNodeHistory) -> bool:
    """Whether a broker has replicas that nobody told it to give up: its operator would start it anew."""
    return any(
        status.id not in history.assigned.get((replica.topic, replica.partition), ())
        and history.is_excused((replica.topic, replica.partition), status.id)
        for replica in status.replicas
    )
