"""Auto-creation of topics that clients ask for (Kafka's ``AutoTopicCreationManager``)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from aiocontroller.config import Config
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import CreateTopics
from aiocontroller.core.request_content import NewTopic
from aiocontroller.server.cluster_view import in_charge

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
MAX_AT_ONCE = 100
"""Topics created for one request; the client asks again for the others."""
MAX_WAITING = 1_000


class AutoTopicCreation:
    """Creates topics on demand, as brokers do for clients that ask for metadata."""

    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell
        self._waiting: dict[str, NewTopic] = {}
        self._in_flight: frozenset[str] = frozenset()

    @property
    def enabled(self) -> bool:
        """Whether brokers would auto-create topics; False until a broker has reported its settings."""
        return self._shell.settings.known and self._shell.policy.auto_create_topics_enable

    def create(self, names: Iterable[str]) -> frozenset[str]:
        """Have the active controller's consumer create the topics; returns those that this call has queued.

        Callers do not wait for the creation: clients ask again.
        """
        if not in_charge(self._shell):
            return frozenset()
        room = min(MAX_AT_ONCE, MAX_WAITING - len(self._waiting))
        wanted = [name for name in names if name not in self._waiting and name not in self._in_flight]
        begun = wanted[: max(0, room)]
        self._waiting.update((name, _new_topic(name, self._shell.policy)) for name in begun)
        if not self._in_flight:
            self._queue_next()
        return frozenset(begun)

    def _queue_next(self) -> None:
        """Queue one event at a time, so that clients' requests never delay the queue by more."""
        topics = tuple(islice(self._waiting.values(), MAX_AT_ONCE))
        if not topics:
            return
        self._in_flight = frozenset(topic.name for topic in topics)
        for topic in topics:
            del self._waiting[topic.name]
        reply = Reply(self._created)
        self._shell.queue.append(CreateTopics(topics=topics, timeout_ms=0, validate_only=False, reply=reply))

    def _created(self, result: object) -> None:
        self._in_flight = frozenset()
        if not in_charge(self._shell):
            self._waiting.clear()
        self._queue_next()


def _new_topic(name: str, policy: Config) -> NewTopic:
    if name == GROUP_METADATA_TOPIC:
        configs: dict[str, str | None] = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(policy.offsets_topic_segment_bytes),
        }
        return NewTopic(name, policy.offsets_topic_num_partitions, policy.offsets_topic_replication_factor, {}, configs)
    if name == TRANSACTION_STATE_TOPIC:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(policy.transaction_state_log_min_isr),
            "segment.bytes": str(policy.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        partitions, factor = (
            policy.transaction_state_log_num_partitions,
            policy.transaction_state_log_replication_factor,
        )
        return NewTopic(name, partitions, factor, {}, configs)
    return NewTopic(name, -1, -1, {}, {})
