"""The recipes of docs/extending.md, performed on a copy of the checkout: each step works, and each check that the page
names notices the step that is left out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMPORT = ("-c", "import aiocontroller.service")
CHECK_REFERENCE = ("scripts/_make_reference.py", "--check")
CHECK_DIAGRAMS = ("scripts/_make_diagrams.py", "--check")
HOUSE = "tests/unit/test_house.py::test_functions_and_files_stay_short"
CHANGES = "tests/unit/zookeeper/test_changes.py"
WATCHED = (
    "tests/unit/controller/test_warm_failover.py"
    "::test_after_both_kinds_of_failover_a_watch_is_armed_on_each_znode_that_others_change"
)
MONITORING = "tests/unit/test_monitoring.py"


class Checkout:
    """A copy of what the recipes touch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("aiocontroller", "scripts", "tests", "docs"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml"):
            shutil.copy(ROOT / name, root / name)

    def append(self, path: str, text: str) -> None:
        with open(self.root / path, "a", encoding="utf-8") as file:
            file.write(text)

    def replace(self, path: str, pattern: str, by: str) -> None:
        """Replace the one match of a regular expression."""
        file = self.root / path
        changed, count = re.subn(pattern, by, file.read_text(encoding="utf-8"), flags=re.M)
        assert count == 1, f"{path}: found {count} matches of {pattern!r}, expected one"
        file.write_text(changed, encoding="utf-8")

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of Python in the copy."""
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test(self, *names: str) -> tuple[int, str]:
        return self.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *names)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


@pytest.mark.timeout(480)
def test_add_an_event(checkout: Checkout) -> None:
    checkout.append(
        "aiocontroller/core/events.py",
        "\n\nclass QuorumChange(Signal, frozen=True, gc=False):\n"
        '    """The exercise\'s event."""\n\n    state = ControllerState.BrokerChange\n',
    )
    assert "event type QuorumChange lacks one handler (it has 0)" in checkout.run(*IMPORT)[1]
    checkout.append(
        "aiocontroller/controller/brokers.py",
        '\n\nasync def quorum_change(shell: ControllerShell, event: object) -> None:\n    """Read nothing yet."""\n',
    )
    checkout.replace(
        "aiocontroller/controller/event_handlers.py",
        r"^    ev\.BrokerChange: brokers\.broker_change,$",
        r"\g<0>\n    ev.QuorumChange: brokers.quorum_change,",
    )
    assert checkout.run(*IMPORT) == (0, "")
    assert checkout.test(HOUSE)[0] == 0
    assert "events.md is not current: run scripts/make-reference" in checkout.run(*CHECK_REFERENCE)[1]
    assert checkout.run("scripts/_make_reference.py")[0] == 0
    assert checkout.run(*CHECK_REFERENCE)[0] == 0
    assert "\n| `QuorumChange` | signal |" in (checkout.root / "docs/reference/events.md").read_text(encoding="utf-8")
    checkout.replace("aiocontroller/core/events.py", r'^    """The exercise\'s event\."""$', "")
    assert "event type QuorumChange lacks a docstring" in checkout.run(*IMPORT)[1]


@pytest.mark.timeout(480)
def test_add_an_event_of_a_znode(checkout: Checkout) -> None:
    """The znode ``/quorum``; after the steps of every event, which the previous test performs."""
    checkout.append(
        "aiocontroller/core/events.py",
        "\n\nclass QuorumChange(Signal, frozen=True, gc=False):\n"
        '    """The exercise\'s event."""\n\n    state = ControllerState.BrokerChange\n',
    )
    checkout.append("aiocontroller/zookeeper/paths.py", '\n\nQUORUM = "/quorum"\n')
    changes = "aiocontroller/zookeeper/changes.py"
    checkout.replace(changes, r'^    CONFIG_CHANGES = "CONFIG_CHANGES"$', r'\g<0>\n    QUORUM = "QUORUM"')
    checkout.replace(changes, r"^_NODES = \{$", r"\g<0>\n    paths.QUORUM: ZNodeChange.QUORUM,")
    code, output = checkout.test(CHANGES)
    assert code == 1, output
    assert "test_every_change_can_happen" in output
    expected = r'\g<0>\n    **{("/quorum", kind): (C.QUORUM, "") for kind in (CREATED, DELETED, CHANGED)},'
    checkout.replace(CHANGES, r"^EXPECTED = \{$", expected)
    checkout.replace(CHANGES, r"^PATHS = \($", r'\g<0>\n    "/quorum",')
    assert checkout.test(CHANGES)[0] == 0
    checkout.append(
        "aiocontroller/controller/brokers.py",
        "\n\nasync def quorum_change(shell: ControllerShell, event: object = None) -> None:\n"
        '    """Read the znode, which arms the watch."""\n'
        '    await shell.zk.client.get_many(["/quorum"], watch=True)\n',
    )
    handlers = "aiocontroller/controller/event_handlers.py"
    row = r"^    ev\.BrokerChange: brokers\.broker_change,$"
    checkout.replace(handlers, row, r"\g<0>\n    ev.QuorumChange: brokers.quorum_change,")
    signal = r"^    ZNodeChange\.BROKER_IDS: lambda _: ev\.BrokerChange\(\),$"
    checkout.replace(handlers, signal, r"\g<0>\n    ZNodeChange.QUORUM: lambda _: ev.QuorumChange(),")
    code, output = checkout.test(WATCHED)
    assert code == 1, output
    assert "'/quorum'" in output
    step = r'\g<0>\n    ("read the quorum", brokers.quorum_change),'
    checkout.replace("aiocontroller/controller/failover.py", r"^FAILOVER: .*$", step)
    code, output = checkout.test(WATCHED)
    assert code == 1, output
    assert "unwatched(standby)" in output
    checkout.replace("aiocontroller/controller/warm_failover.py", r"^WARM_FAILOVER: .*$", step)
    code, output = checkout.test(WATCHED, HOUSE)
    assert code == 0, output
    assert "state-machines.md is not current" in checkout.run(*CHECK_DIAGRAMS)[1]


@pytest.mark.timeout(480)
def test_add_a_metric(checkout: Checkout) -> None:
    checkout.replace(
        "aiocontroller/controller/shell.py",
        r'^( +)self\.alarms = metrics\.counter\("aiocontroller", "EarlyDetection", "Alarms"\)$',
        r'\g<0>\n\1self.exercises = metrics.counter("aiocontroller", "EarlyDetection", "Exercises")',
    )
    running = "tests/unit/test_reference.py::test_every_metric_of_a_running_controller_has_a_meaning"
    code, output = checkout.test(running)
    assert code == 1, output
    assert "Exercises" in output
    checkout.replace(
        "aiocontroller/metric_meanings.py",
        r'^    \("aiocontroller", "EarlyDetection"\): \{$',
        r'\g<0>\n        "Exercises": Meaning("exercises", "Of newcomers.", "rises"),',
    )
    assert "metrics.md is not current" in checkout.run(*CHECK_REFERENCE)[1]
    assert checkout.run("scripts/_make_reference.py")[0] == 0
    code, output = checkout.test(running, "tests/unit/test_reference.py::test_the_pages_are_current", HOUSE)
    assert code == 0, output
    rules = [f"{MONITORING}::test_each_metric_with_a_suggestion_has_a_rule"]
    rules.append(f"{MONITORING}::test_each_alert_has_a_paragraph_and_each_paragraph_an_alert")
    code, output = checkout.test(*rules)
    assert code == 1, output
    assert "aiocontroller_earlydetection_exercises" in output
    checkout.replace(
        "docs/monitoring/alerts.yml",
        r"^  - name: aiocontroller-resources$",
        "      - alert: AiocontrollerExercise\n"
        "        expr: increase(aiocontroller_earlydetection_exercises_total[15m]) > 0\n"
        "        labels: {severity: ticket}\n"
        "        annotations:\n"
        '          summary: "A newcomer is at work."\n'
        "          runbook: docs/alerts.md#aiocontrollerexercise\n\n"
        r"\g<0>",
    )
    code, output = checkout.test(*rules)
    assert code == 1, output
    paragraph = r"### AiocontrollerExercise\n\n**Ticket.** Help.\n\n\g<0>"
    checkout.replace("docs/alerts.md", "^## What it needs$", paragraph)
    fires = r'\g<0>\n    "AiocontrollerExercise": {"aiocontroller_earlydetection_exercises_total": "0+1"},'
    checkout.replace(MONITORING, r'^    "AiocontrollerEarlyDetection": .*$', fires)
    code, output = checkout.test(*rules)
    assert code == 0, output


@pytest.mark.timeout(480)
def test_add_a_version_of_leader_and_isr(checkout: Checkout) -> None:
    """Version 7 is taken away, and comes back step by step."""
    encoders = "tests/unit/wire/test_control_encoders.py::test_leader_and_isr_as_kio_writes_it"
    protocols = "tests/unit/wire/test_protocol_versions.py"
    highest = r"^    ApiKey\.LEADER_AND_ISR: \((\d), 4\),$"
    sent = r"^    ApiKey\.LEADER_AND_ISR: \(\(\(3, 4, 0\), 7\), "
    checkout.replace("aiocontroller/wire/apis.py", highest, "    ApiKey.LEADER_AND_ISR: (6, 4),")
    checkout.replace("aiocontroller/wire/leader_and_isr.py", r"if version >= 7$", "if version >= 8")
    checkout.replace("aiocontroller/wire/protocol_versions.py", sent, "    ApiKey.LEADER_AND_ISR: (")
    assert checkout.test(encoders)[0] == 0
    checkout.replace("aiocontroller/wire/apis.py", highest, "    ApiKey.LEADER_AND_ISR: (7, 4),")
    code, output = checkout.test(encoders)
    assert code == 1, output
    assert "test_leader_and_isr_as_kio_writes_it[7]" in output
    checkout.replace("aiocontroller/wire/leader_and_isr.py", r"if version >= 8$", "if version >= 7")
    assert checkout.test(encoders)[0] == 0
    code, output = checkout.test(protocols)
    assert code == 1, output
    back = r"^    ApiKey\.LEADER_AND_ISR: \("
    checkout.replace("aiocontroller/wire/protocol_versions.py", back + r"(?=\(\(3)", r"\g<0>((3, 4, 0), 7), ")
    assert checkout.test(protocols, HOUSE)[0] == 0
