"""The failover: read in groups, sent in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from aiocontroller.controller import broker_requests, failover
from aiocontroller.controller.failover import FIRST_GROUP
from aiocontroller.core import events as ev
from aiocontroller.core.ids import NO_TOPIC_ID, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.core.ownership import NotTheOwnerError
from aiocontroller.core.states import PartitionState
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.writes import Writes
from tests.unit.controller.pure_cluster import PureCluster, View, cluster
from tests.unit.controller.virtual_cluster import begin, stage

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
def test_every_broker_hears_everything(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    for module in (broker_requests, failover):
        monkeypatch.setattr(module, "PARTITIONS_PER_REQUEST", at_once)
    it = PureCluster()
    for broker in (1, 2, 3):
        it.register(broker)
    it.queue.append(ev.BrokerChange())
    it.create_topic("a", [[1, 2], [2, 3], [3, 1], [1, 3]])
    it.create_topic("b", [[2, 1, 3], [3], [1]])
    it.step()
    for broker in (1, 2, 3):  # they have forgotten
        it.register(broker)
        it.views[broker].hosted.clear()
    it.failover()
    it.step()  # brokers that started uncleanly meanwhile are taken in one event later
    table = it.shell.context.table
    everything = {table.topic_partition(row) for row in table.rows()}
    assert len(everything) == 7
    for broker, view in it.views.items():
        assert set(view.metadata) == everything
        hosted = {tp for tp in everything if broker in table.replicas(table.row(*tp))}
        assert set(view.hosted) == hosted, f"broker {broker}"
    assert it.views[1].hosted[TopicPartition("a", 0)].leader == 1


@pytest.mark.parametrize("rows", [0, 1, 5, 6, 11])
def test_ranges_hold_every_row_once(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(failover, "PARTITIONS_PER_REQUEST", 5)
    ranges = failover._ranges(rows)
    assert [row for low, high in ranges for row in range(low, high)] == list(range(rows))
    assert all(0 < high - low <= 5 for low, high in ranges)


def test_groups_of_topics_are_not_small_before_their_size_is_known() -> None:
    it = PureCluster()
    names = [f"t{n}" for n in range(250)]
    groups = failover._groups(it.shell, names)
    assert [len(next(groups)) for _ in range(2)] == [failover.FIRST_GROUP] * 2  # nothing has been taken in yet
    topic = it.shell.context.table.add_topic("large")
    it.shell.context.table.add_partitions(topic, {n: ReplicaAssignment((1,)) for n in range(1000)})
    assert [len(group) for group in groups] == [10] * 5


@virtual_time
async def test_topics_of_a_large_cluster_are_taken_in_by_the_consumer_alone() -> None:
    """More than a group of them: three are read at once, and the guard of debug mode says which task takes them in."""
    async with stage() as it:
        for number in range(3 * FIRST_GROUP + 5):
            await it.create(f"/brokers/topics/t{number}", msgspec.json.encode({"version": 1, "partitions": {"0": [1]}}))
        service = await begin(it, 1)
        context = service.controller.shell.context
        assert len(context.table) == 3 * FIRST_GROUP + 5
        assert not service.journal.of_kind("fault")  # type: ignore[attr-defined]
        with pytest.raises(NotTheOwnerError, match="changes the context"):
            context.table.set_state([0], PartitionState.OfflinePartition)


# -- what a reload in the same term must not forget --------------------------------------------------------------------


def test_a_reload_does_not_forget_a_topic_that_another_has_replaced() -> None:
    it = cluster(1, 2, 3, t=[[1, 2], [2, 1]], u=[[1]])
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    earlier = it.znodes.topics["t"].topic_id
    replace(it, "t", b"the present one.", {0: ReplicaAssignment((1, 3))})
    it.reload()
    assert it.shell.before_reload is None
    it.step()
    assert it.znodes.debts.held == {(2, "t"): ({0: earlier, 1: earlier}, 0)}, "broker 1 has deleted its replicas"
    assert {tp for view in (it.views[1], it.views[3]) for tp in view.metadata} == {T0, TopicPartition("u", 0)}
    assert [it.views[broker].topic_ids[T0] for broker in (1, 3)] == [b"the present one."] * 2
    it.register(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert it.znodes.debts.held == {}
    assert it.views[2].hosted == {}


def test_a_reload_takes_no_topic_for_vanished_that_is_there() -> None:
    it = cluster(1, t=[[1]], u=[[1]])
    del it.znodes.topics["u"]
    it.reload()
    assert list(it.shell.vanished) == ["u"]


def test_a_second_reload_knows_what_the_first_was_to_find() -> None:
    it = cluster(1, t=[[1]])
    replace(it, "t", b"the present one.", {0: ReplicaAssignment((1,))})
    it.shell.begin_term(it.znodes.epoch, it.znodes.epoch_version, again=True)
    it.reload()
    it.step()
    assert it.views[1].topic_ids == {T0: b"the present one."}


@pytest.mark.parametrize("shrinks", [False, True])
@pytest.mark.parametrize("written", [b"written by hand.", NO_TOPIC_ID])
def test_a_reload_takes_a_topic_whose_id_was_rewritten_for_no_other(written: bytes, *, shrinks: bool) -> None:
    """Tools older than Kafka 2.8 drop the id.  Brokers' logs keep theirs, and refuse requests with any other.

    ``shrinks``: meanwhile the leader, of an old protocol, has written the ISR itself.
    """
    it = cluster(1, 2, t=[[1, 2]])
    before = it.znodes.topics["t"]
    it.znodes.topics["t"] = msgspec.structs.replace(before, topic_id=written)
    if shrinks:
        it.znodes.states[T0] = msgspec.structs.replace(it.znodes.states[T0], isr=(1,), partition_epoch=1)
    it.reload()
    it.step()
    assert it.znodes.topics["t"].topic_id == before.topic_id
    assert it.shell.context.table.topic_by_name["t"].id == before.topic_id
    assert set(it.views[1].topic_ids.values()) == {before.topic_id}
    assert it.znodes.debts.held == {}
    assert it.views[1].hosted.keys() == it.views[2].hosted.keys() == {T0}


def test_a_reload_restores_partitions_that_another_has_removed_from_the_znode() -> None:
    """As the audit does: brokers have them, and a deletion of the topic must reach them."""
    it = cluster(1, 2, t=[[1], [2]], u=[[1]])
    everything = it.znodes.topics["t"]
    less = {0: everything.partitions[0]}
    it.znodes.topics["t"] = msgspec.structs.replace(everything, partitions=less)
    it.reload()
    it.step()
    assert it.znodes.topics["t"].partitions == everything.partitions
    assert it.shell.context.table.row("t", 1) >= 0
    assert TopicPartition("t", 1) in it.views[2].hosted
    assert it.znodes.debts.held == {}


def test_a_reload_restores_partitions_although_the_znode_changes_meanwhile() -> None:
    it = cluster(1, 2, t=[[1], [2]])
    everything = it.znodes.topics["t"]
    it.znodes.topics["t"] = msgspec.structs.replace(everything, partitions={0: everything.partitions[0]})
    write = it.znodes.set_topic_assignments

    async def too_late(changed: Sequence[TopicAssignment], *, fence: int) -> Writes:
        it.znodes.set_topic_assignments = write  # type: ignore[method-assign]
        now = it.znodes.topics["t"]
        it.znodes.topics["t"] = msgspec.structs.replace(now, version=now.version + 1)
        return await write(changed, fence=fence)

    it.znodes.set_topic_assignments = too_late  # type: ignore[method-assign]
    it.reload()
    it.step()
    assert it.znodes.topics["t"].partitions == everything.partitions
    assert TopicPartition("t", 1) in it.views[2].hosted


def test_a_reload_goes_on_without_partitions_that_it_may_not_restore() -> None:
    it = cluster(1, 2, t=[[1], [2]], u=[[1]])
    everything = it.znodes.topics["t"]
    less = it.znodes.topics["t"] = msgspec.structs.replace(everything, partitions={0: everything.partitions[0]})

    async def refused(changed: Sequence[TopicAssignment], *, fence: int) -> Writes:
        writes = Writes(len(changed))
        for at in range(len(changed)):
            writes.code[at] = Code.NO_AUTH
        return writes

    it.znodes.set_topic_assignments = refused  # type: ignore[method-assign]
    it.reload()
    it.step()
    assert it.znodes.topics["t"] == less
    assert {tp.topic for tp in it.views[1].hosted} == {"t", "u"}
    assert it.shell.before_reload is None


def test_a_reload_restores_no_partition_of_another_topic() -> None:
    """Neither of one with another id, which owes them, nor, without ids, of one whose states are others."""
    it = cluster(1, t=[[1], [1]])
    replace(it, "t", b"the present one.", {0: ReplicaAssignment((1,))})
    it.reload()
    it.step()
    assert it.znodes.topics["t"].partitions.keys() == {0}
    assert it.views[1].hosted.keys() == {T0}


def test_a_reload_owes_nothing_that_this_term_has_not_loaded() -> None:
    """A standby's copy, say: since it was made, another controller may have sent brokers the present topic."""
    it = cluster(1, t=[[1]])
    copy = it.shell.context.table
    replace(it, "t", b"the present one.", {0: ReplicaAssignment((1,))})
    it.views[1] = View(it.views[1].epoch)
    it.failover()
    it.step()
    assert it.views[1].topic_ids == {T0: b"the present one."}
    it.shell.context.table, it.shell.context.loaded = copy, False
    it.reload()
    it.step()
    assert it.znodes.debts.held == {}
    assert it.views[1].hosted.keys() == {T0}


@pytest.mark.parametrize("seen_by", ["a watch", "a reload"])
@pytest.mark.parametrize("found_by", ["a watch", "a reload"])
def test_a_topic_deleted_by_hand_does_not_keep_the_next_of_its_name_from_brokers(seen_by: str, found_by: str) -> None:
    """Brokers refuse requests about replicas of another id, so those of the earlier topic must go."""
    it = cluster(1, 2, 3, t=[[1, 2], [2, 1]], u=[[1]])
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    earlier = it.znodes.topics["t"].topic_id
    delete(it, "t")
    look(it, seen_by)
    assert T0 in it.views[1].hosted, "as with Kafka: the operator may restore the znode"
    replace(it, "t", b"the present one.", {0: ReplicaAssignment((1, 3))})
    look(it, found_by)
    assert it.znodes.debts.held == {(2, "t"): ({0: earlier, 1: earlier}, 0)}, "broker 1 has deleted its replicas"
    assert {tp for view in (it.views[1], it.views[3]) for tp in view.metadata} == {T0, TopicPartition("u", 0)}
    assert [it.views[broker].topic_ids[T0] for broker in (1, 3)] == [b"the present one."] * 2


@pytest.mark.parametrize("seen_by", ["a watch", "a reload"])
def test_a_topic_deleted_by_hand_and_restored_keeps_its_replicas(seen_by: str) -> None:
    it = cluster(1, 2, t=[[1, 2]])
    before = it.znodes.topics["t"]
    delete(it, "t")
    look(it, seen_by)
    it.znodes.topics["t"] = before
    look(it, "a watch")
    assert it.znodes.debts.held == {}
    assert T0 in it.views[1].hosted
    assert T0 in it.views[2].hosted


def look(it: PureCluster, by: str) -> None:
    if by == "a reload":
        it.reload()
    else:
        it.queue.append(ev.TopicChange())
    it.step()


def delete(it: PureCluster, name: str) -> None:
    """A foreign client deletes the topic with all that is below it."""
    del it.znodes.topics[name]
    it.znodes.states = {tp: state for tp, state in it.znodes.states.items() if tp.topic != name}


def replace(it: PureCluster, name: str, topic_id: bytes, partitions: dict[int, ReplicaAssignment]) -> None:
    """A foreign client deletes the topic, with all that is below it, and creates another one."""
    it.znodes.topics[name] = TopicAssignment(name, topic_id, partitions)
    it.znodes.states = {tp: state for tp, state in it.znodes.states.items() if tp.topic != name}
