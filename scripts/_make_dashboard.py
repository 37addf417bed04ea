"""Writes docs/monitoring/dashboard.json, for Grafana, from the tables below; `--check` only compares it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

TARGET = Path(__file__).resolve().parents[1] / "docs" / "monitoring" / "dashboard.json"
WIDTH, HEIGHT, LOW = 24, 7, 4
"""The width of a row of panels, and the heights of a chart and a number, in Grafana's units."""
SOURCE = {"type": "prometheus", "uid": "${source}"}

CONTROLLER = "kafka_controller_kafkacontroller"
EVENTS = "kafka_controller_controllereventmanager"
CHANNELS = "kafka_controller_controllerchannelmanager"
ZOOKEEPER = "kafka_server_zookeeperclientmetrics"
SESSIONS = "kafka_server_sessionexpirelistener"
STATS = "kafka_controller_controllerstats"
OURS = " and on (instance) aiocontroller_readiness_ready{C}"


NONE_IS_GOOD = (("green", None), ("red", 1.0))
ONE_IS_GOOD = (("red", None), ("green", 1.0), ("red", 2.0))


class Panel(NamedTuple):
    """One chart, or one number whose colour shows whether it is good."""

    title: str
    text: str
    unit: str
    """Grafana's name of the unit."""
    lines: dict[str, str]
    """Legend -> PromQL; ``C`` stands for the selector of the cluster."""
    colours: tuple[tuple[str, float | None], ...] = ()
    """The colours, each with the value from which it applies; empty for a chart."""


ROWS: dict[str, list[Panel]] = {
    "Is anything broken?": [
        Panel("Active controllers", "1 is right.", "short",
              {"": f"sum({CONTROLLER}_activecontrollercount{{C}})"}, ONE_IS_GOOD),
        Panel("Offline partitions", "Partitions without a leader.", "short",
              {"": f"max({CONTROLLER}_offlinepartitionscount{{C}})"}, NONE_IS_GOOD),
        Panel("No eligible leader", "Partitions whose eligible replicas are all down.", "short",
              {"": "max(aiocontroller_eligiblereplicas_partitionswithoutleader{C})"}, NONE_IS_GOOD),
        Panel("Sick brokers", "Registered but not working; always 0 if aiocontroller.sickness.mode is off.", "short",
              {"": "max(aiocontroller_sickness_sickbrokers{C}) or vector(0)"}, NONE_IS_GOOD),
        Panel("Brokers refused", "Brokers refused because of their principal.", "short",
              {"": "max(aiocontroller_authorizer_brokersrefused{C})"}, NONE_IS_GOOD),
        Panel("Failed events", "In the last day; each is a bug.", "short",
              {"": "sum(increase(aiocontroller_events_failed_total{C}[1d]))"}, NONE_IS_GOOD),
    ],
    "The cluster": [
        Panel("Brokers", "Registered in ZooKeeper.", "short",
              {"brokers": f"max({CONTROLLER}_activebrokercount{{C}})"}),
        Panel("Partitions", "", "short", {"partitions": f"max({CONTROLLER}_globalpartitioncount{{C}})",
                                          "not led by the preferred replica":
                                          f"max({CONTROLLER}_preferredreplicaimbalancecount{{C}})"}),
        Panel("Deletions", "", "short", {"topics": f"max({CONTROLLER}_topicstodeletecount{{C}})",
                                         "replicas": f"max({CONTROLLER}_replicastodeletecount{{C}})",
                                         "owed by brokers": "max(aiocontroller_debts_replicastodelete{C})"}),
    ],
    "Who can take over": [
        Panel("Ready", "Active, or able to become active.", "short",
              {"{{instance}}": "aiocontroller_readiness_ready{C}"}),
        Panel("Active", "", "short", {"{{instance}}": f"{CONTROLLER}_activecontrollercount{{C}}"}),
        Panel("Lag of the standbys' copies", "", "ms", {"{{instance}}": "aiocontroller_standby_lagms{C}"}),
    ],
    "Work": [
        Panel("Waiting events", "", "short", {"{{instance}}": f"{EVENTS}_eventqueuesize{{C}}"}),
        Panel("Time in the queue, p99", "", "ms", {"{{instance}}": f'{EVENTS}_eventqueuetimems{{C,quantile="0.99"}}'}),
        Panel("Requests waiting for a broker", "", "short", {"broker {{broker_id}}": f"{CHANNELS}_queuesize{{C}}"}),
        Panel("Elections and shutdowns", "Events per second.", "ops", {
            "broker changes": f"sum(rate({STATS}_leaderelectionrateandtimems_count{{C}}[5m]))",
            "controlled shutdowns": f"sum(rate({STATS}_controlledshutdownrateandtimems_count{{C}}[5m]))",
            "unclean elections": f"sum(rate({STATS}_uncleanleaderelections_total{{C}}[5m]))",
        }),
        Panel("Early detection", "In the last hour.", "short", {
            "alarms": "sum(increase(aiocontroller_earlydetection_alarms_total{C}[1h]))",
            "false alarms": "sum(increase(aiocontroller_earlydetection_falsealarms_total{C}[1h]))",
            "sickness verdicts": "sum(increase(aiocontroller_sickness_verdicts_total{C}[1h])) or vector(0)",
        }),
        Panel("Audit findings", "In the last hour.", "short",
              {"{{kind}}": "sum by (kind) (increase(aiocontroller_audit_findings_total{C}[1h]))"}),
    ],
    "ZooKeeper and the process": [
        Panel("ZooKeeper request latency, p99", "", "ms",
              {"{{instance}}": f'{ZOOKEEPER}_zookeeperrequestlatencyms{{C,quantile="0.99"}}'}),
        Panel("Lost connections and sessions", "In the last hour.", "short", {
            "connections, {{instance}}": f"increase({SESSIONS}_zookeeperdisconnects_total{{C}}[1h])",
            "sessions, {{instance}}": f"increase({SESSIONS}_zookeeperexpires_total{{C}}[1h])",
        }),
        Panel("Event loop lag, p99", "", "ms",
              {"{{instance}}": 'aiocontroller_eventloop_lagms{C,quantile="0.99"}'}),
        Panel("CPU", "", "percentunit", {"{{instance}}": "rate(process_cpu_seconds_total{C}[5m])" + OURS}),
        Panel("Memory", "", "bytes", {"{{instance}}": "process_resident_memory_bytes{C}" + OURS}),
        Panel("Connections and files", "", "short", {
            "connections, {{instance}}": "sum by (instance) (kafka_server_socket_server_metrics_connection_count{C})",
            "open files, {{instance}}": "process_open_fds{C}" + OURS,
        }),
        Panel("Journal", "Records waiting or lost.", "short", {
            "waiting, {{instance}}": "aiocontroller_journal_pending{C}",
            "lost, {{instance}}": "aiocontroller_journal_dropped{C}",
        }),
    ],
}  # fmt: skip


def selected(expression: str) -> str:
    """Return PromQL with the selector of the dashboard's cluster."""
    return expression.replace("{C", '{cluster=~"$cluster"')


def panel(number: int, given: Panel, x: int, y: int, width: int) -> dict[str, Any]:
    """Return Grafana's JSON for a panel at this place."""
    steps = [{"color": colour, "value": value} for colour, value in given.colours or NONE_IS_GOOD[:1]]
    return {
        "id": number,
        "type": "stat" if given.colours else "timeseries",
        "title": given.title,
        "description": given.text,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": LOW if given.colours else HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": given.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + at), "expr": selected(expression), "legendFormat": legend, "datasource": SOURCE}
            for at, (legend, expression) in enumerate(given.lines.items())
        ],
    }


def dashboard() -> dict[str, Any]:
    """Return Grafana's JSON for the dashboard."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            }
        )
        y += 1
        across = len(row) if row[0].colours else 3
        width = WIDTH // across
        for start in range(0, len(row), across):
            for at, given in enumerate(row[start : start + across]):
                panels.append(panel(len(panels) + 1, given, at * width, y, width))
            y += panels[-1]["gridPos"]["h"]
    cluster = {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(aiocontroller_readiness_ready, cluster)",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "title": "aiocontroller",
        "uid": "aiocontroller",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, cluster]},
        "panels": panels,
    }


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        print("usage: _make_dashboard.py [--check]", file=sys.stderr)
        return 2
    text = json.dumps(dashboard(), indent=1) + "\n"
    if sys.argv[1:] == ["--check"]:
        if text == TARGET.read_text(encoding="utf-8"):
            return 0
        print(f"{TARGET.name} is not current: run scripts/make-reference", file=sys.stderr)
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
