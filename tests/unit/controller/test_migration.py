"""A migration to KRaft (KIP-866): the role is kept for the KRaft controller's claim, and taken back by a rollback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.core.events import Release, RollBack
from aiocontroller.core.request_content import Released
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import registration
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode, encode_migration
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from tests.unit.controller.virtual_cluster import Stage, ask, is_active, offline_topic, stage, take_over, terms

OF_KRAFT = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":52}'
CLAIMED = encode_migration(MigrationZNode(3000, 52, 100, 52))


async def holder(it: Stage) -> int | None:
    return getattr(await it.zk.get_controller(watch=False), "controller_id", None)


async def migrated(it: Stage, **changes: Any) -> Service:
    """A KRaft controller has led the cluster, has written a state with its epoch, and is stopped."""
    await it.add_broker(1)
    await offline_topic(it)
    await it.client.set_data("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}', -1)
    state = b'{"controller_epoch":52,"leader":1,"leader_epoch":3,"version":1,"isr":[1]}'
    await it.client.set_data("/brokers/topics/t/partitions/0/state", state, -1)
    await it.create("/controller_epoch", b"5")
    await it.create("/controller", OF_KRAFT)
    await it.create("/migration", CLAIMED)
    return await it.add_controller(auto_leader_rebalance_enable=False, **changes)


@pytest.mark.parametrize("standby", ["warm", "cold"])
@virtual_time
async def test_rollback_takes_the_role_above_all_epochs_in_one_term(standby: str) -> None:
    async with stage() as it:
        service = await migrated(it, aiocontroller_standby=standby)
        plan, reasons = await ask(service, RollBack, dry_run=True)
        assert (plan.epoch, reasons) == (53, [])
        assert not is_active(service)
        assert await holder(it) == 3000
        plan, reasons = await ask(service, RollBack)
        assert (plan.epoch, reasons) == (53, [])
        assert is_active(service)
        assert await it.zk.get_controller_epoch() == (53, 1)
        assert await it.zk.get_migration() is None
        await it.sleep(30)
        assert is_active(service)
        assert terms(service) == 1
        assert service.controller.readiness().reasons == ()
        assert {request.controller_epoch for request in it.brokers[1].of(ApiKey.UPDATE_METADATA)} == {53}
        assert "is active already" in await ask(service, RollBack)


@virtual_time
async def test_kraft_controller_that_still_writes_is_not_rolled_back() -> None:
    async with stage() as it:
        service = await migrated(it)
        answer = asyncio.create_task(ask(service, RollBack))
        while not answer.done():
            await it.client.set_data("/migration", CLAIMED, -1)
            await it.sleep(0.5)
        _, reasons = await answer
        assert reasons == ["/migration changes: the KRaft controller still writes; stop the whole quorum"]
        assert await holder(it) == 3000
        assert await it.zk.get_controller_epoch() == (5, 0)
        assert not is_active(service)


@virtual_time
async def test_broker_that_is_not_registered_is_restarted_first_or_taken_for_dead() -> None:
    """In KRaft mode it is not, and this controller would take its leaders from it."""
    async with stage() as it:
        service = await migrated(it)
        await it.client.set_data("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,9]}}', -1)
        plan, reasons = await ask(service, RollBack, dry_run=True)
        assert plan.missing_brokers == (9,)
        assert reasons[0].startswith("broker 9 has replicas and is not registered")
        await it.client.set_data("/brokers/topics/t", b'{"version":1,"partitions":{"0":[8,9]}}', -1)
        _, reasons = await ask(service, RollBack)
        assert [reason.partition(":")[0] for reason in reasons] == ["brokers 8, 9 have replicas and are not registered"]
        assert await holder(it) == 3000
        assert (await ask(service, RollBack, force=True))[1] == []
        assert is_active(service)


@virtual_time
async def test_an_epoch_that_no_controller_can_follow_refuses_the_rollback_by_name() -> None:
    async with stage() as it:
        service = await migrated(it)
        await it.client.set_data("/migration", encode_migration(MigrationZNode(3000, 2_000_000_001, 100, 52)), -1)
        refused = await ask(service, RollBack)
        assert refused == "/migration (kraft_controller_epoch): found 2000000001, expected at most 2000000000"
        assert await holder(it) == 3000


@virtual_time
async def test_rollback_is_refused_for_what_refuses_a_takeover_too() -> None:
    async with stage() as it:
        service = await migrated(it)
        await it.add_broker(2, authorizer_class_name="org.example.Other")
        _, reasons = await ask(service, RollBack)
        assert len(reasons) == 1
        assert "brokers have an authorizer (org.example.Other)" in reasons[0]
        assert await holder(it) == 3000
        assert await it.zk.get_migration() is not None


@virtual_time
async def test_claim_at_the_last_moment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        service = await migrated(it)
        permit = service.controller.guard.permit_to_roll_back

        async def claimed_again() -> Any:
            found = await permit()
            await it.client.multi([SetData("/controller_epoch", b"6", -1), SetData("/migration", CLAIMED, -1)])
            return found

        monkeypatch.setattr(service.controller.guard, "permit_to_roll_back", claimed_again)
        _, reasons = await ask(service, RollBack)
        assert "has changed meanwhile" in reasons[0]
        assert await holder(it) == 3000
        assert not is_active(service)


@virtual_time
async def test_reason_that_appears_with_the_rollback_gives_the_role_to_the_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the epoch raised: their controller finds no state above its own."""
    async with stage() as it:
        service = await migrated(it)
        permit = service.controller.guard.permit_to_roll_back

        async def and_an_obstacle() -> Any:
            found = await permit()
            await it.create("/kafka-acl")
            await it.kill_broker(1)
            return found

        monkeypatch.setattr(service.controller.guard, "permit_to_roll_back", and_an_obstacle)
        _, reasons = await ask(service, RollBack)
        assert "/kafka-acl exists" in reasons[0]
        assert await holder(it) is None
        assert await it.zk.get_controller_epoch() == (53, 1)
        assert terms(service) == 0


@virtual_time
async def test_rollback_by_an_observer_whose_answer_is_lost_leaves_the_role_to_others() -> None:
    """If the epoch is written by hand before the observer looks, its ``/controller`` proves nothing any more."""
    async with stage() as it:
        service = await migrated(it)
        service.controller.election.only_observe()
        multi = service.client.multi

        async def without_answer(ops: Any) -> Any:
            service.client.multi = multi  # type: ignore[method-assign]
            await multi(ops)
            await it.client.set_data("/controller_epoch", b"60", -1)
            raise registration.MaybeAppliedError("lost by the test")

        service.client.multi = without_answer  # type: ignore[method-assign]
        _, reasons = await ask(service, RollBack)
        assert "changed meanwhile" in reasons[0]
        await it.sleep(1)
        assert await holder(it) is None
        assert terms(service) == 0
        assert await take_over(service) == []


@virtual_time
async def test_without_a_migration_there_is_nothing_to_roll_back() -> None:
    async with stage() as it:
        await it.make_broker_controller()
        service = await it.add_controller()
        assert "there is no /migration" in await ask(service, RollBack)
        assert await holder(it) == 1


@pytest.mark.parametrize("standby", ["warm", "cold"])
@virtual_time
async def test_takeover_after_a_rollback_by_hand_succeeds_and_says_so(standby: str) -> None:
    """KAFKA-20488: states bear KRaft's epochs.  The first term only raises the epoch, and the command hears of none."""
    async with stage() as it:
        service = await migrated(it, aiocontroller_standby=standby)
        await it.delete("/migration")
        await it.client.set_data("/controller_epoch", b"6", -1)
        await it.client.set_data("/controller", b'{"version":1,"brokerid":1,"timestamp":"0"}', -1)
        await it.sleep(10)
        assert await take_over(service) == []
        assert is_active(service)
        assert (await it.zk.get_controller_epoch() or (0,))[0] == 53
        await it.sleep(30)
        assert is_active(service)
        assert terms(service) == 2


@virtual_time
async def test_role_is_kept_for_a_kraft_controllers_claim_and_not_sought_again() -> None:
    async with stage() as it:
        await it.add_broker(1)
        service = await it.add_controller()
        assert await ask(service, Release, to_kraft=True) == Released(1)
        assert is_active(service)
        await it.sleep(10)
        assert is_active(service)
        claim = [
            SetData("/controller_epoch", b"2", -1),
            Delete("/controller"),
            Create("/controller", OF_KRAFT),
            Create("/migration", CLAIMED),
        ]
        await it.client.multi(claim)
        await it.until(lambda: not is_active(service), 1)
        await it.delete("/migration")
        await it.delete("/controller")
        await it.sleep(30)
        assert await holder(it) is None
        assert terms(service) == 1
        assert await take_over(service) == []
