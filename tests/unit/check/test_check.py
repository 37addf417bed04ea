"""Two looks at a tree in a modelled ZooKeeper, and the comparison with an earlier report."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from aiocontroller.check.broker_settings import Reported
from aiocontroller.check.check import FORMAT, CheckReport, compare, examine, parse_report
from aiocontroller.check.findings import CheckFinding
from aiocontroller.check.rules import UNCLEAN
from aiocontroller.controller.obeyed_settings import ReportedSettings
from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.writes import Create

STATE = b'{"controller_epoch":3,"leader":%d,"version":1,"leader_epoch":2,"isr":[1]}'


@pytest.fixture
async def model(world: World) -> AsyncIterator[tuple[ZooKeeperModel, KafkaZkClient]]:
    model = ZooKeeperModel()
    server = await ZooKeeperServer(world, model).start()
    client = ZooKeeperClient(f"127.0.0.1:{server.port}", world=world, session_timeout_s=10)
    await client.start(5)
    zk = KafkaZkClient(client)
    await zk.create_top_level_paths()
    await client.multi([Create("/controller", b'{"version":1,"brokerid":1,"timestamp":"1"}', ephemeral=True)])
    for path, data in {
        "/controller_epoch": b"3",
        "/cluster": b"",
        "/cluster/id": b'{"version":"1","id":"of-this-one"}',
        "/brokers/ids/1": b'{"version":5,"endpoints":["PLAINTEXT://h:1"],"listener_security_protocol_map":'
        b'{"PLAINTEXT":"PLAINTEXT"},"host":"h","port":1,"jmx_port":-1,"timestamp":"1","features":{}}',
        "/brokers/topics/a": b'{"version":1,"partitions":{"0":[1]}}',
        "/brokers/topics/a/partitions": b"",
        "/brokers/topics/a/partitions/0": b"",
        "/brokers/topics/a/partitions/0/state": STATE % -1,
    }.items():
        await client.create(path, data)
    yield model, zk
    await client.close()
    server.stop()


def tree_of(model: ZooKeeperModel) -> dict[str, tuple[bytes | None, int]]:
    return {path: (node.data, node.mzxid) for path, node in model.tree.nodes.items()}


async def test_it_finds_and_writes_nothing(model: tuple[ZooKeeperModel, KafkaZkClient], world: World) -> None:
    server, zk = model
    before, read = tree_of(server), list[tuple[str, int, int]]()
    report, tree = await examine(zk, world.clock, between_s=0, progress=lambda *args: read.append(args))
    assert tree_of(server) == before
    assert [(f.kind, f.subjects) for f in report.findings] == [("not-elected", ("a-0",)), ("single-replica", ("a-0",))]
    ((path, zxid, value),) = report.findings[0].evidence
    assert path == "/brokers/topics/a/partitions/0/state"
    assert zxid == before[path][1]
    assert value == (STATE % -1).decode()
    assert (report.controller, report.controller_epoch, report.brokers) == (1, 3, (1,))
    assert report.cluster_id == tree.cluster_id == "of-this-one"
    assert read == [("partitions", 1, 1)] * 2


async def test_brokers_differ_whatever_their_files_say_of_topics_without_own_settings(
    model: tuple[ZooKeeperModel, KafkaZkClient], world: World
) -> None:
    """Their files are taken for a default where topics are judged, and for each broker's own where brokers are."""

    async def ask(_: object) -> Reported:
        files = {1: "true", 2: "true", 3: "false"}
        return Reported({broker: ReportedSettings({UNCLEAN: value}) for broker, value in files.items()}, {})

    report, _ = await examine(model[1], world.clock, between_s=0, ask=ask)
    found = {f.kind: (f.subjects, f.why) for f in report.findings}
    assert found["settings-differ"] == ((UNCLEAN,), "true on broker 1, 2; false on broker 3")
    assert "unclean-elections" in found


async def test_what_mends_itself_is_no_finding(model: tuple[ZooKeeperModel, KafkaZkClient], world: World) -> None:
    _, zk = model

    class Clock:
        def wall_time_us(self) -> int:
            return 0

        async def sleep(self, seconds: float) -> None:
            await zk.client.set("/brokers/topics/a/partitions/0/state", STATE % 1, -1)

    report, _ = await examine(zk, Clock())  # type: ignore[arg-type]
    assert [f.kind for f in report.findings] == ["single-replica"]


def report(*findings: CheckFinding) -> CheckReport:
    return CheckReport(FORMAT, "2026-01-01T00:00:00+00:00", 1, 3, (1,), 1, 1, findings)


def finding(kind: str, *subjects: str) -> CheckFinding:
    return CheckFinding(kind, "critical", "title", "why", "consequence", "remedy", subjects)


def test_what_is_new_what_is_gone_and_what_has_grown() -> None:
    earlier = report(finding("offline", "a-0"), finding("debts", "x"), finding("recovering", "b"))
    difference = compare(
        earlier, report(finding("offline", "a-0", "a-1"), finding("recovering", "b"), finding("never-led", "c"))
    )
    assert [f.kind for f in difference.new] == ["never-led"]
    assert [f.kind for f in difference.gone] == ["debts"]
    assert [(f.kind, before) for f, before in difference.changed] == [("offline", 1)]


def test_reports_of_two_clusters_are_not_compared() -> None:
    nameless, ours = report(), msgspec.structs.replace(report(), cluster_id="ours")
    theirs = msgspec.structs.replace(report(), cluster_id="theirs")
    with pytest.raises(BadInputError, match=r"of cluster theirs, of 2026-.*, expected one of cluster ours"):
        compare(theirs, ours)
    for earlier, now in ((nameless, ours), (ours, nameless), (ours, ours)):
        assert not compare(earlier, now).new


def test_an_evidence_file_is_read_back_and_others_are_refused() -> None:
    one = report(finding("offline", "a-0"))
    without = msgspec.json.decode(msgspec.json.encode(one))
    del without["cluster_id"]  # as an earlier release wrote it
    assert parse_report(msgspec.json.encode(without), "x") == one
    assert parse_report(msgspec.json.encode(one), "x") == one
    for data in (
        b"",
        b"{}",
        b"[1]",
        b'{"cluster_id": "\xdd"}',
        msgspec.json.encode(msgspec.structs.replace(one, format=9)),
    ):
        with pytest.raises(BadInputError, match="last-week"):
            parse_report(data, "last-week")
