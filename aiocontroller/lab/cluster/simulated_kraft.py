"""A model of a KRaft controller in a migration (KIP-866), from its start until it is stopped: it never finalizes.

 1. It creates ``/migration``, and waits until every broker that is registered or has a replica is in migration mode.
 2. It claims the cluster in one multi: the next controller epoch, and a ``/controller`` that belongs to no session.
 3. It reads all partitions, lets a live member of the ISR lead what nobody leads, and sends everything to every broker.
     Requests bear ZooKeeper's controller epoch.
 4. States that it writes bear its own epoch, the KRaft epoch.  Each of these multis is fenced by ``/controller_epoch``
    and also sets ``/migration``, which it does even if no state changes.
 5. A broker that is silent, begins anew, or wants to shut down leaves all ISRs; new leaders come from the ISR.

Differences: the real one decides and answers by its metadata log, and writes to ZooKeeper behind; here ZooKeeper is
written first.  There is one node, which neither moves replicas, nor creates or deletes topics, nor lets preferred
replicas lead again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.alter_partition import AlterPartitionResult
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_LEADER, Broker, Endpoint, LeaderAndIsr
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.lab.cluster.broker_links import CONNECT_TIMEOUT_S, LISTENER, PRIVATE_HEADER, Signal
from aiocontroller.lab.cluster.broker_server import ServedConnection
from aiocontroller.lab.cluster.migration_mode import QUORUM_HEARTBEAT, Heartbeat
from aiocontroller.net.ports import World
from aiocontroller.wire.alter_partition import decode_alter_partition_request, encode_alter_partition_response
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.wire.frames import decode_request_header, encode_request_header, encode_response_header
from aiocontroller.wire.leader_and_isr import encode_leader_and_isr
from aiocontroller.wire.messages import encode_api_versions_response
from aiocontroller.wire.primitives import INT16, INT32
from aiocontroller.wire.update_metadata import encode_update_metadata
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode, encode_migration
from aiocontroller.zookeeper.codec import Check, Create, Delete, Op, SetData
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.state_znodes import encode_partition_states
from aiocontroller.zookeeper.znodes import encode_controller_epoch

LOOPBACK = "127.0.0.1"
KRAFT_ID = 3000
LOOK_AGAIN_S = 0.2
CLAIM_TAKES_S = 0.5
"""From the claim to the first request to brokers; measured with 3.9.1 and up to 82 partitions: 0.3 to 0.6 s."""
WRITES_EVERY_S = 0.5
"""The metadata log grows at least as often (``metadata.max.idle.interval.ms``), and ``/migration`` with it."""
_OFFERED = {api: SUPPORTED[api] for api in (ApiKey.API_VERSIONS, ApiKey.ALTER_PARTITION)}
_LEADER_AND_ISR, _UPDATE_METADATA = SUPPORTED[ApiKey.LEADER_AND_ISR].max, SUPPORTED[ApiKey.UPDATE_METADATA].max
_NOT_TRIED = -2
"""Code of the operations of a multi that failed before them."""
_CLIENT_ID = "simulated-kraft"


class DeposedError(Exception):
    """Another process has written what only the claiming KRaft controller may write."""


class _Registered:
    """One incarnation of a broker in migration mode, and the requests to it, which are sent in order."""

    def __init__(self, world: World, beat: Heartbeat) -> None:
        self.broker = Broker(beat.broker, beat.epoch, (Endpoint(LISTENER, LOOPBACK, beat.port),))
        self.heard_s = 0.0
        self.leaves = False
        self.sends: asyncio.Task[None] | None = None
        self._world = world
        self._waiting: deque[tuple[ApiKey, int, bytes]] = deque()
        self._wanted = Signal()

    def put(self, api: ApiKey, version: int, body: bytes) -> None:
        self._waiting.append((api, version, body))
        self._wanted.set()

    async def send(self) -> None:
        at = self.broker.endpoints[0]
        while True:
            try:
                _, connection = await self._world.network.connect(
                    BrokerConnection, at.host, at.port, timeout_s=CONNECT_TIMEOUT_S
                )
                await self._send_over(connection)
            except OSError:
                await self._world.clock.sleep(LOOK_AGAIN_S)

    async def _send_over(self, connection: BrokerConnection) -> None:
        try:
            while True:
                while self._waiting:
                    api, version, body = self._waiting[0]
                    await connection.request([encode_request_header(api, version, 0, _CLIENT_ID), body])
                    self._waiting.popleft()
                await self._wanted.wait()
        finally:
            connection.close()


class SimulatedKRaft:
    """``run`` serves until it is cancelled; ``epoch`` is the KRaft epoch."""

    def __init__(self, world: World, zookeeper: str, *, epoch: int, session_timeout_s: float) -> None:
        self.epoch = epoch
        self.leads = False
        """It has claimed the cluster and sends requests to brokers."""
        self.port = 0
        self.connections: dict[ServedConnection, None] = {}
        self._world = world
        self._session_timeout_s = session_timeout_s
        self._client = ZooKeeperClient(zookeeper, world=world, session_timeout_s=session_timeout_s)
        self._zk = KafkaZkClient(self._client)
        self._tasks = asyncio.TaskGroup()
        self._one_at_a_time = asyncio.Lock()
        self._registered: dict[int, _Registered] = {}
        self._table = PartitionTable()
        self._controller_epoch = self._fence = 0
        self._offset = self._migration_version = 0

    @property
    def voters(self) -> str:
        """For the brokers' ``controller.quorum.voters``."""
        return f"{KRAFT_ID}@{LOOPBACK}:{self.port}"

    @property
    def session_id(self) -> int:
        return self._client.session_id

    async def run(self) -> None:
        """Migrate the cluster; DeposedError if another process has taken it meanwhile."""
        async with self._tasks:
            listener = await self._world.network.serve(lambda: ServedConnection(self), LOOPBACK, 0)
            self.port = listener.port
            await self._client.start()
            await self._client.create(paths.MIGRATION, encode_migration(MigrationZNode(-1, -1, -1, -1)))
            while not (await self._all_migrate() and await self._claim()):
                await self._world.clock.sleep(LOOK_AGAIN_S)
            await self._world.clock.sleep(CLAIM_TAKES_S)
            async with self._one_at_a_time:
                await self._read_partitions()
                await self._write(
                    {row: state for n in sorted(self._registered) for row, state in self._with(n).items()}
                )
                self._send({}, full=self._registered)
                self.leads = True
            while True:
                await self._world.clock.sleep(WRITES_EVERY_S)
                async with self._one_at_a_time:
                    await self._look()

    def spawn(self, task: Coroutine[Any, Any, None]) -> object:
        return self._tasks.create_task(task)

    # -- the claim -------------------------------------------------------------------------------------------------

    async def _all_migrate(self) -> bool:
        brokers, _ = await self._zk.get_all_brokers_in_cluster(watch=False)
        heard_s = self._world.clock.monotonic() - self._session_timeout_s
        ready = {n for n, each in self._registered.items() if each.heard_s > heard_s}
        epochs = {broker.id: broker.epoch for broker in brokers}
        if not ready or any(n not in ready or self._registered[n].broker.epoch != epochs[n] for n in epochs):
            return False
        topics = await self._zk.get_topic_assignments(
            await self._zk.get_all_topics_in_cluster(watch=False), watch=False
        )
        return all(ready.issuperset(own.replicas) for topic in topics.found for own in topic.partitions.values())

    async def _claim(self) -> bool:
        """Become the controller; False if another one was elected at the same moment."""
        now = await self._client.get_many([paths.CONTROLLER_EPOCH, paths.CONTROLLER])
        self._controller_epoch = int(now.data[0] or b"0") + 1
        ops: list[Op] = [
            SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(self._controller_epoch), now.version[0])
        ]
        ops += [Delete(paths.CONTROLLER, now.version[1])] if not now.code[1] else []
        content = {
            "version": 2,
            "brokerid": KRAFT_ID,
            "timestamp": str(self._world.clock.wall_time_us() // 1000),
            "kraftControllerEpoch": self.epoch,
        }
        results = await self._client.multi([*ops, Create(paths.CONTROLLER, msgspec.json.encode(content))])
        if any(result.code for result in results):
            return False
        self._fence = results[0].stat.version
        return True

    async def _read_partitions(self) -> None:
        found = await self._zk.get_topic_assignments(await self._zk.get_all_topics_in_cluster(watch=False), watch=False)
        for topic in found.found:
            added = self._table.add_topic(topic.topic, topic.topic_id)
            rows = self._table.add_partitions(added, topic.partitions)
            states = await self._zk.get_topic_partition_states([topic.topic] * len(rows), sorted(topic.partitions))
            for row, state in zip(rows, states, strict=True):
                if isinstance(state, LeaderAndIsr):
                    self._table.set_leadership(row, state)

    # -- brokers ---------------------------------------------------------------------------------------------------

    async def answer(self, frame: bytes, connection: ServedConnection) -> list[bytes]:
        """Return the whole answer without its length."""
        if INT16.unpack_from(frame)[0] == QUORUM_HEARTBEAT:
            beat = msgspec.msgpack.decode(frame[PRIVATE_HEADER.size :], type=Heartbeat)
            async with self._one_at_a_time:
                may_go = await self._heard(beat)
            return [INT32.pack(PRIVATE_HEADER.unpack_from(frame)[2]), msgspec.msgpack.encode(may_go)]
        header, body = decode_request_header(frame)
        api, version = ApiKey(header.api_key), header.api_version
        if api is ApiKey.API_VERSIONS:
            answer = encode_api_versions_response(version, _OFFERED)
        else:
            async with self._one_at_a_time:
                answer = await self._alter_partition(version, bytes(body))
        return [encode_response_header(api, version, header.correlation_id), answer]

    async def _heard(self, beat: Heartbeat) -> bool:
        """Register a broker or renew its registration; returns whether it may shut down."""
        known = self._registered.get(beat.broker)
        if known is None or known.broker.epoch != beat.epoch:
            await self._unregister(beat.broker)
            known = self._registered[beat.broker] = _Registered(self._world, beat)
            known.sends = self._tasks.create_task(known.send())
            if self.leads:
                await self._change(self._with(beat.broker), full=(beat.broker,))
        known.heard_s = self._world.clock.monotonic()
        if not (self.leads and beat.leaves):
            return False
        if not known.leaves:
            known.leaves = True
            await self._change(self._without(beat.broker))
        if self._table.leaders_of.get(beat.broker):
            return False
        await self._unregister(beat.broker)
        return True

    async def _look(self) -> None:
        """Fence silent brokers, and note in ``/migration`` that the metadata log has grown."""
        before_s = self._world.clock.monotonic() - self._session_timeout_s
        for number, each in sorted(self._registered.items()):
            if each.heard_s < before_s:
                await self._unregister(number)
        await self._write({})

    async def _unregister(self, number: int) -> None:
        known = self._registered.pop(number, None)
        if known is None:
            return
        if known.sends is not None:
            known.sends.cancel()
        if self.leads:
            await self._change(self._without(number))

    # -- elections -------------------------------------------------------------------------------------------------

    def _without(self, broker: int) -> dict[int, LeaderAndIsr]:
        """Return what changes if the broker leaves all ISRs; it stays in those that would be empty."""
        live = {n for n, each in self._registered.items() if n != broker and not each.leaves}
        changes = {}
        for row in self._table.partitions_on_broker(broker):
            held = self._table.leadership(row)
            if held is None or broker not in held.isr:
                continue
            isr = tuple(member for member in held.isr if member != broker) or held.isr
            able = [n for n in self._table.replicas(row) if n in isr and n in live]
            leader = held.leader if held.leader != broker else next(iter(able), NO_LEADER)
            if (leader, isr) != (held.leader, held.isr):
                changes[row] = msgspec.structs.replace(
                    held, leader=leader, leader_epoch=held.leader_epoch + 1, isr=isr, eligible=None
                )
        return changes

    def _with(self, broker: int) -> dict[int, LeaderAndIsr]:
        """Return what changes as the broker is back: it leads what nobody led for want of it."""
        changes = {}
        for row in self._table.partitions_on_broker(broker):
            held = self._table.leadership(row)
            if held is not None and held.leader == NO_LEADER and broker in held.isr:
                changes[row] = msgspec.structs.replace(held, leader=broker, leader_epoch=held.leader_epoch + 1)
        return changes

    async def _alter_partition(self, version: int, body: bytes) -> bytes:
        if not self.leads:
            return encode_alter_partition_response(version, KafkaErrorCode.NOT_CONTROLLER)
        asked = decode_alter_partition_request(version, body)
        changes: dict[int, LeaderAndIsr] = {}
        codes = []
        for change in asked.partitions:
            row = self._row(change)
            code = self._judge(row, change, asked.broker)
            codes.append((row, change, code))
            if not code:
                held = self._table.leadership(row)
                assert held is not None
                changes[row] = msgspec.structs.replace(held, isr=change.isr, eligible=None)
        await self._change(changes)
        results = [
            AlterPartitionResult(change.topic, change.partition, code, None if code else self._table.leadership(row))
            for row, change, code in codes
        ]
        return encode_alter_partition_response(version, KafkaErrorCode.NONE, results)

    def _row(self, change: AlterPartition) -> int:
        if isinstance(change.topic, str):
            return self._table.row(change.topic, change.partition)
        topic = self._table.topic_by_id.get(change.topic)
        return -1 if topic is None else self._table.row(topic.name, change.partition)

    def _judge(self, row: int, change: AlterPartition, broker: int) -> KafkaErrorCode:
        held = None if row < 0 else self._table.leadership(row)
        if held is None:
            return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (broker, change.leader_epoch) != (held.leader, held.leader_epoch):
            return KafkaErrorCode.FENCED_LEADER_EPOCH
        if change.partition_epoch != held.partition_epoch:
            return KafkaErrorCode.INVALID_UPDATE_VERSION
        live = {n for n, each in self._registered.items() if not each.leaves}
        return KafkaErrorCode.NONE if live.issuperset(change.isr) else KafkaErrorCode.INELIGIBLE_REPLICA

    # -- writes and requests ---------------------------------------------------------------------------------------

    async def _change(self, changes: Mapping[int, LeaderAndIsr], full: Collection[int] = ()) -> None:
        """Write new states, and send them to all brokers; the brokers in ``full`` get everything."""
        if changes:
            await self._write(changes)
        self._send(changes, full)

    async def _write(self, changes: Mapping[int, LeaderAndIsr]) -> None:
        states = [
            msgspec.structs.replace(
                state, controller_epoch=self.epoch, partition_epoch=self._table.partition_epoch[row] + 1
            )
            for row, state in changes.items()
        ]
        self._offset += 1 + len(states)
        migration = MigrationZNode(KRAFT_ID, self.epoch, self._offset, self.epoch)
        sets = [
            SetData(paths.topic_partition_state(*self._table.topic_partition(row)), data, state.partition_epoch - 1)
            for row, state, data in zip(changes, states, encode_partition_states(states), strict=True)
        ]
        ops: list[Op] = [
            Check(paths.CONTROLLER_EPOCH, self._fence),
            *sets,
            SetData(paths.MIGRATION, encode_migration(migration), self._migration_version),
        ]
        for op, result in zip(ops, await self._client.multi(ops), strict=True):
            if result.code not in (0, _NOT_TRIED):
                raise DeposedError(f"{op.path} was written by another process")
        self._migration_version += 1
        for row, state in zip(changes, states, strict=True):
            self._table.set_leadership(row, state)

    def _send(self, changes: Iterable[int], full: Collection[int] = ()) -> None:
        changed, table = list(changes), self._table
        live = [each.broker for _, each in sorted(self._registered.items())]
        everything = table.with_leadership(table.rows())
        for each in self._registered.values():
            rows: Sequence[int] = everything if each.broker.id in full else changed
            head: dict[str, Any] = {
                "controller_id": KRAFT_ID,
                "controller_epoch": self._controller_epoch,
                "broker_epoch": each.broker.epoch,
                "table": table,
            }
            metadata = encode_update_metadata(
                _UPDATE_METADATA, **head, rows=rows, live_brokers=live, live=[broker.id for broker in live]
            )
            each.put(ApiKey.UPDATE_METADATA, _UPDATE_METADATA, metadata)
            own = [row for row in rows if each.broker.id in table.replicas(row)]
            if own:
                body = encode_leader_and_isr(
                    _LEADER_AND_ISR,
                    **head,
                    rows=own,
                    new=own,
                    live_leaders=[(b.id, b.endpoints[0].host, b.endpoints[0].port) for b in live],
                )
                each.put(ApiKey.LEADER_AND_ISR, _LEADER_AND_ISR, body)
