"""All handlers with no I/O at all: a ZooKeeper that is a few dicts, brokers that apply what they receive at once.

Nothing ever suspends, so a handler runs to its end in one call, and hypothesis can shrink what led to a failure.  The
dicts check every write as it happens: epochs never go back, an ISR is never empty and holds its leader, a leader from
outside the ISR was allowed.  ``crash_after`` ends the term at any write, as another controller's election would.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec

from aiocontroller.config import Config
from aiocontroller.controller.event_handlers import GATHERED, HANDLERS
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.failover import on_controller_failover
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import events as ev
from aiocontroller.core.broker_starts import BrokerStarts
from aiocontroller.core.debts import Deletions
from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.core.event_kinds import Event, Reply, Request, Signal
from aiocontroller.core.failure_detector import Suspicion
from aiocontroller.core.ids import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_EPOCH,
    NO_LEADER,
    Broker,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
    of_different_topics,
)
from aiocontroller.journal.journal import NullJournal
from aiocontroller.lab.cluster.broker_requests import (
    IntArrays,
    PartitionState,
    decode_leader_and_isr,
    decode_stop_replica,
    decode_update_metadata,
    run_to_end,
)
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.cluster_znodes import FEATURES_ENABLED, FeatureZNode
from aiocontroller.zookeeper.debts import FoundDebts, Owed
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.kafka_zk_client import EntityConfigs, PartitionStates, TopicAssignments
from aiocontroller.zookeeper.writes import Writes

T = TypeVar("T")
LATEST = {ApiKey.LEADER_AND_ISR: 7, ApiKey.UPDATE_METADATA: 8, ApiKey.STOP_REPLICA: 4}


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of what never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    coroutine.close()
    raise AssertionError("a handler waited for something")


class StillClock:
    """Time that stands still; what is scheduled comes only by ``PureCluster.due``."""

    def monotonic(self) -> float:
        return 0.0

    def wall_time_us(self) -> int:
        return 0

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Any:
        return SimpleNamespace(cancel=lambda: None, callback=callback)

    async def sleep(self, delay_s: float) -> None:
        return None


class DebtZnodes:
    """The part of ``DebtZNodes`` that handlers use."""

    def __init__(self, znodes: Znodes) -> None:
        self._znodes = znodes
        self.epoch = 0
        self.held: dict[tuple[int, str], tuple[dict[int, bytes], int]] = {}
        """(broker, topic) -> what is owed, the znode's version."""

    async def load(self) -> FoundDebts:
        return FoundDebts(self.epoch, (await self.read(sorted(self.held)))[0], [])

    async def read(self, names: Sequence[tuple[int, str]]) -> tuple[list[Owed], list[Any]]:
        return [Owed(*name, *self.held.get(name, ({}, -1))) for name in names], []

    async def names(self, brokers: Iterable[int]) -> tuple[list[tuple[int, str]], list[Any]]:
        wanted = set(brokers)
        return [name for name in sorted(self.held) if name[0] in wanted], []

    async def prepare(self, epoch: int, brokers: Iterable[int], *, fence: int) -> dict[int, int]:
        self._znodes.fence(fence)
        self.epoch = epoch
        return dict.fromkeys(brokers, 0)

    async def write(self, changes: Sequence[Owed], *, fence: int) -> list[int]:
        self._znodes.fence(fence)
        return [self._write(owed) for owed in changes]

    def _write(self, owed: Owed) -> int:
        key = (owed.broker, owed.topic)
        if owed.path in self._znodes.refused:
            return int(Code.NO_AUTH)
        if self.held.get(key, ({}, -1))[1] != owed.version:
            return int(Code.BAD_VERSION)
        if owed.partitions:
            self.held[key] = (dict(owed.partitions), owed.version + 1)
        else:
            del self.held[key]
        return 0

    async def write_with_topics(
        self, groups: Sequence[tuple[TopicAssignment, Sequence[Owed]]], *, fence: int
    ) -> list[int]:
        codes = []
        for assignment, changes in groups:
            if any(owed.path in self._znodes.refused for owed in changes):
                codes.append(int(Code.NO_AUTH))
                continue
            if any(self.held.get((o.broker, o.topic), ({}, -1))[1] != o.version for o in changes):
                codes.append(int(Code.BAD_VERSION))
                continue
            [code] = (await self._znodes.set_topic_assignments([assignment], fence=fence)).code
            codes.append(int(code))
            if not code:
                for owed in changes:
                    self._write(owed)
        return codes


class Znodes:
    """The part of ``KafkaZkClient`` that handlers use."""

    def __init__(self) -> None:
        self.epoch, self.epoch_version = 0, 0
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.deletions: dict[str, None] = {}
        self.reassignment: dict[TopicPartition, tuple[int, ...]] | None = None
        self.election: list[TopicPartition] | None = None
        self.configs: dict[str, dict[str, str]] = {}
        self.config_zxids: dict[str, int] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.registrations = 0
        self.client = SimpleNamespace(session_timeout_s=18.0)
        self.starts: BrokerStarts | None = None
        self.known_controllers: frozenset[int] = frozenset()
        self.isr_changes: list[TopicPartition] = []
        self.unclean_by_request = False
        self.debts = DebtZnodes(self)
        self.changed: Callable[[Signal], None] = lambda _: None
        self.refused: set[str] = set()
        """Paths of topics, partition states and debts that ACLs forbid to change."""
        self.crash_after: int | None = None
        self.on_crash: Callable[[], None] = lambda: None
        """What happens before the next term."""

    def fence(self, fence: int) -> None:
        """Before every write; the term may end here."""
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self.crash_after = None
                self.on_crash()
                raise ControllerMovedError("another was elected")
        assert fence == self.epoch_version

    def check(self, tp: TopicPartition, old: LeaderAndIsr | None, new: LeaderAndIsr) -> None:
        assert new.isr, f"{tp}: an empty ISR"
        assert len(set(new.isr)) == len(new.isr), f"{tp}: {new.isr}"
        assert new.leader == NO_LEADER or new.leader in new.isr, f"{tp}: {new}"
        assert new.controller_epoch <= self.epoch, f"{tp}: {new}"
        if old is not None:
            assert new.leader_epoch >= old.leader_epoch, f"{tp}: {old} then {new}"
            assert new.controller_epoch >= old.controller_epoch, f"{tp}: {old} then {new}"
            if new.leader != old.leader:
                assert new.leader_epoch > old.leader_epoch, f"{tp}: another leader in the same epoch: {old} then {new}"
            if new.leader not in (*old.isr, NO_LEADER):
                configured = self.configs.get(tp.topic, {}).get("unclean.leader.election.enable", "")
                allowed = configured.strip().lower() == "true"
                eligible = () if old.eligible is None else [replica for replica, _ in old.eligible.replicas]
                assert allowed or self.unclean_by_request or new.leader in eligible, f"{tp}: unclean: {old} then {new}"
                assert new.recovery_state == 1 or new.leader in eligible, f"{tp}: no leader was sent a recovery: {new}"

    # -- reads -----------------------------------------------------------------------------------------------------

    async def get_all_brokers_in_cluster(self, *, watch: bool = True) -> tuple[list[Broker], list[Any]]:
        return [self.brokers[b] for b in sorted(self.brokers)], []

    async def count_registrations(self) -> int:
        return self.registrations

    async def get_broker_starts(self) -> BrokerStarts | None:
        return self.starts

    async def set_broker_starts(self, starts: BrokerStarts, *, fence: int) -> None:
        self.fence(fence)
        self.starts = starts

    async def get_all_topics_in_cluster(self, *, watch: bool = True) -> list[str]:
        return sorted(self.topics)

    async def get_topic_assignments(self, topics: Sequence[str], *, watch: bool = True) -> TopicAssignments:
        read = TopicAssignments()
        read.found = [self.topics[t] for t in topics if t in self.topics]
        read.missing = [t for t in topics if t not in self.topics]
        return read

    async def get_topic_ids(self, topics: Sequence[str]) -> dict[str, bytes]:
        return {topic: self.topics[topic].topic_id for topic in topics if topic in self.topics}

    async def get_topic_partition_states(self, topics: Sequence[str], numbers: Sequence[int]) -> list[Any]:
        return [self.states.get(TopicPartition(t, n)) for t, n in zip(topics, numbers, strict=True)]

    async def each_topic_partition_states(
        self, topics: Sequence[str], numbers: Sequence[int], take: Callable[[PartitionStates], Awaitable[None]]
    ) -> None:
        found = await self.get_topic_partition_states(topics, numbers)
        versions = [-1 if state is None else state.partition_epoch for state in found]
        await take(PartitionStates(found, list(range(len(found))), versions))

    async def get_topic_configs(self, topics: Sequence[str]) -> EntityConfigs:
        configs = EntityConfigs()
        configs.update({topic: self.configs.get(topic, {}) for topic in topics})
        configs.changed_zxid = {topic: self.config_zxids.get(topic, 0) for topic in topics}
        return configs

    async def get_topic_deletions(self, *, watch: bool = True) -> list[str]:
        return sorted(self.deletions)

    async def get_partition_reassignment(self, *, watch: bool = True) -> Any:
        return None if self.reassignment is None else dict(self.reassignment)

    async def get_preferred_replica_election(self, *, watch: bool = True) -> Any:
        return self.election

    async def get_feature(self) -> tuple[FeatureZNode, int]:
        return FeatureZNode(2, FEATURES_ENABLED, {}), 0

    async def get_known_controllers(self) -> tuple[frozenset[int], int]:
        return self.known_controllers, 0

    async def set_known_controllers(self, ids: frozenset[int], version: int, *, fence: int) -> bool:
        self.fence(fence)
        self.known_controllers = ids
        return True

    async def get_broker_configs(self, brokers: Sequence[str]) -> EntityConfigs:
        configs = EntityConfigs()
        configs.update({broker: self.broker_configs.get(broker, {}) for broker in brokers})
        return configs

    async def get_all_config_changes(self, *, watch: bool = True) -> list[str]:
        return []

    async def get_all_log_dir_event_notifications(self, *, watch: bool = True) -> list[str]:
        return []

    async def get_all_isr_change_notifications(self, *, watch: bool = True) -> list[str]:
        return ["isr_change_0"] if self.isr_changes else []

    async def get_partitions_from_isr_change_notifications(self, names: Sequence[str]) -> tuple[list[Any], list[Any]]:
        return list(self.isr_changes), []

    # -- writes ----------------------------------------------------------------------------------------------------

    async def delete_isr_change_notifications(self, names: Sequence[str], *, fence: int) -> None:
        self.fence(fence)
        self.isr_changes.clear()

    async def delete_log_dir_event_notifications(self, names: Sequence[str], *, fence: int) -> None:
        self.fence(fence)

    async def create_topic_partition_states(
        self,
        topics: Sequence[str],
        numbers: Sequence[int],
        new: Sequence[LeaderAndIsr],
        *,
        ids: Mapping[str, bytes],
        fence: int,
    ) -> Writes:
        self.fence(fence)
        writes = Writes(len(new))
        for i, (topic, number) in enumerate(zip(topics, numbers, strict=True)):
            tp = TopicPartition(topic, number)
            if topic not in self.topics or of_different_topics(self.topics[topic].topic_id, ids[topic]):
                writes.code[i] = Code.NO_NODE
            elif tp in self.states:
                writes.code[i] = Code.NODE_EXISTS
            else:
                self.check(tp, None, new[i])
                self.states[tp] = msgspec.structs.replace(new[i], partition_epoch=0)
                writes.code[i] = writes.version[i] = 0
        return writes

    async def check_controller_epoch(self, *, fence: int) -> None:
        self.fence(fence)

    async def set_topic_partition_states(
        self, topics: Sequence[str], numbers: Sequence[int], new: Sequence[LeaderAndIsr], *, fence: int
    ) -> Writes:
        self.fence(fence)
        writes = Writes(len(new))
        for i, (topic, number) in enumerate(zip(topics, numbers, strict=True)):
            tp = TopicPartition(topic, number)
            old = self.states.get(tp)
            if paths.topic_partition_state(*tp) in self.refused:
                writes.code[i] = Code.NO_AUTH
            elif old is None:
                writes.code[i] = Code.NO_NODE
            elif old.partition_epoch != new[i].partition_epoch:
                writes.code[i] = Code.BAD_VERSION
            else:
                self.check(tp, old, new[i])
                writes.code[i], writes.version[i] = 0, old.partition_epoch + 1
                self.states[tp] = msgspec.structs.replace(new[i], partition_epoch=old.partition_epoch + 1)
        return writes

    async def set_topic_assignments(self, assignments: Sequence[TopicAssignment], *, fence: int) -> Writes:
        self.fence(fence)
        writes = Writes(len(assignments))
        for i, assignment in enumerate(assignments):
            old = self.topics.get(assignment.topic)
            if paths.topic(assignment.topic) in self.refused:
                writes.code[i] = Code.NO_AUTH
            elif old is None:
                writes.code[i] = Code.NO_NODE
            elif old.version != assignment.version:
                writes.code[i] = Code.BAD_VERSION
            else:
                self.topics[assignment.topic] = msgspec.structs.replace(assignment, version=old.version + 1)
                writes.code[i], writes.version[i] = 0, old.version + 1
                self.changed(ev.PartitionModifications(assignment.topic))
        return writes

    async def delete_topic_znodes(self, topics: Sequence[str], *, fence: int) -> None:
        self.fence(fence)
        for topic in topics:
            self.topics.pop(topic, None)
        for tp in [tp for tp in self.states if tp.topic in topics]:
            del self.states[tp]
        self.changed(ev.TopicChange())

    async def delete_topic_configs(self, topics: Sequence[str], *, fence: int) -> None:
        self.fence(fence)
        for topic in topics:
            self.configs.pop(topic, None)

    async def delete_topic_deletions(self, topics: Sequence[str], *, fence: int) -> None:
        self.fence(fence)
        for topic in topics:
            self.deletions.pop(topic, None)

    async def set_or_create_partition_reassignment(
        self, reassignment: Mapping[TopicPartition, Sequence[int]], *, fence: int
    ) -> bool:
        self.fence(fence)
        self.reassignment = {tp: tuple(replicas) for tp, replicas in reassignment.items()}
        return True

    async def delete_partition_reassignment(self, *, fence: int) -> None:
        self.fence(fence)
        self.reassignment = None

    async def delete_preferred_replica_election(self, *, fence: int) -> None:
        self.fence(fence)
        self.election = None


class View:
    """What one incarnation of a broker knows, and what it is to answer."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.hosted: dict[TopicPartition, PartitionState] = {}
        self.topic_ids: dict[TopicPartition, bytes] = {}
        """Of what it hosts, as the logs keep them."""
        self.metadata: dict[TopicPartition, PartitionState] = {}
        self.failed_dirs: set[TopicPartition] = set()
        self.refuses_to_delete = False
        self.live_brokers: set[int] = set()
        """In its metadata."""
        self.alive_s = 0.0
        """When it answered last; the present is 0."""


class Channels:
    """Delivers at once to every broker that is registered; answers go into the queue."""

    def offered(self) -> dict[int, VersionRange]:
        return {}

    def suspects(self) -> dict[int, Suspicion]:
        return {}

    def confirm(self, broker: int) -> bool:
        return True

    def alive_s(self, broker: int) -> float:
        return self._views[broker].alive_s if broker in self._shell.context.brokers else -inf

    def __init__(self, shell: ControllerShell, views: dict[int, View]) -> None:
        self._shell = shell
        self._views = views

    def add_brokers(self, brokers: Iterable[Broker], *, settled: bool = False) -> None: ...

    def remove_brokers(self, ids: Iterable[int]) -> None: ...

    def shutdown(self) -> None: ...

    def endpoint_of(self, broker: Broker) -> Endpoint:
        return broker.endpoints[0]

    async def wait_until_connected(self, timeout_s: float) -> None: ...

    def encode_merged(self) -> None: ...

    def hold_back(self, brokers: Iterable[int], timeout_s: float) -> Any:
        return SimpleNamespace(open=lambda: None)

    def send(
        self, broker: int, api: ApiKey, encode: Any, rows: Sequence[int], done: Any = None, **merging: Any
    ) -> None:
        view, registered = self._views.get(broker), self._shell.context.brokers.get(broker)
        if view is not None and registered is not None and registered.epoch == view.epoch:
            for pieces in encode(LATEST[api], view.epoch):
                self._deliver(broker, view, api, b"".join(bytes(piece) for piece in pieces), rows, merging.get("asked"))
        if done is not None:
            done()

    def _deliver(
        self, broker: int, view: View, api: ApiKey, body: bytes, rows: Sequence[int], asked: Deletions | None
    ) -> None:
        match api:
            case ApiKey.LEADER_AND_ISR:
                self._leader_and_isr(broker, view, body, rows)
            case ApiKey.UPDATE_METADATA:
                request = run_to_end(decode_update_metadata(LATEST[api], body, IntArrays()))
                view.live_brokers = {live.id for live in request.live_brokers}
                for topic in request.topics:
                    for state in topic.partitions:
                        tp = TopicPartition(topic.topic, state.partition)
                        if state.leader == LEADER_DURING_DELETE:
                            view.metadata.pop(tp, None)
                        else:
                            view.metadata[tp] = state
            case _:
                self._stop_replica(broker, view, body, asked or Deletions())

    def _leader_and_isr(self, broker: int, view: View, body: bytes, rows: Sequence[int]) -> None:
        request = run_to_end(decode_leader_and_isr(LATEST[ApiKey.LEADER_AND_ISR], body, IntArrays()))
        errors = []
        for topic in request.topics:
            for state in topic.partitions:
                tp = TopicPartition(topic.topic, state.partition)
                assert broker in state.replicas, f"{tp}: broker {broker} was sent it and has no replica"
                known = view.hosted.get(tp)
                had = view.topic_ids.setdefault(tp, topic.topic_id)
                assert had == topic.topic_id, f"{tp}: broker {broker} still has an earlier topic's"
                if tp in view.failed_dirs:
                    errors.append((topic.topic_id, state.partition, int(KafkaErrorCode.KAFKA_STORAGE_ERROR)))
                elif known is None or state.leader_epoch > known.leader_epoch:
                    view.hosted[tp] = state
        self._shell.queue.append(ev.LeaderAndIsrResponseReceived(broker, view.epoch, 0, tuple(errors), tuple(rows)))

    def _stop_replica(self, broker: int, view: View, body: bytes, asked: Deletions) -> None:
        request = run_to_end(decode_stop_replica(LATEST[ApiKey.STOP_REPLICA], body))
        answers = []
        for topic, number, leader_epoch, delete in request.partitions:
            tp = TopicPartition(topic, number)
            known = view.hosted.get(tp)
            fenced = leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH)
            assert not (fenced and known is not None and leader_epoch < known.leader_epoch), f"{tp}: an old epoch"
            fails = view.refuses_to_delete or tp in view.failed_dirs
            code = int(KafkaErrorCode.KAFKA_STORAGE_ERROR) if fails else 0
            if delete and not code:
                state = self._shell.zk.states.get(tp)  # type: ignore[attr-defined]
                in_sync = state is not None and broker in state.isr and topic not in self._shell.zk.deletions  # type: ignore[attr-defined]
                assert not in_sync, f"{tp}: broker {broker} was sent the deletion of a replica that is in sync"
                view.hosted.pop(tp, None)
                view.topic_ids.pop(tp, None)
            answers.append((topic, number, code))
        self._shell.queue.append(ev.StopReplicaResponseReceived(broker, view.epoch, 0, tuple(answers), asked))


class PureCluster:
    """``step`` after every change from outside: all events are handled, or the term ends and the next begins."""

    def __init__(self) -> None:
        self.znodes = Znodes()
        self.views: dict[int, View] = {}
        clock = StillClock()
        self.queue = EventQueue(clock)
        self.znodes.changed = self.queue.append
        self.shell = ControllerShell(
            Config(),
            World(
                cast(Any, None), clock, cast(Any, SimpleNamespace(random=lambda: 0.5, randrange=lambda stop: stop // 2))
            ),
            cast(Any, self.znodes),
            self.queue,
            Metrics(),
            NullJournal(),
            lambda shell: cast(Any, Channels(shell, self.views)),
            lambda: (Endpoint("PLAINTEXT", "controller", 9999),),
        )
        self._czxid = 100
        self.failover()

    # -- the controller --------------------------------------------------------------------------------------------

    def failover(self) -> None:
        """Another term, by the same process or by another: nothing of the last one is left."""
        for _ in range(10):
            while self.queue:
                self._refuse(self.queue.take().event)
            self.znodes.epoch += 1
            self.znodes.epoch_version += 1
            self.shell.begin_term(self.znodes.epoch, self.znodes.epoch_version)
            try:
                run(on_controller_failover(self.shell))
            except ControllerMovedError:
                continue
            return
        raise AssertionError("no term lasts")

    def reload(self) -> None:
        """The same term again, with nothing but what ZooKeeper holds, as after a fault."""
        while self.queue:
            self._refuse(self.queue.take().event)
        self.shell.begin_term(self.znodes.epoch, self.znodes.epoch_version, again=True)
        run(on_controller_failover(self.shell))

    def step(self) -> None:
        """Handle all that waits."""
        for _ in range(10_000):
            if not self.queue:
                return
            event = self.queue.take().event
            try:
                if type(event) in GATHERED:
                    run(GATHERED[type(event)](self.shell, [event]))  # type: ignore[arg-type]
                else:
                    run(HANDLERS[type(event)](self.shell, event))  # type: ignore[arg-type]
            except ControllerMovedError:
                self._refuse(event)
                self.failover()
        raise AssertionError("events never end")

    @staticmethod
    def _refuse(event: Event) -> None:
        if isinstance(event, Request):
            event.preempt()

    def due(self, tag: str) -> None:
        """What is scheduled under this tag comes now."""
        assert self.queue.scheduled(tag), tag
        cast(Any, self.queue._deferred[tag]).callback()
        self.step()

    def ask(self, kind: type[Request], **fields: Any) -> Any:
        answers: list[Any] = []
        self.queue.append(kind(reply=Reply(answers.append), **fields))
        self.step()
        assert len(answers) == 1, f"{kind.__name__} was answered {len(answers)} times"
        return answers[0]

    # -- the world -------------------------------------------------------------------------------------------------

    def register(self, broker: int) -> None:
        """A new incarnation; what it hosts survives, its metadata cache does not."""
        self._czxid += 1
        self.znodes.registrations += 1
        old = self.views.get(broker)
        self.znodes.brokers[broker] = Broker(broker, self._czxid, (Endpoint("PLAINTEXT", f"b{broker}", 9092),))
        view = self.views[broker] = View(self._czxid)
        if old is not None:
            view.hosted, view.topic_ids = dict(old.hosted), dict(old.topic_ids)

    def unregister(self, broker: int) -> None:
        del self.znodes.brokers[broker]

    def _new_id(self, name: str) -> bytes:
        self._czxid += 1
        return f"{name}{self._czxid}".encode().ljust(16, b".")

    def create_topic(self, name: str, partitions: Sequence[Sequence[int]]) -> None:
        assignment = {number: ReplicaAssignment(tuple(replicas)) for number, replicas in enumerate(partitions)}
        self.znodes.topics[name] = TopicAssignment(name, self._new_id(name), assignment)
        self.queue.append(ev.TopicChange())


def cluster(*brokers: int, **topics: list[list[int]]) -> PureCluster:
    """Brokers that are registered, and topics by their partitions' replicas; everything has been handled."""
    it = PureCluster()
    for broker in brokers:
        it.register(broker)
    it.queue.append(ev.BrokerChange())
    for name, partitions in topics.items():
        it.create_topic(name, partitions)
    it.step()
    return it
