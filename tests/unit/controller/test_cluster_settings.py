"""What brokers are configured to do is obeyed: learned before every election, followed while active, and reported."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.unit.controller.test_guard import WAYS
from tests.unit.controller.virtual_cluster import Stage, dynamic, is_active, stage, take_over

CREATION = "create.topic.policy.class.name"


class Overridden:
    """A stage whose controllers are configured to allow deletion."""

    def __init__(self, it: Stage) -> None:
        self._it = it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._it, name)

    async def add_controller(self, **changes: Any) -> Service:
        return await self._it.add_controller(given={"delete.topic.enable": "true"}, **changes)


@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_no_election_passes_over_what_brokers_forbid(way: Any) -> None:
    """What is set here says otherwise than the brokers, before the election or since the last one."""
    async with stage() as it:
        for broker in (1, 2, 3):
            await it.add_broker(broker)

        async def forbid() -> None:
            for broker in (1, 2, 3):
                await it.restart_broker(broker, delete_topic_enable="false")
            await it.sleep(4)

        service = await way(Overridden(it), forbid)
        await it.sleep(15)
        assert not is_active(service)
        (reason,) = service.controller.election.refusals[:1]
        assert reason == (
            "brokers have delete.topic.enable false, and it is true here: set it to theirs, leave it out, or insist on "
            "ours (--keep-ours delete.topic.enable)"
        )
        assert not service.controller.readiness().ready


@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_each_way_to_become_controller_adopts_what_brokers_have(way: Any) -> None:
    async def no_obstacle() -> None:
        pass

    async with stage() as it:
        await it.add_broker(1, unclean_leader_election_enable="true", delete_topic_enable="false")
        service = await way(it, no_obstacle)
        await it.until(lambda: is_active(service), 5)
        policy = service.shell.policy
        assert (policy.unclean_leader_election_enable, policy.delete_topic_enable) == (True, False)


@virtual_time
async def test_insisting_takes_the_role_with_our_settings() -> None:
    async with stage() as it:
        await it.add_broker(1, delete_topic_enable="false")
        service = await it.add_controller(
            given={"delete.topic.enable": "true"}, aiocontroller_keep_ours=("delete.topic.enable",)
        )
        assert is_active(service)
        assert service.shell.policy.delete_topic_enable


@virtual_time
async def test_election_waits_for_no_broker_that_has_answered_its_settings() -> None:
    """Not even for one that has died since, without its session having ended."""
    async with stage() as it:
        for broker in (1, 2, 3):
            await it.add_broker(broker, unclean_leader_election_enable="true")
        await it.make_broker_controller()
        service = await it.add_controller()
        for broker in it.brokers.values():
            broker.unanswered.update((ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CONFIGS))
        began_s = it.world.clock.monotonic()
        await it.delete("/controller")
        await it.until(lambda: is_active(service), 1)
        assert it.world.clock.monotonic() - began_s < 0.05
        assert service.shell.policy.unclean_leader_election_enable


@virtual_time
async def test_change_in_zookeeper_counts_at_the_very_next_election() -> None:
    """There was no notification of it: neither a notification nor the guard's next look came before."""
    async with stage() as it:
        await it.add_broker(1)
        await it.make_broker_controller()
        service = await it.add_controller()
        await it.create("/config/brokers/<default>", b'{"config":{"unclean.leader.election.enable":"true"}}')
        await it.delete("/controller")
        await it.until(lambda: is_active(service), 1)
        assert service.shell.policy.unclean_leader_election_enable


@virtual_time
async def test_cluster_that_forbids_rebalancing_keeps_its_leaders_until_it_allows_it() -> None:
    async with stage() as it:
        for broker in (1, 2, 3, 4, 5):
            await it.add_broker(broker, auto_leader_rebalance_enable="false")
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2]}}')
        await it.create("/brokers/topics/t/partitions", b"")
        await it.create("/brokers/topics/t/partitions/0", b"")
        state = b'{"controller_epoch":0,"leader":2,"leader_epoch":3,"version":1,"isr":[2,1]}'
        await it.create("/brokers/topics/t/partitions/0/state", state)
        service = await it.add_controller()
        await it.sleep(900)
        table = service.shell.context.table
        (row,) = table.topic_by_name["t"].rows
        assert table.leader[row] == 2
        for broker in (3, 4, 5):
            await it.restart_broker(
                broker, auto_leader_rebalance_enable="true", leader_imbalance_check_interval_seconds="5"
            )
            await it.sleep(4)
        await it.until(lambda: table.leader[row] == 1, 30)


@virtual_time
async def test_protocol_version_is_the_brokers_and_an_old_cluster_gets_nothing_that_it_cannot_read() -> None:
    """A takeover wrote topic ids into an old cluster's znodes, and switched ``/feature`` on."""
    async with stage() as it:
        await it.add_broker(1, inter_broker_protocol_version="3.9-IV0")
        await it.add_broker(2, inter_broker_protocol_version="2.6")
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
        service = await it.add_controller()
        assert is_active(service)
        assert service.shell.policy.inter_broker_protocol_version == "2.6"
        data, _ = await it.client.get("/brokers/topics/t")
        assert b"topic_id" not in data
        feature, _ = await it.client.get("/feature")
        assert json.loads(feature)["status"] == 0
        assert service.shell.settings.reported(1, "inter.broker.protocol.version") == "3.9-IV0"


@virtual_time
async def test_damaged_settings_of_all_brokers_leave_what_was_there_before() -> None:
    async with stage() as it:
        await it.add_broker(1)
        await dynamic(it, "<default>", unclean_leader_election_enable="true")
        service = await it.add_controller()
        assert service.shell.policy.unclean_leader_election_enable
        await it.client.set_data("/config/brokers/<default>", b"\xff", -1)
        await it.zk.create_config_change_notification("brokers/<default>")
        await it.sleep(40)
        assert service.shell.policy.unclean_leader_election_enable
        assert is_active(service)


@virtual_time
async def test_settings_of_brokers_that_are_gone_count_while_none_is_there() -> None:
    async with stage() as it:
        await it.add_broker(1, delete_topic_enable="false")
        await it.make_broker_controller()
        service = await it.add_controller()
        await it.kill_broker(1)
        await it.sleep(10)
        await it.delete("/controller")
        await it.until(lambda: is_active(service), 5)
        assert not service.shell.policy.delete_topic_enable


@virtual_time
async def test_spaces_and_capitals_in_a_brokers_file_are_as_to_kafka() -> None:
    """A space at the end of a line is part of the value that a broker tells, and no part of what it obeys."""
    async with stage() as it:
        await it.add_broker(1, delete_topic_enable="False ", num_partitions=" 3 ")
        service = await it.add_controller()
        await dynamic(it, "<default>", unclean_leader_election_enable=" TRUE ")
        await it.sleep(1)
        assert is_active(service)
        policy = service.shell.policy
        found = policy.delete_topic_enable, policy.num_partitions, policy.unclean_leader_election_enable
        assert found == (False, 3, True)


@virtual_time
async def test_policy_of_creations_keeps_us_out_until_the_operator_insists(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with stage() as it:
        await it.add_broker(1, create_topic_policy_class_name="org.example.Policy")
        await it.make_broker_controller()
        service = await it.add_controller()
        (reason,) = await take_over(service)
        assert f"brokers have {CREATION} org.example.Policy, which runs in brokers only" in reason
        assert await take_over(service, keep_ours=(CREATION,)) == []
        assert is_active(service)
        message = f"Not enforced by this controller: {CREATION} org.example.Policy: topics that are created here"
        assert [r.getMessage() for r in caplog.records if message in r.getMessage()]


@virtual_time
async def test_insisting_ends_with_the_takeover_that_was_refused() -> None:
    async with stage() as it:
        await it.add_broker(1, create_topic_policy_class_name="org.example.Policy", delete_topic_enable="false")
        await it.make_broker_controller()
        service = await it.add_controller(given={"delete.topic.enable": "true"})
        assert len(await take_over(service)) == 2
        assert len(await take_over(service, keep_ours=(CREATION,))) == 1
        assert service.shell.settings.keep_ours == []
        assert await take_over(service, keep_ours=(CREATION, "delete.topic.enable")) == []
        assert service.shell.settings.keep_ours == [CREATION, "delete.topic.enable"]


@virtual_time
async def test_settings_insisted_on_while_active_count_from_then_on() -> None:
    async with stage() as it:
        await it.add_broker(1, delete_topic_enable="false")
        service = await it.add_controller()
        assert not service.shell.policy.delete_topic_enable
        assert await take_over(service, keep_ours=("delete.topic.enable",)) == []
        assert service.shell.policy.delete_topic_enable


@virtual_time
async def test_status_says_what_differs_and_what_contradicts() -> None:
    async with stage() as it:
        await it.add_broker(1, delete_topic_enable="true", num_partitions="3")
        await it.add_broker(2, delete_topic_enable="false", num_partitions="3")
        service = await it.add_controller(num_partitions=7)
        assert not is_active(service)
        found = service.controller.status()["settings"]
        assert found == {
            "differing": ["delete.topic.enable"],
            "contradicting": ["num.partitions"],
            "keep_ours": [],
            "not_enforced": [],
        }
