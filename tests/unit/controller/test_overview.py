"""The sections of the overview, of an active controller and of a standby."""

from __future__ import annotations

from typing import Any

import msgspec

from aiocontroller.controller.overview import sections
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from tests.unit.controller.virtual_cluster import begin, stage


def seen(service: Service) -> dict[str, Any]:
    """All sections as a client reads them."""
    made = {name: make() for name, make in sections(service.controller).items()}
    found = msgspec.json.decode(msgspec.json.encode(made, enc_hook=repr))
    assert isinstance(found, dict)
    return found


@virtual_time
async def test_a_broken_cluster() -> None:
    async with stage() as it:
        service = await begin(it, 3)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2,3],"1":[3]}}')
        await it.sleep(3)
        await it.kill_broker(3)
        await it.sleep(15)
        found = seen(service)
        assert found["controller"]["active"]
        assert (found["controller"]["epoch"], found["controller"]["holder"]) == (1, service.shell.id)
        counts = found["counts"]
        assert (counts["topics"], counts["partitions"], counts["brokers"]) == (1, 2, 2)
        assert (counts["offline"], counts["under-replicated"], counts["under-min-isr"]) == (1, 1, 0)
        assert [p["partition"] for p in found["broken"]["offline"]] == [1]
        assert found["broken"]["offline_by_topic"] == [["t", 1]]
        one, two, three = found["brokers"]
        assert (one["state"], one["leaders"], one["replicas"], one["queued"]) == ("live", 1, 1, 0)
        assert one["answered_us"] > found["controller"]["since_us"]
        assert two["state"] == "live"
        assert (three["state"], three["replicas"], three["queued"]) == ("gone", 2, None)
        assert three["since_us"] == found["broken"]["offline"][0]["since_us"]
        assert found["reassignments"] == {"count": 0, "partitions": []}
        assert found["deletions"] == {"count": 0, "topics": []}
        assert found["incidents"][0]["ended_us"] is None
        assert found["failovers"][0]["epoch"] == 1
        assert found["events"][0]["text"].startswith("broker 3 died: 1 partition lost its leader, ")


@virtual_time
async def test_a_standby() -> None:
    async with stage() as it:
        await begin(it, 1)
        standby = await it.add_controller(aiocontroller_id=1002)
        await it.sleep(5)
        found = seen(standby)
        assert not found["controller"]["active"]
        assert (found["controller"]["state"], found["controller"]["standby"]["state"]) == ("standing by", "warm")
        assert found["controller"]["holder"] != 1002
        assert (found["counts"]["offline"], found["brokers"], found["incidents"]) == (0, [], [])
