"""Everything that can happen to a controller, as typed events with the names of Kafka's ``ControllerEvent``s.

Each is a signal, a request or a response (``event_kinds``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from aiocontroller.core.debts import Deletions
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import CertainRequest, ControllerState, Request, Response, Signal
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.log_evidence import Evidence, Question
from aiocontroller.core.mutation_quotas import UNBOUNDED, MutationQuota
from aiocontroller.core.request_content import AlterPartition, ElectionType, NewPartitions, NewTopic, ScramUpsertion

# -- the controller's own life -----------------------------------------------------------------------------------------


class Startup(Signal, frozen=True, gc=False):
    """The process starts."""

    state = ControllerState.ControllerChange


class ControllerChange(Signal, frozen=True, gc=False):
    """``/controller`` was created or changed."""

    state = ControllerState.ControllerChange


class Reelect(Signal, frozen=True, gc=False):
    """``/controller`` is gone, or may be; ``vacant``: it was deleted just now."""

    vacant: bool = False
    state = ControllerState.ControllerChange


class Expire(Signal, frozen=True, gc=False):
    """The ZooKeeper session expired, and ``/controller`` with it; goes to the front of the queue."""

    state = ControllerState.ControllerChange


class ShutdownEventThread(Signal, frozen=True, gc=False):
    """The process is ending; goes to the front of the queue."""

    state = ControllerState.ControllerShutdown


class FailoverStep(Signal, frozen=True, gc=False):
    """A step that failed during failover and was skipped is due again."""

    state = ControllerState.ControllerChange
    step: str


class TakeOver(CertainRequest, frozen=True, kw_only=True):
    """An operator asks this process to become the controller.  Answered with the reasons against; none on success."""

    state = ControllerState.ControllerChange
    keep_ours: tuple[str, ...] = ()
    """Settings whose values here apply, even if the brokers' differ."""


class RollBack(CertainRequest, frozen=True, kw_only=True):
    """An operator rolls a migration to KRaft back.  Answered with (a ``Rollback``, the reasons against), or a text."""

    state = ControllerState.ControllerChange
    dry_run: bool = False
    force: bool = False


class Release(CertainRequest, frozen=True, kw_only=True):
    """The role is given back, or kept for a KRaft controller's claim (``to_kraft``).  Answered with a ``Released``."""

    state = ControllerState.ControllerChange
    for_good: bool = True
    """This process does not contend for the role again until an operator asks."""
    to_kraft: bool = False


class GuardChange(Signal, frozen=True, gc=False):
    """The reasons against being the controller have changed."""

    state = ControllerState.ControllerChange


class GoOnReleasing(Signal, frozen=True, gc=False):
    """Time to check whether everything that the release waits for is done."""

    state = ControllerState.ControllerChange


# -- brokers -----------------------------------------------------------------------------------------------------------


class BrokerChange(Signal, frozen=True, gc=False):
    """The children of ``/brokers/ids`` changed."""

    state = ControllerState.BrokerChange


class BrokerModifications(Signal, frozen=True, gc=False):
    """A broker registered again, or its endpoints changed."""

    state = ControllerState.BrokerChange
    broker: int


class SuspectsChange(Signal, frozen=True, gc=False):
    """The set of brokers that early detection suspects has changed."""

    state = ControllerState.BrokerChange


class UnlistBroker(Signal, frozen=True, gc=False):
    """A broker that is gone has been listed for clients for long enough; for this incarnation only."""

    state = ControllerState.BrokerChange
    broker: int
    broker_epoch: int


class StaleRegistration(Signal, frozen=True, gc=False):
    """A dead broker's registration may be old enough to remove; for this incarnation only."""

    state = ControllerState.BrokerChange
    broker: int
    broker_epoch: int


class FenceBroker(Signal, frozen=True, gc=False):
    """A broker that hangs may have to be ended by the operator's command; for this incarnation only."""

    state = ControllerState.BrokerChange
    broker: int
    broker_epoch: int


class SampleReplicas(Signal, frozen=True, gc=False):
    """Time to choose the replicas that the judge of sickness watches."""

    state = ControllerState.BrokerChange
    is_routine = True


class SicknessChange(Signal, frozen=True, gc=False):
    """The judge's verdict has changed, or it is time to see what else can be taken from a sick broker."""

    state = ControllerState.BrokerChange


class UnlistSickBroker(Signal, frozen=True, gc=False):
    """A sick broker may have to be left out of the live brokers; for this incarnation only."""

    state = ControllerState.BrokerChange
    broker: int
    broker_epoch: int


class ControllerSuspected(Signal, frozen=True, gc=False):
    """Early detection suspects the active controller."""

    state = ControllerState.ControllerChange


class ControlledShutdown(CertainRequest, frozen=True, kw_only=True):
    """Answered with a list of ``TopicPartition`` that the broker still leads."""

    state = ControllerState.ControlledShutdown
    broker: int
    broker_epoch: int


class LeaderAndIsrResponseReceived(Response, frozen=True, gc=False):
    """A broker has answered LeaderAndIsr."""

    state = ControllerState.LeaderAndIsrResponseReceived
    broker: int
    broker_epoch: int
    error_code: int
    errors: tuple[tuple[bytes | str, int, int], ...]
    """(topic id, or name below version 5; partition; error code) of each partition with an error."""
    rows: Sequence[int]
    """The partitions of the request."""


class UpdateMetadataResponseReceived(Response, frozen=True, gc=False):
    """A broker has refused UpdateMetadata."""

    state = ControllerState.UpdateMetadataResponseReceived
    broker: int
    broker_epoch: int
    error_code: int


class StopReplicaResponseReceived(Response, frozen=True, gc=False):
    """A broker has answered StopReplica, or has not answered in time."""

    state = ControllerState.TopicDeletion
    broker: int
    broker_epoch: int
    error_code: int
    partitions: tuple[tuple[str, int, int], ...]
    """(topic, partition, error code)."""
    asked: Deletions
    """The deletions that the request asked for."""

    def codes(self) -> Callable[[str, int], int]:
        """(topic, partition) -> its error code; a replica that the broker's answer leaves out was not deleted."""
        if self.error_code:
            return lambda _topic, _partition: self.error_code
        found = {(topic, partition): code for topic, partition, code in self.partitions}
        return lambda topic, partition: found.get((topic, partition), KafkaErrorCode.UNKNOWN_SERVER_ERROR)


class PayDebts(Signal, frozen=True, gc=False):
    """It may be time to ask a broker again to delete the replicas that it owes."""

    state = ControllerState.TopicDeletion
    broker: int


class SilentDeletions(Signal, frozen=True, gc=False):
    """The time for brokers to delete the replicas of deleted topics is over."""

    state = ControllerState.TopicDeletion


# -- topics ------------------------------------------------------------------------------------------------------------


class TopicChange(Signal, frozen=True, gc=False):
    """The children of ``/brokers/topics`` changed."""

    state = ControllerState.TopicChange


class PartitionModifications(Signal, frozen=True, gc=False):
    """A topic's znode was written: usually it has more partitions."""

    state = ControllerState.TopicChange
    topic: str


class TopicDeletion(Signal, frozen=True, gc=False):
    """``/admin/delete_topics`` has new entries."""

    state = ControllerState.TopicDeletion


class ConfigChange(Signal, frozen=True, gc=False):
    """A dynamic configuration changed."""

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


class UncommittedReassignments(Signal, frozen=True, gc=False):
    """Reassignments may go on that no other event resumes: ZooKeeper refused a step a while ago, or an election has
    made the target the ISR."""

    state = ControllerState.AlterPartitionReassignment


class OwnReplicas(Signal, frozen=True, gc=False):
    """Partitions that already have a leader name this controller as a replica."""

    state = ControllerState.AlterPartitionReassignment


class ApiPartitionReassignment(Request, frozen=True, kw_only=True):
    """``targets``: the replicas wanted, or None to take a running reassignment back.  Answered with a dict,
    ``TopicPartition`` -> (error code, message)."""

    state = ControllerState.AlterPartitionReassignment
    targets: dict[TopicPartition, tuple[int, ...] | None]


class ListPartitionReassignments(Request, frozen=True, kw_only=True):
    """Answered with a dict, ``TopicPartition`` -> ``ReplicaAssignment``, of the requested ones in progress."""

    state = ControllerState.ListPartitionReassignment
    partitions: tuple[TopicPartition, ...] | None
    """None: all."""


# -- leadership and ISR ------------------------------------------------------------------------------------------------


class AlterPartitionReceived(CertainRequest, frozen=True, kw_only=True):
    """Answered with a list of ``AlterPartitionResult`` parallel to ``partitions``, or one error code for all."""

    state = ControllerState.IsrChange
    broker: int
    broker_epoch: int
    version: int
    partitions: tuple[AlterPartition, ...]


class IsrChangeNotification(Signal, frozen=True, gc=False):
    """Brokers wrote ISRs themselves and name the partitions (inter.broker.protocol.version below 2.7)."""

    state = ControllerState.IsrChange


class ProtocolChange(Signal, frozen=True, gc=False):
    """The cluster's inter.broker.protocol.version has changed since the cluster was loaded."""

    state = ControllerState.ControllerChange


class PartitionReassignmentIsrChange(Signal, frozen=True, gc=False):
    """The state znode of a partition that is being reassigned has changed; watched where leaders write ISRs there."""

    state = ControllerState.AlterPartitionReassignment
    topic: str
    partition: int


class LogDirEventNotification(Signal, frozen=True, gc=False):
    """Brokers report failed log directories."""

    state = ControllerState.LogDirChange


class ZkPreferredReplicaElection(Signal, frozen=True, gc=False):
    """``/admin/preferred_replica_election`` was created."""

    state = ControllerState.ManualLeaderBalance


class ReplicaLeaderElection(Request, frozen=True, kw_only=True):
    """Answered with a dict, ``TopicPartition`` -> (error code, message), of the partitions named, or of all that
    changed if none were named."""

    state = ControllerState.ManualLeaderBalance
    partitions: tuple[TopicPartition, ...] | None
    election_type: ElectionType


class RecoverPartitions(CertainRequest, frozen=True, kw_only=True):
    """An operator asks to elect leaders by the replicas' logs; answered with a list of ``PartitionRecovery``, or with a
    text that says why not."""

    state = ControllerState.ManualLeaderBalance
    topic: str
    partition: int | None = None
    """None: all partitions of the topic."""
    leader: int | None = None
    """The broker that is to lead; None: the one with the best log."""
    dry_run: bool = False
    """Only find out what would be elected, and what it would cost."""


class LogEndsReceived(Response, frozen=True, gc=False):
    """Brokers have reported how far the logs of offline partitions reach, or have not answered in time."""

    state = ControllerState.UncleanLeaderElectionEnable
    asked: tuple[Question, ...]
    evidence: Mapping[TopicPartition, Evidence]
    duration_us: int


class AutoPreferredReplicaLeaderElection(Signal, frozen=True, gc=False):
    """Time to look for partitions that their preferred replica does not lead."""

    state = ControllerState.AutoLeaderBalance


class AvoidedLeaders(Signal, frozen=True, gc=False):
    """Time to look for partitions led by brokers that should not lead (``aiocontroller.leader.avoid.brokers``)."""

    state = ControllerState.AutoLeaderBalance
    is_routine = True


class OfflinePartitionsSweep(Signal, frozen=True, gc=False):
    """Time to look again at partitions that have no leader although a replica is online."""

    state = ControllerState.AutoLeaderBalance


class Audit(Signal, frozen=True, gc=False):
    """Time for the next comparison of memory with ZooKeeper."""

    state = ControllerState.Idle
    is_routine = True


class SmallIsrs(Signal, frozen=True, gc=False):
    """Time to read ``min.insync.replicas`` of topics whose ISRs have become small."""

    state = ControllerState.Idle
    is_routine = True


# -- delegation tokens, producer ids, features, users ------------------------------------------------------------------


class ExpireDelegationTokens(Signal, frozen=True, gc=False):
    """Time to look for expired tokens."""

    state = ControllerState.Idle


class AllocateProducerIds(CertainRequest, frozen=True, kw_only=True):
    """Answered with (first id, count)."""

    state = ControllerState.Idle
    broker: int
    broker_epoch: int
    own: bool = False
    """The ids are for producers that ask this controller, as they may ask any node."""


class UpdateFeatures(Request, frozen=True, kw_only=True):
    """Answered with a dict, feature -> (error code, message)."""

    state = ControllerState.UpdateFeatures
    updates: dict[str, int]
    """Feature -> the requested level."""


class AlterUserScramCredentials(Request, frozen=True, kw_only=True):
    """Deletions are (user, mechanism).  Answered with a dict, user -> (error code, message)."""

    state = ControllerState.Idle
    deletions: tuple[tuple[str, int], ...]
    upsertions: tuple[ScramUpsertion, ...]


# -- topics by request -------------------------------------------------------------------------------------------------


class CreateTopics(Request, frozen=True, kw_only=True):
    """Answered with a dict, topic name -> ``TopicResult``, when every live broker knows the topics or time is up."""

    state = ControllerState.TopicChange
    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool
    quota: MutationQuota = UNBOUNDED


class CreatePartitions(Request, frozen=True, kw_only=True):
    """Answered like ``CreateTopics``."""

    state = ControllerState.TopicChange
    topics: tuple[NewPartitions, ...]
    timeout_ms: int
    validate_only: bool
    quota: MutationQuota = UNBOUNDED


class DeleteTopics(Request, frozen=True, kw_only=True):
    """Answered with a dict, topic name or id as asked -> ``TopicResult``, when the topics are gone, or time is up."""

    state = ControllerState.TopicDeletion
    topics: tuple[str | bytes, ...]
    timeout_ms: int
    contradictory: dict[str, bytes] = msgspec.field(default_factory=dict)
    """The names that came with an id as well; these are not deleted."""
    quota: MutationQuota = UNBOUNDED
