"""The behavior of brokers by release, as a controller sees it: one table, which a test checks against real releases.

Read from Kafka's source at the tag of each ``version``: the message definitions
(``clients/src/main/resources/common/message``; 2.2 has Java classes instead), ``KafkaApis``, ``ReplicaManager``,
``Partition``, ``AlterIsrManager`` and its successors, ``KafkaServer``.  ``tests/integration/kafka/test_generations.py``
sends the same requests to real and simulated brokers.

A broker's behavior depends on the release of its binary (``Generation``) and on ``inter.broker.protocol.version``
(``Protocol``), which operators raise later than the binaries.  Whether it notifies the controller by ZooKeeper or by a
request depends on the protocol alone.  Log directory failures always go through ZooKeeper
(``/log_dir_event_notification``): the request that replaced it came with KRaft.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from aiocontroller.core.errors import BadInputError
from aiocontroller.property_values import parse_protocol_version
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange


class TopicIds(IntEnum):
    """What a broker does with the topic ids of LeaderAndIsr (version 5 and later)."""

    UNKNOWN = 0
    """The release does not have that version."""
    IN_PASSING = 1
    """2.8: an existing replica without an id takes the id in the request, whatever the result.  A replica created by
    the request takes none."""
    CHECKED = 2
    """3.0: replicas take the id from the request that creates them; a request that adds only an id gets no error."""
    MAY_GO = 3
    """3.3: also, a follower that has an id and receives none, at the leader epoch that it has, answers no error; and
    UpdateMetadata without an id takes it from the metadata."""


class Generation(NamedTuple):
    release: str
    """``2.8``"""
    version: str
    """The patch release whose source these facts come from."""
    protocol: str
    """Default ``inter.broker.protocol.version``."""
    offered: Mapping[ApiKey, VersionRange]
    """Its ApiVersions answer, limited to the APIs that a simulated broker serves."""
    of_logs: Mapping[ApiKey, VersionRange]
    """The same for APIs that a simulated broker serves only if it has logs."""
    alter_partition: int
    """Highest version of AlterPartition (AlterIsr until 3.1) that it sends; -1 if it sends none."""
    topic_ids: TopicIds
    stops_at_equal_epoch: bool
    """StopReplica may carry the replica's current leader epoch (KAFKA-13972); before, that is rejected as too low."""
    non_replicas_go_offline: bool
    """A LeaderAndIsr for a replica not assigned to the broker is treated like one on a failed disk."""
    refuses_later_broker_epoch: bool
    """It treats a broker epoch above its own as a bug (UNKNOWN_SERVER_ERROR), not as one that it has yet to learn."""
    skips_older_partition_epoch: bool
    """A LeaderAndIsr with a lower partition epoch than the replica's is ignored without an error."""
    adds_live_followers_only: bool
    """A follower joins the ISR only while it is alive in the leader's metadata."""
    takes_refusals_back: bool
    """After INELIGIBLE_REPLICA or OPERATION_NOT_ATTEMPTED the leader reverts to its old ISR.  Before, it waits for the
    next LeaderAndIsr, as after every error, because its own queue refuses its retry."""
    awaits_isr_by_zookeeper: bool
    """A leader whose write was refused waits for the next LeaderAndIsr.  Before 2.7 it retries endlessly."""
    names_api_versions: bool
    """The broker answers an ApiVersions request of an unsupported newer version with the versions that it has
    (KIP-511)."""
    leaderless_isr: bool
    """Clients see the ISR of a partition whose leader is not alive."""
    leaderless_epoch: bool
    """Clients also see the leader epoch, and the error LEADER_NOT_AVAILABLE; before, LISTENER_NOT_FOUND."""
    finds_any_controller: bool
    """For its controlled shutdown it looks up the controller in its metadata.  Until 2.8 it looks among the registered
    brokers, which do not include a controller that is not a broker."""
    principal_builder: str | None
    """Default of ``principal.builder.class``."""
    principal_mapping_rules: str
    """Default of ``ssl.principal.mapping.rules``."""
    hw_needs_min_isr: bool = False
    """The high watermark does not advance while the ISR is smaller than ``min.insync.replicas`` (KAFKA-15583)."""


class Protocol(NamedTuple):
    """A value of ``inter.broker.protocol.version``: (3, 4, 0) is 3.4-IV0."""

    major: int
    minor: int
    iv: int

    @classmethod
    def of(cls, text: str) -> Protocol:
        """Parse a value; BadInputError if it is invalid."""
        try:
            return cls(*parse_protocol_version(text))
        except ValueError:
            raise BadInputError(
                f"inter.broker.protocol.version: found {text!r}, expected one such as 2.7-IV2"
            ) from None

    @property
    def isr_by_alter_partition(self) -> bool:
        """Whether ISRs change by request; before, leaders write state znodes and notify the controller by a znode."""
        return self >= (2, 7, 2)

    @property
    def truncates_on_fetch(self) -> bool:
        """Whether followers send their last epoch with each fetch (KIP-595); before, they first ask for its end."""
        return self >= (2, 7, 1)

    @property
    def topic_ids(self) -> bool:
        """Whether AlterPartition may name topics by their ids."""
        return self >= (2, 8, 0)

    @property
    def registration_version(self) -> int:
        """The version of ``/brokers/ids/N``: from 2.7 on it has features."""
        return 5 if self >= (2, 7, 0) else 4

    @property
    def controlled_shutdown(self) -> int:
        """The version of ControlledShutdown."""
        return 3 if self >= (2, 4, 1) else 2 if self >= (2, 2, 0) else 1


def _offered(
    metadata: int,
    leader_and_isr: int,
    stop_replica: int,
    update_metadata: int,
    api_versions: int,
    describe_configs: int,
) -> Mapping[ApiKey, VersionRange]:
    """Return version ranges from the highest version of each API; the lowest is always 0."""
    return {
        ApiKey.METADATA: VersionRange(0, metadata),
        ApiKey.LEADER_AND_ISR: VersionRange(0, leader_and_isr),
        ApiKey.STOP_REPLICA: VersionRange(0, stop_replica),
        ApiKey.UPDATE_METADATA: VersionRange(0, update_metadata),
        ApiKey.API_VERSIONS: VersionRange(0, api_versions),
        ApiKey.DESCRIBE_CONFIGS: VersionRange(0, describe_configs),
    }


def _of_logs(list_offsets: int, fetch: int) -> Mapping[ApiKey, VersionRange]:
    return {ApiKey.LIST_OFFSETS: VersionRange(0, list_offsets), ApiKey.FETCH: VersionRange(0, fetch)}


_DEFAULT_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_V2_2 = Generation(
    release="2.2",
    version="2.2.2",
    protocol="2.2-IV1",
    offered=_offered(7, 2, 1, 5, 2, 2),
    of_logs=_of_logs(5, 10),
    alter_partition=-1,
    topic_ids=TopicIds.UNKNOWN,
    stops_at_equal_epoch=False,
    non_replicas_go_offline=True,
    refuses_later_broker_epoch=True,
    skips_older_partition_epoch=False,
    adds_live_followers_only=False,
    takes_refusals_back=False,
    awaits_isr_by_zookeeper=False,
    names_api_versions=False,
    leaderless_isr=False,
    leaderless_epoch=False,
    finds_any_controller=False,
    principal_builder=None,
    principal_mapping_rules="DEFAULT",
)
_V2_4 = _V2_2._replace(
    release="2.4",
    version="2.4.1",
    protocol="2.4-IV1",
    offered=_offered(9, 4, 2, 6, 3, 2),
    of_logs=_of_logs(5, 11),
    names_api_versions=True,
    leaderless_isr=True,
)
_V2_8 = _V2_4._replace(
    release="2.8",
    version="2.8.2",
    protocol="2.8-IV1",
    offered=_offered(11, 5, 3, 7, 3, 4),
    of_logs=_of_logs(6, 12),
    alter_partition=0,
    topic_ids=TopicIds.IN_PASSING,
    refuses_later_broker_epoch=False,
    leaderless_epoch=True,
    awaits_isr_by_zookeeper=True,
)
_V3_0 = _V2_8._replace(
    release="3.0",
    version="3.0.2",
    protocol="3.0-IV1",
    of_logs=_of_logs(7, 12),
    topic_ids=TopicIds.CHECKED,
    finds_any_controller=True,
    principal_builder=_DEFAULT_BUILDER,
)
_V3_3 = _V3_0._replace(
    release="3.3",
    version="3.3.2",
    protocol="3.3-IV3",
    offered=_offered(12, 6, 3, 7, 3, 4),
    of_logs=_of_logs(7, 13),
    alter_partition=2,
    topic_ids=TopicIds.MAY_GO,
    non_replicas_go_offline=False,
    skips_older_partition_epoch=True,
    adds_live_followers_only=True,
    takes_refusals_back=True,
)
_V3_7 = _V3_3._replace(
    release="3.7",
    version="3.7.2",
    protocol="3.7-IV4",
    offered=_offered(12, 7, 4, 8, 3, 4),
    of_logs=_of_logs(8, 16),
    alter_partition=3,
    stops_at_equal_epoch=True,
    hw_needs_min_isr=True,
)
_V3_9 = _V3_7._replace(
    release="3.9",
    version="3.9.1",
    protocol="3.9-IV0",
    offered={api: SUPPORTED[api] for api in _V3_7.offered},
    of_logs={api: SUPPORTED[api] for api in _V3_7.of_logs},
)

GENERATIONS: Mapping[str, Generation] = {g.release: g for g in (_V2_2, _V2_4, _V2_8, _V3_0, _V3_3, _V3_7, _V3_9)}
"""By release, oldest first."""
NEWEST = _V3_9.release


def generation(release: str) -> Generation:
    """Return a release's row of the table; BadInputError, naming the known releases, for any other."""
    found = GENERATIONS.get(release)
    if found is None:
        raise BadInputError(f"release of a broker: found {release!r}, expected one of {', '.join(GENERATIONS)}")
    return found


def protocol_of(of: Generation, protocol: str) -> Protocol:
    """Return the protocol of a broker with the setting ``protocol``, which is empty for the default.

    BadInputError if the broker's release is too old for the protocol: Kafka's broker would not start.
    """
    spoken = Protocol.of(protocol or of.protocol)
    if spoken[:2] > Protocol.of(of.protocol)[:2]:
        raise BadInputError(
            f"inter.broker.protocol.version: found {protocol}, expected at most {of.protocol}, the broker's release"
        )
    return spoken
