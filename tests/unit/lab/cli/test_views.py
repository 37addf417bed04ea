"""What the three views say of the same observations."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
from rich.console import Console

from aiocontroller.cli.cluster_state import BrokerState, ClusterState, ControllerState, PartitionState
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.cli.live import LiveView
from aiocontroller.lab.cli.observer import Observation
from aiocontroller.lab.cli.views import Facts, JsonView, PlainView

FACTS = Facts("127.0.0.1:2181", "127.0.0.1:9092", "http://127.0.0.1:1", "data")
SUMMARY: dict[str, Any] = {
    "epoch": 3,
    "partitions": {"total": 2, "offline": 1, "under_replicated": 1, "not_preferred": 1},
    "duration_s": 12.0,
    "events": [
        {
            "event": "BrokerChange",
            "count": 2,
            "queue_us": {"p50": 5, "max": 7},
            "processing_us": {"p50": 1000, "p99": 2000, "max": 2000},
        }
    ],
    "records": 40,
    "journal": "data/journal",
}


def event(name: str, text: str = "", processing_us: int = 20, detail: str = "") -> dict[str, Any]:
    """``text``: what it did."""
    at_us = 1_700_000_000_000_000
    return {"event": name, "at_us": at_us, "processing_us": processing_us, "detail": detail, "text": text}


def observation(*events: dict[str, Any], status: bool = True, controller: int | None = 9) -> Observation:
    cluster = ClusterState(
        ControllerState(controller, 3, 1_700_000_000_000),
        [BrokerState(1, True, 1, 2), BrokerState(2, False, 0, 2)],
        [
            PartitionState("t", 0, (1, 2), LeaderAndIsr(1, 0, (1, 2), 3, 0)),
            PartitionState("t", 1, (2, 1), LeaderAndIsr(-1, 0, (2,), 3, 0)),
        ],
        [],
    )
    answer = {"id": 9, "epoch": 3, "since_us": 1_700_000_000_000_000, "queue_size": 0, "topics": 1}
    return Observation(answer if status else None, cluster, list(events))


def test_plain_lines_only_when_something_is_different(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView()
    view.ready(FACTS)
    events = [
        event("BrokerChange", "broker 2 died: 1 leader moved, in 1.5 ms"),
        event("AutoPreferredReplicaLeaderElection"),
        event("TopicChange", processing_us=200_000),
        event("IsrChangeNotification", detail="bad znode"),
    ]
    view.show(observation(*events))
    view.show(observation())
    view.show(observation(status=False))
    view.show(observation(status=False, controller=None))
    view.summary(SUMMARY)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Ready: ZooKeeper 127.0.0.1:2181, brokers 127.0.0.1:9092,")
    assert lines.pop(1) == "22:13:20.000 broker 2 died: 1 leader moved, in 1.5 ms"
    assert lines.pop(1) == "22:13:20.000 TopicChange took 200.0 ms"
    assert lines.pop(1) == "22:13:20.000 bad znode"
    numbers = "leaders by broker 1:1 2:gone; partitions: 2 total, 1 offline, 1 under replicated, 1 not preferred"
    assert [line.partition(" ")[2] for line in lines[1:4]] == [
        f"controller 9 epoch 3; {numbers}",
        f"controller 9 does not answer at the moment; {numbers}",
        f"no active controller; {numbers}",
    ]
    assert lines[5] == "Ran for 12 s, controller epoch 3; at the end 2 partitions, 1 offline, 1 under-replicated."
    assert lines[7].split() == ["BrokerChange", "2", "5", "µs", "7", "µs", "1.0", "ms", "2.0", "ms", "2.0", "ms"]
    assert lines[8] == "40 journal records in data/journal"


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonView(sys.stderr.write)
    view.progress("on the way")
    view.ready(FACTS)
    view.show(observation(event("LeaderAndIsrResponseReceived")))
    view.show(observation())
    view.notice("broker-2 killed")
    view.summary(SUMMARY)
    out, err = capsys.readouterr()
    objects = [json.loads(line) for line in out.splitlines()]
    assert [o["event"] for o in objects] == ["ready", "handled", "state", "notice", "summary"]
    assert objects[0] == {
        "event": "ready", "zookeeper": "127.0.0.1:2181", "bootstrap": "127.0.0.1:9092", "http": "http://127.0.0.1:1",
        "data": "data",
    }  # fmt: skip
    assert (objects[2]["controller"], objects[2]["epoch"], objects[2]["answers"]) == (9, 3, True)
    assert objects[2]["partitions"]["offline"] == 1
    assert err == "on the way\n"


@pytest.mark.parametrize("height", [8, 40])
def test_the_live_view_shows_the_essentials_in_any_window(height: int) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=height, color_system=None)
    with LiveView(console) as view:
        view.progress("zookeeper runs")
        view.ready(FACTS)
        view.show(observation(*(event("BrokerChange", f"broker {n} died") for n in range(30))))
        view.notice("broker-2 killed")
        view.summary(SUMMARY)
    text = screen.getvalue()
    for words in ("zookeeper runs", "Controller 9", "epoch 3", "1 offline", "Ran for 12 s", "broker-2 killed"):
        assert words in text
    assert "broker 29 died" in text
    assert ("broker 10 died" in text) == (height == 40)
