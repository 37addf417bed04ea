"""docs/kafka-map.md is true: what it names exists, and what it leaves out has a reason."""

from __future__ import annotations

import importlib

from tests.conformance.kafka_map import Row, of_each_name, rows
from tests.named_tests import is_a_test

LEAST_ROWS = 300
"""Far fewer would mean that the page is no longer understood."""


def test_the_page_is_understood() -> None:
    assert len(rows()) > LEAST_ROWS
    assert all(row.heading for row in rows())
    assert {row.heading for row in rows() if row.about_a_test} >= {
        "ControllerIntegrationTest",
        "PartitionStateMachineTest",
        "ReplicaStateMachineTest",
        "TopicDeletionManagerTest",
        "PartitionLeaderElectionAlgorithmsTest",
        "ControllerChannelManagerTest",
        "ControllerContextTest",
        "ControllerEventManagerTest",
    }


def test_what_has_no_counterpart_has_a_reason() -> None:
    assert [row.theirs for row in rows() if not row.ours and not row.note] == []


def test_every_function_named_exists() -> None:
    named = dict.fromkeys(name for row in rows() if not row.about_a_test for name in row.ours)
    assert [name for name in named if not exists(name)] == []


def test_every_test_named_exists() -> None:
    named = dict.fromkeys(name for row in rows() if row.about_a_test for name in row.ours)
    assert [name for name in named if not is_a_test(name)] == []


def test_a_place_stands_for_the_same_names_in_it() -> None:
    file = "tests/conformance/test_topic_requests.py"
    scenarios = Row("CreateTopicsRequestTest", ("testCreateTopicsRequestVersions", "testMissing"), (file,), "")
    found, missing = (row.ours[0] for row in of_each_name(scenarios))
    assert found == f"{file}::test_create_topics_request_versions"
    assert not is_a_test(missing)
    functions = Row("KafkaController.scala", ("onBrokerFailure", "onNothing"), ("controller.brokers.*",), "")
    assert [row.ours for row in of_each_name(functions)] == [
        ("controller.brokers.on_broker_failure",),
        ("controller.brokers.on_nothing",),
    ]
    assert [exists(row.ours[0]) for row in of_each_name(functions)] == [True, False]


def test_no_scenario_is_named_twice() -> None:
    seen = [f"{row.heading}.{name}" for row in rows() if row.about_a_test for name in row.theirs]
    assert sorted(seen) == sorted(set(seen))


def test_all_54_scenarios_of_the_integration_test_are_played() -> None:
    played = [row for row in rows() if row.heading == "ControllerIntegrationTest"]
    assert len(played) == 54
    assert all(row.ours for row in played)
    assert [row.theirs for row in played if not named_alike(row)] == []


def named_alike(row: Row) -> bool:
    """Ours is called like theirs, but for capitals and underscores."""
    (theirs,), (ours,) = row.theirs, row.ours
    return ours.partition("::")[2].replace("_", "") == theirs.lower()


def exists(name: str) -> bool:
    """``module.Class.method`` under the package; the longest module first."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["aiocontroller", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part, None)  # type: ignore[assignment]
            if found is None:
                return False
        return True
    return False
