"""Actions from their dry run to the journal; and confirmations that are replayed, stolen, late, or overtaken."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import ApiPartitionReassignment, Expire
from aiocontroller.core.ids import TopicPartition
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server import actions as module
from aiocontroller.server.actions import CONFIRMED_WITHIN_S, Actions
from aiocontroller.server.actor_check import Actors, HttpPeer, NotAllowedError
from aiocontroller.server.commands import CommandRefusedError
from aiocontroller.service import Service
from tests.unit.controller.virtual_cluster import Stage, begin, stage

HERE = HttpPeer("127.0.0.1", False, None)
ANNA = {"name": "anna", "password": "sesame"}


def of(service: Service) -> Actions:
    return Actions(service.shell, Actors("sesame", (), lambda _: "", service.world.clock))


def body(**fields: Any) -> bytes:
    return json.dumps(ANNA | fields).encode()


def requested(service: Service) -> list[str]:
    assert isinstance(service.journal, MemoryJournal)
    return [record.requested for record in service.journal.records if record.requested]


async def refused(asking: Any, kind: type[AioControllerError] = CommandRefusedError) -> str:
    with pytest.raises(kind) as error:
        await asking
    return str(error.value)


@virtual_time
async def test_the_role_is_released_after_a_look_and_the_journal_says_who_asked() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        actions = of(service)
        assert actions.summary() == {"possible": True}
        shown = await actions.dry_run(HERE, body(action="release"))
        assert shown["title"] == f"Release the role of controller {service.shell.id}"
        assert service.controller.election.active
        done = await actions.confirm(HERE, body(confirmation=shown["confirmation"]))
        assert done["lines"] == ["The role was given back after epoch 1."]
        assert not service.controller.election.active
        [asked] = requested(service)
        assert asked.startswith(
            "'anna' by the page with the actors' password, from 127.0.0.1 asks this controller to rel"
        )


@virtual_time
async def test_a_confirmation_holds_once_for_one_actor_and_a_short_time() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        actions = of(service)

        async def shown() -> str:
            return str((await actions.dry_run(HERE, body(action="release")))["confirmation"])

        first = await shown()
        unknown = await refused(actions.confirm(HERE, body(confirmation="0" * 32)))
        assert unknown.startswith("this confirmation is unknown")
        assert await refused(actions.confirm(HERE, body(confirmation=first, name="bob"))) == unknown
        assert await refused(actions.confirm(HERE, body(confirmation=first))) == unknown, "bob has used it up"
        elsewhere = await shown()
        assert await refused(actions.confirm(HttpPeer("::1", False, None), body(confirmation=elsewhere))) == unknown
        late = await shown()
        await it.sleep(CONFIRMED_WITHIN_S + 1)
        assert await refused(actions.confirm(HERE, body(confirmation=late))) == unknown
        await refused(actions.confirm(HERE, body(confirmation=await shown(), password="x")), NotAllowedError)
        assert service.controller.election.active
        assert requested(service) == []


@virtual_time
async def test_what_has_changed_since_it_was_shown_is_shown_again() -> None:
    async with stage() as it:
        service = await begin(it, 3)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
        await it.sleep(3)
        moves = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}
        await it.create("/admin/reassign_partitions", json.dumps(moves).encode())
        context = service.shell.context
        await it.until(lambda: context.partitions_being_reassigned)
        actions = of(service)
        shown = await actions.dry_run(HERE, body(action="cancel", topic="t", partition=0))
        assert shown["lines"] == ("t-0: goes back to replicas 1", "what has been copied to 2 is deleted")
        done = await actions.confirm(HERE, body(confirmation=shown["confirmation"]))
        assert done["lines"] == ["Done for 1 of 1 partitions."]
        await it.until(lambda: not context.partitions_being_reassigned)
        assert context.table.replicas(context.table.row("t", 0)) == (1,)
        assert "asks to cancel the reassignment of partition t-0" in requested(service)[-1]
        assert "no reassignment" in await refused(
            actions.dry_run(HERE, body(action="cancel", topic="t", partition=0)), BadInputError
        )


async def led_by_the_second(it: Stage) -> None:
    """``t-0`` and ``t-1``, both led by broker 2, which is preferred of the second alone."""
    await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}')
    state = b'{"controller_epoch":0,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1]}'
    for n in range(2):
        await it.client.ensure_path(f"/brokers/topics/t/partitions/{n}")
        await it.create(f"/brokers/topics/t/partitions/{n}/state", state)


@pytest.mark.parametrize(
    "asked, whose", [({"action": "elect", "topic": "t"}, "t"), ({"action": "elect-all"}, "the cluster")]
)
@virtual_time
async def test_preferred_leaders_are_elected(asked: dict[str, str], whose: str) -> None:
    async with stage() as it:
        await led_by_the_second(it)
        service = await begin(it, 2)
        await it.sleep(3)
        actions = of(service)
        shown = await actions.dry_run(HERE, body(**asked))
        assert shown["title"] == f"Elect the preferred leaders of {whose}"
        assert shown["lines"] == ("t-0: leader 2 → 1",)
        done = await actions.confirm(HERE, body(confirmation=shown["confirmation"]))
        assert done["lines"] == ["Done for 1 of 1 partitions."]
        assert service.shell.context.table.leader[service.shell.context.table.row("t", 0)] == 1
        assert requested(service)[-1].endswith("asks for an election of the preferred leaders of partition t-0")
        again = await refused(actions.dry_run(HERE, body(**asked)), BadInputError)
        assert again == f"no leader of {whose} would change: the preferred replica leads already"
        shown = await refused(actions.confirm(HERE, body(confirmation=shown["confirmation"])))
        assert shown.startswith("this confirmation")


@virtual_time
async def test_a_partition_is_moved() -> None:
    async with stage() as it:
        await led_by_the_second(it)
        service = await begin(it, 3)
        await it.sleep(3)
        context, actions = service.shell.context, of(service)
        asked = {"action": "move", "topic": "t", "partition": 0, "replicas": [3, 2]}
        shown = await actions.dry_run(HERE, body(**asked))
        assert shown["title"] == "Move t-0 to 3, 2"
        assert shown["lines"][:2] == ("t-0: replicas 1, 2 → 3, 2", "leader 2 stays")
        assert not context.partitions_being_reassigned
        done = await actions.confirm(HERE, body(confirmation=shown["confirmation"]))
        assert done["lines"] == ["Done for 1 of 1 partitions."]
        assert requested(service)[-1].endswith("asks to reassign partition t-0")
        again = await refused(actions.dry_run(HERE, body(**asked)), BadInputError)
        assert again.startswith("t-0 is being reassigned to 3, 2 already")
        dead = asked | {"partition": 1, "replicas": [7]}
        assert "brokers 7 are not live (live: 1, 2, 3)" in await refused(
            actions.dry_run(HERE, body(**dead)), BadInputError
        )


@virtual_time
async def test_a_broker_is_drained() -> None:
    async with stage() as it:
        await led_by_the_second(it)
        service = await begin(it, 3)
        await it.sleep(3)
        table, actions = service.shell.context.table, of(service)
        shown = await actions.dry_run(HERE, body(action="drain", broker=2))
        assert shown["lines"][:2] == (
            "2 replicas copied: 2 to 3",
            "leader 2 → 1: 1 partition, once its new replica is in sync",
        )
        done = await actions.confirm(HERE, body(confirmation=shown["confirmation"]))
        assert done["lines"] == ["Done for 2 of 2 partitions."]
        assert [table.assignment(table.row("t", n)).target for n in range(2)] == [(1, 3), (3, 1)]
        assert requested(service)[-1].endswith("asks to reassign partitions t-0, t-1")


@virtual_time
async def test_what_changes_while_the_request_waits_for_its_turn_is_shown_again() -> None:
    """The context was as shown when the confirmation came, and an earlier request in the queue changes it."""
    async with stage() as it:
        await led_by_the_second(it)
        service = await begin(it, 3)
        await it.sleep(3)
        table, actions = service.shell.context.table, of(service)
        shown = await actions.dry_run(HERE, body(action="move", topic="t", partition=0, replicas=[3]))
        others: list[Any] = []
        targets: dict[TopicPartition, tuple[int, ...] | None] = {TopicPartition("t", 0): (2,)}
        service.shell.queue.append(ApiPartitionReassignment(reply=Reply(others.append), targets=targets))
        reason = await refused(actions.confirm(HERE, body(confirmation=shown["confirmation"])))
        assert reason.startswith("what it would do has changed since it was shown")
        assert len(others) == 1
        assert table.assignment(table.row("t", 0)).target == (2,)


@virtual_time
async def test_the_term_ends_while_the_request_waits() -> None:
    async with stage() as it:
        await led_by_the_second(it)
        service = await begin(it, 2)
        await it.sleep(3)
        actions = of(service)
        shown = await actions.dry_run(HERE, body(action="move", topic="t", partition=0, replicas=[1]))
        service.shell.queue.append(Expire())
        reason = await refused(actions.confirm(HERE, body(confirmation=shown["confirmation"])))
        assert reason.startswith("what it would do has changed")
        assert reason.endswith("is not in charge of the cluster: ask the one that is")
        assert actions._busy == ""


@virtual_time
async def test_another_term_begins_while_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        await led_by_the_second(it)
        service = await begin(it, 2)
        planning = asyncio.create_task(of(service).dry_run(HERE, body(action="elect-all")))
        await asyncio.sleep(0)
        fresh = ControllerContext()
        fresh.loaded = True
        monkeypatch.setattr(service.shell, "context", fresh)
        assert "begin again" in await refused(planning)


@virtual_time
async def test_two_at_once() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        actions = of(service)
        both = [await actions.dry_run(HERE, body(action="release")) for _ in range(2)]
        ended = await asyncio.gather(
            *(actions.confirm(HERE, body(confirmation=each["confirmation"])) for each in both), return_exceptions=True
        )
        [refusal] = [each for each in ended if isinstance(each, CommandRefusedError)]
        assert str(refusal).startswith("another action is being carried out: Release the role")
        assert len(requested(service)) == 1


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("other", [(3, 2), (3, 1)], ids=["the same", "another"])
@virtual_time
async def test_two_confirm_moves_of_one_partition(at_once: bool, other: tuple[int, ...]) -> None:
    """Both were shown what they asked for before either confirmed; one is carried out, as it was shown."""
    async with stage() as it:
        await led_by_the_second(it)
        service = await begin(it, 3)
        await it.sleep(3)
        actions, table = of(service), service.shell.context.table
        asked = {"action": "move", "topic": "t", "partition": 0}
        moves = [asked | {"replicas": (3, 2), "name": "anna"}, asked | {"replicas": other, "name": "bob"}]
        shown = [(await actions.dry_run(HERE, body(**each)))["confirmation"] for each in moves]

        async def confirmed(which: int) -> Any:
            return await actions.confirm(HERE, body(confirmation=shown[which], name=moves[which]["name"]))

        if at_once:
            done, refusal = await asyncio.gather(confirmed(0), confirmed(1), return_exceptions=True)
            assert isinstance(refusal, CommandRefusedError)
            assert str(refusal) == "another action is being carried out: Move t-0 to 3, 2"
        else:
            done = await confirmed(0)
            assert await refused(confirmed(1), BadInputError) == (
                "t-0 is being reassigned to 3, 2 already: wait for that to end, or cancel it"
            )
        assert done["lines"] == ["Done for 1 of 1 partitions."]
        assert table.assignment(table.row("t", 0)).target == (3, 2)
        [who] = requested(service)
        assert who.startswith("'anna'")
        assert (
            await refused(confirmed(1))
            == "this confirmation is unknown, used, too old, or another actor's: begin again"
        )


@virtual_time
async def test_a_standby_and_a_controller_that_was_deposed_do_nothing() -> None:
    async with stage() as it:
        first = await begin(it, 1)
        standby = await it.add_controller(aiocontroller_id=1002)
        reason = await refused(of(standby).dry_run(HERE, body(action="release")))
        assert reason == "controller 1002 is not in charge of the cluster: ask the one that is"
        actions = of(first)
        shown = await actions.dry_run(HERE, body(action="release"))
        it.crash(first)
        await it.until(lambda: standby.controller.election.active_and_connected)
        of_standby = of(standby)
        assert (await refused(of_standby.confirm(HERE, body(confirmation=shown["confirmation"])))).startswith("this")
        assert requested(standby) == []


@virtual_time
async def test_bodies_that_make_no_sense() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        actions = of(service)
        for wrong in (
            b"",
            b"{",
            b"[" * 100_000,
            b'"\xff"',
            b'{"action":"elect","topic":"\xff"}',
            b'{"confirmation":"\xff"}',
            body(),
            body(action="delete"),
            body(action="x" * 100_000),
            body(action="elect", topic=7),
            body(action="cancel", partition="0"),
            body(action="cancel", partition=1.5),
            body(action="move", replicas="1,2"),
            body(action="move", replicas=[1, None]),
            body(action="move", replicas=[1e400]),
            body(action="drain", broker="1"),
            body(action="drain", broker=2**70),
        ):
            assert len(await refused(actions.dry_run(HERE, wrong), BadInputError)) < 1000
            await refused(actions.confirm(HERE, wrong), BadInputError)
        await refused(actions.dry_run(HERE, body(action="elect", topic="../../etc")), BadInputError)
        await refused(actions.dry_run(HERE, body(action="cancel", topic="t", partition=-1)), BadInputError)
        await refused(actions.dry_run(HERE, b'{"action":"release"}'), NotAllowedError)


@virtual_time
async def test_no_password_is_kept_and_nothing_for_long() -> None:
    async with stage() as it:
        actions = of(await begin(it, 1))
        await actions.dry_run(HERE, body(action="release"))
        assert "sesame" not in repr(actions._waiting)
        await it.sleep(CONFIRMED_WITHIN_S + 1)
        kept = await actions.dry_run(HERE, body(action="release"))
        assert list(actions._waiting) == [kept["confirmation"]]


@virtual_time
async def test_a_bug_in_a_plan_has_no_cluster_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        await led_by_the_second(it)
        service = await begin(it, 2)
        await it.sleep(3)
        actions, context = of(service), service.shell.context
        shown = await actions.dry_run(HERE, body(action="elect-all"))
        right, planned = actions._planned, list[int]()

        async def wrong(asked: Any) -> Any:
            planned.append(1)
            if len(planned) == 2:
                raise ZeroDivisionError("bug")
            return await right(asked)

        monkeypatch.setattr(actions, "_planned", wrong)
        assert "bug" in await refused(actions.confirm(HERE, body(confirmation=shown["confirmation"])))
        assert service.controller.election.active_and_connected
        assert service.shell.context is context


@virtual_time
async def test_many_dry_runs_at_once_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        await led_by_the_second(it)
        service = await begin(it, 2)
        await it.sleep(3)
        actions, under_way, most = of(service), list[int](), list[int]()
        in_slices = actions._in_slices

        async def counted(steps: Any) -> Any:
            under_way.append(1)
            most.append(len(under_way))
            found = await in_slices(steps)
            under_way.pop()
            return found

        monkeypatch.setattr(actions, "_in_slices", counted)
        await asyncio.gather(*(actions.dry_run(HERE, body(action="elect-all")) for _ in range(20)))
        assert most == [1] * 20


@virtual_time
async def test_dry_runs_that_nobody_confirms_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    async with stage() as it:
        service = await begin(it, 1)
        actions = of(service)
        shown = [await actions.dry_run(HERE, body(action="release")) for _ in range(10)]
        assert len(actions._waiting) == 3
        await refused(actions.confirm(HERE, body(confirmation=shown[0]["confirmation"])))
