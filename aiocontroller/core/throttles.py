"""Throttles of replication while replicas move: which settings, and what they were before.

The settings are those of Kafka's own tool (KIP-73).  A topic lists the replicas whose leader sends, and those that
receive, slowly; a broker has the rates.  A leader does not slow down for a follower in sync.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiocontroller.core.ids import TopicPartition

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

Entity = tuple[str, str]
"""("topics" or "brokers", name)."""
Settings = dict[str, str | None]
"""Name -> value; None: not set."""


def throttles(
    before: Mapping[TopicPartition, Sequence[int]], plan: Mapping[TopicPartition, Sequence[int]], rate: int
) -> dict[Entity, dict[str, str]]:
    """What to set while ``plan`` moves partitions from where they were ``before``; {} if nothing is copied.

    ``rate`` is in bytes a second, for each broker.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: dict[int, None] = {}
    for tp in sorted(plan):
        own = before.get(tp, ())
        new = [broker for broker in plan[tp] if broker not in own]
        if new:
            leaders.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker}" for broker in own)
            followers.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker}" for broker in new)
            brokers.update(dict.fromkeys((*own, *new)))
    wanted: dict[Entity, dict[str, str]] = {
        ("topics", topic): {LEADER_REPLICAS: ",".join(leaders[topic]), FOLLOWER_REPLICAS: ",".join(own)}
        for topic, own in followers.items()
    }
    return wanted | {("brokers", str(broker)): rates(rate) for broker in sorted(brokers)}


def rates(rate: int) -> dict[str, str]:
    """A broker's settings."""
    return dict.fromkeys(RATES, str(rate))


def beside(wanted: Mapping[str, str], present: Mapping[str, str | None]) -> dict[str, str]:
    """``wanted`` together with what was set ``present``: lists of replicas are joined, and ``*`` stays."""
    found = {}
    for name, value in wanted.items():
        was = present.get(name)
        if name in RATES or not was:
            found[name] = value
        elif was.strip() == "*":
            found[name] = was
        else:
            found[name] = ",".join(dict.fromkeys([*(each.strip() for each in was.split(",")), *value.split(",")]))
    return found
