"""What operators' commands take: an empty body asks for the defaults, and nothing of another is passed over."""

from __future__ import annotations

import re

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server.commands import CommandRefusedError, Commands
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode, encode_migration
from tests.unit.controller.virtual_cluster import begin, is_active, offline_topic, stage, with_topic


@virtual_time
async def test_a_takeover_without_a_body_asks_for_the_defaults() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        commands = Commands(service.shell, service.controller, lambda: None)
        for body in (b"", b"{}", b'{"keep_ours":["num.partitions"]}'):
            assert (await commands.take_over(body))["was_active"]


@pytest.mark.parametrize(
    "body, found",
    [
        (b'{"keep_ours":["num.partition"]}', "num.partition"),
        (b"{", "truncated"),
        (b"[]", "array"),
        (b'{"keep_ours":["\xdd"]}', "utf-8"),
    ],
)
@virtual_time
async def test_a_takeover_that_asks_for_nonsense_is_refused(body: bytes, found: str) -> None:
    async with stage() as it:
        service = await begin(it, 1)
        with pytest.raises(BadInputError, match=found):
            await Commands(service.shell, service.controller, lambda: None).take_over(body)


@pytest.mark.parametrize("body, ends_in_ms", [(b"", None), (b'{"exit":true,"linger_ms":7}', 7)])
@virtual_time
async def test_a_release_ends_the_process_if_asked_to(body: bytes, ends_in_ms: int | None) -> None:
    async with stage() as it:
        service = await begin(it, 1)
        stopped: list[float] = []
        commands = Commands(service.shell, service.controller, lambda: stopped.append(it.world.clock.monotonic()))
        answer = await commands.release(body)
        answered_s = it.world.clock.monotonic()
        assert (answer["epoch"], answer["ends_in_ms"]) == (1, ends_in_ms)
        assert not is_active(service)
        await it.sleep(60)
        assert stopped == ([] if ends_in_ms is None else pytest.approx([answered_s + 0.007], abs=1e-6))


@virtual_time
async def test_what_is_led_needs_no_recovery() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        await with_topic(it, [1], 1)
        commands = Commands(service.shell, service.controller, lambda: None)
        answer = await commands.recover(b'{"topic":"t"}')
        assert [(p.partition, p.result, p.leader) for p in answer["partitions"]] == [(0, "led", 1)]


@virtual_time
async def test_a_broker_that_cannot_tell_is_named() -> None:
    """Recording brokers have no logs."""
    async with stage() as it:
        await it.add_broker(1)
        await offline_topic(it)
        service = await it.add_controller()
        commands = Commands(service.shell, service.controller, lambda: None)
        for body in (b'{"topic":"t","dry_run":true}', b'{"topic":"t","leader":1}'):
            answer = await commands.recover(body)
            [found] = answer["partitions"]
            assert (found.result, found.leader) == ("failed", None)
            assert "reported how far its log reaches" in found.detail
            assert [(log.broker, log.in_isr, log.end_offset) for log in found.logs] == [(1, False, None)]
        [found] = (await commands.recover(b'{"topic":"t"}'))["partitions"]  # as Kafka's unclean election
        assert (found.result, found.leader, found.lost_at_most) == ("elected", 1, None)


@pytest.mark.parametrize(
    "body, found",
    [
        (b'{"topic":"u"}', "no such topic: u"),
        (b'{"topic":"t","partition":1}', "topic t has no partition 1"),
        (b'{"topic":"t","partition":-1}', "topic t has no partition -1"),
        (b'{"partition":1}', "missing required field `topic`"),
        (b'{"topic":"t","dry_run":3}', "dry_run"),
        (b"", "truncated"),
        (b'{"topic":"\xdd"}', "utf-8"),
    ],
)
@virtual_time
async def test_a_recovery_that_asks_for_nonsense_is_refused(body: bytes, found: str) -> None:
    async with stage() as it:
        service = await begin(it, 1)
        await with_topic(it, [1], 1)
        with pytest.raises((BadInputError, CommandRefusedError), match=found):
            await Commands(service.shell, service.controller, lambda: None).recover(body)


@virtual_time
async def test_only_the_active_controller_recovers() -> None:
    async with stage() as it:
        await begin(it, 1)
        standby = await it.add_controller(aiocontroller_id=1_000_002)
        with pytest.raises(CommandRefusedError, match="not the active controller"):
            await Commands(standby.shell, standby.controller, lambda: None).recover(b'{"topic":"t"}')


@virtual_time
async def test_a_rollback_says_what_it_writes() -> None:
    async with stage() as it:
        await it.add_broker(1)
        of_kraft = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":9}'
        await it.create("/controller_epoch", b"5")
        await it.create("/controller", of_kraft)
        await it.create("/migration", encode_migration(MigrationZNode(3000, 9, 100, 9)))
        service = await it.add_controller()
        commands = Commands(service.shell, service.controller, lambda: None)
        planned = await commands.roll_back(b'{"dry_run":true}')
        assert planned["dry_run"]
        assert not is_active(service)
        done = await commands.roll_back(b"")
        assert is_active(service)
        for answer in (planned, done):
            assert (answer["id"], answer["epoch"]) == (service.shell.id, 10)
            assert answer["epoch_before"] == ("/controller_epoch", 0, "5")
            assert [each.path for each in answer["deleted"]] == ["/controller", "/migration"]
        path, content = done["created"]
        data = (await it.client.get_many([path])).data[0]
        assert data is not None
        times = r'"timestamp":"\d+"'  # of two moments
        assert re.sub(times, "", content) == re.sub(times, "", data.decode())
        with pytest.raises(CommandRefusedError, match="is active already"):
            await commands.roll_back(b"")
        with pytest.raises(BadInputError, match="dry_run"):
            await commands.roll_back(b'{"dry_run":1}')


@virtual_time
async def test_a_hand_over_keeps_the_role() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        answer = await Commands(service.shell, service.controller, lambda: None).release(b'{"to_kraft":true}')
        assert (answer["active"], answer["epoch"], answer["left"]) == (True, 1, [])
        assert is_active(service)
