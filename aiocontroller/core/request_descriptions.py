"""Describes clients' and operators' requests in a few words, for the list of events.

Names are as they were requested, whether such a topic can exist or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import Event, Request
from aiocontroller.core.request_content import ElectionType
from aiocontroller.core.text import as_a_name, on_one_line

SHOWN = 5
LONGEST = 300


def describe_requests(events: Iterable[Event]) -> str:
    """Say who requested what; empty without a request of a client or operator that can change anything."""
    sentences = dict.fromkeys(_sentence(event) for event in events if isinstance(event, Request) and event.by)
    return ", ".join(filter(None, islice(sentences, SHOWN)))


def _sentence(event: Request) -> str:
    what = _what(event)
    return f"{_cut(on_one_line(event.by))} asks {what}" if what else ""


def _what(event: Request) -> str:
    match event:
        case ev.CreateTopics(validate_only=True) | ev.CreatePartitions(validate_only=True):
            return ""
        case ev.ListPartitionReassignments() | ev.RecoverPartitions(dry_run=True) | ev.RollBack(dry_run=True):
            return ""
        case ev.CreateTopics(topics=topics):
            return f"to create {_named([topic.name for topic in topics], 'topic')}"
        case ev.CreatePartitions(topics=topics):
            return f"for more partitions of {_named([topic.topic for topic in topics], 'topic')}"
        case ev.DeleteTopics(topics=topics):
            return f"to delete {_named([each if isinstance(each, str) else each.hex() for each in topics], 'topic')}"
        case ev.ApiPartitionReassignment(targets=targets):
            cancelled = [str(each) for each, replicas in targets.items() if replicas is None]
            moved = [str(each) for each, replicas in targets.items() if replicas is not None]
            asked = [f"to reassign {_named(moved, 'partition')}"] if moved else []
            asked += [f"to cancel the reassignment of {_named(cancelled, 'partition')}"] if cancelled else []
            return " and ".join(asked)
        case ev.ReplicaLeaderElection(partitions=partitions, election_type=kind):
            how = "an unclean election" if kind == ElectionType.UNCLEAN else "an election of the preferred leaders"
            return f"for {how} of {_named(None if partitions is None else [*map(str, partitions)], 'partition')}"
        case ev.RecoverPartitions(topic=topic, partition=partition):
            return f"to elect leaders by logs for {_shown(topic)}" + ("" if partition is None else f"-{partition}")
        case ev.UpdateFeatures(updates=updates):
            return f"to change the level of {_named(list(updates), 'feature')}"
        case ev.AlterUserScramCredentials(deletions=deletions, upsertions=upsertions):
            users = dict.fromkeys([user for user, _ in deletions] + [each.user for each in upsertions])
            return f"to change SCRAM credentials of {_named(list(users), 'user')}"
        case ev.TakeOver():
            return "this controller to take the role"
        case ev.Release(to_kraft=to_kraft):
            return (
                "this controller to hand the role over to KRaft" if to_kraft else "this controller to release the role"
            )
        case ev.RollBack():
            return "to roll the migration to KRaft back"
    return f"for {type(event).__name__}"


def _named(names: Sequence[str] | None, noun: str) -> str:
    """``topics a, b and 7 more``; None: all."""
    if names is None:
        return f"all {noun}s"
    shown = ", ".join(map(_shown, names[:SHOWN]))
    rest = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{noun}{'s' * (len(names) != 1)} {shown}{rest}"


def _shown(name: str) -> str:
    return _cut(as_a_name(name[: LONGEST + 1]))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
