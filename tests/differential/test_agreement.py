"""What the comparison lets pass and what it does not, without any controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from aiocontroller.lab.recording_brokers.recording_broker import Received
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from tests.differential.agreement import Disagreement, Ledger, disagreements
from tests.differential.allowances import DEPARTURES, GONE, deletes
from tests.differential.observed_cluster import WITNESS, Live, Moment, Scenario, Step
from tests.differential.random_scenarios import random_scenario
from tests.differential.report import of_a_run, side_by_side
from tests.differential.scenarios import NAMED
from tests.differential.sent import NO_EPOCH, Receiver, Sent, sent_by
from tests.differential.sequels import leadership_before_metadata
from tests.unit.test_departures import rows

ISR = Sent("LeaderAndIsr", 1, 2, (2, 3), 1, 0, (1, 2, 3))
METADATA = Sent("UpdateMetadata", 1, 2, (2, 3), 1, 0, (1, 2, 3))
STOP = Sent("StopReplica", 1)
_ZNODES = {paths.DELETE_TOPICS: [], paths.CONTROLLER_EPOCH: 0}


async def nothing(_: Any) -> None:
    return None


def live(*brokers: int) -> tuple[Live, ...]:
    return tuple((broker, None, ()) for broker in brokers)


def moment(*sent: Sent, dies: tuple[int, ...] = (), answer: Any = None, **znodes: Any) -> Moment:
    step = Step("something happens", nothing, dies)
    return Moment(step, False, answer, {(1, "a-0"): sent}, {1: live(1, 2, 3)}, _ZNODES | znodes)


def compare(kafka: Moment, ours: Moment) -> tuple[list[Disagreement], list[str]]:
    ledger = Ledger()
    return disagreements([kafka], [ours], ledger), sorted(ledger.fired)


def changed(sent: Sent, **changes: Any) -> Sent:
    return msgspec.structs.replace(sent, **changes)


@pytest.mark.parametrize(
    "change",
    [
        {"leader": 3},
        {"leads_at": "127.0.0.1:9092"},
        {"leader_epoch": 2},
        {"isr": (3, 2)},
        {"partition_epoch": 2},
        {"replicas": (1, 3, 2)},
        {"adding": (1,)},
        {"removing": (1,)},
        {"is_new": True},
        {"recovering": True},
        {"wrong": "controller 5"},
        {"version": 6},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_counts(change: dict[str, Any]) -> None:
    found, fired = compare(moment(ISR, METADATA), moment(changed(ISR, **change), METADATA))
    assert [d.where for d in found] == ["broker 1, partition a-0"]
    assert fired == []


def hears(*live_leaders: tuple[int, str, int]) -> Sent:
    """What broker 1 hears of a-0, led by 2, whose first listener is at port 5002."""
    state = {"partition_index": 0, "leader": 2, "leader_epoch": 1, "isr": [2, 3], "replicas": [1, 2, 3]}
    request = cold.request(
        ApiKey.LEADER_AND_ISR,
        7,
        controller_id=9,
        broker_epoch=4,
        topic_states=[{"topic_name": "a", "partition_states": [state]}],
        live_leaders=[{"broker_id": n, "host_name": host, "port": port} for n, host, port in live_leaders],
    )
    receiver = Receiver(4, 0, frozenset((9,)), {}, {2: 5002, 3: 5003})
    ((_, sent),) = sent_by(Received(ApiKey.LEADER_AND_ISR, 7, request), receiver)
    return sent


def test_live_leaders_count() -> None:
    right = hears((2, "h", 5002))
    assert (right.leads_at, right.wrong) == ("h:0", "")
    planted = {
        "another port": [(2, "h", 9092)],
        "the port of another broker": [(2, "h", 5003)],
        "another host": [(2, "g", 5002)],
        "none": [],
        "a leader of nothing": [(2, "h", 5002), (3, "h", 5003)],
        "twice": [(2, "h", 5002), (2, "h", 5002)],
    }
    for what, leaders in planted.items():
        assert compare(moment(right), moment(hears(*leaders)))[0], what


def test_a_request_too_few_too_many_or_in_another_order_counts() -> None:
    for ours in ((ISR,), (METADATA,), (METADATA, ISR), (ISR, METADATA, STOP), ()):
        assert compare(moment(ISR, METADATA), moment(*ours))[0], ours


def test_followers_may_hear_the_metadata_first_when_a_broker_dies() -> None:
    kafka = moment(ISR, METADATA, dies=(3,))
    assert compare(kafka, moment(METADATA, ISR, dies=(3,))) == ([], ["metadata at once"])
    assert compare(moment(ISR, METADATA), moment(METADATA, ISR))[0], "no broker died"
    assert compare(kafka, moment(METADATA, dies=(3,)))[0], "a request is missing"
    for change in ({"leader_epoch": 0}, {"isr": (2,)}, {"leader": 3}):
        assert compare(kafka, moment(changed(METADATA, **change), ISR, dies=(3,)))[0], change
    led = changed(METADATA, leader=1), changed(ISR, leader=1)
    assert leadership_before_metadata(1, led) == led, "the leader hears of its leadership first"


def test_offline_replicas_and_the_delete_flag_count() -> None:
    assert compare(moment(METADATA), moment(changed(METADATA, offline=(1,))))[0]
    assert compare(moment(METADATA, STOP), moment(METADATA, changed(STOP, delete=True)))[0]


def test_answers_live_brokers_and_znodes_count() -> None:
    kafka, ours = moment(answer="NONE", path=1), moment(answer="INVALID_REQUEST", path=2)
    ours.live = {1: live(1, 2)}
    assert [d.where for d in compare(kafka, ours)[0]] == [
        "the answer",
        "live brokers as broker 1 knows them",
        "znode path",
    ]


OLDER = changed(ISR, leader_epoch=0, isr=(1, 2, 3), partition_epoch=0)
OLDER_METADATA = changed(METADATA, leader_epoch=0, isr=(1, 2, 3), partition_epoch=0)
AFTER = changed(METADATA, offline=(1,))
GOING = changed(METADATA, leader=-2)
RAISED = changed(METADATA, leader_epoch=2, partition_epoch=2, replicas=(2, 3))
DELETES = changed(STOP, delete=True)


@pytest.mark.parametrize(
    "rule, kafka, ours",
    [
        ("said once", (ISR, METADATA, ISR, METADATA), (ISR, METADATA)),
        ("elected at once", (changed(ISR, leader=-1, leader_epoch=0), ISR), (ISR,)),
        ("shrunk at once", (OLDER, OLDER_METADATA, ISR, AFTER), (OLDER_METADATA, ISR, AFTER)),
        ("stopped and deleted", (STOP, changed(STOP, delete=True)), (changed(STOP, delete=True),)),
        ("stopped at this epoch", (changed(STOP, leader_epoch=0), AFTER), (STOP, AFTER)),
        ("dropped after the raise", (METADATA, DELETES, RAISED), (METADATA, RAISED, changed(DELETES, leader_epoch=2))),
        (
            "dropped after the raise",
            (METADATA, changed(DELETES, leader_epoch=NO_EPOCH), RAISED),
            (METADATA, RAISED, changed(DELETES, leader_epoch=NO_EPOCH)),
        ),
        ("deletion sent first", (ISR, GOING), (GOING, ISR, GOING)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_rule_allows_its_departure_and_is_counted(
    rule: str, kafka: tuple[Sent, ...], ours: tuple[Sent, ...]
) -> None:
    assert compare(moment(*kafka), moment(*ours)) == ([], [rule])
    if rule != "deletion sent first":  # Kafka might send it once where we send it twice
        assert compare(moment(*ours), moment(*kafka))[0], "and not the other way round"


def test_a_controlled_shutdown_stops_once_and_at_the_epoch_after() -> None:
    kafka = (changed(STOP, leader_epoch=0), AFTER, changed(STOP, leader_epoch=0))
    assert compare(moment(*kafka), moment(AFTER, STOP)) == ([], ["said once", "stopped at this epoch"])


def test_a_stop_one_epoch_low_is_seen() -> None:
    """Only where the receiver leaves the ISR may the two differ by one epoch, and only Kafka's may be the lower."""
    low = changed(STOP, leader_epoch=0)
    assert compare(moment(AFTER, STOP), moment(AFTER, low))[0], "ours too low"
    stays = changed(METADATA, isr=(1, 2, 3))
    assert compare(moment(stays, low), moment(stays, STOP))[0], "the receiver stays in the ISR"
    assert compare(moment(METADATA, STOP), moment(METADATA, changed(STOP, leader_epoch=7)))[0]
    deletes = changed(STOP, delete=True)
    assert compare(moment(AFTER, deletes), moment(AFTER, changed(deletes, leader_epoch=0)))[0], "a deletion"


def test_a_broker_that_fell_behind_hears_the_last_state_and_nothing_else() -> None:
    step = Step("broker 1 goes on", nothing, wakes=(1,))
    last = changed(ISR, leader_epoch=1)

    def woke(*sent: Sent, step: Step = step) -> Moment:
        return msgspec.structs.replace(moment(*sent), step=step)

    kafka = woke(OLDER, OLDER_METADATA, METADATA)
    assert compare(kafka, woke(last, METADATA)) == ([], ["fell behind"])
    assert compare(kafka, woke(changed(last, leader=3), METADATA))[0]
    assert compare(kafka, woke(last, OLDER_METADATA))[0]
    assert compare(kafka, woke(last))[0]
    other = Step("broker 2 goes on", nothing, wakes=(2,))
    assert compare(woke(OLDER, OLDER_METADATA, METADATA, step=other), woke(last, METADATA, step=other))[0]


def test_a_deletion_may_be_later_only_where_the_epoch_was_raised_and_the_receiver_is_no_replica() -> None:
    kafka = moment(METADATA, DELETES, RAISED)
    for ours in (
        (METADATA, RAISED, DELETES),
        (METADATA, RAISED),
        (METADATA, changed(DELETES, leader_epoch=2), RAISED),
        (METADATA, RAISED, changed(DELETES, leader_epoch=3)),
    ):
        assert compare(kafka, moment(*ours))[0], ours
    stays = changed(RAISED, replicas=(1, 2, 3))
    later = changed(DELETES, leader_epoch=2)
    assert compare(moment(METADATA, DELETES, stays), moment(METADATA, stays, later))[0]


def test_a_deletion_without_an_epoch_may_be_later_only_where_the_epoch_was_raised() -> None:
    deletes = changed(DELETES, leader_epoch=NO_EPOCH)
    same = changed(RAISED, leader_epoch=1)
    assert compare(moment(METADATA, deletes, same), moment(METADATA, same, deletes))[0], "not raised"
    kafka = moment(METADATA, deletes, RAISED)
    assert compare(kafka, moment(METADATA, RAISED, changed(deletes, leader_epoch=2)))[0], "an epoch"
    assert compare(kafka, moment(METADATA, RAISED))[0], "never"


def test_an_isr_is_granted_to_an_old_leader_alone() -> None:
    """And with a replica that is offline; from then on the topic goes its own way."""
    refused = {"partition": "a-0", "version": 0, "error": "OPERATION_NOT_ATTEMPTED"}
    given = {"partition": "a-0", "version": 0, "leader": 2, "leader_epoch": 1, "isr": (2, 1), "partition_epoch": 2}
    grown = changed(AFTER, isr=(2, 1), partition_epoch=2)
    assert compare(moment(AFTER, answer=refused), moment(grown, answer=given)) == ([], ["granted to an old leader"])
    for kafka, ours, sent in (
        (refused | {"version": 1}, given | {"version": 1}, grown),
        (refused | {"error": "FENCED_LEADER_EPOCH"}, given, grown),
        (refused, refused | {"error": "NONE"}, grown),
        (refused, given, changed(grown, offline=())),
    ):
        assert compare(moment(AFTER, answer=kafka), moment(sent, answer=ours))[0], kafka


def test_an_intermediate_state_that_is_never_sent_is_seen() -> None:
    """Only one step of the epoch may be left out, in which no live replica leaves the ISR."""
    moved = changed(OLDER, leader=3, leader_epoch=0)
    other = changed(METADATA, offline=(3,))
    for skipped, after, why in (
        (OLDER, METADATA, "the replica that left the ISR is online"),
        (OLDER, other, "another one is offline"),
        (changed(OLDER, leader_epoch=-1), AFTER, "more than one change"),
        (changed(OLDER, isr=(2, 3)), AFTER, "nothing went"),
        (changed(moved, isr=(2,)), AFTER, "the ISR has grown"),
        (changed(OLDER, leader=-1, isr=(2, 3, 1)), AFTER, "elected, and the ISR changed"),
        (changed(OLDER, is_new=True), AFTER, "only the first said that the replica is new"),
    ):
        assert compare(moment(skipped, ISR, after), moment(ISR, after))[0], why
        assert compare(moment(skipped, ISR, after), moment(skipped, ISR, after)) == ([], []), why


def test_what_we_say_more_often_than_kafka_is_seen() -> None:
    for often in range(2, 6):
        assert compare(moment(ISR, METADATA), moment(*[ISR] * often, METADATA))[0]
        assert compare(moment(ISR, METADATA), moment(ISR, *[METADATA] * often))[0]
        assert compare(moment(STOP), moment(*[STOP] * often))[0]
    assert compare(moment(ISR, METADATA, METADATA), moment(ISR, METADATA, METADATA)) == ([], [])
    assert compare(moment(ISR, METADATA), moment(OLDER, ISR, METADATA))[0], "a state that Kafka never sent"


def test_rules_do_not_hide_what_was_said_of_another_state() -> None:
    """The last word counts; a stop is no deletion; what is sent first and what after stays so."""
    assert compare(moment(OLDER, OLDER_METADATA, ISR, AFTER), moment(OLDER, OLDER_METADATA))[0]
    assert compare(moment(STOP, changed(STOP, delete=True)), moment(STOP))[0]
    assert compare(moment(ISR, METADATA, ISR), moment(METADATA, ISR))[1] == ["said once"]
    assert compare(moment(ISR, METADATA), moment(METADATA, ISR))[0]


def test_of_a_topic_that_is_being_deleted_we_tell_what_zookeeper_had() -> None:
    """Kafka takes its replicas out of the ISR one by one; what we tell of it meanwhile is not just anything."""
    going: dict[str, Any] = {paths.DELETE_TOPICS: ["a"], "a-0 state": WRITTEN}
    kafka = moment(changed(ISR, leader=-1, leader_epoch=3, isr=(3,), partition_epoch=3), **going)
    assert compare(kafka, moment(ISR, **going)) == ([], ["states of deleted topics"])
    for wrong in ({"leader": 3}, {"isr": (2,)}, {"leader_epoch": 2}, {"partition_epoch": 2}, {"controller_epoch": 1}):
        assert compare(kafka, moment(changed(ISR, **wrong), **going))[0], wrong


# -- terms -------------------------------------------------------------------------------------------------------------

WRITTEN = {"leader": 2, "leader_epoch": 1, "isr": (2, 3), "partition_epoch": 1, "controller_epoch": 0}


def terms(sent: int, term: int = 2) -> list[Moment]:
    """The state of term 0 is there; then, in another term, brokers are sent it as one of term ``sent``."""
    znodes: dict[str, Any] = {"a-0 state": WRITTEN, "a-0 replicas": {"replicas": (1, 2, 3)}}
    znodes[paths.CONTROLLER_EPOCH] = term
    return [moment(**znodes), moment(changed(ISR, controller_epoch=sent), **znodes)]


def test_kafka_tells_an_unchanged_state_in_the_present_term_and_we_in_that_of_the_write() -> None:
    ledger = Ledger()
    assert disagreements(terms(2), terms(0), ledger) == []
    assert list(ledger.fired) == ["term of the write"]


def test_any_other_term_is_seen() -> None:
    for kafka, ours in ((2, 1), (2, 3), (2, -1), (0, 2), (0, 1), (1, 0), (3, 0)):
        assert disagreements(terms(kafka), terms(ours), Ledger()), f"Kafka sent {kafka}, we {ours}"


def test_the_term_of_a_state_that_zookeeper_never_had_is_compared_as_it_is() -> None:
    kafka, ours = terms(2), terms(0)
    for played in (kafka, ours):
        for key, (sent,) in played[1].sent.items():
            played[1].sent[key] = (changed(sent, partition_epoch=7),)
    assert disagreements(kafka, ours, Ledger())


def state(leader: int, leader_epoch: int, isr: tuple[int, ...]) -> dict[str, Any]:
    epochs = {"leader_epoch": leader_epoch, "partition_epoch": leader_epoch, "controller_epoch": 0}
    return {"leader": leader, "isr": isr, **epochs}


def play(*moments: tuple[tuple[int, ...], dict[str, Any]]) -> list[Moment]:
    replicas = {"replicas": (1, 2, 3)}
    found = []
    for dies, leadership in moments:
        sent = Sent("LeaderAndIsr", leadership["leader_epoch"], leadership["leader"], partition_epoch=0)
        sent = changed(sent, isr=leadership["isr"], partition_epoch=leadership["partition_epoch"], controller_epoch=0)
        found.append(moment(sent, dies=dies, **{"a-0 replicas": replicas, "a-0 state": leadership}))
    return found


def test_epochs_stay_apart_after_brokers_went_at_once() -> None:
    kafka = play(((), state(3, 0, (3, 1, 2))), ((1, 2), state(3, 2, (3,))), ((), state(3, 3, (3,))))
    ours = play(((), state(3, 0, (3, 1, 2))), ((1, 2), state(3, 1, (3,))), ((), state(3, 2, (3,))))
    ledger = Ledger()
    assert disagreements(kafka, ours, ledger) == []
    assert ledger.fired["gone at once"] == 1


def test_epochs_are_the_same_until_replicas_went_at_once() -> None:
    """One step tells both: an override is sent, then the replicas leave that it takes away."""
    first = ((), state(3, 0, (3, 1, 2)))
    kafka, ours = play(first, ((1, 2), state(3, 4, (3,)))), play(first, ((1, 2), state(3, 3, (3,))))
    for played in (kafka, ours):
        ((place, (last,)),) = played[1].sent.items()
        early = changed(last, leader_epoch=2, isr=(3, 1, 2), partition_epoch=2)
        played[1].sent[place] = (early, changed(last, request="UpdateMetadata"))
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


# -- failovers of a warm standby ---------------------------------------------------------------------------------------


def in_a_failover(kafka: Sequence[Sent], ours: Sequence[Sent], *, warm: bool = True, term: int = 1) -> list[str] | None:
    """The rules by which they agree; None if they do not."""
    ledger = Ledger()
    znodes: dict[str, Any] = {paths.CONTROLLER_EPOCH: term}
    found = disagreements([moment(), moment(*kafka, **znodes)], [moment(), moment(*ours, **znodes)], ledger, warm=warm)
    return None if found else sorted(ledger.fired)


KAFKAS_FAILOVER = (OLDER, OLDER_METADATA, ISR, AFTER)
OUR_FAILOVER = (ISR, AFTER, ISR, AFTER)


def test_a_warm_failover_tells_the_last_state_and_tells_it_twice() -> None:
    assert in_a_failover(KAFKAS_FAILOVER, OUR_FAILOVER) == ["ends alike after a warm failover"]
    new = changed(ISR, is_new=True)
    assert in_a_failover((new, AFTER), (new, AFTER, ISR, AFTER)) == ["ends alike after a warm failover"]
    going = (ISR, GOING, STOP, DELETES)
    assert in_a_failover(going, (GOING, DELETES, GOING)) == ["ends alike after a warm failover"]


def test_only_in_a_failover_of_a_warm_standby() -> None:
    assert in_a_failover(KAFKAS_FAILOVER, OUR_FAILOVER, warm=False) is None
    assert in_a_failover(KAFKAS_FAILOVER, OUR_FAILOVER, term=0) is None


def test_a_warm_failover_that_ends_otherwise_is_seen() -> None:
    other = changed(ISR, leader=3)
    for ours, why in (
        ((ISR, AFTER, ISR), None),
        ((), "nothing"),
        ((AFTER,), "no LeaderAndIsr"),
        ((ISR,), "no metadata"),
        ((ISR, AFTER, other, AFTER), "another leader at last"),
        ((other, AFTER, ISR, AFTER), "another leader at first"),
        ((ISR, AFTER, OLDER, AFTER, ISR, AFTER), "an older state after a newer one"),
        ((ISR, AFTER, STOP), "a replica that is stopped"),
        ((changed(ISR, is_new=True), AFTER), "a replica that is not new"),
        ((changed(ISR, wrong="controller 9"), AFTER), "something wrong"),
    ):
        assert (in_a_failover(KAFKAS_FAILOVER, ours) is None) == (why is not None), why
    assert in_a_failover((changed(ISR, is_new=True), AFTER), (ISR, AFTER)) is None, "a new replica is not called so"
    assert in_a_failover((ISR, GOING, DELETES), (GOING,)) is None, "not deleted"


def test_a_warm_failover_replaces_a_dead_leader_by_one_write() -> None:
    def played(*states: dict[str, Any]) -> list[Moment]:
        moments = play(((), states[0]), ((1,), states[1]))
        for term, each in enumerate(moments):
            each.znodes = each.znodes | {paths.CONTROLLER_EPOCH: term}
        return moments

    before = state(1, 0, (1, 2, 3))
    kafka, ours = played(before, state(2, 2, (2, 3))), played(before, state(2, 1, (2, 3)))
    ledger = Ledger()
    assert disagreements(kafka, ours, ledger, warm=True) == []
    assert ledger.fired["elected and shrunk in one write by a warm failover"] == 1
    assert disagreements(kafka, ours, Ledger())
    assert disagreements(kafka, played(before, state(2, 0, (2, 3))), Ledger(), warm=True), "no write"
    assert disagreements(played(before, state(2, 3, (2, 3))), ours, Ledger(), warm=True), "two less"
    assert disagreements(kafka, played(before, state(-1, 1, (2, 3))), Ledger(), warm=True), "no leader"


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


def test_ways_part_where_a_topic_is_gone_although_a_broker_is_away() -> None:
    waits: dict[str, Any] = {
        paths.DELETE_TOPICS: ["a"],
        "a-0 replicas": {"replicas": (1, 4), "adding": (), "removing": ()},
        "a-0 state": {"leader": -1, "isr": [4], "leader_epoch": 1, "partition_epoch": 1, "controller_epoch": 0},
    }
    gone: dict[str, Any] = {paths.DELETE_TOPICS: []}

    def compared(*ours: Sent, **observed: Any) -> tuple[list[Disagreement], list[str]]:
        theirs, own = moment(STOP, **waits), moment(*ours, **gone)
        for one in (theirs, own):
            one.live = {WITNESS: tuple((n, None, ()) for n in observed["alive"])}
        return compare(theirs, own)

    delete = changed(STOP, delete=True)
    assert compared(delete, alive=(1, 2)) == ([], [GONE])
    assert compared(delete, alive=(1, 2, 4))[0], "no broker is away"
    assert deletes((delete,))


def test_brokers_delete_what_is_gone_already() -> None:
    """The broker that was away gets StopReplica, by the step at which Kafka sends it."""
    waits: dict[str, Any] = {
        paths.DELETE_TOPICS: ["a"],
        "a-0 replicas": {"replicas": (1, 4), "adding": (), "removing": ()},
        "a-0 state": {"leader": -1, "isr": [4], "leader_epoch": 1, "partition_epoch": 1, "controller_epoch": 0},
    }
    gone: dict[str, Any] = {paths.DELETE_TOPICS: []}
    delete = changed(STOP, delete=True)
    theirs = [moment(delete, **waits), moment(**waits)]
    theirs[1].sent = {(4, "a-0"): (delete,)}
    for sent, agree in (((delete,), True), ((), False)):
        ours = [moment(delete, **gone), moment(**gone)]
        ours[1].sent = {(4, "a-0"): sent} if sent else {}
        for one in (*theirs, *ours):
            one.live = {WITNESS: ((1, None, ()),)}
        found = disagreements(theirs, ours, Ledger())
        assert (not found) == agree


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
    report = of_a_run(ledger)
    (unused,) = [line for line in report.splitlines() if line.startswith("Never fired")]
    assert "shrunk at once" in unused
    assert "said once" not in unused


def test_a_seed_is_a_scenario() -> None:
    first, again = random_scenario(7), random_scenario(7)
    assert [s.text for s in first.steps] == [s.text for s in again.steps]
    assert [s.text for s in first.steps] != [s.text for s in random_scenario(8).steps]
    assert len({scenario.name for scenario in NAMED}) == len(NAMED)
