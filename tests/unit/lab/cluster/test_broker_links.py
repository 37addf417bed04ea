"""What a follower reports again after its leader's answer."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.lab.cluster.broker_links import FetcherLink
from aiocontroller.lab.cluster.partition import ReportVerdict
from tests.unit.lab.cluster.test_replica_manager import become, manager, the_partition

NOT_LEADER, FENCED = ReportVerdict.NOT_LEADER, ReportVerdict.FENCED_LEADER_EPOCH
NOTHING: Any = None


@pytest.mark.parametrize(
    "sent_epoch, verdict, again",
    [
        (5, NOT_LEADER, True),
        (4, NOT_LEADER, False),  # it follows in another epoch by now, and reports that anyway
        (5, FENCED, False),
        (None, NOT_LEADER, True),  # the leader has lost an earlier report
        (None, FENCED, False),
    ],
)
def test_a_report_is_repeated_while_the_follower_still_follows(
    sent_epoch: int | None, verdict: ReportVerdict, again: bool
) -> None:
    replicas = manager(2)
    become(replicas, 1, (1, 2, 3), epoch=5)
    fetcher, partition = replicas.fetchers[1], the_partition(replicas)
    fetcher.unreported.clear()
    link = FetcherLink(NOTHING, replicas, fetcher, NOTHING)
    sent = {} if sent_epoch is None else {("t", 0): (partition, sent_epoch)}
    assert link._take_back([("t", 0, verdict), ("gone", 0, verdict)], sent) is again
    assert (partition in fetcher.unreported) is again
    become(replicas, 3, (1, 2, 3), epoch=6)
    assert link._take_back([("t", 0, NOT_LEADER)], {}) is False
