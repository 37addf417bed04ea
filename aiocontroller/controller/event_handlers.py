"""Every event type and its handler, in one table; an incomplete event type fails at import."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any

from aiocontroller.controller import (
    alter_partition,
    audit,
    broker_fencing,
    broker_responses,
    brokers,
    controlled_shutdown,
    debts,
    delegation_tokens,
    failover,
    fast_bounce,
    features,
    isr_change_notifications,
    leader_elections,
    log_dirs,
    min_isrs,
    own_replicas,
    producer_ids,
    reassignment,
    sickness,
    suspicions,
    topic_admin,
    topic_deletion,
    topics,
    unclean_elections,
    unclean_recovery,
    user_scram_credentials,
)
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import ControllerState, Event, Request, Response, Signal
from aiocontroller.zookeeper.kafka_zk_client import ZNodeChange

Handler = Callable[[ControllerShell, Any], Awaitable[object]]

HANDLERS: dict[type[Event], Handler] = {
    ev.BrokerChange: brokers.broker_change,
    ev.BrokerModifications: brokers.broker_modifications,
    ev.UnlistBroker: brokers.unlist_broker,
    ev.TopicChange: topics.topic_change,
    ev.IsrChangeNotification: isr_change_notifications.isr_change_notification,
    ev.LeaderAndIsrResponseReceived: broker_responses.leader_and_isr_response_received,
    ev.UpdateMetadataResponseReceived: broker_responses.update_metadata_response_received,
    ev.StopReplicaResponseReceived: broker_responses.stop_replica_response_received,
    ev.PayDebts: debts.pay_debts,
    ev.SilentDeletions: topic_deletion.silent_deletions,
    ev.CreateTopics: topic_admin.create_topics,
    ev.CreatePartitions: topic_admin.create_partitions,
    ev.DeleteTopics: topic_admin.delete_topics,
    ev.TopicDeletion: topic_deletion.topic_deletion,
    ev.LogDirEventNotification: log_dirs.log_dir_event_notification,
    ev.ZkPartitionReassignment: reassignment.zk_partition_reassignment,
    ev.UncommittedReassignments: reassignment.uncommitted_reassignments,
    ev.OwnReplicas: own_replicas.move_own_replicas,
    ev.ApiPartitionReassignment: reassignment.api_partition_reassignment,
    ev.ListPartitionReassignments: reassignment.list_partition_reassignments,
    ev.ReplicaLeaderElection: leader_elections.replica_leader_election,
    ev.ZkPreferredReplicaElection: leader_elections.zk_preferred_replica_election,
    ev.ConfigChange: unclean_elections.config_change,
    ev.UncleanLeaderElectionEnable: unclean_elections.unclean_leader_election_enable,
    ev.TopicUncleanLeaderElectionEnable: unclean_elections.topic_unclean_leader_election_enable,
    ev.RecoverPartitions: unclean_recovery.recover_partitions,
    ev.LogEndsReceived: unclean_recovery.log_ends_received,
    ev.AutoPreferredReplicaLeaderElection: leader_elections.auto_preferred_replica_leader_election,
    ev.AvoidedLeaders: leader_elections.move_avoided_leaders,
    ev.OfflinePartitionsSweep: leader_elections.offline_partitions_sweep,
    ev.Audit: audit.audit,
    ev.SmallIsrs: min_isrs.small_isrs,
    ev.ControlledShutdown: controlled_shutdown.controlled_shutdown,
    ev.SuspectsChange: suspicions.suspects_change,
    ev.FenceBroker: broker_fencing.fence_broker,
    ev.SampleReplicas: sickness.sample_replicas,
    ev.SicknessChange: sickness.sickness_change,
    ev.UnlistSickBroker: sickness.unlist_sick_broker,
    ev.StaleRegistration: fast_bounce.remove_stale_registration,
    ev.ExpireDelegationTokens: delegation_tokens.expire_delegation_tokens,
    ev.AllocateProducerIds: producer_ids.allocate_producer_ids,
    ev.AlterUserScramCredentials: user_scram_credentials.alter_user_scram_credentials,
    ev.UpdateFeatures: features.update_features,
    ev.FailoverStep: failover.failover_step,
}
"""Handled by the active controller only; a standby drops these events and refuses the requests among them."""

GATHERED: dict[type[Event], Callable[[ControllerShell, Sequence[Any]], Awaitable[object]]] = {
    ev.AlterPartitionReceived: alter_partition.alter_partition,
    ev.PartitionModifications: topics.partition_modifications,
    ev.PartitionReassignmentIsrChange: isr_change_notifications.partition_reassignment_isr_change,
}
"""Likewise, for events that are handled together when they are adjacent in the queue: one write, one round of requests.

This matters when many brokers lose a follower at once, or an operator expands many topics.
"""


def _moving_isr_change(topic: str, partition: str) -> Event:
    return ev.PartitionReassignmentIsrChange(topic, int(partition))


SIGNALS: dict[ZNodeChange, Callable[[str], Event]] = {
    ZNodeChange.CONTROLLER_CHANGED: lambda _: ev.ControllerChange(),
    ZNodeChange.CONTROLLER_DELETED: lambda _: ev.Reelect(vacant=True),
    ZNodeChange.BROKER_IDS: lambda _: ev.BrokerChange(),
    ZNodeChange.BROKER: lambda name: ev.BrokerModifications(int(name)),
    ZNodeChange.TOPICS: lambda _: ev.TopicChange(),
    ZNodeChange.TOPIC: ev.PartitionModifications,
    ZNodeChange.PARTITION_STATE: lambda name: _moving_isr_change(*name.rsplit("-", 1)),
    ZNodeChange.ISR_CHANGE: lambda _: ev.IsrChangeNotification(),
    ZNodeChange.TOPIC_DELETIONS: lambda _: ev.TopicDeletion(),
    ZNodeChange.LOG_DIR_EVENT: lambda _: ev.LogDirEventNotification(),
    ZNodeChange.REASSIGN_PARTITIONS: lambda _: ev.ZkPartitionReassignment(),
    ZNodeChange.PREFERRED_ELECTION: lambda _: ev.ZkPreferredReplicaElection(),
    ZNodeChange.CONFIG_CHANGES: lambda _: ev.ConfigChange(),
}
"""The event that each change in ZooKeeper puts into the queue."""


def event_types(base: type[Event] = Event) -> Iterator[type[Event]]:
    """All concrete event types, in the order of their definition."""
    for kind in base.__subclasses__():
        if kind.__module__ == ev.__name__:
            yield kind
        yield from event_types(kind)


def check_event_types(tables: Sequence[Collection[type[Event]]], kinds: Sequence[type[Event]] = ()) -> None:
    """Raise TypeError for an event type that lacks a controller state, documentation, exactly one handler, or one of
    the three kinds, which say what happens to a preempted event."""
    for kind in kinds or list(event_types()):
        handlers = sum(kind in table for table in tables)
        lacking = [
            what
            for what, is_there in (
                ("a controller state", isinstance(getattr(kind, "state", None), ControllerState)),
                (f"one handler (it has {handlers})", handlers == 1),
                ("a kind: Signal, Request or Response", issubclass(kind, Signal | Request | Response)),
                ("a docstring", bool(vars(kind).get("__doc__"))),
            )
            if not is_there
        ]
        if lacking:
            raise TypeError(f"event type {kind.__name__} lacks {' and '.join(lacking)}")
