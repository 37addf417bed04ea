"""The count of a load client's records: what it must notice, and the gaps between acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aiocontroller.lab.cluster.load.clients import kept_its_word
from aiocontroller.lab.cluster.load.tally import LoadVerdict, Tally

READ_BY_ALL = [f"c {who} 0 0 9 5000" for who in ("plain", "group", "readback")]


def acks(sequences: Sequence[int], partition: int = 0, every_us: int = 1000) -> list[str]:
    return [f"a {partition} {s} {s * every_us} {s * every_us + 100}" for s in sequences]


def tally_of(*lines: str, partitions: int = 1) -> Tally:
    tally = Tally(partitions)
    tally.feed(lines)
    return tally


def test_what_all_have_read_once_and_in_order_is_whole() -> None:
    tally = tally_of(*acks(range(10)), *READ_BY_ALL, "end")
    assert tally.verdict() == LoadVerdict(10, 0, 0, 0, 0, ())
    assert tally.verdict().ok
    assert tally.ended


@pytest.mark.parametrize("who", ["plain", "group", "readback"])
def test_a_record_that_any_consumer_misses_is_lost(who: str) -> None:
    others = [line for line in READ_BY_ALL if f" {who} " not in line]
    tally = tally_of(*acks(range(10)), *others, f"c {who} 0 0 4 5000", f"c {who} 0 6 9 5000")
    assert tally.verdict().lost == 1
    assert not tally.verdict().ok


def test_a_record_past_the_end_of_what_was_read_is_lost() -> None:
    assert tally_of(*acks(range(11)), *READ_BY_ALL).verdict().lost == 3


def test_lost_records_have_a_time() -> None:
    """Records 10 to 12 were acknowledged and never read; the time is that of the acknowledgement."""
    tally = tally_of(*acks(range(13)), *READ_BY_ALL)
    assert tally.lost_between(0, 20_000) == tally.verdict().lost == 9
    assert tally.lost_between(10_101, 12_100) == 3
    assert tally.lost_between(0, 10_100) == 0


def test_a_record_that_was_not_acknowledged_may_be_missing_or_there() -> None:
    assert tally_of(*acks([0, 1, 2, 9]), *READ_BY_ALL).verdict().ok
    assert tally_of(*acks([0]), *(f"c {w} 0 0 0 1" for w in ("plain", "group", "readback"))).verdict().ok


def test_doubled_is_a_fault_but_for_the_group() -> None:
    again = tally_of(*acks(range(10)), *READ_BY_ALL, "c plain 0 3 4 6000", "c group 0 0 9 6000")
    assert (again.verdict().doubled, again.verdict().redelivered) == (2, 10)
    assert not again.verdict().ok
    assert tally_of(*acks(range(10)), *READ_BY_ALL, "c group 0 5 9 6000").verdict().ok


def test_a_number_that_comes_after_a_higher_one_is_out_of_order() -> None:
    turned = ["c plain 0 0 3 1", "c plain 0 5 9 1", "c plain 0 4 4 1"]
    tally = tally_of(*acks(range(10)), *READ_BY_ALL[1:], *turned)
    assert tally.verdict() == LoadVerdict(10, 0, 0, 1, 0, ())


def test_errors_and_noise_are_distinguished() -> None:
    tally = tally_of("e producer 0 77 org.x.Error: it failed", "Exception in thread main", *READ_BY_ALL)
    assert tally.verdict().errors == ("producer: org.x.Error: it failed",)
    assert (tally.errors[0].partition, tally.errors[0].at_us) == (0, 77)
    assert tally.noise == ["Exception in thread main"]


@pytest.mark.parametrize(
    "kind, verdict, kept",
    [
        ("java", LoadVerdict(9, 0, 0, 0, 3, ("an error",)), True),
        ("java", LoadVerdict(9, 1, 0, 0, 0, ()), False),
        ("java", LoadVerdict(9, 0, 1, 0, 0, ()), False),
        ("java", LoadVerdict(9, 0, 0, 1, 0, ()), False),
        ("librdkafka", LoadVerdict(9, 0, 1, 0, 0, ()), True),
        ("librdkafka", LoadVerdict(9, 1, 1, 0, 0, ()), False),
    ],
)
def test_a_cluster_keeps_its_word(kind: str, verdict: LoadVerdict, kept: bool) -> None:
    """What librdkafka sends twice under two producer epochs is its own doing."""
    assert kept_its_word({"java": LoadVerdict(1, 0, 0, 0, 0, ()), kind: verdict}) == kept


def test_acknowledged_since_asks_when_the_record_was_sent() -> None:
    """One that was under way when it happened says nothing about afterwards."""
    tally = tally_of("a 0 0 100 900", "a 1 0 600 700", partitions=3)
    assert tally.acknowledged_since(500) == {1}


def test_a_gap_that_begins_before_the_stretch_counts_whole() -> None:
    tally = tally_of("a 0 0 0 1000", "a 0 1 0 2000", "a 0 2 0 9000", "a 0 3 0 9500")
    assert tally.longest_gap_us(0, 3000, 9600) == 7000
    assert tally.longest_gap_us(0, 9100, 9600) == 500


def test_a_gap_that_has_not_ended_counts_up_to_the_end() -> None:
    tally = tally_of("a 0 0 0 1000", partitions=2)
    assert tally.longest_gap_us(0, 500, 8000) == 7000
    assert tally.longest_gap_us(0, 2000, 8000) == 7000
    assert tally.longest_gap_us(1, 2000, 8000) == 6000  # nothing at all was acknowledged


def test_a_partition_flows_after_its_last_long_gap() -> None:
    tally = Tally(2)
    tally.feed(f"a 0 {n} {at} {at}" for n, at in enumerate((1000, 2000, 9000, 9500, 13_500, 14_000)))
    assert tally.flows_after_us(0, 3000, 14_200, 3000) == 13_500 - 3000
    assert tally.flows_after_us(0, 3000, 13_000, 3000) == 13_000 - 3000, "it has not ended"
    assert tally.flows_after_us(0, 3000, 14_200, 5000) == 9000 - 3000
    assert tally.flows_after_us(0, 3000, 14_200, 8000) == 0
    assert tally.flows_after_us(1, 3000, 14_200, 3000) == 14_200 - 3000, "nothing at all was acknowledged"


def test_latencies_are_those_of_records_sent_within_the_time() -> None:
    tally = tally_of("a 0 0 100 150", "a 0 1 200 290", "a 0 2 300 310", "a 1 0 199 999", "a 1 1 200 207", partitions=2)
    assert tally.latencies_us(200, 300) == [90, 7]
    assert tally.latencies_us(400, 500) == []
