"""What ``catch-up`` waits for: a partition's live replicas are all in sync, and a broker that the step may name leads
it."""

from __future__ import annotations

from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.scenarios.facts import Facts
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

CATCH_UP_WITHIN_S = 60.0


async def still_behind(zk: KafkaZkClient, tp: TopicPartition, leader: int | None, facts: Facts) -> str | None:
    """Return what is missing; None if nothing is.  ``leader`` is the broker that must lead; None: any."""
    found = (await zk.get_topic_assignments([tp.topic], watch=False)).found
    state = facts.states.get((tp.topic, tp.partition))
    if not found or tp.partition not in found[0].partitions or state is None:
        return f"catch-up {tp}: found no such partition, or no state of it"
    live = facts.brokers.intersection(found[0].partitions[tp.partition].replicas)
    if not live.issubset(state.isr):
        return f"catch-up {tp}: found ISR {state.isr}, expected all of {sorted(live)}"
    if leader is not None and state.leader != leader:
        return f"catch-up {tp}: found leader {state.leader}, expected {leader}"
    return None
