"""Metrics under the names that Kafka operators already use on their dashboards.

A metric is registered as Kafka registers its MBean (group, type, name, tags: ``kafka.controller``, ``KafkaController``,
``ActiveControllerCount``) and rendered as the Prometheus JMX exporter renders that MBean with its published example
rules for Kafka (``kafka-2_0_0.yml``, lower-cased):

    gauge              kafka_controller_kafkacontroller_activecontrollercount 1
    meter "…PerSec"    kafka_controller_controllerstats_uncleanleaderelections_total 0
    timer, histogram   kafka_controller_controllerstats_leaderelectionrateandtimems{quantile="0.99"} 12.5
                       kafka_controller_controllerstats_leaderelectionrateandtimems_count 7
    tags               …_queuesize{broker_id="2"} 0

``_sum``, ``_min``, ``_max`` and ``_mean`` of timers and histograms are additions.  Quantiles, minimum and maximum are
exact over the latest 1024 observations (Kafka's are sampled over about the last five minutes); count and sum are over
the life of the metric.

Observing costs a tenth of a microsecond; sorting happens on demand.  All use is in the loop's thread.
"""

from __future__ import annotations

import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from aiocontroller.metric_meanings import MEANINGS

log = logging.getLogger("aiocontroller.metrics")

QUANTILES = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
"""As the exporter labels Kafka's ``50thPercentile`` … ``999thPercentile``."""
LATEST_OBSERVATIONS = 1024

Tags = Mapping[str, str]
Sample = tuple[str, str, float]
"""(suffix of the name, further labels, value)"""


class Counter:
    """Only rises.  Rendered with the suffix ``_total``."""

    prometheus_type = "counter"

    def __init__(self) -> None:
        self.value = 0

    def inc(self, n: int = 1) -> None:
        self.value += n

    def samples(self) -> Iterator[Sample]:
        yield "_total", "", self.value


class Meter(Counter):
    """Kafka's meters: how often something happened; the rate is for Prometheus to compute."""

    def mark(self, n: int = 1) -> None:
        self.value += n

    @property
    def count(self) -> int:
        return self.value


class Gauge:
    """A value that is set, or a function that is called on each read."""

    prometheus_type = "gauge"

    def __init__(self, source: Callable[[], float] | float = 0) -> None:
        self._source = source

    @property
    def value(self) -> float:
        return self._source() if callable(self._source) else self._source

    def set(self, value: float) -> None:
        self._source = value

    def replace(self, source: Callable[[], float] | float) -> None:
        self._source = source

    def samples(self) -> Iterator[Sample]:
        yield "", "", self.value


class Histogram:
    """Observations in the unit of the metric's name."""

    prometheus_type = "summary"

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self._latest: deque[float] = deque(maxlen=LATEST_OBSERVATIONS)

    def observe(self, value: float) -> None:
        self.count += 1
        self.sum += value
        self._latest.append(value)

    def quantiles(self, *wanted: float) -> list[float]:
        """By the nearest rank over the latest observations; 0.0 if there are none, as in Kafka."""
        ordered = sorted(self._latest)
        if not ordered:
            return [0.0] * len(wanted)
        return [ordered[max(math.ceil(q * len(ordered)) - 1, 0)] for q in wanted]

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def samples(self) -> Iterator[Sample]:
        for (label, _), value in zip(QUANTILES, self.quantiles(*(q for _, q in QUANTILES)), strict=True):
            yield "", f'quantile="{label}"', value
        yield "_sum", "", self.sum
        yield "_count", "", self.count
        yield "_min", "", min(self._latest, default=0.0)
        yield "_max", "", max(self._latest, default=0.0)
        yield "_mean", "", self.mean


class Timer(Histogram):
    """Durations; observed in seconds, kept and rendered in milliseconds as the names say (``…TimeMs``)."""

    def observe(self, value: float) -> None:
        value *= 1e3
        self.count += 1
        self.sum += value
        self._latest.append(value)


Metric = Counter | Gauge | Histogram
M = TypeVar("M", bound=Metric)
_Key = tuple[str, str, str, tuple[tuple[str, str], ...]]


class Metrics:
    """The registry.  Asking twice for a metric gives the same one; asking for it as another kind is a ValueError."""

    def __init__(self) -> None:
        self._metrics: dict[_Key, Metric] = {}
        self._complained: set[_Key] = set()

    def counter(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Counter:
        return self._get(Counter, group, type, name, tags)

    def meter(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Meter:
        return self._get(Meter, group, type, name, tags)

    def timer(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Timer:
        return self._get(Timer, group, type, name, tags)

    def histogram(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Histogram:
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
        """``source`` replaces what the gauge showed before, so that a new term's object takes over from the old one."""
        gauge = self._get(Gauge, group, type, name, tags)
        if source is not None:
            gauge.replace(source)
        return gauge

    def remove(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> None:
        """Remove one metric; does nothing if it does not exist."""
        self._metrics.pop(_key(group, type, name, tags), None)

    def remove_all(self, group: str, type: str) -> None:
        """Remove all metrics of a type, as Kafka does when the controller resigns or a component closes."""
        for key in [k for k in self._metrics if k[:2] == (group, type)]:
            del self._metrics[key]

    def get(self, group: str, type: str, name: str, *, tags: Tags | None = None) -> Metric | None:
        return self._metrics.get(_key(group, type, name, tags))

    def names(self) -> set[tuple[str, str, str]]:
        """Group, type and name of every metric that is registered now."""
        return {key[:3] for key in self._metrics}

    def render(self) -> str:
        """Prometheus's text format 0.0.4, sorted by name and tags."""
        lines: list[str] = []
        described = ""
        for key, metric in sorted(self._metrics.items(), key=lambda item: item[0]):
            group, type_, name, tags = key
            base = rendered_name(group, type_, name, meter=isinstance(metric, Meter))
            described_name = f"{base}_total" if isinstance(metric, Counter) else base
            if described_name != described:
                described = described_name
                said = MEANINGS.get((group, type_, name))
                meaning = f": {said.text} ({said.unit})" if said else ""
                lines.append(f"# HELP {described_name} {group}:type={type_},name={name}{meaning}")
                lines.append(f"# TYPE {described_name} {metric.prometheus_type}")
            labels = ",".join(f'{_label_name(k)}="{_escaped(v)}"' for k, v in tags)
            for suffix, further, value in self._samples(key, metric):
                both = ",".join(filter(None, (labels, further)))
                lines.append(
                    f"{base}{suffix}{{{both}}} {_number(value)}" if both else f"{base}{suffix} {_number(value)}"
                )
        return "".join(f"{line}\n" for line in lines)

    def snapshot(self) -> dict[str, float]:
        """The same samples as a dict: rendered name with labels -> value."""
        values = {}
        for line in self.render().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                values[name] = float(value)
        return values

    def _get(self, kind: type[M], group: str, type_: str, name: str, tags: Tags | None) -> M:
        key = _key(group, type_, name, tags)
        metric = self._metrics.get(key)
        if metric is None:
            metric = self._metrics[key] = kind()
        if type(metric) is not kind:
            found, expected = type(metric).__name__, kind.__name__
            raise ValueError(f"metric {group}:type={type_},name={name}: found a {found}, expected a {expected}")
        return metric

    def _samples(self, key: _Key, metric: Metric) -> list[Sample]:
        """The metric's samples; a gauge whose function fails must not break the whole page."""
        try:
            return list(metric.samples())
        except Exception:
            if key not in self._complained:
                self._complained.add(key)
                log.exception("metric %s:type=%s,name=%s cannot be read", *key[:3])
            return [("", "", math.nan)]


def _key(group: str, type_: str, name: str, tags: Tags | None) -> _Key:
    return group, type_, name, tuple(tags.items()) if tags else ()


def rendered_name(group: str, type_: str, name: str, *, meter: bool) -> str:
    """Without the suffixes of counters and timers."""
    if meter:
        name = name.removesuffix("PerSec")
    return re.sub(r"[^a-z0-9_]", "_", f"{group}_{type_}_{name}".lower())


def _label_name(tag: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", tag)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))  # True and False too
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value) if abs(value) < 1 << 53 and not value.is_integer() else str(int(value))
