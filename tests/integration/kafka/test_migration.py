"""Kafka's migration to KRaft (KIP-866) of three brokers from aiocontroller, under load: rolled back, and completed.

The commands are those of docs/leaving.md, as an operator runs them.  No acknowledged record is lost, and no broker
stops or starts uncleanly while this controller is active.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from confluent_kafka import Producer

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.migrating import CONTROLLER_ID, MigratingCluster, Mode
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, archive_classes, kafka_missing
from aiocontroller.lab.kafka.controllers import OUR_ID, OurController, until
from aiocontroller.lab.kafka.played_cluster import cluster_on
from aiocontroller.lab.kafka.view import look, whole
from aiocontroller.wire.scram import ScramCredential
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.cluster_tree import ClusterTree, read_cluster_tree
from aiocontroller.zookeeper.cluster_znodes import encode_config
from tests.integration.kafka.conftest import SETTINGS
from tests.integration.kafka.producing import Load, create_topic

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.kafka, pytest.mark.slow_kafka, pytest.mark.timeout(900)]

KRAFT_EPOCH = 50
"""The quorum's first epoch, far above ``/controller_epoch``, as after many elections."""
PARTITIONS = 6
CODES = {"critical": 4, "warning": 3, "notice": 0}
UNCLEAN = ("Proceeding to do an unclean shutdown", "since no clean shutdown file was found")
"""What a broker logs if it could not move its leaders when it stopped, and if it has to recover its logs."""


class Play(NamedTuple):
    cluster: MigratingCluster
    ours: OurController
    zookeeper: str
    topic: str = "written"

    async def run(self, *words: str, code: int = 0) -> str:
        """Run ``aiocontroller migration WORDS``, which must end with this code; return what it prints."""
        argv = (sys.executable, "-m", "aiocontroller", "migration", *words)
        process = await asyncio.create_subprocess_exec(
            *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await process.communicate()
        assert process.returncode == code, f"{' '.join(words)}: {process.returncode}\n{out.decode()}"
        return out.decode()

    async def check(self, *words: str, finds: set[str]) -> dict[str, Any]:
        """Wait until ``check`` finds exactly these kinds worse than a notice; return its report."""
        where = ("--zookeeper", self.zookeeper, "--bootstrap-server", self.cluster.bootstrap)

        async def found() -> dict[str, Any] | None:
            report = await self._report("check", *words, *where)
            kinds = {each["kind"] for each in report["findings"] if each["severity"] != "notice"}
            log.info("check %s: %s: %s", words, report["phase"], sorted(kinds))
            for each in report["findings"]:
                log.debug("%s: %s: %s", each["kind"], each["subjects"], each["why"])
            return report if kinds == finds else None

        report: dict[str, Any] = await until(found, f"check {words} finds {finds}")
        return report

    async def _report(self, *words: str) -> dict[str, Any]:
        argv = (sys.executable, "-m", "aiocontroller", "migration", *words, "--json")
        process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        report: dict[str, Any] = msgspec.json.decode(out)
        worst = max((CODES[each["severity"]] for each in report["findings"]), default=0)
        assert process.returncode == worst, report
        return report

    async def tree(self) -> ClusterTree:
        return await read_cluster_tree(self.ours.zk)

    async def held_by_kraft(self) -> bool:
        holder = (await self.tree()).holder
        return holder is not None and holder.controller_id == CONTROLLER_ID

    async def restart(self, number: int, mode: Mode) -> None:
        """Restart a broker as an operator does, and wait until all replicas are in sync again."""
        await self.cluster.restart(number, mode)
        await self.in_sync()
        log.info("broker %d runs in %s mode", number, mode)

    async def in_sync(self) -> None:
        async def all_brokers_say_so() -> bool:
            tree = await self.tree()  # of all topics: a broker that leads with an ISR of itself stops uncleanly
            addresses = [broker.address for broker in self.cluster.brokers.values()]
            views = [await asyncio.to_thread(look, address, sorted(tree.topics)) for address in addresses]
            return all(len(view) == len(tree.partitions) and whole(view) for view in views)

        await until(all_brokers_say_so, "every replica is in sync")

    def logged(self) -> dict[int, int]:
        """Return the bytes that each broker has logged so far."""
        return {number: broker.log.stat().st_size for number, broker in self.cluster.brokers.items()}

    def unclean_since(self, logged: dict[int, int]) -> list[str]:
        """Return the lines of ``UNCLEAN`` that brokers have logged since then."""
        return [
            f"broker {number}: {line}"
            for number, broker in self.cluster.brokers.items()
            for line in broker.log.read_bytes()[logged[number] :].decode(errors="replace").splitlines()
            if any(each in line for each in UNCLEAN)
        ]


@pytest.fixture
async def play(kafka_version: str, tmp_path: Path) -> AsyncIterator[Play]:
    """Start three brokers, with this controller active."""
    if kafka_version != DEFAULT_VERSION:
        pytest.skip("3.9 is the release to migrate from")
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    archive_classes()
    async with AsyncExitStack() as stack:
        zookeeper = EmbeddedZooKeeper(tmp_path / "zookeeper")
        await zookeeper.start_async()
        stack.callback(zookeeper.kill)
        settings = SETTINGS | {"inter.broker.protocol.version": "3.9", "default.replication.factor": "3"}
        cluster = MigratingCluster(3, zookeeper.address, tmp_path, overrides=settings)
        stack.callback(cluster.kill)
        await cluster.start_async()
        stage = await stack.enter_async_context(
            cluster_on(zookeeper.address, cluster.brokers, tmp_path, session_ms=6000)
        )
        ours = stage.controllers["aiocontroller"]
        assert isinstance(ours, OurController)
        await ours.take()
        yield Play(cluster, ours, zookeeper.address)
        assert ours.running
        assert "Traceback" not in (ours.folder / "log").read_text()


async def migrate(play: Play) -> None:
    """Migrate from the first check to the claim, until which this controller is active."""
    cluster, started = play.cluster, play.logged()
    await play.check(finds=set())
    cluster_id = await play.ours.zk.get_cluster_id()
    assert isinstance(cluster_id, str)
    await cluster.provision(cluster_id, epoch=KRAFT_EPOCH)
    known = ("--bootstrap-controller", cluster.controller.address)  # no broker names it yet
    waiting = await play.check(*known, finds={"one-controller", "not-in-migration-mode"})
    assert waiting["phase"] == "provisioned, waiting for the brokers"
    # As a broker may create it that takes this controller for a broker.
    await AdminZkClient(play.ours.zk).create_topic("named", {0: (1, OUR_ID)})
    output = await play.run("hand-over", "--data", str(play.ours.folder))
    assert output.startswith(f"Controller {OUR_ID} keeps the role")
    assert all(OUR_ID not in each.assignment.replicas for each in (await play.tree()).partitions)

    await play.restart(1, Mode.MIGRATION)
    assert await asyncio.to_thread(produced_through, cluster.brokers[1].address, "asked-for")
    await play.restart(2, Mode.MIGRATION)
    assert await play.ours.holder() == OUR_ID
    assert play.unclean_since(started) == []
    await play.restart(3, Mode.MIGRATION)
    await until(play.held_by_kraft, "the KRaft controller has claimed the cluster")
    await play.run("watch", "--until", "dual-write", "--zookeeper", play.zookeeper)


def produced_through(address: str, topic: str) -> bool:
    """Whether a client of this broker gets a record to a topic that is created on demand acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 60_000})
    producer.produce(topic, b"1", on_delivery=lambda error, _: failed.append(error) if error else None)
    return producer.flush(70) == 0 and not failed


async def written_to(load: Load) -> None:
    """Wait until every partition has acknowledged a record from now on."""
    moment = time.monotonic()

    async def all_of_them() -> bool:
        return len(load.acknowledged_since(moment)) == PARTITIONS

    await until(all_of_them, "every partition is written to")


async def test_claimed_by_kraft_and_rolled_back(play: Play) -> None:
    cluster, data = play.cluster, ("--data", str(play.ours.folder))
    await asyncio.to_thread(create_topic, cluster.bootstrap, play.topic, PARTITIONS, 3)
    with Load(cluster.bootstrap, play.topic, PARTITIONS, per_second=50) as load:
        await migrate(play)
        claimed_s = load.longest_gap_s
        dual = await play.check(finds={"one-controller"})
        assert dual["phase"] == "dual write"
        assert dual["brokers"][0]["mode"] == "migration"

        await play.restart(1, Mode.KRAFT)  # states change, and get the quorum's epoch
        moving = await play.check("--before", "rollback", finds={"quorum-still-runs", "kraft-broker-in-the-way"})
        assert moving["phase"] == "dual write, brokers are moving to KRaft mode"
        await play.restart(1, Mode.MIGRATION)
        assert "the KRaft controller still writes" in await play.run("rollback", *data, code=1)
        await cluster.controller.stop_async()
        ready = await play.check("--before", "rollback", finds=set())
        assert ready["highest_state_epoch"] > KRAFT_EPOCH > ready["controller_epoch"]
        assert "epochs-above" in {each["kind"] for each in ready["findings"]}
        await play.run("rollback", *data, "--dry-run")
        assert await play.held_by_kraft(), "this controller has stayed out of office"

        logged = play.logged()
        output = await play.run("rollback", *data)
        assert f"Controller {OUR_ID} has taken the role, epoch {ready['highest_state_epoch'] + 1}." in output
        await written_to(load)
        assert await asyncio.to_thread(produced_through, cluster.brokers[1].address, "asked-for-later")
        for number in cluster.brokers:
            await play.restart(number, Mode.ZOOKEEPER)
        assert play.unclean_since(logged) == []
        after = await play.check(finds=set())
        assert (after["phase"], after["controller"], after["migration"]) == ("not begun", OUR_ID, None)
        await written_to(load)
        log.info("longest gap until the claim %.2f s, in all %.2f s", claimed_s, load.longest_gap_s)
    assert await asyncio.to_thread(load.check_nothing_lost)
    assert await play.ours.epoch() == after["controller_epoch"], "one term since the rollback"
    assert all(
        each.state is not None and sorted(each.state.isr) == sorted(each.assignment.replicas)
        for each in (await play.tree()).partitions
    )


ALICE = "/config/users/alice"
BOB = "/config/users/bob"
ACLS = "/kafka-acl/Topic/orders"
BEHIND_KRAFTS_BACK = {
    BOB: encode_config({"request_percentage": "50"}),
    ACLS: b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Allow","operation":"Read","host":"*"}]}',
}


async def test_claimed_by_kraft_and_finalized(play: Play) -> None:
    cluster = play.cluster
    await asyncio.to_thread(create_topic, cluster.bootstrap, play.topic, PARTITIONS, 3)
    client, credential = play.ours.zk.client, ScramCredential(b"salt", b"stored", b"server", 8192)
    await client.create(ALICE, encode_config({"request_percentage": "12.5", "SCRAM-SHA-512": str(credential)}))
    with Load(cluster.bootstrap, play.topic, PARTITIONS, per_second=50) as load:
        await migrate(play)
        await play.check(finds={"one-controller"})
        await play.restart(1, Mode.KRAFT)
        moving = {"one-controller", "still-in-zookeeper-mode"}
        await play.check(finds=moving)  # the broker in KRaft mode reports alice's quota and credential
        for path, data in BEHIND_KRAFTS_BACK.items():
            await client.ensure_path(path.rpartition("/")[0])
            await client.create(path, data)
        differs = await play.check(finds={*moving, "not-carried-over", "no-authorizer"})
        named = {each["kind"]: each["subjects"] for each in differs["findings"]}
        assert named["not-carried-over"] == ["quota: user bob: request_percentage 50"]
        assert named["no-authorizer"] == ["broker 1", "controller 3000"]
        for path in BEHIND_KRAFTS_BACK:
            await client.delete(path)
        await play.check(finds=moving)
        for number in (2, 3):
            await play.restart(number, Mode.KRAFT)
        ready = await play.check(finds={"one-controller"})
        assert ready["phase"] == "dual write, all brokers in KRaft mode"
        assert [(each["registered"], each["mode"]) for each in ready["brokers"]] == [(False, "kraft")] * 3
        await cluster.finalize()
        done = await play.check(finds={"one-controller"})
        assert (done["phase"], done["way_back"]) == ("finalized", [])
        await written_to(load)
        await play.in_sync()
        log.info("longest gap %.2f s", load.longest_gap_s)
    assert await asyncio.to_thread(load.check_nothing_lost)
    refused = await play.run("rollback", "--data", str(play.ours.folder), code=1)
    assert "broker" in refused
    assert await play.held_by_kraft()
