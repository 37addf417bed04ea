"""Trees to rehearse: small ones, and random ones of every kind."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence

from aiocontroller.core.ids import (
    NO_LEADER,
    NO_TOPIC_ID,
    Broker,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from aiocontroller.zookeeper.cluster_tree import ClusterTree, Partition

NAMES = ("orders", "a.b_c-", "__consumer_offsets", "x" * 200, "Ω weird")


def tree_of(
    partitions: Sequence[Partition],
    live: Iterable[int],
    *,
    epoch: int = 8,
    without_state: Iterable[TopicPartition] = (),
    deletions: Sequence[str] = (),
    topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    defaults: Mapping[str, str] | None = None,
    with_ids: bool = True,
) -> ClusterTree:
    topics: dict[str, dict[int, ReplicaAssignment]] = {}
    for name, assignment, _ in partitions:
        topics.setdefault(name.topic, {})[name.partition] = assignment
    return ClusterTree(
        holder=None,
        controller_epoch=epoch,
        cluster_id=None,
        brokers={number: Broker(number, number, ()) for number in live},
        unreadable_brokers=frozenset(),
        topics={
            name: TopicAssignment(name, _topic_id(name) if with_ids else NO_TOPIC_ID, own)
            for name, own in topics.items()
        },
        partitions=list(partitions),
        without_state=frozenset(without_state),
        znodes_below={},
        deletions=list(deletions),
        reassignment=None,
        preferred_election=None,
        isr_notifications=[],
        topic_configs={name: dict(own) for name, own in (topic_configs or {}).items()},
        broker_configs={"<default>": dict(defaults)} if defaults else {},
        known_controllers=frozenset(),
        debts=[],
        migration=None,
        bad=[],
    )


def _topic_id(name: str) -> bytes:
    """An id of its own for each name: of long ones, too, that begin alike."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def healthy(brokers: Sequence[int], partitions: int, factor: int, min_isr: int = 1) -> ClusterTree:
    """Each broker leads in turn, and everybody is in sync."""
    count = len(brokers)
    placed = [tuple(brokers[(n + i) % count] for i in range(factor)) for n in range(partitions)]
    made = [
        Partition(TopicPartition("orders", n), ReplicaAssignment(own), LeaderAndIsr(own[0], 5, own, 3, 0))
        for n, own in enumerate(placed)
    ]
    return tree_of(made, brokers, defaults={"min.insync.replicas": str(min_isr)})


def random_tree(seed: int) -> ClusterTree:
    """A cluster in any state that a tree may show, damaged parts included."""
    draw = random.Random(seed)
    ids = draw.sample(range(2000), draw.choice((1, 2, 3, 4, 5)))
    live = [broker for broker in ids if draw.random() < 0.8] or ids[:1]
    epoch = draw.randrange(9)
    partitions, without = list[Partition](), list[TopicPartition]()
    configs, deletions = dict[str, dict[str, str]](), list[str]()
    for number in range(draw.randrange(1, 4)):
        name = f"{draw.choice(NAMES)}{number}"
        if draw.random() < 0.3:
            configs[name] = {
                "min.insync.replicas": draw.choice(("1", "2", "3", "abc")),
                "unclean.leader.election.enable": draw.choice(("true", "false")),
            }
        if draw.random() < 0.1:
            deletions.append(name)
        factor = draw.randint(1, min(3, len(ids)))
        for at in sorted(draw.sample(range(9), draw.randint(1, 5))):
            tp, assignment = TopicPartition(name, at), _assignment(draw, ids, factor)
            state, kind = _state(draw, assignment.replicas[:factor], epoch), draw.random()
            if kind < 0.1:
                without.append(tp)
            partitions.append(Partition(tp, assignment, None if kind < 0.15 else state))
    return tree_of(
        partitions,
        live,
        epoch=epoch,
        without_state=without,
        deletions=deletions,
        topic_configs=configs,
        defaults=draw.choice(({}, {"min.insync.replicas": "2"}, {"unclean.leader.election.enable": "true"})),
        with_ids=draw.random() < 0.7,
    )


def _assignment(draw: random.Random, ids: Sequence[int], factor: int) -> ReplicaAssignment:
    replicas = tuple(draw.sample(ids, factor))
    others = [broker for broker in ids if broker not in replicas]
    if others and draw.random() < 0.15:
        added = draw.choice(others)
        return ReplicaAssignment((*replicas, added), (added,), replicas[:1])
    return ReplicaAssignment((*replicas, replicas[0])) if draw.random() < 0.05 else ReplicaAssignment(replicas)


def _state(draw: random.Random, replicas: Sequence[int], epoch: int) -> LeaderAndIsr:
    isr = tuple(draw.sample(replicas, draw.randint(1, len(replicas))))
    leader = draw.choice(isr) if draw.random() < 0.8 else NO_LEADER
    newest = epoch + 1 if draw.random() < 0.9 else epoch + 50
    return LeaderAndIsr(leader, draw.randrange(99), isr, draw.randrange(newest + 1), 0, draw.choice((0, 0, 0, 1)))
