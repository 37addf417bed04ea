"""The overview of a controller and its cluster, as the page and the terminal show it; made of what is in memory.

It consists of sections.  Each is small whatever the size of the cluster (lists are bounded, with a total count), so a
display can replace a section as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiocontroller.controller import sickness
from aiocontroller.controller.channel_manager import SenderStatistics
from aiocontroller.controller.kafka_controller import COLD, TOPICS_SHOWN, KafkaController
from aiocontroller.core import broken_view
from aiocontroller.core import overview as of_context
from aiocontroller.core.broken_partitions import BrokenKind
from aiocontroller.core.overview import Channel

BROKEN_SHOWN = 50
EVENTS_SHOWN = 60
INCIDENTS_SHOWN = 10
FAILOVERS_SHOWN = 5
LONGEST = 300
"""Characters shown of a znode's content."""
SILENT_S = 10.0
"""A broker that has owed an answer for this long is shown as not answering: normally it takes milliseconds."""


def sections(controller: KafkaController) -> dict[str, Callable[[], Any]]:
    """Return name -> function that makes the section, of JSON values."""
    return {
        "controller": lambda: _controller(controller),
        "counts": lambda: _counts(controller),
        "brokers": lambda: _brokers(controller),
        "broken": lambda: _broken(controller),
        "reassignments": lambda: _reassignments(controller),
        "deletions": lambda: _deletions(controller),
        "incidents": lambda: list(controller.story.incidents.latest)[: -INCIDENTS_SHOWN - 1 : -1],
        "failovers": lambda: list(controller.story.chronicle.failovers)[: -FAILOVERS_SHOWN - 1 : -1],
        "events": lambda: list(controller.story.chronicle.events)[: -EVENTS_SHOWN - 1 : -1],
    }


def _controller(controller: KafkaController) -> dict[str, Any]:
    shell, election = controller.shell, controller.election
    found = controller.readiness()
    standby = COLD if election.mirror is None else election.mirror.status()
    return {
        "id": shell.id,
        "active": election.active_and_connected,
        "state": found.state,
        "reasons": found.reasons[:20],
        "holder": None if election.holder is None else election.holder.controller_id,
        "epoch": shell.context.epoch,
        "since_us": election.since_us,
        "standby": {key: standby.get(key) for key in ("state", "reason", "behind", "lag_ms")},
        "unsent_partitions": 0 if shell.full_metadata is None else shell.full_metadata.left,
    }


def _counts(controller: KafkaController) -> dict[str, Any]:
    shell, table = controller.shell, controller.shell.context.table
    return {
        "topics": len(table.topic_by_name),
        "partitions": len(table),
        "brokers": len(shell.context.brokers),
        **broken_view.counts(shell.context),
        "complete": not table.broken.unread,
        "not_preferred": table.preferred_replica_imbalance,
        "waiting_events": len(shell.queue),
        "set_aside": len(shell.faults.status()),
        "owed_replicas": len(shell.context.debts),
        "unreadable": len(shell.bad_paths()),
    }


def _brokers(controller: KafkaController) -> list[of_context.BrokerView]:
    shell = controller.shell
    senders = [] if shell.channels is None else shell.channels.statistics()
    channels = {each.broker: _channel(each) for each in senders}
    return of_context.brokers(shell.context, channels, _evidence(controller, senders))


def _channel(sender: SenderStatistics) -> Channel:
    silent_us = sender.waiting_since_us if sender.waiting_s >= SILENT_S else None
    return Channel(sender.queued, sender.in_flight, sender.retries, sender.answered_us, silent_us)


def _evidence(controller: KafkaController, senders: Sequence[SenderStatistics]) -> Mapping[int, tuple[str, ...]]:
    """Return the evidence of problems, by broker id."""
    shell = controller.shell
    found = {each.broker: (f"cannot be reached: {each.problem}",) for each in senders if each.problem}
    heartbeats = None if shell.channels is None else shell.channels.heartbeats
    for broker, suspicion in {} if heartbeats is None else heartbeats.suspects().items():
        found[broker] = (*found.get(broker, ()), f"early detection: {suspicion.reason}")
    sick = sickness.status(shell)
    if sick:
        found[sick["broker"]] = (*found.get(sick["broker"], ()), f"{sick['kind']}: {sick['evidence']}")
    return found


def _broken(controller: KafkaController) -> dict[str, Any]:
    shell, context = controller.shell, controller.shell.context
    kinds = {kind.value: broken_view.broken_partitions(context, kind, 0, BROKEN_SHOWN) for kind in BrokenKind}
    bad = shell.unreadable(BROKEN_SHOWN)
    unreadable = [{"path": z.path, "found": str(z.found)[:LONGEST], "expected": z.expected[:LONGEST]} for z in bad]
    by_topic = broken_view.offline_by_topic(context, TOPICS_SHOWN)
    return {**kinds, "offline_by_topic": by_topic, "unreadable": unreadable}


def _reassignments(controller: KafkaController) -> dict[str, Any]:
    context, now_us = controller.shell.context, controller.shell.world.clock.wall_time_us()
    count = len(context.partitions_being_reassigned)
    return {
        "count": count,
        "partitions": of_context.moves(context),
        "pace": controller.story.chronicle.reassignments.expectation(
            now_us, count - len(context.cancelled_reassignments)
        ),
    }


def _deletions(controller: KafkaController) -> dict[str, Any]:
    context, now_us = controller.shell.context, controller.shell.world.clock.wall_time_us()
    count = len(context.topics_to_be_deleted)
    return {
        "count": count,
        "topics": of_context.deletions(context),
        "pace": controller.story.chronicle.deletions.expectation(
            now_us, count - len(context.topics_ineligible_for_deletion)
        ),
    }
