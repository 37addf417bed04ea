"""Known problems by name: each with its records, each beside a case that looks like it and is none.

One cluster for each case, all in one frame."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.analytics.gold.build import OFF, ON, Controller, found, tables

HOUR_MS = 3_600_000
LOG = {"source": "server.log"}
ABORTED = (
    "[Controller id=1 epoch=11] Controller 1 epoch 11 failed to change state for partition t-0 from OfflinePartition "
    "to OnlinePartition (state.change.logger)\nkafka.common.StateChangeFailedException: Aborted leader election for "
    "partition t-0 since the LeaderAndIsr path was already written by another controller. This probably means that "
    "the current controller 1 went through a soft failure and another controller was elected with epoch {epoch}."
)


def controller(cluster: str, epoch: int = 1) -> Controller:
    made = Controller(cluster=cluster)
    made.elected(epoch)
    return made


def shrinks(cluster: str, times: int, every_ms: int, *, dies: bool = False) -> Controller:
    c = controller(cluster)
    c.created("t")
    for n in range(times):
        at = 10_000 + n * every_ms
        if dies:
            c.say("broker", broker=3, detail="dead", at_ms=at - 10)
        c.isr("t", 1, 0, (1, 2), 2 * n + 1, at_ms=at)
        if dies:
            c.say("broker", broker=3, detail="added", at_ms=at + 10)
        c.isr("t", 1, 0, (1, 2, 3), 2 * n + 2, at_ms=at + 1000)
    return c


def bursts(cluster: str, *first_ms: int) -> Controller:
    """An ISR that shrinks six times in a quarter of an hour, again and again, and once each day between."""
    c = controller(cluster)
    c.created("t")
    version = 0
    for begin_ms in first_ms:
        for at in (*range(begin_ms, begin_ms + 6 * 150_000, 150_000), begin_ms + 24 * HOUR_MS):
            c.isr("t", 1, 0, (1, 2), version + 1, at_ms=at)
            c.isr("t", 1, 0, (1, 2, 3), version + 2, at_ms=at + 1000)
            version += 2
    return c


def by_turns(cluster: str) -> Controller:
    """Each of two followers falls behind five times within an hour."""
    c = controller(cluster)
    c.created("t")
    for n in range(10):
        c.isr("t", 1, 0, (1, 2) if n % 2 else (1, 3), 2 * n + 1, at_ms=10_000 + n * 300_000)
        c.isr("t", 1, 0, (1, 2, 3), 2 * n + 2, at_ms=11_000 + n * 300_000)
    return c


def rebalances(
    cluster: str, times: int, every_ms: int, members: int | None = None, restarts_every: int = 0
) -> Controller:
    """``restarts_every``: one of so many rebalances follows from the restart of a broker."""
    c = controller(cluster)
    for n in range(times):
        at_ms = 10_000 + n * every_ms
        if restarts_every and n % restarts_every == 0:
            c.say("broker", broker=3, detail="dead", at_ms=at_ms - 20)
            c.say("broker", broker=3, detail="added", at_ms=at_ms - 10)
        c.say("group_rebalance", broker=2, detail="billing", at_ms=at_ms, **LOG)
        if members is not None:
            c.say("group_stable", broker=2, detail="billing", count=members, at_ms=at_ms + 3, **LOG)
    return c


def two_groups(cluster: str) -> Controller:
    """Neither rebalances too often."""
    c = controller(cluster)
    for n in range(38):
        c.say("group_rebalance", broker=2, detail=f"group-{n % 2}", at_ms=10_000 + n * 60_000, **LOG)
        c.say("group_stable", broker=2, detail=f"group-{n % 2}", count=3, at_ms=10_003 + n * 60_000, **LOG)
    return c


def paused(cluster: str, heard_ms: int, *, expired: bool) -> Controller:
    c = controller(cluster)
    own = {"node": 2, **LOG}
    c.say("session", detail="ESTABLISHED", duration_us=6_000_000, at_ms=1_000, **own)
    for _ in range(2):  # ZooKeeper's client says it twice
        c.say("session", detail="TIMED_OUT", duration_us=heard_ms * 1000, at_ms=60_000, **own)
    if expired:
        c.say("session", detail="EXPIRED", at_ms=61_000, **own)
    return c


def session_changed(cluster: str, before_ms: int, heard_ms: int, then_ms: int) -> Controller:
    """Another timeout is configured after the session was lost."""
    c = controller(cluster)
    own = {"node": 2, **LOG}
    c.say("session", detail="ESTABLISHED", duration_us=before_ms * 1000, at_ms=1_000, **own)
    c.say("session", detail="TIMED_OUT", duration_us=heard_ms * 1000, at_ms=60_000, **own)
    c.say("session", detail="EXPIRED", at_ms=61_000, **own)
    c.say("session", detail="ESTABLISHED", duration_us=then_ms * 1000, at_ms=90_000, **own)
    return c


def logged_twice(cluster: str) -> Controller:
    """Twelve rebalances, in the file that was copied away and in the one that goes on."""
    c = rebalances(cluster, 12, 60_000, members=3)
    c.records += [{**record, "file": "server.log.1"} for record in c.records if record["kind"] == "group_rebalance"]
    return c


def unclean_twice(cluster: str) -> Controller:
    """Two days apart."""
    c = controller(cluster)
    c.created("t", replicas=(1, 2))
    c.isr("t", 1, 0, (1,), 1, replicas=[1, 2], at_ms=5_000)
    version, epoch = 1, 0
    for at_ms in (10_000, 10_000 + 48 * HOUR_MS):
        c.say("broker", broker=1, detail="dead", at_ms=at_ms)
        c.moved("t", ON, OFF, 1, epoch, (1,), version, (1, 2))
        c.moved("t", OFF, ON, 2, epoch + 1, (2,), version + 1, (1, 2), detail="unclean", at_ms=at_ms + 500)
        c.say("broker", broker=1, detail="added", at_ms=at_ms + 1_000)
        c.isr("t", 2, epoch + 1, (2, 1), version + 2, replicas=[1, 2], at_ms=at_ms + 2_000)
        c.moved("t", ON, ON, 1, epoch + 2, (2, 1), version + 3, (1, 2), at_ms=at_ms + 3_000)
        c.isr("t", 1, epoch + 2, (1,), version + 4, replicas=[1, 2], at_ms=at_ms + 4_000)
        version, epoch = version + 4, epoch + 2
    return c


def controller_unheard(cluster: str, hours: float) -> Controller:
    """The controller's log ends, and a broker's goes on: it is unknown whether the replica joined."""
    c = controller(cluster)
    c.created("t")
    c.say("reassigning", detail="4", replicas=[1, 2, 3, 4], at_ms=10_000, topic="t", partition=0)
    c.say("other", at_ms=20_000)
    for record in c.records:
        record["source"] = "state-change.log" if record.get("topic") else "controller.log"
    c.say("other", at_ms=10_000 + hours * HOUR_MS, node=2, process="broker-2", **LOG)
    return c


def reassigned(cluster: str, *, joins: bool, ends: bool, hours: float) -> Controller:
    c = controller(cluster)
    c.created("t")
    common = {"topic": "t", "partition": 0, **LOG}
    c.say("reassigning", detail="4", replicas=[1, 2, 3, 4], at_ms=10_000, **common)
    if joins:
        c.isr("t", 1, 0, (1, 2, 3, 4), 1, at_ms=20_000, replicas=[1, 2, 3, 4])
    if ends:
        c.say("reassigning", detail="", replicas=[1, 2, 4], at_ms=21_000, **common)
    c.say("event", event="Other", at_ms=10_000 + hours * HOUR_MS)
    return c


def grown(cluster: str, hours: float) -> Controller:
    """A journal tells by the replicas."""
    c = controller(cluster)
    c.created("t")
    c.moved("t", ON, ON, 1, 1, (1, 2, 3), 1, (1, 2, 3, 4), at_ms=10_000)
    c.say("event", event="Other", at_ms=10_000 + hours * HOUR_MS)
    return c


def outranked(cluster: str, *, successor: bool) -> Controller:
    c = Controller(cluster=cluster)
    c.elected(11)
    c.say("failed", topic="t", partition=0, detail=ABORTED.format(epoch=100), at_ms=50_000, **LOG)
    if successor:  # then it was only late to know
        c.say("elected", node=2, at_ms=40_000, **LOG, epoch=100, controller_epoch=100)
    return c


def from_outside(cluster: str, how: str) -> Controller:
    c = controller(cluster)
    c.created("t", replicas=(1, 2))
    c.isr("t", 1, 0, (1,), 1, replicas=[1, 2], at_ms=5_000)
    c.say("broker", broker=1, detail="dead", at_ms=10_000)
    c.moved("t", ON, OFF, 1, 0, (1,), 1, (1, 2))
    c.moved("t", OFF, ON, 2, 1, (2,), 2, (1, 2), detail=f"strategy, {how}", at_ms=10_500)
    return c


def after_a_rollback(cluster: str, first: int, then: int) -> Controller:
    c = controller(cluster, first)
    c.say("elected", node=2, epoch=then, controller_epoch=then, at_ms=60_000)
    return c


def bugs(cluster: str) -> Controller:
    c = controller(cluster)
    for n in range(3):
        c.say("known_bug", event="KAFKA-2729", broker=2, topic="t", partition=n % 2, at_ms=10_000 + n, **LOG)
    c.say("known_bug", event="KAFKA-7165", broker=3, at_ms=20_000, **LOG)
    return c


CASES = (
    shrinks("thrashing", 6, 60_000),
    shrinks("shrinks at times", 6, HOUR_MS),
    shrinks("shrinks of deaths", 8, 60_000, dies=True),
    bursts("thrashing on two days", 10_000, 10_000 + 48 * HOUR_MS),
    by_turns("shrinks by turns"),
    rebalances("storm", 20, 60_000, members=4),
    rebalances("storm of many", 121, 20_000, members=40),
    rebalances("storm of unknown size", 61, 50_000),
    rebalances("rolling restart", 19, 60_000, members=4),
    rebalances("rolling restart of many", 120, 20_000, members=40),
    rebalances("rolling restart of unknown size", 60, 50_000),
    rebalances("restarts of brokers", 40, 89_000, members=3, restarts_every=1),
    rebalances("storm beside restarts", 40, 121_000, members=3, restarts_every=10),
    rebalances("a day", 40, HOUR_MS // 2, members=4),
    two_groups("two groups"),
    logged_twice("logged twice"),
    paused("paused", 11_000, expired=True),
    paused("zookeeper away", 4_011, expired=True),
    paused("zookeeper cut off", 6_010, expired=True),
    paused("paused and kept", 9_500, expired=False),
    session_changed("paused, then longer sessions", 6_000, 11_000, 18_000),
    session_changed("zookeeper away, then shorter sessions", 18_000, 12_011, 6_000),
    reassigned("stuck", joins=False, ends=False, hours=2),
    reassigned("joined", joins=True, ends=False, hours=2),
    reassigned("over", joins=True, ends=True, hours=2),
    reassigned("under way", joins=False, ends=False, hours=0.5),
    controller_unheard("controller unheard", 3),
    grown("stuck by state", 3),
    grown("under way by state", 0.5),
    outranked("outranked", successor=False),
    outranked("deposed", successor=True),
    from_outside("unclean", "unclean"),
    from_outside("complete", "complete"),
    from_outside("eligible", "eligible"),
    unclean_twice("unclean twice"),
    after_a_rollback("rolled back", 100, 11),
    after_a_rollback("failover", 10, 11),
    bugs("bugs"),
)


@pytest.fixture(scope="module")
def problems(spark: Any) -> dict[str, list[dict[str, Any]]]:
    records = [record for case in CASES for record in case.records]
    rows = found(tables(spark, records)["problems"])
    return {case.cluster: [row for row in rows if row["cluster"] == case.cluster] for case in CASES}


def test_each_problem_is_found_once_and_nothing_else(problems: dict[str, list[dict[str, Any]]]) -> None:
    named = {cluster: sorted(row["problem"] for row in rows) for cluster, rows in problems.items() if rows}
    assert named == {
        "thrashing": ["isr_thrashing"],
        "thrashing on two days": ["isr_thrashing", "isr_thrashing"],
        "storm": ["rebalance_storm"],
        "storm of many": ["rebalance_storm"],
        "storm of unknown size": ["rebalance_storm"],
        "storm beside restarts": ["rebalance_storm"],
        "paused": ["session_lost_to_pause"],
        "paused, then longer sessions": ["session_lost_to_pause"],
        "stuck": ["stuck_reassignment"],
        "stuck by state": ["stuck_reassignment"],
        "outranked": ["epoch_regression"],
        "unclean": ["unclean_election"],
        "unclean twice": ["unclean_election", "unclean_election"],
        "rolled back": ["epoch_regression"],
        "bugs": ["broker_id_taken", "stale_zk_version"],
    }


def test_every_finding_has_its_records_its_time_and_advice(problems: dict[str, list[dict[str, Any]]]) -> None:
    for case in CASES:
        places = {record["reference"] for record in case.records}
        first, last = case.records[0]["ts_us"], max(record["ts_us"] for record in case.records)
        for row in problems[case.cluster]:
            assert row["evidence"], row
            assert set(row["evidence"]) <= places, row
            assert first <= row["from_us"] <= row["to_us"] <= last, row
            assert row["advice"].endswith("."), row
            assert row["words"], row


def test_only_the_hours_of_a_problem_are_counted(problems: dict[str, list[dict[str, Any]]]) -> None:
    for row in problems["thrashing on two days"]:
        assert row["times"] == 6, row
        assert row["to_us"] - row["from_us"] == (5 * 150_000 + 1000) * 1000, row
    first, second = problems["thrashing on two days"]
    assert second["from_us"] - first["from_us"] == 48 * HOUR_MS * 1000
    (storm,) = problems["storm beside restarts"]
    assert storm["times"] == 36


def test_words_say_who_how_often_and_how_long(problems: dict[str, list[dict[str, Any]]]) -> None:
    words = {row["problem"]: row["words"] for rows in problems.values() for row in rows}
    words |= {
        row["problem"]: row["words"] for name in ("thrashing", "storm", "paused", "unclean") for row in problems[name]
    }
    assert words["isr_thrashing"] == "broker 3 left the ISR of 1 partition 6 times while it was alive"
    assert words["rebalance_storm"] == "consumer group billing of 4 members rebalanced 20 times"
    assert words["session_lost_to_pause"] == (
        "broker 2 was paused for up to 11.0 s and lost its ZooKeeper session of 6.0 s once"
    )
    assert words["unclean_election"] == (
        "1 partition got a leader from outside the ISR after broker 1 was lost: data may be lost"
    )
    assert words["stale_zk_version"] == (
        "broker 2 could not change the ISR of 2 partitions: its version of the state is not ZooKeeper's (KAFKA-2729)"
    )
    (stuck,) = problems["stuck"]
    assert "t-0 did not change for 2.0 h" in stuck["words"]
    assert (stuck["topic"], stuck["partition"], stuck["partitions"]) == ("t", 0, 1)
    (regressed,) = problems["rolled back"]
    assert regressed["words"].startswith("controller 2 was elected with epoch 11 after epoch 100: brokers")
    (given_up,) = problems["outranked"]
    assert given_up["words"] == (
        "controller 1 of epoch 11 elected no leader for 1 partition, whose states have epoch 100"
    )
