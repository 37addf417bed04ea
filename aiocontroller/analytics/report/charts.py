"""The charts, as SVG within the page: they use its colours, scale, print well, and load nothing.

Each chart is None if there is nothing to draw.  Colours are classes of ``page.css``; units are pixels at desktop width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from markupsafe import Markup

from aiocontroller.analytics.report.gather import Cluster, Row
from aiocontroller.analytics.report.words import incident_title
from aiocontroller.analytics.summary import duration, moment, since_onset
from aiocontroller.analytics.times import time_of
from aiocontroller.core.text import plural

WIDTH: Final = 1000
_LEFT, _RIGHT, _BOTTOM = 56, 14, 26
_LABELS = 210
"""The width of the names beside rows."""
_ROW = 24
_CHARACTER = 7.2
"""The approximate width of a character in labels."""
_STEPS_S: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000),
)
TICKS: Final = 8
CHURN_COLUMNS: Final = 48
"""Beyond these, neighbouring hours or brokers are merged; otherwise a month's page would have megabytes."""
PHASES: Final = 8
"""The colours of stacked phases: classes ``p0`` to ``p7``."""

Scale = Callable[[float], float]


# -- of partitions over time -------------------------------------------------------------------------------------------


def timeline(cluster: Cluster, anchors: dict[int, str]) -> Markup | None:
    """The number of affected partitions over time, with the incidents above; ``anchors`` are the incidents'
    sections."""
    series = (
        ("under", "too few in sync", cluster.under_replicated),
        ("down", "without a leader", cluster.without_leader),
    )
    drawn = [each for each in series if any(each[2])]
    if not drawn and not cluster.incidents:
        return None
    top, height = 44, 190
    most = max((max(values) for _, _, values in drawn), default=0)
    x = _time_scale(cluster.from_us, cluster.to_us)
    parts = _time_axis(x, cluster.from_us, cluster.to_us, top + height)
    if most:
        y = _linear(0, most, top + height, top)
        parts += _value_axis(y, most)
        for name, _, values in drawn:
            parts.append(_area(name, values, cluster, x, y))
    for row in cluster.incidents:
        at = x(min(max(row["onset_us"], cluster.from_us), cluster.to_us))
        end_us = row["led_again_us"] or row["in_sync_us"] or row["onset_us"]
        until = max(at + 2, x(min(max(end_us, cluster.from_us), cluster.to_us)))
        mark = _tag("rect", x=at, y=14, width=until - at, height=6, class_="incident", rx=2)
        mark += _tag("circle", cx=at, cy=17, r=6, class_="incident")
        mark += Markup("<title>{}, {}</title>").format(incident_title(row), moment(row["onset_us"]))
        parts.append(_link(anchors.get(row["number"]), incident_title(row), mark))
    description = (
        f"{plural(cluster.incidents_count, 'incident')}; at most {max([0, *cluster.without_leader]):,} partitions "
    )
    description += f"without a leader and {max([0, *cluster.under_replicated]):,} with too few replicas in sync at once"
    chart = _svg(
        parts, top + height + _BOTTOM, "Incidents and affected partitions over time", description, interactive=True
    )
    return _legend([(name, words) for name, words, _ in drawn] + [("incident", "incident")]) + chart


def _area(name: str, values: Sequence[int], cluster: Cluster, x: Scale, y: Scale) -> Markup:
    """Return the area below the values as a path that changes only where they do."""
    moves, before = [f"M{_n(x(cluster.from_us))} {_n(y(0))}"], 0
    for number, value in enumerate(values):
        if value != before:
            moves.append(f"H{_n(x(cluster.from_us + number * cluster.bin_us))}V{_n(y(value))}")
            before = value
    end = min(cluster.to_us, cluster.from_us + len(values) * cluster.bin_us)
    moves.append(f"H{_n(x(end))}V{_n(y(0))}Z")
    return _tag("path", d="".join(moves), class_=f"area {name}")


# -- of one incident ---------------------------------------------------------------------------------------------------


_NOTICED = {"controller": "its session over", "zookeeper": "ZooKeeper answered again"}


def steps_of(row: Row) -> list[tuple[str, int, int | None]]:
    """Return (phase, start, end) for each phase of an incident, in order; the end is None if it is not known."""
    moments = [
        (_NOTICED.get(row["what"], "noticed by the controller"), row["noticed_us"]),
        ("another controller elected", row["elected_us"]),
        ("the last partition led again", row["led_again_us"]),
        ("all in sync again", row["in_sync_us"]),
    ]
    known = [(what, us) for what, us in moments if us is not None]
    found: list[tuple[str, int, int | None]] = []
    since = row["onset_us"]
    for what, us in sorted(known, key=lambda each: each[1]):
        found.append((what, since, max(since, us)))
        since = max(since, us)
    if row["still_open"]:
        found.append(("still without a leader", since, None))
    return found


def incident(row: Row) -> Markup | None:
    """The course from the onset until all replicas are in sync again; phases without a duration appear only in the list
    below the chart."""
    steps = steps_of(row)
    ended = [until for _, _, until in steps if until is not None]
    if not ended or max(ended) <= row["onset_us"] or since_onset(row, max(ended)) == "unknown":
        return None
    from_us, to_us = row["onset_us"] - (row["onset_error_us"] or 0), max(ended)
    x = _time_scale(from_us, to_us)
    parts = _time_axis(x, from_us, to_us, 36, since_us=row["onset_us"])
    error_us = row["onset_error_us"] or 0
    if error_us:
        low, high = x(row["onset_us"] - error_us), x(min(row["onset_us"] + error_us, to_us))
        parts.append(_tag("rect", x=low, y=8, width=max(1, high - low), height=22, class_="unsure"))
    for number, (what, since, until) in enumerate(steps):
        if until is not None and until > since:
            bar = _tag("rect", x=x(since), y=12, width=max(1, x(until) - x(since)), height=14, class_=f"p{number}")
            parts.append(_titled(bar, f"{what}: after {duration(until - since)}"))
    legend = [(f"p{n}", f"until {what}") for n, (what, since, until) in enumerate(steps) if until and until > since]
    if error_us:
        legend.append(("unsure", "the onset lies within"))
    description = "; ".join(f"{what} {offset(until, row)}" for what, _, until in steps)
    return _legend(legend) + _svg(parts, 36 + _BOTTOM, f"Course of the incident: {incident_title(row)}", description)


def offset(us: int | None, row: Row) -> str:
    """Return a time relative to an incident's onset, such as ``+6.7 s``; a moment if the time between is unknown."""
    if us is None:
        return "until the records end"
    since = since_onset(row, us)
    return moment(us) if since == "unknown" else f"+{since}"


# -- rows of names -----------------------------------------------------------------------------------------------------


def phases(cluster: Cluster) -> Markup | None:
    """Each failover as a bar of its steps."""
    failovers = [row for row in cluster.failovers if row["phases"]]
    if not failovers:
        return None
    names = list(dict.fromkeys(phase for row in failovers for phase, _ in row["phases"]))
    most = max(sum(us for _, us in row["phases"]) for row in failovers) or 1
    x = _linear(0, most, _LABELS, WIDTH - _RIGHT)
    parts = _bottom_axis(x, [(us, duration(int(us))) for us in _nice(most)], _ROW * len(failovers))
    for line, row in enumerate(failovers):
        parts.append(_name(f"epoch {row['epoch']}, controller {row['node']}", line))
        at = 0
        for phase, us in row["phases"]:
            number = names.index(phase) % PHASES
            bar = _tag("rect", x=x(at), y=line * _ROW + 5, width=x(at + us) - x(at), height=14, class_=f"p{number}")
            parts.append(_titled(bar, f"{phase}: {duration(us)}"))
            at += us
    slowest = max(failovers, key=lambda row: sum(us for _, us in row["phases"]))
    description = f"The slowest: epoch {slowest['epoch']}, {duration(sum(us for _, us in slowest['phases']))}"
    height = _ROW * len(failovers) + _BOTTOM
    legend = _legend([(f"p{n % PHASES}", name) for n, name in enumerate(names)])
    return legend + _svg(parts, height, "Failovers by their steps", description)


_POINTS: Final = (
    ("p50_us", "median", "median"),
    ("p99_us", "p99", "p99"),
    ("p999_us", "p999", "p99.9"),
    ("max_us", "max", "maximum"),
)


def percentiles(cluster: Cluster) -> Markup | None:
    """A line from the median to the maximum for each kind of duration, on a logarithmic axis."""
    rows = [row for row in cluster.latencies if row["max_us"]]
    if not rows:
        return None
    low = math.floor(math.log10(max(1, min(row["p50_us"] or 1 for row in rows))))
    high = max(low + 1, math.ceil(math.log10(max(row["max_us"] for row in rows))))
    log = _linear(low, high, _LABELS + 40, WIDTH - _RIGHT)

    def x(us: float) -> float:
        return log(math.log10(max(us, 10**low)))

    parts = _bottom_axis(x, [(10.0**n, duration(10**n)) for n in range(low, high + 1)], _ROW * len(rows))
    for line, row in enumerate(rows):
        y = line * _ROW + 12
        parts.append(_name(f"{row['what']}: {row['name'] or 'all'}", line, _LABELS + 30))
        parts.append(_tag("line", x1=x(row["p50_us"] or 1), x2=x(row["max_us"]), y1=y, y2=y, class_="range"))
        for column, name, words in _POINTS:
            if row[column]:
                dot = _tag("circle", cx=x(row[column]), cy=y, r=4.5, class_=name)
                parts.append(_titled(dot, f"{words} {duration(row[column])} of {row['count']:,}"))
    slow = max(rows, key=lambda row: row["max_us"])
    description = f"The longest: {slow['what']} of {slow['name'] or 'all'}, {duration(slow['max_us'])}"
    legend = _legend([(name, words) for _, name, words in _POINTS])
    return legend + _svg(parts, _ROW * len(rows) + _BOTTOM, "How long things took", description)


def churn(cluster: Cluster) -> Markup | None:
    """Changes of leaders by topic, against hours or brokers."""
    if not cluster.churn:
        return None
    topics = list(dict.fromkeys(_topic_of(row) for row in cluster.churn))
    every_x = sorted({row["x"] for row in cluster.churn})
    each = -(-len(every_x) // CHURN_COLUMNS)
    xs = [every_x[at : at + each] for at in range(0, len(every_x), each)]
    column_of = {x: at for at, same in enumerate(xs) for x in same}
    cells: dict[tuple[str, int], int] = {}
    for row in cluster.churn:
        key = (_topic_of(row), column_of[row["x"]])
        cells[key] = cells.get(key, 0) + row["changes"]
    most = max(cells.values())
    cell = (WIDTH - _LABELS - _RIGHT) / len(xs)
    parts: list[Markup] = []
    for line, topic in enumerate(topics):
        parts.append(_name(topic, line))
    for (topic, at), changes in cells.items():
        line = topics.index(topic)
        where = " to ".join(dict.fromkeys(_churn_place(cluster, x)[1] for x in (xs[at][0], xs[at][-1])))
        box = _tag(
            "rect", x=_LABELS + at * cell, y=line * _ROW + 2, width=max(1, min(cell, 120) - 1), height=_ROW - 4,
            class_="heat", fill_opacity=_n(0.15 + 0.85 * changes / most),
        )  # fmt: skip
        parts.append(_titled(box, f"{topic}, {where}: {plural(changes, 'change')} of leader"))
    every = max(1, -(-len(xs) // TICKS))
    for at in range(0, len(xs), every):
        parts.append(_text(_churn_place(cluster, xs[at][0])[0], _LABELS + at * cell, _ROW * len(topics) + 18, "start"))
    description = f"At most {plural(most, 'change')} of leader in one cell; the busiest topic is {topics[0]}"
    return _svg(parts, _ROW * len(topics) + _BOTTOM, "Changes of leaders by topic", description)


def _churn_place(cluster: Cluster, x: int) -> tuple[str, str]:
    """Return the label below the axis and the text for a sentence."""
    if cluster.churn_by_hour:
        return moment(x)[5:16], moment(x)[:16]
    return f"broker {x}", f"broker {x}"


def _topic_of(row: Row) -> str:
    return str(row["topic"])


def imbalance(cluster: Cluster) -> Markup | None:
    """The share of the partitions that prefer a broker but are led by another one."""
    if not any(row["imbalance"] for row in cluster.imbalance):
        return None
    top, height = 8, 150
    x, y = _time_scale(cluster.from_us, cluster.to_us), _linear(0, 100, top + height, top)
    parts = _time_axis(x, cluster.from_us, cluster.to_us, top + height)
    parts += _value_axis(y, 100, unit=" %")
    brokers = list(dict.fromkeys(row["broker"] for row in cluster.imbalance))
    for number, broker in enumerate(brokers):
        rows = [row for row in cluster.imbalance if row["broker"] == broker]
        moves = [f"M{_n(x(rows[0]['ts_us']))} {_n(y(100 * rows[0]['imbalance']))}"]
        moves += [f"H{_n(x(row['ts_us']))}V{_n(y(100 * row['imbalance']))}" for row in rows[1:]]
        moves.append(f"H{_n(x(cluster.to_us))}")
        line = _tag("path", d="".join(moves), class_=f"stroke p{number % PHASES}")
        parts.append(_titled(line, f"broker {broker}"))
    worst = max(cluster.imbalance, key=lambda row: row["imbalance"])
    description = f"The worst: broker {worst['broker']}, {100 * worst['imbalance']:.0f} % led by others"
    legend = _legend([(f"p{n % PHASES}", f"broker {broker}") for n, broker in enumerate(brokers)])
    return legend + _svg(parts, top + height + _BOTTOM, "Imbalance of leaders over time", description)


# -- axes --------------------------------------------------------------------------------------------------------------


def _linear(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) * (end - start) / ((high - low) or 1)


def _time_scale(from_us: int, to_us: int) -> Scale:
    return _linear(from_us, max(to_us, from_us + 1), _LEFT, WIDTH - _RIGHT)


def _time_axis(x: Scale, from_us: int, to_us: int, y: float, since_us: int | None = None) -> list[Markup]:
    """Return the axis and its ticks, labelled with the time of day or with the time since ``since_us``."""
    long_s = (to_us - from_us) / 1e6
    many_years_s = _STEPS_S[-1] * math.ceil(long_s / _STEPS_S[-1] / TICKS)
    step_s = next((each for each in _STEPS_S if long_s / each <= TICKS), many_years_s)
    step_us, zero_us = int(step_s * 1e6), since_us or 0
    ticks = range(zero_us - (zero_us - from_us) // step_us * step_us, to_us + 1, step_us)
    parts = [_tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="axis")]
    for us in ticks:
        parts.append(_tag("line", x1=x(us), x2=x(us), y1=y, y2=y + 4, class_="axis"))
        label = _clock(us, step_s) if since_us is None else _since(us - since_us)
        if x(us) < WIDTH - 40:  # or it would not fit
            parts.append(_text(label, x(us), y + 18))
    return parts


def _since(us: int) -> str:
    return f"{'+' if us > 0 else '-'}{duration(abs(us))}" if us else "onset"


def _clock(us: int, step_s: float) -> str:
    at = time_of(us)
    if step_s >= 86_400:
        return at.strftime("%Y-%m-%d")
    if step_s >= 60:
        return at.strftime("%m-%d %H:%M")
    return at.strftime("%H:%M:%S") + (f".{us // 1000 % 1000:03d}" if step_s < 1 else "")


def _value_axis(y: Scale, most: float, unit: str = "") -> list[Markup]:
    parts: list[Markup] = []
    for value in _nice(most):
        parts.append(_tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y(value), y2=y(value), class_="grid"))
        parts.append(_text(f"{value:,.0f}{unit}", _LEFT - 6, y(value) + 4, "end"))
    return parts


def _bottom_axis(x: Scale, ticks: Iterable[tuple[float, str]], y: float) -> list[Markup]:
    parts: list[Markup] = []
    for value, label in ticks:
        parts.append(_tag("line", x1=x(value), x2=x(value), y1=0, y2=y, class_="grid"))
        parts.append(_text(label, x(value), y + 18, "middle" if x(value) < WIDTH - 60 else "end"))
    return parts


def _nice(most: float, about: int = 4) -> list[float]:
    """Return whole numbers from 0 on, in steps of 1, 2 or 5 times a power of ten."""
    rough = max(1.0, most / about)
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * n for n in range(int(most / step) + 1)]


# -- SVG ---------------------------------------------------------------------------------------------------------------


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 10 else f"{value:.2f}"


def _tag(name: str, **attributes: float | str) -> Markup:
    """Return an element; ``class_`` stands for ``class``, and ``fill_opacity`` for ``fill-opacity``."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value if isinstance(value, str) else _n(value))
        for key, value in attributes.items()
    )
    return Markup("<{}{}/>").format(name, written)


def _titled(tag: Markup, words: str) -> Markup:
    return Markup("<g>{}<title>{}</title></g>").format(tag, words)


def _link(href: str | None, words: str, content: Markup) -> Markup:
    if href is None:
        return Markup("<g>{}</g>").format(content)
    return Markup('<a href="#{}" aria-label="{}">{}</a>').format(href, words, content)


def _text(words: str, x: float, y: float, anchor: str = "middle") -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(_n(x), _n(y), anchor, words)


def _name(words: str, line: int, width: float = _LABELS) -> Markup:
    most = int((width - 8) / _CHARACTER)
    shown = words if len(words) <= most else words[: most - 1] + "…"
    return _titled(_text(shown, width - 8, line * _ROW + 16, "end"), words)


def _svg(parts: Iterable[Markup], height: float, title: str, description: str, *, interactive: bool = False) -> Markup:
    """``description`` is for readers who cannot see the chart."""
    return Markup(
        '<div class="chart" tabindex="0" role="group" aria-label="{}"><svg viewBox="0 0 {} {}" role="{}" '
        'aria-label="{}. {}.">{}</svg></div>'
    ).format(title, WIDTH, _n(height), "group" if interactive else "img", title, description, Markup("").join(parts))


def _legend(entries: Sequence[tuple[str, str]]) -> Markup:
    each = Markup("").join(Markup('<li><i class="{}"></i>{}</li>').format(name, words) for name, words in entries)
    return Markup('<ul class="legend">{}</ul>').format(each)
