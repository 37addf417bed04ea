"""Fixtures for all tests: the real world's ports, one ZooKeeper, an empty chroot for each test."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis  # noqa: F401  (below)
import pytest

from aiocontroller.java import JavaMissingError, find_java, zookeeper_class_path
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.net.ports import World
from aiocontroller.net.real import real_world

pytest_plugins = ["pytester", "aiocontroller.lab.pytest_plugin"]

os.environ.setdefault("AIOCONTROLLER_DEBUG", "1")  # also for the processes that tests start

# Hypothesis is imported early, since its pytest plugin would import it in the summary of a run without properties.  Its
# parsing fails then in CPython 3.11 ("AST constructor recursion depth mismatch") if unfinished coroutines that a test
# left behind are collected meanwhile.

_chroots = itertools.count(1)


DIFFERENTIAL_LEDGER: pytest.StashKey[Any] = pytest.StashKey()
_SEEDS_IN_CI, _SEEDS = 10, 200

ON_REQUEST = {
    "benchmark": "measures us beside Kafka",
    "must_notice": "runs each test that plays one of Kafka's with a mutant that it must notice",
    "standalone": "a Spark master and two workers, for minutes",
}
"""Marker -> what its tests do."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--half",
        choices=("integration", "others"),
        help="only integration tests but the pipeline's, or only the others: they take about the same time",
    )
    parser.addoption(
        "--kafka",
        metavar="VERSIONS",
        help="only the scenarios on real brokers, all of them, on these releases of Kafka: 3.0.2,3.4.1 or all",
    )
    group = parser.getgroup("differential", "Kafka's own controller against ours")
    group.addoption(
        "--differential-seeds",
        type=int,
        metavar="N",
        help=f"how many random scenarios: {_SEEDS} with -m differential, {_SEEDS_IN_CI} without, unless this says it",
    )
    group.addoption("--seed", type=int, default=1, metavar="S", help="the first of them (default 1)")
    parser.getgroup("authorization", "a real broker against aiocontroller").addoption(
        "--authorization-report", metavar="FILE", help="where to write what differs and is not explained"
    )
    group = parser.getgroup("admin_answers", "Kafka's own controller and ours, asked by administrators")
    group.addoption("--admin-answers-report", metavar="FILE", help="where to write what differs and is not explained")
    group.addoption(
        "--admin-answers-releases", metavar="VERSIONS", help="3.9.1,2.8.2: only these, with -m admin_answers"
    )


def pytest_configure(config: pytest.Config) -> None:
    line = "differential: plays scenarios on Kafka's own controller and on ours; all of them with -m differential"
    config.addinivalue_line("markers", line)
    line = "authorization: asks real brokers and aiocontroller the same; the whole table with -m authorization"
    config.addinivalue_line("markers", line)
    line = "admin_answers: asks Kafka's own controller and ours the same; on all releases with -m admin_answers"
    config.addinivalue_line("markers", line)
    for name, what in ON_REQUEST.items():
        config.addinivalue_line("markers", f"{name}: {what}; runs with -m {name} only")
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # Under ``nohup`` programs that tests start would inherit that SIGHUP is ignored; a handler is not inherited.
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    config = metafunc.config
    count = config.getoption("--differential-seeds")
    if count is None:
        count = _SEEDS if "differential" in config.getoption("-m") else _SEEDS_IN_CI
    first = config.getoption("--seed")
    seeds = range(first, first + count)
    if "differential_seed" in metafunc.fixturenames:
        metafunc.parametrize("differential_seed", seeds)
    if "differential_variant" in metafunc.fixturenames:
        from tests.differential.random_scenarios import variant_of
        from tests.differential.scenarios import IN_ALL_RELEASES

        # Without, those that start for the seeds anyway.
        all_of_them = "differential" in config.getoption("-m")
        wanted = [v for v in IN_ALL_RELEASES if all_of_them or v in map(variant_of, seeds)]
        metafunc.parametrize("differential_variant", wanted)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not read tests that an option excludes: reading all tests takes half a minute."""
    tests = Path(__file__).parent
    if config.getoption("--kafka") is not None:
        wanted = tests / "integration" / "kafka"
        return None if collection_path.is_relative_to(wanted) or wanted.is_relative_to(collection_path) else True
    half, folder = config.getoption("--half"), collection_path.parent
    if half is None or folder not in (tests, tests / "integration") or collection_path.name == "integration":
        return None
    integrates = folder != tests and collection_path.name != "analytics"
    return True if integrates != (half == "integration") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests as options and markers say; mark those that use ZooKeeper, for ``-m 'not zookeeper'``."""
    if config.getoption("--kafka") is not None:
        others = [item for item in items if "kafka_version" not in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in set(others)]
        config.hook.pytest_deselected(items=others)
    for name in ON_REQUEST:
        if name not in config.getoption("-m"):
            long = [item for item in items if item.get_closest_marker(name)]
            items[:] = [item for item in items if item not in set(long)]
            config.hook.pytest_deselected(items=long)
    for item in items:
        if {"zookeeper", "zk_connect"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("zookeeper")


@pytest.fixture
def world() -> World:
    return real_world()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """One server for the whole session; a test that stops or suspends a server must start its own."""
    try:
        find_java()
        zookeeper_class_path()
    except JavaMissingError as error:
        pytest.skip(str(error))
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    server = EmbeddedZooKeeper(folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def zk_connect(zookeeper: EmbeddedZooKeeper) -> str:
    """``host:port/chroot``; the chroot exists, is empty, and belongs to this test alone."""
    chroot = f"/test-{next(_chroots)}"
    create_znode(zookeeper.port, chroot)
    return f"{zookeeper.address}{chroot}"


def create_znode(port: int, path: str) -> None:
    """Create a persistent znode with the bytes of the protocol, so that this fixture needs none of our clients."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        stream = connection.makefile("rb")

        def call(payload: bytes) -> bytes:
            connection.sendall(struct.pack(">i", len(payload)) + payload)
            (length,) = struct.unpack(">i", stream.read(4))
            return stream.read(length)

        call(struct.pack(">iqiqi16s", 0, 0, 10_000, 0, 16, bytes(16)))
        name = path.encode()
        world_anyone = struct.pack(">ii", 1, 31) + _string(b"world") + _string(b"anyone")
        answer = call(struct.pack(">ii", 1, 1) + _string(name) + _string(b"") + world_anyone + struct.pack(">i", 0))
        (code,) = struct.unpack_from(">i", answer, 12)
        assert code == 0, f"create {path}: code {code}"
        call(struct.pack(">ii", 2, -11))
        stream.close()


def _string(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value
