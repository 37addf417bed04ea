"""Each gold table against histories made by hand: one topic (or cluster) for each case, all in one frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aiocontroller.analytics.gold.findings import TRANSITIONS
from aiocontroller.core.states import VALID_PREVIOUS_PARTITION_STATES
from tests.integration.analytics.gold.build import NEW, NONE, OFF, ON, T0, Controller, found, tables

Tables = Mapping[str, list[dict[str, Any]]]
S = 1_000_000


def quiet_life() -> Controller:
    """Cluster ``life``: one controller, brokers that die, come back, shut down and bounce."""
    c = Controller(cluster="life")
    c.elected(1)
    for step, us in (("read", 700), ("elect", 300)):
        c.say("failover", event=step, duration_us=us)
    for topic in ("dies", "waits", "shut", "bounced", "deleted", "grows"):
        c.created(topic)
    c.created("single", replicas=[1])
    # Broker 1 dies at 10 s and is back at 20 s.
    died = c.say("broker", broker=1, detail="dead", at_ms=10_000)
    assert died["ts_us"] == T0 + 10 * S
    for topic in ("dies", "waits", "single"):
        c.moved(
            topic, ON, OFF, 1, 0, (1, 2, 3) if topic != "single" else (1,), 0, (1, 2, 3) if topic != "single" else (1,)
        )
    c.moved("dies", OFF, ON, 2, 1, (2, 3), 1, at_ms=10_500)
    c.say("event", event="BrokerChange", queue_us=50, processing_us=500_000)
    c.moved("single", OFF, OFF, -1, 1, (1,), 1, (1,))
    c.moved("waits", OFF, OFF, -1, 1, (2,), 1, at_ms=11_000)
    c.say("broker", broker=1, detail="added", at_ms=20_000)
    c.moved("waits", OFF, ON, 2, 2, (2,), 2, at_ms=20_100)
    c.moved("single", OFF, ON, 1, 2, (1,), 2, (1,), at_ms=20_200)
    c.isr("waits", 2, 2, (2, 1, 3), 3, at_ms=21_000)
    c.isr("dies", 2, 1, (2, 3, 1), 2, at_ms=22_000)
    # Broker 3 shuts down: no window without a leader, an ISR that shrinks.
    c.say("broker", broker=3, detail="controlled shutdown", at_ms=30_000)
    c.moved("shut", ON, ON, 1, 1, (1, 2), 1, detail="OfflineReplica")
    c.say("broker", broker=3, detail="dead", at_ms=31_000)
    c.say("broker", broker=3, detail="added", at_ms=32_000)
    c.isr("shut", 1, 1, (1, 2, 3), 2, at_ms=33_000)
    # Broker 1 bounces.
    c.say("broker", broker=1, detail="bounced", at_ms=40_000)
    c.moved("bounced", ON, OFF, 1, 0, (1, 2, 3), 0)
    c.moved("bounced", OFF, ON, 2, 1, (2, 3), 1, at_ms=40_002)
    c.isr("bounced", 2, 1, (2, 3, 1), 2, at_ms=40_003)
    c.say("event", event="BrokerChange", queue_us=50, processing_us=3000)
    # A topic goes; another grows a replica.
    c.moved("deleted", ON, OFF, 1, 0, (1, 2, 3), 0, at_ms=50_000)
    c.moved("deleted", OFF, NONE, 1, 0, (1, 2, 3), 0, at_ms=50_010)
    c.say("topic_deleted", topic="deleted")
    c.moved("grows", ON, ON, 1, 1, (1, 2, 3), 1, (1, 2, 3, 4), at_ms=60_000)
    c.isr("grows", 1, 1, (1, 2, 3, 4), 2, replicas=[1, 2, 3, 4], at_ms=61_000)
    for answered, us in ((True, 100), (True, 300), (False, 0)):
        c.say("request", broker=2, broker_epoch=5, api="LEADER_AND_ISR", partitions=4, bytes=10)
        if answered:
            c.say("response", broker=2, broker_epoch=5, api="LEADER_AND_ISR", duration_us=us, code=0)
    return c


def hidden_death() -> list[Controller]:
    """Cluster ``hidden``: broker 1 dies while no controller rules."""
    first, second = Controller(1, cluster="hidden"), Controller(2, start_us=T0 + 1, cluster="hidden")
    first.elected(1)
    first.created("t")
    second.elected(2, brokers=(2, 3), at_ms=15_000)
    second.moved("t", OFF, ON, 2, 1, (2, 3), 1, at_ms=15_100)
    return [first, second]


def broken() -> list[Controller]:
    """Cluster ``broken``: one topic for each way to break an invariant."""
    c, other = Controller(1, cluster="broken"), Controller(2, start_us=T0 + 5, cluster="broken")
    c.elected(1)
    for topic in ("backwards", "outsider", "empty", "twice", "wide", "unasked", "two-leaders", "outside", "unclean",
                  "eligible", "complete", "step", "torn-state", "stale-write", "able"):  # fmt: skip
        c.created(topic)
    c.moved("backwards", ON, ON, 1, 5, (1, 2, 3), 1)
    c.moved("backwards", ON, ON, 1, 4, (1, 2, 3), 2)
    c.moved("outsider", ON, ON, 1, 1, (2, 3), 1)
    c.moved("empty", ON, ON, -1, 1, (), 1)
    c.moved("twice", ON, ON, 1, 1, (1, 1), 1)
    c.moved("wide", ON, ON, 1, 1, (1, 2, 3, 9), 5)
    c.moved("unasked", ON, ON, 1, 1, (1,), 1)
    c.moved("unasked", ON, ON, 1, 2, (1, 2), 2)
    c.moved("two-leaders", ON, ON, 2, 0, (1, 2, 3), 1)
    c.moved("outside", ON, ON, 1, 1, (1,), 1)
    c.moved("outside", ON, ON, 2, 2, (2,), 2)
    c.moved("unclean", ON, ON, 1, 1, (1,), 1)
    c.moved("unclean", ON, ON, 2, 2, (2,), 2, detail="OfflinePartitionLeaderElectionStrategy, unclean")
    for detail in ("eligible", "complete"):  # from outside the ISR, and nothing is lost
        c.moved(detail, ON, ON, 1, 1, (1,), 1)
        c.moved(detail, ON, ON, 2, 2, (2,), 2, detail=f"OfflinePartitionLeaderElectionStrategy, {detail}")
    c.moved("step", ON, NEW, 1, 1, (1, 2, 3), 1)
    c.moved("torn-state", OFF, ON, 1, 1, (1, 2, 3), 1)
    c.moved("able", ON, OFF, 1, 0, (1, 2, 3), 0)
    c.say("request", broker=2, broker_epoch=9, api="UPDATE_METADATA")
    c.say("request", broker=2, broker_epoch=8, api="UPDATE_METADATA")
    c.say("request", broker=2, broker_epoch=9, api="UPDATE_METADATA")
    c.say("event", event="Startup", queue_us=61 * S, processing_us=62 * S)
    c.say("fault", event="TopicChange", detail="KeyError('x')")
    c.say("write", partitions=1, bytes=2_000_000, duration_us=1)
    c.say("resigned", controller_epoch=1)
    c.say("write", partitions=1, duration_us=1)
    other.elected(2, at_ms=100_000)
    other.moved("stale-write", ON, ON, 1, 1, (1, 2, 3), 3)
    c.moved("stale-write", ON, ON, 1, 1, (1, 2, 3), 4, at_ms=101_000)
    other.say("elected", controller_epoch=2)
    other.epoch = 1
    other.say("write", partitions=1, duration_us=1, at_ms=200_000)
    return [c, other]


@pytest.fixture(scope="module")
def made(spark: Any) -> Tables:
    controllers = [quiet_life(), *hidden_death(), *broken()]
    return {n: found(t) for n, t in tables(spark, [r for c in controllers for r in c.records]).items()}


def windows(made: Tables, cluster: str, topic: str) -> list[tuple[Any, ...]]:
    """(kind, cause, broker, from, to in ms since T0, leader before, after) of those that are no creation."""
    chosen = [w for w in made["windows"] if (w["cluster"], w["topic"]) == (cluster, topic) and w["cause"] != "creation"]

    def ms(us: int | None) -> float | None:
        return None if us is None else (us - T0) / 1000

    return [
        (w["kind"], w["cause"], w["broker"], ms(w["start_us"]), ms(w["end_us"]), w["leader_before"], w["leader_after"])
        for w in sorted(chosen, key=lambda w: (w["start_us"], w["kind"]))
    ]


def test_windows_begin_with_the_death_and_end_with_the_next_leader(made: Tables) -> None:
    assert windows(made, "life", "dies") == [
        ("dead_leader", "broker_death", 1, 10_000, 10_500, 1, 2),
        ("under_replicated", "broker_death", 1, 10_500, 22_000, 2, 2),
    ]
    assert windows(made, "life", "waits")[0] == ("no_leader", "broker_death", 1, 10_000, 20_100, 1, 2)
    assert windows(made, "life", "single") == [("no_leader", "broker_death", 1, 10_000, 20_200, 1, 1)]
    assert windows(made, "life", "shut") == [("under_replicated", "controlled_shutdown", 3, 30_001, 33_000, 1, 1)]
    assert windows(made, "life", "bounced")[0] == ("dead_leader", "broker_death", 1, 40_000, 40_002, 1, 2)
    assert windows(made, "life", "deleted") == [("no_leader", "deletion", None, 50_000, 50_010, 1, None)]
    assert windows(made, "life", "grows") == [("under_replicated", "reassignment", None, 60_000, 61_000, 1, 1)]


def test_evidence_names_the_death_the_beginning_and_the_end(made: Tables) -> None:
    c = quiet_life()
    death, lost, led = (
        next(r["reference"] for r in c.records if r["kind"] == "broker"),
        next(r["reference"] for r in c.records if r.get("topic") == "dies" and r.get("to_state") == OFF),
        next(r["reference"] for r in c.records if r.get("topic") == "dies" and r.get("from_state") == OFF),
    )
    window = next(w for w in made["windows"] if w["topic"] == "dies" and w["kind"] == "dead_leader")
    assert window["evidence"] == [death, lost, led]


def test_a_death_without_a_controller_is_found_and_its_uncertainty_said(made: Tables) -> None:
    (dead, under) = windows(made, "hidden", "t")
    assert dead[:3] == ("dead_leader", "controller_failover", 1)
    window = next(w for w in made["windows"] if w["cluster"] == "hidden" and w["kind"] == "dead_leader")
    first, second = hidden_death()
    found_us = next(r["ts_us"] for r in second.records if r["kind"] == "elected")
    assert window["start_us"] == found_us  # it began before: at most that much, for the first controller saw none of it
    assert window["error_us"] == found_us - first.now_us
    assert under[0] == "under_replicated"
    died = [b for b in made["brokers"] if b["cluster"] == "hidden" and b["event"] == "died"]
    assert [(b["broker"], b["windows"]) for b in died] == [(1, 1)]


def test_open_windows_last_to_the_end_of_the_record(made: Tables) -> None:
    (window,) = [w for w in made["windows"] if w["topic"] == "able" and w["cause"] != "creation"]
    assert window["end_us"] is None
    assert window["start_us"] + window["duration_us"] == T0 + 200_000_000


def test_brokers(made: Tables) -> None:
    life = [b for b in made["brokers"] if b["cluster"] == "life"]
    assert [(b["broker"], b["event"], b["windows"]) for b in sorted(life, key=lambda b: b["ts_us"])] == [
        (1, "died", 3), (1, "came_back", 0), (3, "shutdown", 0), (3, "left", 0), (3, "came_back", 0),
        (1, "bounced", 1),
    ]  # fmt: skip
    died = next(b for b in life if b["event"] == "died")
    assert (died["partitions_led"], died["processing_us"], died["longest_window_us"]) == (3, 500_000, 10_200_000)


def test_failovers_and_their_phases(made: Tables) -> None:
    failover = next(f for f in made["failovers"] if f["cluster"] == "life")
    assert (failover["node"], failover["epoch"], failover["brokers"], failover["duration_us"]) == (1, 1, 3, 3000)
    phases = [p for p in made["failover_phases"] if p["cluster"] == "life"]
    assert [(p["position"], p["phase"], p["duration_us"]) for p in phases] == [(1, "read", 700), (2, "elect", 300)]


def test_requests_and_latencies(made: Tables) -> None:
    (sent,) = [r for r in made["requests"] if r["cluster"] == "life"]
    assert (sent["broker"], sent["count"], sent["partitions"], sent["bytes"]) == (2, 3, 12, 30)
    assert (sent["unanswered"], sent["errors"]) == (1, 0)
    assert (sent["p50_us"], sent["p99_us"], sent["max_us"]) == (200, 298, 300)
    request = [x for x in made["latencies"] if x["cluster"] == "life" and x["what"] == "request"]
    assert {(x["broker"], x["count"], x["mean_us"]) for x in request} == {(2, 2, 200), (None, 2, 200)}


def test_churn_and_imbalance(made: Tables) -> None:
    churn = {(c["topic"], c["broker"]): c for c in made["churn"] if c["cluster"] == "life"}
    assert (churn["dies", 2]["leader_changes"], churn["dies", 2]["isr_changes"]) == (1, 2)
    unclean = [c for c in made["churn"] if c["elections_unclean"]]
    assert [(c["topic"], c["elections_unclean"]) for c in unclean] == [("unclean", 1)]
    last = {i["broker"]: i for i in sorted(made["imbalance"], key=lambda i: i["ts_us"]) if i["cluster"] == "life"}
    # dies, waits and bounced went to 2; shut, grows and single stayed with 1; deleted is gone.
    assert (last[1]["leaders"], last[1]["preferred_leaders"], last[2]["leaders"]) == (3, 6, 3)
    assert last[1]["imbalance"] == pytest.approx(0.5)
    assert last[4]["replicas"] == 1


def test_availability(made: Tables) -> None:
    by_topic = {a["name"]: a for a in made["availability"] if a["cluster"] == "life" and a["level"] == "topic"}
    dies = by_topic["dies"]
    born = next(r["ts_us"] for r in quiet_life().records if r.get("topic") == "dies")
    assert dies["unavailable_us"] == 500_000
    assert dies["availability"] == pytest.approx(1 - 500_000 / (dies["to_us"] - born))
    assert by_topic["deleted"]["availability"] == 1.0
    (cluster,) = [a for a in made["availability"] if a["cluster"] == "life" and a["level"] == "cluster"]
    assert cluster["unavailable_us"] == 500_000 + 10_100_000 + 10_200_000 + 2_000
    assert cluster["partitions"] == 7


def test_violations_name_the_records_that_prove_them(made: Tables) -> None:
    assert [v for v in made["violations"] if v["cluster"] in ("life", "hidden")] == []
    by_topic: dict[str, set[str]] = {}
    for v in made["violations"]:
        if v["topic"] is not None:
            by_topic.setdefault(v["topic"], set()).add(v["invariant"])
    assert by_topic == {
        "backwards": {"I2"}, "outsider": {"I3"}, "empty": {"I3"}, "twice": {"I3"}, "wide": {"I3"}, "unasked": {"I3"},
        "two-leaders": {"I3"}, "outside": {"I4"}, "step": {"leaderless", "transition"},
        "torn-state": {"transition"}, "stale-write": {"I1"}, "able": {"leaderless"},
    }  # fmt: skip
    backwards = next(v for v in made["violations"] if v["topic"] == "backwards")
    assert backwards["words"] == "leader epoch 4 after 5"
    assert len(backwards["evidence"]) == 2
    of_cluster = {(v["invariant"], v["words"]) for v in made["violations"] if v["topic"] is None}
    assert {i for i, _ in of_cluster} == {"I2", "I6", "I7", "waiting", "handler", "size", "I12"}
    assert ("I12", "write after it had resigned") in of_cluster
    assert ("handler", "TopicChange failed: KeyError('x')") in of_cluster
    seven = next(v for v in made["violations"] if v["invariant"] == "I7")
    process = f"1-{T0}"
    sent = [r["seq"] for r in broken()[0].records if r["kind"] == "request"]
    assert seven["evidence"] == [f"{process}:{sent[0]}", f"{process}:{sent[1]}"]


def test_the_transitions_are_those_of_the_state_machine() -> None:
    allowed = {
        (before.name, after.name)
        for after, befores in VALID_PREVIOUS_PARTITION_STATES.items()
        for before in befores
        if before is not after
    }
    assert allowed == TRANSITIONS
