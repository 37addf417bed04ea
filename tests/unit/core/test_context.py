"""The context: which brokers are registered, live, shutting down, or have failed log directories."""

from __future__ import annotations

from aiocontroller.core.apply import adopt
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import NO_TOPIC_ID, ReplicaAssignment, TopicAssignment
from tests.builders import broker, ctx, leadership


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
        context.read_with_non_replicas[row] = (3,)
    context.set_offline_dir_replicas(2, [0], [])
    for names in (
        context.topics_to_be_deleted,
        context.topics_with_deletion_started,
        context.topics_ineligible_for_deletion,
    ):
        names.update({"t": None, "u": None})
    context.remove_topic(context.table.topic_by_name["t"])
    assert context.offline_dirs == {1: {2}}
    assert list(context.partitions_being_reassigned) == list(context.read_with_non_replicas) == [2]
    assert list(context.topics_to_be_deleted) == ["u"]
    assert list(context.topics_with_deletion_started) == ["u"]
    assert list(context.topics_ineligible_for_deletion) == ["u"]
    context.table.add_partition(context.table.add_topic("v"), 0, ReplicaAssignment((1, 2)))
    assert context.is_replica_online(0, 1)


def test_a_standby_has_no_epoch() -> None:
    context = ControllerContext()
    assert (context.epoch, context.epoch_zk_version) == (0, 0)


def test_new_topics_and_partitions_are_added() -> None:
    """Known partitions stay as they are; a topic's id is completed, and never exchanged for another."""
    context = ctx(3, {"t": [[1, 2]], "other": [[1]]})
    context.table.set_topic_id(context.table.topic_by_name["t"], NO_TOPIC_ID)
    moving = ReplicaAssignment((3, 1), adding=(3,), removing=(1,))
    context.debts.set(2, "t", {1: b"an earlier topic"}, 0)
    created = context.add_partitions(
        [
            TopicAssignment("t", b"t" * 16, {0: ReplicaAssignment((3,)), 1: ReplicaAssignment((2, 3))}),
            TopicAssignment("other", b"another topic..."[:16], {1: ReplicaAssignment((1,))}),
            TopicAssignment("new", b"n" * 16, {0: moving}),
        ]
    )
    table = context.table
    assert [str(table.topic_partition(row)) for row in created] == ["t-1", "new-0"]
    assert table.replicas(0) == (1, 2)
    assert table.topic_by_name["t"].id == b"t" * 16
    assert list(context.partitions_being_reassigned) == [created[1]]
    assert context.held_back == {2: {created[0]}}, "the broker owes the earlier topic's partition"


def test_non_replicas_of_a_state_read_again_are_noted() -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2]]})
    adopt(context, 0, leadership(1, (1, 3), partition_epoch=4))
    adopt(context, 1, leadership(2, (2,)))
    assert (context.table.isr(0), context.table.partition_epoch[0], context.table.leader[1]) == ((1, 3), 4, 2)
    assert context.read_with_non_replicas == {0: (3,)}
