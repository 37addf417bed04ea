"""What other clients write into ZooKeeper is found, recorded and repaired; what the cluster writes itself is not."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from aiocontroller.controller import auditor
from aiocontroller.core.audit import DifferenceKind
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from aiocontroller.zookeeper.znodes import BadZNode, encode_partition_states, encode_topic
from tests.integration.controller.harness import Cluster, idle, journal_of, until

STATE = "/brokers/topics/t/partitions/0/state"
TOPIC = "/brokers/topics/t"


@pytest.fixture(autouse=True)
def soon_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "CONFIRM_S", 0.05)
    monkeypatch.setattr(auditor, "BUSY_S", 0.01)


async def auditing(cluster: Cluster, assignment: dict[int, list[int]] | None = None, **changes: Any) -> Service:
    """Start a controller that audits all the time, and create topic t."""
    settings: dict[str, Any] = {"aiocontroller_audit_interval_ms": 50} | changes
    service = await cluster.add_controller(**settings)
    await cluster.create_topic("t", assignment or {0: [1, 2]})
    await cluster.until_leaders("t", [replicas[0] for replicas in (assignment or {0: [1, 2]}).values()])
    await idle(service)
    return service


def blind(service: Service) -> None:
    """Stop all watches of the controller."""
    service.zk.on_change = lambda *_: None


def findings(service: Service) -> list[tuple[str, str]]:
    return [(str(r.event), r.detail["subject"]) for r in journal_of(service).of_kind("finding")]


async def until_found(service: Service, kind: DifferenceKind, subject: str) -> None:
    await until(lambda: (str(kind), subject) in findings(service), f"{kind} of {subject} is found")


def last_received(cluster: Cluster, broker: int) -> tuple[int, int, tuple[int, ...], int] | None:
    """Return (leader, leader epoch, ISR, partition epoch) of the last LeaderAndIsr for t-0."""
    states = [
        (p.leader, p.leader_epoch, tuple(p.isr), p.partition_epoch)
        for request in cluster.brokers[broker].of(ApiKey.LEADER_AND_ISR)
        for topic in request.topic_states
        for p in topic.partition_states
    ]
    return states[-1] if states else None


async def until_agreed(cluster: Cluster, service: Service, leader: int, above: LeaderAndIsr) -> LeaderAndIsr:
    """Wait until ZooKeeper, memory and both brokers have the same leadership, newer than ``above``."""

    async def agreed() -> LeaderAndIsr | None:
        (found,) = await cluster.zk.get_topic_partition_states(["t"], [0])
        if not isinstance(found, LeaderAndIsr) or found.leader != leader:
            return None
        table = service.shell.context.table
        expected = (found.leader, found.leader_epoch, found.isr, found.partition_epoch)
        same = table.leadership(table.row("t", 0)) == found
        return found if same and all(last_received(cluster, broker) == expected for broker in (1, 2)) else None

    found: LeaderAndIsr = await until(agreed, f"all agree on leader {leader}")
    assert found.leader_epoch > above.leader_epoch
    assert found.partition_epoch > above.partition_epoch
    return found


async def write(cluster: Cluster, state: LeaderAndIsr) -> None:
    [data] = encode_partition_states([state])
    await cluster.client.set_data(STATE, data)


# -- states ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes_before", [0, 30])
async def test_deleted_state_is_written_again_above_all_that_brokers_know(cluster: Cluster, writes_before: int) -> None:
    earlier = await auditing(cluster, aiocontroller_audit_interval_ms=0)
    await cluster.stop_controller(earlier)
    cluster.services.remove(earlier)
    for _ in range(writes_before):  # an ISR that comes and goes
        await cluster.write_state("t", await cluster.state("t"))
    service = await cluster.add_controller(aiocontroller_audit_interval_ms=0)
    await until(lambda: len(service.shell.context.table))
    await idle(service)
    before = await cluster.state("t")
    assert before.partition_epoch >= writes_before
    await cluster.client.multi([Delete(STATE)])
    service.shell.auditor.check_soon(["t"])
    await until_found(service, DifferenceKind.MISSING_STATE, "t-0")
    assert (await until_agreed(cluster, service, 1, before)).isr == (1, 2)


async def test_foreign_leader_leads_and_all_hear_of_it(cluster: Cluster) -> None:
    """Written with the same leader epoch: with two leaders in one epoch, replicas would diverge."""
    service = await auditing(cluster)
    before = await cluster.state("t")
    await write(cluster, msgspec.structs.replace(before, leader=2))
    await until_found(service, DifferenceKind.STATE, "t-0")
    await until_agreed(cluster, service, 2, before)


async def test_state_made_anew_with_lower_epochs_is_raised_above_the_old_ones(cluster: Cluster) -> None:
    service = await auditing(cluster)
    for leader in (2, 1):
        await cluster.client.create("/admin/preferred_replica_election", data=b'{"version":1,"partitions":[]}')
        await until(lambda: not service.queue)
        before = await cluster.state("t")
        await write(cluster, msgspec.structs.replace(before, leader=leader))
        await until_agreed(cluster, service, leader, before)
    before = await cluster.state("t")
    [data] = encode_partition_states([LeaderAndIsr(2, 0, (2,), 1, 0)])
    await cluster.client.multi([Delete(STATE), Create(STATE, data)])
    found = await until_agreed(cluster, service, 2, before)
    assert found.isr == (2,)


async def test_foreign_leader_that_is_dead_is_replaced(cluster: Cluster) -> None:
    service = await auditing(cluster)
    before = await cluster.state("t")
    await write(cluster, msgspec.structs.replace(before, leader=9, isr=(9, 2)))
    await until_agreed(cluster, service, 2, before)
    assert (await cluster.state("t")).isr == (2,)


async def test_foreign_write_that_an_election_has_met_is_a_finding(cluster: Cluster) -> None:
    """No audit pass is needed: the version conflict shows it."""
    service = await auditing(cluster, aiocontroller_audit_interval_ms=0)
    before = await cluster.state("t")
    await write(cluster, msgspec.structs.replace(before, leader_epoch=0, controller_epoch=0))
    await cluster.kill_broker(1)
    await cluster.until_state("t", 2, (2,))
    await until_found(service, DifferenceKind.STATE, "t-0")

    def received() -> bool:
        state = last_received(cluster, 2)
        return state is not None and state[0] == 2 and state[1] > before.leader_epoch

    await until(received, "the new leader hears of it under an epoch that it takes")


async def test_isr_that_a_leader_writes_itself_is_no_finding(cluster: Cluster) -> None:
    service = await auditing(cluster, inter_broker_protocol_version="2.6")
    before = await cluster.state("t")
    await write(cluster, msgspec.structs.replace(before, isr=(1,)))
    passes = service.metrics.counter("aiocontroller", "Audit", "Passes")
    seen = passes.value
    await until(lambda: passes.value >= seen + 3, "three more passes")
    assert findings(service) == []
    assert (await cluster.state("t")).leader_epoch == before.leader_epoch


async def test_state_of_a_later_controller_ends_the_term(cluster: Cluster) -> None:
    service = await auditing(cluster)
    await write(cluster, msgspec.structs.replace(await cluster.state("t"), controller_epoch=7))
    await until(lambda: "controller moved" in [r.detail for r in service.controller.recent], "it steps down")


@pytest.mark.parametrize("epoch", [2**31 - 1, 2**31 - 2, 2_000_000_001])
async def test_controller_epoch_that_none_can_outrank_is_written_over(cluster: Cluster, epoch: int) -> None:
    """It used to be outranked, which left no epoch for any controller, ours or Kafka's."""
    service = await auditing(cluster)
    damaged = msgspec.structs.replace(await cluster.state("t"), controller_epoch=epoch)
    await write(cluster, damaged)
    await until_agreed(cluster, service, 1, damaged)
    await cluster.stop_controller(service)
    cluster.services.clear()
    await write(cluster, msgspec.structs.replace(await cluster.state("t"), controller_epoch=epoch))
    service = await cluster.add_controller()
    await cluster.active()
    assert service.shell.context.epoch == 2
    await cluster.kill_broker(1)
    assert (await cluster.until_state("t", 2, (2,))).controller_epoch == 2
    assert service.shell.faults.failed_events.value == 0


async def test_leader_epoch_that_has_no_next_one_is_left_alone(cluster: Cluster) -> None:
    """The next one used to be written, which is unreadable and cannot be sent: three faults within a minute."""
    service = await auditing(cluster)
    damaged = msgspec.structs.replace(await cluster.state("t"), leader_epoch=2**31 - 1)
    await write(cluster, damaged)
    await cluster.kill_broker(1)
    await until(lambda: service.metrics.counter("aiocontroller", "ZooKeeper", "BadZNodes").value > 0)
    await idle(service)
    (found,) = await cluster.zk.get_topic_partition_states(["t"], [0])
    assert isinstance(found, BadZNode)
    assert "2147483647" in found.found
    assert service.shell.faults.failed_events.value == 0


# -- topics ------------------------------------------------------------------------------------------------------------


async def topic(cluster: Cluster) -> TopicAssignment:
    (found,) = (await cluster.zk.get_topic_assignments(["t"], watch=False)).found
    return found


async def replicas(cluster: Cluster) -> dict[int, ReplicaAssignment]:
    return (await topic(cluster)).partitions


async def write_topic(cluster: Cluster, **changes: Any) -> None:
    await cluster.client.set_data(TOPIC, encode_topic(msgspec.structs.replace(await topic(cluster), **changes)))


@pytest.mark.parametrize("interval_ms", [0, 50], ids=["reported by the watch", "found by a pass"])
async def test_foreign_assignment_is_carried_out_as_a_reassignment(cluster: Cluster, interval_ms: int) -> None:
    service = await auditing(cluster, aiocontroller_audit_interval_ms=interval_ms)
    if interval_ms:
        blind(service)
    await write_topic(cluster, partitions={0: ReplicaAssignment((2, 1))})
    await until(lambda: service.shell.context.table.replicas(0) == (2, 1))
    await until_found(service, DifferenceKind.ASSIGNMENT, "t-0")
    await until(lambda: not service.shell.context.partitions_being_reassigned)
    assert await replicas(cluster) == {0: ReplicaAssignment((2, 1))}


async def test_foreign_assignment_that_cannot_be_is_taken_back(cluster: Cluster) -> None:
    service = await auditing(cluster)
    await write_topic(cluster, partitions={0: ReplicaAssignment((8, 9))})

    async def back() -> bool:
        return await replicas(cluster) == {0: ReplicaAssignment((1, 2))}

    await until(back)
    await until_found(service, DifferenceKind.ASSIGNMENT, "t-0")


async def test_partition_that_is_gone_from_its_topic_comes_back(cluster: Cluster) -> None:
    service = await auditing(cluster, {0: [1, 2], 1: [2, 3]})
    before = await replicas(cluster)
    await write_topic(cluster, partitions={0: before[0]})

    async def back() -> bool:
        return await replicas(cluster) == before

    await until(back)
    await until_found(service, DifferenceKind.PARTITIONS, "t-1")


async def made_again(cluster: Cluster, topic_id: bytes | None) -> None:
    """Delete the topic and create it by hand at the same moment, with other replicas."""
    partitions = {0: ReplicaAssignment((2, 3))}
    data = (
        b'{"version":1,"partitions":{"0":[2,3]}}'
        if topic_id is None
        else encode_topic(TopicAssignment("t", topic_id, partitions))
    )
    partition = f"{TOPIC}/partitions/0"
    ops = [Delete(STATE), Delete(partition), Delete(f"{TOPIC}/partitions"), Delete(TOPIC), Create(TOPIC, data)]
    results = await cluster.client.multi(ops)
    assert [result.code for result in results] == [0] * len(ops)


@pytest.mark.parametrize("is_blind", [False, True])
@pytest.mark.parametrize("topic_id", [None, bytes(range(16))], ids=["without an id", "with an id"])
async def test_topic_that_was_deleted_and_made_again_is_another_topic(
    cluster: Cluster, topic_id: bytes | None, is_blind: bool
) -> None:
    service = await auditing(cluster, aiocontroller_audit_interval_ms=50 if is_blind else 0)
    if is_blind:
        blind(service)
    old = (await topic(cluster)).topic_id
    for broker in cluster.brokers.values():
        broker.take()
    await made_again(cluster, topic_id)
    await until_found(service, DifferenceKind.TOPIC_ID, "topic t")
    state = await cluster.until_state("t", 3, (3,))  # broker 2 comes into sync when it has deleted what it had
    assert (state.leader_epoch, state.partition_epoch) == (0, 0)
    new = (await topic(cluster)).topic_id
    assert new not in (old, bytes(16))
    assert topic_id in (None, new)
    await until(lambda: cluster.brokers[2].of(ApiKey.LEADER_AND_ISR))
    assert not service.shell.context.debts
    heard = [r for r in cluster.brokers[2].received if r.api in (ApiKey.STOP_REPLICA, ApiKey.LEADER_AND_ISR)]
    assert [r.api for r in heard][:2] == [ApiKey.STOP_REPLICA, ApiKey.LEADER_AND_ISR]
    (stopped,) = heard[0].request.topic_states
    assert [(p.partition_index, p.leader_epoch, p.delete_partition) for p in stopped.partition_states] == [
        (0, -2, True)
    ]
    assert {bytes(t.topic_id.bytes) for t in heard[1].request.topic_states} == {new}


async def test_broker_that_was_away_deletes_the_old_topic_before_it_hears_of_the_new(cluster: Cluster) -> None:
    service = await auditing(cluster)
    old = (await topic(cluster)).topic_id
    await cluster.kill_broker(2)
    await cluster.until_state("t", 1, (1,))
    await made_again(cluster, bytes(range(16)))
    await cluster.until_state("t", 3, (3,))
    await until(lambda: [(d.broker, d.topic_id) for d in service.shell.context.debts] == [(2, old)])
    back = await cluster.add_broker(2)
    await until(lambda: back.of(ApiKey.LEADER_AND_ISR))
    heard = [r.api for r in back.received if r.api in (ApiKey.STOP_REPLICA, ApiKey.LEADER_AND_ISR)]
    assert heard[:2] == [ApiKey.STOP_REPLICA, ApiKey.LEADER_AND_ISR]
    assert not service.shell.context.debts


async def test_topic_that_has_got_another_id_gets_its_own_back(cluster: Cluster) -> None:
    """Its partitions' states still exist, so it is the same topic: nothing of it may be deleted."""
    service = await auditing(cluster)
    before = await topic(cluster)
    await write_topic(cluster, topic_id=bytes(range(16)))

    async def back() -> bool:
        return (await topic(cluster)).topic_id == before.topic_id

    await until(back)
    await until_found(service, DifferenceKind.TOPIC_ID, "topic t")
    assert not any(broker.of(ApiKey.STOP_REPLICA) for broker in cluster.brokers.values())


# -- lists -------------------------------------------------------------------------------------------------------------


async def test_what_no_watch_has_reported_is_found_by_the_next_pass(cluster: Cluster) -> None:
    service = await auditing(cluster)
    context = service.shell.context
    blind(service)
    await cluster.kill_broker(2)
    await cluster.until_state("t", 1, (1,))
    await cluster.add_broker(2)
    await until(lambda: 2 in context.live)
    await cluster.create_topic("u", {0: [3]})
    await cluster.until_leaders("u", [3])
    await until(lambda: "TopicDeletion" in [event.event for event in service.controller.recent])  # after a new topic
    await cluster.client.create("/admin/delete_topics/u")
    await until_found(service, DifferenceKind.UNHEARD, "/admin/delete_topics/u")
    await until_found(service, DifferenceKind.TOPIC, "topic u")
    assert ("broker", "broker 2") in findings(service)


async def test_dead_leader_on_whom_all_agree_is_replaced(cluster: Cluster) -> None:
    """Memory has lost a broker without an election."""
    service = await auditing(cluster)
    blind(service)
    context = service.shell.context
    await cluster.brokers[1].stop()
    service.shell.owner = None  # damage done on purpose
    context.remove_brokers([1])
    await until_found(service, DifferenceKind.DEAD_LEADER, "t-0")
    await cluster.until_leaders("t", [2])


# -- what is not found -------------------------------------------------------------------------------------------------


async def test_deletion_of_a_topic_that_cannot_be_read_is_no_finding(cluster: Cluster) -> None:
    """It waits for the repair of the topic's znode, and is carried out then."""
    service = await cluster.add_controller(aiocontroller_audit_interval_ms=50)
    await cluster.client.create("/brokers/topics/damaged", data=b"?")
    await cluster.client.create("/admin/delete_topics/damaged")
    await idle(service)
    passes = service.metrics.counter("aiocontroller", "Audit", "Passes")
    before = passes.value
    await until(lambda: passes.value >= before + 3, "three passes")
    assert findings(service) == []
    await cluster.client.set_data("/brokers/topics/damaged", b'{"version":1,"partitions":{"0":[1]}}')

    async def gone() -> bool:
        return not await cluster.client.exists("/brokers/topics/damaged")

    await until(gone, "the topic is deleted")


async def test_what_the_cluster_does_itself_is_no_finding(cluster: Cluster) -> None:
    """Audited without a pause while topics come, grow and go, brokers die and return, and replicas move."""
    service = await auditing(
        cluster, aiocontroller_audit_interval_ms=1, aiocontroller_audit_partitions_per_second=10**6
    )
    passes = service.metrics.counter("aiocontroller", "Audit", "Passes")
    for number in range(4):
        name = f"t{number}"
        await cluster.create_topic(name, {0: [1, 2], 1: [2, 3]})
        await cluster.until_leaders(name, [1, 2])
        data = msgspec.json.encode({"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [2, 1]}]})
        await cluster.client.create("/admin/reassign_partitions", data=data)
        await cluster.kill_broker(3)
        await cluster.until_state(name, 2, (2,), 1)
        await cluster.add_broker(3)
        await until(lambda: 3 in service.shell.context.live)
        await cluster.client.create(f"/admin/delete_topics/{name}")
    seen = passes.value
    await until(lambda: passes.value >= seen + 3, "passes go on")
    assert findings(service) == []
    assert journal_of(service).of_kind("fault") == []


async def test_slice_makes_way_for_other_events(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    service = await auditing(cluster, aiocontroller_audit_interval_ms=0)
    audits = service.shell.auditor
    waiting = audits._queue
    monkeypatch.setattr(type(waiting), "__len__", lambda self: 1)
    assert [audits.postpone_if_busy() for _ in range(auditor.MOST_WAITS + 1)] == [True] * auditor.MOST_WAITS + [False]


async def test_large_topic_is_looked_at_piece_by_piece(cluster: Cluster) -> None:
    count = 2 * auditor.SLICE + 50
    service = await auditing(cluster, {number: [1 + number % 3] for number in range(count)})
    await until(lambda: journal_of(service).of_kind("audit"))
    assert journal_of(service).of_kind("audit")[-1].partitions in (0, count)
    state = await cluster.state("t", count - 1)
    [data] = encode_partition_states([msgspec.structs.replace(state, controller_epoch=0)])
    path = f"{TOPIC}/partitions/{count - 1}/state"
    assert [r.code for r in await cluster.client.multi([SetData(path, data)])] == [0]
    await until_found(service, DifferenceKind.STATE, f"t-{count - 1}")


async def test_status_and_metrics_tell(cluster: Cluster) -> None:
    service = await auditing(cluster)
    await write(cluster, msgspec.structs.replace(await cluster.state("t"), leader=2))
    await until_found(service, DifferenceKind.STATE, "t-0")
    await until(lambda: service.controller.status()["audit"]["last_pass_us"])
    status = service.controller.status()["audit"]
    assert status["findings"] == {"state": 1}
    assert status["latest"][0]["subject"] == "t-0"
    metrics = service.metrics.snapshot()
    assert metrics['aiocontroller_audit_findings_total{kind="state"}'] == 1
    assert metrics['aiocontroller_audit_findings_total{kind="topic_id"}'] == 0
    assert metrics["aiocontroller_audit_lastpasstimestampms"] > 0
    assert "Audit" not in [event.event for event in service.controller.recent]


async def test_new_term_forgets_what_was_suspected(cluster: Cluster) -> None:
    service = await auditing(cluster, aiocontroller_audit_interval_ms=0)
    await cluster.client.multi([Delete(STATE)])
    service.shell.auditor.check_soon(["t"])
    await cluster.client.multi([Delete("/controller")])
    await until(lambda: service.shell.context.epoch == 2)
    await asyncio.sleep(0)
    assert service.shell.auditor.status()["suspicions"] == 0
