"""Metrics: the names and forms that dashboards for Kafka expect."""

from __future__ import annotations

import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

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
        "kafka_controller_kafkacontroller_activecontrollercount 1.0\n"
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
        'kafka_controller_controllerchannelmanager_queuesize{broker_id="1"} 5.0',
        'kafka_controller_controllerchannelmanager_queuesize{broker_id="2"} 5.0',
    ]


def test_labels_are_escaped(metrics: Metrics) -> None:
    metrics.counter("aiocontroller", "T", "N", tags={"host": 'a"b\\c\nd'}).inc()
    assert 'aiocontroller_t_n_total{host="a\\"b\\\\c\\nd"} 1.0' in metrics.render()


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


def test_gauges_by_a_label_are_those_of_now(metrics: Metrics) -> None:
    now: dict[str, float] = {"b": 2, 'a"\n': 1}
    metrics.gauges("g", "T", "N", "topic", now.items)
    assert metrics.snapshot() == {'g_t_n{topic="b"}': 2, 'g_t_n{topic="a"\n"}': 1}
    assert 'g_t_n{topic="a\\"\\n"} 1.0\n' in metrics.render()
    now.clear()
    assert metrics.snapshot() == {}
    with pytest.raises(ValueError, match="found a Gauges, expected a Gauge"):
        metrics.gauge("g", "T", "N")


def test_a_gauge_that_fails_costs_only_itself(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    metrics.gauge("g", "T", "Bad", lambda: 1 // 0)
    metrics.gauge("g", "T", "Good", 1)
    assert "g_t_bad NaN\n" in metrics.render()
    assert "g_t_good 1.0\n" in metrics.render()
    assert [r.levelno for r in caplog.records] == [logging.ERROR]


def test_an_empty_histogram_shows_zeros() -> None:
    assert {value for _, _, value in Histogram().samples()} == {0}


def _filled(metrics: Metrics) -> Metrics:
    metrics.gauge("kafka.controller", "KafkaController", "ActiveControllerCount", lambda: True)
    metrics.gauge("g", "T", "Bad", lambda: 1 // 0)
    metrics.gauge("g", "T", "Text", lambda: "three")  # type: ignore[arg-type, return-value]
    metrics.counter("aiocontroller", "T", "N", tags={"host-name": 'a"b\\c\nd'}).inc()
    metrics.meter("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec").mark(3)
    for broker in "12":
        tags = {"broker-id": broker}
        metrics.timer("kafka.controller", "ControllerChannelManager", "RequestRateAndQueueTimeMs", tags=tags).observe(1)
    metrics.histogram("g", "T", "H")
    return metrics


PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    "accept, content_type",
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=1.0.0", "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"),
        (PROMETHEUS_3, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8"),
    ],
)
def test_the_page_is_in_the_format_that_the_scraper_accepts(metrics: Metrics, accept: str, content_type: str) -> None:
    page, found = _filled(metrics).exposition(accept)
    assert found == content_type
    parse = openmetrics_parser if "openmetrics" in found else parser
    families = list(parse.text_string_to_metric_families(page.decode()))
    assert len({family.name for family in families}) == len(families), "a family stands twice"
    samples = [sample for family in families for sample in family.samples]
    values = {sample.name + _shown(sample.labels): sample.value for sample in samples}
    assert {"process_resident_memory_bytes", "process_open_fds"} < set(values)
    own = {name: value for name, value in values.items() if not name.startswith(("process_", "python_"))}
    expected = {
        sample.name + _shown(sample.labels): sample.value for family in metrics.collect() for sample in family.samples
    }
    assert own == pytest.approx(expected, nan_ok=True)
    bad = [name for name, value in own.items() if math.isnan(value)]
    assert bad == ["g_t_bad", "g_t_text"]


def _shown(labels: dict[str, str]) -> str:
    return repr(sorted(labels.items())) if labels else ""


@pytest.mark.parametrize(
    "version", ["x", "1.x", "1.0.0.\udcff", "9" * 5000, "1.0.0\x00", "٣.0", "-1", "1" + ".0" * 3000]
)
def test_no_accept_header_costs_the_page(metrics: Metrics, version: str) -> None:
    for kind in ("application/openmetrics-text", "text/plain"):
        page, content_type = _filled(metrics).exposition(f"{kind};version={version}")
        assert b"kafka_controller_kafkacontroller_activecontrollercount 1.0\n" in page
        assert content_type.isascii()
        assert content_type.isprintable()


@given(st.text(max_size=60), st.sampled_from(["", "application/openmetrics-text;", "text/plain; version="]))
def test_any_accept_header_gets_a_page(text: str, start: str) -> None:
    page, content_type = Metrics().exposition(start + text)
    assert page
    assert content_type.startswith(("text/plain; version=", "application/openmetrics-text; version="))


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
