"""What ``aiocontroller migration`` prints, and which replicas it moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from aiocontroller.cli import migration
from aiocontroller.cli.migration import as_text, as_transaction
from aiocontroller.cli.root import root
from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.migration.report import summary
from aiocontroller.migration.rules import Step
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.unit.controller.virtual_cluster import Stage, stage
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


@pytest.mark.parametrize("step", list(Step))
def test_each_step_can_be_named(step: Step) -> None:
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
