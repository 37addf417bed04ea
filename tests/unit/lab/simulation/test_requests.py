"""Clients' requests through the listener, hostile clients, damaged znodes, the role given back and taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.request_content import TopicResult
from aiocontroller.lab.scenarios.plan import Plan, ScenarioStep
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import simulate_plan


def play(*kinds: str | tuple[str, ...], times: int = 1, controllers: int = 2) -> SimulationReport:
    """Take the steps in order, as often as ``times``."""
    named = [(kind, ()) if isinstance(kind, str) else (kind[0], kind[1:]) for kind in kinds] * times
    steps = tuple(ScenarioStep(kind, number, 0.5, arguments) for number, (kind, arguments) in enumerate(named))
    return simulate_plan(Plan(1, brokers=3, controllers=controllers, shared_id=False, takeover=False, steps=steps))


def reached(report: SimulationReport) -> set[str]:
    return {mark.removeprefix("probe/") for mark in report.marks if mark.startswith("probe/")}


def test_every_request_is_answered_and_judged() -> None:
    kinds = ("create_topic", "request_topics", "request_partitions", "request_configs", "request_credentials")
    more = ("request_quotas", "request_features", "request_acls", "elect_everywhere", "reassign", "list_reassignments")
    report = play(*kinds, *more, "allocate_producer_ids", "request_deletion", times=4)
    assert report.violations == []
    assert reached(report) >= {
        f"{api} answered"
        for api in (
            "ALLOCATE_PRODUCER_IDS",
            "ALTER_CLIENT_QUOTAS",
            "ALTER_PARTITION_REASSIGNMENTS",
            "ALTER_USER_SCRAM_CREDENTIALS",
            "CREATE_ACLS",
            "CREATE_PARTITIONS",
            "CREATE_TOPICS",
            "DELETE_TOPICS",
            "ELECT_LEADERS",
            "INCREMENTAL_ALTER_CONFIGS",
            "LIST_PARTITION_REASSIGNMENTS",
            "UPDATE_FEATURES",
        )
    }
    assert {"ALTER_CLIENT_QUOTAS answered with 0", "UPDATE_FEATURES answered with 42"} <= reached(report)


def _say_so(results: Callable[[Any], dict[Any, Any]]) -> Callable[[Any, Any], Any]:
    async def handle(shell: Any, event: Any) -> None:
        event.reply.answer(results(event))

    return handle


def test_a_controller_that_only_says_that_it_created_a_topic_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    done = _say_so(lambda event: {topic.name: TopicResult(0, partitions=1) for topic in event.topics})
    _replace(monkeypatch, "CreateTopics", done)
    report = play("create_topic", "request_topics", "request_topics", "request_topics")
    assert {violation.partition(" ")[0] for violation in report.violations} == {"answers"}


def test_a_controller_that_only_says_that_it_stored_a_credential_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    users = lambda event: {change.user: (KafkaErrorCode.NONE, "") for change in event.upsertions}  # noqa: E731
    _replace(monkeypatch, "AlterUserScramCredentials", _say_so(users))
    report = play("create_topic", *["request_credentials"] * 4)
    assert {violation.partition(" ")[0] for violation in report.violations} == {"answers"}


def _replace(monkeypatch: pytest.MonkeyPatch, event: str, handler: Any) -> None:
    from aiocontroller.controller.event_handlers import HANDLERS

    kind = next(kind for kind in HANDLERS if kind.__name__ == event)
    monkeypatch.setitem(HANDLERS, kind, handler)


def test_a_controller_that_has_given_the_role_back_takes_it_again_in_peace() -> None:
    report = play("create_topic", "release_controller", "wait", "kill_broker", controllers=1)
    assert report.violations == []
    assert {"the role is to be released", "release answered: Released", "takeover done"} <= reached(report)


def test_hostile_clients_and_damaged_znodes_leave_the_cluster_whole() -> None:
    places = [("damage_znode", "orders", place) for place in ("topic", "state", "settings")]
    report = play(("create_topic", "orders", "1,2", "2,3"), "send_garbage", *places, "send_garbage", times=1)
    assert report.violations == []
    assert {"a damaged request", "a damaged znode"} <= reached(report)


def test_a_state_that_was_damaged_several_times_is_mended() -> None:
    damage = ("damage_znode", "orders", "state")
    assert play(("create_topic", "orders", "1,2"), *[damage] * 6).violations == []
