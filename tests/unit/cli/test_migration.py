"""What ``aiocontroller migration`` prints, and which replicas it moves."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from aiocontroller.cli import migration
from aiocontroller.cli.migration import as_checked, as_text, as_transaction
from aiocontroller.cli.root import root
from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.migration.asking import Asker
from aiocontroller.migration.report import Bootstrap, examine, summary
from aiocontroller.migration.rules import MigrationStep
from aiocontroller.net.real import real_world
from aiocontroller.server.commands import Commands
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode, encode_migration
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.unit.controller.virtual_cluster import Stage, stage
from tests.unit.migration.test_report import migrate
from tests.unit.migration.views import NOT_BEGUN, in_kraft_mode, view


def test_where_it_stands() -> None:
    text = as_text(summary(in_kraft_mode(2)(view()), real_world().clock)).splitlines()
    assert text[:11] == [
        "Phase: dual write, brokers are moving to KRaft mode.",
        "Controller: 3000 of KRaft, epoch 5; /controller_epoch 7, highest in a state 7.",
        "/migration: KRaft controller 3000, epoch 5; ZooKeeper has the metadata log up to 999.",
        "Quorum: leader 3000, epoch 5, metadata log up to 999; 3 voters; ZooKeeper is 0 records behind; "
        "metadata.version 21 (3.9-IV0).",
        "1 topic, 1 partition in ZooKeeper.",
        "",
        "broker  in ZooKeeper  mode       protocol  metadata log",
        "     1  yes           migration  3.9-IV0           1000",
        "     2  no            kraft      -                 1000",
        "",
        "Next:",
    ]
    assert "The way back:" in text
    assert any(line.startswith("  4. aiocontroller migration rollback") for line in text)


def test_a_cluster_that_nobody_migrates() -> None:
    report = summary(NOT_BEGUN(view()), real_world().clock)
    text = as_text(report)
    assert "Controller: 1; /controller_epoch 7, highest in a state 7." in text
    assert "Quorum: none that answers." in text
    assert "The way back:" not in text
    assert "Controller: none;" in as_text(msgspec.structs.replace(report, controller=None))


def test_a_transaction_is_shown_operation_by_operation() -> None:
    answer = {
        "epoch": 53,
        "because": "/x has 52",
        "epoch_before": ["/controller_epoch", 4, "5"],
        "deleted": [["/controller", 0, "{}"], ["/migration", 79, "{}"]],
        "created": ["/controller", "{}"],
    }
    assert as_transaction(answer).splitlines()[2:] == [
        "operation  znode              expected    content",
        "set        /controller_epoch  version 4   5 -> 53: /x has 52",
        "delete     /controller        version 0   {}",
        "delete     /migration         version 79  {}",
        "create     /controller        ephemeral   {}",
    ]


@virtual_time
async def test_replicas_that_name_an_aiocontroller_go_to_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        for broker in (1, 2, 3):
            await it.add_broker(broker)
        await it.create("/aiocontroller_ids", b'{"version":1,"ids":[3,1000001]}')  # 3 is a broker's now
        await it.create("/brokers/topics/a", b'{"version":1,"partitions":{"0":[1000001,1],"1":[3,2]}}')
        await it.create("/brokers/topics/gone", b'{"version":1,"partitions":{"0":[1000001]}}')
        await it.create("/admin/delete_topics/gone", b"")
        monkeypatch.setattr(migration, "connected", lambda _: opened(it))
        moved = await migration._replicas_to_move("zk")
        assert set(moved) == {TopicPartition("a", 0)}
        first, second = moved[TopicPartition("a", 0)]
        assert first in (2, 3)
        assert second == 1


@asynccontextmanager
async def opened(it: Stage) -> AsyncIterator[KafkaZkClient]:
    yield it.zk


@pytest.mark.parametrize("step", list(MigrationStep))
def test_each_step_can_be_named(step: MigrationStep) -> None:
    assert step.value in migration.STEPS
    assert step.value in CliRunner().invoke(root, ["migration", "check", "--help"]).output


def test_wrong_addresses_are_refused_before_any_work() -> None:
    words = ["migration", "status", "--zookeeper", "nowhere:1", "--bootstrap-server", "broker"]
    result = CliRunner().invoke(root, words)
    assert "--bootstrap-server: found 'broker', expected HOST:PORT" in str(result.exception)


def test_commands_to_a_controller_need_one(tmp_path: Path) -> None:
    for words in (["hand-over"], ["rollback", "--dry-run"]):
        result: Any = CliRunner().invoke(root, ["migration", *words, "--data", str(tmp_path)])
        assert "no controller runs in" in str(result.exception)


# -- docs/leaving.md ---------------------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[3] / "docs" / "leaving.md"
BLOCK = r"(<!-- made: {} -->\n\n)((?:    [^\n]*\n|\n(?=    ))+)"
"""Printed by a modelled cluster here.  Numbers of ZooKeeper's transactions, times and addresses differ."""


def on_the_page(name: str, command: str, made: str) -> None:
    """Compare what a command has printed with its block of the page; write it there with REWRITE=1."""
    made = re.sub(r"PLAINTEXT://[^\"]+", "PLAINTEXT://10.0.0.5:9090", made)
    lines = f"$ aiocontroller {command}\n{made}".splitlines()
    block = "".join(f"    {line}\n" if line else "\n" for line in lines)
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(BLOCK.format(name), page)
    assert found is not None, name
    if os.environ.get("REWRITE"):
        PAGE.write_text(page[: found.start(2)] + block + page[found.end(2) :], encoding="utf-8")
    else:
        assert _plain(found[2]) == _plain(block)


def _plain(text: str) -> str:
    for changing in (r"zxid 0x[0-9a-f]+", r'"timestamp":"\d+"', r" +"):
        text = re.sub(changing, " ", text)
    return text


def test_the_page_shows_where_a_migration_stands() -> None:
    text = as_text(summary(in_kraft_mode(2)(view()), real_world().clock))
    on_the_page("status", "migration status --zookeeper zk1:2181", text)


@virtual_time
async def test_the_page_shows_what_blocks_a_claim() -> None:
    async with stage() as it:
        await it.create("/controller", b'{"version":1,"brokerid":1,"timestamp":"0"}')
        await it.create("/controller_epoch", b"7")
        await it.create("/aiocontroller_ids", b'{"version":1,"ids":[1000001]}')
        await it.create("/migration", encode_migration(MigrationZNode(-1, -1, -1, -1)))
        migrate(await it.add_broker(1))
        await it.add_broker(2)
        await it.create("/brokers/topics/orders", b'{"version":1,"partitions":{"0":[1,1000001]}}')
        await it.create("/brokers/topics/orders/partitions", b"")
        await it.create("/brokers/topics/orders/partitions/0", b"")
        state = b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
        await it.create("/brokers/topics/orders/partitions/0/state", state)
        report = await examine(it.zk, Asker(it.world), it.world.clock, Bootstrap())
        on_the_page("waiting", "migration check --zookeeper zk1:2181", as_checked(report))


@virtual_time
async def test_the_page_shows_what_a_rollback_writes() -> None:
    async with stage() as it:
        await it.add_broker(1)
        await it.create("/controller_epoch", b"5")
        await it.create("/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":52}')
        await it.create("/migration", encode_migration(MigrationZNode(3000, 52, 1114, 52)))
        await it.create("/brokers/topics/orders", b'{"version":1,"partitions":{"0":[1]}}')
        await it.create("/brokers/topics/orders/partitions", b"")
        await it.create("/brokers/topics/orders/partitions/0", b"")
        state = b'{"controller_epoch":52,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
        await it.create("/brokers/topics/orders/partitions/0/state", state)
        service = await it.add_controller()
        answer = await Commands(service.shell, service.controller, lambda: None).roll_back(b'{"dry_run":true}')
        text = f"{as_transaction(msgspec.to_builtins(answer))}\n\nNothing was written."
        on_the_page("dry-run", "migration rollback --data DATA --dry-run", text)
