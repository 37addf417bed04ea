"""What every handler works with: the context, the ports to ZooKeeper and the brokers, and the two state machines.

A handler has three beats: *decide* (core functions over the context), *make durable* (a fenced, batched write), *apply*
(change the context by what ZooKeeper accepted, fill the request batch).  The state machines below are those beats for
partitions and replicas; handlers in the neighbouring modules compose them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.authorizer import Authorizer
from aiocontroller.config import Config
from aiocontroller.controller.broker_requests import BrokerRequestSender
from aiocontroller.controller.channel_manager import ControllerChannelManager
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.faults import Faults
from aiocontroller.controller.refused_brokers import RefusedBrokers
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import Broker, Endpoint, TopicPartition
from aiocontroller.core.request_batch import RequestBatch, Sent, leaders_first
from aiocontroller.journal.journal import Journal
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import World
from aiocontroller.property_values import parse_listeners
from aiocontroller.security import Security, authorizer_of, unsupported_authorizer
from aiocontroller.zookeeper.acl_store import AclStore
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znodes import SOFTWARE, BadZNode, ControllerZNode

log = logging.getLogger(__name__)

SENT_AT_ONCE = 2_000
"""Partitions of a batch that are not held back until its end."""

MAX_REPORTED_BAD = 10_000
"""Unreadable znodes that are kept in mind."""

LEADERS_FIRST_S = 0.5
"""How long the others wait for a leader that does not answer."""


def inter_broker_listener(config: Config, brokers: Iterable[Broker]) -> str:
    """On which brokers talk to each other and to the controller: the only one they have, or the configured one."""
    names = dict.fromkeys(e.listener for b in brokers for e in b.endpoints)
    return next(iter(names)) if len(names) == 1 else config.inter_broker_listener_name


def entry_of(controller_id: int, own: Sequence[Endpoint], config: Config, context: ControllerContext) -> Broker:
    """A controller with the endpoints ``own`` (one at least), as one more live broker; see ``own_entry``."""
    brokers = list(context.brokers.values())
    standing_in = (inter_broker_listener(config, brokers), config.control_plane_listener_name)

    def endpoint(name: str) -> Endpoint | None:
        ours = next((e for e in own if e.listener == name), None)
        if ours is None and name in standing_in:
            ours = own[0]  # one listener serves, whatever its name
        if ours is not None:
            return Endpoint(name, ours.host, ours.port, ours.security_protocol)
        return next((e for b in sorted(context.live) if (e := context.brokers[b].endpoint(name)) is not None), None)

    names = dict.fromkeys(e.listener for b in brokers for e in b.endpoints)
    racks = [b.rack for b in brokers]
    rack = racks[0] if racks and all(r is not None for r in racks) else None
    return Broker(controller_id, 0, tuple(e for name in names if (e := endpoint(name)) is not None), rack)


def address_of(holder: ControllerZNode, config: Config) -> Endpoint | None:
    """Where a controller of our kind can be reached; None for another's, and where it does not say.

    What its listener speaks is what our own configuration says of a listener of that name.
    """
    if holder.software != SOFTWARE or not holder.address:
        return None
    try:
        (found,) = parse_listeners(holder.address)
    except ValueError:
        log.warning(
            "Controller %d gives its address as %r, expected NAME://host:port", holder.controller_id, holder.address
        )
        return None
    protocols = config.listener_security_protocol_map
    return msgspec.structs.replace(found, security_protocol=protocols.get(found.listener, found.security_protocol))


class ControllerShell:
    """Owned by the consumer coroutine; nobody else touches ``context``."""

    def __init__(
        self,
        config: Config,
        world: World,
        zk: KafkaZkClient,
        queue: EventQueue,
        metrics: Metrics,
        journal: Journal,
        new_channels: Callable[[ControllerShell], ControllerChannelManager],
        own_endpoints: Callable[[], Sequence[Endpoint]],
    ) -> None:
        self.config = config
        self.id = config.aiocontroller_id
        self.world = world
        self.zk = zk
        self.queue = queue
        self.metrics = metrics
        self.journal = journal
        self.own_endpoints = own_endpoints
        self.security = Security(config)
        self.authorizer: Authorizer = authorizer_of(config)
        self.acls: AclStore | None = None
        """Where the authorizer's ACLs stand; None without an authorizer, or with one that cannot run here."""
        if isinstance(self.authorizer, AclAuthorizer) and unsupported_authorizer(config) is None:
            self.acls = AclStore(zk.client, world, self.authorizer)
        self._new_channels = new_channels
        self.context = ControllerContext()
        self.channels: ControllerChannelManager | None = None
        self._requests: BrokerRequestSender | None = None
        self.leaving = False
        """The role is about to be given back: brokers are told of no controller among them."""
        self.reported_offline: frozenset[int] = frozenset()
        """pids that the log said to have no leader, so that a sweep does not say so again."""
        self._deletion_waiters: dict[str, list[Callable[[str], None]]] = {}
        self.unclean_default = config.unclean_leader_election_enable
        """``unclean.leader.election.enable`` of the cluster: configured, or changed while it runs."""
        self.config_changes_seen: set[str] = set()
        """Names of the change notifications that have been looked at; membership only."""
        self.faults = Faults(world.clock.monotonic, metrics)
        self.reloaded = False
        """This term has begun before: partitions may bear its epoch already."""
        self._reported_bad: dict[str, BadZNode] = {}
        """By path, as they were reported last."""
        self.bad_znodes = metrics.counter("aiocontroller", "ZooKeeper", "BadZNodes")
        self.refused_brokers = RefusedBrokers(world.clock, metrics)
        self.alarms = metrics.counter("aiocontroller", "EarlyDetection", "Alarms")
        self.false_alarms = metrics.counter("aiocontroller", "EarlyDetection", "FalseAlarms")
        self.unclean_elections = metrics.meter("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec")

    # -- terms of office -------------------------------------------------------------------------------------------

    def begin_term(self, epoch: int, epoch_zk_version: int, *, again: bool = False) -> None:
        """A new, empty context and new channels: nothing of an earlier term can be in them.

        ``again``: the term is the same, and begins anew.
        """
        self.end_term()
        self.leaving = False
        self.reloaded = again
        self.context = ControllerContext(epoch, epoch_zk_version)
        self.context.controllers = frozenset((self.id,))
        self.channels = self._new_channels(self)
        self._requests = BrokerRequestSender(self.context, self.channels, self.world.clock, self.id, self.own_entry)
        self.journal.epoch = epoch

    def end_term(self) -> None:
        if self.channels is not None:
            self.channels.shutdown()
            self.channels = None
        self._requests = None
        self.reported_offline = frozenset()
        self._deletion_waiters.clear()
        self._reported_bad.clear()
        self.context = ControllerContext()

    # -- brokers ---------------------------------------------------------------------------------------------------

    def endpoint_of(self, broker: Broker) -> Endpoint | None:
        """Where the controller talks to a broker: its control-plane listener, else its inter-broker listener."""
        for listener in (self.config.control_plane_listener_name, self.config.inter_broker_listener_name):
            if listener:
                found = broker.endpoint(listener)
                if found is not None:
                    return found
        plaintext = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
        return plaintext or (broker.endpoints[0] if broker.endpoints else None)

    def own_entry(self) -> Broker | None:
        """How brokers find the controller: as one more live broker, under each listener name that they use.

        Under a listener that is not ours stands the address of a live broker (a *shadow*): whoever comes there gets
        what any broker answers, and the listener names of all live brokers stay the same, which brokers insist on.

        Where all brokers have a rack it takes the first broker's: brokers refuse to place replicas when only some
        have one, and a rack of its own would attract a replica of every partition.
        """
        if self.leaving:
            return None
        return entry_of(self.id, self.own_endpoints(), self.config, self.context)

    # -- short steps -----------------------------------------------------------------------------------------------

    async def breathe(self) -> None:
        """Let others run: heartbeats, answers, other brokers' sockets.  Only the consumer changes the context, so the
        context after this is the one before it."""
        await self.world.clock.sleep(0)

    # -- telling the brokers ---------------------------------------------------------------------------------------

    def new_batch(self) -> RequestBatch:
        return RequestBatch(self.context)

    async def send(self, batch: RequestBatch) -> Sent:
        """Encode what the batch holds and queue it to the brokers; empties the batch.

        Leaders hear first: what the others are told waits in their queues until the leaders have acknowledged.
        """
        assert self._requests is not None and self.channels is not None
        requests = batch.take()
        parts = leaders_first(requests, self.context.table.leader)
        if parts is None:
            return await self._requests.send(requests, batch.sent)
        first, rest = parts
        to_leaders = await self._requests.send(first)
        barrier = self.channels.hold_back(self.context.brokers, LEADERS_FIRST_S)
        leaders_heard = batch.sent.control.one()
        await self._requests.send(rest, batch.sent)

        def go_on() -> None:
            barrier.open()
            leaders_heard()

        to_leaders.control.when_all(go_on)
        return batch.sent

    async def send_if_large(self, batch: RequestBatch) -> None:
        """Brokers should not wait for what is still being written."""
        if len(batch) >= SENT_AT_ONCE:
            await self.send(batch)

    async def send_update_metadata(self, brokers: Iterable[int], pids: Sequence[int] = ()) -> None:
        batch = self.new_batch()
        batch.add_update_metadata_request_for_brokers(brokers, pids)
        await self.send(batch)

    # -- those who wait for a deletion -----------------------------------------------------------------------------

    def on_topic_deleted(self, topic: str, callback: Callable[[str], None]) -> None:
        """Call back once when the topic's znodes are gone; never, if this term ends before."""
        self._deletion_waiters.setdefault(topic, []).append(callback)

    def topic_deleted(self, topic: str) -> None:
        for callback in self._deletion_waiters.pop(topic, []):
            callback(topic)

    # -- what went wrong -------------------------------------------------------------------------------------------

    def report_bad_znodes(self, bad: Sequence[BadZNode]) -> None:
        """Named, counted, left out; the rest of the cluster goes on.  Once, until it changes or is well or gone."""
        for znode in bad:
            if self._reported_bad.get(znode.path) == znode:
                continue
            if len(self._reported_bad) >= MAX_REPORTED_BAD:
                del self._reported_bad[next(iter(self._reported_bad))]
            self._reported_bad[znode.path] = znode
            self.bad_znodes.inc()
            self.journal.append("bad_znode", detail=f"{znode.path}: found {znode.found}, expected {znode.expected}")
            log.error("Left out %s: found %s, expected %s", znode.path, znode.found, znode.expected)

    def forget_bad_znodes(self, are_well: Callable[[str], bool]) -> None:
        """Of these paths, reported before, the next damage is news again."""
        for path in [path for path in self._reported_bad if are_well(path)]:
            del self._reported_bad[path]

    def sample(self, pids: Sequence[int], most: int = 5) -> str:
        """Names a few partitions of many, for one log line."""
        names = ", ".join(str(self.context.table.topic_partition(pid)) for pid in pids[:most])
        return f"{names}, … ({len(pids)} in all)" if len(pids) > most else names

    def topic_partition(self, pid: int) -> TopicPartition:
        return self.context.table.topic_partition(pid)
