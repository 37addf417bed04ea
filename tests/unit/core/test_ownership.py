"""In debug mode every change of the context and its table asks first whose task this is."""

from __future__ import annotations

import ast
import inspect
import textwrap

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import Broker, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.ownership import NotTheOwnerError, _OwnedTable, owned_context
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.core.states import PartitionState


class Owner:
    def __init__(self) -> None:
        self.here = True
        self.asked = 0

    def check(self) -> None:
        self.asked += 1
        if not self.here:
            raise NotTheOwnerError("another task")


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def context(owner: Owner) -> ControllerContext:
    made = owned_context(7, 3, owner.check)
    topic = made.table.add_topic("t", bytes(15) + b"\1")
    made.table.add_partitions(topic, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))})
    made.add_brokers([Broker(1, 10, ()), Broker(2, 20, ())])
    return made


def test_the_owner_changes_what_it_likes(context: ControllerContext) -> None:
    assert (context.epoch, context.epoch_zk_version, len(context.table)) == (7, 3, 2)
    context.loaded = True
    context.partitions_being_reassigned[1] = None
    context.table.set_leadership(0, LeaderAndIsr(1, 0, (1, 2), 7, 0))
    context.remove_topic(context.table.topic_by_name["t"])
    assert not context.partitions_being_reassigned
    assert len(context.table) == 0


def test_no_other_task_changes_the_context(context: ControllerContext, owner: Owner) -> None:
    owner.here = False
    with pytest.raises(NotTheOwnerError):
        context.loaded = True
    with pytest.raises(NotTheOwnerError):
        context.partitions_being_reassigned[1] = None
    with pytest.raises(NotTheOwnerError):
        context.topics_to_be_deleted.pop("t", None)
    with pytest.raises(NotTheOwnerError):
        context.left_behind.setdefault(1, {})
    with pytest.raises(NotTheOwnerError):
        context.brokers |= {}
    with pytest.raises(NotTheOwnerError):
        context.begin_shutdown(1)
    with pytest.raises(NotTheOwnerError):
        context.table.set_state([0], PartitionState.OnlinePartition)
    with pytest.raises(NotTheOwnerError):
        context.table.set_leadership(0, LeaderAndIsr(1, 0, (1, 2), 7, 0))
    assert context.brokers.keys() == {1, 2}
    assert context.table.leadership(0) is None


def test_others_may_read(context: ControllerContext, owner: Owner) -> None:
    owner.here = False
    assert context.table.replicas(1) == (2, 1)
    assert context.is_replica_online(0, 1)
    assert list(context.brokers) == [1, 2]


def test_every_setter_of_the_table_asks() -> None:
    """The list is by hand: a public method that writes must be in it, or call one that is."""
    for name, method in inspect.getmembers(PartitionTable, inspect.isfunction):
        if name.startswith("_") or name in _OwnedTable.CHANGES:
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
        for node in ast.walk(tree):
            writes = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
            puts = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "put"
            unlisted = writes or puts
            assert not unlisted, f"{name} changes the table: it belongs into CHANGES"
