"""Metrics under the names that Kafka operators already use on their dashboards.

A metric is registered as Kafka registers its MBean (group, type, name, tags: ``kafka.controller``, ``KafkaController``,
``ActiveControllerCount``) and exposed as the Prometheus JMX exporter exposes that MBean with its published example
rules for Kafka (``kafka-2_0_0.yml``, lower-cased):

    gauge              kafka_controller_kafkacontroller_activecontrollercount 1.0
    meter "…PerSec"    kafka_controller_controllerstats_uncleanleaderelections_total 0.0
    timer, histogram   kafka_controller_controllerstats_leaderelectionrateandtimems{quantile="0.99"} 12.5
                       kafka_controller_controllerstats_leaderelectionrateandtimems_count 7.0
    tags               …_queuesize{broker_id="2"} 0.0

Timers and histograms add ``_sum`` to the summary, and the gauges ``_min``, ``_max`` and ``_mean``.  Quantiles,
minimum and maximum are exact over the latest 1024 observations (Kafka's are sampled over about the last five minutes);
count and sum are over the life of the metric.

Counters and timers are our own: those of ``prometheus_client`` take seven times as long for each increment, and its
Summary has no quantiles.  The registry is one of its collectors, and that library does the rest: the text format,
OpenMetrics, the choice between them, and the metrics of the process.

An observation costs a tenth of a microsecond; sorting happens on demand.  All use is in the loop's thread.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from aiocontroller.metric_meanings import MEANINGS

log = logging.getLogger("aiocontroller.metrics")

QUANTILES = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
"""As the exporter labels Kafka's ``50thPercentile`` … ``999thPercentile``."""
LATEST_OBSERVATIONS = 1024

Tags = Mapping[str, str]
Labels = dict[str, str]
Sample = tuple[str, Labels, float]
"""(suffix of the name, labels besides the tags, value)"""

_GAUGES_OF_SUMMARIES = ("_min", "_max", "_mean")
"""OpenMetrics allows them in no summary, so each is a gauge of its own."""


class Counter:
    """Only rises.  Exposed with the suffix ``_total``."""

    prometheus_type = "counter"

    def __init__(self) -> None:
        self.value = 0

    def inc(self, n: int = 1) -> None:
        """Add ``n``."""
        self.value += n

    def samples(self) -> Iterable[Sample]:
        """The metric's values for an exposition."""
        return (("_total", {}, self.value),)


class Meter(Counter):
    """Kafka's meters: how often something happened; the rate is for Prometheus to compute."""

    def mark(self, n: int = 1) -> None:
        """Add ``n``, by Yammer's name."""
        self.value += n

    @property
    def count(self) -> int:
        """The value."""
        return self.value


class Gauge:
    """Shows a value, or what a function returns on each read."""

    prometheus_type = "gauge"

    def __init__(self, source: Callable[[], float] | float = 0) -> None:
        self._source = source

    @property
    def value(self) -> float:
        """The present value; calls the function, if there is one."""
        return self._source() if callable(self._source) else self._source

    def set(self, value: float) -> None:
        """Show this value from now on."""
        self._source = value

    def replace(self, source: Callable[[], float] | float) -> None:
        """Show this value, or what this function returns, from now on."""
        self._source = source

    def samples(self) -> Iterable[Sample]:
        """The metric's value for an exposition."""
        return (("", {}, self.value),)


class Gauges:
    """A gauge with a label: a function returns the present values, for instance the largest ones only."""

    prometheus_type = "gauge"

    def __init__(self) -> None:
        self._label = ""
        self._source: Callable[[], Iterable[tuple[str, float]]] = tuple

    def replace(self, label: str, source: Callable[[], Iterable[tuple[str, float]]]) -> None:
        """Show what this function returns from now on: pairs of the label's value and a number."""
        self._label, self._source = label, source

    def samples(self) -> Iterable[Sample]:
        """The metric's values for an exposition."""
        return (("", {self._label: value}, number) for value, number in self._source())


class Histogram:
    """Observations in the unit of the metric's name."""

    prometheus_type = "summary"

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self._latest: deque[float] = deque(maxlen=LATEST_OBSERVATIONS)

    def observe(self, value: float) -> None:
        """Add an observation."""
        self.count += 1
        self.sum += value
        self._latest.append(value)

    def quantiles(self, *wanted: float) -> list[float]:
        """Return quantiles by the nearest rank over the latest observations; 0.0 if there are none, as in Kafka."""
        ordered = sorted(self._latest)
        if not ordered:
            return [0.0] * len(wanted)
        return [ordered[max(math.ceil(q * len(ordered)) - 1, 0)] for q in wanted]

    @property
    def mean(self) -> float:
        """The mean of all observations; 0.0 if there are none."""
        return self.sum / self.count if self.count else 0.0

    def samples(self) -> Iterable[Sample]:
        """The metric's values for an exposition."""
        for (label, _), value in zip(QUANTILES, self.quantiles(*(q for _, q in QUANTILES)), strict=True):
            yield "", {"quantile": label}, value
        yield "_sum", {}, self.sum
        yield "_count", {}, self.count
        yield "_min", {}, min(self._latest, default=0.0)
        yield "_max", {}, max(self._latest, default=0.0)
        yield "_mean", {}, self.mean


class Timer(Histogram):
    """Durations; observed in seconds, kept and exposed in milliseconds as the names say (``…TimeMs``)."""

    def observe(self, value: float) -> None:
        """Add a duration in seconds."""
        value *= 1e3
        self.count += 1
        self.sum += value
        self._latest.append(value)


Metric = Counter | Gauge | Gauges | Histogram
M = TypeVar("M", bound=Metric)
_Name = tuple[str, str, str]
"""Group, type, name."""
_Key = tuple[str, str, str, tuple[tuple[str, str], ...]]


class Metrics(Collector):
    """The registry.  Asking twice for a metric gives the same one; asking for it as another kind is a ValueError."""

    def __init__(self) -> None:
        self._metrics: dict[_Key, Metric] = {}
        self._complained: set[_Key] = set()

    def counter(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Counter:
        """Return the counter of this name; it is registered on first use, like all that follow."""
        return self._get(Counter, group, type, name, tags)

    def meter(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Meter:
        """Return the meter of this name."""
        return self._get(Meter, group, type, name, tags)

    def timer(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Timer:
        """Return the timer of this name."""
        return self._get(Timer, group, type, name, tags)

    def histogram(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Histogram:
        """Return the histogram of this name."""
        return self._get(Histogram, group, type, name, tags)

    def gauge(
        self,
        group: str,
        type: str,
        name: str,
        source: Callable[[], float] | float | None = None,
        *,
        tags: Tags | None = None,
    ) -> Gauge:
        """Return the gauge of this name; ``source`` replaces an earlier one, such as an object of the last term."""
        gauge = self._get(Gauge, group, type, name, tags)
        if source is not None:
            gauge.replace(source)
        return gauge

    def gauges(
        self, group: str, type: str, name: str, label: str, source: Callable[[], Iterable[tuple[str, float]]]
    ) -> Gauges:
        """Return the labelled gauge of this name; ``source``, which must limit its values, replaces an earlier one."""
        gauges = self._get(Gauges, group, type, name, None)
        gauges.replace(label, source)
        return gauges

    def remove(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> None:
        """Remove one metric; does nothing if it does not exist."""
        self._metrics.pop(_key(group, type, name, tags), None)

    def remove_all(self, group: str, type: str) -> None:
        """Remove all metrics of a type, as Kafka does when the controller resigns or a component closes."""
        for key in [k for k in self._metrics if k[:2] == (group, type)]:
            del self._metrics[key]

    def get(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Metric | None:
        """Return the metric, or None."""
        return self._metrics.get(_key(group, type, name, tags))

    def names(self) -> set[tuple[str, str, str]]:
        """Group, type and name of every metric that is registered now."""
        return {key[:3] for key in self._metrics}

    def collect(self) -> Iterator[Family]:
        """Yield what ``prometheus_client`` exposes: a family for each name, sorted by group, type, name and tags; for a
        timer or histogram a summary and three gauges."""
        for name, members in itertools.groupby(sorted(self._metrics.items(), key=_by_key), key=_by_name):
            yield from self._families(name, members)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page for a scraper with this ``Accept`` header, and its Content-Type: OpenMetrics if the scraper
        accepts it, otherwise Prometheus's text format.  Includes the metrics of the process, ``process_…`` and
        ``python_…``."""
        registry = CollectorRegistry()
        for collector in (self, PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
            registry.register(collector)
        encode, content_type = _encoder(accept)
        return encode(registry), content_type

    def render(self) -> str:
        """Return only the registered metrics, in Prometheus's text format 0.0.4."""
        return generate_latest(self).decode()

    def snapshot(self) -> dict[str, float]:
        """Return only the registered metrics: exposed name with labels -> value."""
        return {
            sample.name + _labels(sample.labels): sample.value for family in self.collect() for sample in family.samples
        }

    def _get(self, kind: type[M], group: str, type_: str, name: str, tags: Tags | None) -> M:
        key = _key(group, type_, name, tags)
        metric = self._metrics.get(key)
        if metric is None:
            metric = self._metrics[key] = kind()
        if type(metric) is not kind:
            found, expected = type(metric).__name__, kind.__name__
            raise ValueError(f"metric {group}:type={type_},name={name}: found a {found}, expected a {expected}")
        return metric

    def _families(self, name: _Name, members: Iterable[tuple[_Key, Metric]]) -> Iterable[Family]:
        meaning = MEANINGS.get(name)
        group, type_, short = name
        text = f"{group}:type={type_},name={short}" + (f": {meaning.text} ({meaning.unit})" if meaning else "")
        families: dict[str, Family] = {}
        for key, metric in members:
            exposed = rendered_name(group, type_, short, meter=isinstance(metric, Meter))
            tags = {_label_name(tag): value for tag, value in key[3]}
            for suffix, labels, value in self._samples(key, metric):
                own = suffix if suffix in _GAUGES_OF_SUMMARIES else ""
                if own not in families:
                    kind = "gauge" if own else metric.prometheus_type
                    families[own] = Family(exposed + own, text, kind)
                families[own].add_sample(exposed + suffix, tags | labels, value)
        return families.values()

    def _samples(self, key: _Key, metric: Metric) -> list[Sample]:
        """The metric's samples; a gauge whose function fails must not break the whole page."""
        try:
            return [(suffix, labels, float(value)) for suffix, labels, value in metric.samples()]
        except Exception:
            if key not in self._complained:
                self._complained.add(key)
                log.exception("metric %s:type=%s,name=%s cannot be read", *key[:3])
            return [("", {}, math.nan)]


def _by_key(item: tuple[_Key, Metric]) -> _Key:
    return item[0]


def _by_name(item: tuple[_Key, Metric]) -> _Name:
    return item[0][:3]


def _key(group: str, type_: str, name: str, tags: Tags | None) -> _Key:
    return group, type_, name, tuple(tags.items()) if tags else ()


@functools.lru_cache(maxsize=1024)
def rendered_name(group: str, type_: str, name: str, *, meter: bool) -> str:
    """Return the exposed name, without the suffixes of counters and timers."""
    if meter:
        name = name.removesuffix("PerSec")
    return re.sub(r"[^a-z0-9_]", "_", f"{group}_{type_}_{name}".lower())


@functools.lru_cache(maxsize=1024)
def _label_name(tag: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", tag)


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}" if labels else ""


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return the library's choice, or its default where that would fail.

    It raises an error for a version that is not a number, and repeats the version in the Content-Type, which must be
    printable ASCII.
    """
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):
        return choose_encoder("")
    return (encode, content_type) if content_type.isascii() and content_type.isprintable() else choose_encoder("")
