"""The alert rules and the dashboard: promtool fires each rule, and each rule has a paragraph and existing metrics."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from aiocontroller.journal.journal import JournalStatistics
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metric_meanings import MEANINGS
from aiocontroller.metrics import rendered_name
from tests.unit.controller.virtual_cluster import is_active, stage
from tests.unit.generated_pages import ROOT, make

MONITORING = ROOT / "docs" / "monitoring"
RULES = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
ALERTS = re.findall(r"- alert: (\w+)", RULES)
EXPRESSIONS = re.findall(r"\n        expr: (.*?)\n        (?:for|labels):", RULES, re.DOTALL)
METRIC = re.compile(r"\b(?:aiocontroller|kafka|process)_[a-z0-9_]+")
PROMTOOL = shutil.which("promtool")
WITHOUT_RULE = {
    "kafka_controller_controllerchannelmanager_totalqueuesize": "the rule takes the queue of each broker",
    "kafka_server_socket_server_metrics_connection_count": "its limit is a setting",
    "aiocontroller_partitions_offline": "the rule takes the number of all topics",
    "aiocontroller_httpserver_connections": "its limit is a setting",
    "aiocontroller_socketserver_loginmemoryused": "its limit is a setting",
    "aiocontroller_socketserver_unreadresponsebytes": "its limit is a setting",
    "aiocontroller_journal_deleted": "comes with failures to write",
}
"""Metric with a suggested alert -> why it has no rule."""
GOOD = {
    "kafka_controller_kafkacontroller_activebrokercount": "3",
    "kafka_network_socketserver_memorypoolavailable": "100000000",
    "aiocontroller_readiness_ready": "1",
    "aiocontroller_standby_warm": "1",
    "aiocontroller_audit_lastpasstimestampms": "0+60000",
    "process_open_fds": "10",
    "process_max_fds": "1000",
}
"""The value of a metric in a healthy cluster, if not 0; ``a+b``: ``b`` more every minute."""
CONTROLLER = "kafka_controller_kafkacontroller"
STATS = "kafka_controller_controllerstats"
FIRES: dict[str, dict[str, str]] = {
    "KafkaNoActiveController": {f"{CONTROLLER}_activecontrollercount": "0"},
    "KafkaSeveralActiveControllers": {f"{CONTROLLER}_activecontrollercount": "2"},
    "KafkaOfflinePartitions": {f"{CONTROLLER}_offlinepartitionscount": "3"},
    "KafkaPartitionsBelowMinIsr": {"kafka_server_replicamanager_underminisrpartitioncount": "2"},
    "KafkaUnderReplicatedPartitions": {"kafka_server_replicamanager_underreplicatedpartitions": "2"},
    "KafkaPartitionsWithoutEligibleLeader": {"aiocontroller_eligiblereplicas_partitionswithoutleader": "1"},
    "KafkaUncleanLeaderElection": {f"{STATS}_uncleanleaderelections_total": "0+1"},
    "KafkaBrokerMissing": {f"{CONTROLLER}_activebrokercount": "3x10 2x2000"},
    "KafkaBrokerSick": {"aiocontroller_sickness_sickbrokers": "1"},
    "KafkaBrokerBacklog": {"kafka_controller_controllerchannelmanager_queuesize": "2"},
    "KafkaLeadersUnbalanced": {f"{CONTROLLER}_preferredreplicaimbalancecount": "5"},
    "KafkaDeletionStuck": {f"{CONTROLLER}_replicasineligibletodeletecount": "1"},
    "KafkaReplicasNotDeleted": {"aiocontroller_debts_replicastodelete": "4"},
    "KafkaBrokersDiffer": {"aiocontroller_settings_differing": "1"},
    "KafkaZNodeUnreadable": {"aiocontroller_zookeeper_badznodes_total": "0+1"},
    "AiocontrollerNoneReady": {"aiocontroller_readiness_ready": "0"},
    "AiocontrollerNotReady": {"aiocontroller_readiness_ready": "0"},
    "AiocontrollerMissing": {"aiocontroller_readiness_ready": "1x10 stale"},
    "AiocontrollerBrokersRefused": {"aiocontroller_authorizer_brokersrefused": "1"},
    "AiocontrollerMustNotLead": {"aiocontroller_guard_reasons": "1"},
    "AiocontrollerWithdrew": {"aiocontroller_guard_withdrawals_total": "0+1"},
    "AiocontrollerBrokersUnanswered": {"aiocontroller_guard_brokersunanswered": "1"},
    "AiocontrollerBusy": {"kafka_controller_controllereventmanager_eventqueuesize": "500"},
    "AiocontrollerStuck": {f"{CONTROLLER}_controllerstate": "2"},
    "AiocontrollerSlow": {"aiocontroller_eventloop_lagms": "1500"},
    "AiocontrollerFault": {"aiocontroller_events_failed_total": "0+1"},
    "AiocontrollerStandbyBehind": {"aiocontroller_standby_lagms": "5000"},
    "AiocontrollerAuditFindings": {"aiocontroller_audit_lastpasstimestampms": "1"},
    "AiocontrollerEarlyDetection": {"aiocontroller_earlydetection_falsealarms_total": "0+1"},
    "AiocontrollerZooKeeperLost": {"kafka_server_sessionexpirelistener_zookeeperexpires_total": "0+1"},
    "AiocontrollerZooKeeperSlow": {"kafka_server_zookeeperclientmetrics_waiting": "1"},
    "AiocontrollerJournalLossy": {"aiocontroller_journal_dropped": "0+1"},
    "AiocontrollerRefusesConnections": {"aiocontroller_socketserver_refusedconnections_total": "0+1"},
    "AiocontrollerRefusesClients": {"kafka_server_socket_server_metrics_failed_authentication_total": "0+1"},
    "AiocontrollerMemoryForRequestsExhausted": {"kafka_network_socketserver_memorypoolavailable": "0"},
    "AiocontrollerDescriptorsExhausted": {"process_open_fds": "900"},
}
"""Alert -> what differs from a healthy cluster, in the standby."""
IN_BOTH = {"KafkaNoActiveController", "KafkaBrokerMissing", "AiocontrollerNoneReady"}
"""Alerts whose values differ in the controller, too."""
ALSO = {"AiocontrollerNoneReady": {"AiocontrollerNotReady"}}
"""Alert -> others that fire with it."""
MINUTES = {
    "KafkaLeadersUnbalanced": 7 * 60,
    "KafkaDeletionStuck": 90,
    "KafkaReplicasNotDeleted": 25 * 60,
    "AiocontrollerAuditFindings": 7 * 60,
}
"""The time after which an alert has fired; 30 minutes for the others."""


def test_each_alert_has_a_paragraph_and_each_paragraph_an_alert() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    paragraphs = dict(re.findall(r"### (\w+)\n\n\*\*(Page|Ticket)\.\*\*", page))
    severities = re.findall(r"\{severity: (page|ticket)\}", RULES)
    assert paragraphs == {name: how.capitalize() for name, how in zip(ALERTS, severities, strict=True)}
    assert re.findall(r"runbook: docs/alerts\.md#(\w+)", RULES) == [name.lower() for name in ALERTS]
    assert list(FIRES) == ALERTS


def test_each_metric_with_a_suggestion_has_a_rule() -> None:
    named = set(METRIC.findall("\n".join(EXPRESSIONS)))
    suggested = {
        rendered_name(group, type_, name, meter=name.endswith("PerSec"))
        for (group, type_, name), meaning in MEANINGS.items()
        if meaning.alert
    }
    ruled = {name for name in suggested if name in named or f"{name}_total" in named}
    assert suggested - ruled == set(WITHOUT_RULE)


@virtual_time
async def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    async with stage() as it:
        await it.add_broker(1)
        service = await it.add_controller()
        await it.until(lambda: is_active(service))
        lines = service.metrics.render().splitlines()
    there = {re.split("[ {]", line)[0] for line in lines if line[:1] not in ("", "#")} | set(registered())
    there |= {f"aiocontroller_journal_{name}" for name in JournalStatistics.__struct_fields__}
    there |= set(
        METRIC.findall((ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8").split("##")[0])
    )
    dashboard = (MONITORING / "dashboard.json").read_text(encoding="utf-8")
    named = set(METRIC.findall("\n".join([*EXPRESSIONS, dashboard])))
    assert len(named) > 60
    assert named - there == set()


def registered() -> Iterable[str]:
    """Yield the counters and gauges that the source names; some of them exist only after their first use."""
    for path in (ROOT / "aiocontroller").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = [argument.value for argument in node.args[:3] if isinstance(argument, ast.Constant)]
                if node.func.attr in ("counter", "meter", "gauge", "timer") and len(name) == 3:
                    counts = node.func.attr in ("counter", "meter")
                    yield rendered_name(*map(str, name), meter=node.func.attr == "meter") + "_total" * counts


def test_the_dashboard_is_current() -> None:
    checked = make("_make_dashboard.py", "--check")
    assert checked.returncode == 0, checked.stderr
    assert make("_make_dashboard.py", "--chek").returncode == 2


def promtool(*arguments: str | Path) -> str:
    if PROMTOOL is None:
        pytest.skip("'promtool' is not on PATH (Debian's package prometheus)")
    done = subprocess.run([PROMTOOL, *arguments], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_reads_the_rules() -> None:
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool("check", "rules", MONITORING / "alerts.yml")


def test_prometheus_reads_what_the_dashboard_asks(tmp_path: Path) -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    rules = [{"record": f"asked_{number}", "expr": expression} for number, expression in enumerate(asked)]
    file = tmp_path / "asked.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    assert f"SUCCESS: {len(asked)} rules found" in promtool("check", "rules", file)
    assert len(asked) > 25


def series(alert: str | None, minutes: int) -> list[dict[str, str]]:
    """Return everything that the rules read, of a controller and a standby, each minute."""
    found = []
    for name in sorted({*METRIC.findall("\n".join(EXPRESSIONS)), *GOOD}):
        for instance in ("controller", "standby"):
            active = name.endswith("_activecontrollercount") and instance == "controller"
            value = "1" if active else GOOD.get(name, "0")
            if alert is not None and (instance == "standby" or alert in IN_BOTH):
                value = FIRES[alert].get(name, value)
            quantile = ',quantile="0.99"' if re.search(rf"{name}{{quantile", RULES) else ""
            values = value if "x" in value else f"{value}x{minutes}"
            found.append({"series": f'{name}{{cluster="c",instance="{instance}"{quantile}}}', "values": values})
    return found


def fired(alert: str | None) -> dict[str, object]:
    """Return a test for promtool: exactly these alerts fire."""
    minutes = MINUTES.get(alert or "", 30)
    expected = {alert, *ALSO.get(alert, ())} if alert is not None else set()
    return {
        "interval": "1m",
        "input_series": series(alert, minutes + 5),
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(expected)],
            }
        ],
    }


@pytest.mark.parametrize("alert", [None, *ALERTS])
def test_a_rule_fires_when_it_should_and_none_when_all_is_well(alert: str | None, tmp_path: Path) -> None:
    file = tmp_path / "tests.yml"
    tests = {
        "rule_files": [str(MONITORING / "alerts.yml")],
        "evaluation_interval": "10m" if alert in MINUTES else "1m",
        "tests": [fired(alert)],
    }
    file.write_text(json.dumps(tests), encoding="utf-8")
    promtool("test", "rules", file)
