"""Brokers and controllers that seem dead, on virtual time: the program, a modelled ZooKeeper, recording brokers.

ZooKeeper sessions last six seconds here; what happens sooner is due to early detection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import AlterPartitionReceived, ReplicaLeaderElection
from aiocontroller.core.invariants import violations
from aiocontroller.core.request_content import AlterPartition, ElectionType
from aiocontroller.lab.simulated_net import SimulatedClock, SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.znodes import encode_broker
from tests.integration.controller.harness import Cluster, journal_of

QUICKLY_S = 1.0
"""Much shorter than a session."""


class Stage(Cluster):
    def __init__(self, world: World, network: SimulatedNetwork, zookeeper: ZooKeeperServer) -> None:
        super().__init__(world, zookeeper.address)
        self.network = network
        self.zookeeper = zookeeper

    async def begin(self, mode: str = "refused", brokers: int = 3, **settings: Any) -> Service:
        """Create ``t-0`` to ``t-2``, each led by another broker, with all replicas in sync."""
        for broker in range(1, brokers + 1):
            self.on_host(f"broker {broker}")
            await self.add_broker(broker)
        self.on_host("controller")
        service = await self.add_controller(aiocontroller_early_broker_detection=mode, **settings)
        await self.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
        await self.until_leaders("t", [1, 2, 3])
        await asyncio.sleep(2)
        for broker_ in self.brokers.values():
            broker_.take()
        return service

    def on_host(self, name: str) -> None:
        """Let everything that is added from now on run on this host."""
        host = self.network.host(name)
        self.world = World(host, SimulatedClock(host), Random(name))

    async def now(self) -> list[tuple[int, tuple[int, ...], int]]:
        return [(s.leader, s.isr, s.leader_epoch) for s in await self.states("t", 3) if s is not None]

    async def registered(self) -> list[int]:
        found, _ = await self.zk.get_all_brokers_in_cluster(watch=False)
        return [broker.id for broker in found]

    async def deafen(self, *brokers: int) -> list[int]:
        """Close the brokers' ports from now on; return the ports."""
        ports = [self.brokers[broker].port for broker in brokers]
        for broker in brokers:
            self.brokers[broker].deafen()
        return ports

    def hush(self, *brokers: int) -> None:
        """Suspend the brokers: they accept what is sent to them, and send nothing."""
        for broker in brokers:
            self.brokers[broker].unanswered |= {ApiKey.API_VERSIONS, ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA}


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    network = SimulatedNetwork()
    world = simulated_world(network, seed=1)
    server = ZooKeeperServer(world)
    await server.start()
    it = Stage(world, network, server)
    await it.start()
    try:
        yield it
        for service in it.services:
            if service.controller.election.active:
                assert violations(service.shell.context) == []
    finally:
        await it.close()
        server.stop()


def suspicions(service: Service) -> list[tuple[str | None, int | None]]:
    return [(r.event, r.broker) for r in journal_of(service).of_kind("suspicion")]


WITHOUT_2 = [(1, (1, 3), 1), (3, (3, 1), 1), (3, (3, 1), 1)]


# -- a broker that dies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["refused", "full"])
@virtual_time
async def test_a_broker_that_refuses_loses_its_leaders_and_leaves_the_isrs(mode: str) -> None:
    async with stage() as it:
        service = await it.begin(mode)
        await it.deafen(2)
        await asyncio.sleep(QUICKLY_S)
        assert await it.now() == WITHOUT_2
        assert await it.registered() == [1, 2, 3]
        assert service.controller.status()["suspected"] == [2]
        assert suspicions(service) == [("suspected", 2), ("alarm", 2)]
        assert service.metrics.snapshot()["aiocontroller_earlydetection_alarms_total"] == 1
        heard = it.brokers[1].of(ApiKey.UPDATE_METADATA)[-1]
        assert 2 in [b.id_ for b in heard.live_brokers], "its followers may yet need to find it"


@virtual_time
async def test_off_is_off() -> None:
    async with stage() as it:
        service = await it.begin("off")
        before = await it.now()
        await it.deafen(2)
        await asyncio.sleep(30)
        assert await it.now() == before
        assert suspicions(service) == []


@virtual_time
async def test_its_registration_goes_and_it_is_dead_as_ever() -> None:
    async with stage() as it:
        service = await it.begin()
        await it.deafen(2)
        await asyncio.sleep(QUICKLY_S)
        await it.brokers.pop(2).client.close()
        await asyncio.sleep(QUICKLY_S)
        assert await it.now() == WITHOUT_2, "there was nothing left to do"
        assert service.controller.status()["suspected"] == []
        assert sorted(service.shell.context.live) == [1, 3]
        await it.add_broker(2)
        await asyncio.sleep(QUICKLY_S)
        assert sorted(service.shell.context.live) == [1, 2, 3]
        assert ("false alarm", 2) not in suspicions(service)


@virtual_time
async def test_silence_is_evidence_in_the_mode_full_only() -> None:
    for mode, expected in (("full", WITHOUT_2), ("refused", [(1, (1, 2, 3), 0), (2, (2, 3, 1), 0), (3, (3, 1, 2), 0)])):
        async with stage() as it:
            await it.begin(mode)
            it.hush(2)
            await asyncio.sleep(2.5)
            assert await it.now() == expected


@virtual_time
async def test_a_partition_in_one_direction_is_silence() -> None:
    async with stage() as it:
        service = await it.begin("full")
        it.network.block("broker 2", "controller")
        await asyncio.sleep(2.5)
        assert [state[0] for state in await it.now()] == [1, 3, 3]
        assert 2 in await it.registered()
        it.network.heal()
        await asyncio.sleep(5)
        assert sorted(service.shell.context.live) == [1, 2, 3]


@pytest.mark.parametrize("uptime_s", [10, 120])
@virtual_time
async def test_a_long_pause_is_one_alarm_and_does_not_hide_the_death_of_another(uptime_s: float) -> None:
    """However long the broker had answered before, it is trusted again a second after it wakes."""
    async with stage() as it:
        service = await it.begin("full")
        await asyncio.sleep(uptime_s)
        it.network.block("broker 2", "controller")
        await asyncio.sleep(3)
        it.network.heal()
        await asyncio.sleep(1.5)
        assert suspicions(service) == [("suspected", 2), ("alarm", 2), ("false alarm", 2)]
        await it.deafen(3)
        await asyncio.sleep(QUICKLY_S)
        assert suspicions(service)[3:] == [("suspected", 3), ("alarm", 3)]
        assert 3 not in [state[0] for state in await it.now()]


# -- what is not done --------------------------------------------------------------------------------------------------


@virtual_time
async def test_the_last_in_sync_stays_and_no_outsider_is_elected() -> None:
    """No outsider, even where unclean elections are allowed, whatever event comes meanwhile."""
    async with stage() as it:
        service = await it.begin(unclean_leader_election_enable=True)
        for number, leader in enumerate((1, 2, 3)):
            state = await it.state("t", number)
            ask = AlterPartition("t", number, state.leader_epoch, (leader,), state.partition_epoch)
            epoch = it.brokers[leader].epoch
            service.queue.append(
                AlterPartitionReceived(
                    broker=leader, broker_epoch=epoch, version=3, partitions=(ask,), reply=Reply(lambda _: None)
                )
            )
        await asyncio.sleep(1)
        alone = [(1, (1,), 0), (2, (2,), 0), (3, (3,), 0)]
        assert await it.now() == alone
        await it.deafen(2)
        await asyncio.sleep(QUICKLY_S)
        assert service.controller.status()["suspected"] == [2]
        assert await it.now() == alone
        await it.kill_broker(3)
        await asyncio.sleep(QUICKLY_S)
        assert service.controller.status()["offline_partitions"] == 0, "t-1 is led, as far as is known"
        (one, two, three) = await it.now()
        assert (one, two) == (alone[0], alone[1])
        assert three[1] != (3,), "a death that ZooKeeper vouches for is another matter"


@virtual_time
async def test_a_requested_election_does_not_ignore_a_suspicion() -> None:
    async with stage() as it:
        service = await it.begin()
        await it.deafen(2)
        await asyncio.sleep(QUICKLY_S)
        answers: list[Any] = []
        service.queue.append(
            ReplicaLeaderElection(partitions=None, election_type=ElectionType.PREFERRED, reply=Reply(answers.append))
        )
        await asyncio.sleep(QUICKLY_S)
        assert answers
        assert await it.now() == WITHOUT_2, "2 is preferred for t-1, and is not live"


@virtual_time
async def test_a_suspect_is_not_taken_into_an_isr() -> None:
    async with stage() as it:
        service = await it.begin()
        await it.deafen(2)
        await asyncio.sleep(QUICKLY_S)
        state = await it.state("t", 0)
        answers: list[Any] = []
        ask = AlterPartition("t", 0, state.leader_epoch, (1, 3, 2), state.partition_epoch)
        service.queue.append(
            AlterPartitionReceived(
                broker=1, broker_epoch=it.brokers[1].epoch, version=3, partitions=(ask,), reply=Reply(answers.append)
            )
        )
        await asyncio.sleep(QUICKLY_S)
        assert answers[0][0].error_code == KafkaErrorCode.INELIGIBLE_REPLICA
        assert await it.now() == WITHOUT_2


@virtual_time
async def test_a_leader_that_was_moved_away_can_change_nothing() -> None:
    """After a suspension it asks to shrink its ISR to itself, like a leader whose followers are gone."""
    async with stage() as it:
        service = await it.begin("full")
        before = await it.state("t", 1)
        it.hush(2)
        await asyncio.sleep(2.5)
        answers: list[Any] = []
        ask = AlterPartition("t", 1, before.leader_epoch, (2,), before.partition_epoch)
        service.queue.append(
            AlterPartitionReceived(
                broker=2, broker_epoch=it.brokers[2].epoch, version=3, partitions=(ask,), reply=Reply(answers.append)
            )
        )
        await asyncio.sleep(QUICKLY_S)
        assert answers[0][0].error_code == KafkaErrorCode.FENCED_LEADER_EPOCH
        assert await it.now() == WITHOUT_2


@pytest.mark.parametrize("how", ["refuse", "fall silent"])
@virtual_time
async def test_most_brokers_at_once_and_nothing_happens(how: str) -> None:
    async with stage() as it:
        service = await it.begin("full")
        before = await it.now()
        if how == "refuse":
            await it.deafen(2, 3)
        else:
            it.hush(1, 2, 3)
        await asyncio.sleep(20)
        assert await it.now() == before
        assert [event for event, _ in suspicions(service)] == ["held"]
        assert service.metrics.snapshot()['aiocontroller_earlydetection_held_total{peer="broker"}'] == 1


@virtual_time
async def test_a_broker_in_a_controlled_shutdown_raises_no_alarm() -> None:
    async with stage() as it:
        service = await it.begin()
        service.shell.context.begin_shutdown(2)
        before = await it.now()
        await it.deafen(2)
        await asyncio.sleep(QUICKLY_S)
        assert await it.now() == before
        assert [event for event, _ in suspicions(service)] == ["suspected"]
        assert service.controller.status()["suspected"] == []


# -- how long clients hear of it ---------------------------------------------------------------------------------------


def heard_alive(it: Stage, listener: int) -> list[int]:
    """Return the live brokers in the last list that this broker was sent."""
    last = it.brokers[listener].of(ApiKey.UPDATE_METADATA)[-1]
    return [broker.id_ for broker in last.live_brokers if broker.id_ != last.controller_id]


@virtual_time
async def test_a_dead_broker_is_listed_for_two_seconds_more() -> None:
    """It gets no requests, and leads no partition."""
    async with stage() as it:
        service = await it.begin("refused")
        dead = it.brokers[2]
        await it.kill_broker(2)
        await asyncio.sleep(0.5)
        assert [(leader, isr) for leader, isr, _ in await it.now()] == [(1, (1, 3)), (3, (3, 1)), (3, (3, 1))]
        assert [heard_alive(it, n) for n in (1, 3)] == [[1, 3, 2]] * 2
        offline = {
            tuple(p.offline_replicas)
            for t in it.brokers[1].of(ApiKey.UPDATE_METADATA)[-1].topic_states
            for p in t.partition_states
        }
        assert offline <= {(2,)}
        dead.take()
        await asyncio.sleep(1.3)
        assert [heard_alive(it, n) for n in (1, 3)] == [[1, 3, 2]] * 2
        await asyncio.sleep(0.5)
        assert [heard_alive(it, n) for n in (1, 3)] == [[1, 3]] * 2
        assert service.shell.context.departed == {}
        assert dead.take() == []


@virtual_time
async def test_a_registration_that_is_removed_at_once_takes_no_broker_out_of_the_list() -> None:
    """Fast bounce removes it after half a second; the broker's leaders moved just before."""
    async with stage() as it:
        await it.begin("refused", aiocontroller_early_fast_bounce_ms=500)
        await it.deafen(2)
        await asyncio.sleep(1)
        assert await it.registered() == [1, 3]
        assert heard_alive(it, 1) == [1, 3, 2]
        await asyncio.sleep(2)
        assert heard_alive(it, 1) == [1, 3]


@virtual_time
async def test_a_broker_that_comes_back_stays_listed() -> None:
    async with stage() as it:
        service = await it.begin("refused")
        await it.kill_broker(2)
        await asyncio.sleep(1)
        await it.add_broker(2)
        await asyncio.sleep(0.5)
        heard = len(it.brokers[1].of(ApiKey.UPDATE_METADATA))
        await asyncio.sleep(3)
        lists = [[b.id_ for b in r.live_brokers] for r in it.brokers[1].of(ApiKey.UPDATE_METADATA)[heard - 1 :]]
        assert all(sorted(found)[:3] == [1, 2, 3] for found in lists)
        assert service.shell.context.departed == {}


@virtual_time
async def test_where_detection_is_off_a_dead_broker_is_taken_out_of_the_list_at_once_as_in_kafka() -> None:
    async with stage() as it:
        await it.begin("off")
        await it.kill_broker(2)
        await asyncio.sleep(0.5)
        assert [heard_alive(it, n) for n in (1, 3)] == [[1, 3]] * 2


# -- it lives ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_false_alarm_is_taken_back() -> None:
    async with stage() as it:
        service = await it.begin()
        (port,) = await it.deafen(2)
        await asyncio.sleep(QUICKLY_S)
        it.brokers[2].take()
        await it.brokers[2].listen(port)
        await asyncio.sleep(3)
        assert service.controller.status()["suspected"] == []
        assert suspicions(service) == [("suspected", 2), ("alarm", 2), ("false alarm", 2)]
        received = {
            (p.partition_index, p.leader, p.leader_epoch)
            for r in it.brokers[2].of(ApiKey.LEADER_AND_ISR)
            for t in r.topic_states
            for p in t.partition_states
        }
        assert received == {(0, 1, 1), (1, 3, 1), (2, 3, 1)}, "it hears of all that it missed"
        assert it.brokers[2].of(ApiKey.STOP_REPLICA) == [], "it would ignore the LeaderAndIsr that starts it again"
        state = await it.state("t", 0)
        ask = AlterPartition("t", 0, state.leader_epoch, (1, 3, 2), state.partition_epoch)
        service.queue.append(
            AlterPartitionReceived(
                broker=1,
                broker_epoch=it.brokers[1].epoch,
                version=3,
                partitions=(ask,),
                reply=Reply(lambda _: None),
            )
        )
        await asyncio.sleep(QUICKLY_S)
        assert (await it.state("t", 0)).isr == (1, 3, 2)


@virtual_time
async def test_a_broker_that_flaps_moves_leaders_ever_more_rarely() -> None:
    async with stage() as it:
        service = await it.begin()
        port = it.brokers[2].port
        for _ in range(30):
            await it.deafen(2)
            await asyncio.sleep(0.5)
            await it.brokers[2].listen(port)
            await asyncio.sleep(1.5)
        alarms = [event for event, _ in suspicions(service)].count("alarm")
        assert alarms == 2, "a minute of it"


@virtual_time
async def test_a_broker_that_moves_to_another_address_under_suspicion_is_judged_anew() -> None:
    async with stage() as it:
        service = await it.begin()
        await it.deafen(2)
        await asyncio.sleep(QUICKLY_S)
        await it.brokers[2].listen(0)
        await it.client.set("/brokers/ids/2", encode_broker(it.brokers[2].info), -1)
        await asyncio.sleep(QUICKLY_S)
        assert service.controller.status()["suspected"] == []
        assert sorted(service.shell.context.live) == [1, 2, 3]


# -- fast bounce -------------------------------------------------------------------------------------------------------


@virtual_time
async def test_the_registration_of_a_dead_broker_is_removed_when_its_time_is_up() -> None:
    async with stage() as it:
        service = await it.begin(aiocontroller_early_fast_bounce_ms=2_000)
        await it.deafen(2)
        await asyncio.sleep(1.5)
        assert await it.registered() == [1, 2, 3]
        await asyncio.sleep(1.0)
        assert await it.registered() == [1, 3]
        assert suspicions(service)[-1] == ("registration removed", 2)
        assert sorted(service.shell.context.brokers) == [1, 3]


@virtual_time
async def test_a_broker_that_listens_again_in_time_keeps_its_registration() -> None:
    async with stage() as it:
        await it.begin(aiocontroller_early_fast_bounce_ms=2_000)
        (port,) = await it.deafen(2)
        await asyncio.sleep(1.5)
        await it.brokers[2].listen(port)
        await asyncio.sleep(0.5)
        await it.deafen(2)
        await asyncio.sleep(1.5)
        assert await it.registered() == [1, 2, 3], "its time began anew"


@virtual_time
async def test_a_broker_that_is_slow_to_listen_after_it_has_registered_keeps_its_registration() -> None:
    """Real brokers take seconds for that on a busy machine, and their second registration used to be removed, too."""
    async with stage() as it:
        service = await it.begin("full", aiocontroller_early_fast_bounce_ms=500)
        await it.add_broker(4)
        it.brokers[4].deafen()
        await it.bounce_broker(4)
        await asyncio.sleep(8)
        assert await it.registered() == [1, 2, 3, 4]
        assert 4 in service.shell.context.live
        await it.deafen(2)
        await asyncio.sleep(QUICKLY_S)
        assert await it.now() == WITHOUT_2, "nor is it in the way"


@virtual_time
async def test_another_incarnation_is_not_removed() -> None:
    async with stage() as it:
        await it.begin(aiocontroller_early_fast_bounce_ms=2_000)
        old = it.brokers[2].epoch
        fence = it.services[0].shell.context.epoch_zk_version
        epoch = await it.bounce_broker(2)
        assert not await it.zk.delete_broker_registration(2, old, fence=fence)
        assert await it.registered() == [1, 2, 3]
        assert await it.zk.delete_broker_registration(2, epoch, fence=fence)
        assert not await it.zk.delete_broker_registration(2, epoch, fence=fence)
        assert await it.registered() == [1, 3]


# -- a dead controller -------------------------------------------------------------------------------------------------


async def two_controllers(it: Stage, mode: str) -> tuple[Service, Service]:
    services = []
    for number in (1, 2):
        it.on_host(f"controller {number}")
        services.append(
            await it.add_controller(
                aiocontroller_id=1_000_000 + number,
                aiocontroller_early_controller_detection=mode,
            )
        )
        await it.active()
    await asyncio.sleep(1)
    assert [s.controller.election.active for s in services] == [True, False]
    return services[0], services[1]


@pytest.mark.parametrize("mode", ["refused", "full"])
@virtual_time
async def test_a_killed_controller_is_succeeded_before_its_session_ends(mode: str) -> None:
    async with stage() as it:
        await it.add_broker(1)
        first, second = await two_controllers(it, mode)
        it.network.crash(it.network.listeners[first.endpoints[0].port][0])
        await asyncio.sleep(QUICKLY_S)
        assert second.controller.election.active
        assert second.shell.context.epoch == 2
        assert ("alarm", 1_000_001) in suspicions(second)
        it.services.remove(first)
        it.crash_controller(first)


@pytest.mark.parametrize("mode", ["off", "refused", "full"])
@virtual_time
async def test_a_controller_that_stands_still_is_deposed_in_the_mode_full_only(mode: str) -> None:
    """When it wakes up, it finds that it is no longer active, and stands by."""
    async with stage() as it:
        await it.add_broker(1)
        first, second = await two_controllers(it, mode)
        host = it.network.listeners[first.endpoints[0].port][0]
        host.pause()
        await asyncio.sleep(3)
        assert second.controller.election.active == (mode == "full")
        host.resume()
        await asyncio.sleep(1)
        assert [s.controller.election.active for s in (first, second)] == [mode != "full", mode == "full"]
        epoch = await it.zk.get_controller_epoch()
        assert epoch is not None
        assert epoch[0] == (2 if mode == "full" else 1)


@virtual_time
async def test_controllers_that_do_not_hear_each_other_do_not_depose_each_other_in_turns() -> None:
    async with stage() as it:
        await it.add_broker(1)
        _, second = await two_controllers(it, "full")
        for one, other in ((1, 2), (2, 1)):
            it.network.block(f"controller {one}", f"controller {other}")
        await asyncio.sleep(60)
        assert second.controller.election.active
        epoch = await it.zk.get_controller_epoch()
        assert epoch is not None
        assert epoch[0] == 2


@virtual_time
async def test_of_several_standbys_one_succeeds() -> None:
    async with stage() as it:
        await it.add_broker(1)
        first, second = await two_controllers(it, "refused")
        third = await it.add_controller(aiocontroller_id=1_000_003, aiocontroller_early_controller_detection="refused")
        await asyncio.sleep(1)
        it.network.crash(it.network.listeners[first.endpoints[0].port][0])
        await asyncio.sleep(QUICKLY_S)
        assert sum(s.controller.election.active for s in (second, third)) == 1
        epoch = await it.zk.get_controller_epoch()
        assert epoch is not None
        assert epoch[0] == 2
        it.services.remove(first)
        it.crash_controller(first)


@virtual_time
async def test_an_unusable_address_is_not_watched() -> None:
    async with stage() as it:
        await it.add_broker(1)
        _, second = await two_controllers(it, "full")
        data = msgspec.json.encode({"version": 2, "brokerid": 9, "software": "aiocontroller", "address": "nowhere"})
        await it.client.set("/controller", data, -1)
        await asyncio.sleep(10)
        assert not second.controller.election.active
        assert journal_of(second).of_kind("fault") == []
