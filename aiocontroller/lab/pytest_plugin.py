"""A pytest plugin with the fixtures ``kafka_cluster`` and ``faults``; it imports and starts nothing before a test uses
one.

    @pytest.mark.kafka_cluster(brokers=3, topics={"orders": 6})
    def test_my_consumer(kafka_cluster, faults): ...

The marker takes the arguments of ``lab.testing.KafkaCluster``.  Each test has a cluster of its own unless the option
``kafka_cluster_scope`` in pytest's configuration is ``module`` or ``session``: then the marker of the first test (or
``pytestmark``) applies, and ``faults`` heals the cluster after each test.  ``--faults-seed N`` repeats the faults of an
earlier run; a failing test shows its seed and its steps.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiocontroller.lab.testing import Faults, KafkaCluster

SCOPES = ("function", "class", "module", "package", "session")
_FAULTS: pytest.StashKey[Any] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "kafka_cluster_scope", f"how long a kafka_cluster lives: one of {', '.join(SCOPES)}", default="function"
    )
    group = parser.getgroup("aiocontroller")
    group.addoption("--faults-seed", type=int, metavar="N", help="the seed of the fixture 'faults'")


def pytest_configure(config: pytest.Config) -> None:
    scope = config.getini("kafka_cluster_scope")
    if scope not in SCOPES:
        raise pytest.UsageError(f"kafka_cluster_scope: found {scope!r}, expected one of {', '.join(SCOPES)}")
    config.addinivalue_line(
        "markers", "kafka_cluster(**options): the cluster that a test needs; the options are those of KafkaCluster"
    )


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    return config.getini("kafka_cluster_scope")


@pytest.fixture(scope=_scope)
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A running cluster that is whole; see ``aiocontroller.lab.testing.KafkaCluster``."""
    from aiocontroller.java import JavaMissingError
    from aiocontroller.lab.cluster.real_kafka import KafkaMissingError
    from aiocontroller.lab.testing import KafkaCluster

    marker = _marker(request)
    try:
        cluster = KafkaCluster(**(marker.kwargs if marker is not None else {}))
        cluster.start()
    except (JavaMissingError, KafkaMissingError) as missing:
        pytest.skip(str(missing))
    yield cluster
    cluster.stop()


def _marker(request: pytest.FixtureRequest) -> pytest.Mark | None:
    if request.scope == "session":
        marked = (item.get_closest_marker("kafka_cluster") for item in request.session.items)
        return next((marker for marker in marked if marker is not None), None)
    marker: pytest.Mark | None = request.node.get_closest_marker("kafka_cluster")
    return marker


@pytest.fixture
def faults(request: pytest.FixtureRequest, kafka_cluster: KafkaCluster) -> Iterator[Faults]:
    """The faults for ``kafka_cluster``; they are healed after the test if the cluster lives on."""
    seed = request.config.getoption("--faults-seed")
    made = kafka_cluster.faults(time.time_ns() % 1_000_000 if seed is None else seed)
    request.node.stash[_FAULTS] = made
    yield made
    if _scope("", request.config) != "function":
        made.heal()
        kafka_cluster.wait_until_whole()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report = yield
    made = item.stash.get(_FAULTS, None)
    if made is not None and report.failed:
        steps = "\n".join(made.steps) or "(no step)"
        report.sections.append(("faults", f"{steps}\nagain: pytest --faults-seed {made.seed} {item.nodeid!r}"))
    return report
