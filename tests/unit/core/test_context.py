"""The context: which brokers are registered, live, shutting down, or have failed log directories."""

from __future__ import annotations

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import ReplicaAssignment
from tests.builders import broker, ctx


def test_live_means_registered_and_not_shutting_down() -> None:
    context = ctx(3)
    context.begin_shutdown(2)
    assert list(context.brokers) == [1, 2, 3]
    assert context.live == {1, 3}
    context.remove_brokers([1, 2, 9])
    assert list(context.brokers) == [3]
    assert context.live == {3}
    assert context.shutting_down == {}
    context.add_brokers([broker(2, epoch=900), broker(1)])
    assert list(context.brokers) == [1, 2, 3]
    assert context.live == {1, 2, 3}
    assert context.brokers[2].epoch == 900


def test_a_broker_that_modifies_itself_stays_in_shutdown() -> None:
    context = ctx(2, shutting_down=[2])
    context.add_brokers([broker(2, rack="r")])
    assert context.live == {1}
    assert context.brokers[2].rack == "r"


def test_whether_a_replica_is_online() -> None:
    context = ctx(3, {"t": [[1, 2, 3], [1, 2, 3]]}, shutting_down=[2], dead=[3])
    context.set_offline_dir_replicas(1, [1], [])
    assert [context.is_replica_online(0, b) for b in (1, 2, 3)] == [True, False, False]
    assert [context.is_replica_online(1, b) for b in (1, 2, 3)] == [False, False, False]
    assert [context.is_replica_online(0, b, include_shutting_down=True) for b in (1, 2, 3)] == [True, True, False]
    assert [context.is_replica_online(1, b, include_shutting_down=True) for b in (1, 2, 3)] == [False, True, False]


def test_replicas_on_failed_directories_come_and_go() -> None:
    """As LeaderAndIsr answers tell: what was and is not online again, and what failed now."""
    context = ctx(2, {"t": [[1, 2]] * 4})
    assert context.offline_dir_replicas(0) == ()
    assert context.set_offline_dir_replicas(1, [2, 0], []) == [0, 2]
    assert context.set_offline_dir_replicas(1, [2, 3], [0, 1]) == [3]
    assert context.set_offline_dir_replicas(2, [3], []) == [3]
    assert [context.offline_dir_replicas(p) for p in range(4)] == [(), (), (1,), (1, 2)]
    assert context.set_offline_dir_replicas(1, [], [2, 3]) == []
    assert context.offline_dirs == {2: {3}}
    context.remove_brokers([2])
    assert context.offline_dirs == {}


def test_terms_do_not_leak() -> None:
    context = ctx(epoch=3)
    assert (context.epoch, context.epoch_zk_version) == (3, 3)
    assert len(context.table) == 0


def test_a_removed_topic_leaves_nothing_in_its_reused_rows() -> None:
    context = ctx(3, {"t": [[1, 2]] * 2, "u": [[1, 2]]})
    for row in (0, 1, 2):
        context.set_offline_dir_replicas(1, [row], [])
        context.partitions_being_reassigned[row] = None
    context.set_offline_dir_replicas(2, [0], [])
    for names in (
        context.topics_to_be_deleted,
        context.topics_with_deletion_started,
        context.topics_ineligible_for_deletion,
    ):
        names.update({"t": None, "u": None})
    context.remove_topic(context.table.topic_by_name["t"])
    assert context.offline_dirs == {1: {2}}
    assert list(context.partitions_being_reassigned) == [2]
    assert list(context.topics_to_be_deleted) == ["u"]
    assert list(context.topics_with_deletion_started) == ["u"]
    assert list(context.topics_ineligible_for_deletion) == ["u"]
    context.table.add_partition(context.table.add_topic("v"), 0, ReplicaAssignment((1, 2)))
    assert context.is_replica_online(0, 1)


def test_a_standby_has_no_epoch() -> None:
    context = ControllerContext()
    assert (context.epoch, context.epoch_zk_version) == (0, 0)
