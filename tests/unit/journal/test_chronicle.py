"""Sentences of events, from the records that they leave."""

from __future__ import annotations

import pytest

from aiocontroller.journal.chronicle import EVENTS_KEPT, FAILOVERS_KEPT, Chronicle
from aiocontroller.journal.journal import MemoryJournal, NullJournal
from aiocontroller.journal.kinds import KINDS
from aiocontroller.journal.records import PartitionColumns
from aiocontroller.net.real import real_world


def columns(n: int, before: str, after: str) -> PartitionColumns:
    none = [None] * n
    return PartitionColumns(
        ["t"] * n, [*range(n)], [before] * n, [after] * n, none, none, none, [()] * n, none, none, none
    )


@pytest.fixture
def journal() -> MemoryJournal:
    made = MemoryJournal(1, real_world().clock)
    made.listener = Chronicle()
    return made


def chronicle(journal: MemoryJournal) -> Chronicle:
    assert isinstance(journal.listener, Chronicle)
    return journal.listener


def texts(journal: MemoryJournal) -> list[str]:
    return [each.text for each in chronicle(journal).events]


def test_a_broker_dies(journal: MemoryJournal) -> None:
    journal.append("broker", broker=2, detail="dead")
    journal.append_partitions("partition", columns(3, "OnlinePartition", "OfflinePartition"))
    journal.append_partitions("partition", columns(1, "OfflinePartition", "OfflinePartition"))
    journal.append_partitions("partition", columns(2, "OfflinePartition", "OnlinePartition"), detail="Offline…Strategy")
    journal.append_partitions("partition", columns(1, "OnlinePartition", "OnlinePartition"), detail="OfflineReplica")
    causes = chronicle(journal).event_ended(7, 1_500, "")
    text = "broker 2 died: 3 partitions lost their leader, 2 leaders elected, 1 ISR lost a replica, in 1.5 ms"
    assert (texts(journal), chronicle(journal).events[0].at_us) == ([text], 7)
    assert causes == ["broker 2 died: 3 partitions lost their leader, 2 leaders elected"]
    assert len(journal.records) == 8


def test_a_failed_disk_is_a_cause(journal: MemoryJournal) -> None:
    journal.append("broker", broker=3, detail="log directory failed")
    journal.append_partitions("partition", columns(1, "OnlinePartition", "OfflinePartition"))
    text = "a log directory of broker 3 failed: 1 partition lost its leader"
    assert chronicle(journal).event_ended(7, 1_500, "") == [text]


def test_the_begin_of_a_deletion_is_no_loss_of_leaders(journal: MemoryJournal) -> None:
    journal.append_partitions("partition", columns(2, "OnlinePartition", "OfflinePartition"), detail="deletion")
    journal.append_partitions("partition", columns(2, "OfflinePartition", "NonExistentPartition"))
    assert chronicle(journal).event_ended(1, 5, "") == []
    assert texts(journal) == ["2 partitions to be deleted, in 5 µs"]


def test_what_does_nothing_is_not_told(journal: MemoryJournal) -> None:
    journal.append("request", broker=1)
    journal.append("event", event="Audit")
    journal.append_partitions("partition", columns(0, "", ""))
    assert chronicle(journal).event_ended(1, 5, "") == []
    assert texts(journal) == []


def test_one_is_singular(journal: MemoryJournal) -> None:
    journal.append_partitions("partition", columns(1, "OnlinePartition", "OfflinePartition"))
    journal.append_partitions("isr", columns(1, "OnlinePartition", "OnlinePartition"))
    chronicle(journal).event_ended(1, 5, "fault: x")
    assert texts(journal) == ["1 partition lost its leader, 1 ISR changed by its leaders; fault: x, in 5 µs"]


def test_a_failover_with_its_steps(journal: MemoryJournal) -> None:
    journal.append("elected", controller_epoch=5)
    journal.append("failover", event="read", duration_us=7)
    journal.append("loaded", partitions=1000, count=9, brokers=[1])
    journal.append("reload", event="read", duration_us=7)
    chronicle(journal).event_ended(1, 2_000_000, "")
    journal.append("resigned", controller_epoch=5)
    chronicle(journal).event_ended(2, 1, "")
    assert texts(journal) == [
        "this controller took the role, epoch 5: loaded 9 topics with 1,000 partitions, in 2.00 s",
        "this controller lost the role, epoch 5, in 1 µs",
    ]
    [failover] = chronicle(journal).failovers
    assert (failover.epoch, failover.partitions, [step.step for step in failover.steps]) == (5, 1000, ["read"])
    assert failover.ended_us is not None


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_of_any_kind_breaks_it(journal: MemoryJournal, kind: str) -> None:
    events = ("alarm", "sick", "held", "elected", "relieved", "paid", None)
    for event in events:
        for detail in ("dead", "added", "cancelled", "x", None):
            journal.append(kind, event=event, detail=detail)
    journal.append(kind)
    journal.append_partitions(kind, columns(1, "NewPartition", "OnlinePartition"), detail=None)
    chronicle(journal).event_ended(1, 1, "")


def test_it_hears_of_a_journal_that_is_not_kept() -> None:
    journal = NullJournal(1, real_world().clock)
    journal.listener = listener = Chronicle()
    journal.append("session", detail="EXPIRED")
    assert [each.text for each in listener.events] == ["session with ZooKeeper: expired"]


def test_what_is_kept_is_bounded(journal: MemoryJournal) -> None:
    for at in range(3 * EVENTS_KEPT):
        journal.append("elected", controller_epoch=at)
        for _ in range(50):
            journal.append("topic_deleted", topic="t" * 249)
        chronicle(journal).event_ended(at, 1, "")
    assert len(chronicle(journal).events) == EVENTS_KEPT
    assert len(chronicle(journal).failovers) == FAILOVERS_KEPT
    assert max(map(len, texts(journal))) < 3_500


def test_what_was_done_counts_for_the_pace_and_what_was_given_up_does_not(journal: MemoryJournal) -> None:
    listener = chronicle(journal)
    listener.reassignments.left(1, 3)
    listener.deletions.left(1, 1)
    journal.append("reassigned", topic="t", partition=0, replicas=[1])
    journal.append("reassigned", topic="t", partition=1, replicas=[1], detail="cancelled")
    journal.append("topic_deleted", topic="u")
    assert (listener.reassignments.expectation(2, 1).ended, listener.deletions.expectation(2, 1).ended) == (1, 1)
