"""Histories that never were, drawn from numbers: what a controller might record of its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.integration.analytics.gold.build import NEW, NONE, OFF, ON, T0, Controller

REPLICAS = (1, 2, 3)


class _Partition:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.state, self.leader, self.leader_epoch, self.version = NONE, -1, 0, 0
        self.isr: tuple[int, ...] = REPLICAS

    def step(self, c: Controller, choice: int) -> None:
        """One of the things that may happen next, as the state machine allows."""
        if self.state == NONE:
            self.state, self.leader, self.leader_epoch, self.version, self.isr = NEW, -1, 0, 0, REPLICAS
            c.moved(self.topic, NONE, NEW)
        elif self.state == NEW:
            self._become(c, ON, REPLICAS[choice % 3], REPLICAS, first=True)
        elif self.state == OFF and choice % 7 == 0:
            c.moved(self.topic, OFF, NONE)
            self.state = NONE
        elif self.state == OFF and choice % 3 == 0:
            self._become(c, OFF, -1, self.isr[:1])
        elif self.state == OFF:
            self._become(c, ON, self.isr[choice % len(self.isr)], self.isr)
        elif choice % 4 == 0:
            c.moved(self.topic, ON, OFF, self.leader, self.leader_epoch, self.isr, self.version)
            self.state = OFF
        elif choice % 4 == 1:
            self._become(c, ON, self.isr[choice % len(self.isr)], self.isr)
        else:  # the leader asks for another ISR
            self.version += 1
            self.isr = REPLICAS if choice % 4 == 2 else (self.leader,)
            c.isr(self.topic, self.leader, self.leader_epoch, self.isr, self.version)

    def _become(self, c: Controller, state: str, leader: int, isr: Sequence[int], first: bool = False) -> None:
        if not first:
            self.leader_epoch, self.version = self.leader_epoch + 1, self.version + 1
        before, self.state, self.leader, self.isr = self.state, state, leader, tuple(isr)
        c.moved(self.topic, before, state, leader, self.leader_epoch, isr, self.version)


def history(choices: Sequence[int], topics: int, terms: int = 2) -> list[dict[str, Any]]:
    """Records of ``terms`` controllers one after the other; ``choices`` say what happens to which topic."""
    partitions = [_Partition(f"t{n}") for n in range(topics)]
    records: list[dict[str, Any]] = []
    for term in range(terms):
        c = Controller(1 + term % 2, start_us=T0 + term * 10_000_000, cluster="default")
        c.elected(term + 1)
        c.say("failover", event="read", duration_us=100 + term)
        for at, choice in enumerate(choices[term::terms]):
            partitions[choice % topics].step(c, choice // topics)
            if at % 5 == 0:
                c.say("event", event="BrokerChange", queue_us=choice % 1000, processing_us=choice % 777)
                c.say("request", broker=choice % 3, broker_epoch=5, api="UPDATE_METADATA", partitions=1, bytes=9)
                c.say("response", broker=choice % 3, broker_epoch=5, api="UPDATE_METADATA", duration_us=choice % 99)
        records += c.records
    return records


def windows(records: Sequence[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """(topic, is it unavailability, first record's time, last one's or None), by going through them one by one."""
    found: set[tuple[Any, ...]] = set()
    for topic in {r["topic"] for r in records if r["kind"] in ("partition", "isr")}:
        down_since = under_since = None
        was, was_epoch = "gone", 0
        replicas: list[int] = []
        for r in records:
            if r.get("topic") != topic or r["kind"] not in ("partition", "isr"):
                continue
            replicas = r.get("replicas") or replicas
            gone = r.get("to_state") == NONE
            led = r.get("to_state", ON) == ON and (r.get("leader") or -1) >= 0
            now = "gone" if gone else "up" if led else "down"
            unseen = r.get("from_state") == OFF and now != "gone" and was == "up" and r["epoch"] > was_epoch
            if unseen or (now == "down" and was != "down"):
                down_since = r["ts_us"]
            if now != "down" and (was == "down" or unseen):
                found.add((topic, True, down_since, r["ts_us"]))
                down_since = None
            under = not gone and r.get("isr") is not None and len(r["isr"]) < len(replicas)
            if under and under_since is None:
                under_since = r["ts_us"]
            if not under and under_since is not None:
                found.add((topic, False, under_since, r["ts_us"]))
                under_since = None
            was, was_epoch = now, r["epoch"]
        if was == "down":
            found.add((topic, True, down_since, None))
        if under_since is not None:
            found.add((topic, False, under_since, None))
    return found


def churn(records: Sequence[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, leader) -> (leader changes, ISR changes)."""
    counts: dict[tuple[str, int], tuple[int, int]] = {}
    last: dict[str, tuple[int | None, list[int] | None]] = {}
    for r in records:
        if r["kind"] not in ("partition", "isr"):
            continue
        leader, isr = r.get("leader"), r.get("isr")
        old_leader, old_isr = last.get(r["topic"], (None, None))
        moved = int(leader is not None and leader >= 0 and old_leader is not None and leader != old_leader)
        changed = int(isr is not None and old_isr is not None and sorted(isr) != sorted(old_isr))
        if moved or changed:
            a, b = counts.get((r["topic"], leader), (0, 0))
            counts[r["topic"], leader] = (a + moved, b + changed)
        last[r["topic"]] = (leader, isr)
    return counts
