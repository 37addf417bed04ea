"""A warm standby: its copy follows the cluster, is complete at each vacancy, and says when it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiocontroller.controller import mirror as mirror_module
from aiocontroller.controller.mirror import Mirror
from aiocontroller.controller.warm_failover import FRESH_S
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import Release
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.mirror import MirroredCluster
from aiocontroller.core.ownership import NotTheOwnerError
from aiocontroller.lab.checkers.mirrored import stale_parts
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.lab.zookeeper.zookeeper_model import RecursiveWatches, Watches
from aiocontroller.service import Service
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.session_events import SessionEvent
from tests.unit.controller.virtual_cluster import Stage, is_active, stage

FIRST, SECOND = 1_000_001, 1_000_002
STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":%d,"isr":[1]}'


async def create_topic(it: Stage, name: str, partitions: int = 3, *, states: bool = True) -> None:
    """As a broker's tools do, without a controller that elects leaders; one with it fills the states itself."""
    numbers = ",".join(f'"{number}":[1]' for number in range(partitions))
    await it.create(
        f"/brokers/topics/{name}", b'{"version":2,"partitions":{%s},"adding_replicas":{},"removing_replicas":{}}'
        % numbers.encode(),
    )  # fmt: skip


def copy_of(service: Service) -> Mirror:
    assert service.controller.election.mirror is not None
    return service.controller.election.mirror


def content(service: Service) -> MirroredCluster:
    cluster = copy_of(service)._cluster
    assert cluster is not None
    return cluster


def states(service: Service) -> dict[str, int]:
    """Partition -> leader epoch, as the copy has it; -1 without leadership."""
    table = content(service).context.table
    found = {str(table.topic_partition(row)): table.leadership(row) for row in table.rows()}
    return {name: -1 if state is None else state.leader_epoch for name, state in sorted(found.items())}


@asynccontextmanager
async def pair(kind: RecursiveWatches = "3.9") -> AsyncIterator[tuple[Stage, Service, Service]]:
    """A broker, a topic ``t``, an active controller and its warm standby."""
    async with stage() as it:
        it.zookeeper.model.watches = Watches(kind)
        await it.add_broker(1)
        await it.sleep(FRESH_S)
        active = await it.add_controller(aiocontroller_id=FIRST, aiocontroller_standby="warm")
        await it.until(lambda: is_active(active))
        await create_topic(it, "t")
        await it.sleep(1)
        standby = await it.add_controller(aiocontroller_id=SECOND, aiocontroller_standby="warm")
        yield it, active, standby


async def warm(it: Stage, service: Service) -> None:
    await it.until(lambda: copy_of(service).state == "warm" and not content(service).behind)


@virtual_time
async def test_copy_follows_topics_and_states() -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        assert states(standby) == {"t-0": 0, "t-1": 0, "t-2": 0}
        await it.client.set("/brokers/topics/t/partitions/1/state", STATE % 7, -1)
        await create_topic(it, "u", 1)
        await it.sleep(1)
        await warm(it, standby)
        assert states(standby) == {"t-0": 0, "t-1": 7, "t-2": 0, "u-0": 0}
        await it.client.delete_all_recursive(["/brokers/topics/t"])
        await it.sleep(1)
        await warm(it, standby)
        assert states(standby) == {"u-0": 0}
        assert stale_parts(content(standby), it.zookeeper.model.tree.nodes) == []
        status: dict[str, Any] = standby.controller.status()["standby"]
        assert (status["state"], status["partitions"], status["behind"], status["lag_ms"]) == ("warm", 1, 0, 0.0)
        assert status["memory_bytes"] > 0
        assert active.controller.status()["standby"]["state"] == "off"


@virtual_time
async def test_states_of_a_topic_created_again_are_read_again() -> None:
    async with pair() as (it, active, standby):
        it.crash(active)
        await warm(it, standby)
        ops = [Delete(f"/brokers/topics/t/partitions/{n}{end}") for n in range(3) for end in ("/state", "")]
        data = await it.client.get_data("/brokers/topics/t")
        await it.client.multi([*ops, Delete("/brokers/topics/t/partitions"), Delete("/brokers/topics/t")])
        await it.create("/brokers/topics/t", data)
        await it.sleep(0.5)
        assert states(standby) == {"t-0": -1, "t-1": -1, "t-2": -1}


@virtual_time
async def test_lost_connection_is_followed_by_a_read_of_everything() -> None:
    async with pair() as (it, _active, standby):
        await warm(it, standby)
        before = content(standby)
        it.network.cut_host(it.hosts[standby].name)
        await it.client.set("/brokers/topics/t/partitions/1/state", STATE % 9, -1)
        assert not before.is_whole or copy_of(standby).state == "warm"
        await it.until(lambda: copy_of(standby).state == "loading")
        assert not before.is_whole, "no election may rely on it now"
        assert standby.controller.status()["standby"]["lag_ms"] > 0, "it lags since the connection was lost"
        await warm(it, standby)
        assert content(standby) is before
        assert states(standby)["t-1"] == 9


@virtual_time
async def test_every_event_of_the_session_takes_effect_at_once() -> None:
    """The copy may be asked for in the same turn, before its task has run."""
    async with pair() as (it, _active, standby):
        await warm(it, standby)
        mirror, copy = copy_of(standby), content(standby)
        reloads = standby.metrics.get("aiocontroller", "Standby", "Reloads")
        assert reloads is not None
        before = reloads.value
        assert mirror.on_session(SessionEvent.SUSPENDED) is False
        assert (mirror.state, copy.is_whole, copy.behind) == ("loading", False, 4)
        await it.until(lambda: copy.is_whole and not copy.behind)
        assert mirror.on_session(SessionEvent.RECONNECTED) is False
        assert (copy.is_whole, copy.behind) == (False, 4), "a change may have come before the watch was there again"
        assert reloads.value == before + 1
        await it.until(lambda: copy.is_whole and not copy.behind)
        assert mirror.on_session(SessionEvent.EXPIRED) is False
        assert (mirror.state, mirror._cluster) == ("off", None)
        assert mirror.take() is None


@virtual_time
async def test_many_lost_connections_make_it_cold_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as (it, _active, standby):
        await warm(it, standby)
        for _ in range(mirror_module.LOSSES):
            it.network.cut_host(it.hosts[standby].name)
            await it.sleep(2)
        assert copy_of(standby).status()["state"] == "cold"
        assert "lost 5 times within 60 s" in copy_of(standby).status()["reason"]
        assert caplog.text.count("Cold standby") == 1
        assert not standby.client.session.registry.recursive, "nothing is heard for nothing"
        await it.sleep(mirror_module.LOSSES_WITHIN_S)
        await warm(it, standby)


@virtual_time
async def test_new_session_starts_afresh() -> None:
    async with pair() as (it, _active, standby):
        await warm(it, standby)
        before = content(standby)
        await expire_session(standby.client)
        await it.until(lambda: copy_of(standby)._cluster not in (before, None))
        await warm(it, standby)
        await it.client.set("/brokers/topics/t/partitions/1/state", STATE % 9, -1)
        await it.sleep(0.5)
        assert states(standby)["t-1"] == 9


@virtual_time
async def test_servers_without_recursive_watches_leave_it_cold(caplog: pytest.LogCaptureFixture) -> None:
    async with pair("no") as (it, active, standby):
        await it.sleep(1)
        status = copy_of(standby).status()
        assert status["state"] == "cold"
        assert "-6" in status["reason"]
        assert caplog.text.count("Cold standby") == 1
        lost = standby.client.statistics().suspensions
        await it.sleep(2 * mirror_module.LOSSES_WITHIN_S)
        assert standby.client.statistics().suspensions == lost, "each further question would cost the connection"
        it.crash(active)
        await it.until(lambda: is_active(standby))
        await it.until(lambda: len(standby.shell.context.table) == 3)


@virtual_time
async def test_reading_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = 3

    async def failing(*args: Any, **options: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures < 0:
            monkeypatch.undo()
            return await it.zk.get_all_topics_in_cluster(watch=False)
        raise exc.NoAuth

    async with stage() as it:
        await it.add_broker(1)
        active = await it.add_controller(aiocontroller_id=FIRST)
        standby = await it.add_controller(aiocontroller_id=SECOND, aiocontroller_standby="warm")
        monkeypatch.setattr(standby.zk, "get_all_topics_in_cluster", failing)
        assert is_active(active)
        copy_of(standby)._let_go("off")
        copy_of(standby).wake()
        await it.until(lambda: "NoAuth" in copy_of(standby).status()["reason"])
        await it.sleep(10)
        assert copy_of(standby).status()["reason"] == ""
        await create_topic(it, "t", 1)
        await it.until(lambda: copy_of(standby)._cluster is not None and states(standby) == {"t-0": 0})


@virtual_time
async def test_unreadable_znodes_are_left_to_the_successor() -> None:
    async with pair() as (it, active, standby):
        it.crash(active)
        await warm(it, standby)
        await it.create("/brokers/topics/bad", b"no JSON")
        await it.client.set("/brokers/topics/t/partitions/1/state", b"no JSON", -1)
        await it.sleep(0.5)
        names, rows = content(standby).leftovers()
        table = content(standby).context.table
        assert names == ["bad"]
        assert [str(table.topic_partition(row)) for row in rows] == ["t-1"]
        await it.until(lambda: is_active(standby))


@virtual_time
async def test_other_tasks_may_not_change_the_copy() -> None:
    async with pair() as (it, _active, standby):
        await warm(it, standby)
        context = content(standby).context
        with pytest.raises(NotTheOwnerError, match="changes the copy"):
            context.table.set_leadership(0, LeaderAndIsr(1, 1, (1,), 1, 1))
        mirror = copy_of(standby)
        assert mirror.take() is not None
        with pytest.raises(NotTheOwnerError, match="changes the context"):
            context.table.set_leadership(0, LeaderAndIsr(1, 1, (1,), 1, 1))


@virtual_time
async def test_unreliable_copy_is_not_handed_over() -> None:
    async with pair() as (it, _active, standby):
        await warm(it, standby)
        content(standby).mark_all()
        assert copy_of(standby).take() is None
        assert copy_of(standby).status()["state"] == "taken", "and its task has ended"


@virtual_time
async def test_changes_of_the_moment_are_among_the_leftovers() -> None:
    """The writer's answer and the standby's election come in the order of ZooKeeper's transactions."""
    async with pair() as (it, active, standby):
        await warm(it, standby)
        taken: list[tuple[list[str], list[int]]] = []
        take = copy_of(standby).take

        def observed() -> MirroredCluster | None:
            cluster = take()
            assert cluster is not None
            assert stale_parts(cluster, it.zookeeper.model.tree.nodes) == []
            taken.append(cluster.leftovers())
            return cluster

        copy_of(standby).take = observed  # type: ignore[method-assign]
        await it.client.multi(
            [SetData("/brokers/topics/t/partitions/1/state", STATE % 9, -1), Delete("/controller")]
        )  # the standby hears of both at once
        await it.until(lambda: taken)
        await it.until(lambda: is_active(standby) or is_active(active))


@virtual_time
async def test_copy_that_was_taken_while_its_watch_was_armed_is_left_alone() -> None:
    """It belongs to the successor by then."""
    async with pair() as (it, active, standby):
        it.crash(active)
        await warm(it, standby)
        mirror, cluster = copy_of(standby), content(standby)
        reloads = standby.metrics.get("aiocontroller", "Standby", "Reloads")
        assert reloads is not None
        before, listen, behind = reloads.value, mirror._watch.listen, []

        async def then_taken(listener: Any) -> None:
            await listen(listener)
            if not behind:
                cluster.take_topics(1000)
                mirror.take()
                behind.append(cluster.behind)

        mirror._watch.listen = then_taken  # type: ignore[method-assign]
        mirror.on_session(SessionEvent.SUSPENDED)
        mirror.wake()
        await it.until(lambda: behind)
        await it.sleep(0)
        assert cluster.behind == behind[0]
        await warm(it, standby)
        assert reloads.value == before + 1, "only the copy that was made anew counts"


@virtual_time
@pytest.mark.parametrize("read", ["get_topic_assignments", "each_topic_partition_states"])
async def test_what_was_being_read_when_the_copy_was_taken_is_left_to_the_successor(read: str) -> None:
    async with pair() as (it, active, standby):
        it.crash(active)  # or it would write states
        await warm(it, standby)
        mirror, reading, taken = copy_of(standby), getattr(standby.zk, read), []

        async def then_taken(*arguments: Any, **options: Any) -> Any:
            found = await reading(*arguments, **options)
            setattr(standby.zk, read, reading)
            taken.append(mirror.take())
            return found

        setattr(standby.zk, read, then_taken)
        await create_topic(it, "u", 1)
        await it.until(lambda: taken)
        names, rows = taken[0].leftovers()
        table = taken[0].context.table
        found = [str(table.topic_partition(row)) for row in rows]
        assert (names, found) == ((["u"], []) if read == "get_topic_assignments" else ([], ["u-0"]))
        await it.sleep(0)
        assert taken[0].leftovers() == (names, rows)
        await warm(it, standby)
        assert states(standby).keys() == {"t-0", "t-1", "t-2", "u-0"}


@virtual_time
async def test_topics_that_were_not_taken_in_when_the_copy_was_taken_are_left_to_the_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other tasks run between the steps in which many topics are taken in."""
    monkeypatch.setattr(mirror_module, "PARTITIONS_AT_ONCE", 1)
    async with pair() as (it, active, standby):
        it.crash(active)  # or it would write states
        await warm(it, standby)
        mirror, breathe, taken = copy_of(standby), standby.shell.breathe, []

        async def then_taken() -> None:
            await breathe()
            if not taken:
                taken.append(mirror.take())

        monkeypatch.setattr(standby.shell, "breathe", then_taken)
        data = b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
        await it.client.multi([Create(f"/brokers/topics/{name}", data) for name in ("u", "v", "w")])
        await it.until(lambda: taken)
        names, rows = taken[0].leftovers()
        table = taken[0].context.table
        assert (names, [str(table.topic_partition(row)) for row in rows]) == (["v", "w"], ["u-0"])
        await it.sleep(0)
        assert taken[0].leftovers() == (names, rows)
        await warm(it, standby)
        assert states(standby).keys() == {"t-0", "t-1", "t-2", "u-0", "v-0", "w-0"}


@virtual_time
async def test_one_shot_watches_work_as_ever_in_the_term_and_the_copy_is_made_anew_after_it() -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        it.crash(active)
        await it.until(lambda: is_active(standby))
        await it.until(lambda: not standby.client.session.registry.recursive)
        await create_topic(it, "u", 1)
        await it.until(lambda: standby.shell.context.table.row("u", 0) >= 0)
        third = await it.add_controller(aiocontroller_id=SECOND + 1, aiocontroller_standby="warm")
        await warm(it, third)
        await it.delete("/controller")
        await it.until(lambda: is_active(third) or is_active(standby))
        other = standby if is_active(third) else third
        await warm(it, other)
        assert states(other) == {"t-0": 0, "t-1": 0, "t-2": 0, "u-0": 0}


@virtual_time
async def test_who_only_observes_keeps_no_copy() -> None:
    """A standby that is asked to release the role stands for no election any longer."""
    async with pair() as (it, _, standby):
        await warm(it, standby)
        standby.queue.append(Release(reply=Reply(lambda _: None), for_good=True))
        await it.until(lambda: copy_of(standby).state == "off")
        await it.until(lambda: not standby.client.session.registry.recursive)
        await it.sleep(5)
        assert copy_of(standby).copy is None
