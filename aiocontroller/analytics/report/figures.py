"""The plots; each is None where there is nothing to draw."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import plotly.graph_objects as go

from aiocontroller.analytics.report.gather import Cluster
from aiocontroller.analytics.summary import duration, moment

RED: Final = "#c0392b"
AMBER: Final = "#e3a43b"
BLUE: Final = "#2b6cb0"
GREY: Final = "#8895a7"
GREEN: Final = "#2f855a"
EVENTS: Final = {
    "died": (RED, "x"),
    "shutdown": (AMBER, "triangle-down"),
    "bounced": (AMBER, "diamond"),
    "came_back": (GREEN, "triangle-up"),
}
PHASES: Final = ("#2b6cb0", "#63b3ed", "#2f855a", "#9ae6b4", "#d69e2e", "#f6e05e", "#c05621", "#b794f4", "#8895a7")
MARKED_ELECTIONS: Final = 40


def time(us: float) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


def timeline(cluster: Cluster) -> go.Figure | None:
    """How many partitions were affected when, with what happened to brokers and controllers."""
    figure = go.Figure()
    bins = range(len(cluster.without_leader))
    x = [time(cluster.from_us + number * cluster.bin_us) for number in bins]
    for name, values, colour in (
        ("too few in sync", cluster.under_replicated, AMBER),
        ("without a leader", cluster.without_leader, RED),
    ):
        if any(values):
            line = {"shape": "hv", "color": colour, "width": 1}
            figure.add_scatter(x=x, y=values, name=name, mode="lines", line=line, fill="tozeroy")
    top = max([1, *cluster.without_leader, *cluster.under_replicated])
    for event, (colour, symbol) in EVENTS.items():
        rows = [row for row in cluster.life if row["event"] == event]
        if rows:
            figure.add_scatter(
                x=[time(row["ts_us"]) for row in rows],
                y=[top * 1.08] * len(rows),
                name=event.replace("_", " "),
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 11},
                cliponaxis=False,
                text=[f"broker {row['broker']} {event.replace('_', ' ')}<br>{moment(row['ts_us'])}" for row in rows],
                hoverinfo="text",
            )
    elected = [row for row in cluster.failovers if row["elected_us"] is not None][:MARKED_ELECTIONS]
    if elected:
        figure.add_scatter(
            x=[time(row["elected_us"]) for row in elected],
            y=[top * 1.18] * len(elected),
            name="controller elected",
            mode="markers",
            marker={"color": BLUE, "symbol": "star", "size": 11},
            cliponaxis=False,
            text=[f"controller {row['node']}, epoch {row['epoch']}<br>{moment(row['elected_us'])}" for row in elected],
            hoverinfo="text",
        )
    figure.update_xaxes(range=[time(cluster.from_us), time(cluster.to_us)], title="UTC")
    figure.update_yaxes(title="partitions", rangemode="tozero")
    return _sized(figure, 340)


def phases(cluster: Cluster) -> go.Figure | None:
    """Each failover as a bar of its steps."""
    failovers = [row for row in cluster.failovers if row["phases"]]
    if not failovers:
        return None
    names = list(dict.fromkeys(phase for row in failovers for phase, _ in row["phases"]))
    y = [f"epoch {row['epoch']}" for row in failovers]
    figure = go.Figure()
    for number, name in enumerate(names):
        took = [sum(us for phase, us in row["phases"] if phase == name) for row in failovers]
        figure.add_bar(
            y=y,
            x=[us / 1e3 for us in took],
            name=name,
            orientation="h",
            marker_color=PHASES[number % len(PHASES)],
            text=[f"{name}: {duration(us)}" for us in took],
            textposition="none",
            hoverinfo="text",
        )
    figure.update_layout(barmode="stack", xaxis={"title": "milliseconds"}, yaxis={"autorange": "reversed"})
    return _sized(figure, 140 + 28 * len(failovers) + 16 * (len(names) // 3))


def percentiles(cluster: Cluster) -> go.Figure | None:
    """A line from the median to the maximum for each thing that was timed, on a logarithmic axis."""
    rows = [row for row in cluster.latencies if row["max_us"]]
    if not rows:
        return None
    labels = [f"{row['what']}: {row['name'] or 'all'}" for row in rows]
    figure = go.Figure()
    for row, label in zip(rows, labels, strict=True):
        ends = [max(row["p50_us"], 1) / 1e3, max(row["max_us"], 1) / 1e3]
        line = {"color": "#cbd5e0", "width": 3}
        figure.add_scatter(x=ends, y=[label] * 2, mode="lines", line=line, showlegend=False, hoverinfo="skip")
    for column, name, colour in (
        ("p50_us", "p50", GREEN), ("p99_us", "p99", BLUE), ("p999_us", "p99.9", AMBER), ("max_us", "max", RED),
    ):  # fmt: skip
        figure.add_scatter(
            x=[max(row[column] or 0, 1) / 1e3 for row in rows],
            y=labels,
            name=name,
            mode="markers",
            marker={"color": colour, "size": 9},
            text=[
                f"{label}<br>{name} {duration(row[column])} of {row['count']:,}"
                for label, row in zip(labels, rows, strict=True)
            ],
            hoverinfo="text",
        )
    figure.update_layout(xaxis={"type": "log", "dtick": 1, "title": "milliseconds"}, yaxis={"autorange": "reversed"})
    return _sized(figure, 140 + 24 * len(rows))


def churn(cluster: Cluster) -> go.Figure | None:
    """Where leaders change: topics against hours, or against brokers."""
    if not cluster.churn:
        return None
    topics = list(dict.fromkeys(row["topic"] for row in cluster.churn))
    xs = sorted({row["x"] for row in cluster.churn})
    cells = {(row["topic"], row["x"]): row["changes"] for row in cluster.churn}
    labels = [time(x) for x in xs] if cluster.churn_by_hour else [f"broker {x}" for x in xs]
    figure = go.Figure(
        go.Heatmap(
            x=labels,
            y=topics,
            z=[[cells.get((topic, x)) for x in xs] for topic in topics],
            colorscale=[[0, "#edf2f7"], [0.5, "#63b3ed"], [1, "#1a365d"]],
            hovertemplate="%{y}, %{x}: %{z} changes of leader<extra></extra>",
            colorbar={"title": "changes"},
            xgap=1,
            ygap=1,
        )
    )
    figure.update_yaxes(autorange="reversed")
    return _sized(figure, 140 + 22 * len(topics))


def imbalance(cluster: Cluster) -> go.Figure | None:
    """The share of the partitions that prefer a broker and that another one leads."""
    if not any(row["imbalance"] for row in cluster.imbalance):
        return None
    figure = go.Figure()
    for broker in dict.fromkeys(row["broker"] for row in cluster.imbalance):
        rows = [row for row in cluster.imbalance if row["broker"] == broker]
        figure.add_scatter(
            x=[time(row["ts_us"]) for row in rows] + [time(cluster.to_us)],
            y=[100 * row["imbalance"] for row in [*rows, rows[-1]]],
            name=f"broker {broker}",
            mode="lines",
            line={"shape": "hv"},
        )
    figure.update_xaxes(range=[time(cluster.from_us), time(cluster.to_us)], title="UTC")
    figure.update_yaxes(title="% led by others", rangemode="tozero")
    return _sized(figure, 300)


def _sized(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#1c2733"},
        hoverlabel={"align": "left"},
    )
    return figure
