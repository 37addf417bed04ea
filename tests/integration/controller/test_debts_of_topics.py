"""Topics that are deleted although some brokers do not answer: their debts afterwards, and what operators see."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from aiocontroller.controller import topic_deletion
from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.core.events import ListPartitionReassignments, Release
from aiocontroller.core.ids import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
)
from aiocontroller.core.invariants import violations
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.debts import encode_root
from tests.integration.controller.harness import Cluster, idle, until
from tests.integration.controller.owing import (
    another_controller,
    deleted_on,
    moved_from_a_silent_broker,
    owed,
    sent_of,
    topic_t,
    until_owed,
    without_broker_2,
)
from tests.integration.controller.test_reassignment import T0, ask, catch_up, finished, reassign
from tests.integration.controller.test_topic_deletion import delete, gone


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with topic_t(world, zk_connect) as cluster:
        yield cluster


async def test_topic_goes_although_a_broker_is_dead(cluster: Cluster) -> None:
    """Kafka's deletion waits for the broker, forever if it does not return."""
    service = await without_broker_2(cluster)
    await delete(cluster, "u")
    await gone(cluster, "u")
    assert await owed(cluster) == {(2, "u"): [0, 1]}
    assert deleted_on(cluster.brokers[1]) == [("u", 0), ("u", 1)]
    for broker in cluster.brokers.values():
        last = [p.leader for r in broker.of(ApiKey.UPDATE_METADATA) for t in r.topic_states for p in t.partition_states]
        assert last[-1] == LEADER_DURING_DELETE, "no broker knows it any more"
    returned = await cluster.add_broker(2)
    await until_owed(cluster, {})
    assert deleted_on(returned) == [("u", 0), ("u", 1)]
    stops = [p for r in returned.of(ApiKey.STOP_REPLICA) for t in r.topic_states for p in t.partition_states]
    assert {p.leader_epoch for p in stops} == {EPOCH_DURING_DELETE}
    await idle(service)
    assert violations(service.shell.context) == []


async def test_topic_without_an_id_waits_for_the_dead_broker(cluster: Cluster) -> None:
    """As with Kafka: the broker could not distinguish its replica from that of the next topic of the same name."""
    (service,) = cluster.services
    await cluster.stop_controller(service)
    cluster.services.clear()
    service = await cluster.add_controller(auto_leader_rebalance_enable=False, inter_broker_protocol_version="2.7")
    await without_broker_2(cluster)
    await delete(cluster, "u")
    await until(lambda: "u" in service.shell.context.topics_ineligible_for_deletion)
    assert "u" in await cluster.zk.get_all_topics_in_cluster(watch=False)
    await cluster.add_broker(2)
    await gone(cluster, "u")
    assert await owed(cluster) == {}


async def test_topic_goes_although_a_broker_is_silent(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_deletion, "SILENCE_S", 0.2)
    service = await cluster.active()
    await cluster.create_topic("u", {0: [1, 2]})
    await cluster.until_state("u", 1, (1, 2))
    cluster.brokers[2].unanswered.add(ApiKey.STOP_REPLICA)
    await delete(cluster, "u")
    await gone(cluster, "u")
    assert await owed(cluster) == {(2, "u"): [0]}
    cluster.brokers[2].unanswered.clear()
    await cluster.bounce_broker(2)
    await until_owed(cluster, {})
    await idle(service)
    assert violations(service.shell.context) == []


async def test_topics_that_come_later_have_their_time_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_deletion, "SILENCE_S", 0.5)
    await cluster.active()
    for name in ("u", "v"):
        await cluster.create_topic(name, {0: [1, 2]})
        await cluster.until_state(name, 1, (1, 2))
    cluster.brokers[2].unanswered.add(ApiKey.STOP_REPLICA)
    await delete(cluster, "u")
    await until(lambda: deleted_on(cluster.brokers[2]) == [("u", 0)])
    await delete(cluster, "v")
    await gone(cluster, "u")
    await gone(cluster, "v")
    assert await owed(cluster) == {(2, "u"): [0], (2, "v"): [0]}


async def test_topic_goes_although_a_broker_refuses(cluster: Cluster) -> None:
    service = await cluster.active()
    await cluster.create_topic("u", {0: [1, 2]})
    await cluster.until_state("u", 1, (1, 2))
    cluster.brokers[2].stop_replica_errors = [KafkaErrorCode.KAFKA_STORAGE_ERROR] * 2
    await delete(cluster, "u")
    await gone(cluster, "u")
    await until_owed(cluster, {})
    assert deleted_on(cluster.brokers[2]) == [("u", 0)] * 3
    assert len(service.shell.context.debts) == 0


async def test_topic_of_the_same_name_while_the_broker_is_dead(cluster: Cluster) -> None:
    """It returns with the old log: it deletes that, then it is told about the new topic, and can be in sync."""
    service = await without_broker_2(cluster)
    await delete(cluster, "u")
    await gone(cluster, "u")
    await cluster.create_topic_with_id("u", {0: [2, 1]}, b"n" * 16)
    await cluster.until_state("u", 1, (1,))
    returned = await cluster.add_broker(2)
    await until(lambda: "LEADER_AND_ISR" in sent_of(returned, "u"))
    await idle(service)
    heard = sent_of(returned, "u")
    assert heard[0] == "STOP_REPLICA"
    assert heard.count("STOP_REPLICA") == 1
    assert await owed(cluster) == {}
    assert violations(service.shell.context) == []


async def break_deletion_off(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the controller after it has written broker 2's debts of u, and before it deletes the znodes."""
    service = await without_broker_2(cluster)
    with monkeypatch.context() as patch:

        async def moved(names: Any, *, fence: int) -> None:
            raise ControllerMovedError("another was elected")

        patch.setattr(service.shell.zk, "delete_topic_znodes", moved)
        patch.setattr(service.controller.election, "stand", lambda: asyncio.sleep(0))
        await delete(cluster, "u")
        await until_owed(cluster, {(2, "u"): [0, 1]})
        await until(lambda: not service.controller.election.active)
        await cluster.stop_controller(service)
        cluster.services.clear()


async def test_deletion_that_is_broken_off_begins_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The debts are written before the znodes are deleted; the next controller finds the topic, and starts over."""
    await break_deletion_off(cluster, monkeypatch)
    returned = await cluster.add_broker(2)
    await cluster.add_controller(auto_leader_rebalance_enable=False)
    await gone(cluster, "u")
    await until_owed(cluster, {})
    assert deleted_on(returned) == [("u", 0), ("u", 1)]


async def test_operator_takes_a_deletion_back_that_was_broken_off(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic stays, with the dead broker's replica: its debts are void."""
    await break_deletion_off(cluster, monkeypatch)
    await cluster.client.delete("/admin/delete_topics/u")
    returned = await cluster.add_broker(2)
    service = await cluster.add_controller(auto_leader_rebalance_enable=False)
    await until(lambda: "LEADER_AND_ISR" in sent_of(returned, "u"))
    await idle(service)
    assert await owed(cluster) == {}
    assert deleted_on(returned) == []


# -- what operators see and do, and accidents -------------------------------------------------------------------------


async def test_broker_that_returns_is_not_asked_for_what_was_given_up(cluster: Cluster) -> None:
    service = await without_broker_2(cluster)
    await delete(cluster, "u")
    await gone(cluster, "u")
    await until_owed(cluster, {(2, "u"): [0, 1]})
    assert await cluster.zk.debts.give_up(2) == 2
    broker = await cluster.add_broker(2)
    await until(lambda: 2 in service.shell.context.live)
    await idle(service)
    assert deleted_on(broker) == []
    assert len(service.shell.context.debts) == 0


async def test_audit_notices_what_was_given_up_of_a_dead_broker(cluster: Cluster) -> None:
    service = await without_broker_2(cluster)
    await delete(cluster, "u")
    await gone(cluster, "u")
    await until(lambda: len(service.shell.context.debts) == 2)
    await cluster.zk.debts.give_up(2, "u")
    service.shell.auditor.check_soon((), lists=True)
    await until(lambda: len(service.shell.context.debts) == 0)
    assert service.controller.status()["debts"] == []


async def test_status_metrics_and_release_tell_the_debts_of_each_broker(cluster: Cluster) -> None:
    service = await moved_from_a_silent_broker(cluster)
    await until_owed(cluster, {(1, "t"): [0]})
    owed_by_1 = {"broker": 1, "replicas": 1, "topics": ["t"]}
    assert service.controller.status()["debts"] == [owed_by_1]
    assert "aiocontroller_debts_replicastodelete 1" in service.metrics.render()
    released = await ask(service, lambda reply: Release(reply=reply))
    assert released.owed == (owed_by_1,)
    assert service.controller.status()["debts"] == []
    assert await owed(cluster) == {(1, "t"): [0]}, "the next one of our kind goes on"


async def test_operator_gives_a_debt_up_by_deleting_its_znode(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiocontroller.core.debt_changes.FIRST_RETRY_S", 0.05)
    service = await cluster.active()
    cluster.brokers[1].stop_replica_errors = [KafkaErrorCode.KAFKA_STORAGE_ERROR] * 1000
    await reassign(service, {T0: (2,)})
    await catch_up(cluster, service, (1, 2))
    await until_owed(cluster, {(1, "t"): [0]})
    await cluster.client.delete_recursive(paths.debts_of_broker(1))
    await until(lambda: len(service.shell.context.debts) == 0)
    await reassign(service, {T0: (1,)})  # the next debt finds its parents gone
    await catch_up(cluster, service, (2, 1))
    await finished(cluster, service, (1,))


async def test_damaged_znodes_are_named_and_left_out(cluster: Cluster) -> None:
    await moved_from_a_silent_broker(cluster)
    await cluster.client.create("/aiocontroller_debts/unknown", data=b"")
    await cluster.client.create("/aiocontroller_debts/1/u", data=b"{")
    await cluster.client.set_data(paths.DEBTS, b"rubbish")
    cluster.brokers[1].unanswered.clear()
    service = await another_controller(cluster)

    async def paid() -> bool:
        return not (await cluster.zk.debts.load()).owed[:-1]

    await until(paid)
    await idle(service)
    assert len(service.shell.context.debts) == 0
    assert (await cluster.client.get_many([paths.DEBTS])).data[0] == encode_root(service.shell.context.epoch)


async def test_unreadable_debts_do_not_prevent_an_election(cluster: Cluster, zk_connect: str) -> None:
    client = KazooClient(zk_connect)
    await asyncio.to_thread(client.start)
    try:
        client.create(paths.DEBTS, b"", acl=[make_digest_acl("other", "user", all=True)])
        service = await another_controller(cluster)
        await until(lambda: service.shell.context.loaded)
        assert paths.DEBTS in service.shell.bad_paths()
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("path", [paths.debts_of_broker(1), paths.debts(1, "t")])
async def test_debts_of_a_broker_that_we_may_not_read_are_named(cluster: Cluster, zk_connect: str, path: str) -> None:
    """The broker still has those replicas, and nothing else would show it."""
    await moved_from_a_silent_broker(cluster)
    await until_owed(cluster, {(1, "t"): [0]})
    client = KazooClient(zk_connect)
    await asyncio.to_thread(client.start)
    try:
        client.set_acls(path, [make_digest_acl("other", "user", all=True)])
        service = await another_controller(cluster)
        await until(lambda: service.shell.context.loaded)
        assert path in service.shell.bad_paths()
    finally:
        client.stop()
        client.close()


@pytest.fixture
def read_only(zk_connect: str) -> Iterator[Callable[[str, bytes], None]]:
    """A function that creates a znode which everyone may read, and only its owner may write."""
    client = KazooClient(zk_connect)
    client.start()
    acl = [make_acl("world", "anyone", read=True), make_digest_acl("other", "user", all=True)]

    def make(path: str, data: bytes) -> None:
        client.ensure_path(path.rpartition("/")[0])
        client.create(path, data, acl=acl)

    yield make
    client.stop()
    client.close()


@pytest.mark.parametrize("path", [paths.DEBTS, paths.debts_of_broker(1), paths.debts(1, "t")])
async def test_znodes_that_we_may_read_and_not_write_are_named(
    cluster: Cluster, path: str, read_only: Callable[[str, bytes], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The error used to claim that they had changed 16 times meanwhile."""
    await asyncio.to_thread(read_only, path, b"")
    service = await cluster.active()
    await reassign(service, {T0: (2,)})
    await catch_up(cluster, service, (1, 2))
    (message,) = await until(lambda: [r.getMessage() for r in caplog.records if "Not reassigned" in r.getMessage()])
    assert f"{paths.debts(1, 't')}" in message
    assert "NO_AUTH (-102)" in message
    if path == paths.DEBTS:
        assert any(
            r.levelno == logging.ERROR and f"{path}: ZooKeeper answered NO_AUTH" in r.getMessage()
            for r in caplog.records
        )
    assert not any("meanwhile" in r.getMessage() for r in caplog.records)
    await idle(service)
    assert deleted_on(cluster.brokers[1]) == []
    assert T0 in await ask(service, lambda reply: ListPartitionReassignments(partitions=None, reply=reply))


async def test_payment_that_cannot_be_written_down_is_asked_for_again(
    cluster: Cluster, zk_connect: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiocontroller.core.debt_changes.FIRST_RETRY_S", 0.05)
    service = await moved_from_a_silent_broker(cluster)
    client = KazooClient(zk_connect)
    await asyncio.to_thread(client.start)
    try:
        acl = [make_acl("world", "anyone", read=True, admin=True)]
        client.set_acls(paths.debts_of_broker(1), acl)  # the parent's ACL decides on deletion
        cluster.brokers[1].unanswered.clear()
        await cluster.bounce_broker(1)
        await until(lambda: len(deleted_on(cluster.brokers[1])) > 3)
        assert f"{paths.debts(1, 't')}: ZooKeeper answered NO_AUTH" in caplog.text
        assert await owed(cluster) == {(1, "t"): [0]}
        client.set_acls(paths.debts_of_broker(1), [make_acl("world", "anyone", all=True)])
    finally:
        client.stop()
        client.close()
    await until_owed(cluster, {})
    await until(lambda: not service.shell.context.debts)


@pytest.mark.parametrize("data", [b"{", b"", b'{"version":1,"topics":{}}'])
@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "met"])
async def test_damaged_znode_is_written_over_by_the_debt_that_belongs_there(
    cluster: Cluster, data: bytes, loaded: bool
) -> None:
    """It used to keep the reassignment, and a topic's deletion, from ending."""
    service = await cluster.active()
    for path in (paths.DEBTS, paths.debts_of_broker(1), paths.debts(1, "t")):
        await cluster.client.create(path, data=data)
    if loaded:
        service = await another_controller(cluster)
    cluster.brokers[1].unanswered.add(ApiKey.STOP_REPLICA)
    await reassign(service, {T0: (2,)})
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))
    await until_owed(cluster, {(1, "t"): [0]})
