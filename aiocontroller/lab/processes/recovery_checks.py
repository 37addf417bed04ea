"""Checks whether a cluster of real processes is whole, by HTTP and TCP; see ``lab.checkers.recovery_checks``."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
import msgspec

from aiocontroller.core.errors import AioControllerError
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.checkers.history import Partition, ZNodeHistory
from aiocontroller.lab.checkers.inspection import Inspection
from aiocontroller.lab.checkers.recovery_checks import what_is_missing
from aiocontroller.lab.processes.cluster import ProcessCluster
from aiocontroller.lab.scenarios.facts import Facts
from aiocontroller.zookeeper.kafka_zk_client import TopicAssignments


class Forgiving(ZNodeHistory):
    """A history without records: it does not report replicas that a broker kept while it was down."""

    tolerates_strays = True

    def may_know_deleted_topic(self, topic: str, broker: int) -> bool:
        return True


async def process_missing(cluster: ProcessCluster, history: ZNodeHistory) -> list[str]:
    """Return what is missing until the cluster is whole, including processes that do not answer; empty if it is
    whole."""
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
    """Return what is missing according to ZooKeeper and the controllers, since Kafka's own brokers do not report their
    state.

    Kafka's brokers contend for the role, and one may win it when the active controller dies.
    """
    active = [controller for controller in controllers if controller.active]
    holder = getattr(await cluster.zk.get_controller(watch=False), "controller_id", None)
    if [holder] != [controller.id for controller in active] and holder not in cluster.brokers:
        return [f"I6: {len(active)} active controllers, /controller names {holder}"]
    live, _ = await cluster.zk.get_all_brokers_in_cluster(watch=False)
    if sorted(broker.id for broker in live) != sorted(cluster.brokers):
        return [f"I16: live brokers are {[broker.id for broker in live]}"]
    assigned = {
        (each.topic, number): each.partitions[number].replicas
        for each in (await _assignments(cluster)).found
        for number in each.partitions
    }
    return [
        f"I16: {topic}-{number} is {'leaderless' if state is None or state.leader < 0 else f'in sync on {state.isr}'}"
        for (topic, number), state in (await leaderships(cluster)).items()
        if state is None or state.leader < 0 or set(state.isr) != set(assigned.get((topic, number), state.isr))
    ]


async def _assignments(cluster: ProcessCluster) -> TopicAssignments:
    zk = cluster.zk
    return await zk.get_topic_assignments(await zk.get_all_topics_in_cluster(watch=False), watch=False)


async def leaderships(cluster: ProcessCluster) -> Mapping[Partition, LeaderAndIsr | None]:
    """Return the state of every partition in ZooKeeper; None if there is no readable one."""
    zk = cluster.zk
    topics = await _assignments(cluster)
    names = [(each.topic, number) for each in topics.found for number in sorted(each.partitions)]
    states = await zk.get_topic_partition_states([n[0] for n in names], [n[1] for n in names])
    return {n: s if isinstance(s, LeaderAndIsr) else None for n, s in zip(names, states, strict=True)}


async def process_facts(cluster: ProcessCluster) -> Facts:
    """Return the state in ZooKeeper, and the beliefs of the brokers that answer."""
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
