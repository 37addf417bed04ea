"""The role is taken and given back on request; what is refused; replicas that name this controller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import CreateTopics, Release, TakeOver
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.core.request_content import Released
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker, _encode
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.server.commands import CommandRefusedError, Commands
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode, encode_migration
from aiocontroller.zookeeper.znodes import encode_broker
from tests.integration.controller.harness import Cluster, idle, until
from tests.integration.controller.test_reassignment import T0, ask, assignment, catch_up, request_by_znode

US = 1_000_001
AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": ("User:ANONYMOUS",)}


async def make_broker_controller(cluster: Cluster) -> None:
    await cluster.client.create("/controller_epoch", data=b"7")
    await cluster.client.create("/controller", data=b'{"version":1,"brokerid":1,"timestamp":"0"}')


async def take_over(service: Service) -> Any:
    return await ask(service, lambda reply: TakeOver(reply=reply))


async def release(service: Service) -> Any:
    return await ask(service, lambda reply: Release(reply=reply))


async def refused(cluster: Cluster, reason: str, **changes: Any) -> None:
    """The takeover is refused, by command and at startup, with the reason in the status; the controller stays."""
    before = await cluster.zk.get_controller(watch=False)
    service = await cluster.add_controller(aiocontroller_takeover_policy="takeover", **changes)
    await until(lambda: any(reason in each for each in service.controller.status()["refusals"]), reason)
    (found,) = await take_over(service)
    assert reason in found
    assert any(reason in each for each in service.controller.readiness().reasons)
    assert not service.controller.readiness().ready
    assert not service.controller.election.active
    assert await cluster.zk.get_controller(watch=False) == before


# -- taking ------------------------------------------------------------------------------------------------------------


async def test_observer_takes_the_role_when_it_is_asked_to(cluster: Cluster) -> None:
    await make_broker_controller(cluster)
    service = await cluster.add_controller(aiocontroller_takeover_policy="wait")
    await until(lambda: service.controller.election.holder)
    assert not service.controller.election.active
    assert await take_over(service) == []
    assert service.controller.election.active
    assert await cluster.zk.get_controller_epoch() == (8, 1)
    assert await take_over(service) == []  # it has it
    assert await cluster.zk.get_controller_epoch() == (8, 1)


async def test_another_aiocontroller_is_not_deposed(cluster: Cluster) -> None:
    first = await cluster.add_controller()
    await until(lambda: first.controller.election.active)
    second = await cluster.add_controller(aiocontroller_id=2_000_000)
    with pytest.raises(CommandRefusedError, match="controller 1000001 is an aiocontroller already"):
        await Commands(second.shell, second.controller, second.stop).take_over(b"")
    assert first.controller.election.active


async def test_kraft_controller_is_not_deposed(cluster: Cluster) -> None:
    claim = b'{"version":2,"brokerid":3000,"timestamp":"0","kraftControllerEpoch":5}'
    await cluster.client.create("/controller", data=claim)
    await refused(cluster, "controller 3000 is KRaft's (kraftControllerEpoch 5)")


async def test_cluster_in_migration_is_left_alone_even_without_a_controller(cluster: Cluster) -> None:
    await cluster.client.create("/migration", data=encode_migration(MigrationZNode(3000, 2, 100, 2)))
    service = await cluster.add_controller()
    await until(lambda: "/migration names KRaft controller 3000" in " ".join(service.controller.election.refusals))
    assert await cluster.zk.get_controller(watch=False) is None
    await make_broker_controller(cluster)
    assert ["/migration names KRaft controller 3000" in reason for reason in await take_over(service)] == [True]


async def test_id_of_a_broker_is_no_controllers(cluster: Cluster) -> None:
    await make_broker_controller(cluster)
    await refused(cluster, "aiocontroller.id 2 is the id of a broker on 127.0.0.1:", aiocontroller_id=2)


async def test_id_of_a_broker_that_cannot_be_read_is_no_controllers_either(cluster: Cluster) -> None:
    await make_broker_controller(cluster)
    await cluster.client.create("/brokers/ids/1000001", data=b"{", ephemeral=True)
    await refused(cluster, "aiocontroller.id 1000001 is the id of a broker: choose an unused one")


async def test_brokers_too_old_are_not_controlled(cluster: Cluster) -> None:
    await make_broker_controller(cluster)
    cluster.brokers[3].served[ApiKey.LEADER_AND_ISR] = (0, 1)
    await refused(cluster, "broker 3 is older than Kafka 2.2 (LeaderAndIsr 1)")


async def test_brokers_ready_for_migration_are_controlled(cluster: Cluster) -> None:
    await make_broker_controller(cluster)
    broker = cluster.brokers[2]

    def respond(api: ApiKey, version: int, request: Any) -> bytes:
        if api is ApiKey.API_VERSIONS and version >= 3:
            keys = [{"api_key": k, "min_version": lo, "max_version": hi} for k, (lo, hi) in broker.served.items()]
            return _encode(api, version, api_keys=keys, zk_migration_ready=True)
        return RecordingBroker.respond(broker, api, version, request)

    broker.respond = respond  # type: ignore[method-assign]
    service = await cluster.add_controller(aiocontroller_takeover_policy="takeover")
    assert await cluster.active() is service


async def test_make_broker_controller_is_not_deposed_where_no_broker_can_be_reached_but_one_may_be_away(
    cluster: Cluster,
) -> None:
    """This needs an authorizer and settings of our own; without them, all brokers must be there."""
    await make_broker_controller(cluster)
    for broker in (1, 2, 3):
        cluster.brokers[broker].deafen()
    service = await cluster.add_controller(
        aiocontroller_takeover_policy="takeover", aiocontroller_keep_ours=("all",), **AUTHORIZER
    )
    (found,) = await take_over(service)
    assert "no broker can be reached: broker 1: it does not answer" in found
    await cluster.brokers[2].listen()
    path = "/brokers/ids/2"
    await cluster.client.set_data(path, encode_broker(cluster.brokers[2].info), -1)
    await cluster.active()  # by itself, as the policy says
    assert service.controller.status()["refusals"] == []


async def test_broker_that_has_not_answered_keeps_a_controller_without_authorizer_out(cluster: Cluster) -> None:
    await make_broker_controller(cluster)
    port = cluster.brokers[3].port
    cluster.brokers[3].deafen()
    await refused(cluster, "broker 3 has not said whether it has an authorizer: it does not answer")
    await cluster.brokers[3].listen(port)
    await cluster.active()


async def test_broker_that_registers_before_it_listens_is_waited_for(cluster: Cluster) -> None:
    await make_broker_controller(cluster)
    for broker in (2, 3):
        await cluster.kill_broker(broker)
    port = cluster.brokers[1].port
    cluster.brokers[1].deafen()
    service = await cluster.add_controller(aiocontroller_takeover_policy="takeover")
    await until(lambda: service.controller.election.holder)
    await cluster.brokers[1].listen(port)
    assert await cluster.active() is service


# -- giving back -------------------------------------------------------------------------------------------------------


async def test_release_gives_the_role_back_and_keeps_out(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    for broker in cluster.brokers.values():
        broker.take()
    epoch = service.shell.context.epoch
    assert await release(service) == Released(epoch)
    assert await cluster.zk.get_controller(watch=False) is None
    for broker in cluster.brokers.values():  # the last that they were sent: no controller among the live brokers
        last = broker.of(ApiKey.UPDATE_METADATA)[-1]
        assert [live.id_ for live in last.live_brokers] == [1, 2, 3]
        assert not last.topic_states
    refused = await ask(
        service, lambda reply: CreateTopics(topics=(), timeout_ms=1000, validate_only=False, reply=reply)
    )
    assert refused is KafkaErrorCode.NOT_CONTROLLER
    assert service.controller.status()["observing"]
    await make_broker_controller_again(cluster)
    assert not service.controller.election.active
    assert await release(service) == Released(0)
    assert await take_over(service) == []
    assert service.controller.election.active
    await idle(service)
    last = cluster.brokers[1].of(ApiKey.UPDATE_METADATA)[-1]
    assert [live.id_ for live in last.live_brokers] == [1, 2, 3, US]


async def make_broker_controller_again(cluster: Cluster) -> None:
    """A broker is elected and resigns: a process that only observes does not stand."""
    await cluster.client.create("/controller", data=b'{"version":1,"brokerid":1,"timestamp":"0"}', ephemeral=True)
    await cluster.client.delete("/controller", -1)
    await asyncio.sleep(0.2)
    assert await cluster.zk.get_controller(watch=False) is None


async def test_release_with_a_broker_that_is_silent_takes_two_seconds(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.active()
    await idle(service)
    cluster.brokers[2].unanswered.add(ApiKey.UPDATE_METADATA)
    assert await release(service) == Released(1)
    assert await cluster.zk.get_controller(watch=False) is None


async def test_release_is_answered_when_the_session_ends_meanwhile(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.active()
    await idle(service)
    cluster.brokers[2].unanswered.add(ApiKey.UPDATE_METADATA)
    releasing = asyncio.create_task(release(service))
    await until(lambda: service.shell.leaving)
    await expire_session(service.client)
    assert await releasing == Released(1)
    await until(lambda: service.controller.recent[-1].event == "Startup" or service.client.connected)
    await asyncio.sleep(0.2)
    assert not service.controller.election.active  # asked to release, it does not win the role again


async def test_leaving_releases_and_ends(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.active()
    await idle(service)
    service.leave()
    await asyncio.wait_for(cluster._running.pop(service), 10)
    assert [live.id_ for live in cluster.brokers[1].of(ApiKey.UPDATE_METADATA)[-1].live_brokers] == [1, 2, 3]


# -- replicas that name this controller --------------------------------------------------------------------------------


async def led_by_another(cluster: Cluster, replicas: list[int]) -> None:
    """The state in which a broker's controller leaves a topic created while this one was still listed as live."""
    await cluster.create_topic("t", {0: replicas})
    await cluster.client.create("/brokers/topics/t/partitions")
    await cluster.client.create("/brokers/topics/t/partitions/0")
    state = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2]}'
    await cluster.client.create("/brokers/topics/t/partitions/0/state", data=state)


async def test_replica_that_names_us_is_moved_when_we_are_back(cluster: Cluster) -> None:
    await cluster.client.create("/controller_epoch", data=b"1")
    await led_by_another(cluster, [US, 2])
    service = await cluster.add_controller()
    await cluster.active()

    async def begun() -> bool:
        return (await assignment(cluster)).removing == (US,)

    await until(begun, "the reassignment begins")
    (added,) = (await assignment(cluster)).adding
    assert added in (1, 3)
    await catch_up(cluster, service, (2, added))

    async def ended() -> bool:
        return (await assignment(cluster)).replicas == (added, 2)

    await until(ended, "the reassignment ends")


async def test_replica_that_names_us_appears_while_ours_is_active(cluster: Cluster) -> None:
    await cluster.client.create("/controller_epoch", data=b"1")
    service = await cluster.add_controller()
    await cluster.active()
    await led_by_another(cluster, [2, US])

    # whichever existed first, topic or state: no election names us, and the replica is removed
    async def gone() -> bool:
        found = await assignment(cluster)
        return US not in found.target

    await until(gone, "no target names us")
    assert service.controller.election.active


async def test_topic_that_names_us_changes_while_it_is_looked_at(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded as it is, since it cannot be written at that moment; its own replicas are moved afterwards."""
    service = await cluster.add_controller()
    await cluster.active()
    write, grown = service.shell.zk.set_topic_assignments, False

    async def after_another_writer(assignments: Any, *, fence: int) -> Any:
        nonlocal grown
        if not grown:
            grown = True
            data = b'{"version":1,"partitions":{"0":[%d],"1":[2]}}' % US
            await cluster.client.set_data("/brokers/topics/fresh", data, -1)
        return await write(assignments, fence=fence)

    monkeypatch.setattr(service.shell.zk, "set_topic_assignments", after_another_writer)
    await cluster.create_topic("fresh", {0: [US]})
    await cluster.until_leaders("fresh", [1, 2])
    assert grown

    async def moved() -> bool:
        (fresh,) = (await cluster.zk.get_topic_assignments(["fresh"], watch=False)).found
        return fresh.partitions == {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((2,))}

    await until(moved, "partition 0 is another writer's and no reassignment is ongoing")


async def test_release_waits_until_no_replica_names_us(cluster: Cluster) -> None:
    await cluster.client.create("/controller_epoch", data=b"1")
    await led_by_another(cluster, [US, 2])
    service = await cluster.add_controller()
    await cluster.active()
    releasing = asyncio.create_task(release(service))

    async def begun() -> bool:
        return (await assignment(cluster)).removing == (US,)

    await until(begun, "the reassignment begins")
    (added,) = (await assignment(cluster)).adding
    await catch_up(cluster, service, (2, added))
    assert await releasing == Released(2)
    assert (await assignment(cluster)).replicas == (added, 2)


async def test_release_says_what_it_leaves(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiocontroller.controller.release.MOVED_WITHIN_S", 0.5)
    await cluster.client.create("/controller_epoch", data=b"1")
    await led_by_another(cluster, [US, 2])
    service = await cluster.add_controller()
    await cluster.active()
    assert await release(service) == Released(2, ("t-0",))


async def test_reassignment_by_znode_that_names_us_is_refused(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await request_by_znode(cluster, {T0: [1, US]})

    async def taken_out() -> bool:
        return await cluster.zk.get_partition_reassignment(watch=False) is None

    await until(taken_out, "the request is taken out")
    await idle(service)
    assert (await assignment(cluster)).replicas == (1, 2)
    assert isinstance((await cluster.states("t", 1))[0], LeaderAndIsr)


# -- and those that name an earlier controller, under another id -------------------------------------------------------

EARLIER = 2_000_000


async def known(cluster: Cluster) -> object:
    return (await cluster.zk.get_known_controllers())[0]


async def succeeded(cluster: Cluster) -> None:
    """A controller with another id has been active, and is gone."""
    first = await cluster.add_controller(aiocontroller_id=EARLIER)
    await until(lambda: first.controller.election.active)
    await idle(first)
    assert await known(cluster) == {EARLIER}
    await cluster.stop_controller(first)
    cluster.services.remove(first)


async def test_replicas_that_name_an_earlier_controller_are_moved_or_replaced(cluster: Cluster) -> None:
    await succeeded(cluster)
    await led_by_another(cluster, [EARLIER, 2])
    await cluster.create_topic("fresh", {0: [EARLIER], 1: [1, EARLIER, 3]})
    service = await cluster.add_controller()
    await cluster.active()

    async def remembered() -> bool:
        return await known(cluster) == {EARLIER, US}

    await until(remembered, "both ids are remembered")

    async def begun() -> bool:
        return (await assignment(cluster)).removing == (EARLIER,)

    await until(begun, "the reassignment begins")
    (added,) = (await assignment(cluster)).adding
    await catch_up(cluster, service, (2, added))
    await cluster.until_state("fresh", 1, (1, 2, 3), partition=1)
    (fresh,) = (await cluster.zk.get_topic_assignments(["fresh"], watch=False)).found
    assert fresh.partitions[1].replicas == (1, 2, 3)
    assert fresh.partitions[0].replicas[0] in (1, 2, 3)
    await request_by_znode(cluster, {TopicPartition("fresh", 0): [1, EARLIER]})

    async def taken_out() -> bool:
        return await cluster.zk.get_partition_reassignment(watch=False) is None

    await until(taken_out, "the request is taken out")


async def test_topic_that_names_an_earlier_controller_is_deleted(cluster: Cluster) -> None:
    """The deletion was requested before a broker could take the replica over; there is no broker to wait for."""
    await succeeded(cluster)
    await led_by_another(cluster, [EARLIER, 2])
    await cluster.client.create("/admin/delete_topics/t")
    await cluster.add_controller()
    await cluster.active()

    async def gone() -> bool:
        return not await cluster.client.exists("/brokers/topics/t")

    await until(gone, "the topic is deleted")


async def test_id_that_a_broker_has_now_is_no_controllers(cluster: Cluster) -> None:
    await succeeded(cluster)
    service = await cluster.add_controller()
    await cluster.active()
    await idle(service)  # a broker that registers in the middle of a failover is known after it
    await cluster.add_broker(EARLIER)
    await cluster.create_topic("t", {0: [EARLIER, 1]})
    await cluster.until_state("t", EARLIER, (EARLIER, 1))
    await idle(service)
    assert await assignment(cluster) == ReplicaAssignment((EARLIER, 1))
    assert await known(cluster) == {US}


async def test_known_controllers_that_cannot_be_read_cost_only_themselves(cluster: Cluster) -> None:
    await cluster.client.create("/aiocontroller_ids", data=b"{")
    await cluster.create_topic("t", {0: [US]})
    await cluster.add_controller()
    await cluster.active()

    async def replaced() -> bool:
        return (await assignment(cluster)).replicas[0] in (1, 2, 3)

    await until(replaced)
    assert await cluster.client.get_data("/aiocontroller_ids") == b"{"
