"""In debug mode every change of the context, its table and their parts asks first whose task this is."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiocontroller.core import ownership
from aiocontroller.core.broken_partitions import BrokenPartitions
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Debt, Ledger
from aiocontroller.core.ids import Broker, Eligible, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.ownership import NotTheOwnerError, owned, owned_context
from aiocontroller.core.partitions import Interner, PartitionTable, Topic
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
    """Each container has something in it, so that what containers contain is looked at, too."""
    made = owned_context(7, 3, owner.check)
    topic = made.table.add_topic("t", bytes(15) + b"\1")
    made.table.add_partitions(topic, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))})
    for name in ("one", "another"):
        sharing = made.table.add_topic(name, bytes(15) + b"\2")
        made.table.add_partitions(sharing, {0: ReplicaAssignment((3,))})
    for name in ("broken", "unread"):
        made.table.add_partitions(made.table.add_topic(name), {0: ReplicaAssignment((1, 2))})
        made.table.set_leadership(made.table.row(name, 0), LeaderAndIsr(1, 0, (1,), 7, 0))
        made.table.set_state([made.table.row(name, 0)], PartitionState.OfflinePartition)
    made.table.broken.set_min_isrs(made.table, {"broken": 2})
    gone = made.table.add_topic("gone")
    made.table.add_partitions(gone, {0: ReplicaAssignment((1, 2))})
    made.table.remove_topic(gone)
    made.table.set_leadership(0, LeaderAndIsr(1, 0, (1, 2), 7, 0, 0, Eligible(0, ((3, 30),))))
    made.table.set_state([1], PartitionState.NewPartition)
    made.debts.set(1, "t", {0: b"earlier".ljust(16)}, 4)
    made.hold_back([0])
    made.add_brokers([Broker(1, 10, ()), Broker(2, 20, ()), Broker(4, 40, ())])
    made.remove_brokers([4], listed=True)
    made.begin_shutdown(2)
    made.suspect([2])
    made.leave_behind({1: [0]})
    made.begin_reassignments([0, 1], cancelled=[0])
    made.tell_of_reassignments([], untold=[1])
    made.queue_topic_deletion(["t"])
    made.begin_topic_deletion(["t"])
    made.mark_topics_ineligible_for_deletion(["t"])
    made.deletions_undecided = ["t"]
    made.deletions_watched = (topic,)
    made.debt_parents = {1: 0}
    made.debt_attempts = {1: 1}
    made.read_with_non_replicas = {0: (3,)}
    return made


def test_the_owner_changes_what_it_likes(context: ControllerContext) -> None:
    assert (context.epoch, context.epoch_zk_version, len(context.table)) == (7, 3, 6)
    context.loaded = True
    context.partitions_being_reassigned[1] = None
    context.table.set_leadership(0, LeaderAndIsr(1, 0, (1, 2), 7, 0))
    context.remove_topic(context.table.topic_by_name["t"])
    assert not context.partitions_being_reassigned
    assert len(context.table) == 4


def test_others_may_read(context: ControllerContext, owner: Owner) -> None:
    owner.here = False
    assert context.table.replicas(1) == (2, 1)
    assert context.is_replica_online(1, 1)
    assert list(context.brokers) == [1, 2]
    assert context.table.isrs.id((1, 2)) >= 0, "a value that is known"


CHANGES: dict[str, Callable[[ControllerContext], object]] = {
    "an attribute": lambda c: setattr(c, "loaded", True),
    "a dict": lambda c: c.partitions_being_reassigned.pop(1),
    "a debt's znode": lambda c: c.debts.set(1, "u", {0: bytes(16)}, 0),
    "a debt": lambda c: setattr(next(iter(c.debts)), "asked", True),
    "a set in a dict": lambda c: c.held_back[1].add(5),
    "a dict in a dict": lambda c: c.left_behind[0].__setitem__(5, None),
    "a list": lambda c: c.deletions_undecided.append("u"),
    "a topic": lambda c: setattr(c.table.topic_by_name["t"], "deleting", False),
    "a topic's rows": lambda c: c.table.topic_by_name["t"].rows.append(7),
    "a topic in a tuple": lambda c: setattr(c.deletions_watched[0], "deleting", False),
    "a new value": lambda c: c.table.isrs.id((2,)),
    "a column": lambda c: c.table.state.__setitem__(0, 0),
    "a gauge": lambda c: c.table.count_by_state.__setitem__(0, 7),
    "an index": lambda c: c.table._rows_of_assignment[0].append(7),
    "a method": lambda c: c.table.set_state([0], PartitionState.OnlinePartition),
    "what is broken": lambda c: c.table.broken.offline.__setitem__(0, 7),
    "the time": lambda c: setattr(c.table.broken, "now_us", 7),
    "brokers": lambda c: c.remove_brokers([1]),
    "departed brokers": lambda c: c.unlist(4),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_other_task_changes(change: str, context: ControllerContext, owner: Owner) -> None:
    owner.here = False
    with pytest.raises(NotTheOwnerError):
        CHANGES[change](context)
    owner.here = True
    CHANGES[change](context)


# -- nothing is forgotten ----------------------------------------------------------------------------------------------

OBJECTS = (ControllerContext, PartitionTable, BrokenPartitions, Ledger, Interner, Topic, Debt)


def attributes(part: Any) -> list[str]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    return sorted({*vars(part), *slots}.difference(("check",)) if hasattr(part, "__dict__") else set(slots))


def parts(part: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The part, and all that it consists of, with their paths."""
    yield path, part
    if isinstance(part, OBJECTS):
        for name in attributes(part):
            yield from parts(getattr(part, name), f"{path}.{name}")
    elif isinstance(part, dict):
        for key, value in part.items():
            yield from parts(value, f"{path}[{key!r}]")
    elif isinstance(part, list | tuple) and not hasattr(part, "_fields"):
        for at, value in enumerate(part):
            yield from parts(value, f"{path}[{at}]")


def test_every_attribute_and_every_part_of_it_asks(context: ControllerContext, owner: Owner) -> None:
    seen = 0
    owner.here = False
    for path, part in list(parts(context, "context")):
        if isinstance(part, OBJECTS):
            for name in attributes(part):
                with pytest.raises(NotTheOwnerError):
                    setattr(part, name, getattr(part, name))
                seen += 1
        elif isinstance(part, dict | list | set | array):
            assert part, f"{path} is empty: the fixture is to put something into it"
            assert type(part).__module__ == ownership.__name__, path
    assert seen > 60


READS: dict[Any, str] = {
    dict: "copy fromkeys get items keys values __or__ __ror__ __class_getitem__ __contains__ __getitem__ __reversed__",
    list: "copy count index __add__ __mul__ __rmul__ __class_getitem__ __contains__ __getitem__ __reversed__",
    set: "copy difference intersection isdisjoint issubset issuperset symmetric_difference union __and__ __or__ "
    "__sub__ __xor__ __rand__ __ror__ __rsub__ __rxor__ __class_getitem__ __contains__",
    array: "buffer_info count index itemsize tobytes tofile tolist tounicode typecode __add__ __mul__ __rmul__ "
    "__copy__ __deepcopy__ __class_getitem__ __contains__ __getitem__",
}
OF_ALL_OBJECTS = {*dir(object), "__iter__", "__len__", "__hash__", "__module__", "__doc__"}


@pytest.mark.parametrize("kind", READS)
def test_every_method_of_a_container_reads_or_asks(kind: type) -> None:
    """A method of a later Python that changes the container would be found here."""
    mine = {
        dict: ownership._OwnedDict,
        list: ownership._OwnedList,
        set: ownership._OwnedSet,
        array: ownership._OwnedArray,
    }
    unknown = set(dir(kind)).difference(OF_ALL_OBJECTS, READS[kind].split(), vars(mine[kind]))
    assert unknown == set()


def test_part_of_an_unknown_type_is_an_error(context: ControllerContext) -> None:
    class Thing:
        pass

    for part in (bytearray(), Thing(), (1, Thing()), {1: Thing()}):
        with pytest.raises(TypeError, match="a context holds a"):
            context.offline_dirs = part  # type: ignore[assignment]


def test_what_cannot_change_is_no_copy(owner: Owner) -> None:
    for part in (1, "a", b"a", (1, (2,)), frozenset((1,)), None, ReplicaAssignment((1,)), Broker(1, 2, ())):
        assert owned(part, owner.check) is part
