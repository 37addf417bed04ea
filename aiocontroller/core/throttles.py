"""Throttles of replication while replicas move: which settings, and what they were before.

The settings are those of Kafka's own tool (KIP-73).  A topic has two lists of replicas to throttle, on the leader's
side and on the follower's; a broker has the rates.  A leader does not slow down for a follower in sync.

Other clients may throttle at the same time, even the same topic.  So entries are added to lists and removed from them,
and a rate is removed only if a move has set it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from aiocontroller.core.ids import TopicPartition

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
NAMES = (LEADER_REPLICAS, FOLLOWER_REPLICAS, *RATES)

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
    """``wanted`` together with what is set ``present``: lists of replicas are joined, and ``*`` stays."""
    found = {}
    for name, value in wanted.items():
        was = present.get(name) or ""
        if name in RATES:
            found[name] = value
        elif was.strip() == "*" or set(replicas(was)).issuperset(replicas(value)):
            found[name] = was
        else:
            found[name] = ",".join(dict.fromkeys([*replicas(was), *replicas(value)]))
    return found


def put_back(
    replaced: Mapping[str, str | None],
    own: Collection[int],
    rates_set: Collection[int],
    present: Mapping[str, str | None],
) -> Settings:
    """The settings of one topic or broker without what a move has added; what others have changed meanwhile stays.

    ``replaced`` is what they were before, ``own`` are the topic's partitions that it moves, and ``rates_set`` are the
    rates that it has set.
    """
    found: Settings = {}
    numbers, set_rates = {str(number) for number in own}, {str(rate) for rate in rates_set}  # membership only
    for name, was in replaced.items():
        now = present.get(name)
        if name in RATES:
            found[name] = was if now in set_rates else now
            continue
        before = replicas(was)
        left = [each for each in replicas(now) if each in before or each.partition(":")[0] not in numbers]
        found[name] = was if left == before else ",".join(left) or None
    return found


def replicas(value: str | None) -> list[str]:
    """The entries of a list, ``partition:broker`` each."""
    return [each.strip() for each in (value or "").split(",") if each.strip()]
