"""A cluster's day, made by hand: what the page's tests look at."""

from __future__ import annotations

from typing import Any

from aiocontroller.analytics.report.gather import Cluster, Content

DAY_US = 1_790_000_000_000_000
HOUR_US = 3_600_000_000
S = 1_000_000


def row(**values: Any) -> dict[str, Any]:
    return values


def incident(number: int, **values: Any) -> dict[str, Any]:
    """Broker 2, which was the controller too, was killed; after 6.9 s its partitions were led again."""
    onset_us = DAY_US + HOUR_US + number * 60 * S
    known = row(
        number=number, what="broker and controller", broker=2, how="killed", cause="broker_death", certainty="certain",
        onset_us=onset_us, onset_error_us=45_000, onset_evidence="peers", session_end_us=onset_us + 6 * S,
        noticed_us=onset_us + 6 * S, controller_before=2, controller_after=3, controller_epoch=8,
        elected_us=onset_us + 6 * S + 200_000, led_again_us=onset_us + 6 * S + 900_000,
        in_sync_us=onset_us + 400 * S, partitions=400, topics=14, under_replicated=800, unavailable_us=2_700 * S,
        longest_us=6_900_000, still_open=0, evidence=["broker-3/server.log:812", "broker-3/controller.log:77"],
    )  # fmt: skip
    return known | values


def cluster(name: str = "prod", *, hours: int = 8) -> Cluster:
    bins = 600
    found = Cluster(name, DAY_US, DAY_US + hours * HOUR_US, 1200, 4_310 * S, 0.999875)
    found.topics_seen = 14
    found.bin_us = hours * HOUR_US // bins
    found.without_leader = [400 if 100 <= i < 103 else 12 if i == 300 else 0 for i in range(bins)]
    found.under_replicated = [800 if 100 <= i < 140 else 0 for i in range(bins)]
    found.causes = [
        row(kind="dead_leader", cause="broker_death", broker=2, windows=400, partitions=400, total_us=4_000 * S,
            longest_us=11 * S, still_open=0),
        row(kind="no_leader", cause="controller_failover", broker=None, windows=12, partitions=12, total_us=310 * S,
            longest_us=31 * S, still_open=1),
    ]  # fmt: skip
    found.windows = [
        row(topic="orders<b>", partition=7, start_us=DAY_US + 4 * HOUR_US, end_us=None, duration_us=31 * S,
            kind="no_leader", cause="controller_failover", broker=None, leader_before=3, leader_after=None,
            error_us=1500, evidence=["1000001-1:88", "1000001-1:91"]),
        row(topic="payments", partition=0, start_us=DAY_US + HOUR_US, end_us=DAY_US + HOUR_US + 11 * S,
            duration_us=11 * S, kind="dead_leader", cause="broker_death", broker=2, leader_before=2, leader_after=1,
            error_us=0, evidence=["1000001-1:12"]),
    ]  # fmt: skip
    found.onset_availability, found.onset_unavailable_us, found.onset_error_us = 0.99981, 6_700 * S, 18 * S
    found.incidents = [
        incident(1),
        incident(2, what="partitions", broker=None, how="unknown", cause="controller_failover", certainty="unknown",
                 onset_error_us=0, onset_evidence="controller", noticed_us=DAY_US + 4 * HOUR_US,
                 onset_us=DAY_US + 4 * HOUR_US, elected_us=None, led_again_us=None, in_sync_us=None, partitions=12,
                 topics=1, under_replicated=0, unavailable_us=31 * S, longest_us=31 * S, still_open=1, evidence=[]),
    ]  # fmt: skip
    found.incidents_count = 2
    found.completeness = [
        row(what="broker", name="4", known=False, words="no log of broker 4, which other records name"),
        row(
            what="availability", name="cluster", known=True, words="every controller term is recorded by its controller"
        ),
    ]
    found.problems = [
        row(problem="unclean_election", broker=2, topic=None, partition=None, from_us=DAY_US + HOUR_US,
            to_us=DAY_US + HOUR_US + 60 * S, times=3, partitions=3, advice="Compare offsets.",
            words="3 partitions got a leader from outside the ISR after broker 2 was lost: data may be lost",
            evidence=["broker-3/state-change.log:2026-11-23 02:09:58,094"]),
        row(problem="rebalance_storm", broker=None, topic=None, partition=None, from_us=DAY_US + 2 * HOUR_US,
            to_us=DAY_US + 3 * HOUR_US, times=40, partitions=None, advice="Look for members that restart.",
            words="consumer group <billing> rebalanced 40 times", evidence=["broker-1/server.log:x"]),
    ]  # fmt: skip
    found.problems_count = 2
    found.turns = {"died": 1, "came_back": 1, "shutdown": 1, "came": 6}
    found.elections = 3
    steps = ("brokers", "topics", "states", "requests")
    found.failovers = [
        row(node=1000001 + n % 2, epoch=n + 1, elected_us=DAY_US + n * 2 * HOUR_US, loaded_us=0,
            duration_us=90_000 * (n + 1), partitions=1200, brokers=6, topics=14,
            phases=[(step, 20_000 * (n + 1) + 900 * i) for i, step in enumerate(steps)])
        for n in range(3)
    ]  # fmt: skip
    found.life = [
        row(broker=2, broker_epoch=41, event="died", ts_us=DAY_US + HOUR_US, partitions_led=400, processing_us=21_000,
            windows=400, longest_window_us=11 * S),
        row(broker=2, broker_epoch=77, event="came_back", ts_us=DAY_US + HOUR_US + 400 * S, partitions_led=0,
            processing_us=9_000, windows=None, longest_window_us=None),
        row(broker=5, broker_epoch=43, event="shutdown", ts_us=DAY_US + 6 * HOUR_US, partitions_led=190,
            processing_us=15_000, windows=0, longest_window_us=None),
    ]  # fmt: skip
    found.latencies = [
        row(what="processing", name=name, broker=None, count=900 // (i + 1), p50_us=300 * (i + 1),
            p99_us=9_000 * (i + 1), p999_us=20_000 * (i + 1), max_us=45_000 * (i + 1), mean_us=900)
        for i, name in enumerate(("AlterPartitionReceived", "BrokerChange", "TopicChange"))
    ]  # fmt: skip
    found.requests = [
        row(broker=1, api="LEADER_AND_ISR", count=20, partitions=2400, bytes=122_400, errors=0, unanswered=1,
            p50_us=4_000, p99_us=90_000, max_us=91_000)
    ]  # fmt: skip
    found.churn_by_hour = hours >= 6
    xs = [DAY_US + h * HOUR_US for h in range(hours)] if found.churn_by_hour else [1, 2, 3]
    found.churn = [row(topic=t, x=x, changes=3 + i) for t in ("orders", "payments") for i, x in enumerate(xs)]
    found.imbalance = [
        row(broker=b, ts_us=DAY_US + h * HOUR_US, imbalance=0.1 * b / (h + 1)) for b in (1, 2) for h in range(hours)
    ]
    found.worst_topics = [
        row(name="orders", availability=0.9991, unavailable_us=310 * S, partitions=12, level="topic"),
    ]
    found.broker_accounts = [
        row(name="2", availability=0.9995, unavailable_us=4_000 * S, partitions=400, level="broker")
    ]
    return found


def content(**changes: Any) -> Content:
    whole = Content(
        clusters=[cluster()],
        more_clusters=0,
        quality=[row(file="/data/journal-1.jsonl", source="journal", records=900, quarantined=1, torn=1, duplicates=0,
                     gaps=0, words="its last line is cut short")],
        quarantine=[row(file="/data/journal-1.jsonl", reason="torn", count=1, line='{"v":1,"seq":9')],
        records=120_000,
        quarantined=1,
        files=4,
        whole_files=3,
        remarks=[row(words="times without a zone were taken as UTC", files=[f"{n}/server.log" for n in range(7)])],
    )  # fmt: skip
    for name, value in changes.items():
        setattr(whole, name, value)
    return whole
