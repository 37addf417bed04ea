"""What a controller remembers of what has happened, from its start to the loss of its role."""

from __future__ import annotations

from aiocontroller.core.incidents import HEALED, LED
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.codec import Create, Delete
from tests.unit.controller.virtual_cluster import begin, is_active, stage


@virtual_time
async def test_a_broker_dies_and_comes_back() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        story = service.controller.story
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[2]}}')
        await it.sleep(3)
        assert not story.incidents.latest
        await it.kill_broker(2)
        await it.until(lambda: story.incidents.open)
        await it.add_broker(2)
        await it.until(lambda: story.incidents.open is None)
        [incident] = story.incidents.latest
        assert not incident.found_so
        assert incident.worst == {"offline": 1}
        assert [phase.text for phase in incident.phases] == [
            "broker 2 died: 1 partition lost its leader",
            "broker 2 started: 1 leader elected",
            HEALED,
        ]
        texts = [event.text.rpartition(", in ")[0] for event in story.chronicle.events]
        assert "this controller took the role, epoch 1: loaded 0 topics with 0 partitions" in texts
        assert "1 partition created" in texts
        [failover] = story.chronicle.failovers
        assert failover.steps[0].step == "set up feature versioning"


@virtual_time
async def test_what_a_takeover_finds_is_an_incident_that_began_before() -> None:
    async with stage() as it:
        first = await begin(it, 2)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2],"1":[2]}}')
        await it.sleep(3)
        await it.kill_broker(2)
        await it.sleep(10)
        second = await it.add_controller(aiocontroller_id=1002, aiocontroller_standby="cold")
        it.crash(first)
        await it.until(lambda: is_active(second) and second.controller.story.incidents.open)
        incident = second.controller.story.incidents.open
        assert incident is not None
        assert incident.found_so
        assert incident.worst == {"offline": 1, "under-replicated": 1}
        await it.add_broker(2)
        await it.until(lambda: LED in [phase.text for phase in incident.phases])


@virtual_time
async def test_an_incident_ends_with_the_role() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[2]}}')
        await it.sleep(3)
        await it.kill_broker(2)
        await it.until(lambda: service.controller.story.incidents.open)
        another = b'{"version":1,"brokerid":1,"timestamp":"0"}'
        await it.client.multi([Delete("/controller"), Create("/controller", another)])
        await it.until(lambda: service.controller.story.incidents.latest[0].ended_us)
        incident = service.controller.story.incidents.latest[0]
        assert incident.phases[-1].text == "this controller lost the role"
