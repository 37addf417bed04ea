"""What the comparison lets pass and what it does not, without any controller."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aiocontroller.zookeeper import paths
from tests.differential.agreement import Disagreement, Ledger, disagreements
from tests.differential.allowances import DEPARTURES
from tests.differential.random_scenarios import random_scenario
from tests.differential.report import of_a_run, side_by_side
from tests.differential.scenarios import NAMED
from tests.differential.stage import Moment, Scenario, Step
from tests.differential.told import Told
from tests.unit.test_departures import rows

ISR = Told("LeaderAndIsr", 1, 2, (2, 3), 1, 0, (1, 2, 3))
METADATA = Told("UpdateMetadata", 1, 2, (2, 3), 1, 0, (1, 2, 3))
STOP = Told("StopReplica", 1)
_ZNODES = {paths.DELETE_TOPICS: [], paths.CONTROLLER_EPOCH: 0}


async def nothing(_: Any) -> None:
    return None


def moment(*told: Told, dies: tuple[int, ...] = (), answer: Any = None, **znodes: Any) -> Moment:
    step = Step("something happens", nothing, dies)
    return Moment(step, False, answer, {(1, "a-0"): told}, {1: (1, 2, 3)}, _ZNODES | znodes)


def compare(kafka: Moment, ours: Moment) -> tuple[list[Disagreement], list[str]]:
    ledger = Ledger()
    return disagreements([kafka], [ours], ledger), sorted(ledger.fired)


def changed(told: Told, **changes: Any) -> Told:
    return msgspec.structs.replace(told, **changes)


@pytest.mark.parametrize(
    "change",
    [
        {"leader": 3},
        {"leader_epoch": 2},
        {"isr": (3, 2)},
        {"partition_epoch": 2},
        {"replicas": (1, 3, 2)},
        {"adding": (1,)},
        {"removing": (1,)},
        {"is_new": True},
        {"recovering": True},
        {"wrong": "controller 5"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_counts(change: dict[str, Any]) -> None:
    found, fired = compare(moment(ISR, METADATA), moment(changed(ISR, **change), METADATA))
    assert [d.where for d in found] == ["broker 1, partition a-0"]
    assert fired == []


def test_a_request_too_few_too_many_or_in_another_order_counts() -> None:
    for ours in ((ISR,), (METADATA,), (METADATA, ISR), (ISR, METADATA, STOP), ()):
        assert compare(moment(ISR, METADATA), moment(*ours))[0], ours


def test_offline_replicas_and_the_delete_flag_count() -> None:
    assert compare(moment(METADATA), moment(changed(METADATA, offline=(1,))))[0]
    assert compare(moment(METADATA, STOP), moment(METADATA, changed(STOP, delete=True)))[0]


def test_answers_live_brokers_and_znodes_count() -> None:
    kafka, ours = moment(answer="NONE", path=1), moment(answer="INVALID_REQUEST", path=2)
    ours.live = {1: (1, 2)}
    assert [d.where for d in compare(kafka, ours)[0]] == [
        "the answer",
        "live brokers as broker 1 knows them",
        "znode path",
    ]


OLDER = changed(ISR, leader_epoch=0, isr=(1, 2, 3), partition_epoch=0)


@pytest.mark.parametrize(
    "rule, kafka, ours",
    [
        ("said once", (ISR, METADATA, ISR, METADATA), (ISR, METADATA)),
        ("elected at once", (changed(ISR, leader=-1, leader_epoch=0), ISR), (ISR,)),
        ("shrunk at once", (OLDER, ISR), (ISR,)),
        ("stopped and deleted", (STOP, changed(STOP, delete=True)), (changed(STOP, delete=True),)),
        ("term of the write", (ISR,), (changed(ISR, controller_epoch=-1),)),
        (
            "stopped at this epoch",
            (changed(STOP, leader_epoch=0), METADATA, changed(STOP, leader_epoch=0)),
            (METADATA, STOP),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_rule_allows_its_departure_and_is_counted(
    rule: str, kafka: tuple[Told, ...], ours: tuple[Told, ...]
) -> None:
    assert compare(moment(*kafka), moment(*ours)) == ([], [rule])


def test_rules_do_not_hide_what_was_said_of_another_state() -> None:
    """A new replica must be told that it is new; the last word counts; a stop is no deletion."""
    assert compare(moment(changed(OLDER, is_new=True), ISR), moment(ISR))[0]
    assert compare(moment(OLDER, ISR), moment(OLDER))[0]
    assert compare(moment(STOP, changed(STOP, delete=True)), moment(STOP))[0]
    assert compare(moment(METADATA, STOP), moment(METADATA, changed(STOP, leader_epoch=7)))[0]


def state(leader: int, leader_epoch: int, isr: tuple[int, ...]) -> dict[str, Any]:
    return {"leader": leader, "leader_epoch": leader_epoch, "isr": isr, "partition_epoch": leader_epoch}


def play(*moments: tuple[tuple[int, ...], dict[str, Any]]) -> list[Moment]:
    replicas = {"replicas": (1, 2, 3)}
    found = []
    for dies, leadership in moments:
        told = Told("LeaderAndIsr", leadership["leader_epoch"], leadership["leader"], partition_epoch=0)
        told = changed(told, isr=leadership["isr"], partition_epoch=leadership["partition_epoch"])
        found.append(moment(told, dies=dies, **{"a-0 replicas": replicas, "a-0 state": leadership}))
    return found


def test_epochs_stay_apart_after_brokers_went_at_once() -> None:
    kafka = play(((), state(3, 0, (3, 1, 2))), ((1, 2), state(3, 2, (3,))), ((), state(3, 3, (3,))))
    ours = play(((), state(3, 0, (3, 1, 2))), ((1, 2), state(3, 1, (3,))), ((), state(3, 2, (3,))))
    ledger = Ledger()
    assert disagreements(kafka, ours, ledger) == []
    assert ledger.fired["gone at once"] == 1


def test_epochs_are_the_same_until_replicas_went_at_once() -> None:
    """One step tells both: an override is told of, then the replicas leave that it takes away."""
    first = ((), state(3, 0, (3, 1, 2)))
    kafka, ours = play(first, ((1, 2), state(3, 4, (3,)))), play(first, ((1, 2), state(3, 3, (3,))))
    for played in (kafka, ours):
        ((place, (last,)),) = played[1].told.items()
        early = changed(last, leader_epoch=2, isr=(3, 1, 2), partition_epoch=2)
        played[1].told[place] = (early, changed(last, request="UpdateMetadata"))
    assert disagreements(kafka, ours, Ledger()) == []


def test_epochs_may_not_differ_by_more_or_without_reason() -> None:
    first = ((), state(3, 0, (3, 1, 2)))
    for dies, epoch in (((1, 2), 3), ((1,), 2), ((), 1)):
        kafka, ours = play(first, (dies, state(3, epoch, (3,)))), play(first, (dies, state(3, epoch - 1, (3,))))
        if (dies, epoch) == ((1, 2), 3):
            ours = play(first, (dies, state(3, 1, (3,))))
        assert disagreements(kafka, ours, Ledger()), dies


def test_whole_isr_that_goes_at_once_may_stay() -> None:
    first = ((), state(1, 0, (1, 2)))
    kafka, ours = play(first, ((1, 2), state(-1, 2, (2,)))), play(first, ((1, 2), state(-1, 1, (1, 2))))
    ledger = Ledger()
    assert disagreements(kafka, ours, ledger) == []
    assert ledger.fired["whole ISR gone at once"] == 1
    assert disagreements(ours, kafka, Ledger()), "and not the other way round"


def test_ways_part_where_a_topic_is_deleted_that_is_being_reassigned() -> None:
    moving = {"replicas": (1, 2), "adding": (2,), "removing": ()}
    waits: dict[str, Any] = {
        paths.DELETE_TOPICS: ["a", "b"],
        "a-0 replicas": moving,
        "a-0 state": {"leader": 1},
        "a: has an id": True,
    }
    gone: dict[str, Any] = {paths.DELETE_TOPICS: ["b"]}
    kafka = moment(STOP, answer={"a-0": "NONE"}, **gone)
    ours = moment(answer={"a-0": "INVALID_REQUEST"}, **waits)
    assert compare(kafka, ours) == ([], ["deleted while being reassigned"])
    ours.znodes = ours.znodes | {"a-0 replicas": moving | {"adding": ()}}
    assert compare(kafka, ours)[0], "one that is not being reassigned"


def test_every_rule_has_its_row() -> None:
    known = {row.what for row in rows()}
    assert {name: what for name, what in DEPARTURES.items() if what not in known} == {}


def test_a_disagreement_is_shown_side_by_side() -> None:
    found, _ = compare(moment(ISR), moment(METADATA))
    shown = side_by_side(Scenario("one", [Step("something happens", nothing)]), found)
    assert "> 1. something happens" in shown
    assert "broker 1, partition a-0" in shown
    assert str(ISR) in shown
    assert str(METADATA) in shown


def test_a_run_names_the_rules_that_never_fired() -> None:
    ledger = Ledger()
    disagreements([moment(ISR, ISR)], [moment(ISR)], ledger)
    said = of_a_run(ledger)
    (unused,) = [line for line in said.splitlines() if line.startswith("Never fired")]
    assert "shrunk at once" in unused
    assert "said once" not in unused


def test_a_seed_is_a_scenario() -> None:
    first, again = random_scenario(7), random_scenario(7)
    assert [s.text for s in first.steps] == [s.text for s in again.steps]
    assert [s.text for s in first.steps] != [s.text for s in random_scenario(8).steps]
    assert len({scenario.name for scenario in NAMED}) == len(NAMED)
