"""Failed log directories: which brokers are asked about which replicas, and what becomes of the notifications."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aiocontroller.core.events import BrokerChange, LogDirEventNotification
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.states import ReplicaState
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Notifications:
    """``/log_dir_event_notification``: the announcing brokers by name."""

    def __init__(self, it: PureCluster, monkeypatch: pytest.MonkeyPatch, found: dict[str, int | BadZNode]) -> None:
        self._it = it
        self.found = found
        self.asked_before = False
        """A broker had been asked when the notifications were deleted."""
        monkeypatch.setattr(it.znodes, "get_all_log_dir_event_notifications", self._names)
        monkeypatch.setattr(it.znodes, "get_brokers_from_log_dir_event_notifications", self._brokers, raising=False)
        monkeypatch.setattr(it.znodes, "delete_log_dir_event_notifications", self._delete)
        it.queue.append(LogDirEventNotification())
        it.step()

    async def _names(self, *, watch: bool) -> list[str]:
        assert watch
        return sorted(self.found)

    async def _brokers(self, names: Sequence[str]) -> tuple[list[int], list[BadZNode]]:
        assert names
        read = [self.found[name] for name in names]
        return [r for r in read if isinstance(r, int)], [r for r in read if isinstance(r, BadZNode)]

    async def _delete(self, names: Sequence[str], *, fence: int) -> None:
        self._it.znodes.fence(fence)
        self.asked_before = len(self._it.queue) > 0
        for name in names:
            del self.found[name]


@pytest.fixture
def it() -> PureCluster:
    made = cluster(1, 2, 3, t=[[1, 2], [2, 1]], u=[[1, 3]])
    made.unregister(3)
    made.queue.append(BrokerChange())
    made.step()
    return made


def test_replicas_in_the_failed_directory_go_offline_and_others_stay(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    it.views[1].failed_dirs.add(T0)
    left = Notifications(it, monkeypatch, {"log_dir_event_0": 1, "log_dir_event_1": 1})
    assert (it.znodes.states[T0].leader, it.znodes.states[T0].isr) == (2, (2,))
    assert (it.znodes.states[T1].leader, it.znodes.states[T1].isr) == (2, (2, 1))
    assert not it.shell.context.is_replica_online(it.shell.context.table.row("t", 0), 1)
    assert left.found == {}
    assert left.asked_before, "a controller that ends before it has asked leaves the notifications to the next"


def test_a_broker_that_has_gone_and_a_damaged_notification_keep_no_other_back(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    it.views[2].failed_dirs.add(T1)
    damaged = BadZNode("/log_dir_event_notification/log_dir_event_1", "{", "JSON")
    left = Notifications(it, monkeypatch, {"log_dir_event_0": 3, "log_dir_event_1": damaged, "log_dir_event_2": 2})
    assert it.znodes.states[T1].leader == 1
    assert list(it.shell.bad_paths()) == [damaged.path]
    assert left.found == {}, "a damaged one is no use later either"
    assert it.shell.context.table.replica_state(it.shell.context.table.row("u", 0), 3) == ReplicaState.OfflineReplica


def test_a_broker_that_does_not_respond_any_more_has_a_failed_disk_all_the_same(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops, or has gone; its disk may be exchanged before it starts again."""
    Notifications(it, monkeypatch, {"log_dir_event_0": 2, "log_dir_event_1": 3, "log_dir_event_2": 9})
    starts = it.shell.context.starts
    assert starts is not None
    assert starts == it.znodes.starts
    assert [b for b, known in starts.brokers.items() if known.clean_from > known.epoch] == [2, 3]


@pytest.mark.parametrize("reload", [False, True])
def test_a_disk_whose_failure_was_announced_before_the_term_has_failed_all_the_same(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch, reload: bool
) -> None:
    """The broker may stop before it responds to this term's LeaderAndIsr."""
    left = Notifications(it, monkeypatch, {})
    left.found = {"log_dir_event_0": 2}
    it.reload() if reload else it.failover()
    assert left.found == {}
    starts = it.shell.context.starts
    assert starts is not None
    assert starts == it.znodes.starts
    assert [b for b, known in starts.brokers.items() if known.clean_from > known.epoch] == [2]


def test_without_a_notification_no_broker_is_asked(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    it.views[1].failed_dirs.add(T0)
    Notifications(it, monkeypatch, {})
    assert it.znodes.states[T0].leader == 1
