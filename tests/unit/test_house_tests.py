"""Each module has a test file of its name, where newcomers look for it, or this file says where its tests are."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("core", "controller", "zookeeper", "server")

ELSEWHERE = {
    "server/admission": "unit/server/test_limits.py",
    "server/alter_configs": "unit/server/test_config_apis.py",
    "server/apis": "unit/server/test_kafka_apis.py",
    "server/cluster_view": "unit/server/test_metadata_apis.py",
    "server/coordinator_apis": "unit/server/test_refusals_of_a_node.py",
    "server/error_answers": "unit/server/test_refusals_of_a_node.py",
    "server/http_connections": "unit/server/test_http_limits.py",
    "server/kafka_channel": "unit/server/test_limits.py",
    "server/leader_apis": "unit/server/test_refusals_of_a_node.py",
    "server/login_apis": "unit/server/test_logins.py",
    "server/memory_pool": "unit/server/test_limits.py",
    "server/outcomes": "unit/server/test_admin_apis.py",
    "server/permissions": "unit/server/test_controller_authorization.py",
    "server/request": "unit/server/test_kafka_apis.py",
    "server/request_sizes": "unit/server/test_envelope.py",
    "server/sasl": "unit/server/test_logins.py",
    "server/auto_topic_creation": "unit/server/test_metadata_apis.py",
    "zookeeper/acl_store": "integration/zookeeper/test_acl_store.py",
    "zookeeper/znode_acls": "integration/zookeeper/test_securing.py",
    "zookeeper/cluster_marks": "unit/controller/test_controller_election.py",
    "zookeeper/debts": "unit/controller/test_debts.py",
    "zookeeper/delegation_tokens": "unit/server/test_logins.py",
    "zookeeper/found": "unit/zookeeper/test_client.py",
    "zookeeper/paths": "unit/zookeeper/test_cluster_znodes.py",
    "zookeeper/reads": "unit/zookeeper/test_kafka_zk_client.py",
    "zookeeper/request_znodes": "unit/zookeeper/test_kafka_zk_client.py",
    "zookeeper/session_events": "unit/zookeeper/test_session.py",
    "zookeeper/session_metrics": "unit/zookeeper/test_session.py",
    "zookeeper/state_settling": "unit/controller/test_repairs.py",
    "zookeeper/state_znodes": "unit/zookeeper/test_znodes.py",
    "zookeeper/state_watches": "unit/zookeeper/test_kafka_zk_client.py",
    "zookeeper/znode_access": "unit/zookeeper/test_client.py",
    "zookeeper/znode_json": "unit/zookeeper/test_znodes.py",
}
"""Modules that are tested together with others: module -> the file of their tests."""

OF_NO_MODULE = {
    "core/determinism": "the same inputs give the same decisions, under any PYTHONHASHSEED",
    "core/diagrams": "the diagrams of docs/state-machines.md",
    "core/failure_detector_exhaustively": "all short histories of a peer",
    "core/sickness_exhaustively": "all short histories of a broker",
    "controller/foundations": "the program ends when a task dies on which all else stands",
    "controller/migration": "a migration to KRaft: the claim of a KRaft controller, and its rollback",
    "controller/mirror_under_attack": "a warm standby among other servers, endless writes, damage, and bugs",
    "controller/random_clusters": "random stories on all handlers together",
    "controller/reads_ahead": "what a warm failover reads ahead of its steps, and what may change between the two",
    "controller/recovery_stories": "random stories: who leads before whom, and that somebody does in the end",
    "controller/recovery_strategies": "who waits for whose log, by unclean.recovery.strategy",
    "controller/recovery_under_attack": "deletions, rival requests and late brokers while logs are compared",
    "controller/recovery_under_way": "what happens while replicas are asked how far their logs reach",
    "controller/role_given_back": "the role after an operator's release, and after the end of a process",
    "controller/stack_depth": "the number of calls from the consumer to a rule",
    "controller/steps_of_recoveries": "how much a recovery does before other tasks may run",
    "controller/steps_of_standbys": "for how long a warm standby keeps the loop busy",
    "server/admin_apis": "the admin requests that several modules answer",
    "server/http_limits": "what HTTP clients may ask for",
    "server/limits": "what clients may ask for, by all modules of the listener",
    "server/logins": "logins by all mechanisms, from both ends",
    "server/refusals_of_a_node": "requests that a node which is no broker refuses",
    "server/renewed_logins": "logins that are renewed on a connection",
    "server/throttling": "quotas of requests",
    "zookeeper/znodes_properties": "what is encoded is decoded again, for all znodes",
}


def modules(room: str) -> list[str]:
    return [name for name in below(ROOT / "aiocontroller", room) if not name.rpartition("/")[2].startswith("_")]


def covered(room: str) -> list[str]:
    names = (name.rpartition("/") for name in below(ROOT / "tests/unit", room))
    return [f"{folder}/{stem.removeprefix('test_')}" for folder, _, stem in names if stem.startswith("test_")]


def below(place: Path, room: str) -> list[str]:
    """Return ``room/module``, or ``room/folder/module``, of each file."""
    return sorted(path.relative_to(place).with_suffix("").as_posix() for path in (place / room).rglob("*.py"))


def test_modules_of_subfolders_are_seen(tmp_path: Path) -> None:
    (tmp_path / "core/inner").mkdir(parents=True)
    (tmp_path / "core/inner/a.py").touch()
    assert below(tmp_path, "core") == ["core/inner/a"]


@pytest.mark.parametrize("room", ROOMS)
def test_each_module_has_a_test_file_of_its_name(room: str) -> None:
    assert sorted({*modules(room)} - {*covered(room)} - ELSEWHERE.keys()) == []


@pytest.mark.parametrize("room", ROOMS)
def test_each_test_file_has_the_name_of_a_module(room: str) -> None:
    assert sorted({*covered(room)} - {*modules(room)} - OF_NO_MODULE.keys()) == []


@pytest.mark.parametrize("room", ["core", "controller"])
def test_what_decides_has_all_its_tests_beside_it(room: str) -> None:
    assert [module for module in ELSEWHERE if module.startswith(f"{room}/")] == []


def test_what_stands_here_is_still_true() -> None:
    known = {module for room in ROOMS for module in modules(room)}
    has = {name for room in ROOMS for name in covered(room)}
    assert sorted(ELSEWHERE.keys() - known) == [], "there is no such module"
    assert sorted(ELSEWHERE.keys() & has) == [], "it has a file of its own"
    assert [file for file in ELSEWHERE.values() if not (ROOT / "tests" / file).exists()] == []
    assert sorted(OF_NO_MODULE.keys() - has) == [], "there is no such test"
    assert sorted(OF_NO_MODULE.keys() & known) == [], "it is the file of a module"
