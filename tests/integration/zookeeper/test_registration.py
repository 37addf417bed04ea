"""Elections, fences and brokers' registrations by the typed client, on a real and on the modelled ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec
import pytest

from aiocontroller.core.errors import BadInputError, ControllerMovedError
from aiocontroller.core.ids import (
    Broker,
    LeaderAndIsr,
)
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.zookeeper.cluster_znodes import FeatureZNode, MigrationZNode, ProducerIdBlock, encode_migration
from aiocontroller.zookeeper.errors import MaybeAppliedError, NotSentError
from aiocontroller.zookeeper.from_aiozk import ACL
from aiocontroller.zookeeper.kafka_zk_client import BadZNode, ControllerZNode, KafkaZkClient, ZNodeChange
from aiocontroller.zookeeper.migration_rollback import RollbackRefusedError, plan_rollback
from aiocontroller.zookeeper.registration import (
    BrokerIdInUseError,
    KnownEpoch,
    TopicsBeingDeletedError,
    known_epoch,
    release_controller,
    roll_back_migration,
    seize_controller,
)
from tests.integration.zookeeper.typed import (
    TP,
    Changes,
    Connect,
    Lossy,
    broker_info,
    data_of,
    exists,
    put,
    put_topic,
    topic,
)


class TestElection:
    async def test_first_epoch_is_1_at_version_1(self, zk: KafkaZkClient) -> None:
        assert await zk.get_controller_epoch() is None
        assert await zk.register_controller_and_increment_controller_epoch(7, 1234) == (1, 1)
        assert await zk.get_controller_epoch() == (1, 1)
        assert await zk.get_controller() == ControllerZNode(7, zk.client.session_id, 1234, 0, -1, "aiocontroller")

    async def test_second_is_refused_and_nothing_is_written(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        await zk.register_controller_and_increment_controller_epoch(7, 0)
        with pytest.raises(ControllerMovedError, match="held by session 0x"):
            await other.register_controller_and_increment_controller_epoch(7, 0)
        assert await other.get_controller_epoch() == (1, 1)

    async def test_races_have_one_winner_and_epochs_rise_by_one(self, connect: Connect) -> None:
        clients = [await connect() for _ in range(6)]
        for round_ in range(1, 9):
            outcomes = await asyncio.gather(
                *(zk.register_controller_and_increment_controller_epoch(5, round_) for zk in clients),
                return_exceptions=True,
            )
            won = [o for o in outcomes if isinstance(o, tuple)]
            assert len(won) == 1, outcomes
            assert all(isinstance(o, tuple | ControllerMovedError) for o in outcomes), outcomes
            epoch, fence = won[0]
            assert (epoch, fence) == (round_, round_)
            await clients[outcomes.index(won[0])].delete_controller(fence)

    async def test_takeovers_race_without_losing_an_epoch(self, connect: Connect) -> None:
        clients = [await connect() for _ in range(4)]
        outcomes = await asyncio.gather(
            *(zk.register_controller_and_increment_controller_epoch(5, 0, takeover=True) for zk in clients)
        )
        assert sorted(epoch for epoch, _ in outcomes) == [1, 2, 3, 4]
        last = clients[[epoch for epoch, _ in outcomes].index(4)]
        holder = await last.get_controller()
        assert isinstance(holder, ControllerZNode)
        assert holder.owner_session == last.client.session_id

    async def test_takeover_shows_observers_one_event(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        changes = Changes(zk)
        await zk.register_controller_and_increment_controller_epoch(7, 0)
        await zk.get_controller()
        assert await other.register_controller_and_increment_controller_epoch(8, 0, takeover=True) == (2, 2)
        assert await changes.next() == (ZNodeChange.CONTROLLER_DELETED, "")
        holder = await zk.get_controller()
        assert isinstance(holder, ControllerZNode)
        assert holder.controller_id == 8
        assert changes.empty()
        # the deposed controller cannot give away what it does not hold
        with pytest.raises(ControllerMovedError):
            await zk.delete_controller(1)

    async def test_takeover_from_a_damaged_znode(self, zk: KafkaZkClient) -> None:
        await put(zk, "/controller", b"junk")
        assert isinstance(await zk.get_controller(), BadZNode)
        with pytest.raises(ControllerMovedError):
            await zk.register_controller_and_increment_controller_epoch(8, 0)
        assert await zk.register_controller_and_increment_controller_epoch(8, 0, takeover=True) == (1, 1)

    async def test_a_kraft_controller_is_left_alone(self, zk: KafkaZkClient) -> None:
        await put(zk, "/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}')
        with pytest.raises(ControllerMovedError, match="migrated"):
            await zk.register_controller_and_increment_controller_epoch(8, 0, takeover=True)
        assert await exists(zk, "/controller")

    @pytest.mark.parametrize("answered", [True, False])
    async def test_migration_is_rolled_back_in_one_event(
        self, zk: KafkaZkClient, connect: Connect, answered: bool
    ) -> None:
        await put(zk, "/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":52}')
        await put(zk, "/controller_epoch", b"5")
        await put(zk, "/migration", encode_migration(MigrationZNode(3000, 52, 100, 52)))
        observer = await connect()
        changes = Changes(observer)
        await observer.get_controller()
        plan = await plan_rollback(zk)
        if not answered:
            Lossy(zk, applied=True)
        assert await roll_back_migration(zk.client, plan, 8, 0) == (53, 1)
        assert await zk.get_controller_epoch() == (53, 1)
        assert not await exists(zk, "/migration")
        assert await changes.next() == (ZNodeChange.CONTROLLER_DELETED, "")
        holder = await observer.get_controller()
        assert isinstance(holder, ControllerZNode)
        assert (holder.controller_id, holder.owner_session) == (8, zk.client.session_id)
        assert changes.empty()
        with pytest.raises(RollbackRefusedError):
            await plan_rollback(observer)

    async def test_takeover_while_no_topic_is_deleted(self, zk: KafkaZkClient, connect: Connect) -> None:
        """It fails as a whole while one is, and leaves the znode of the requests as it was."""
        await zk.create_top_level_paths()
        other = await connect()
        await zk.register_controller_and_increment_controller_epoch(7, 0)
        await put(zk, "/admin/delete_topics/one", b"")
        with pytest.raises(TopicsBeingDeletedError):
            await other.register_controller_and_increment_controller_epoch(8, 0, takeover=True, idle=True)
        assert await zk.get_controller_epoch() == (1, 1)
        assert await zk.get_topic_deletions() == ["one"]
        await zk.client.delete("/admin/delete_topics/one")
        acl = [ACL.make("world", "anyone", read=True, create=True, delete=True)]
        await zk.client.delete("/admin/delete_topics")
        await zk.client.create("/admin/delete_topics", acl=acl)
        won = await other.register_controller_and_increment_controller_epoch(8, 0, takeover=True, idle=True)
        assert won == (2, 2)
        assert await zk.client.get_acl("/admin/delete_topics") == acl
        await zk.client.delete("/admin/delete_topics")
        won = await zk.register_controller_and_increment_controller_epoch(7, 0, takeover=True, idle=True)
        assert won == (3, 3)
        assert not await exists(zk, "/admin/delete_topics")

    async def test_our_own_leftover_is_replaced(self, zk: KafkaZkClient) -> None:
        await zk.register_controller_and_increment_controller_epoch(8, 0)
        assert await zk.register_controller_and_increment_controller_epoch(8, 0) == (2, 2)

    @pytest.mark.parametrize("takeover", [False, True])
    async def test_lost_reply_to_a_won_election(self, zk: KafkaZkClient, connect: Connect, takeover: bool) -> None:
        if takeover:
            other = await connect()
            await other.register_controller_and_increment_controller_epoch(7, 0)
        before = 1 if takeover else 0
        await zk.client.ensure_path("/brokers")
        if not takeover:
            await put(zk, "/controller_epoch", b"0")
        Lossy(zk, applied=True)
        won = await zk.register_controller_and_increment_controller_epoch(8, 0, takeover=takeover)
        assert won == (before + 1, before + 1)
        assert await zk.get_controller_epoch() == won

    async def test_lost_request_is_tried_again(self, zk: KafkaZkClient) -> None:
        await put(zk, "/controller_epoch", b"41")
        Lossy(zk, applied=False)
        assert await zk.register_controller_and_increment_controller_epoch(8, 0) == (42, 1)
        await zk.delete_controller(1)
        Lossy(zk, applied=False, error=NotSentError)
        assert await zk.register_controller_and_increment_controller_epoch(8, 0) == (43, 2)

    async def test_lost_reply_while_another_wins(self, zk: KafkaZkClient, connect: Connect) -> None:
        """The same id, as two controllers outside the brokers have: only the owner tells them apart."""
        other = await connect()
        await put(zk, "/controller_epoch", b"0")
        multi = zk.client.multi

        async def lost_to_the_other(ops):
            zk.client.multi = multi
            await other.register_controller_and_increment_controller_epoch(8, 0)
            raise MaybeAppliedError("lost by the test")

        zk.client.multi = lost_to_the_other
        with pytest.raises(ControllerMovedError):
            await zk.register_controller_and_increment_controller_epoch(8, 0)
        assert await zk.get_controller_epoch() == (1, 1)

    async def test_damaged_epoch_is_an_error_that_names_it(self, zk: KafkaZkClient) -> None:
        await put(zk, "/controller_epoch", b"seven")
        with pytest.raises(BadInputError, match="/controller_epoch: found seven, expected"):
            await zk.register_controller_and_increment_controller_epoch(8, 0)

    async def test_giving_the_role_back(self, zk: KafkaZkClient, fence: int) -> None:
        await zk.delete_controller(fence)
        await zk.delete_controller(fence)  # gone already is fine
        assert await zk.get_controller() is None


class TestSeizing:
    """A standby registers by what it has read while another controller held the role."""

    async def stood_by(self, zk: KafkaZkClient) -> KnownEpoch:
        holder = await zk.get_controller()
        assert isinstance(holder, ControllerZNode)
        known = await known_epoch(zk.client, holder)
        assert known is not None
        return known

    async def test_vacancy_is_won_by_one_multi(self, zk: KafkaZkClient, connect: Connect, fence: int) -> None:
        standby = await connect()
        known = await self.stood_by(standby)
        assert known[:2] == (fence, fence)
        await zk.delete_controller(fence)
        assert await seize_controller(standby.client, known, 8, 0) == (fence + 1, fence + 1)
        holder = await zk.get_controller()
        assert isinstance(holder, ControllerZNode)
        assert (holder.controller_id, holder.owner_session) == (8, standby.client.session_id)

    async def test_role_that_is_held_is_left(self, zk: KafkaZkClient, connect: Connect, fence: int) -> None:
        standby = await connect()
        known = await self.stood_by(standby)
        with pytest.raises(ControllerMovedError):
            await seize_controller(standby.client, known, 8, 0)
        assert await zk.get_controller_epoch() == (fence, fence)

    async def test_holder_of_the_known_term_is_replaced(self, connect: Connect, fence: int) -> None:
        standby, other = await connect(), await connect()
        known = await self.stood_by(standby)
        assert await seize_controller(standby.client, known, 8, 0, replacing=True) == (fence + 1, fence + 1)
        stale = known._replace(generation=other.client.session.generation)
        with pytest.raises(ControllerMovedError):  # the holder is another one now
            await seize_controller(other.client, stale, 9, 0)
        with pytest.raises(ControllerMovedError):
            await seize_controller(other.client, stale, 9, 0, replacing=True)
        assert await other.get_controller_epoch() == (fence + 1, fence + 1)

    async def test_nothing_is_replaced_where_nothing_is(self, zk: KafkaZkClient, connect: Connect, fence: int) -> None:
        standby = await connect()
        known = await self.stood_by(standby)
        await zk.delete_controller(fence)
        with pytest.raises(ControllerMovedError):
            await seize_controller(standby.client, known, 8, 0, replacing=True)
        assert await zk.get_controller() is None

    async def test_race_has_one_winner(self, zk: KafkaZkClient, connect: Connect, fence: int) -> None:
        standbys = [await connect() for _ in range(5)]
        known = [await self.stood_by(each) for each in standbys]
        await zk.delete_controller(fence)
        outcomes = await asyncio.gather(
            *(seize_controller(each.client, k, 8, 0) for each, k in zip(standbys, known, strict=True)),
            return_exceptions=True,
        )
        assert sum(isinstance(each, ControllerMovedError) for each in outcomes) == 4, outcomes
        assert (fence + 1, fence + 1) in outcomes

    @pytest.mark.parametrize("applied", [True, False])
    async def test_lost_answer(self, zk: KafkaZkClient, connect: Connect, fence: int, applied: bool) -> None:
        """Not sent again: the usual election follows."""
        standby = await connect()
        known = await self.stood_by(standby)
        await zk.delete_controller(fence)
        Lossy(standby, applied=applied)
        if applied:
            assert await seize_controller(standby.client, known, 8, 0) == (fence + 1, fence + 1)
        else:
            with pytest.raises(ControllerMovedError):
                await seize_controller(standby.client, known, 8, 0)
            assert await zk.get_controller_epoch() == (fence, fence)

    async def test_request_that_was_not_sent_is_sent_again(
        self, zk: KafkaZkClient, connect: Connect, fence: int
    ) -> None:
        standby = await connect()
        known = await self.stood_by(standby)
        await zk.delete_controller(fence)
        Lossy(standby, applied=False, error=NotSentError)
        assert await seize_controller(standby.client, known, 8, 0) == (fence + 1, fence + 1)

    async def test_what_an_earlier_session_read_is_outdated(
        self, zk: KafkaZkClient, connect: Connect, fence: int
    ) -> None:
        standby = await connect()
        known = await self.stood_by(standby)
        await expire_session(standby.client)
        while standby.client.session.generation == known.generation or not standby.client.connected:
            await asyncio.sleep(0.01)
        await zk.delete_controller(fence)
        with pytest.raises(ControllerMovedError, match="earlier session"):
            await seize_controller(standby.client, known, 8, 0)

    async def test_epoch_is_known_of_the_present_holder_only(self, zk: KafkaZkClient, fence: int) -> None:
        holder = await zk.get_controller()
        assert isinstance(holder, ControllerZNode)
        assert await known_epoch(zk.client, msgspec.structs.replace(holder, owner_session=5)) is None
        await zk.delete_controller(fence)
        assert await known_epoch(zk.client, holder) is None

    async def test_unreadable_epoch_is_unknown(self, zk: KafkaZkClient, fence: int) -> None:
        holder = await zk.get_controller()
        assert isinstance(holder, ControllerZNode)
        await zk.client.set_data("/controller_epoch", b"seven")
        assert await known_epoch(zk.client, holder) is None
        await zk.client.delete("/controller_epoch")
        assert await known_epoch(zk.client, holder) is None

    async def test_release_outdates_what_standbys_know(self, zk: KafkaZkClient, connect: Connect, fence: int) -> None:
        standby, broker = await connect(), await connect()
        known = await self.stood_by(standby)
        await release_controller(zk.client, fence, fence)
        assert await zk.get_controller() is None
        assert await zk.get_controller_epoch() == (fence, fence + 1)
        with pytest.raises(ControllerMovedError):
            await seize_controller(standby.client, known, 8, 0)
        await broker.register_controller_and_increment_controller_epoch(1, 0)
        after = await self.stood_by(standby)
        assert after.releases == known.releases + 1
        await broker.delete_controller(fence + 2)
        await broker.register_controller_and_increment_controller_epoch(1, 0)
        assert (await self.stood_by(standby)).releases == after.releases, "an election alone changes nothing"

    async def test_release_by_a_deposed_controller_changes_nothing(
        self, zk: KafkaZkClient, connect: Connect, fence: int
    ) -> None:
        other = await connect()
        won = await other.register_controller_and_increment_controller_epoch(9, 0, takeover=True)
        with pytest.raises(ControllerMovedError):
            await release_controller(zk.client, fence, fence)
        assert await zk.get_controller_epoch() == won
        assert await other.get_controller() is not None


class TestFence:
    async def test_a_stale_fence_applies_nothing(self, zk: KafkaZkClient, connect: Connect, fence: int) -> None:
        assignment = topic("t", (1, 2))
        await put_topic(zk, assignment)
        await put(zk, "/admin/delete_topics/t")
        await put(zk, "/config/topics/t")
        await put(zk, "/isr_change_notification/isr_change_0000000000")
        await put(zk, "/log_dir_event_notification/log_dir_event_0000000000")
        await put(zk, "/admin/preferred_replica_election")
        await put(zk, "/admin/reassign_partitions")
        state = LeaderAndIsr(1, 0, (1, 2), 1, 0)
        assert (await zk.create_topic_partition_states(["t"], [0], [state], fence=fence)).ok
        before = await zk.client.all_children_number("/")
        await (await connect()).register_controller_and_increment_controller_epoch(9, 0, takeover=True)
        writes: list[Awaitable[object]] = [
            zk.set_topic_assignments([assignment], fence=fence),
            zk.create_topic_partition_states(["t"], [1], [state], fence=fence),
            zk.set_topic_partition_states(["t"], [0], [state], fence=fence),
            zk.delete_isr_change_notifications(["isr_change_0000000000"], fence=fence),
            zk.delete_log_dir_event_notifications(["log_dir_event_0000000000"], fence=fence),
            zk.delete_topic_deletions(["t"], fence=fence),
            zk.delete_topic_znodes(["t"], fence=fence),
            zk.delete_topic_configs(["t"], fence=fence),
            zk.set_or_create_partition_reassignment({TP("t", 0): (1,)}, fence=fence),
            zk.delete_partition_reassignment(fence=fence),
            zk.delete_preferred_replica_election(fence=fence),
            zk.delete_controller(fence),
            zk.set_latest_producer_id_block(ProducerIdBlock(1, 0, 999), 0, fence=fence),
            zk.set_feature(FeatureZNode(2, 1, {}), -1, fence=fence),
        ]
        for write in writes:
            with pytest.raises(ControllerMovedError):
                await write
        assert await zk.client.all_children_number("/") == before
        assert await data_of(zk, "/admin/reassign_partitions") == b""
        [found] = await zk.get_topic_partition_states(["t"], [0])
        assert found == state
        assert [t.version for t in (await zk.get_topic_assignments(["t"])).found] == [0]


class TestBrokers:
    async def test_register_and_read(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        epochs = [await zk.register_broker(broker_info(10)), await other.register_broker(broker_info(9))]
        assert epochs[0] < epochs[1]
        brokers, bad = await zk.get_all_brokers_in_cluster()
        assert bad == []
        assert [(b.id, b.epoch, b.rack) for b in brokers] == [(9, epochs[1], "r1"), (10, epochs[0], "r1")]
        assert await zk.get_broker(9) == brokers[0]
        assert await zk.get_broker(8) is None

    async def test_registering_twice_keeps_the_epoch(self, zk: KafkaZkClient) -> None:
        assert await zk.register_broker(broker_info(1)) == await zk.register_broker(broker_info(1))

    async def test_an_id_in_use(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        await zk.register_broker(broker_info(1))
        with pytest.raises(BrokerIdInUseError, match="broker id 1 is registered by session 0x"):
            await other.register_broker(broker_info(1))

    @pytest.mark.parametrize("applied", [True, False])
    async def test_lost_reply(self, zk: KafkaZkClient, applied: bool) -> None:
        Lossy(zk, applied=applied)
        epoch = await zk.register_broker(broker_info(1))
        broker = await zk.get_broker(1)
        assert isinstance(broker, Broker)
        assert broker.epoch == epoch

    async def test_leftover_of_our_expired_session_is_replaced(self, zk: KafkaZkClient, connect: Connect) -> None:
        """KAFKA-7165: the server forgot to remove the ephemeral of our previous session."""
        other = await connect()  # plays the previous session
        stale = await other.register_broker(broker_info(1))
        zk._broker_session = other.client.session_id
        assert await zk.register_broker(broker_info(1)) > stale

    async def test_bad_ones_cost_only_themselves(self, zk: KafkaZkClient) -> None:
        await put(zk, "/brokers/ids/2", b'{"version":5}')
        await put(zk, "/brokers/ids/x", b"{}")
        await zk.register_broker(broker_info(1))
        brokers, bad = await zk.get_all_brokers_in_cluster()
        assert [b.id for b in brokers] == [1]
        assert sorted(b.path for b in bad) == ["/brokers/ids/2", "/brokers/ids/x"]
        assert isinstance(await zk.get_broker(2), BadZNode)
