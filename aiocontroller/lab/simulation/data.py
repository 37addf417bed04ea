"""The records of a simulation: its brokers' disks, clients that produce and read, and the check of the logs at the end.

A disk outlives its broker's processes.  Only one process uses it at a time: the next one waits until its predecessor
has ended or is killed, as with Kafka's lock file.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.journal.records import Record
from aiocontroller.lab.checkers.best_logs import BestLogs, Reported, ReportedLog
from aiocontroller.lab.checkers.observers import LogObserver, wrap
from aiocontroller.lab.checkers.records import Partition, Records
from aiocontroller.lab.cluster import client_requests
from aiocontroller.lab.cluster.data_client import Acknowledged, Address, DataClient
from aiocontroller.lab.cluster.generations import generation, protocol_of
from aiocontroller.lab.cluster.logs import Disk, Log, Run
from aiocontroller.lab.cluster.partition import Fetcher
from aiocontroller.lab.cluster.partition import Partition as Replica
from aiocontroller.lab.cluster.replication import ALL, FetchAnswer
from aiocontroller.lab.cluster.simulated_broker import LOOPBACK, SimulatedBroker
from aiocontroller.lab.scenarios.plan import MIN_ISR
from aiocontroller.net.ports import World
from aiocontroller.wire import fetch
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.cluster_znodes import decode_config
from aiocontroller.zookeeper.znode_json import topic_id_to_text
from aiocontroller.zookeeper.znodes import BadZNode

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.process import Process
    from aiocontroller.lab.simulation.simulation import Simulation

LOCK_POLL_S = 0.1
RECOVERY_WITHIN_S = 15.0
"""How long ``Aggressive`` waits for the logs of dead replicas."""
ELIGIBLE_FROM = (3, 7, 0)
"""``inter.broker.protocol.version`` from which controllers keep eligible leader replicas."""


class SimulatedData:
    """The disks and clients of a simulation; reports to its checkers what becomes of records."""

    def __init__(self, simulation: Simulation) -> None:
        self.acknowledged: list[Acknowledged] = []
        """Every acknowledgement of any kind, in order."""
        self._simulation = simulation
        self._checker = simulation.history.data
        self.best_logs = BestLogs(
            simulation.history.complain,
            simulation.history.probe,
            self._reported_logs,
            by_rule=simulation.plan.recovery == "None",
        )
        simulation.history.on_election = self.best_logs.chosen
        simulation.history.reported = self.best_logs.asked
        simulation.history.must_ask = self._must_ask
        if simulation.plan.recovery == "Aggressive":
            simulation.history.unclean.after_s = RECOVERY_WITHIN_S
        self._disks = {broker: Disk() for broker in range(1, simulation.plan.brokers + 1)}
        self._users: dict[int, Process] = {}
        self._clients: dict[asyncio.Task[None], DataClient] = {}
        self._reported: dict[Partition, dict[int, ReportedLog]] = {}
        """Each broker's log when the broker last reported where it ends."""
        self._checker.eligible.min_isr = self._eligible_below
        simulation.history.running = self._running

    def _min_isr(self, topic: str) -> int:
        """Return the topic's own ``min.insync.replicas``, or that of all brokers."""
        path = paths.config_entity("topics", topic)
        node = self._simulation.model.tree.nodes.get(path)
        own = {} if node is None else decode_config(path, node.data)
        value = None if isinstance(own, BadZNode) else own.get(MIN_ISR)
        return int(value or dict(self._simulation.plan.settings).get(MIN_ISR, "1"))

    def _eligible_below(self, topic: str) -> int:
        """Return the ISR size below which brokers commit nothing, as controllers know; 1 if some brokers are older."""
        versions = self._simulation.fleet.brokers.values()
        spoken = [protocol_of(generation(version.release), version.protocol) for version in versions]
        return self._min_isr(topic) if min(spoken) >= ELIGIBLE_FROM else 1

    def _running(self) -> Collection[int]:
        """Return the brokers that every controller considers live; none if it may suspect some, or releases are mixed.

        A process that waits for its disk does not count: the registration is its predecessor's, which is still
        stopping.
        """
        simulation = self._simulation
        if simulation.plan.broker_detection != "off" or simulation.fleet.mixed:
            return ()
        return [
            number
            for number, (broker, process) in simulation.brokers.items()
            if not process.host.paused and self._has_registered(broker)
        ]

    def _has_registered(self, broker: SimulatedBroker) -> bool:
        node = self._simulation.model.tree.nodes.get(paths.broker_id(broker.config.id))
        return node is not None and node.owner == broker.session_id

    def _must_ask(self, partition: Partition, leader: int) -> bool:
        """Whether the active controller knows that this broker's present process has started uncleanly, and considers
        other replicas online, too."""
        holder = self._simulation.holding()
        if holder is None or not self._runs(leader):
            return False
        context = holder[0].shell.context
        row = context.table.row(*partition)
        others = [] if row < 0 else [broker for broker in context.table.replicas(row) if broker != leader]
        known = leader in context.started_uncleanly()
        return known and any(context.is_replica_online(row, broker) for broker in others)

    def _runs(self, number: int) -> bool:
        """Whether the broker's present process has registered."""
        return number in self._simulation.brokers and self._has_registered(self._simulation.brokers[number][0])

    # -- disks -----------------------------------------------------------------------------------------------------

    async def mount(self, broker: SimulatedBroker, process: Process, world: World) -> None:
        """Give a broker its disk before it runs."""
        number = broker.config.id
        while (user := self._users.get(number)) is not None and user.alive:
            await world.clock.sleep(LOCK_POLL_S)
        self._users[number] = process
        self._disks[number] = self._disks[number].reopen()
        broker.mount(self._disks[number])
        broker.replicas.min_isr_of = self._min_isr
        LogObserver(self._checker, broker, lambda: process.host.crashed)

        with_epochs = broker.generation.of_logs[ApiKey.FETCH].max >= fetch.VERSION

        def end_reported(topic: str, partition: int, log: Log) -> None:
            self._reported.setdefault((topic, partition), {})[number] = ReportedLog(list(log.runs), with_epochs)

        broker.replicas.end_reported = end_reported
        wrap(self._disks[number], "retain", functools.partial(self._retains, self._disks[number]))
        wrap(broker.replicas, "_apply_fetched", self._takes)

    def _retains(self, disk: Disk, original: Any, records: int) -> None:
        before = {name: stored.log.start for name, stored in disk.logs.items()}
        original(records)
        for name, stored in disk.logs.items():
            if stored.log.start > before[name]:
                self._simulation.history.probe("old records deleted")
                self._checker.deleted_old(name, stored.log.start, _text(stored.topic_id))

    def _takes(self, original: Any, fetcher: Fetcher, partition: Replica, answer: FetchAnswer) -> bool:
        if partition.stored is not None and answer.log_start > partition.stored.log.end:
            self._simulation.history.probe("a follower begins where its leader's log begins")
        return bool(original(fetcher, partition, answer))

    def power_cut(self, number: int) -> None:
        """Drop what a killed broker had not flushed."""
        self._disks[number] = self._disks[number].reopen()
        for partition, (after, before) in self._disks[number].power_cut().items():
            self._simulation.history.probe("records lost with the power")
            self._checker.damaged(number, partition, after, before, noticed=False)

    # -- elections by evidence -------------------------------------------------------------------------------------

    def note_recovery(self, context: ControllerContext, record: Record) -> None:
        """A controller with this context has recorded what brokers have reported about a partition's logs."""
        self._simulation.history.probe(f"recovery {record.event}")
        assert record.topic is not None and record.partition is not None and record.leader_epoch is not None
        row = context.table.row(record.topic, record.partition)
        if record.event == "evidence" and row >= 0:
            reported = Reported(record.leader_epoch, record.replicas or (), lambda b: context.is_replica_online(row, b))
            self.best_logs.reported((record.topic, record.partition), reported)

    def _reported_logs(self, partition: Partition) -> dict[int, ReportedLog]:
        return self._reported.get(partition, {})

    # -- clients ---------------------------------------------------------------------------------------------------

    def client(self, world: World) -> DataClient:
        return DataClient(world, self._addresses, self._note, self._note_read)

    def start_clients(self) -> None:
        for number in range(1, self._simulation.plan.clients + 1):
            client = self.client(self._simulation.world(f"client {number}"))
            task = asyncio.ensure_future(client.run())
            self._clients[task] = client
            task.add_done_callback(self._ended)

    def stop_clients(self) -> None:
        for task, client in self._clients.items():
            task.cancel()
            client.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._simulation.problems.append(f"bug: a client ended with {error!r}")

    def _addresses(self) -> list[Address]:
        return [(LOOPBACK, broker.port) for broker, _ in self._simulation.brokers.values() if broker.port]

    def _note(self, batch: Acknowledged) -> None:
        self.acknowledged.append(batch)
        self._simulation.history.probe(f"acks={'all' if batch.acks == ALL else batch.acks}")
        if batch.acks == ALL:
            records = Records(batch.epoch, batch.leader, batch.base, batch.base + batch.number)
            self._checker.acknowledged(batch.partition, records, _text(batch.topic_id))

    def _note_read(self, partition: Partition, start: int, answer: client_requests.Records) -> None:
        self._simulation.history.probe("records read")

    # -- the end ---------------------------------------------------------------------------------------------------

    def logs(self, partition: Partition) -> dict[int, list[Run]]:
        """Return the logs of the partition's replicas on running brokers."""
        found = {}
        for number, (broker, _) in sorted(self._simulation.brokers.items()):
            replica = broker.replicas.partition(*partition)
            if replica is not None and replica.stored is not None:
                found[number] = list(replica.stored.log.runs)
        return found

    def check_end(self) -> None:
        """Check, when the cluster is whole, that every acknowledged record is there and all replicas agree."""
        history = self._simulation.history
        for partition, state in sorted(history.states.items()):
            if paths.topic(partition[0]) not in self._simulation.model.tree.nodes:
                continue
            logs = self.logs(partition)
            if state.leader in logs:
                topic_id = history.topic_ids.get(partition[0], "")
                self._checker.ended(partition, state.leader, state.leader_epoch, logs, topic_id)


def _text(topic_id: bytes) -> str:
    return "" if topic_id == NO_TOPIC_ID else topic_id_to_text(topic_id)
