"""Topics are deleted, whatever else happens meanwhile (the cases of Kafka's ``DeleteTopicTest``).

Where brokers do not compare topic ids (``WITHOUT_IDS``) a dead broker blocks, as with Kafka; where they do, none does:
``test_debts``.
"""

from __future__ import annotations

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, idle, until

WITHOUT_IDS = {"inter_broker_protocol_version": "2.7"}


async def gone(cluster: Cluster, topic: str) -> None:
    """Wait until the topic is gone from ZooKeeper, and from the controllers, which notice it a little later."""

    async def check() -> bool:
        topics = await cluster.zk.get_all_topics_in_cluster(watch=False)
        queued = await cluster.zk.get_topic_deletions(watch=False)
        known = [name for service in cluster.services for name in service.shell.context.topics_to_be_deleted]
        return topic not in [*topics, *queued, *known]

    await until(check, f"{topic} is deleted")


async def delete(cluster: Cluster, topic: str) -> None:
    await cluster.client.create(f"/admin/delete_topics/{topic}")


async def test_delete_topic_with_all_alive_replicas(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2], 1: [2, 3]})
    await cluster.create_topic("stays", {0: [1, 2]})
    await cluster.until_leaders("t", [1, 2])
    await delete(cluster, "t")
    await gone(cluster, "t")
    assert "t" not in service.shell.context.table.topic_by_name
    assert not service.shell.context.topics_to_be_deleted
    stops = cluster.brokers[2].of(ApiKey.STOP_REPLICA)
    assert [
        (p.partition_index, p.delete_partition) for r in stops for t in r.topic_states for p in t.partition_states
    ] == [
        (0, True),
        (1, True),
    ]
    await cluster.until_leaders("stays", [1])


async def test_recreate_topic_after_deletion(cluster: Cluster) -> None:
    await cluster.add_controller()
    for _ in range(2):
        await cluster.create_topic("t", {0: [1, 2]})
        (state,) = await cluster.until_leaders("t", [1])
        assert state.leader_epoch == 0
        await delete(cluster, "t")
        await gone(cluster, "t")


async def test_delete_non_existing_topic(cluster: Cluster) -> None:
    await cluster.add_controller()
    await cluster.active()
    await delete(cluster, "unknown")
    await gone(cluster, "unknown")


async def test_dead_broker_blocks_and_its_return_resumes(cluster: Cluster) -> None:
    service = await cluster.add_controller(**WITHOUT_IDS)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(2)
    await until(lambda: 2 not in service.shell.context.brokers and not service.queue)
    await delete(cluster, "t")
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    await until(lambda: cluster.brokers[1].of(ApiKey.STOP_REPLICA), "the live replica is deleted meanwhile")
    assert await cluster.zk.get_topic_deletions(watch=False) == ["t"]
    await cluster.add_broker(2)
    await gone(cluster, "t")


async def test_broker_whose_session_had_ended_hears_of_the_deletion(cluster: Cluster) -> None:
    """It knew the topic before.  With Kafka the topic stays in its metadata until it restarts."""
    service = await cluster.add_controller(**WITHOUT_IDS)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(2)
    await until(lambda: 2 not in service.shell.context.brokers and not service.queue)
    await delete(cluster, "t")
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    back = await cluster.add_broker(2)
    await gone(cluster, "t")
    topics = [topic for request in back.of(ApiKey.UPDATE_METADATA) for topic in request.topic_states]
    assert {(t.topic_name, p.partition_index, p.leader) for t in topics for p in t.partition_states} == {("t", 0, -2)}


async def test_resume_delete_topic_on_controller_failover(cluster: Cluster) -> None:
    service = await cluster.add_controller(**WITHOUT_IDS)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(2)
    await until(lambda: 2 not in service.shell.context.brokers)
    await delete(cluster, "t")
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    await cluster.add_controller(**WITHOUT_IDS)
    await cluster.active()
    await cluster.add_broker(2)
    await gone(cluster, "t")


async def test_the_next_controller_tells_of_partitions_whose_states_are_gone(cluster: Cluster) -> None:
    """A controller ended while it deleted the topic's znodes.  Kafka sends nothing for partitions without a leader."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    await cluster.client.delete("/brokers/topics/t/partitions/0/state")
    await delete(cluster, "t")
    for broker in cluster.brokers.values():
        broker.take()
    await cluster.add_controller()
    await cluster.active()
    await gone(cluster, "t")
    for broker in cluster.brokers.values():
        topics = [topic for request in broker.of(ApiKey.UPDATE_METADATA) for topic in request.topic_states]
        leaders = {(t.topic_name, p.partition_index, p.leader) for t in topics for p in t.partition_states}
        assert leaders == {("t", 0, -2)}, broker.id


async def test_broker_that_dies_while_it_deletes(cluster: Cluster) -> None:
    service = await cluster.add_controller(**WITHOUT_IDS)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    broker = cluster.brokers[2]
    await until(lambda: not service.queue and broker.of(ApiKey.UPDATE_METADATA))
    broker.unanswered = {ApiKey.STOP_REPLICA}
    await delete(cluster, "t")
    await until(lambda: broker.of(ApiKey.STOP_REPLICA))
    await cluster.kill_broker(2)
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    await cluster.add_broker(2)
    await gone(cluster, "t")


async def test_partitions_added_during_deletion_are_taken_back(cluster: Cluster) -> None:
    service = await cluster.add_controller(**WITHOUT_IDS)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(2)
    await until(lambda: 2 not in service.shell.context.brokers)
    await delete(cluster, "t")
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    await cluster.client.set_data("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2],"1":[1,3]}}')

    async def restored() -> bool:
        found = await cluster.zk.get_topic_assignments(["t"], watch=False)
        return bool(found.found) and list(found.found[0].partitions) == [0]

    await until(restored)
    await cluster.add_broker(2)
    await gone(cluster, "t")


async def test_disabled_deletion_drops_the_request(cluster: Cluster) -> None:
    await cluster.add_controller(delete_topic_enable=False)
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    await delete(cluster, "t")

    async def dropped() -> bool:
        return not await cluster.zk.get_topic_deletions(watch=False)

    await until(dropped)
    await cluster.until_leaders("t", [1])


async def test_refused_stop_replica_is_tried_again_when_the_broker_returns(cluster: Cluster) -> None:
    service = await cluster.add_controller(**WITHOUT_IDS)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    cluster.brokers[2].stop_replica_errors = [KafkaErrorCode.KAFKA_STORAGE_ERROR]
    await delete(cluster, "t")
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    await cluster.kill_broker(2)
    await until(lambda: 2 not in service.shell.context.brokers)
    await cluster.add_broker(2)
    await gone(cluster, "t")
    assert not service.shell.context.topics_to_be_deleted
