"""What a sick broker loses, partition by partition, and what it keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.alter_partition import check_partition
from aiocontroller.core.context import ControllerContext, SickBroker
from aiocontroller.core.election import Strategy, elect
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker
from aiocontroller.core.leader_preferences import LeaderPreferences
from aiocontroller.core.leadership_changes import LeadershipFacts
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.core.sick_brokers import MinIsrs, SickReplicas, held_by
from tests.builders import ctx, lead, row_of

SICK = 2


def sick_context(*replicas: list[int], brokers: int = 4) -> ControllerContext:
    """Partitions t-0, t-1, … with these replicas, all in sync, each led by its first."""
    context = ctx(brokers, {"t": list(replicas)})
    context.set_sick(SickBroker(SICK, 102))
    return context


def relieved(context: ControllerContext, min_isr: int = 1) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Row -> (leader, ISR) of what would be written."""
    change = SickReplicas(SICK, held_by(context, SICK), MinIsrs(min_isr, {}))
    decisions = change.plan(context, list(change.undecided), LeadershipFacts()).decisions
    for row, leadership in zip(decisions.rows, decisions.leaderships, strict=True):
        assert leadership.leader_epoch == context.table.leader_epoch[row] + 1
        assert leadership.partition_epoch == context.table.partition_epoch[row]
    assert decisions.recipients == [context.table.replicas(row) for row in decisions.rows]
    return {row: (w.leader, w.isr) for row, w in zip(decisions.rows, decisions.leaderships, strict=True)}


def test_leaders_move_and_isrs_shrink() -> None:
    context = sick_context([2, 1, 3], [1, 2, 3], [1, 3])
    assert relieved(context) == {0: (1, (1, 3)), 1: (1, (1, 3))}


@pytest.mark.parametrize("min_isr, expected", [(1, (1, (1, 3))), (2, (1, (1, 3))), (3, None)])
def test_never_below_min_isr(min_isr: int, expected: tuple[int, tuple[int, ...]] | None) -> None:
    assert relieved(sick_context([2, 1, 3]), min_isr).get(0) == expected


def test_a_topic_may_have_a_min_isr_of_its_own() -> None:
    context = ctx(4, {"t": [[2, 1, 3]], "u": [[2, 1, 3]]})
    change = SickReplicas(SICK, held_by(context, SICK), MinIsrs(3, {"u": 2}))
    assert change.plan(context, [0, 1], LeadershipFacts()).decisions.rows == [row_of(context, "u-0")]
    assert MinIsrs(0, {}).of("t") == 1


def test_members_that_are_not_online_do_not_count() -> None:
    context = sick_context([2, 1, 3])
    context.begin_shutdown(3)
    assert relieved(context, 2) == {}
    assert relieved(context, 1) == {0: (1, (1, 3))}


def test_the_only_replica_stays() -> None:
    context = sick_context([2], [2, 1])
    lead(context, "t-1", 2, (2,))
    assert relieved(context) == {}
    assert context.leads_any(SICK)


def test_a_follower_stays_where_the_leader_is_not_online() -> None:
    context = sick_context([1, 2, 3])
    context.suspect([1])
    assert relieved(context) == {}


def test_a_partition_that_moves_away_is_not_led_by_a_replica_that_goes() -> None:
    context = sick_context([2, 1, 3])
    context.table.set_assignment(0, context.table.assignment(0).reassign_to([2, 3]))
    assert relieved(context) == {0: (3, (1, 3))}
    context.table.set_assignment(0, context.table.assignment(0).reassign_to([2]))
    assert relieved(context) == {}


def test_what_was_relieved_once_or_is_deleted_is_left_alone() -> None:
    context = ctx(4, {"t": [[2, 1, 3]], "u": [[2, 1, 3]], "gone": [[2, 1, 3]]})
    context.queue_topic_deletion(["gone"])
    context.set_sick(SickBroker(SICK, 102, frozenset({1})))
    assert held_by(context, SICK) == [0]
    context.remove_topic(context.table.topic_by_name["u"])
    assert context.sick is not None
    assert context.sick.relieved == frozenset(), "the row may be another partition's soon"


def in_racks(context: ControllerContext, **racks: str) -> None:
    context.add_brokers(
        Broker(number, broker.epoch, broker.endpoints, racks.get(f"b{number}"))
        for number, broker in list(context.brokers.items())
    )


def test_never_against_an_operators_pin() -> None:
    context = sick_context([2, 1, 3], [1, 2, 3])
    in_racks(context, b1="far", b2="near", b3="far")
    context.leader_preferences = LeaderPreferences(racks=frozenset({"near"}), sick=SICK)
    assert relieved(context) == {1: (1, (1, 3))}, "only broker 2 is in the preferred rack"
    in_racks(context, b1="far", b2="near", b3="near")
    assert relieved(context)[0] == (3, (1, 3))
    context.leader_preferences = LeaderPreferences(avoided=frozenset({1, 3}), sick=SICK)
    assert 0 not in relieved(context)


@pytest.mark.parametrize("strategy", [Strategy.OFFLINE, Strategy.REASSIGN])
def test_a_sick_broker_is_the_last_choice_of_elections(strategy: Strategy) -> None:
    context = sick_context([2, 1, 3])
    lead(context, "t-0", -1, (2, 3))
    assert [o.leader for o in elect(context, [0], strategy).outcomes] == [3]
    lead(context, "t-0", -1, (2,))
    assert [o.leader for o in elect(context, [0], strategy).outcomes] == [2], "better than none"
    lead(context, "t-0", 3, (2, 3))
    assert elect(context, [0], Strategy.PREFERRED).rows == [], "the preferred leader is another one now"
    context.set_sick(None)
    assert [o.leader for o in elect(context, [0], Strategy.PREFERRED).outcomes] == [2]


@pytest.mark.parametrize(
    "isr, asked, version, code",
    [
        ((1, 3), (1, 3, 2), 3, KafkaErrorCode.INELIGIBLE_REPLICA),
        ((1, 3), (1, 3, 2), 1, KafkaErrorCode.OPERATION_NOT_ATTEMPTED),
        ((1, 3), (1, 3, 2), 0, KafkaErrorCode.NONE),  # such a leader would wait for ever
        ((1, 2), (1, 2, 3), 3, KafkaErrorCode.NONE),  # where it had to stay, others may join
        ((1, 2, 3), (1, 3), 3, KafkaErrorCode.NONE),
    ],
)
def test_a_sick_broker_does_not_join_an_isr(
    isr: tuple[int, ...], asked: tuple[int, ...], version: int, code: KafkaErrorCode
) -> None:
    context = sick_context([1, 2, 3])
    lead(context, "t-0", 1, isr)
    assert check_partition(context, AlterPartition("t", 0, 0, asked, 0, 0), 1, version).error_code == code


def test_it_is_unlisted_only_while_it_leads_nothing() -> None:
    context = sick_context([2, 1, 3])

    def listed() -> list[int]:
        return [broker.id for broker in context.listed()]

    assert listed() == [1, 2, 3, 4]
    context.set_sick(SickBroker(SICK, 102, unlisted=True))
    assert listed() == [1, 2, 3, 4]
    lead(context, "t-0", 1, (1, 3))
    assert listed() == [1, 3, 4]
    context.remove_brokers([SICK])
    assert (context.sick, listed(), context.leader_preferences.sick) == (None, [1, 3, 4], None)


REPLICAS = st.permutations([1, 2, 3, 4]).flatmap(lambda p: st.integers(1, 4).map(lambda n: list(p[:n])))


@given(st.data(), REPLICAS, st.integers(1, 4), st.sets(st.sampled_from([1, 3, 4])), st.sets(st.sampled_from([1, 3])))
def test_what_is_written_keeps_every_limit(
    data: st.DataObject, replicas: list[int], min_isr: int, suspected: set[int], avoided: set[int]
) -> None:
    context = sick_context(replicas)
    isr = tuple(data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    leader = data.draw(st.sampled_from(isr))
    lead(context, "t-0", leader, isr)
    context.suspect(sorted(suspected))
    context.leader_preferences = LeaderPreferences(avoided=frozenset(avoided), sick=SICK)
    written = relieved(context, min_isr).get(0)
    online = [r for r in isr if r != SICK and r in context.live]
    if written is None:
        held = SICK not in isr or len(online) < min_isr or (leader != SICK and leader not in context.live)
        assert held or (leader == SICK and avoided.issuperset(online))
    else:
        assert written[1] == tuple(r for r in isr if r != SICK)
        assert len(online) >= min_isr
        assert written[0] in online
        assert leader in (SICK, written[0])
        assert leader != SICK or not (written[0] in avoided and not avoided.issuperset(online))
