"""Requests in words: who, what, of which; bounded, and silent about what changes nothing."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from aiocontroller.core import events as ev
from aiocontroller.core import request_descriptions
from aiocontroller.core.event_kinds import Event, Reply, Request
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import ElectionType, NewPartitions, NewTopic, ScramUpsertion
from aiocontroller.core.request_descriptions import LONGEST, SHOWN, describe_requests

WHO = "User:alice at 10.0.0.7"


def words(event: Event) -> str:
    return describe_requests([event])


def request(kind: type[Request], **fields: Any) -> Request:
    return kind(**fields, by=WHO, reply=Reply(lambda answer: None))


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPICS = tuple(NewTopic(name, 1, 1, {}, {}) for name in "abcdefg")


@pytest.mark.parametrize(
    "event, wanted",
    [
        (request(ev.CreateTopics, topics=TOPICS[:1], timeout_ms=1, validate_only=False), "to create topic a"),
        (
            request(ev.CreateTopics, topics=TOPICS, timeout_ms=1, validate_only=False),
            "to create topics a, b, c, d, e and 2 more",
        ),
        (
            request(ev.CreatePartitions, topics=(NewPartitions("a", 3, None),), timeout_ms=1, validate_only=False),
            "for more partitions of topic a",
        ),
        (request(ev.DeleteTopics, topics=("a", b"\x01" * 16), timeout_ms=1), f"to delete topics a, {'01' * 16}"),
        (request(ev.ApiPartitionReassignment, targets={T0: (1,)}), "to reassign partition t-0"),
        (
            request(ev.ApiPartitionReassignment, targets={T0: (1,), T1: None}),
            "to reassign partition t-0 and to cancel the reassignment of partition t-1",
        ),
        (
            request(ev.ReplicaLeaderElection, partitions=None, election_type=ElectionType.PREFERRED),
            "for an election of the preferred leaders of all partitions",
        ),
        (
            request(ev.ReplicaLeaderElection, partitions=(T1,), election_type=ElectionType.UNCLEAN),
            "for an unclean election of partition t-1",
        ),
        (request(ev.RecoverPartitions, topic="t", partition=0), "to elect leaders by logs for t-0"),
        (request(ev.UpdateFeatures, updates={"x": 1}), "to change the level of feature x"),
        (
            request(
                ev.AlterUserScramCredentials,
                deletions=(("bob", 1), ("eve", 2)),
                upsertions=(ScramUpsertion("bob", 1, 4096, b"", b""),),
            ),
            "to change SCRAM credentials of users bob, eve",
        ),
        (request(ev.TakeOver), "this controller to take the role"),
        (request(ev.Release), "this controller to release the role"),
        (request(ev.Release, to_kraft=True), "this controller to hand the role over to KRaft"),
        (request(ev.RollBack), "to roll the migration to KRaft back"),
    ],
)
def test_who_asks_for_what(event: Request, wanted: str) -> None:
    assert words(event) == f"{WHO} asks {wanted}"


@pytest.mark.parametrize(
    "event",
    [
        request(ev.CreateTopics, topics=TOPICS, timeout_ms=1, validate_only=True),
        request(ev.CreatePartitions, topics=(), timeout_ms=1, validate_only=True),
        request(ev.ListPartitionReassignments, partitions=None),
        request(ev.RecoverPartitions, topic="t", dry_run=True),
        request(ev.RollBack, dry_run=True),
        request(ev.ApiPartitionReassignment, targets={}),
        ev.Startup(),
        ev.TakeOver(reply=Reply(lambda answer: None)),
    ],
)
def test_what_changes_nothing_or_nobody_asked_for_is_not_told(event: Event) -> None:
    assert words(event) == ""


def test_many_and_long_ones_are_bounded_and_equal_ones_said_once() -> None:
    twice = request(ev.TakeOver)
    assert describe_requests([twice, twice]) == words(twice)
    many = [request(ev.RecoverPartitions, topic=f"{n}" * 400, partition=n) for n in range(50)]
    assert describe_requests(many).count("asks") == SHOWN
    strange = ev.DeleteTopics(topics=("x" * 10_000,) * 9, timeout_ms=1, by="y" * 10_000, reply=Reply(print))
    assert len(words(strange)) < (SHOWN + 1) * LONGEST + 100


def test_names_forge_no_line_and_give_a_terminal_no_orders() -> None:
    """A login's name and what it asks to delete are free text of its own."""
    forged = "x\n2026-11-28T12:00:00.000Z  controller 666 took the role\x1b[2J\u202e"
    for event in (
        ev.DeleteTopics(topics=(forged,), timeout_ms=1, by=f"User:{forged}", reply=Reply(print)),
        ev.RecoverPartitions(topic=forged, by="User:a", reply=Reply(print)),
    ):
        assert words(event).isprintable()
        assert r"x\n2026-11-28T12:00:00.000Z  controller 666 took the role\x1b[2J\u202e" in words(event)
    listed = ev.DeleteTopics(topics=("a, b", "c"), timeout_ms=1, by="User:a", reply=Reply(print))
    assert words(listed).endswith('to delete topics "a, b", c')
    longest = ev.DeleteTopics(topics=("\U0010ffff" * 400,), timeout_ms=1, by="a", reply=Reply(print))
    assert len(words(longest)) < LONGEST + 100
    assert words(longest).endswith("…")


OF_BROKERS = {"AlterPartitionReceived", "ControlledShutdown", "AllocateProducerIds"}


def kinds(of: type[Request]) -> set[str]:
    below = of.__subclasses__()
    return {each.__name__ for each in below if "state" in vars(each)}.union(*map(kinds, below))


def test_every_request_of_clients_and_operators_has_words() -> None:
    source = inspect.getsource(request_descriptions)
    assert {kind for kind in kinds(Request) if f"ev.{kind}(" not in source} == OF_BROKERS
