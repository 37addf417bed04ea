"""A real broker that should not lead: it follows, leads while no other replica can, and then hands over again."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocontroller.lab.kafka.played_cluster import cluster_on
from aiocontroller.lab.kafka.view import led_by, whole
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, released, take_over, under_load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

AVOIDED = 2


async def test_a_broker_leads_only_what_no_other_can(kafka: KafkaCluster, tmp_path: Path) -> None:
    """Brokers of this cluster have ``auto.leader.rebalance.enable=false``."""
    avoid = {"aiocontroller.leader.avoid.brokers": str(AVOIDED)}
    others = [broker for number, broker in kafka.brokers.brokers.items() if number != AVOIDED]
    async with cluster_on(
        kafka.zookeeper.address, kafka.brokers.brokers, tmp_path, session_ms=6000, properties=avoid
    ) as stage:
        await stage.heal()
        try:
            await under_load(stage, kafka)
            assert led_by(await stage.view(), AVOIDED)
            await take_over(stage)
            await stage.until(lambda view: whole(view) and not led_by(view, AVOIDED), "others lead")
            for other in others:
                other.kill()
            await stage.until(lambda view: led_by(view, AVOIDED) == view.keys(), "it leads what no other can")
            for other in others:
                await stage.start(other)
            await stage.until(lambda view: whole(view) and not led_by(view, AVOIDED), "others lead again")
            await stage.load.settled()
            assert await check_nothing_lost(stage)
        finally:
            await released(stage)  # first: only a broker's controller lets the preferred replicas lead
            await stage.heal()
