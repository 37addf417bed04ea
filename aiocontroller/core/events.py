"""Everything that can happen to a controller, as typed events (Kafka's ``ControllerEvent``s, by their names).

Three kinds.  A *signal* says that something changed and carries at most whose: its handler reads ZooKeeper again,
which re-arms the watch, and while one waits an equal one is not queued.  A *request* carries a ``Reply`` and is always
answered: with NOT_CONTROLLER when it is preempted, with UNKNOWN_SERVER_ERROR when its handler fails.  A *response*
brings what a broker answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import TopicPartition


class ControllerState(IntEnum):
    """What the controller is busy with: Kafka's byte values; ``timer`` is the metric that its time counts into."""

    Idle = 0
    ControllerChange = 1
    BrokerChange = 2
    TopicChange = 3
    TopicDeletion = 4
    AlterPartitionReassignment = 5
    AutoLeaderBalance = 6
    ManualLeaderBalance = 7
    ControlledShutdown = 8
    IsrChange = 9
    LeaderAndIsrResponseReceived = 10
    LogDirChange = 11
    ControllerShutdown = 12
    UncleanLeaderElectionEnable = 13
    TopicUncleanLeaderElectionEnable = 14
    ListPartitionReassignment = 15
    UpdateMetadataResponseReceived = 16
    UpdateFeatures = 17

    @property
    def timer(self) -> str | None:
        """Name of the timer in ``kafka.controller:type=ControllerStats``; None where Kafka has none."""
        if self in (ControllerState.Idle, ControllerState.UpdateMetadataResponseReceived):
            return None
        named = {
            ControllerState.BrokerChange: "LeaderElection",
            ControllerState.AlterPartitionReassignment: "PartitionReassignment",
        }
        return f"{named.get(self, self.name)}RateAndTimeMs"


class Reply:
    """The way back to whoever asked: takes one answer, whatever happens to the event.

    ``callback`` gets the answer: the request's own result type, or a ``KafkaErrorCode`` that applies to all of it.
    """

    __slots__ = ("_callback", "_watcher", "deferred")

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self._callback: Callable[[Any], None] | None = callback
        self._watcher: Callable[[], None] | None = None
        self.deferred = False
        """The answer comes after the event is done with; somebody holds a timer that makes sure of it."""

    @property
    def answered(self) -> bool:
        return self._callback is None

    def answer(self, result: Any) -> None:
        assert self._callback is not None, "a request is answered once"
        callback, self._callback = self._callback, None
        callback(result)
        if self._watcher is not None:
            self._watcher()

    def defer(self) -> None:
        self.deferred = True
        if self._watcher is not None:
            self._watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call back when the answer is deferred, and when it is given."""
        self._watcher = watcher

    def ensure(self, result: Any) -> None:
        """Answer, unless that was done."""
        if self._callback is not None:
            self.answer(result)


class Event(msgspec.Struct, frozen=True, gc=False):
    state: ClassVar[ControllerState]


class Signal(Event, frozen=True, gc=False):
    """Carries no data; equal ones that wait are one."""


class Request(Event, frozen=True, gc=False, kw_only=True):
    reply: Reply

    def preempt(self) -> None:
        self.reply.ensure(KafkaErrorCode.NOT_CONTROLLER)


class Response(Event, frozen=True, gc=False):
    """Names partitions by their rows in the table of one term: worth nothing in the next."""


# -- the controller's own life -----------------------------------------------------------------------------------------


class Startup(Signal, frozen=True, gc=False):
    state = ControllerState.ControllerChange


class ControllerChange(Signal, frozen=True, gc=False):
    """``/controller`` was created or changed."""

    state = ControllerState.ControllerChange


class Reelect(Signal, frozen=True, gc=False):
    """``/controller`` is gone."""

    state = ControllerState.ControllerChange


class Expire(Signal, frozen=True, gc=False):
    """The ZooKeeper session is over, and with it ``/controller``; goes before everything that waits."""

    state = ControllerState.ControllerChange


class ShutdownEventThread(Signal, frozen=True, gc=False):
    """The process ends; goes before everything that waits."""

    state = ControllerState.ControllerShutdown


class FailoverStep(Signal, frozen=True, gc=False):
    """A step of the failover that failed and was left out of it: to be made up for."""

    state = ControllerState.ControllerChange
    step: str


class TakeOver(Request, frozen=True, gc=False, kw_only=True):
    """Somebody wants this process in office.  Answered with the reasons why not; none when it is."""

    state = ControllerState.ControllerChange


class Release(Request, frozen=True, gc=False, kw_only=True):
    """Somebody wants the role given back to the brokers.  Answered with a ``Released`` when it is."""

    state = ControllerState.ControllerChange
    for_good: bool = True
    """Not to be contended for again until somebody asks for it."""


class GuardChange(Signal, frozen=True, gc=False):
    """What speaks against being the controller has changed."""

    state = ControllerState.ControllerChange


class GoOnReleasing(Signal, frozen=True, gc=False):
    """Time to look whether all is done that must be before the role can go."""

    state = ControllerState.ControllerChange


class Released(msgspec.Struct, frozen=True):
    epoch: int
    """Of the term that ended; 0 when this process was not in office."""
    left: tuple[str, ...] = ()
    """Partitions that still name this controller as a replica."""


# -- brokers -----------------------------------------------------------------------------------------------------------


class BrokerChange(Signal, frozen=True, gc=False):
    state = ControllerState.BrokerChange


class BrokerModifications(Signal, frozen=True, gc=False):
    state = ControllerState.BrokerChange
    broker: int


class SuspectsChange(Signal, frozen=True, gc=False):
    """Early detection suspects other brokers than before."""

    state = ControllerState.BrokerChange


class StaleRegistration(Signal, frozen=True, gc=False):
    """A dead broker's registration may have stood long enough; for this incarnation only."""

    state = ControllerState.BrokerChange
    broker: int
    broker_epoch: int


class ControllerSuspected(Signal, frozen=True, gc=False):
    """Early detection suspects the controller in office."""

    state = ControllerState.ControllerChange


class ControlledShutdown(Request, frozen=True, gc=False, kw_only=True):
    """Answered with a list of ``TopicPartition`` that the broker still leads."""

    state = ControllerState.ControlledShutdown
    broker: int
    broker_epoch: int


class LeaderAndIsrResponseReceived(Response, frozen=True, gc=False):
    state = ControllerState.LeaderAndIsrResponseReceived
    broker: int
    broker_epoch: int
    error_code: int
    errors: tuple[tuple[bytes | str, int, int], ...]
    """(topic id, or name below version 5; partition; error code) of those that have an error."""
    pids: Sequence[int]
    """What the request was about."""


class UpdateMetadataResponseReceived(Response, frozen=True, gc=False):
    state = ControllerState.UpdateMetadataResponseReceived
    broker: int
    broker_epoch: int
    error_code: int


class StopReplicaResponseReceived(Response, frozen=True, gc=False):
    state = ControllerState.TopicDeletion
    broker: int
    broker_epoch: int
    error_code: int
    partitions: tuple[tuple[str, int, int], ...]
    """(topic, partition, error code)."""
    deleted: Sequence[int]
    """The pids whose deletion was asked for."""


# -- topics ------------------------------------------------------------------------------------------------------------


class TopicChange(Signal, frozen=True, gc=False):
    state = ControllerState.TopicChange


class PartitionModifications(Signal, frozen=True, gc=False):
    state = ControllerState.TopicChange
    topic: str


class TopicDeletion(Signal, frozen=True, gc=False):
    """``/admin/delete_topics`` has new entries."""

    state = ControllerState.TopicDeletion


class ConfigChange(Signal, frozen=True, gc=False):
    """Somebody's dynamic configuration changed."""

    state = ControllerState.UncleanLeaderElectionEnable


class UncleanLeaderElectionEnable(Signal, frozen=True, gc=False):
    """The default became true."""

    state = ControllerState.UncleanLeaderElectionEnable


class TopicUncleanLeaderElectionEnable(Signal, frozen=True, gc=False):
    """The topic's own setting became true."""

    state = ControllerState.TopicUncleanLeaderElectionEnable
    topic: str


# -- reassignment ------------------------------------------------------------------------------------------------------


class ZkPartitionReassignment(Signal, frozen=True, gc=False):
    """``/admin/reassign_partitions`` was created."""

    state = ControllerState.AlterPartitionReassignment


class OwnReplicas(Signal, frozen=True, gc=False):
    """Partitions name this controller as a replica, and somebody leads them already."""

    state = ControllerState.AlterPartitionReassignment


class ApiPartitionReassignment(Request, frozen=True, gc=False, kw_only=True):
    """``targets``: the replicas wanted, or None to take a running reassignment back.

    Answered with a dict, ``TopicPartition`` -> (error code, message).
    """

    state = ControllerState.AlterPartitionReassignment
    targets: dict[TopicPartition, tuple[int, ...] | None]


class ListPartitionReassignments(Request, frozen=True, gc=False, kw_only=True):
    """Answered with a dict, ``TopicPartition`` -> ``ReplicaAssignment``, of those asked for that are under way."""

    state = ControllerState.ListPartitionReassignment
    partitions: tuple[TopicPartition, ...] | None
    """None: all."""


# -- leadership and ISR ------------------------------------------------------------------------------------------------


class AlterPartition(msgspec.Struct, frozen=True, gc=False):
    """What a leader asks for one of its partitions; ``topic`` is a name or a 16-byte id."""

    topic: str | bytes
    partition: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovery_state: int = 0


class AlterPartitionReceived(Request, frozen=True, gc=False, kw_only=True):
    """Answered with a list of ``AlterPartitionResult`` parallel to ``partitions``, or one error code for all."""

    state = ControllerState.IsrChange
    broker: int
    broker_epoch: int
    version: int
    partitions: tuple[AlterPartition, ...]


class IsrChangeNotification(Signal, frozen=True, gc=False):
    state = ControllerState.IsrChange


class LogDirEventNotification(Signal, frozen=True, gc=False):
    """Brokers say that log directories of theirs failed."""

    state = ControllerState.LogDirChange


class ElectionType(IntEnum):
    """Kafka's byte values in ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class ZkPreferredReplicaElection(Signal, frozen=True, gc=False):
    """``/admin/preferred_replica_election`` was created."""

    state = ControllerState.ManualLeaderBalance


class ReplicaLeaderElection(Request, frozen=True, gc=False, kw_only=True):
    """Answered with a dict, ``TopicPartition`` -> (error code, message), of those asked for (all that changed, if none
    were named)."""

    state = ControllerState.ManualLeaderBalance
    partitions: tuple[TopicPartition, ...] | None
    election_type: ElectionType


class AutoPreferredReplicaLeaderElection(Signal, frozen=True, gc=False):
    state = ControllerState.AutoLeaderBalance


class OfflinePartitionsSweep(Signal, frozen=True, gc=False):
    """Time to look again at partitions that have no leader, though a replica of theirs is online."""

    state = ControllerState.AutoLeaderBalance


# -- delegation tokens -------------------------------------------------------------------------------------------------


class ExpireDelegationTokens(Signal, frozen=True, gc=False):
    """Time to look for tokens that are over."""

    state = ControllerState.Idle


# -- producer ids ------------------------------------------------------------------------------------------------------


class AllocateProducerIds(Request, frozen=True, gc=False, kw_only=True):
    """Answered with (first id, count)."""

    state = ControllerState.Idle
    broker: int
    broker_epoch: int
    own: bool = False
    """For producers that ask this controller, as they may ask any node."""


# -- features ----------------------------------------------------------------------------------------------------------


class UpdateFeatures(Request, frozen=True, gc=False, kw_only=True):
    """Answered with a dict, feature -> (error code, message)."""

    state = ControllerState.UpdateFeatures
    updates: dict[str, int]
    """Feature -> the level wanted."""


# -- users -------------------------------------------------------------------------------------------------------------


class ScramUpsertion(msgspec.Struct, frozen=True):
    user: str
    mechanism: int
    """Kafka's number: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        """Without what logs must not hold."""
        return f"ScramUpsertion({self.user!r}, mechanism={self.mechanism})"


class AlterUserScramCredentials(Request, frozen=True, gc=False, kw_only=True):
    """Answered with a dict, user -> (error code, message)."""

    state = ControllerState.Idle
    deletions: tuple[tuple[str, int], ...]
    """(user, mechanism)."""
    upsertions: tuple[ScramUpsertion, ...]


# -- topics by request -------------------------------------------------------------------------------------------------


class NewTopic(msgspec.Struct, frozen=True):
    """-1 for partitions or replication factor: the brokers' default; with an assignment both are -1."""

    name: str
    partitions: int
    replication_factor: int
    assignment: dict[int, tuple[int, ...]]
    configs: dict[str, str | None]


class NewPartitions(msgspec.Struct, frozen=True):
    topic: str
    count: int
    """Partitions that the topic is to have in all."""
    assignment: tuple[tuple[int, ...], ...] | None
    """Replicas of each new partition; None: placed by the controller."""


class TopicSetting(NamedTuple):
    """One setting of a topic; ``source`` is Kafka's ``ConfigSource``."""

    name: str
    value: str | None
    source: int
    sensitive: bool


class TopicResult(msgspec.Struct, frozen=True):
    """How one topic of a request fared."""

    error_code: int
    message: str = ""
    name: str | None = None
    topic_id: bytes = bytes(16)
    partitions: int = -1
    replication_factor: int = -1
    config_error_code: int = 0
    """Why the topic's partitions, replicas and configuration are not told, although it was created."""
    configs: tuple[TopicSetting, ...] = ()
    """None: they are not known, and not told."""
    times: int = 1
    """How often it is told: a topic that stands in a request twice, twice."""


class CreateTopics(Request, frozen=True, gc=False, kw_only=True):
    """Answered with a dict, topic name -> ``TopicResult``, when every live broker knows the topics, or time is up."""

    state = ControllerState.TopicChange
    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool


class CreatePartitions(Request, frozen=True, gc=False, kw_only=True):
    """Answered like ``CreateTopics``."""

    state = ControllerState.TopicChange
    topics: tuple[NewPartitions, ...]
    timeout_ms: int
    validate_only: bool


class DeleteTopics(Request, frozen=True, gc=False, kw_only=True):
    """Answered with a dict, topic name or id as asked -> ``TopicResult``, when the topics are gone, or time is up."""

    state = ControllerState.TopicDeletion
    topics: tuple[str | bytes, ...]
    timeout_ms: int
