"""Plans keep what they promise, on any cluster; and they move no more than a deliberately simple count allows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.replica_plans import (
    Assignment,
    Layout,
    balance_bytes,
    balance_leaders,
    balance_replicas,
    cost,
    drain,
    raise_replication_factor,
    repair_racks,
)

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@st.composite
def layouts(draw: st.DrawFn, *, racks: bool | None = None, dead: bool = True, fixed: bool = True) -> Layout:
    """Some brokers, in racks or not, some of them dead; partitions of which some may not change."""
    ids = draw(st.lists(st.integers(0, 12), min_size=2, max_size=7, unique=True))
    in_racks = draw(st.booleans()) if racks is None else racks
    rack_of = {b: draw(st.sampled_from("abc")) if in_racks else None for b in ids}
    everybody = [*ids, 99] if dead else ids
    found = draw(
        st.lists(st.lists(st.sampled_from(everybody), min_size=1, max_size=4, unique=True), min_size=1, max_size=14)
    )
    replicas = {TopicPartition("ab"[n % 2], n // 2): tuple(own) for n, own in enumerate(found)}
    kept = draw(st.sets(st.sampled_from(sorted(replicas)))) if fixed else set[TopicPartition]()
    sizes = {tp: draw(st.integers(0, 50)) for tp in sorted(replicas) if draw(st.booleans())}
    return Layout(
        {tp: own for tp, own in replicas.items() if tp not in kept},
        rack_of,
        sizes,
        {tp: replicas[tp] for tp in sorted(kept)},
    )


def after(layout: Layout, plan: Assignment) -> Assignment:
    return {**layout.fixed, **layout.replicas, **plan}


def spread(layout: Layout, replicas: tuple[int, ...]) -> int:
    return len({layout.racks[broker] for broker in replicas if broker in layout.racks})


def moved(layout: Layout, plan: Assignment) -> int:
    return sum(len(set(now) - set(layout.replicas[tp])) for tp, now in plan.items())


def check(layout: Layout, plan: Assignment, *, racks_kept: bool = True) -> None:
    """What holds of every plan that does not change the replication factor."""
    for tp, now in plan.items():
        before = layout.replicas[tp]
        assert now != before, "it names partitions that change, and no others"
        assert len(now) == len(before)
        assert len(set(now)) == len(now)
        assert set(now) - set(before) <= set(layout.racks), "new replicas are on live brokers"
        if racks_kept:
            assert spread(layout, now) >= spread(layout, before)
    assert list(plan) == sorted(plan)


# -- draining ----------------------------------------------------------------------------------------------------------


@given(layouts(), st.data())
def test_a_drained_broker_is_empty_and_each_of_its_replicas_moves_once(layout: Layout, data: st.DataObject) -> None:
    everybody = sorted({*layout.racks, 99})
    leaving = data.draw(st.sets(st.sampled_from(everybody), min_size=1, max_size=len(everybody)))
    remaining = [broker for broker in layout.racks if broker not in leaving]
    concerned = {tp: own for tp, own in layout.replicas.items() if leaving.intersection(own)}
    if any(len(set(own) - leaving - set(remaining)) + len(remaining) < len(own) for own in concerned.values()):
        with pytest.raises(BadInputError, match="expected a broker for each"):
            drain(layout, leaving)
        return
    plan = drain(layout, leaving)
    check(layout, plan, racks_kept=False)
    assert set(plan) == set(concerned)
    assert moved(layout, plan) == sum(len(leaving.intersection(own)) for own in concerned.values())
    for tp, now in plan.items():
        assert not leaving.intersection(now)
        kept = [broker for broker in layout.replicas[tp] if broker not in leaving]
        assert [broker for broker in now if broker in kept] == kept, "who stays keeps its place"
        possible = {layout.racks[broker] for broker in remaining} | {layout.racks.get(b) for b in kept} - {None}
        assert spread(layout, now) >= min(spread(layout, layout.replicas[tp]), len(possible)) or not any(
            layout.racks.values()
        )


def test_drained_leaders_go_to_whom_few_prefer() -> None:
    layout = Layout({T0: (1, 2), T1: (2, 3), T2: (1, 2)}, {1: None, 2: None, 3: None})
    assert drain(layout, {1}) == {T0: (3, 2), T2: (3, 2)}


def test_too_many_replicas_to_drain_are_named() -> None:
    layout = Layout({T0: (1, 2, 3)}, {1: None, 2: None, 3: None})
    with pytest.raises(BadInputError, match="t-0: found 3 replicas for 2 brokers, expected a broker for each"):
        drain(layout, {1})


# -- replication factor and racks --------------------------------------------------------------------------------------


@given(layouts(), st.integers(1, 8))
def test_a_replication_factor_is_raised_by_what_is_missing(layout: Layout, factor: int) -> None:
    if factor > len(layout.racks):
        with pytest.raises(BadInputError, match=f"replication factor: found {factor}"):
            raise_replication_factor(layout, factor)
        return
    plan = raise_replication_factor(layout, factor)
    assert set(plan) == {tp for tp, own in layout.replicas.items() if len(own) < factor}
    for tp, now in plan.items():
        before = layout.replicas[tp]
        assert now[: len(before)] == before
        assert len(now) == len(set(now)) == factor
        new, racks = now[len(before) :], set(layout.racks.values())
        assert set(new) <= set(layout.racks)
        assert spread(layout, now) == min(len(racks), spread(layout, before) + len(new))


@given(layouts(racks=True))
def test_racks_are_repaired_with_one_move_for_each_that_is_missed(layout: Layout) -> None:
    plan = repair_racks(layout)
    check(layout, plan)
    number = len(set(layout.racks.values()))
    for tp, before in layout.replicas.items():
        now = plan.get(tp, before)
        assert spread(layout, now) == min(len(before), number)
        assert len(set(now) - set(before)) == min(len(before), number) - spread(layout, before)


def test_racks_of_all_brokers_are_needed() -> None:
    with pytest.raises(BadInputError, match=r"racks: found none for brokers \[2, 3\], expected one for each broker"):
        repair_racks(Layout({T0: (1, 2)}, {1: "a", 2: None, 3: None}))


# -- balance -----------------------------------------------------------------------------------------------------------


def counts(layout: Layout, assignment: Assignment) -> list[int]:
    count = Counter(broker for own in assignment.values() for broker in own)
    return [count[broker] for broker in sorted(layout.racks)]


@given(layouts(racks=False, fixed=False))
def test_replicas_are_evened_out_with_the_fewest_moves(layout: Layout) -> None:
    """At least the surplus above the higher share must go, and what is missing to the lower one must come."""
    plan = balance_replicas(layout)
    check(layout, plan)
    before, now = counts(layout, layout.replicas), counts(layout, after(layout, plan))
    assert max(now) - min(now) <= 1
    low, rest = divmod(sum(before), len(before))
    surplus = sum(max(0, count - low - (rest > 0)) for count in before)
    missing = sum(max(0, low - count) for count in before)
    assert moved(layout, plan) == max(surplus, missing)


@given(layouts(), st.sampled_from([balance_replicas, balance_bytes]))
def test_balancing_keeps_racks_and_makes_nothing_worse(layout: Layout, balance: Callable[[Layout], Assignment]) -> None:
    plan = balance(layout)
    check(layout, plan)
    if balance is balance_replicas:
        loads = [counts(layout, assignment) for assignment in (after(layout, {}), after(layout, plan))]
    else:
        loads = [[each.bytes[side] for each in cost(layout, plan).brokers if each.broker != 99] for side in (0, 1)]
    assert max(loads[1]) - min(loads[1]) <= max(loads[0]) - min(loads[0])


@given(layouts(), st.data())
def test_added_brokers_alone_receive(layout: Layout, data: st.DataObject) -> None:
    added = data.draw(st.sets(st.sampled_from(sorted(layout.racks)), min_size=1))
    plan = balance_replicas(layout, added)
    check(layout, plan)
    for tp, now in plan.items():
        assert set(now) - set(layout.replicas[tp]) <= added


def test_a_new_broker_gets_its_share_of_replicas_and_leaders_and_the_smallest_go() -> None:
    six = [TopicPartition("t", n) for n in range(6)]
    sizes = {tp: 10 - tp.partition for tp in six}
    layout = Layout({tp: (1, 2) if tp.partition % 2 else (2, 1) for tp in six}, {1: None, 2: None, 3: None}, sizes)
    plan = balance_replicas(layout, {3})
    found = cost(layout, plan)
    assert [each.replicas[1] for each in found.brokers] == [4, 4, 4]
    assert [each.leaders[1] for each in found.brokers] == [2, 2, 2]
    assert {tp.partition for tp in plan} == {2, 3, 4, 5}
    assert found.bytes == 8 + 7 + 6 + 5


@given(layouts(racks=False, dead=False, fixed=False))
def test_bytes_are_balanced_until_no_replica_fits(layout: Layout) -> None:
    plan = balance_bytes(layout, within_percent=0)
    now = after(layout, plan)
    size = {b: sum(layout.sizes.get(tp, 0) for tp, own in now.items() if b in own) for b in layout.racks}
    for source, target in itertools.permutations(layout.racks, 2):
        for tp, own in now.items():
            weight = layout.sizes.get(tp, 0)
            if weight and source in own and target not in own:
                assert 2 * weight > size[source] - size[target]


@given(layouts(dead=False, fixed=False))
def test_leaders_are_as_even_as_any_order_can_make_them(layout: Layout) -> None:
    """Compared with every choice of a preferred leader for each partition, where these are few."""
    plan = balance_leaders(layout)
    check(layout, plan)
    for tp, now in plan.items():
        assert sorted(now) == sorted(layout.replicas[tp]), "no data moves"
    few = dict(itertools.islice(layout.replicas.items(), 5))
    small = Layout(few, layout.racks)
    found = Counter(own[0] for own in after(small, balance_leaders(small)).values())
    ids = sorted(layout.racks)
    best = min(
        sorted((choice.count(broker) for broker in ids), reverse=True) for choice in itertools.product(*few.values())
    )
    assert sorted((found[broker] for broker in ids), reverse=True) == best


@given(layouts())
def test_leaders_are_balanced_beside_what_is_fixed(layout: Layout) -> None:
    found = cost(layout, balance_leaders(layout))
    before, now = ([each.leaders[side] for each in found.brokers if each.broker != 99] for side in (0, 1))
    assert sum(n * n for n in now) <= sum(n * n for n in before)
    assert found.replicas == 0


# -- the same again ----------------------------------------------------------------------------------------------------


@given(layouts(racks=True, dead=False), st.sampled_from([balance_replicas, balance_leaders, repair_racks]))
def test_a_plan_made_again_after_it_was_carried_out_is_empty(
    layout: Layout, make: Callable[[Layout], Assignment]
) -> None:
    plan = make(layout)
    assert make(Layout({**layout.replicas, **plan}, layout.racks, layout.sizes, layout.fixed)) == {}


@given(layouts(), st.randoms())
def test_the_order_of_the_input_does_not_matter(layout: Layout, chance: object) -> None:
    shuffle = getattr(chance, "shuffle")  # noqa: B009 - hypothesis's own type is not public
    turned = []
    for mapping in layout:
        items = list(mapping.items())
        shuffle(items)
        turned.append(dict(items))
    other = Layout(*turned)
    assert list(balance_replicas(layout).items()) == list(balance_replicas(other).items())
    assert list(balance_leaders(layout).items()) == list(balance_leaders(other).items())


# -- the cost ----------------------------------------------------------------------------------------------------------


def test_the_cost_counts_what_is_copied_and_what_is_not_known() -> None:
    layout = Layout({T0: (1, 2), T1: (2, 1)}, {1: "a", 2: "b", 3: "b"}, {T0: 100}, {T2: (1, 9)})
    found = cost(layout, {T0: (3, 2), T1: (2, 3), TopicPartition("gone", 0): (1,)})
    assert (found.partitions, found.replicas, found.bytes, found.unsized) == (2, 2, 100, 1)
    assert (found.preferred, found.narrower) == (1, 2)
    assert [
        (each.broker, each.rack, each.leaders, each.replicas, each.bytes, each.receives) for each in found.brokers
    ] == [
        (1, "a", (2, 1), (3, 1), (100, 0), 0),
        (2, "b", (1, 1), (2, 2), (100, 100), 0),
        (3, "b", (0, 1), (0, 2), (0, 100), 100),
        (9, None, (0, 0), (1, 1), (0, 0), 0),
    ]
