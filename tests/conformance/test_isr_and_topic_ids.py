"""Kafka's ControllerIntegrationTest: AlterPartition in every version and with every error, and the life of topic ids.

Each test is named after Kafka's and checks what that checks.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aiocontroller.core.alter_partition import AlterPartitionResult
from aiocontroller.core.errors import KafkaErrorCode as Code
from aiocontroller.core.events import AlterPartitionReceived, ControlledShutdown
from aiocontroller.core.ids import NO_TOPIC_ID, RECOVERED, RECOVERING, LeaderAndIsr
from aiocontroller.core.request_content import AlterPartition
from tests.conformance.conftest import Setting
from tests.conformance.simulated_cluster import SimulatedCluster
from tests.integration.controller.harness import until

OLD = "2.7-IV0"
"""The last inter-broker protocol without topic ids."""
PROTOCOLS = (
    *("0.11.0-IV2", "1.1-IV0", "2.0-IV1", "2.4-IV1", "2.6-IV0", "2.7-IV2", "2.8-IV1"),
    *("3.0-IV1", "3.2-IV0", "3.3-IV3", "3.5-IV2", "3.7-IV4", "3.9-IV0"),
)
"""Kafka's test goes through all of them."""


async def ask_isr(
    stage: SimulatedCluster, version: int, isr: tuple[int, ...], **changes: Any
) -> AlterPartitionResult | Code:
    """The leader of t-0 asks for an ISR; ``changes`` replace what it knows of itself and of the partition."""
    state = await stage.state("t")
    topic_id = stage.service.shell.context.table.topic_by_name["t"].id
    broker = changes.pop("broker", state.leader)
    live = stage.service.shell.context.brokers
    broker_epoch = changes.pop("broker_epoch", live[broker].epoch if broker in live else -1)
    wanted: dict[str, Any] = {
        "topic": topic_id if version >= 2 else "t",
        "partition": 0,
        "leader_epoch": state.leader_epoch,
        "isr": isr,
        "partition_epoch": state.partition_epoch,
        "recovery_state": RECOVERED,
    }
    answer = await stage.ask(
        AlterPartitionReceived,
        broker=broker,
        broker_epoch=broker_epoch,
        version=version,
        partitions=(AlterPartition(**(wanted | changes)),),
    )
    if isinstance(answer, Code):
        return answer
    (result,) = answer
    assert isinstance(result, AlterPartitionResult)
    return result


async def with_topic(stage: SimulatedCluster, replicas: list[int], isr: tuple[int, ...]) -> LeaderAndIsr:
    await stage.create_topic("t", {0: replicas})
    return await stage.until_state("t", replicas[0], isr)


# -- AlterPartition ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_alter_partition(on: Setting, protocol: str) -> None:
    """In every version that such a broker may use: by topic ids only where there are any.  The last one changes it."""
    versions = range(4) if protocol >= "2.8" else range(2)
    async with on(2, inter_broker_protocol_version=protocol) as stage:
        before = await with_topic(stage, [1, 0], (1, 0))
        for version in versions:
            same = await ask_isr(stage, version, before.isr)
            assert isinstance(same, AlterPartitionResult)
            assert (same.error_code, same.leadership) == (Code.NONE, before), version
        result = await ask_isr(stage, versions[-1], (1,))
        assert isinstance(result, AlterPartitionResult)
        assert result.error_code == Code.NONE
        after = msgspec.structs.replace(before, isr=(1,), partition_epoch=before.partition_epoch + 1)
        assert result.leadership == after
        written = await stage.state("t")
        assert written == after or written.partition_epoch > after.partition_epoch  # the follower may be back already


async def test_alter_partition_version_2_keep_working_when_controller_downgrade_to_pre_28_ibp(on: Setting) -> None:
    async with on(2, inter_broker_protocol_version="3.2-IV0") as stage:
        await with_topic(stage, [1, 0], (1, 0))
        found = await stage.topic("t")
        assert found is not None
        assert found.topic_id != NO_TOPIC_ID
        await stage.stop_controller(stage.service)
        await stage.add_controller(inter_broker_protocol_version=OLD)
        await until(lambda: "t" in stage.service.shell.context.table.topic_by_name)
        await until(lambda: stage.service.shell.context.table.leadership_count == 1)
        assert stage.service.shell.context.table.topic_by_name["t"].id == found.topic_id
        result = await ask_isr(stage, 2, (1,))
        assert isinstance(result, AlterPartitionResult)
        assert result.error_code == Code.NONE


async def test_idempotent_alter_partition(on: Setting) -> None:
    async with on(2) as stage:
        state = await with_topic(stage, [1, 0], (1, 0))
        for partition_epoch in (state.partition_epoch, state.partition_epoch - 1):
            result = await ask_isr(stage, 3, (1, 0), partition_epoch=partition_epoch)
            assert isinstance(result, AlterPartitionResult)
            assert result.error_code == Code.NONE
            assert result.leadership == state


@pytest.mark.parametrize(
    "version,code",
    [
        (0, Code.NONE),  # a departure from Kafka
        (1, Code.OPERATION_NOT_ATTEMPTED),
        (2, Code.INELIGIBLE_REPLICA),
        (3, Code.INELIGIBLE_REPLICA),
    ],
)
async def test_shutdown_broker_not_added_to_isr(on: Setting, version: int, code: Code) -> None:
    async with on(2) as stage:
        await with_topic(stage, [1, 0], (1, 0))
        await stage.ask(ControlledShutdown, broker=0, broker_epoch=stage.simulated[0].epoch)
        state = await stage.until_state("t", 1, (1,))
        result = await ask_isr(stage, version, (1, 0))
        assert isinstance(result, AlterPartitionResult)
        assert result.error_code == code
        assert (await stage.state("t") == state) is (code != Code.NONE)


def changed(state: LeaderAndIsr, field: str, by: int) -> dict[str, int]:
    return {field: getattr(state, field) + by}


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_alter_partition_errors(on: Setting, version: int) -> None:
    async with on(2) as stage:
        state = await with_topic(stage, [1, 0], (1, 0))
        epoch = stage.simulated[1].epoch
        assert await ask_isr(stage, version, (1,), broker_epoch=epoch - 1) == Code.STALE_BROKER_EPOCH
        assert await ask_isr(stage, version, (1,), broker=99) == Code.STALE_BROKER_EPOCH
        unknown = {"topic": b"?" * 16} if version >= 2 else {"topic": "unknown"}
        expected: list[tuple[dict[str, Any], tuple[int, ...], Code]] = [
            (unknown, (1,), Code.UNKNOWN_TOPIC_ID if version >= 2 else Code.UNKNOWN_TOPIC_OR_PARTITION),
            ({"partition": 7}, (1,), Code.UNKNOWN_TOPIC_OR_PARTITION),
            (changed(state, "partition_epoch", -1), (1,), Code.INVALID_UPDATE_VERSION),
            (changed(state, "partition_epoch", +1), (1,), Code.NOT_CONTROLLER),
            (changed(state, "leader_epoch", -1), (1,), Code.FENCED_LEADER_EPOCH),
            (changed(state, "leader_epoch", +1), (1,), Code.NOT_CONTROLLER),
            ({"recovery_state": RECOVERING}, (1, 0), Code.INVALID_REQUEST),
            ({"recovery_state": RECOVERING}, (1,), Code.INVALID_REQUEST),
            # Epochs go before everything else: such a leader may work with an outdated state.
            (
                {"recovery_state": RECOVERING, **changed(state, "partition_epoch", -1)},
                (1,),
                Code.INVALID_UPDATE_VERSION,
            ),
            ({"recovery_state": RECOVERING, **changed(state, "leader_epoch", -1)}, (1,), Code.FENCED_LEADER_EPOCH),
            ({"recovery_state": RECOVERING, **changed(state, "leader_epoch", +1)}, (1,), Code.NOT_CONTROLLER),
        ]
        for changes, isr, code in expected:
            result = await ask_isr(stage, version, isr, **changes)
            assert isinstance(result, AlterPartitionResult)
            assert result.error_code == code, changes
        assert await stage.state("t") == state
        await stage.add_controller(aiocontroller_id=7_000_000)  # stands by, and answers so
        standby = stage.service
        standby.shell.owner = None  # it knows more than a standby does
        standby.shell.context.table.add_topic("t", NO_TOPIC_ID)
        assert await ask_isr(stage, 1, (1,), broker=1, broker_epoch=epoch) == Code.NOT_CONTROLLER


async def test_alter_partition_errors_after_unclean_election(on: Setting) -> None:
    async with on(2, unclean_leader_election_enable=True) as stage:
        await with_topic(stage, [0, 1], (0, 1))
        await stage.stop_broker(0)
        await stage.until_state("t", 1, (1,))
        await stage.stop_broker(1)
        await stage.until_state("t", -1, (1,))
        await stage.start_broker(0)
        state = await stage.until_state("t", 0, (0,))
        # The leader reports by itself that it has recovered, with its next ISR change: none, it is alone.
        assert state.recovery_state == RECOVERING
        epoch = stage.simulated[0].epoch
        both = (0, 1)
        assert await ask_isr(stage, 3, both, broker_epoch=epoch - 1) == Code.STALE_BROKER_EPOCH
        assert await ask_isr(stage, 3, both, broker=99) == Code.STALE_BROKER_EPOCH
        expected: list[tuple[dict[str, Any], Code]] = [
            (changed(state, "partition_epoch", -1), Code.INVALID_UPDATE_VERSION),
            (changed(state, "partition_epoch", +1), Code.NOT_CONTROLLER),
            (changed(state, "leader_epoch", -1), Code.FENCED_LEADER_EPOCH),
            (changed(state, "leader_epoch", +1), Code.NOT_CONTROLLER),
            ({}, Code.INVALID_REQUEST),
        ]
        for changes, code in expected:
            result = await ask_isr(stage, 3, both, **({"recovery_state": RECOVERING} | changes))
            assert isinstance(result, AlterPartitionResult)
            assert result.error_code == code, changes
        result = await ask_isr(stage, 3, (0,))
        assert isinstance(result, AlterPartitionResult)
        assert result.error_code == Code.NONE
        assert (await stage.state("t")).recovery_state == RECOVERED


# -- topic ids ---------------------------------------------------------------------------------------------------------


async def ids(stage: SimulatedCluster, name: str) -> tuple[bytes, bytes]:
    """In the znode, and in the controller's context."""
    found = await stage.topic(name)
    assert found is not None
    return found.topic_id, stage.service.shell.context.table.topic_by_name[name].id


def ids_sent(stage: SimulatedCluster, name: str) -> dict[int, bytes]:
    """Partition -> the topic id that broker 0 keeps with its replica: that of the first LeaderAndIsr that had one."""
    hosted = stage.simulated[0].replicas.hosted.get(name, {})
    return {number: partition.topic_id for number, partition in hosted.items()}


async def successor(stage: SimulatedCluster, topics: int = 1, **settings: Any) -> None:
    """The controller ends and another begins, knowing all topics."""
    await stage.stop_controller(stage.service)
    await stage.add_controller(**settings)
    await until(lambda: stage.service.shell.context.table.leadership_count >= topics)


async def one_topic(stage: SimulatedCluster, name: str = "t", replicas: tuple[int, ...] = (0,)) -> bytes:
    """Made by a tool that knows no topic ids; its id."""
    await stage.create_topic(name, {0: list(replicas)})
    await stage.until_state(name, replicas[0], replicas)
    in_znode, in_context = await ids(stage, name)
    assert in_znode == in_context
    return in_znode


async def test_topic_ids_are_added(on: Setting) -> None:
    async with on(1) as stage:
        first = await one_topic(stage, "t1")
        second = await one_topic(stage, "t2")
        assert NO_TOPIC_ID not in (first, second)
        assert first != second
        assert (await ids(stage, "t1"))[0] == first
        assert stage.service.shell.context.table.topic_by_id[first].name == "t1"


async def test_topic_ids_are_not_added(on: Setting) -> None:
    async with on(1, inter_broker_protocol_version=OLD) as stage:
        assert await one_topic(stage, "t1") == NO_TOPIC_ID
        assert await one_topic(stage, "t2") == NO_TOPIC_ID
        assert (await ids(stage, "t1")) == (NO_TOPIC_ID, NO_TOPIC_ID)


async def migration_and_handling(stage: SimulatedCluster, *, has_id: bool) -> None:
    """The context and the broker have the znode's id from the first, keep it, and forget it with the topic."""
    table = stage.service.shell.context.table
    given = await one_topic(stage)
    assert (given != NO_TOPIC_ID) == has_id
    await until(lambda: ids_sent(stage, "t") == {0: given}, "the broker has the topic's id")
    await stage.expand("t", {1: [0]})
    await stage.until_state("t", 0, (0,), 1)
    assert await ids(stage, "t") == (given, given)
    assert table.topic_by_id == ({given: table.topic_by_name["t"]} if has_id else {})
    await until(lambda: ids_sent(stage, "t") == {0: given, 1: given}, "the broker has the new partition's id")
    await stage.client.create("/admin/delete_topics/t")
    await until(lambda: "t" not in table.topic_by_name)
    assert table.topic_by_id == {}


async def test_topic_id_migration_and_handling(on: Setting) -> None:
    async with on(1) as stage:
        await migration_and_handling(stage, has_id=True)


async def test_topic_id_migration_and_handling_with_older_version(on: Setting) -> None:
    async with on(1, inter_broker_protocol_version=OLD) as stage:
        await migration_and_handling(stage, has_id=False)


async def test_topic_id_persists_through_controller_reelection(on: Setting) -> None:
    async with on(1) as stage:
        given = await one_topic(stage)
        first = stage.service
        await stage.add_controller(aiocontroller_id=7_000_000)
        await stage.stop_controller(first)
        await until(lambda: stage.service.shell.context.table.leadership_count == 1)
        assert await ids(stage, "t") == (given, given)


async def test_no_topic_id_persists_through_controller_reelection(on: Setting) -> None:
    async with on(1, inter_broker_protocol_version=OLD) as stage:
        await one_topic(stage)
        first = stage.service
        await stage.add_controller(aiocontroller_id=7_000_000, inter_broker_protocol_version=OLD)
        await stage.stop_controller(first)
        await until(lambda: stage.service.shell.context.table.leadership_count == 1)
        assert await ids(stage, "t") == (NO_TOPIC_ID, NO_TOPIC_ID)


async def test_topic_id_persists_through_controller_restart(on: Setting) -> None:
    async with on(1) as stage:
        given = await one_topic(stage)
        await successor(stage)
        assert await ids(stage, "t") == (given, given)


async def test_topic_id_created_on_upgrade(on: Setting) -> None:
    async with on(1, inter_broker_protocol_version=OLD) as stage:
        assert await one_topic(stage) == NO_TOPIC_ID
        await successor(stage)
        in_znode, in_context = await ids(stage, "t")
        assert in_znode == in_context != NO_TOPIC_ID


async def test_topic_id_created_on_upgrade_multi_broker_scenario(on: Setting) -> None:
    """Old and new controllers take turns; what has an id keeps it."""
    async with on(2, inter_broker_protocol_version=OLD) as stage:
        assert await one_topic(stage, "t", (0, 1)) == NO_TOPIC_ID
        await successor(stage)
        given, _ = await ids(stage, "t")
        assert given != NO_TOPIC_ID
        for protocol in (OLD, "3.9-IV0", OLD):
            await successor(stage, inter_broker_protocol_version=protocol)
            assert await ids(stage, "t") == (given, given)


async def test_topic_id_upgrade_after_reassigning_partitions(on: Setting) -> None:
    """A controller of an old protocol that rewrites the znode keeps the id."""
    async with on(2) as stage:
        given = await one_topic(stage, "t", (0,))
        await successor(stage, inter_broker_protocol_version=OLD)
        data = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}'
        await stage.client.create("/admin/reassign_partitions", data=data)
        await stage.finished("t", [1])
        assert await ids(stage, "t") == (given, given)
        await successor(stage)
        assert await ids(stage, "t") == (given, given)
        raw = msgspec.json.decode(await stage.client.get_data("/brokers/topics/t"))
        assert (raw["version"], raw["partitions"]) == (3, {"0": [1]})
