"""Administering topics by writing znodes, as Kafka's tools and brokers do: create, expand, delete, describe, alter.

The counterpart of Kafka's ``AdminZkClient``.  Nothing here talks to the controller: it watches the znodes that are
written here.  The caller places replicas (``core.replica_placement``) and passes an assignment.

Order of writes.  A topic's configuration is written before its assignment, so that no partition starts with the wrong
one; as in Kafka, the two are not one transaction.  A changed configuration is written before its notification.

Departures from Kafka.
 * A topic znode is rewritten only at the version that was read (Kafka: at any version), so that an expansion and a
   reassignment cannot undo each other.
 * Kafka 3.4 and later refuse to write configurations while there is no controller; tools here need not wait for one.
   A KRaft controller is respected: during a migration, configurations are not changed in ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.core.mutation_quotas import ThrottlingQuotaExceededError
from aiocontroller.zookeeper import cluster_znodes, paths, znodes
from aiocontroller.zookeeper.broker_configs import BrokerConfigs
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES, Check, Create, Delete, Op, SetData
from aiocontroller.zookeeper.errors import Code, MaybeAppliedError, NotSentError
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.overlap import in_window
from aiocontroller.zookeeper.topic_configs import check_topic_configs
from aiocontroller.zookeeper.topic_rules import (
    TopicError,
    check_assignment,
    check_expansion,
    check_topic_name,
    check_topic_znode,
    has_collision_chars,
    is_topic_name,
    without_collision_chars,
)
from aiocontroller.zookeeper.writes import WriteOp
from aiocontroller.zookeeper.znode_access import MAX_ATTEMPTS, ZNodeAccess, answered, error_at, parent_of
from aiocontroller.zookeeper.znode_json import BadZNode
from aiocontroller.zookeeper.znodes import ControllerZNode

__all__ = ["AdminZkClient", "PartitionDescription", "TopicDescription", "TopicError", "TopicToCreate"]

log = logging.getLogger(__name__)
_E = KafkaErrorCode
_DELETED_WHEN_EMPTY = frozenset({"users", "clients", "ips"})
"""Types of entities whose znodes are deleted when they have no configuration left."""

CONFIGS_AT_ONCE = 8
TOPICS_AT_ONCE = 20
"""How many topics are checked before other tasks may run."""


class TopicToCreate(msgspec.Struct, frozen=True):
    """What is written for a new topic."""

    topic: str
    assignment: Mapping[int, Sequence[int]]
    """Replicas by partition, preferred leader first."""
    configs: Mapping[str, str] = {}
    topic_id: bytes = NO_TOPIC_ID


class PartitionDescription(msgspec.Struct, frozen=True):
    """One partition: its assignment and, if its state exists and is readable, its leadership."""

    partition: int
    assignment: ReplicaAssignment
    state: LeaderAndIsr | None


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic as described by its znodes; ``configs`` holds the topic's own settings."""

    topic: str
    topic_id: bytes
    partitions: tuple[PartitionDescription, ...]
    configs: dict[str, str]
    marked_for_deletion: bool


class AdminZkClient:
    """See the module's docstring.

    Handlers of events pass a ``fence`` for their writes; tools have none, nor has ``server`` for requests that any node
    answers (settings, client quotas).  ``brokers`` determines which settings topics can have; without it, as for tools,
    those of the newest release.
    """

    def __init__(self, zk: KafkaZkClient, *, fence: int | None = None, brokers: BrokerConfigs | None = None) -> None:
        self.zk = zk
        self._brokers = brokers
        self._znodes = ZNodeAccess(zk.client)
        self.fence = fence

    # -- topics ----------------------------------------------------------------------------------------------------

    async def list_topics(self) -> list[str]:
        """Names of all topics."""
        return await self.zk.get_all_topics_in_cluster(watch=False)

    async def get_broker_metadatas(self, *, rack_aware: bool = True) -> list[tuple[int, str | None]]:
        """(id, rack) of the registered brokers by id, for ``assign_replicas_to_brokers``."""
        brokers, _ = await self.zk.get_all_brokers_in_cluster(watch=False)
        return [(broker.id, broker.rack if rack_aware else None) for broker in brokers]

    async def check_create_topics(self, wanted: Iterable[TopicToCreate]) -> dict[str, TopicError]:
        """Return what ``create_topics`` would refuse, by topic, without creating anything (Kafka's validateOnly).

        Each name must occur once; of two that collide with each other, the later one is refused.
        """
        refused: dict[str, TopicError] = {}
        named = [each for each in wanted if not _refuses(refused, each.topic, check_topic_name, each.topic)]
        marked = await self._znodes.present([paths.delete_topics_topic(each.topic) for each in named])
        present = await self._znodes.present([paths.topic(each.topic) for each in named])
        taken: dict[str, list[str]] = {}
        if any(has_collision_chars(each.topic) for each in named):
            for topic in await self.list_topics():
                taken.setdefault(without_collision_chars(topic), []).append(topic)
        for number, (each, is_marked, is_present) in enumerate(zip(named, marked, present, strict=True)):
            if number % TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
            colliding = [] if is_present else taken.get(without_collision_chars(each.topic), [])
            if not _refuses(refused, each.topic, _check_topic, each, is_marked, is_present, colliding, self._brokers):
                taken.setdefault(without_collision_chars(each.topic), []).append(each.topic)
        return refused

    async def create_topics(
        self, wanted: Sequence[TopicToCreate], record: Callable[[TopicToCreate], object] = lambda topic: None
    ) -> dict[str, TopicError | ThrottlingQuotaExceededError]:
        """Create the topics; returns the errors of those not created.

        The controller gives topics without ``topic_id`` an id, as for Kafka's old tools.  ``record`` is called for each
        topic that is about to be created, and may refuse it because of a quota.
        """
        refused: dict[str, TopicError | ThrottlingQuotaExceededError] = dict(await self.check_create_topics(wanted))
        fitting = []
        for each in wanted:
            if each.topic not in refused:
                try:
                    record(each)
                    fitting.append(each)
                except ThrottlingQuotaExceededError as error:
                    refused[each.topic] = error
        await self._write_configs(fitting, refused)
        left = [each for each in fitting if each.topic not in refused]
        codes = await self._znodes.create_many(
            [(paths.topic(each.topic), _topic_znode(each)) for each in left], self.fence
        )
        for each, code in zip(left, codes, strict=True):
            if code == Code.NODE_EXISTS:
                refused[each.topic] = TopicError(_E.TOPIC_ALREADY_EXISTS, f"Topic '{each.topic}' already exists.")
            elif code:
                refused[each.topic] = TopicError(_E.UNKNOWN_SERVER_ERROR, answered(paths.topic(each.topic), code))
        return refused

    async def _write_configs(
        self, wanted: Sequence[TopicToCreate], refused: dict[str, TopicError | ThrottlingQuotaExceededError]
    ) -> None:
        left = iter(wanted)

        async def work() -> None:
            for each in left:
                try:
                    await self._set_or_create_configs("topics", each.topic, each.configs)
                except TopicError as error:
                    refused[each.topic] = error

        await in_window(min(CONFIGS_AT_ONCE, len(wanted)), work)

    async def create_topic(
        self,
        topic: str,
        assignment: Mapping[int, Sequence[int]],
        topic_id: bytes = NO_TOPIC_ID,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create one topic from replicas by partition, preferred leader first; raises TopicError if refused."""
        for error in (await self.create_topics([TopicToCreate(topic, assignment, configs or {}, topic_id)])).values():
            raise error

    async def add_partitions(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> None:
        """Add partitions after the present ones, each with as many replicas as partition 0.  Raises TopicError."""
        for _ in range(MAX_ATTEMPTS):
            present = await self.topic_that_may_grow(topic)
            self._check_expansion(present, assignment)
            added = {n: ReplicaAssignment(tuple(assignment[n])) for n in sorted(assignment)}
            grown = msgspec.structs.replace(present, partitions={**present.partitions, **added})
            data = znodes.encode_topic(grown)
            check_topic_znode(topic, data, len(grown.partitions), has_id=grown.topic_id != NO_TOPIC_ID)
            op = SetData(paths.topic(topic), data, present.version)
            if await self._znodes.write(op, self.fence):
                return
        raise TopicError(_E.REASSIGNMENT_IN_PROGRESS, f"Topic {topic!r} keeps changing")

    async def topic_that_may_grow(self, topic: str) -> TopicAssignment:
        """The topic's assignment; raises TopicError if it does not exist or is being reassigned."""
        if not is_topic_name(topic):
            raise _unknown(topic)
        read = await self.zk.get_topic_assignments([topic], watch=False)
        if read.bad:
            raise TopicError(_E.UNKNOWN_SERVER_ERROR, str(read.bad[0]))
        if not read.found or not read.found[0].partitions:
            raise _unknown(topic)
        if any(replicas.being_reassigned for replicas in read.found[0].partitions.values()):
            raise TopicError(
                _E.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{topic}'."
            )
        return read.found[0]

    def _check_expansion(self, present: TopicAssignment, assignment: Mapping[int, Sequence[int]]) -> None:
        count = len(present.partitions)
        if not assignment or min(assignment) < count:
            raise TopicError(
                _E.INVALID_PARTITIONS, f"Topic {present.topic!r} has {count} partitions; the number can only grow"
            )
        first = present.partitions.get(0)
        if first is None:
            raise TopicError(_E.INVALID_PARTITIONS, f"Topic {present.topic!r} has no partition 0")
        check_expansion(present.topic, assignment, len(first.replicas))
        check_assignment(present.topic, assignment, first_partition=count)

    async def delete_topic(self, topic: str) -> None:
        """Mark the topic for deletion; the controller deletes it.  Raises TopicError if refused."""
        for error in (await self.delete_topics([topic])).values():
            raise error

    async def delete_topics(self, topics: Sequence[str]) -> dict[str, TopicError]:
        """Mark the topics for deletion; returns the errors of those not marked."""
        refused: dict[str, TopicError] = {}
        topics = list(dict.fromkeys(topics))
        present = await self._znodes.present([paths.topic(topic) for topic in topics])
        found = [topic for topic, is_present in zip(topics, present, strict=True) if is_present]
        refused |= {topic: _unknown(topic) for topic, there in zip(topics, present, strict=True) if not there}
        codes = await self._znodes.create_many(
            [(paths.delete_topics_topic(topic), None) for topic in found], self.fence
        )
        for topic, code in zip(found, codes, strict=True):
            if code == Code.NODE_EXISTS:
                refused[topic] = TopicError(_E.TOPIC_ALREADY_EXISTS, f"Topic {topic!r} is already marked for deletion")
            elif code:
                refused[topic] = TopicError(_E.UNKNOWN_SERVER_ERROR, answered(paths.delete_topics_topic(topic), code))
        return refused

    async def describe_topics(
        self, topics: Sequence[str] | None = None
    ) -> tuple[list[TopicDescription], list[BadZNode]]:
        """All topics or the named ones, by name; unknown names are left out."""
        names = await self.list_topics() if topics is None else sorted(set(topics))
        read = await self.zk.get_topic_assignments(names, watch=False)
        bad = list(read.bad)
        pairs = [(t.topic, n) for t in read.found for n in t.partitions]
        states = await self.zk.get_topic_partition_states([t for t, _ in pairs], [n for _, n in pairs])
        configs = await self.zk.get_topic_configs([t.topic for t in read.found])
        deleting = set(await self.zk.get_topic_deletions(watch=False))
        bad += configs.bad
        found: list[TopicDescription] = []
        position = iter(states)
        for assignment in read.found:
            partitions = []
            for number, replicas in assignment.partitions.items():
                state = next(position)
                if isinstance(state, BadZNode):
                    bad.append(state)
                    state = None
                partitions.append(PartitionDescription(number, replicas, state))
            found.append(
                TopicDescription(
                    assignment.topic,
                    assignment.topic_id,
                    tuple(partitions),
                    configs.get(assignment.topic, {}),
                    assignment.topic in deleting,
                )
            )
        return found, bad

    # -- configuration ---------------------------------------------------------------------------------------------

    async def alter_topic_configs(self, topic: str, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Set each name to its value, or back to the default (None); returns the topic's configuration now."""
        check_topic_name(topic)
        if not await self._znodes.exists(paths.topic(topic)):
            raise _unknown(topic)

        def change(configs: dict[str, str]) -> dict[str, str]:
            changed = {name: value for name, value in {**configs, **changes}.items() if value is not None}
            check_topic_configs(topic, changed, self._brokers)
            return changed

        return await self.update_entity_configs("topics", topic, change)

    async def change_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Replace the topic's whole configuration and notify the brokers."""
        check_topic_name(topic)
        if not await self._znodes.exists(paths.topic(topic)):
            raise _unknown(topic)
        check_topic_configs(topic, configs, self._brokers)
        await self.change_entity_configs("topics", topic, configs)

    async def change_entity_configs(self, entity_type: str, entity_name: str, configs: Mapping[str, str]) -> None:
        """Replace a sanitized entity's configuration, unchecked, and notify brokers; TopicError for an unknown type."""
        if entity_type not in paths.CONFIG_ENTITY_TYPES:
            raise TopicError(
                _E.INVALID_CONFIG, f"unknown entity type {entity_type!r}, expected one of {paths.CONFIG_ENTITY_TYPES}"
            )
        await self._set_or_create_configs(entity_type, entity_name, configs)
        await self.zk.create_config_change_notification(f"{entity_type}/{entity_name}")

    async def update_entity_configs(
        self, entity_type: str, entity_name: str, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> dict[str, str]:
        """Apply ``change`` to an entity's configuration and notify the brokers; returns the new configuration.

        No concurrent change is lost: ``change`` is called again after a concurrent write, and a TopicError that it
        raises changes nothing.  Users, clients and addresses without settings are deleted, as by Kafka's tools.
        """
        path = paths.config_entity(entity_type, entity_name)
        _check_config_size(path)
        for _ in range(MAX_ATTEMPTS):
            reads = await self._znodes.read(path)
            configs = change(_decoded(path, None if reads is None else reads.data[0]))
            version = None if reads is None else reads.version[0]
            if await self._replace(entity_type, path, configs, version):
                await self.zk.create_config_change_notification(f"{entity_type}/{entity_name}")
                return configs
        raise TopicError(_E.INVALID_REQUEST, f"{path} keeps changing")

    async def _replace(self, entity_type: str, path: str, configs: dict[str, str], version: int | None) -> bool:
        """Write the configuration; returns False if the znode is no longer at ``version`` (None: if it exists)."""
        data = cluster_znodes.encode_config(configs)
        _check_config_size(path, data)
        if not configs and entity_type in _DELETED_WHEN_EMPTY:
            if version is None or await self._remove(path, version):
                return True
            return bool(await self._write_checked(SetData(path, data, version)) == 0)
        if version is not None:
            return bool(await self._write_checked(SetData(path, data, version)) == 0)
        code = await self._write_checked(Create(path, data))
        if code == Code.NO_NODE:
            await self._znodes.create_paths([parent_of(path)])
        return code == 0

    async def _remove(self, path: str, version: int) -> bool:
        """Delete the entity; for a client of a user, also the user if it has no other data."""
        if await self._write_checked(Delete(path, version)):
            return False
        clients = parent_of(path)
        user = clients.removesuffix("/clients")
        if (
            parent_of(user) == paths.config_entities("users")
            and user != clients
            and await self._write_checked(Delete(clients)) == 0
        ):
            reads = await self._znodes.read(user)
            if reads is not None and not _decoded(user, reads.data[0]):
                await self._write_checked(Delete(user, reads.version[0]))
        return True

    async def _write_checked(self, op: WriteOp) -> int:
        """Write under ``_checks``; returns 0, or the code of a conflict with another write.  Raises any other error."""
        checks = await self._checks()
        try:
            results = await self.zk.client.multi([*checks, op])
        except (NotSentError, MaybeAppliedError):
            await self.zk.client.sync("/")
            return Code.BAD_VERSION  # the caller reads again
        if self.fence is not None and results[0].code not in (0, Code.RUNTIME_INCONSISTENCY):
            raise ControllerMovedError(f"{paths.CONTROLLER_EPOCH} is no longer at version {self.fence}")
        code = next((r.code for r in results if r.code not in (0, Code.RUNTIME_INCONSISTENCY)), 0)
        if code not in (0, Code.NO_NODE, Code.NODE_EXISTS, Code.BAD_VERSION, Code.NOT_EMPTY):
            raise error_at(op.path, code)
        return code

    async def get_entity_configs(self, entity_type: str, entity_name: str) -> dict[str, str]:
        """The entity's configuration, {} if none; raises TopicError (INVALID_CONFIG) if it is unreadable."""
        path = paths.config_entity(entity_type, entity_name)
        _check_config_size(path)
        reads = await self._znodes.read(path)
        return _decoded(path, None if reads is None else reads.data[0])

    async def get_all_entity_configs(self, entity_type: str) -> dict[str, dict[str, str]]:
        """The configuration of every entity of a type, by sanitized name, sorted; unreadable ones are left out."""
        return await self._configs_of(entity_type, await self._znodes.children(paths.config_entities(entity_type)))

    async def get_all_user_client_configs(self) -> dict[str, dict[str, str]]:
        """The configuration of every client of a user, by ``USER/clients/CLIENT``, sanitized, sorted."""
        users = await self._znodes.children(paths.config_entities("users"))
        parents = [paths.config_entity("users", f"{user}/clients") for user in users]
        children = await self.zk.client.children_many(parents)
        names = [
            f"{user}/clients/{client}"
            for user, clients in zip(users, children.names, strict=True)
            for client in clients or ()
        ]
        return await self._configs_of("users", names)

    async def _configs_of(self, entity_type: str, names: Sequence[str]) -> dict[str, dict[str, str]]:
        bad: list[BadZNode] = []
        by_path = {paths.config_entity(entity_type, name): name for name in names}
        found: dict[str, dict[str, str]] = {}
        for path, data in await self._znodes.read_present(list(by_path), bad):
            configs = cluster_znodes.decode_config(path, data)
            if isinstance(configs, BadZNode):
                bad.append(configs)
            else:
                found[by_path[path]] = configs
        for each in bad:
            log.warning("Ignoring the znode %s: found %s, expected %s", each.path, each.found, each.expected)
        return found

    async def _set_or_create_configs(self, entity_type: str, entity_name: str, configs: Mapping[str, str]) -> None:
        """Write the configuration; the last writer wins, so after a lost reply it is written again."""
        path, data = paths.config_entity(entity_type, entity_name), cluster_znodes.encode_config(configs)
        _check_config_size(path, data)
        for _ in range(MAX_ATTEMPTS):
            present = await self._znodes.exists(path)
            op = SetData(path, data) if present else Create(path, data)
            try:
                results = await self.zk.client.multi([*await self._checks(), op])
            except (NotSentError, MaybeAppliedError):
                await self.zk.client.sync("/")
                continue
            code = next((r.code for r in results if r.code not in (0, Code.RUNTIME_INCONSISTENCY)), 0)
            if code == 0:
                return
            if self.fence is not None and results[0].code:
                raise ControllerMovedError(f"{paths.CONTROLLER_EPOCH} is no longer at version {self.fence}")
            if code == Code.NO_NODE and not present and results[-1].code != Code.RUNTIME_INCONSISTENCY:
                await self._znodes.create_paths([parent_of(path)])
            elif code not in (Code.NO_NODE, Code.NODE_EXISTS, Code.BAD_VERSION):
                raise error_at(path, code)
        raise error_at(path, Code.CONNECTION_LOSS)

    async def _checks(self) -> list[Op]:
        """The checks of a configuration write: our fence, or, without one, that the controller has not changed."""
        if self.fence is not None:
            return [Check(paths.CONTROLLER_EPOCH, self.fence)]
        holder = await self.zk.get_controller(watch=False)
        if not isinstance(holder, ControllerZNode):
            return []
        if holder.kraft_controller_epoch > 0:
            raise ControllerMovedError(
                f"{paths.CONTROLLER} belongs to KRaft controller {holder.controller_id}, which owns configurations"
            )
        return [Check(paths.CONTROLLER, holder.version)]


def _check_config_size(path: str, data: bytes = b"") -> None:
    if len(path) + len(data) > MAX_DATA_BYTES:
        raise TopicError(
            _E.INVALID_CONFIG,
            f"{path[:100]}: the configuration would have {len(data)} bytes and its path {len(path)}, expected "
            f"{MAX_DATA_BYTES} together at most",
        )


def _decoded(path: str, data: bytes | None) -> dict[str, str]:
    found = cluster_znodes.decode_config(path, data)
    if isinstance(found, BadZNode):
        raise TopicError(_E.INVALID_CONFIG, str(found))
    return found


def _refuses(refused: dict[str, TopicError], topic: str, check: Callable[..., None], *subject: Any) -> bool:
    """Whether the check refuses the topic; records the refusal."""
    try:
        check(*subject)
    except TopicError as error:
        refused[topic] = error
    return topic in refused


def _check_topic(
    wanted: TopicToCreate, marked: bool, present: bool, colliding: Sequence[str], brokers: BrokerConfigs | None
) -> None:
    topic = wanted.topic
    if marked:
        raise TopicError(_E.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' is marked for deletion.")
    if present:
        raise TopicError(_E.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists.")
    if colliding:
        raise TopicError(
            _E.INVALID_TOPIC_EXCEPTION,
            f"Topic '{topic}' collides with existing topics: {', '.join(colliding)}",
        )
    check_assignment(topic, wanted.assignment)
    check_topic_configs(topic, wanted.configs, brokers)
    check_topic_znode(topic, _topic_znode(wanted), len(wanted.assignment), has_id=wanted.topic_id != NO_TOPIC_ID)


def _topic_znode(wanted: TopicToCreate) -> bytes:
    partitions = {n: ReplicaAssignment(tuple(wanted.assignment[n])) for n in sorted(wanted.assignment)}
    return znodes.encode_topic(TopicAssignment(wanted.topic, wanted.topic_id, partitions))


def _unknown(topic: str) -> TopicError:
    return TopicError(_E.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
