"""The handlers' view of ZooKeeper: brokers, topics, partitions and notifications, without paths or bytes.

The counterpart of Kafka's ``KafkaZkClient``.  Kafka reads and writes one znode per request; this client handles
hundreds at once, in columns.

Rules.
 * Reads are typed; a damaged znode is returned as a ``BadZNode`` in its place and affects nothing else.
 * ``watch=True`` arms exactly the watches that ``on_change`` reports; reading again re-arms a watch.  A missing parent
   or node is watched for its creation (Kafka never sets that watch).
 * Every write of the controller takes ``fence``, the version of ``/controller_epoch`` from its election; a stale fence
   raises ControllerMovedError and nothing is applied.  Errors of single znodes (their version changed, they are gone)
   are codes in the column of results.
 * A column of a million does not block the loop: it is encoded, sent and decoded in slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from aiocontroller.core.broker_starts import BrokerStarts
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.ids import Broker, LeaderAndIsr, TopicAssignment, of_different_topics
from aiocontroller.zookeeper import cluster_znodes, paths, registration, znodes
from aiocontroller.zookeeper.changes import ZNodeChange, translate
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.cluster_znodes import DelegationToken, FeatureZNode, MigrationZNode, ProducerIdBlock
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES, Create, SetData
from aiocontroller.zookeeper.debts import DebtZNodes
from aiocontroller.zookeeper.errors import TOO_LARGE, Code
from aiocontroller.zookeeper.found import EntityConfigs, TopicAssignments
from aiocontroller.zookeeper.overlap import overlapped
from aiocontroller.zookeeper.reads import Reads
from aiocontroller.zookeeper.request_znodes import RequestZNodes
from aiocontroller.zookeeper.writes import WriteOp, Writes
from aiocontroller.zookeeper.znode_access import ZNodeAccess, error_at, refused
from aiocontroller.zookeeper.znode_json import BadZNode
from aiocontroller.zookeeper.znodes import BrokerInfo, ControllerZNode, PartitionStates

__all__ = [
    "BadZNode",
    "BrokerInfo",
    "ControllerZNode",
    "EntityConfigs",
    "KafkaZkClient",
    "PartitionStates",
    "TopicAssignments",
    "ZNodeChange",
]

_ACL_CHANGES = (paths.ACL_CHANGES, paths.EXTENDED_ACL_CHANGES)
SLICE = 20_000
"""Partitions encoded or decoded in one step, which takes about 10 ms."""
NO_IDS: Mapping[str, bytes] = {}
YIELD_BYTES = 256 * 1024
"""Bytes of topic assignments decoded before other tasks may run."""


class KafkaZkClient(RequestZNodes):
    """See the module's docstring.  One for each ``ZooKeeperClient``, whose ``on_watch`` it sets."""

    def __init__(self, client: ZooKeeperClient) -> None:
        super().__init__(ZNodeAccess(client))
        self.client = client
        self.debts = DebtZNodes(client)
        self.on_change: Callable[[ZNodeChange, str], None] | None = None
        self.on_acl_change: Callable[[], None] | None = None
        """Called on ACL changes.  Their reader is not a handler: it runs on standbys too."""
        self._broker_session: int | None = None
        client.on_watch = self._on_watch

    def _on_watch(self, kind: int, path: str) -> None:
        if path in _ACL_CHANGES and self.on_acl_change is not None:
            self.on_acl_change()
        change = translate(kind, path)
        if change is not None and self.on_change is not None:
            self.on_change(*change)

    def forget_watches(self) -> None:
        """Stop reporting changes until the next reads, as at a resignation; ``/controller`` and ACLs stay watched.

        Watches on the server may still fire once, so the listener must decide whether to ignore a change.
        """
        registry = self.client.session.registry
        keep = [self.client.normalize_path(path) for path in (paths.CONTROLLER, *_ACL_CHANGES)]
        tables = (registry.data, registry.exist, registry.child)
        kept = [(table, path) for table in tables for path in keep if path in table]
        self.client.forget_watches()
        for table, path in kept:
            table[path] = None

    # -- the controller --------------------------------------------------------------------------------------------

    async def get_controller(self, *, watch: bool = True) -> ControllerZNode | BadZNode | None:
        """``/controller``; None if there is none."""
        reads = await self._znodes.read(paths.CONTROLLER, watch=watch)
        if reads is None:
            return None
        stat = reads.stat(0)
        return znodes.decode_controller(
            reads.data[0], owner_session=stat.ephemeral_owner, created_ms=stat.created, version=stat.version
        )

    async def get_controller_epoch(self) -> tuple[int, int] | None:
        """(epoch, version of ``/controller_epoch``); raises BadInputError if it is not a number."""
        return await registration.read_controller_epoch(self.client)

    async def register_controller_and_increment_controller_epoch(
        self,
        controller_id: int,
        timestamp_ms: int,
        *,
        takeover: bool = False,
        deposing: int | None = None,
        idle: bool = False,
        address: str = "",
    ) -> tuple[int, int]:
        """Win the role; returns (epoch, fence).  Raises ControllerMovedError.  See ``registration``.

        ``takeover`` deletes an existing ``/controller`` in the same multi, unless a KRaft controller holds it, or a
        session other than ``deposing``; with ``idle``, only while no topic is being deleted.  At ``address``, standbys
        can watch us.
        """
        return await registration.register_controller(
            self.client, controller_id, timestamp_ms, takeover=takeover, deposing=deposing, idle=idle, address=address
        )

    async def check_controller_epoch(self, *, fence: int) -> None:
        """Raise ControllerMovedError if the fence is stale; for answers that only the active controller may give."""
        if not await self.client.check(paths.CONTROLLER_EPOCH, fence):
            raise ControllerMovedError(f"{paths.CONTROLLER_EPOCH} is no longer at version {fence}")

    async def raise_controller_epoch(self, epoch: int, *, fence: int) -> None:
        """Write a higher epoch, which ends the fence's term; raises ControllerMovedError if it had already ended."""
        data = znodes.encode_controller_epoch(epoch)
        writes = await self.client.set_many([paths.CONTROLLER_EPOCH], [data], [fence], fence=fence)
        if writes.code[0] in (Code.BAD_VERSION, Code.NO_NODE):  # found after a lost answer; perhaps our own write
            raise ControllerMovedError(f"{paths.CONTROLLER_EPOCH} is no longer at version {fence}")
        if writes.code[0] != Code.OK:
            raise error_at(paths.CONTROLLER_EPOCH, writes.code[0])

    async def get_known_controllers(self) -> tuple[frozenset[int] | BadZNode, int]:
        """(ids of all aiocontrollers that have been active, znode version); (no ids, -1) without a znode."""
        reads = await self._znodes.read(paths.KNOWN_CONTROLLERS, watch=False)
        if reads is None:
            return frozenset(), -1
        return cluster_znodes.decode_known_controllers(reads.data[0]), reads.version[0]

    async def set_known_controllers(self, ids: Collection[int], version: int, *, fence: int) -> bool:
        """Write the ids; returns False if the znode is no longer at ``version`` (-1: if it exists)."""
        path, data = paths.KNOWN_CONTROLLERS, cluster_znodes.encode_known_controllers(ids)
        return await self._znodes.write(Create(path, data) if version < 0 else SetData(path, data, version), fence)

    async def delete_controller(self, fence: int) -> None:
        """Delete ``/controller`` under the fence; does nothing if it is gone."""
        await registration.delete_controller(self.client, fence)

    # -- brokers ---------------------------------------------------------------------------------------------------

    async def register_broker(self, info: BrokerInfo) -> int:
        """Register a broker and return its epoch; raises BrokerIdInUseError while another session holds the id."""
        epoch = await registration.register_broker(self.client, info, self._broker_session)
        self._broker_session = self.client.session_id
        return epoch

    async def get_all_brokers_in_cluster(self, *, watch: bool = True) -> tuple[list[Broker], list[BadZNode]]:
        """Brokers by id; watches the list of ids and each broker's data."""
        bad: list[BadZNode] = []
        ids: list[int] = []
        for name in await self._znodes.children(paths.BROKER_IDS, watch=watch):
            broker_id = znodes.decode_broker_id(name)
            if isinstance(broker_id, BadZNode):
                bad.append(broker_id)
            else:
                ids.append(broker_id)
        ids.sort()
        reads = await self.client.get_many([paths.broker_id(i) for i in ids], watch=watch)
        brokers: list[Broker] = []
        for i, broker_id in enumerate(ids):
            broker = _broker(reads, i, broker_id)
            if isinstance(broker, BadZNode):
                bad.append(broker)
            elif broker is not None:  # else it left between the two reads, and the watch on the ids will fire
                brokers.append(broker)
        return brokers, bad

    async def count_registrations(self) -> int:
        """Number of registrations since ``/brokers/ids`` was created; 0 without it."""
        stat = (await self.client.exists_many([paths.BROKER_IDS])).stat(0)
        return 0 if stat is None else int(stat.child_version + stat.num_children) // 2

    async def get_broker_starts(self) -> BrokerStarts | BadZNode | None:
        """The record of brokers' starts; None if no controller has kept one."""
        reads = await self._znodes.read(paths.BROKER_STARTS)
        return None if reads is None else cluster_znodes.decode_broker_starts(reads.data[0])

    async def set_broker_starts(self, starts: BrokerStarts, *, fence: int) -> None:
        """Replace the record, or create it."""
        await self._znodes.set_or_create(paths.BROKER_STARTS, cluster_znodes.encode_broker_starts(starts), fence)

    async def epochs_registered_before(self, seconds: float) -> set[int]:
        """Epochs of the brokers that registered at least ``seconds`` before ``/controller`` was created, by ZooKeeper's
        clock; none without ``/controller``.
        """
        names = await self._znodes.children(paths.BROKER_IDS)
        ids = sorted(i for i in map(znodes.decode_broker_id, names) if not isinstance(i, BadZNode))
        found = await self.client.exists_many([paths.CONTROLLER, *map(paths.broker_id, ids)])
        holder, *stats = (found.stat(i) for i in range(len(ids) + 1))
        if holder is None:
            return set()
        by_ms = holder.created - 1000 * seconds
        return {stat.created_zxid for stat in stats if stat is not None and stat.created <= by_ms}

    async def delete_broker_registration(self, broker_id: int, epoch: int, *, fence: int) -> bool:
        """Delete the registration of this incarnation only; returns whether it existed.  See ``registration``."""
        return await registration.delete_broker_registration(self.client, broker_id, epoch, fence)

    async def get_broker(self, broker_id: int, *, watch: bool = True) -> Broker | BadZNode | None:
        """A registration; None if it is gone."""
        return _broker(await self.client.get_many([paths.broker_id(broker_id)], watch=watch), 0, broker_id)

    # -- topics ----------------------------------------------------------------------------------------------------

    async def get_all_topics_in_cluster(self, *, watch: bool = True) -> list[str]:
        """The names of all topics, sorted."""
        return await self._znodes.children(paths.TOPICS, watch=watch)

    async def get_topic_assignments(self, topics: Sequence[str], *, watch: bool = True) -> TopicAssignments:
        """Read topics' assignments, in the order of ``topics``; equal replica assignments are one object."""
        result = TopicAssignments()
        memo: znodes.AssignmentMemo = {}
        reads = await self.client.get_many([paths.topic(topic) for topic in topics], watch=watch)
        decoded = 0
        for i, topic in enumerate(topics):
            data, code = reads.data[i], reads.code[i]
            if code == Code.NO_NODE:
                result.missing.append(topic)
                continue
            found = refused(paths.topic(topic), code) or znodes.decode_topic(topic, data, reads.version[i], memo)
            if isinstance(found, BadZNode):
                result.bad.append(found)
            else:
                result.found.append(found)
            decoded += len(data or b"")
            if decoded > YIELD_BYTES:
                decoded = 0
                await asyncio.sleep(0)
        return result

    async def get_topic_ids(self, topics: Sequence[str]) -> dict[str, bytes]:
        """The ids in the topics' znodes (16 bytes, zero without one); topics that are gone are left out."""
        reads = await self.client.get_many([paths.topic(topic) for topic in topics])
        read = zip(topics, reads.data, reads.code, strict=True)
        return {topic: znodes.decode_topic_id(data) for topic, data, code in read if not code}

    async def set_topic_assignments(self, assignments: Sequence[TopicAssignment], *, fence: int) -> Writes:
        """Rewrite topics whose znodes still have the assignments' versions.

        ``Writes.code`` is TOO_LARGE for znodes that ZooKeeper would not accept.
        """
        datas = [znodes.encode_topic(a) for a in assignments]
        fitting = [at for at, data in enumerate(datas) if len(data) <= MAX_DATA_BYTES]
        fit = await self.client.set_many(
            [paths.topic(assignments[at].topic) for at in fitting],
            [datas[at] for at in fitting],
            [assignments[at].version for at in fitting],
            fence=fence,
        )
        writes = _writes([TOO_LARGE] * len(datas), [-1] * len(datas), fit.largest)
        for at, code, version in zip(fitting, fit.code, fit.version, strict=True):
            writes.code[at], writes.version[at] = code, version
        return writes

    async def delete_topic_znodes(self, topics: Sequence[str], *, fence: int) -> None:
        """Delete the topics' znodes with everything below them."""
        await self.client.delete_all_recursive([paths.topic(topic) for topic in topics], fence=fence)

    async def get_topic_configs(self, topics: Sequence[str]) -> EntityConfigs:
        """The settings of each topic that has any."""
        return await self._entity_configs("topics", topics)

    async def get_broker_configs(self, brokers: Sequence[str]) -> EntityConfigs:
        """The brokers' dynamic settings by id; ``<default>`` has those for all brokers."""
        return await self._entity_configs("brokers", brokers)

    async def _entity_configs(self, entity_type: str, entities: Sequence[str]) -> EntityConfigs:
        configs = EntityConfigs()
        reads = await self.client.get_many(names := [paths.config_entity(entity_type, each) for each in entities])
        for i, (entity, path, data, code) in enumerate(zip(entities, names, reads.data, reads.code, strict=True)):
            refusal = None if code == Code.NO_NODE else refused(path, code)
            if isinstance(config := refusal or cluster_znodes.decode_config(path, data), BadZNode):
                configs.bad.append(config)
            else:
                configs[entity] = config
                configs.changed_zxid[entity] = reads.mzxid(i)
        return configs

    async def delete_topic_configs(self, topics: Sequence[str], *, fence: int) -> None:
        """Delete topics' settings; missing ones are fine."""
        await self._znodes.delete([paths.config_entity("topics", topic) for topic in topics], fence)

    # -- partition states ------------------------------------------------------------------------------------------

    async def get_topic_partition_states(
        self, topics: Sequence[str], partitions: Sequence[int]
    ) -> list[LeaderAndIsr | BadZNode | None]:
        """Read states: takes parallel columns and returns one; None for partitions that have no state yet."""
        found: list[LeaderAndIsr | BadZNode | None] = []

        async def take(states: PartitionStates) -> None:
            found.extend(states.states())

        await self.each_topic_partition_states(topics, partitions, take)
        return found

    async def each_topic_partition_states(
        self, topics: Sequence[str], partitions: Sequence[int], take: Callable[[PartitionStates], Awaitable[None]]
    ) -> None:
        """Read states in slices, in order; the next slice is read while ``take`` works on one."""

        async def read(start: int) -> Reads:
            return await self.client.get_many(_state_paths(topics, partitions, slice(start, start + SLICE)))

        async def decode(start: int, reads: Reads) -> None:
            await take(_states(topics[start : start + SLICE], partitions[start : start + SLICE], reads))

        await overlapped(range(0, len(topics), SLICE), read, decode)

    async def set_topic_partition_states(
        self, topics: Sequence[str], partitions: Sequence[int], leaderships: Sequence[LeaderAndIsr], *, fence: int
    ) -> Writes:
        """Write states from parallel columns; a leadership's ``partition_epoch`` is the expected version of its znode.

        ``Writes.version`` is the new partition epoch; ``Writes.code`` is BAD_VERSION or NO_NODE on a mismatch.
        """
        codes: list[int] = []
        versions: list[int] = []
        largest = 0
        for start in range(0, len(topics), SLICE):
            end = start + SLICE
            states = leaderships[start:end]
            writes = await self.client.set_many(
                _state_paths(topics, partitions, slice(start, end)),
                znodes.encode_partition_states(states),
                [state.partition_epoch for state in states],
                fence=fence,
            )
            codes += writes.code
            versions += writes.version
            largest = max(largest, writes.largest)
        return _writes(codes, versions, largest)

    async def create_topic_partition_states(
        self,
        topics: Sequence[str],
        partitions: Sequence[int],
        leaderships: Sequence[LeaderAndIsr],
        *,
        ids: Mapping[str, bytes] = NO_IDS,
        fence: int,
    ) -> Writes:
        """Create the first leadership of new partitions, with missing parents; takes parallel columns.

        ``Writes.code`` is NODE_EXISTS if another writer was faster, NO_NODE if the topic is gone or its znode has
        another id than in ``ids`` (16 bytes): then the topic was recreated, and nothing is created below it.
        """
        codes: list[int] = []
        for start in range(0, len(topics), SLICE):
            end = start + SLICE
            codes += await self._create_states(
                topics[start:end], partitions[start:end], leaderships[start:end], ids, fence
            )
        return _writes(codes, [0 if code == 0 else -1 for code in codes])

    async def _create_states(
        self,
        topics: Sequence[str],
        partitions: Sequence[int],
        leaderships: Sequence[LeaderAndIsr],
        ids: Mapping[str, bytes],
        fence: int,
    ) -> list[int]:
        datas = znodes.encode_partition_states(leaderships)
        codes = [int(Code.NO_NODE)] * len(topics)
        remaining = list(range(len(topics)))
        # NO_NODE may only mean that a conflict split the batch with the parent, which was then sent after the child's:
        # repeat until nothing more is created.
        while remaining:
            ops, at = await self._creates([(topics[i], partitions[i], datas[i]) for i in remaining], ids)
            written = (await self.client.write_many(ops, fence=fence)).code
            for i, op in zip(remaining, at, strict=True):
                codes[i] = int(Code.NO_NODE) if op is None else written[op]
            missing = [i for i in remaining if codes[i] == Code.NO_NODE]
            if len(missing) == len(remaining) and 0 not in written:
                break
            remaining = missing
        return codes

    async def _creates(
        self, states: Sequence[tuple[str, int, bytes]], ids: Mapping[str, bytes]
    ) -> tuple[list[WriteOp], list[int | None]]:
        """The creates of states, missing parents first, and each state's index among them; None in a recreated topic.

        A create of an existing znode costs its batch another round, so partitions' shared parents are checked first.
        """
        names = list(dict.fromkeys(topic for topic, _, _ in states))
        parents, known = [paths.topic_partitions(name) for name in names], [name for name in names if name in ids]
        found = await self.client.get_many([*parents, *map(paths.topic, known)])
        missing = {path for path, code in zip(parents, found.code, strict=False) if code}
        present = zip(known, found.data[len(names) :], strict=True)
        others = {name for name, data in present if of_different_topics(ids[name], znodes.decode_topic_id(data))}
        ops: list[WriteOp] = []
        at: list[int | None] = []
        for topic, partition, data in states:
            if topic in others:
                at.append(None)
                continue
            parent = paths.topic_partitions(topic)
            if parent in missing:
                missing.remove(parent)
                ops.append(Create(parent, None))
            ops.append(Create(f"{parent}/{partition}", None))
            at.append(len(ops))
            ops.append(Create(f"{parent}/{partition}/state", data))
        return ops, at

    # -- delegation tokens -----------------------------------------------------------------------------------------

    async def get_delegation_tokens(self) -> tuple[list[DelegationToken], list[BadZNode]]:
        """Every token's public part; damaged znodes are in the second list."""
        names = await self._znodes.children(paths.DELEGATION_TOKENS, watch=False)
        where = [paths.delegation_token(name) for name in names]
        reads = await self.client.get_many(where)
        read = [
            cluster_znodes.decode_delegation_token(path, data)
            for path, data, code in zip(where, reads.data, reads.code, strict=True)
            if not code
        ]
        return [t for t in read if not isinstance(t, BadZNode)], [t for t in read if isinstance(t, BadZNode)]

    async def delete_delegation_tokens(self, token_ids: Sequence[str], *, fence: int) -> None:
        """Delete the tokens and notify the brokers, which cache them."""
        await self._znodes.delete([paths.delegation_token(token_id) for token_id in token_ids], fence)
        for token_id in token_ids:
            await self._znodes.create_sequential(
                paths.delegation_token_change(paths.DELEGATION_TOKEN_CHANGE_PREFIX), token_id.encode()
            )

    # -- the cluster -----------------------------------------------------------------------------------------------

    async def create_top_level_paths(self) -> None:
        """Create the paths that a broker creates when it starts."""
        await self.create_paths(paths.TOP_LEVEL)

    async def create_paths(self, wanted: Sequence[str]) -> None:
        """Create persistent znodes without data, and their parents, if missing."""
        await self._znodes.create_paths(wanted)

    async def get_cluster_id(self) -> str | BadZNode | None:
        """``/cluster/id``; None if the cluster has none yet."""
        reads = await self._znodes.read(paths.CLUSTER_ID, watch=False)
        return None if reads is None else cluster_znodes.decode_cluster_id(reads.data[0])

    async def create_or_get_cluster_id(self, proposed: str) -> str | BadZNode:
        """The cluster's id; stores ``proposed`` if it has none."""
        await self._znodes.create(paths.CLUSTER_ID, cluster_znodes.encode_cluster_id(proposed), None)
        found = await self.get_cluster_id()
        return proposed if found is None else found

    async def get_latest_producer_id_block(self) -> tuple[ProducerIdBlock | BadZNode | None, int]:
        """(block, znode version); (None, version) if none has been allocated, (None, -1) without a znode."""
        reads = await self._znodes.read(paths.LATEST_PRODUCER_ID_BLOCK, watch=False)
        if reads is None:
            return None, -1
        data = reads.data[0]
        return (cluster_znodes.decode_producer_id_block(data) if data else None), reads.version[0]

    async def set_latest_producer_id_block(
        self, block: ProducerIdBlock, version: int, *, fence: int | None = None
    ) -> bool:
        """Allocate the block; returns False if the znode is no longer at ``version`` (-1: if it exists)."""
        path, data = paths.LATEST_PRODUCER_ID_BLOCK, cluster_znodes.encode_producer_id_block(block)
        op: WriteOp = Create(path, data) if version < 0 else SetData(path, data, version)
        return await self._znodes.write(op, fence)

    async def get_feature(self) -> tuple[FeatureZNode | BadZNode | None, int]:
        """(finalized features, znode version); (None, -1) without a znode."""
        reads = await self._znodes.read(paths.FEATURE, watch=False)
        return (None, -1) if reads is None else (cluster_znodes.decode_feature(reads.data[0]), reads.version[0])

    async def set_feature(self, feature: FeatureZNode, version: int, *, fence: int | None = None) -> bool:
        """Write the features; returns False if the znode is no longer at ``version`` (-1: if it exists)."""
        path, data = paths.FEATURE, cluster_znodes.encode_feature(feature)
        return await self._znodes.write(Create(path, data) if version < 0 else SetData(path, data, version), fence)

    async def get_migration(self) -> MigrationZNode | BadZNode | None:
        """``/migration``, which a migration to KRaft creates; None if there is none."""
        reads = await self._znodes.read(paths.MIGRATION, watch=False)
        return None if reads is None else cluster_znodes.decode_migration(reads.data[0])

    async def acls_exist(self) -> bool:
        """Whether ``/kafka-acl`` exists: an AclAuthorizer creates it when it starts."""
        return await self._znodes.exists(paths.ACL)


def _writes(codes: list[int], versions: list[int], largest: int = 0) -> Writes:
    writes = Writes(0)
    writes.code, writes.version, writes.largest = codes, versions, largest
    return writes


def _state_paths(topics: Sequence[str], partitions: Sequence[int], some: slice) -> list[str]:
    return [f"/brokers/topics/{t}/partitions/{p}/state" for t, p in zip(topics[some], partitions[some], strict=True)]


def _states(topics: Sequence[str], partitions: Sequence[int], reads: Reads) -> PartitionStates:
    states = znodes.decode_partition_states(topics, partitions, reads.data, reads.version)
    if any(reads.code):
        for i, code in enumerate(reads.code):
            if code:
                path = paths.topic_partition_state(topics[i], partitions[i])
                states.values[states.number[i]] = None if code == Code.NO_NODE else refused(path, code)
    return states


def _broker(reads: Reads, i: int, broker_id: int) -> Broker | BadZNode | None:
    if reads.code[i] == Code.NO_NODE:
        return None
    why = refused(paths.broker_id(broker_id), reads.code[i])
    return why or znodes.decode_broker(broker_id, reads.data[i], reads.czxid(i))
