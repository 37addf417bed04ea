"""Many partitions at once: the same bytes as one by one (which ``test_control_encoders`` holds against kio)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.wire import topic_states
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.leader_and_isr import LeaderAndIsrEncoder
from aiocontroller.wire.state_matrix import StateMatrix
from aiocontroller.wire.topic_states import Cores
from aiocontroller.wire.update_metadata import UpdateMetadataEncoder
from tests.unit.wire.generated import assignments, leaderships, names, tables, versions


@contextmanager
def many_are(partitions: int) -> Iterator[list[StateMatrix]]:
    """Requests of so many partitions go by a matrix, however wide; yields those that were used."""
    used: list[StateMatrix] = []

    class Watched(StateMatrix):
        def states(self, *arguments: Any) -> Any:
            used.append(self)
            return super().states(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_states, "MANY", partitions)
        patch.setattr(topic_states, "WIDEST", 10_000)
        patch.setattr(topic_states, "StateMatrix", Watched)
        yield used


@st.composite
def tables_at_rest(draw: st.DrawFn) -> tuple[PartitionTable, list[int]]:
    """As a failover reads them: each topic's rows together, each with leadership; some of the rows, ascending."""
    table = PartitionTable()
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        topic = table.add_topic(name, draw(st.binary(min_size=16, max_size=16)))
        numbers = draw(st.lists(st.integers(0, 300), min_size=1, max_size=6, unique=True))
        for row in table.add_partitions(topic, {number: draw(assignments()) for number in numbers}):
            table.set_leadership(row, draw(leaderships(table.replicas(row))))
    rows = [row for row in table.rows() if draw(st.integers(0, 3))]
    return table, rows or list(table.rows())


def leader_and_isr(version: int, table: PartitionTable, rows: Sequence[int], **more: Any) -> bytes:
    encoder = LeaderAndIsrEncoder(version, controller_id=1, controller_epoch=2, table=table, rows=rows, **more)
    return encoder.body().for_broker(3)


def update_metadata(version: int, table: PartitionTable, rows: Sequence[int], **more: Any) -> bytes:
    encoder = UpdateMetadataEncoder(
        version, controller_id=1, controller_epoch=2, table=table, rows=rows, live_brokers=(), **more
    )
    return encoder.body().for_broker(3)


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_leader_and_isr(version: int, data: st.DataObject) -> None:
    table, rows = data.draw(tables_at_rest())
    new = {row for row in rows if data.draw(st.integers(0, 3)) == 0}
    live = [(b, "host", 9092) for b in range(5)]
    expected = leader_and_isr(version, table, rows, new=new, live_leaders=live)
    with many_are(1) as used:
        assert leader_and_isr(version, table, rows, new=new, live_leaders=live) == expected
        cores = Cores(table.rows())
        for _ in range(2):
            assert leader_and_isr(version, table, rows, new=new, live_leaders=live, cores=cores) == expected
    assert len(used) == (3 if version >= 2 else 0)
    assert used[1:2] == used[2:], "the second request takes what the first has packed"


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_update_metadata(version: int, data: st.DataObject) -> None:
    table, rows = data.draw(tables_at_rest())
    live = {b for b in range(10) if data.draw(st.integers(0, 3))} | set(range(10, 200))
    offline_dirs = {
        b: {row for row in rows if data.draw(st.integers(0, 3)) == 0} for b in range(3) if data.draw(st.booleans())
    }
    expected = update_metadata(version, table, rows, live=live, offline_dirs=offline_dirs)
    with many_are(1) as used:
        cores = Cores(rows)
        for shared in (None, cores, cores):
            found = update_metadata(version, table, rows, live=live, offline_dirs=offline_dirs, cores=shared)
            assert found == expected
    assert len(used) == (3 if version >= 5 else 0)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_the_table_holds(data: st.DataObject) -> None:
    """Rows of topics interleaved, rows in any order, partitions without leadership, topics on their way out."""
    table, rows = data.draw(tables())
    led = [row for row in rows if table.isr_of[row] >= 0]
    expected = [update_metadata(8, table, rows, live=range(10)), leader_and_isr(7, table, led)]
    with many_are(1):
        for wanted in ((), sorted(led), sorted(led)[1:]):
            cores = Cores(wanted)
            assert update_metadata(8, table, rows, live=range(10), cores=cores) == expected[0]
            assert leader_and_isr(7, table, led, cores=cores) == expected[1]


def test_table_still_grows_afterwards() -> None:
    """An array that lends its memory to numpy cannot."""
    table = PartitionTable()
    topic = table.add_topic("t")
    rows = table.add_partitions(topic, {n: ReplicaAssignment((1, 2)) for n in range(topic_states.MANY)})
    for row in rows:
        table.set_leadership(row, LeaderAndIsr(1, 0, (1, 2), 1, 0))
    cores = Cores(rows)
    before = leader_and_isr(7, table, rows, cores=cores)
    assert cores.matrices[True] is not None
    table.add_partitions(topic, {topic_states.MANY: ReplicaAssignment((1,))})
    assert leader_and_isr(7, table, rows, cores=cores) == before


def test_one_long_list_of_replicas_does_not_widen_all() -> None:
    table = PartitionTable()
    many = {n: ReplicaAssignment((1, 2)) for n in range(topic_states.MANY)}
    rows = table.add_partitions(table.add_topic("t"), many | {0: ReplicaAssignment(tuple(range(100)))})
    for row in rows:
        table.set_leadership(row, LeaderAndIsr(1, 0, (1, 2), 1, 0))
    with many_are(topic_states.MANY) as used:
        expected = leader_and_isr(7, table, rows)
    assert used
    cores = Cores(rows)
    assert leader_and_isr(7, table, rows, cores=cores) == expected
    assert cores.matrices[True] is None
