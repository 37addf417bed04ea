"""What every handler works with: the context, and the ports to ZooKeeper and the brokers.

A handler works in steps: *plan* (core functions over the context), *write* (fenced and batched), *apply* (change the
context by what ZooKeeper accepted, and fill the request batch), *send*.  ``state_changes`` has these steps for
partitions and replicas; handlers in the neighbouring modules compose them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.authorizer import Authorizer
from aiocontroller.config import Config
from aiocontroller.controller.auditor import Auditor
from aiocontroller.controller.broker_requests import BrokerRequestSender
from aiocontroller.controller.channel_manager import ControllerChannelManager
from aiocontroller.controller.cluster_settings import ClusterSettings
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.faults import Faults
from aiocontroller.controller.fence_command import FenceCommand
from aiocontroller.controller.heartbeats import Heartbeats
from aiocontroller.controller.log_questions import LogQuestions
from aiocontroller.controller.mutation_quotas import MutationQuotas
from aiocontroller.controller.refused_brokers import RefusedBrokers
from aiocontroller.controller.sickness_probes import SicknessProbes
from aiocontroller.core.apply import apply
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import TermBegun, TimeSet
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, Endpoint, MinIsr, TopicAssignment, TopicPartition
from aiocontroller.core.mirror import MirroredCluster
from aiocontroller.core.ownership import Check, NotTheOwnerError, owned_context
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.core.request_batch import Acknowledgements, RequestBatch, Sent, leaders_first
from aiocontroller.core.warm_failover_sending import FullMetadata
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
"""A batch with this many partitions is sent early, before it is complete."""

MAX_REPORTED_BAD = 10_000
"""How many unreadable znodes are remembered."""

HAND_OVER_AFTER_S = 1.0
"""How long an active controller looks for another ZooKeeper server before it hands the role over."""

LEADERS_FIRST_S = 0.5
"""How long requests to other brokers wait for a leader that does not answer."""


def inter_broker_listener(config: Config, brokers: Iterable[Broker]) -> str:
    """The listener for inter-broker and controller traffic: the brokers' only one, or the configured one."""
    names = dict.fromkeys(e.listener for b in brokers for e in b.endpoints)
    return next(iter(names)) if len(names) == 1 else config.inter_broker_listener_name


def entry_of(controller_id: int, own: Sequence[Endpoint], config: Config, context: ControllerContext) -> Broker:
    """The controller with the endpoints ``own`` (at least one) as a live broker; see ``own_entry``."""
    brokers = list(context.brokers.values())
    standing_in = (inter_broker_listener(config, brokers), config.control_plane_listener_name)

    def endpoint(name: str) -> Endpoint | None:
        ours = next((e for e in own if e.listener == name), None)
        if ours is None and name in standing_in:
            ours = own[0]  # a single listener is used whatever its name
        if ours is not None:
            return Endpoint(name, ours.host, ours.port, ours.security_protocol)
        return next((e for b in sorted(context.live) if (e := context.brokers[b].endpoint(name)) is not None), None)

    names = dict.fromkeys(e.listener for b in brokers for e in b.endpoints)
    racks = [b.rack for b in brokers]
    rack = racks[0] if racks and all(r is not None for r in racks) else None
    return Broker(controller_id, 0, tuple(e for name in names if (e := endpoint(name)) is not None), rack)


def address_of(holder: ControllerZNode, config: Config) -> Endpoint | None:
    """The address of another aiocontroller; None for other controllers, and where the znode has no address.

    The security protocol is the one that our own configuration maps the listener name to.
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


class HandlersCounts:
    """The handlers' metrics; a new one belongs here."""

    def __init__(self, metrics: Metrics) -> None:
        self.bad_znodes = metrics.counter("aiocontroller", "ZooKeeper", "BadZNodes")
        self.alarms = metrics.counter("aiocontroller", "EarlyDetection", "Alarms")
        self.false_alarms = metrics.counter("aiocontroller", "EarlyDetection", "FalseAlarms")
        self.unclean_elections = metrics.meter("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec")


class ControllerShell:
    """Owned by the consumer's task: no other task may change ``context`` (debug mode raises an error)."""

    cut_off_s: float | None = None
    """Since when ZooKeeper has been disconnected (``Clock.monotonic``); None: it is connected."""
    reconnected_s: float | None = None
    """When the present connection to ZooKeeper was made; None: it is the first."""

    leaving = False
    """The role is about to be released: brokers get a live broker list without the controller."""

    fence_command: FenceCommand | None = None
    """Ends brokers that hang; None without ``aiocontroller.fence.command``."""

    sickness: SicknessProbes | None = None
    """Collects evidence of sick brokers; None where ``aiocontroller.sickness.mode`` is off."""

    refused_isrs: dict[int, tuple[int, tuple[int, ...], KafkaErrorCode]]
    """In a term: row -> the last refused request to change its ISR, as (sender, ISR, error)."""

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
        self.counts = HandlersCounts(metrics)
        self.journal = journal
        self.own_endpoints = own_endpoints
        self.security = Security(config)
        self.authorizer: Authorizer = authorizer_of(config)
        self.acls: AclStore | None = None
        """The authorizer's ACLs; None without an authorizer, or with one that cannot run here."""
        if isinstance(self.authorizer, AclAuthorizer) and unsupported_authorizer(config) is None:
            self.acls = AclStore(zk.client, world, self.authorizer)
        self._new_channels = new_channels
        self.owner: asyncio.Task[Any] | None = None  # the consumer's task, once it runs
        self.context = self._new_context()
        self.channels: ControllerChannelManager | None = None
        self.broker_heartbeats: Heartbeats | None = None
        """Watches the brokers, on the active controller and on standbys, if early detection is on."""
        self._requests: BrokerRequestSender | None = None
        self.copy: MirroredCluster | None = None
        """The copy of the cluster with which this term began, until watches are armed on all of it; else None."""
        self.on_copy_dropped: Callable[[], None] = lambda: None
        self.full_metadata: FullMetadata | None = None
        """What is yet to be sent to brokers since the failover; None if nothing is."""
        self.reported_offline: frozenset[int] = frozenset()
        """Rows already logged as leaderless, so that a sweep does not log them again."""
        self._deletion_waiters: dict[str, list[Callable[[str], None]]] = {}
        self._leaders_awaited: list[Acknowledgements] = []  # of batches whose other requests wait for these
        self.settings = ClusterSettings(config, metrics)
        self.policy = self.settings.policy
        """Our configuration with the cluster's settings, as the consumer last applied them (``obeying``)."""
        self.min_isrs: dict[bytes, MinIsr] = {}  # by topic id, as read in this term since its settings changed last
        self.config_changes_seen: set[str] = set()
        """Names of the change notifications that have been processed; membership only."""
        self.faults = Faults(world.clock.monotonic, metrics)
        self.reloaded = False
        """This term was restarted, so partition states may carry its epoch already."""
        self.before_reload: PartitionTable | None = None
        """The partition table before this term was restarted, which brokers know; None once topics that were replaced
        meanwhile have been found."""
        self.vanished: dict[str, TopicAssignment] = {}
        """Topics that a foreign write has deleted in this term, by name: brokers still have their replicas."""
        self._reported_bad: dict[str, BadZNode] = {}
        """Unreadable znodes by path, as last reported."""
        self.auditor = Auditor(
            world.clock,
            queue,
            metrics,
            config.aiocontroller_audit_interval_ms / 1000,
            config.aiocontroller_audit_partitions_per_second,
            brokers_write=self.leaders_may_write,
        )
        self.log_questions = LogQuestions(queue, world.clock)
        self.refused_brokers = RefusedBrokers(world.clock, metrics)
        self.mutation_quotas = MutationQuotas(zk, world.clock, lambda: self.policy, metrics)

    def leaders_may_write(self) -> bool:
        """Whether leaders may write ISRs themselves; assumed until a broker has reported its protocol version."""
        known = bool(self.settings.brokers)
        supported = self.policy.alter_partition_supported and self.settings.policy.alter_partition_supported
        return not (known and supported)

    # -- terms -----------------------------------------------------------------------------------------------------

    def begin_term(
        self, epoch: int, epoch_zk_version: int, *, again: bool = False, copy: MirroredCluster | None = None
    ) -> None:
        """Start with a new, empty context and new channels, so that nothing is left of an earlier term.

        ``again``: the same term restarts.  ``copy``: use the context of this copy of the cluster.
        """
        before = (self.context.table if self.context.loaded else self.before_reload) if again else None
        vanished = self.vanished if again else {}
        self.end_term()
        self.before_reload, self.vanished = before, vanished
        self.leaving = False
        self.reloaded = again
        self.refused_isrs = {}
        if self.sickness is not None and not again:
            self.sickness.begin()
        self.copy = copy
        self.context = self._new_context(epoch, epoch_zk_version) if copy is None else copy.context
        apply(self.context, TermBegun(epoch, epoch_zk_version, self.config.leader_preferences))
        apply(self.context, TimeSet(self.world.clock.wall_time_us()))
        self.context.topic_ids_supported = self.config.topic_ids_supported
        self.context.controllers = frozenset((self.id,))
        self.channels = self._new_channels(self)
        self._requests = BrokerRequestSender(
            self.context, self.channels, self.world.clock, self.id, self.own_entry, self.endpoint_among_brokers
        )
        self.journal.epoch = epoch

    @property
    def is_active(self) -> bool:
        """Whether a term is running."""
        return self.channels is not None

    def is_connected_for(self, seconds: float) -> bool:
        """Whether there is a connection to ZooKeeper, and has been for ``seconds`` or has never been lost."""
        since_s = self.reconnected_s
        return self.zk.client.connected and (since_s is None or self.world.clock.monotonic() - since_s >= seconds)

    @property
    def hands_over(self) -> bool:
        """Whether this active controller should hand over: it was disconnected from ZooKeeper for HAND_OVER_AFTER_S."""
        since_s = self.cut_off_s
        return self.is_active and since_s is not None and self.world.clock.monotonic() - since_s >= HAND_OVER_AFTER_S

    def end_term(self) -> None:
        """Drop requests, waiting callbacks and the context."""
        self.drop_copy()  # first: requests that channels give up must not be followed by more
        if self.channels is not None:
            self.channels.shutdown()
            self.channels = None
        if self.sickness is not None:
            self.sickness.stop()
        self._requests = None
        self.before_reload = None
        self.vanished = {}
        self.reported_offline = frozenset()
        self._deletion_waiters.clear()
        self._reported_bad.clear()
        self.min_isrs.clear()
        self.mutation_quotas.forget()
        self.auditor.forget()
        self.log_questions.forget()
        self.context = self._new_context()

    def drop_copy(self) -> None:
        """Drop the standby's copy: all of it is sent and watched, or everything is about to be read again."""
        self.copy = self.full_metadata = None
        self.on_copy_dropped()

    def _new_context(self, epoch: int = 0, epoch_zk_version: int = 0) -> ControllerContext:
        return self.new_context(self.check_owner, epoch, epoch_zk_version)

    def new_context(self, check: Check, epoch: int = 0, epoch_zk_version: int = 0) -> ControllerContext:
        """An empty context, in debug mode one that calls ``check`` before each change."""
        if not self.world.debug:
            return ControllerContext(epoch, epoch_zk_version)
        return owned_context(epoch, epoch_zk_version, check)

    def check_owner(self) -> None:
        """Raise NotTheOwnerError in any task but the consumer's."""
        if self.owner is not None and (task := asyncio.current_task()) is not self.owner:
            raise NotTheOwnerError(f"{task!r} changes the context of {self.owner!r}")

    # -- brokers ---------------------------------------------------------------------------------------------------

    def endpoint_of(self, broker: Broker) -> Endpoint | None:
        """The endpoint for the controller's requests: the control-plane listener, else the inter-broker listener."""
        listener = self.config.control_plane_listener_name
        control_plane = broker.endpoint(listener) if listener else None
        return control_plane or self.endpoint_among_brokers(broker)

    def endpoint_among_brokers(self, broker: Broker) -> Endpoint | None:
        """The endpoint for other brokers' requests: the inter-broker listener."""
        found = broker.endpoint(self.config.inter_broker_listener_name)
        if found is not None:
            return found
        plaintext = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
        return plaintext or (broker.endpoints[0] if broker.endpoints else None)

    def own_entry(self) -> Broker | None:
        """The controller's entry in the live broker list, where brokers look it up, with each listener name in use.

        A listener that we do not have gets the address of a live broker (a *shadow*): its clients get what any broker
        answers, and all live brokers have the same listener names, which brokers require.

        Where all brokers have a rack, the entry has the first broker's: brokers refuse to place replicas when only some
        have a rack, and a rack of its own would attract a replica of every partition.
        """
        if self.leaving:
            return None
        return entry_of(self.id, self.own_endpoints(), self.config, self.context)

    def vouched(self, hearing: Mapping[int, int]) -> None:
        """Note that another controller hears these brokers (broker -> epoch).  It may know of our election first."""
        if self.broker_heartbeats is not None:
            self.broker_heartbeats.vouched(hearing)

    # -- short steps -----------------------------------------------------------------------------------------------

    async def breathe(self) -> None:
        """Let other tasks run: heartbeats, responses, sockets.  The context does not change meanwhile, because only the
        consumer changes it."""
        await self.world.clock.sleep(0)

    # -- requests to brokers ---------------------------------------------------------------------------------------

    def new_batch(self) -> RequestBatch:
        """An empty batch of requests."""
        return RequestBatch(self.context)

    async def send(self, batch: RequestBatch, *, in_one: bool = False, metadata_at_once: bool = False) -> Sent:
        """Encode the batch's requests, queue them to the brokers, and empty the batch.

        Leaders get theirs first; the other brokers' requests wait in their queues until the leaders have acknowledged
        (with ``metadata_at_once``, UpdateMetadata does not wait).  So a broker may get two requests of a kind, unless
        ``in_one`` is set.
        """
        assert self._requests is not None and self.channels is not None
        requests = batch.take()
        leader = self.context.table.leader
        parts = None if in_one else leaders_first(requests, leader, metadata_at_once=metadata_at_once)
        if parts is None:
            return await self._requests.send(requests, batch.sent)
        first, rest = parts
        to_leaders = await self._requests.send(first, Sent(Acknowledgements(), batch.sent.metadata))
        barrier = self.channels.hold_back(self.context.brokers, LEADERS_FIRST_S)
        leaders_heard = batch.sent.control.one()
        await self._requests.send(rest, batch.sent)

        def go_on() -> None:
            barrier.open()
            leaders_heard()
            self._leaders_awaited.remove(to_leaders.control)

        self._leaders_awaited.append(to_leaders.control)
        to_leaders.control.when_all(go_on)
        to_leaders.control.forgo(self.channels.suspects())
        return batch.sent

    def stop_awaiting_leaders(self, leaders: Container[int]) -> None:
        """Stop holding back requests for these leaders, which seem to be dead and will not answer."""
        for awaited in list(self._leaders_awaited):
            awaited.forgo(leaders)

    async def send_if_large(self, batch: RequestBatch) -> None:
        """Send a large batch early, so that brokers do not wait for the rest of a write."""
        if len(batch) >= SENT_AT_ONCE and not batch.held_back:
            await self.send(batch)

    async def send_update_metadata(self, brokers: Iterable[int], rows: Sequence[int] = ()) -> None:
        """Send brokers the live brokers and these partitions, at once."""
        batch = self.new_batch()
        batch.add_update_metadata_request_for_brokers(brokers, rows)
        await self.send(batch)

    # -- callbacks for deletions -----------------------------------------------------------------------------------

    def on_topic_deleted(self, topic: str, callback: Callable[[str], None]) -> None:
        """Call back once when the topic's znodes are gone, unless this term ends first."""
        self._deletion_waiters.setdefault(topic, []).append(callback)

    def topic_deleted(self, topic: str) -> None:
        """Run the callbacks that wait for the end of this topic."""
        for callback in self._deletion_waiters.pop(topic, []):
            callback(topic)

    # -- unreadable znodes, and logging ----------------------------------------------------------------------------

    def report_bad_znodes(self, bad: Sequence[BadZNode]) -> None:
        """Log and count unreadable znodes, each once until it changes, is repaired or is deleted."""
        for znode in bad:
            if self._reported_bad.get(znode.path) == znode:
                continue
            if len(self._reported_bad) >= MAX_REPORTED_BAD:
                del self._reported_bad[next(iter(self._reported_bad))]
            self._reported_bad[znode.path] = znode
            self.counts.bad_znodes.inc()
            self.journal.append("bad_znode", detail=f"{znode.path}: found {znode.found}, expected {znode.expected}")
            log.error("Ignoring the znode %s: found %s, expected %s", znode.path, znode.found, znode.expected)

    def forget_bad_znodes(self, are_well: Callable[[str], bool]) -> None:
        """Forget paths that can be read again, so that new damage is reported."""
        for path in [path for path in self._reported_bad if are_well(path)]:
            del self._reported_bad[path]

    def bad_paths(self) -> Collection[str]:
        """Paths of znodes that were reported and skipped."""
        return self._reported_bad

    def unreadable(self, at_most: int) -> list[BadZNode]:
        """Up to ``at_most`` unreadable znodes as they were last read, the latest first."""
        return list(islice(reversed(self._reported_bad.values()), at_most))

    def sample(self, rows: Sequence[int], most: int = 5) -> str:
        """The names of a few of the partitions, for a log line."""
        return self.context.table.sample(rows, most)

    def topic_partition(self, row: int) -> TopicPartition:
        """The name of a row."""
        return self.context.table.topic_partition(row)
