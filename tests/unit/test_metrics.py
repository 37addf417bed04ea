"""Metrics: the names and forms that dashboards for Kafka expect."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.metrics import LATEST_OBSERVATIONS, Histogram, Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_a_gauge_under_the_exporters_name(metrics: Metrics) -> None:
    metrics.gauge("kafka.controller", "KafkaController", "ActiveControllerCount", lambda: 1)
    assert metrics.render() == (
        "# HELP kafka_controller_kafkacontroller_activecontrollercount"
        " kafka.controller:type=KafkaController,name=ActiveControllerCount: This process is the controller. (0 or 1)\n"
        "# TYPE kafka_controller_kafkacontroller_activecontrollercount gauge\n"
        "kafka_controller_kafkacontroller_activecontrollercount 1\n"
    )


def test_a_timer_is_a_summary_in_milliseconds(metrics: Metrics) -> None:
    timer = metrics.timer("kafka.controller", "ControllerStats", "LeaderElectionRateAndTimeMs")
    for ms in range(1, 101):
        timer.observe(ms / 1000)
    values = metrics.snapshot()
    name = "kafka_controller_controllerstats_leaderelectionrateandtimems"
    quantiles = [values[f'{name}{{quantile="{q}"}}'] for q in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")]
    assert quantiles == [50, 75, 95, 98, 99, 100]
    assert values[f"{name}_count"] == 100
    assert values[f"{name}_sum"] == pytest.approx(5050)
    assert (values[f"{name}_min"], values[f"{name}_max"], values[f"{name}_mean"]) == pytest.approx((1, 100, 50.5))


def test_a_meter_loses_its_per_second_and_becomes_a_total(metrics: Metrics) -> None:
    metrics.meter("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec").mark(3)
    assert metrics.snapshot() == {"kafka_controller_controllerstats_uncleanleaderelections_total": 3}


def test_tags_become_labels_and_one_description_serves_all(metrics: Metrics) -> None:
    for broker in ("2", "1"):
        metrics.gauge("kafka.controller", "ControllerChannelManager", "QueueSize", 5, tags={"broker-id": broker})
    lines = metrics.render().splitlines()
    assert [line for line in lines if not line.startswith("# HELP")] == [
        "# TYPE kafka_controller_controllerchannelmanager_queuesize gauge",
        'kafka_controller_controllerchannelmanager_queuesize{broker_id="1"} 5',
        'kafka_controller_controllerchannelmanager_queuesize{broker_id="2"} 5',
    ]


def test_labels_are_escaped(metrics: Metrics) -> None:
    metrics.counter("aiocontroller", "T", "N", tags={"host": 'a"b\\c\nd'}).inc()
    assert 'aiocontroller_t_n_total{host="a\\"b\\\\c\\nd"} 1' in metrics.render()


def test_asking_twice_gives_the_same_metric_and_another_kind_is_refused(metrics: Metrics) -> None:
    counter = metrics.counter("g", "T", "N")
    assert metrics.counter("g", "T", "N") is counter
    with pytest.raises(ValueError, match="g:type=T,name=N: found a Counter, expected a Timer"):
        metrics.timer("g", "T", "N")


def test_a_new_source_takes_over_and_removed_metrics_are_gone(metrics: Metrics) -> None:
    metrics.gauge("g", "T", "N", lambda: 1)
    metrics.gauge("g", "T", "N", lambda: 2)
    assert metrics.snapshot() == {"g_t_n": 2}
    metrics.remove("g", "T", "N")
    metrics.remove("g", "T", "N")
    assert metrics.snapshot() == {}
    metrics.counter("g", "T", "A", tags={"x": "1"})
    metrics.counter("g", "T", "B")
    metrics.counter("g", "U", "B")
    metrics.remove_all("g", "T")
    assert metrics.snapshot() == {"g_u_b_total": 0}


def test_a_gauge_that_fails_costs_only_itself(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    metrics.gauge("g", "T", "Bad", lambda: 1 // 0)
    metrics.gauge("g", "T", "Good", 1)
    assert "g_t_bad NaN\n" in metrics.render()
    assert "g_t_good 1\n" in metrics.render()
    assert [r.levelno for r in caplog.records] == [logging.ERROR]


def test_an_empty_histogram_shows_zeros() -> None:
    assert {value for _, _, value in Histogram().samples()} == {0}


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=3 * LATEST_OBSERVATIONS), st.floats(0, 1))
def test_quantiles_agree_with_counting(values: list[float], q: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    latest = values[-LATEST_OBSERVATIONS:]
    (found,) = histogram.quantiles(q)
    assert found in latest
    assert sum(v <= found for v in latest) >= q * len(latest)
    assert sum(v < found for v in latest) <= q * len(latest)
    assert histogram.count == len(values)
