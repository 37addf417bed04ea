"""The fixtures that others use, in a pytest of their own; and the documentation's examples, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiocontroller.java import JavaMissingError, find_java, zookeeper_class_path
from aiocontroller.lab.cluster.real_kafka import kafka_missing

PAGE = Path(__file__).parents[3] / "docs" / "testing-with-chaos.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

pytestmark = [pytest.mark.timeout(240), pytest.mark.zookeeper]


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        find_java(), zookeeper_class_path()
    except JavaMissingError as error:
        pytest.skip(str(error))


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    plugin = (
        "-p",
        "no:aiocontroller",
        "-p",
        "aiocontroller.lab.pytest_plugin",
    )  # the checkout's own
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *plugin, *options)


@pytest.mark.kafka
def test_the_consumers_example_passes(pytester: pytest.Pytester) -> None:
    if missing := kafka_missing():
        pytest.skip(missing)
    # Were a broker active, one dead broker would leave fewer alive than an internal topic has replicas.
    internal = """

def test_internal_topics_are_there(kafka_cluster):
    kafka_cluster.wait_until_whole()
    assert {len(kafka_cluster.isr("__consumer_offsets", n)) for n in range(5)} == {3}
    assert {len(kafka_cluster.isr("__transaction_state", n)) for n in range(3)} == {3}
"""
    pytester.makeini("[pytest]\nkafka_cluster_scope = module")
    run(pytester, EXAMPLES[0] + internal).assert_outcomes(passed=2)


def test_the_automations_example_passes(pytester: pytest.Pytester) -> None:
    run(pytester, EXAMPLES[1]).assert_outcomes(passed=1)


def test_a_failing_test_shows_its_seed_and_its_steps(pytester: pytest.Pytester) -> None:
    source = """
import pytest

pytestmark = pytest.mark.kafka_cluster(brokers=2, controllers=1, topics={"t": 2})

def test_fails(kafka_cluster, faults):
    faults.kill_broker(2)
    faults.lag()
    kafka_cluster.wait_until(lambda: kafka_cluster.leader("t", 0) == 1)
    assert False, "on purpose"

def test_goes_on_with_a_healed_cluster(kafka_cluster, faults):
    assert kafka_cluster.isr("t", 0) and len(kafka_cluster.isr("t", 1)) == 2
"""
    pytester.makeini("[pytest]\nkafka_cluster_scope = module")
    result = run(pytester, source, "--faults-seed", "7")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*- faults -*", "kill-broker 2 seed=*", "lag seed=*", "again: pytest --faults-seed 7 *"]
    )


def test_options_that_make_no_sense_are_named(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkafka_cluster_scope = forever")
    result = run(pytester, "def test_it(kafka_cluster): pass")
    result.stderr.fnmatch_lines(["*kafka_cluster_scope: found 'forever', expected one of function*"])
