"""A snapshot of a cluster's tree as one JSON file, for ``check``, ``what-if`` and ``rehearse`` elsewhere and later.

The file holds exactly the fields that these commands need, and so no credentials: users, ACLs and delegation tokens are
never read; only settings with known names and valid values are kept, passwords never; and only the paths of damaged
znodes.

``hashed`` hides whose cluster it is, so that the file may leave the company: it replaces the names of topics, hosts,
listeners, racks and the cluster, and topics' ids, by keyed hashes.  The key is drawn for one file and forgotten, so
that names cannot be guessed by trying them.  Kafka's internal topics keep their names.  Broker ids, counts, epochs and
times stay.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import (
    MAX_BROKER_ID,
    NO_LEADER,
    NO_TOPIC_ID,
    RECOVERED,
    RECOVERING,
    Broker,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.broker_configs import DYNAMIC_CONFIGS
from aiocontroller.zookeeper.cluster_tree import ClusterTree, Partition
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode
from aiocontroller.zookeeper.config_def import ConfigType, anything
from aiocontroller.zookeeper.debts import Owed
from aiocontroller.zookeeper.topic_configs import TOPIC_CONFIGS
from aiocontroller.zookeeper.znode_access import SHOWN
from aiocontroller.zookeeper.znode_json import (
    BadZNode,
    Epoch,
    Id,
    PartitionNumber,
    topic_id_from_text,
    topic_id_to_text,
)
from aiocontroller.zookeeper.znodes import ControllerZNode

FORMAT = 1
NOT_SAVED = "(not saved)"
"""Replaces a damaged znode's content, and a setting that brokers cannot read."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
_ISR_NOTIFICATION = re.compile(r"isr_change_\d+")
_WORD = re.compile(r"[a-z_<>]+|\d{1,10}")
"""Parts of paths that are Kafka's or ours, and reveal no names."""


# -- the file ----------------------------------------------------------------------------------------------------------

Leader = Annotated[int, msgspec.Meta(ge=NO_LEADER, le=MAX_BROKER_ID)]
Recovery = Annotated[int, msgspec.Meta(ge=RECOVERED, le=RECOVERING)]


class SavedState(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A partition's state znode; ``version`` is the znode's."""

    leader: Leader
    leader_epoch: Epoch
    isr: tuple[Id, ...]
    controller_epoch: Id
    version: Id
    recovery: Recovery = RECOVERED


class SavedPartition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A partition's assignment and state; ``state`` is None if there is no state znode, or if it was ``unreadable``."""

    partition: PartitionNumber
    replicas: tuple[Id, ...]
    adding: tuple[Id, ...] = ()
    removing: tuple[Id, ...] = ()
    state: SavedState | None = None
    unreadable: bool = False


class SavedTopic(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A topic; ``below`` lists the znodes below its ``partitions`` if they differ from its partitions."""

    id: str | None
    partitions: tuple[SavedPartition, ...]
    below: tuple[str, ...] | None = None


class SavedMove(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition in ``/admin/reassign_partitions``."""

    topic: str
    partition: PartitionNumber
    replicas: tuple[Id, ...]


class SavedDebt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replicas that a broker has yet to delete."""

    broker: Id
    topic: str
    partitions: dict[PartitionNumber, str]
    version: int


class SavedBadZNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A znode that could not be read; ``shown`` is false if ZooKeeper's ACLs hid it."""

    path: str
    shown: bool


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    format: int
    at: str
    """UTC, ISO 8601."""
    hashed: bool
    cluster_id: str | None
    controller: ControllerZNode | None
    controller_epoch: int
    brokers: tuple[Broker, ...]
    unreadable_brokers: tuple[int, ...]
    topics: dict[str, SavedTopic]
    deletions: tuple[str, ...]
    reassignment: tuple[SavedMove, ...] | None
    preferred_election: tuple[tuple[str, int], ...] | None
    isr_notifications: tuple[str, ...]
    topic_configs: dict[str, dict[str, str]]
    broker_configs: dict[str, dict[str, str]]
    known_controllers: tuple[int, ...]
    debts: tuple[SavedDebt, ...]
    migration: MigrationZNode | None
    bad: tuple[SavedBadZNode, ...]


class Recorded(NamedTuple):
    """What a snapshot's file holds."""

    tree: ClusterTree
    at: str
    hashed: bool


def encode_snapshot(tree: ClusterTree, at_us: int, key: bytes | None = None) -> bytes:
    """Return the file's content, the same for the same arguments; ``key`` hashes the names, ``at_us`` is since 1970."""
    redacted = _without_secrets(tree)
    saved = _snapshot(redacted if key is None else _hashed(redacted, key), time_text(at_us), hashed=key is not None)
    return msgspec.json.format(msgspec.json.encode(saved), indent=1) + b"\n"


def time_text(at_us: int) -> str:
    """Microseconds since 1970 -> ``2024-05-01T12:00:00+00:00``."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds")


def parse_snapshot(data: bytes, where: str) -> Recorded:
    """Return a snapshot's tree; BadInputError naming ``where`` if the content is not a snapshot."""
    try:
        _check_format(msgspec.json.decode(data, type=_Header).format)
        saved = msgspec.json.decode(data, type=Snapshot)
        return Recorded(_tree(saved), saved.at, saved.hashed)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInputError(f"{where}: found {error}, expected what aiocontroller check --save-tree writes") from None


class _Header(msgspec.Struct):
    format: int


def _check_format(found: int) -> None:
    if found != FORMAT:
        raise ValueError(f"format {found} instead of {FORMAT}")


# -- tree -> file ------------------------------------------------------------------------------------------------------


def _snapshot(tree: ClusterTree, at: str, *, hashed: bool) -> Snapshot:
    of: dict[str, list[SavedPartition]] = {name: [] for name in tree.topics}
    for name, assignment, state in tree.partitions:
        saved = None if state is None else _saved_state(state)
        unreadable = saved is None and name not in tree.without_state
        of[name.topic].append(SavedPartition(name.partition, *assignment, saved, unreadable))
    return Snapshot(
        format=FORMAT,
        at=at,
        hashed=hashed,
        cluster_id=tree.cluster_id,
        controller=tree.holder,
        controller_epoch=tree.controller_epoch,
        brokers=tuple(tree.brokers[number] for number in sorted(tree.brokers)),
        unreadable_brokers=tuple(sorted(tree.unreadable_brokers)),
        topics={
            name: SavedTopic(
                None if topic.topic_id == NO_TOPIC_ID else topic_id_to_text(topic.topic_id),
                tuple(of[name]),
                _below(tree.znodes_below.get(name, ()), topic.partitions),
            )
            for name, topic in sorted(tree.topics.items())
        },
        deletions=tuple(sorted(tree.deletions)),
        reassignment=None
        if tree.reassignment is None
        else tuple(SavedMove(*tp, replicas) for tp, replicas in sorted(tree.reassignment.items())),
        preferred_election=None
        if tree.preferred_election is None
        else tuple((tp.topic, tp.partition) for tp in tree.preferred_election),
        isr_notifications=tuple(sorted(tree.isr_notifications)),
        topic_configs=_sorted(tree.topic_configs),
        broker_configs=_sorted(tree.broker_configs),
        known_controllers=tuple(sorted(tree.known_controllers)),
        debts=tuple(
            SavedDebt(o.broker, o.topic, {n: topic_id_to_text(i) for n, i in sorted(o.partitions.items())}, o.version)
            for o in tree.debts
        ),
        migration=tree.migration,
        bad=tuple(SavedBadZNode(bad.path, bad.expected != SHOWN) for bad in tree.bad),
    )


def _saved_state(state: LeaderAndIsr) -> SavedState:
    return SavedState(
        state.leader, state.leader_epoch, state.isr, state.controller_epoch, state.partition_epoch, state.recovery_state
    )


def _below(found: Iterable[str], own: Iterable[int]) -> tuple[str, ...] | None:
    """Return the names; None if they are exactly those that the topic should have."""
    names = tuple(sorted(found))
    return None if set(names) == set(map(str, own)) else names


def _sorted(configs: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: dict(sorted(own.items())) for name, own in sorted(configs.items())}


def _without_secrets(tree: ClusterTree) -> ClusterTree:
    return msgspec.structs.replace(
        tree,
        topic_configs={name: _of_topic(found) for name, found in tree.topic_configs.items()},
        broker_configs={
            name: kept
            for name, found in tree.broker_configs.items()
            if (name == paths.DEFAULT_ENTITY or (name.isascii() and name.isdecimal())) and (kept := _of_broker(found))
        },
    )


def _of_topic(configs: Mapping[str, str]) -> dict[str, str]:
    known = {name: value for name, value in configs.items() if name in TOPIC_CONFIGS}
    return {name: NOT_SAVED if TOPIC_CONFIGS[name].rule(value) else value for name, value in known.items()}


def _of_broker(configs: Mapping[str, str]) -> dict[str, str]:
    """Keep the settings that are neither passwords nor free text, and whose values brokers can read."""
    kept = {}
    for name, value in configs.items():
        kind, rule = DYNAMIC_CONFIGS.get(name, (ConfigType.PASSWORD, anything))
        if kind is not ConfigType.PASSWORD and rule is not anything and rule(value) is None:
            kept[name] = value
    return kept


# -- hashing -----------------------------------------------------------------------------------------------------------


class _Names:
    """The same name gets the same hash in one file; names in files with other keys cannot be compared."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def _digest(self, text: bytes, size: int) -> bytes:
        return hashlib.blake2b(text, key=self._key, digest_size=size).digest()

    def word(self, kind: str, name: str) -> str:
        return f"{kind}-{self._digest(f'{kind} {name}'.encode(errors='surrogatepass'), 6).hex()}"

    def topic(self, name: str) -> str:
        return name if name in INTERNAL_TOPICS else self.word("topic", name)

    def topic_id(self, found: bytes) -> bytes:
        return found if found == NO_TOPIC_ID else self._digest(found, 16)

    def path(self, path: str) -> str:
        """Hash the names in a path; a topic gets the name that it has in the rest of the file."""
        parts = path.split("/")
        for at, part in enumerate(parts):
            above = "/".join(parts[:at])
            if above in (paths.TOPICS, paths.DELETE_TOPICS, paths.config_entities("topics")):
                parts[at] = self.topic(part)
            elif part and not (_WORD.fullmatch(part) and (at < 3 or part in ("partitions", "state") or part.isdigit())):
                parts[at] = self.word("name", part)
        return "/".join(parts)


def _hashed(tree: ClusterTree, key: bytes) -> ClusterTree:
    names = _Names(key)

    def partition(found: TopicPartition) -> TopicPartition:
        return TopicPartition(names.topic(found.topic), found.partition)

    def broker(found: Broker) -> Broker:
        rack = None if found.rack is None else names.word("rack", found.rack)
        endpoints = (
            Endpoint(names.word("listener", e.listener), names.word("host", e.host), 0, _protocol(e.security_protocol))
            for e in found.endpoints
        )
        return Broker(found.id, found.epoch, tuple(endpoints), rack)

    holder = tree.holder
    return msgspec.structs.replace(
        tree,
        cluster_id=None if tree.cluster_id is None else names.word("cluster", tree.cluster_id),
        holder=None if holder is None else msgspec.structs.replace(holder, software="", address=""),
        brokers={number: broker(found) for number, found in tree.brokers.items()},
        topics={
            names.topic(name): TopicAssignment(names.topic(name), names.topic_id(topic.topic_id), topic.partitions)
            for name, topic in tree.topics.items()
        },
        partitions=[found._replace(name=partition(found.name)) for found in tree.partitions],
        without_state=frozenset(map(partition, tree.without_state)),
        znodes_below={
            names.topic(name): [child if child.isdecimal() else names.word("name", child) for child in below]
            for name, below in tree.znodes_below.items()
        },
        deletions=list(map(names.topic, tree.deletions)),
        reassignment=None
        if tree.reassignment is None
        else {partition(tp): replicas for tp, replicas in tree.reassignment.items()},
        preferred_election=None if tree.preferred_election is None else list(map(partition, tree.preferred_election)),
        isr_notifications=[
            name if _ISR_NOTIFICATION.fullmatch(name) else names.word("name", name) for name in tree.isr_notifications
        ],
        topic_configs={names.topic(name): found for name, found in tree.topic_configs.items()},
        debts=[
            Owed(o.broker, names.topic(o.topic), {n: names.topic_id(i) for n, i in o.partitions.items()}, o.version)
            for o in tree.debts
        ],
        bad=[msgspec.structs.replace(bad, path=names.path(bad.path)) for bad in tree.bad],
    )


def _protocol(name: str) -> str:
    return name if name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL") else "other"


# -- file -> tree ------------------------------------------------------------------------------------------------------


def _tree(saved: Snapshot) -> ClusterTree:
    topics, partitions, without = {}, list[Partition](), set[TopicPartition]()
    for name, topic in saved.topics.items():
        topic_id = NO_TOPIC_ID if topic.id is None else topic_id_from_text(topic.id)
        assignments = {}
        for each in topic.partitions:
            tp = TopicPartition(name, each.partition)
            assignment = ReplicaAssignment(each.replicas, each.adding, each.removing)
            if each.partition in assignments:
                raise ValueError(f"{tp} twice")
            assignments[each.partition] = assignment
            partitions.append(Partition(tp, assignment, _state(each.state)))
            if each.state is None and not each.unreadable:
                without.add(tp)
        topics[name] = TopicAssignment(name, topic_id, assignments)
    return ClusterTree(
        holder=saved.controller,
        controller_epoch=saved.controller_epoch,
        cluster_id=saved.cluster_id,
        brokers={broker.id: broker for broker in saved.brokers},
        unreadable_brokers=frozenset(saved.unreadable_brokers),
        topics=topics,
        partitions=partitions,
        without_state=frozenset(without),
        znodes_below={
            name: tuple(str(each.partition) for each in topic.partitions) if topic.below is None else topic.below
            for name, topic in saved.topics.items()
        },
        deletions=list(saved.deletions),
        reassignment=None
        if saved.reassignment is None
        else {TopicPartition(move.topic, move.partition): move.replicas for move in saved.reassignment},
        preferred_election=None
        if saved.preferred_election is None
        else [TopicPartition(*each) for each in saved.preferred_election],
        isr_notifications=list(saved.isr_notifications),
        topic_configs=saved.topic_configs,
        broker_configs=saved.broker_configs,
        known_controllers=frozenset(saved.known_controllers),
        debts=[
            Owed(debt.broker, debt.topic, {n: topic_id_from_text(i) for n, i in debt.partitions.items()}, debt.version)
            for debt in saved.debts
        ],
        migration=saved.migration,
        bad=[BadZNode(bad.path, NOT_SAVED, "readable content" if bad.shown else SHOWN) for bad in saved.bad],
    )


def _state(saved: SavedState | None) -> LeaderAndIsr | None:
    if saved is None:
        return None
    return LeaderAndIsr(
        saved.leader, saved.leader_epoch, saved.isr, saved.controller_epoch, saved.version, saved.recovery
    )
