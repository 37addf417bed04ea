"""A pair of controllers is upgraded, and downgraded, while clients write and a broker dies in between.

``scripts/bench upgrade`` measures what is only checked here.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import pytest

from aiocontroller.cli.run import READY_FILE, ControllerReady
from aiocontroller.lab.kafka.controllers import ControllerPair, OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.lab.kafka.programs import PREVIOUS, THIS, Program, ProgramMissingError, of_revision
from aiocontroller.lab.kafka.upgrade import Operator, Round, exchange, measured
from aiocontroller.lab.kafka.view import led_by, moved_off, whole
from aiocontroller.zookeeper.from_aiozk import exc
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, under_load
from tests.integration.kafka.releases import number

pytestmark = [pytest.mark.kafka, pytest.mark.slow_kafka, pytest.mark.timeout(900)]


VICTIM = 2
OWED = "owed-by-a-dead-broker"
UNFIT = "Controller moved to another broker when moving some"


async def unfinished(pair: ControllerPair, version: str) -> bool:
    """Whether the topic's deletion has left something to do, by ZooKeeper.

    A debt of the victim; without topic ids, which came in 2.8, the deletion waits for it (docs/debts.md).
    """
    where = f"/aiocontroller_debts/{VICTIM}" if number(version) >= (2, 8) else "/admin/delete_topics"
    try:
        return OWED in await pair.zk.client.get_children(where)
    except exc.NoNode:
        return False


def previous(folder: Path) -> Program:
    try:
        return of_revision(PREVIOUS, folder)
    except ProgramMissingError as missing:  # a shallow clone
        pytest.skip(str(missing))


def has_a_page(instance: OurController) -> bool:
    """Whether an instance has the live page; the earlier version has a list of addresses in its place."""
    ready = msgspec.json.decode((instance.folder / READY_FILE).read_bytes(), type=ControllerReady)
    try:
        with urllib.request.urlopen(f"{ready.http}/live.js", timeout=10) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as refused:
        refused.close()
        return False


async def test_a_pair_is_upgraded_and_downgraded_under_load(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path
) -> None:
    if number(kafka.version) < (2, 4):
        pytest.skip("the operator's client cannot move replicas on brokers of this release")
    earlier = previous(tmp_path / "earlier")
    pair = stage.controllers["pair"]
    assert isinstance(pair, ControllerPair)
    for instance in pair.instances.values():
        instance.program = earlier
    await under_load(stage, kafka)
    (topic,) = stage.topics
    await pair.take()
    await stage.create_topic(OWED, {0: (VICTIM, 3)})
    operator = Operator(stage, stage.brokers.keys() - {VICTIM})
    working = asyncio.create_task(operator.run())
    try:

        async def a_broker_dies() -> None:
            """Kill a broker under a controller that has followed one of the other version, without a standby; this
            broker owes the deletion of a replica, which the next controllers, of the other version, must know."""
            assert led_by(await stage.view(), VICTIM)
            stage.brokers[VICTIM].kill()
            await stage.until(lambda view: moved_off(view, frozenset((VICTIM,))), "its leaders have moved")
            await stage.delete_topic(OWED)
            await until(lambda: unfinished(pair, kafka.version), "the victim has a replica to delete")

        async def it_returns() -> None:
            await stage.start(stage.brokers[VICTIM])
            await stage.until(whole, "every replica is in sync")

            async def finished() -> bool:
                return not await unfinished(pair, kafka.version)

            await until(finished, "the replica is deleted")
            assert not (stage.brokers[VICTIM].data_dir / "logs" / f"{OWED}-0").exists()

        def check(found: Round, page: bool) -> None:
            assert not found.errors
            assert found.answered, "the operator was answered"
            assert [has_a_page(each) for each in pair.instances.values()] == [page, page]

        check(await measured(stage, operator, "upgrade", lambda: exchange(pair, THIS, a_broker_dies)), True)
        check(await measured(stage, operator, "downgrade", lambda: exchange(pair, earlier, it_returns)), False)
        check(await measured(stage, operator, "upgrade again", lambda: exchange(pair, THIS)), True)
        await operator.end(working)
        assert not operator.errors
        await check_nothing_lost(stage)
        read = ["took the role, epoch" in explained(instance, f"{topic}-1") for instance in pair.instances.values()]
        # Before 2.7 brokers change ISRs themselves, so one of the two may have nothing to record of the partition.
        assert all(read) if number(kafka.version) >= (2, 7) else any(read), "each reads the other version's journal"
    finally:
        working.cancel()
        stage.controller = stage.controllers["kafka"]
        await pair.give()
        await restart_unfit(stage)


async def restart_unfit(stage: PlayedCluster) -> None:
    """Restart brokers that the earlier version, which does not wait, has deposed amid a change (KAFKA-12315)."""
    for broker in stage.brokers.values():
        if UNFIT in broker.log.read_text():
            broker.kill()
            await stage.start(broker)


def explained(instance: OurController, partition: str) -> str:
    command = [sys.executable, "-m", "aiocontroller", "explain", partition, "--data", str(instance.folder)]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout
