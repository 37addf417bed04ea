"""What a broker's answer to LeaderAndIsr says about its log directories."""

from __future__ import annotations

from typing import Any

from aiocontroller.core.apply import apply
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import LeaderAndIsrResponseReceived
from aiocontroller.core.log_dirs import LogDirChanges, read_answer
from tests.builders import ctx, topic_id

STORAGE, OTHER = KafkaErrorCode.KAFKA_STORAGE_ERROR, KafkaErrorCode.STALE_CONTROLLER_EPOCH


def answer(context: ControllerContext, errors: Any, *, rows: Any = (), epoch: int = 101) -> LogDirChanges | None:
    return read_answer(context, LeaderAndIsrResponseReceived(1, epoch, 0, errors, rows))


def test_replicas_fail_once_and_recover() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2]] * 4})
    first = answer(
        context, [("t", 2, STORAGE), ("t", 0, STORAGE), ("t", 1, OTHER), ("none", 0, STORAGE)], rows=range(4)
    )
    assert first is not None
    assert first.newly_offline == [0, 2]
    apply(context, first.change)
    assert context.offline_dirs == {1: {0, 2}}
    again = answer(context, [("t", 0, STORAGE)], rows=[0, 1])
    assert again is not None
    assert again.newly_offline == []
    apply(context, again.change)
    assert context.offline_dirs == {1: {0, 2}}, "a replica that was not asked for stays as it was"
    refused = answer(context, [("t", 2, OTHER)], rows=[0, 2])
    assert refused is not None
    apply(context, refused.change)
    assert context.offline_dirs == {1: {2}}, "another error does not say that the directory works"


def test_an_error_by_an_id_that_topics_share_brings_no_replica_back() -> None:
    """The failed directory holds u-0; the answer names the id, which t has, too (damage in ZooKeeper)."""
    context = ctx(brokers=2, topics={"t": [[1, 2]], "u": [[1, 2]], "v": [[1, 2]]})
    failed = answer(context, [(name, 0, STORAGE) for name in "tuv"], rows=[0, 1, 2])
    assert failed is not None
    apply(context, failed.change)
    context.table.set_topic_id(context.table.topic_by_name["u"], topic_id("t"))
    again = answer(context, [(topic_id("t"), 0, STORAGE)], rows=[0, 1, 2])
    assert again is not None
    assert again.newly_offline == []
    apply(context, again.change)
    assert context.offline_dirs == {1: {0, 1}}


def test_another_incarnation_says_nothing() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2]]})
    assert answer(context, [("t", 0, STORAGE)], epoch=100) is None
    context.remove_brokers([1])
    assert answer(context, [("t", 0, STORAGE)]) is None
