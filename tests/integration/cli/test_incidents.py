"""Incidents as an operator meets them: the page names cause and object within two clicks, one command does, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import click
import msgspec
import pytest
from click.testing import CliRunner

from aiocontroller.cli import overview as on_terminal
from aiocontroller.cli.root import root
from aiocontroller.controller import overview
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import SicknessChange
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.sickness import DISK, Sickness
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.integration.cli.test_broken import cluster, described
from tests.integration.cli.test_live_page import BROWSER, chromium, shown
from tests.integration.controller.harness import Cluster, until
from tests.integration.controller.test_reassignment import reassign
from tests.integration.controller.test_topic_deletion import WITHOUT_IDS, delete

__all__ = ["chromium", "cluster"]
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(BROWSER is None, reason="no Chromium on PATH")]
REBALANCE = "auto.leader.rebalance.enable"
UNCLEAN = "unclean.leader.election.enable"


async def led(cluster: Cluster, **settings: Any) -> Service:
    """``orders-0`` on brokers 3, 1 and 2, led by 3; ``audit-0`` on 1 alone."""
    service = await cluster.add_controller(**settings)
    await cluster.create_topic("orders", {0: [3, 1, 2]})
    await cluster.create_topic("audit", {0: [1]})
    await cluster.until_leaders("orders", [3])
    await cluster.until_leaders("audit", [1])
    return service


async def a_dead_broker(cluster: Cluster) -> Service:
    service = await led(cluster)
    await cluster.kill_broker(3)
    return service


async def a_dead_isr(cluster: Cluster) -> Service:
    first = await led(cluster)
    state = await cluster.state("orders")
    await cluster.stop_controller(first)
    await cluster.write_state("orders", msgspec.structs.replace(state, isr=(3,)))
    service = await cluster.add_controller()
    await until(lambda: service.shell.context.table.broken.under_replicated)
    await cluster.kill_broker(3)
    return service


async def too_few_in_sync(cluster: Cluster) -> Service:
    await cluster.client.create("/config/topics/orders", data=b'{"version":1,"config":{"min.insync.replicas":"3"}}')
    service = await led(cluster)
    await cluster.kill_broker(2)
    return service


async def a_deletion_that_waits_for_the_dead(cluster: Cluster) -> Service:
    service = await led(cluster, **WITHOUT_IDS)
    await cluster.kill_broker(2)
    await until(lambda: service.shell.context.table.broken.under_replicated)
    await delete(cluster, "orders")
    return service


async def a_deletion_without_an_answer(cluster: Cluster) -> Service:
    service = await led(cluster)
    cluster.brokers[2].unanswered.add(ApiKey.STOP_REPLICA)
    await delete(cluster, "orders")
    return service


async def a_deletion_that_a_disk_refuses(cluster: Cluster) -> Service:
    service = await led(cluster)
    cluster.brokers[2].stop_replica_errors = [KafkaErrorCode.KAFKA_STORAGE_ERROR] * 20
    await delete(cluster, "orders")
    return service


async def a_move_to_the_dead(cluster: Cluster) -> Service:
    service = await led(cluster)
    await reassign(service, {TopicPartition("audit", 0): (1, 3)})
    await cluster.kill_broker(3)
    return service


async def a_failed_log_directory(cluster: Cluster) -> Service:
    service = await led(cluster)
    cluster.brokers[3].errors["orders", 0] = KafkaErrorCode.KAFKA_STORAGE_ERROR
    data = b'{"version":1,"broker":3,"event":1}'
    await cluster.client.create("/log_dir_event_notification/log_dir_event_", data=data, sequential=True)
    return service


async def a_sick_disk(cluster: Cluster) -> Service:
    """Only the verdict is made up: ``tests/integration/kafka/test_sick_broker.py`` has real ones."""
    for broker in cluster.brokers.values():
        broker.settings["min.insync.replicas"] = "1"
    service = await led(cluster, aiocontroller_sickness_mode="act")
    probes, now_s = service.shell.sickness, cluster.world.clock.monotonic()
    assert probes is not None
    probes.judge.judge = lambda now_s: False  # type: ignore[method-assign]
    probes.judge.sick = Sickness(3, service.shell.context.brokers[3].epoch, DISK, now_s, "1.4 s behind 1")
    service.queue.append(SicknessChange())
    return service


async def brokers_that_differ(cluster: Cluster) -> Service:
    for broker, value in (1, "true"), (2, "true"), (3, "false"):
        cluster.brokers[broker].settings[UNCLEAN] = value
    return await led(cluster)


async def a_damaged_znode(cluster: Cluster) -> Service:
    await cluster.client.create("/brokers/topics/damaged", data=b'{"version":1,"partitions":{"0":[3,')
    return await led(cluster)


async def a_broker_that_is_cut_off(cluster: Cluster) -> Service:
    service = await led(cluster)
    cluster.brokers[3].deafen()
    await cluster.create_topic("late", {0: [3, 1]})
    return service


async def no_standby(cluster: Cluster) -> Service:
    service = await led(cluster)
    await cluster.stop_controller(await cluster.add_controller(aiocontroller_id=1002))
    return service


async def a_standby_that_would_refuse(cluster: Cluster) -> Service:
    for broker in cluster.brokers.values():
        broker.settings[REBALANCE] = "true"
    service = await led(cluster)
    await cluster.add_controller(aiocontroller_id=1002, auto_leader_rebalance_enable=False)
    return service


class Incident(NamedTuple):
    happens: Callable[[Cluster], Awaitable[Service]]
    page: tuple[str, ...]
    """What it must say: in words what has happened, and to what."""
    command: str
    terminal: tuple[str, ...]
    click: str = ""
    """A button that has to be pressed first."""


WATCH = "status --watch"
INCIDENTS = (
    Incident(
        a_dead_broker,
        ("Brokers not live: 1", "orders-0", "broker 3 dead since", "gone since"),
        "topics list --under-replicated",
        ("orders-0", "broker 3 dead since"),
    ),
    Incident(
        a_dead_isr,
        ("1 offline", "orders-0", "no in-sync replica is alive; broker 3 dead since", "broker 1 alive, not caught up"),
        "topics list --offline",
        ("orders-0", "no in-sync replica is alive; broker 3 dead since", "broker 1 alive, not caught up"),
    ),
    Incident(
        too_few_in_sync,
        ("orders-0", "2 in sync, min.insync.replicas needs 3; broker 2 dead since"),
        "topics list --under-min-isr",
        ("orders-0", "2 in sync, min.insync.replicas needs 3; broker 2 dead since"),
    ),
    Incident(
        a_deletion_that_waits_for_the_dead,
        ("orders", "halted", "broker 2 (gone)"),
        "check",
        ("A deletion waits", "orders: broker 2 has replicas and is not registered"),
    ),
    Incident(
        a_deletion_without_an_answer,
        ("Brokers not live: 1", "not answering since", "orders\tdeleting\t1\t1\tbroker 2"),
        WATCH,
        ("not answering since", "orders  deleting", "broker 2"),
    ),
    Incident(
        a_deletion_that_a_disk_refuses,
        ("1 replica to delete, of orders",),
        "debts list",
        ("2  yes    orders",),
    ),
    Incident(
        a_move_to_the_dead,
        ("audit-0", "waits for broker 3, not live"),
        WATCH,
        ("audit-0    0 of 1     3       3", "1 reassignment in progress"),
    ),
    Incident(
        a_failed_log_directory,
        ("orders-0", "log directory of 3 failed", "a log directory of broker 3 failed: 1 partition lost its leader"),
        "incidents",
        ("a log directory of broker 3 failed: 1 partition lost its leader",),
    ),
    Incident(
        a_sick_disk,
        ("orders-0", "broker 3 is judged sick", "disk: 1.4 s behind 1"),
        "brokers",
        ("3  sick", "disk: 1.4 s behind 1"),
    ),
    Incident(
        brokers_that_differ,
        (UNCLEAN, "true on broker 1, 2; false on broker 3"),
        "check",
        (UNCLEAN, "true on broker 1, 2; false on broker 3"),
        click="Check now",
    ),
    Incident(
        a_damaged_znode,
        ("Unreadable znodes: 1.", "/brokers/topics/damaged", '"partitions":{"0":[3,'),
        "status",
        ("Unreadable: /brokers/topics/damaged: found", '"partitions":{"0":[3,'),
    ),
    Incident(
        a_broker_that_is_cut_off,
        ("Brokers not live: 1", "not answering since", "cannot be reached: ", "Connect call failed"),
        "brokers",
        ("3  not answering since", "cannot be reached: ", "Connect call failed"),
    ),
    Incident(no_standby, ("No standby runs",), "status", ("No standby runs.",)),
    Incident(
        a_standby_that_would_refuse,
        ("1002", "not able to stand by: brokers have auto.leader.rebalance.enable true, and it is false here"),
        "status",
        ("Controller 1002", "brokers have auto.leader.rebalance.enable true, and it is false here"),
    ),
)


def of_command(command: str, folder: Path) -> str:
    """Its output, exit codes of ``check`` aside."""
    done = CliRunner().invoke(root, [*command.split(), "--data", str(folder)])
    assert done.exit_code in (0, 1, 3, 4), done.output
    return done.output


def stop_watching(_: float) -> None:
    raise click.Abort


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda each: each.happens.__name__)
async def test_the_page_and_one_command_name_cause_and_object(
    incident: Incident,
    cluster: Cluster,
    chromium: Any,
    zk_connect: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overview, "SILENT_S", 0.1)
    monkeypatch.setattr(on_terminal, "time", SimpleNamespace(sleep=stop_watching))
    service = await incident.happens(cluster)
    page = await shown(chromium, service)
    if incident.click:
        await page.get_by_role("button", name=incident.click).click()
    text = ""

    async def page_says() -> bool:
        nonlocal text
        text = await page.inner_text("body")
        return all(part in text for part in incident.page)

    try:
        await until(page_says)
    except AssertionError:
        raise AssertionError([part for part in incident.page if part not in text], text) from None
    output = await asyncio.to_thread(of_command, incident.command, described(service, zk_connect, tmp_path))
    for part in incident.terminal:
        assert part in output, (part, output)
