"""Kafka's UncleanLeaderElectionTest.  Each test is named after Kafka's and checks what that checks of the controller.

What clients then read depends on the brokers.
"""

from __future__ import annotations

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.wire.apis import ApiKey
from tests.conformance.admin_requests import Admin, admin_of, errors_of, topic_req
from tests.conformance.conftest import Setting
from tests.conformance.simulated_cluster import SimulatedCluster

TOPIC = "topic"
LEADER, FOLLOWER = 1, 0
SETTING = "unclean.leader.election.enable"
SET, TOPIC_RESOURCE = 0, 2


async def create(admin: Admin, value: str | None = None) -> E:
    config = {} if value is None else {SETTING: value}
    answer = await admin.create_topics(topic_req(TOPIC, assignment={0: [LEADER, FOLLOWER]}, config=config))
    return errors_of(answer)[TOPIC]


async def alter(admin: Admin, value: str) -> None:
    entry = {"name": SETTING, "config_operation": SET, "value": value}
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": TOPIC, "configs": [entry]}
    answer = await admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert [each.error_code for each in answer.responses] == [E.NONE]


def unclean_elections(stage: SimulatedCluster) -> int:
    return int(stage.service.shell.counts.unclean_elections.count)


async def leave_the_follower(stage: SimulatedCluster) -> None:
    """It misses what its leader writes alone, and is there when that one is not."""
    await stage.until_state(TOPIC, LEADER, (LEADER, FOLLOWER))
    await stage.stop_broker(FOLLOWER)
    await stage.until_state(TOPIC, LEADER, (LEADER,))
    await stage.stop_broker(LEADER)
    await stage.until_state(TOPIC, -1, (LEADER,))
    assert unclean_elections(stage) == 0
    await stage.start_broker(FOLLOWER)


async def verify_unclean_leader_election_enabled(stage: SimulatedCluster) -> None:
    await leave_the_follower(stage)
    await stage.until_state(TOPIC, FOLLOWER, (FOLLOWER,))
    assert unclean_elections(stage) == 1


async def verify_unclean_leader_election_disabled(stage: SimulatedCluster) -> None:
    await leave_the_follower(stage)
    await stage.until_cached(TOPIC, 0, leader=-1, isr=(LEADER,))
    assert unclean_elections(stage) == 0
    await stage.start_broker(LEADER)
    await stage.until_state(TOPIC, LEADER, (LEADER, FOLLOWER))
    await stage.stop_broker(LEADER)
    await stage.until_state(TOPIC, FOLLOWER, (FOLLOWER,))
    assert unclean_elections(stage) == 0


async def test_unclean_leader_election_enabled(on: Setting) -> None:
    async with on(2, unclean_leader_election_enable=True) as stage, admin_of(stage.service) as admin:
        assert await create(admin) == E.NONE
        await verify_unclean_leader_election_enabled(stage)


async def test_unclean_leader_election_disabled(on: Setting) -> None:
    async with on(2) as stage, admin_of(stage.service) as admin:
        assert await create(admin) == E.NONE
        await verify_unclean_leader_election_disabled(stage)


async def test_unclean_leader_election_enabled_by_topic_override(on: Setting) -> None:
    async with on(2, unclean_leader_election_enable=False) as stage, admin_of(stage.service) as admin:
        assert await create(admin, "true") == E.NONE
        await verify_unclean_leader_election_enabled(stage)


async def test_unclean_leader_election_disabled_by_topic_override(on: Setting) -> None:
    async with on(2, unclean_leader_election_enable=True) as stage, admin_of(stage.service) as admin:
        assert await create(admin, "false") == E.NONE
        await verify_unclean_leader_election_disabled(stage)


async def test_unclean_leader_election_invalid_topic_override(on: Setting) -> None:
    async with on(2) as stage, admin_of(stage.service) as admin:
        assert await create(admin, "invalid") == E.INVALID_CONFIG
        assert await stage.topic(TOPIC) is None


async def test_topic_unclean_leader_election_enable_with_alter_topic_configs(on: Setting) -> None:
    async with on(2) as stage, admin_of(stage.service) as admin:
        assert await create(admin) == E.NONE
        before = await stage.until_state(TOPIC, LEADER, (LEADER, FOLLOWER))
        for value in ("true", "false"):
            await alter(admin, value)
        await leave_the_follower(stage)
        await stage.until_cached(TOPIC, 0, leader=-1, isr=(LEADER,))
        assert unclean_elections(stage) == 0
        await alter(admin, "true")
        after = await stage.until_state(TOPIC, FOLLOWER, (FOLLOWER,))
        assert unclean_elections(stage) == 1
        assert after.leader_epoch > before.leader_epoch
