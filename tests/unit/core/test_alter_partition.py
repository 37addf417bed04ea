"""AlterPartition: Kafka's error matrix (``ControllerIntegrationTest.testAlterPartitionErrors`` and its kin)."""

from __future__ import annotations

from collections import deque
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from aiocontroller.core.alter_partition import (
    AlterPartitionResult,
    IsrVerdict,
    check_partition,
    check_request,
    judge,
    refused_non_replicas,
    resolve,
    results,
    take_disjoint,
)
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import AlterPartitionReceived
from aiocontroller.core.ids import NO_TOPIC_ID, RECOVERED, RECOVERING, LeaderAndIsr
from aiocontroller.core.request_content import AlterPartition
from tests.builders import ctx, lead, leadership, topic_id


def cluster(*, recovery_state: int = RECOVERED, isr: tuple[int, ...] = (1, 2)) -> ControllerContext:
    """t-0 on 1, 2, 3, led by 1; leader epoch 5, partition epoch 9; broker 4 shuts down, 5 is dead."""
    context = ctx(5, {"t": [[1, 2, 3, 4, 5]]}, epoch=7, shutting_down=[4], dead=[5])
    lead(context, "t-0", 1, isr, leader_epoch=5, partition_epoch=9, recovery_state=recovery_state)
    return context


def change(**fields: Any) -> AlterPartition:
    usual = {"topic": "t", "partition": 0, "leader_epoch": 5, "isr": (1, 2, 3), "partition_epoch": 9}
    return AlterPartition(**{**usual, **fields})


def request(broker: int, epoch: int) -> AlterPartitionReceived:
    reply = Reply(lambda _: None)
    return AlterPartitionReceived(broker=broker, broker_epoch=epoch, version=3, partitions=(change(),), reply=reply)


# -- the request as a whole --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broker, epoch, error",
    [
        (1, 101, KafkaErrorCode.NONE),
        (4, 104, KafkaErrorCode.NONE),  # shutting down, but registered
        (1, 100, KafkaErrorCode.STALE_BROKER_EPOCH),
        (1, 102, KafkaErrorCode.STALE_BROKER_EPOCH),  # also a newer one: we have not seen it yet
        (5, 105, KafkaErrorCode.STALE_BROKER_EPOCH),
        (99, 1, KafkaErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_broker_epoch(broker: int, epoch: int, error: KafkaErrorCode) -> None:
    assert check_request(cluster(), request(broker, epoch)) == error


# -- which partition ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic, partition, found",
    [
        ("t", 0, (0, KafkaErrorCode.NONE)),
        (topic_id("t"), 0, (0, KafkaErrorCode.NONE)),
        ("t", 1, (-1, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        (topic_id("t"), 1, (-1, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        ("u", 0, (-1, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        (topic_id("u"), 0, (-1, KafkaErrorCode.UNKNOWN_TOPIC_ID)),
        (NO_TOPIC_ID, 0, (-1, KafkaErrorCode.UNKNOWN_TOPIC_ID)),
    ],
)
def test_resolving_a_partition(topic: str | bytes, partition: int, found: tuple[int, KafkaErrorCode]) -> None:
    context = cluster()
    assert resolve(context, topic, partition) == found
    if found[0] < 0:
        assert check_partition(context, change(topic=topic, partition=partition), 1, 3) == IsrVerdict(*found)


def test_a_topic_without_an_id_is_not_found_by_the_zero_id() -> None:
    context = cluster()
    context.table.add_topic("without")
    assert resolve(context, NO_TOPIC_ID, 0) == (-1, KafkaErrorCode.UNKNOWN_TOPIC_ID)


def test_a_partition_without_leadership_is_unknown() -> None:
    context = ctx(topics={"t": [[1, 2]]}, online=False)
    assert check_partition(context, change(), 1, 3).error_code is KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- the matrix --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields, error",
    [
        ({"partition_epoch": 10}, KafkaErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 6}, KafkaErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 10, "leader_epoch": 4}, KafkaErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4}, KafkaErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 4, "isr": (1, 2)}, KafkaErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 8}, KafkaErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 8, "isr": (2, 1)}, KafkaErrorCode.INVALID_UPDATE_VERSION),  # the order counts
        ({"isr": (1, 2, 3), "recovery_state": RECOVERING}, KafkaErrorCode.INVALID_REQUEST),
        ({"isr": (1,), "recovery_state": RECOVERING}, KafkaErrorCode.INVALID_REQUEST),  # it is RECOVERED
        ({"isr": (1, 4)}, KafkaErrorCode.INELIGIBLE_REPLICA),  # shutting down (KIP-841)
        ({"isr": (1, 5)}, KafkaErrorCode.INELIGIBLE_REPLICA),
        ({"isr": (1, 99)}, KafkaErrorCode.INELIGIBLE_REPLICA),
        ({"isr": ()}, KafkaErrorCode.INVALID_REQUEST),
        ({"isr": (1, 2, 2)}, KafkaErrorCode.INVALID_REQUEST),
        ({"isr": (2, 3)}, KafkaErrorCode.INVALID_REQUEST),  # without the leader
        ({"recovery_state": 7}, KafkaErrorCode.INVALID_REQUEST),
    ],
)
def test_alter_partition_errors(fields: dict[str, Any], error: KafkaErrorCode) -> None:
    assert check_partition(cluster(), change(**fields), 1, 3) == IsrVerdict(0, error)


@pytest.mark.parametrize(
    "version, error",
    [
        (1, KafkaErrorCode.OPERATION_NOT_ATTEMPTED),
        (2, KafkaErrorCode.INELIGIBLE_REPLICA),
        (3, KafkaErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_shutdown_broker_not_added_to_isr(version: int, error: KafkaErrorCode) -> None:
    assert check_partition(cluster(), change(isr=(1, 4)), 1, version) == IsrVerdict(0, error)


@pytest.mark.parametrize("replica", [4, 5])
def test_version_0_is_granted_with_a_broker_that_is_going(replica: int) -> None:
    """Brokers of 2.7 to 3.0 never ask again after such a refusal, and their own controllers did not refuse."""
    verdict = check_partition(cluster(), change(isr=(1, replica)), 1, 0)
    assert verdict.error_code == KafkaErrorCode.NONE
    assert verdict.write is not None
    assert verdict.write.isr == (1, replica)
    refused = check_partition(cluster(), change(isr=(1, 99)), 1, 0)
    assert refused.error_code == KafkaErrorCode.OPERATION_NOT_ATTEMPTED


@pytest.mark.parametrize("isr", [(1, 2, 3), (1,), (2, 1)])
def test_alter_partition(isr: tuple[int, ...]) -> None:
    """Leader and leader epoch stay; written under our controller epoch, on condition of the version that is there."""
    assert check_partition(cluster(), change(isr=isr), 1, 3) == IsrVerdict(
        0, KafkaErrorCode.NONE, leadership(1, isr, leader_epoch=5, controller_epoch=7, partition_epoch=9)
    )


@pytest.mark.parametrize("partition_epoch", [9, 8, 0])
def test_idempotent_alter_partition(partition_epoch: int) -> None:
    """What holds already is a success, also when the sender's partition epoch is old: its answer was lost."""
    again = change(isr=(1, 2), partition_epoch=partition_epoch)
    assert check_partition(cluster(), again, 1, 3) == IsrVerdict(0, KafkaErrorCode.NONE)


@pytest.mark.parametrize(
    "partition_epoch, error", [(9, KafkaErrorCode.INVALID_REQUEST), (8, KafkaErrorCode.INVALID_UPDATE_VERSION)]
)
def test_only_the_leader_is_told_that_its_isr_holds(partition_epoch: int, error: KafkaErrorCode) -> None:
    """Another broker led in the same epoch if a foreign write set the epoch back."""
    again = change(isr=(1, 2), partition_epoch=partition_epoch)
    assert check_partition(cluster(), again, 2, 3) == IsrVerdict(0, error)


def test_alter_partition_errors_after_unclean_election() -> None:
    context = cluster(recovery_state=RECOVERING, isr=(1,))
    assert check_partition(context, change(isr=(1, 2), recovery_state=RECOVERING), 1, 3).error_code == (
        KafkaErrorCode.INVALID_REQUEST
    )
    verdict = check_partition(context, change(isr=(1,), recovery_state=RECOVERING), 1, 3)
    assert verdict == IsrVerdict(0, KafkaErrorCode.NONE)
    for isr in ((1,), (1, 2)):
        verdict = check_partition(context, change(isr=isr, recovery_state=RECOVERED), 1, 3)
        assert verdict.write == leadership(
            1, isr, leader_epoch=5, controller_epoch=7, partition_epoch=9, recovery_state=RECOVERED
        )


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from((1, 2, 3, 4, 5)), max_size=4).map(tuple),
    st.integers(4, 6),
    st.integers(8, 10),
    st.sampled_from((RECOVERED, RECOVERING)),
    st.sampled_from((RECOVERED, RECOVERING)),
)
def test_whatever_is_written_keeps_the_leader_and_only_live_replicas(
    isr: tuple[int, ...], leader_epoch: int, partition_epoch: int, before: int, after: int
) -> None:
    context = cluster(recovery_state=before, isr=(1,))
    asked = change(isr=isr, leader_epoch=leader_epoch, partition_epoch=partition_epoch, recovery_state=after)
    verdict = check_partition(context, asked, 1, 3)
    if verdict.write is None:
        return
    assert verdict.error_code is KafkaErrorCode.NONE
    assert (leader_epoch, partition_epoch) == (5, 9)
    assert verdict.write == LeaderAndIsr(1, 5, isr, 7, 9, after)
    assert 1 in isr
    assert set(isr) <= context.live
    assert after == RECOVERED or (before == RECOVERING and isr == (1,))


def test_a_broker_that_does_not_lead_may_not_alter() -> None:
    """Kafka's controller would write the sender's wish."""
    assert check_partition(cluster(), change(), 2, 3) == IsrVerdict(0, KafkaErrorCode.INVALID_REQUEST)


# -- several requests --------------------------------------------------------------------------------------------------


def asking(broker: int, *partitions: AlterPartition, epoch: int | None = None) -> AlterPartitionReceived:
    broker_epoch = 100 + broker if epoch is None else epoch
    reply = Reply(lambda _: None)
    return AlterPartitionReceived(
        broker=broker, broker_epoch=broker_epoch, version=3, partitions=partitions, reply=reply
    )


def test_a_second_request_about_a_partition_waits_for_the_first() -> None:
    context = ctx(3, {"t": [[1, 2]] * 3})
    first, second = asking(1, change(), change(partition=9)), asking(2, change(topic=topic_id("t"), partition=1))
    stale, third, fourth = asking(3, change(), epoch=1), asking(2, change(partition=1)), asking(3, change(partition=2))
    waiting = deque([first, stale, second, third, fourth])
    taken = take_disjoint(context, waiting)
    assert taken.requests == [(first, [0]), (second, [1])]
    assert taken.refused == [(stale, KafkaErrorCode.STALE_BROKER_EPOCH)]
    assert list(waiting) == [third, fourth]


def test_verdicts_writes_and_answers_of_several_requests() -> None:
    """0 changes, 1 is refused, 2 has this ISR already, 3 is written by another meanwhile, 9 does not exist."""
    context = ctx(3, {"t": [[1, 2]] * 4})
    shrink = {"leader_epoch": 0, "partition_epoch": 0, "isr": (1,)}
    requests = [
        (asking(1, change(**shrink), change(**{**shrink, "isr": (1, 3)}, partition=1)), [0, 1]),
        (
            asking(1, *(change(**{**shrink, "isr": isr}, partition=p) for p, isr in ((2, (1, 2)), (3, (1,)), (9, ())))),
            [],
        ),
    ]
    judged = judge(context, requests)
    assert judged.decisions.rows == [0, 3]
    assert [state.isr for state in judged.decisions.leaderships] == [(1,), (1,)]
    assert judged.any_unknown()
    assert refused_non_replicas(context, judged) == {1: [3]}
    lead(context, "t-0", 1, (1,), partition_epoch=1)
    ok, refused = KafkaErrorCode.NONE, KafkaErrorCode.INVALID_UPDATE_VERSION
    assert results(context, judged, {0: ok, 3: refused}) == [
        [
            AlterPartitionResult("t", 0, ok, context.table.leadership(0)),
            AlterPartitionResult("t", 1, KafkaErrorCode.INVALID_REQUEST),
        ],
        [
            AlterPartitionResult("t", 2, ok, context.table.leadership(2)),
            AlterPartitionResult("t", 3, refused),
            AlterPartitionResult("t", 9, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    ]


def test_an_isr_is_never_taken_for_that_of_a_topic_with_the_same_id() -> None:
    """Both are led by 1 in the same epochs; 3 has the records of one of them, nobody knows of which."""
    context = ctx(3, {"t": [[1, 2, 3]], "u": [[1, 2, 3]]})
    for name in ("t", "u"):
        lead(context, f"{name}-0", 1, (1, 2), leader_epoch=5, partition_epoch=9)
        context.table.set_topic_id(context.table.topic_by_name[name], topic_id("t"))
    verdict = check_partition(context, change(topic=topic_id("t")), 1, 3)
    assert verdict == IsrVerdict(-1, KafkaErrorCode.UNKNOWN_TOPIC_ID)
