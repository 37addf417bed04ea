"""The sections of the overview, of an active controller and of a standby."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from aiocontroller.controller.overview import sections
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from tests.unit.controller.virtual_cluster import begin, stage

NO_PACE = {"ended": 0, "since_us": None, "expected_us": None}


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
        assert found["reassignments"] == {"count": 0, "partitions": [], "pace": NO_PACE}
        assert found["deletions"] == {"count": 0, "topics": [], "pace": NO_PACE}
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


@virtual_time
async def test_moves_say_how_many_have_ended_and_who_holds_the_rest_up() -> None:
    async with stage() as it:
        service = await begin(it, 3)
        old = {str(n): [1] for n in range(6)}
        await it.create("/brokers/topics/t", json.dumps({"version": 1, "partitions": old}).encode())
        await it.sleep(3)
        await it.kill_broker(3)
        await it.sleep(15)
        moves = [{"topic": "t", "partition": n, "replicas": [3 if n > 3 else 2]} for n in range(6)]
        await it.create("/admin/reassign_partitions", json.dumps({"version": 1, "partitions": moves}).encode())
        await it.until(lambda: len(service.shell.context.partitions_being_reassigned) > 3)
        began = seen(service)["reassignments"]
        assert began["pace"]["ended"] == 0
        assert began["pace"]["expected_us"] is None
        await it.sleep(30)
        found = seen(service)["reassignments"]
        left = [(each["partition"], each["waits_for"]) for each in found["partitions"]]
        assert [each for each in left if each[1]] == [(4, [3]), (5, [3])]


@virtual_time
async def test_no_setting_of_the_wall_clock_makes_a_broker_silent_or_hides_that_it_is() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        await it.sleep(3)
        it.brokers[2].deafen()
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2]}}')
        await it.sleep(2)
        it.hosts[service].wall_jump_s = 3600
        assert seen(service)["brokers"][1]["state"] == "live", "it has owed an answer for two seconds"
        it.hosts[service].wall_jump_s = -3600
        await it.sleep(10)
        assert seen(service)["brokers"][1]["state"] == "not answering"
