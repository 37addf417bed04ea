"""Terms begin, survive trouble and end: races, our own faults, sessions that expire, connections that break."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from aiocontroller.controller import failover, leader_elections
from aiocontroller.controller.event_handlers import HANDLERS
from aiocontroller.controller.kafka_controller import FAULTS_TO_GIVE_UP, GivingUpError
from aiocontroller.core import events as ev
from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.core.event_kinds import ControllerState
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete
from tests.integration.controller.asking import asking
from tests.integration.controller.harness import Cluster, held, idle, journal_of, running, until

MULTI = 14
"""ZooKeeper's opcode."""


async def active_controller(cluster: Cluster) -> Service:
    """A controller that has completed its failover."""
    service = await cluster.add_controller()
    await cluster.active()
    await idle(service)
    return service


def is_active(cluster: Cluster) -> list[Service]:
    return [s for s in cluster.services if s.controller.election.active]


# -- elections ---------------------------------------------------------------------------------------------------------


async def test_three_contenders_race_again_and_again(cluster: Cluster) -> None:
    """Each round has one winner and one epoch; no leader changes."""
    await asyncio.gather(*(cluster.add_controller(aiocontroller_id=100 + i) for i in range(3)))
    await cluster.create_topic("t", {0: [1, 2, 3]})
    (before,) = await cluster.until_leaders("t", [1])
    for epoch in range(1, 6):
        winner = await cluster.active()
        await until(lambda w=winner, e=epoch: w.shell.context.epoch == e and len(w.shell.context.table) == 1)
        assert await cluster.zk.get_controller_epoch() == (epoch, epoch)
        assert is_active(cluster) == [winner]
        holder: Any = await cluster.zk.get_controller(watch=False)
        assert holder.controller_id == winner.shell.id
        if epoch % 2:
            await expire_session(winner.client)
        else:
            await cluster.client.delete("/controller")
        await until(lambda w=winner, e=epoch: w.shell.context.epoch != e)
    assert (await cluster.state("t")).leader_epoch == before.leader_epoch


async def test_contenders_that_start_without_a_controller_race_once(world: World, zk_connect: str) -> None:
    async with running(world, zk_connect) as cluster:
        contenders = await asyncio.gather(*(cluster.add_controller() for _ in range(3)))
        winner = await cluster.active()
        await asyncio.gather(*(until(lambda s=s: s.controller.election.holder) for s in contenders))
        assert is_active(cluster) == [winner]
        assert await cluster.zk.get_controller_epoch() == (1, 1)


async def test_role_that_is_taken_and_given_back_between_two_reads_is_contended_for(cluster: Cluster) -> None:
    """Only the creation is noticed, since the watch fires once; Kafka's would stand by forever."""
    service = await cluster.add_controller(aiocontroller_takeover_policy="observe")
    await until(lambda: service.controller.recent)
    service.shell.config = msgspec.structs.replace(service.shell.config, aiocontroller_takeover_policy="wait")
    await cluster.client.multi([Create("/controller", b"?"), Delete("/controller")])
    assert await cluster.active() is service


async def test_every_broker_hears_the_broker_list_before_any_leader(cluster: Cluster) -> None:
    """Kafka's rule: a follower finds its leader's address in the metadata."""
    first = await cluster.add_controller()
    await cluster.create_topic("t", {p: [1 + p % 3, 1 + (p + 1) % 3] for p in range(6)})
    await cluster.until_leaders("t", [1, 2, 3, 1, 2, 3])
    await idle(first)
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    for broker in cluster.brokers.values():
        broker.take()
    second = await cluster.add_controller()
    await until(lambda: second.shell.context.table.leadership_count == 6)
    await idle(second)
    for broker in cluster.brokers.values():
        head = broker.received[0]
        assert (head.api, head.request.controller_epoch, head.request.topic_states) == (ApiKey.UPDATE_METADATA, 2, ())
        assert sorted(b.id_ for b in head.request.live_brokers) == [1, 2, 3, second.shell.id]
        assert {r.request.controller_epoch for r in broker.received} == {2}
        empty = [request for request in broker.of(ApiKey.UPDATE_METADATA) if request.topic_states == ()]
        assert len(empty) == 1, "the broker list is sent once, as by Kafka"
        received = {
            (p.partition_index, p.leader)
            for r in broker.of(ApiKey.LEADER_AND_ISR)
            for t in r.topic_states
            for p in t.partition_states
        }
        assert len(received) == 4
        known = [p for r in broker.of(ApiKey.UPDATE_METADATA) for t in r.topic_states for p in t.partition_states]
        assert {p.partition_index for p in known} == set(range(6))


async def test_leaders_go_home_after_a_restart(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_elections, "FIRST_RUN_S", 0.2)
    service = await cluster.add_controller(leader_imbalance_check_interval_seconds=1)
    await cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    await cluster.until_leaders("t", [1, 2])
    await cluster.kill_broker(1)
    away = await cluster.until_state("t", 2, (2,), 0)
    back = await cluster.add_broker(1)
    await until(lambda: 1 in service.shell.context.live)
    topic_id = service.shell.context.table.topic_by_name["t"].id
    async with asking(service) as leader:
        change = AlterPartition(topic_id, 0, away.leader_epoch, (2, 1), away.partition_epoch)
        await leader.alter_partition(3, 2, cluster.brokers[2].epoch, change)
    home = await cluster.until_state("t", 1, (2, 1), 0)
    assert home.leader_epoch == away.leader_epoch + 1
    await until(lambda: any(r.api is ApiKey.LEADER_AND_ISR for r in back.received))


async def test_leaders_stay_where_rebalancing_is_off(cluster: Cluster) -> None:
    service = await cluster.add_controller(auto_leader_rebalance_enable=False)
    await cluster.active()
    await until(lambda: service.queue.statistics().deferred)
    assert not service.queue.scheduled(leader_elections.AUTO_REBALANCE)


# -- trouble of our own making -----------------------------------------------------------------------------------------


def failing(times: int, error: Exception, then: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Return a handler, or a step of one, that raises an error the first few times."""
    left = [times]

    async def handler(*args: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise error
        await then(*args)

    return handler


def break_failover(monkeypatch: pytest.MonkeyPatch, times: int, error: Exception) -> None:
    """Make the step that reads topics and partition states raise an error the first few times."""
    broken = failing(times, error, failover.load_topics)
    steps = [(name, broken if step is failover.load_topics else step) for name, step in failover.FAILOVER]
    monkeypatch.setattr(failover, "FAILOVER", steps)


async def test_bug_in_a_handler_costs_a_reload(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory is corrected in the same term: no other controller is elected, and no epoch rises."""
    handler = failing(1, RuntimeError("a bug"), HANDLERS[ev.TopicChange])
    monkeypatch.setitem(HANDLERS, ev.TopicChange, handler)
    service = await active_controller(cluster)
    with caplog.at_level(logging.ERROR):
        await cluster.create_topic("t", {0: [1]})
        await cluster.until_leaders("t", [1])
    await idle(service)
    assert await cluster.zk.get_controller_epoch() == (1, 1)
    assert service.controller.election.active
    (fault,) = journal_of(service).of_kind("fault")
    assert fault.event == "TopicChange"
    assert "a bug" in str(fault.detail)
    assert [r.event for r in journal_of(service).of_kind("reload")] == [name for name, _ in failover.FAILOVER]
    assert any("Bug while processing TopicChange" in r.getMessage() for r in caplog.records)
    assert any("a bug" in str(e["detail"]) for e in service.controller.status()["events"])
    await until(lambda: service.controller.status()["set_aside"] == [], "it is tried again, and forgotten")
    assert service.shell.faults.reloads.value == 1


async def test_bug_that_repeats_ends_the_process(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    break_failover(monkeypatch, 99, RuntimeError("again"))
    service = await cluster.add_controller()
    error = await cluster.giving_up(service)
    assert isinstance(error, GivingUpError)
    assert f"{FAULTS_TO_GIVE_UP} faults" in str(error)
    assert "again" in str(error)
    assert await cluster.zk.get_controller(watch=False) is None, "the role is free"
    assert len(journal_of(service).of_kind("fault")) == FAULTS_TO_GIVE_UP


async def test_request_whose_handler_has_a_bug_is_answered(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: Any) -> None:
        raise ZeroDivisionError

    service = await active_controller(cluster)
    monkeypatch.setitem(HANDLERS, ev.ControlledShutdown, broken)
    async with asking(service) as client:
        answer = await client.controlled_shutdown(1, cluster.brokers[1].epoch)
    assert answer.error_code == KafkaErrorCode.UNKNOWN_SERVER_ERROR, "no standby is asked the same"
    assert service.shell.context.epoch == 1
    assert service.controller.election.active


async def test_handler_that_forgets_its_answer_is_made_good(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgetful(*args: Any) -> None:
        pass

    service = await active_controller(cluster)
    monkeypatch.setitem(HANDLERS, ev.ControlledShutdown, forgetful)
    async with asking(service) as client:
        answer = await client.controlled_shutdown(1, cluster.brokers[1].epoch)
    assert answer.error_code == KafkaErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("times", [1, 2, 4])
async def test_deposed_in_the_middle_of_the_failover(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Repeatedly, even while resigning from the term before: it is not a fault, and the process ends up active."""
    await cluster.create_topic("t", {0: [1, 2]})
    break_failover(monkeypatch, times, ControllerMovedError("deposed"))
    service = await cluster.add_controller()
    await cluster.until_leaders("t", [1])
    assert service.shell.context.epoch == times + 1
    assert journal_of(service).of_kind("fault") == []


async def test_bug_while_stepping_down(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fenced write was refused, and the next term's failover has a bug: it is recorded, and another term follows."""
    service = await active_controller(cluster)
    break_failover(monkeypatch, 1, RuntimeError("a bug"))
    epoch, _ = await cluster.zk.get_controller_epoch() or (0, 0)
    await cluster.client.set_data("/controller_epoch", str(epoch + 5).encode())
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    assert len(journal_of(service).of_kind("fault")) == 1


# -- ZooKeeper goes away -----------------------------------------------------------------------------------------------


async def test_requests_that_wait_at_the_end_of_a_session_are_answered(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await active_controller(cluster)
    entered, release = held(monkeypatch, ev.TopicChange)
    await cluster.create_topic("t", {0: [1]})
    await entered.wait()
    async with asking(service) as client:
        waiting = asyncio.create_task(client.controlled_shutdown(1, cluster.brokers[1].epoch))
        await until(lambda: len(service.queue))
        await expire_session(service.client)
        answer = await asyncio.wait_for(waiting, 10)
        assert answer.error_code == KafkaErrorCode.NOT_CONTROLLER
        assert not release.is_set(), "nothing waits for the handler that is at work"
    release.set()
    await until(lambda: service.shell.context.epoch == 2)
    await cluster.until_leaders("t", [1])
    assert journal_of(service).of_kind("fault") == []


async def test_session_that_ends_under_a_handler_which_is_then_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It resigns, and wins with the new session before it handles the end of the old one; one process must be left."""
    service = await active_controller(cluster)
    entered, release = held(monkeypatch, ev.TopicChange)
    await cluster.create_topic("t", {0: [1]})
    await entered.wait()
    epoch = service.client.session_epoch
    await expire_session(service.client)
    await until(lambda: service.client.connected and service.client.session_epoch > epoch)
    await cluster.client.set_data("/controller_epoch", b"7")
    release.set()
    await cluster.until_leaders("t", [1])
    await until(lambda: service.controller.election.active and not service.queue)
    await cluster.kill_broker(1)
    await cluster.until_state("t", -1, (1,))


async def test_handler_at_work_at_the_end_of_a_session_writes_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fence belongs to a term that is over, although it writes with a new session."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    real = HANDLERS[ev.BrokerChange]
    entered, release = held(monkeypatch, ev.BrokerChange)
    await cluster.kill_broker(1)
    await entered.wait()
    standby = await cluster.add_controller(aiocontroller_id=105)
    monkeypatch.setitem(HANDLERS, ev.BrokerChange, real)
    await expire_session(service.client)
    state = await cluster.until_state("t", 2, (2,))
    assert state.controller_epoch == standby.shell.context.epoch == 2
    release.set()
    await until(lambda: not service.controller.election.active)
    await idle(service)
    assert await cluster.state("t") == state
    assert is_active(cluster) == [standby]


async def test_fence_is_good_for_no_other_session(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other controller has been elected, so ZooKeeper would take the write; the role has ended with the session."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    entered, release = held(monkeypatch, ev.BrokerChange)
    await cluster.kill_broker(1)
    await entered.wait()
    epoch = service.client.session_epoch
    await expire_session(service.client)
    await until(lambda: service.client.connected and service.client.session_epoch > epoch)
    release.set()
    state = await cluster.until_state("t", 2, (2,))
    assert state.controller_epoch == 2, "written by the next term"


async def test_broken_connection_does_not_cost_the_role(world: World, zk_connect: str) -> None:
    address, _, chroot = zk_connect.partition("/")
    proxy = await FaultProxy(int(address.rsplit(":", 1)[1])).start()
    async with running(world, zk_connect) as cluster:
        for broker in (1, 2, 3):
            await cluster.add_broker(broker)
        service = await cluster.add_controller(zookeeper_connect=f"{proxy.address}/{chroot}")
        await cluster.create_topic("t", {p: [1 + p % 3, 1 + (p + 1) % 3] for p in range(30)})
        await cluster.until_leaders("t", [1 + p % 3 for p in range(30)])
        for lost in (1, 2):
            await cluster.kill_broker(lost)
            await until(lambda: service.controller.state is not ControllerState.Idle or not service.queue)
            proxy.cut_all()
            await until(lambda lost=lost: lost not in service.shell.context.live)
            await cluster.add_broker(lost)
            await until(lambda lost=lost: lost in service.shell.context.live)
            proxy.cut_all()
        await idle(service)
        states = await cluster.states("t", 30)
        assert all(s is not None and s.leader in (1, 2, 3) for s in states)
        assert await cluster.zk.get_controller_epoch() == (1, 1)
        assert len(journal_of(service).of_kind("elected")) == 1
        table = service.shell.context.table
        held = [(table.leader[row], table.leader_epoch[row], table.isr(row)) for row in table.rows()]
        assert held == [(s.leader, s.leader_epoch, s.isr) for s in states if s], "what we know is what is there"
        await cluster.stop_controller(service)
        cluster.services.remove(service)
    await proxy.close()


@pytest.mark.parametrize("fault", [Do.CUT, Do.CUT_AFTER])
async def test_lost_answer_to_an_elections_write_elects_once(world: World, zk_connect: str, fault: Do) -> None:
    """Kafka sends it again, takes its own write for a conflict, and raises the leader epoch twice."""
    address, _, chroot = zk_connect.partition("/")
    proxy = await FaultProxy(int(address.rsplit(":", 1)[1])).start()
    faults: list[int] = []

    def on_request(link: int, xid: int, opcode: int, frame: bytes) -> Do:
        if opcode == MULTI and b"/state" in frame and not faults:
            faults.append(xid)
            return fault
        return Do.PASS

    async with running(world, zk_connect) as cluster:
        for broker in (1, 2, 3):
            await cluster.add_broker(broker)
        service = await cluster.add_controller(zookeeper_connect=f"{proxy.address}/{chroot}")
        await cluster.create_topic("t", {p: [1, 2, 3] for p in range(10)})
        await cluster.until_leaders("t", [1] * 10)
        await idle(service)
        proxy.on_request = on_request
        await cluster.kill_broker(1)
        await cluster.until_leaders("t", [2] * 10)
        await idle(service)
        assert faults
        states = await cluster.states("t", 10)
        assert {(s.leader_epoch, s.partition_epoch, s.isr) for s in states if s} == {(1, 1, (2, 3))}
        assert service.shell.context.epoch == 1
        await cluster.stop_controller(service)
        cluster.services.remove(service)
    await proxy.close()


async def test_changes_made_while_the_connection_was_broken_are_noticed(world: World, zk_connect: str) -> None:
    address, _, chroot = zk_connect.partition("/")
    proxy = await FaultProxy(int(address.rsplit(":", 1)[1])).start()
    async with running(world, zk_connect) as cluster:
        await cluster.add_broker(1)
        service = await cluster.add_controller(zookeeper_connect=f"{proxy.address}/{chroot}")
        await cluster.active()
        await idle(service)
        await proxy.refuse()
        proxy.cut_all()
        await cluster.add_broker(2)
        await cluster.create_topic("t", {0: [2, 1]})
        await until(lambda: not service.client.connected)
        await proxy.start()
        await cluster.until_leaders("t", [2])
        assert service.shell.context.epoch == 1
        await cluster.stop_controller(service)
        cluster.services.remove(service)
    await proxy.close()


async def test_epoch_that_is_no_number_is_named(world: World, zk_connect: str) -> None:
    """Nothing can be fenced without it: the process reports it, changes nothing, and retries until it is repaired."""
    client = ZooKeeperClient(zk_connect, world=world)
    await client.start(10)
    await client.create("/controller_epoch", data=b"seven")
    async with running(world, zk_connect) as cluster:
        service = await cluster.add_controller()
        await until(lambda: journal_of(service).of_kind("fault"))
        assert "/controller_epoch: found seven, expected" in str(journal_of(service).of_kind("fault")[0].detail)
        await until(lambda: any("/controller_epoch" in r for r in service.controller.readiness().reasons))
        assert not service.controller.readiness().ready
        assert await client.get_data("/controller_epoch") == b"seven"
        await client.set_data("/controller_epoch", b"7")
        await cluster.active()
        assert service.shell.context.epoch == 8
        await until(lambda: service.controller.readiness().ready)
    await client.close()


async def test_unreadable_controller_znode_is_respected(cluster: Cluster) -> None:
    await cluster.client.create("/controller", data=b"?", ephemeral=True)
    service = await cluster.add_controller()
    await until(lambda: service.shell.counts.bad_znodes.value)
    assert not service.controller.election.active
    await cluster.client.delete("/controller")
    assert await cluster.active() is service


# -- the journal -------------------------------------------------------------------------------------------------------


async def test_journal_tells_the_story_of_a_term(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(1)
    await cluster.until_state("t", 2, (2,))
    await idle(service)
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    journal = journal_of(service)
    assert [r.controller_epoch for r in journal.of_kind("elected")] == [1]
    assert [r.controller_epoch for r in journal.of_kind("resigned")] == [1]
    assert [r.seq for r in journal.records] == list(range(1, len(journal.records) + 1))
    events = [r.event for r in journal.of_kind("event")]
    assert events[0] == "Startup"
    assert events[-1] == "ShutdownEventThread"
    assert {"TopicChange", "BrokerChange", "LeaderAndIsrResponseReceived"} <= set(events)
    assert all(r.queue_us is not None and r.processing_us is not None for r in journal.of_kind("event"))
    steps = [(r.from_state, r.to_state, r.leader, r.leader_epoch, r.isr) for r in journal.of_kind("partition")]
    assert steps == [
        ("NonExistentPartition", "NewPartition", None, None, None),
        ("NewPartition", "OnlinePartition", 1, 0, (1, 2)),
        ("OnlinePartition", "OfflinePartition", 1, 0, (1, 2)),
        ("OfflinePartition", "OnlinePartition", 2, 1, (2,)),
    ]
    requests, responses = journal.of_kind("request"), journal.of_kind("response")
    answered = {(r.broker, r.broker_epoch, r.correlation_id) for r in responses}
    to_two = [r for r in requests if r.broker == 2]
    assert {(r.broker, r.broker_epoch, r.correlation_id) for r in to_two} <= answered
    assert {"API_VERSIONS", "LEADER_AND_ISR", "UPDATE_METADATA"} <= {r.api for r in to_two}
    assert all(r.epoch == 1 for r in requests)
    assert [(r.broker, r.detail) for r in journal.of_kind("broker")] == [(1, "dead")]
    (loaded,) = journal.of_kind("loaded")
    assert loaded.brokers == [1, 2, 3]


async def test_takeover_deposes_a_broker_but_not_another_aiocontroller(cluster: Cluster) -> None:
    await cluster.client.create("/controller_epoch", data=b"7")
    await cluster.client.create("/controller", data=b'{"version":1,"brokerid":1,"timestamp":"0"}', ephemeral=True)
    first = await cluster.add_controller(aiocontroller_takeover_policy="takeover")
    assert await cluster.active() is first
    assert first.shell.context.epoch == 8
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(1)
    await cluster.until_state("t", 2, (2,))
    second = await cluster.add_controller(aiocontroller_takeover_policy="takeover")
    await until(lambda: second.controller.election.holder)
    assert not second.controller.election.active
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    assert await cluster.active() is second


async def test_takeover_leaves_a_kraft_controller_alone(cluster: Cluster) -> None:
    claim = b'{"version":2,"brokerid":3000,"timestamp":"0","kraftControllerEpoch":5}'
    await cluster.client.create("/controller", data=claim)
    service = await cluster.add_controller(aiocontroller_takeover_policy="takeover")
    await until(lambda: service.controller.election.holder)
    assert not service.controller.election.active
    assert (await cluster.client.get_data("/controller")) == claim


async def test_observer_never_stands(cluster: Cluster) -> None:
    observer = await cluster.add_controller(aiocontroller_takeover_policy="observe")
    await until(lambda: observer.controller.recent)
    assert await cluster.zk.get_controller(watch=False) is None
    service = await cluster.add_controller()
    assert await cluster.active() is service
    await cluster.stop_controller(service)
    await until(lambda: any(e.event == "Reelect" for e in observer.controller.recent))
    assert await cluster.zk.get_controller(watch=False) is None
