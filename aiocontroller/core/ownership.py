"""Enforces a single owner: in debug mode, a context raises when a task other than the owner's changes any part of it.

All decisions rely on this: the context changes between two reads only through the consumer itself, even if the consumer
let other tasks run in between.

Every mutable part is replaced by a subclass that checks before each change: attributes, the containers in them, and
what these contain.  A part of a type that is not known here is an error, so that a new one cannot be forgotten.
Outside debug mode nothing here costs anything.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import wraps
from typing import Any

from aiocontroller.core.broken_partitions import BrokenPartitions
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Debt, Ledger
from aiocontroller.core.partitions import Interner, PartitionTable, Topic

Check = Callable[[], None]
"""Raises when the running task is not the owner's."""


class NotTheOwnerError(AssertionError):
    """A task that does not own the context changed it; this is always a bug."""


def owned_context(epoch: int, epoch_zk_version: int, check: Check) -> ControllerContext:
    """An empty context that calls ``check`` before each change."""
    return _OwnedContext(epoch, epoch_zk_version, check=check)


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, preceded by the check; what it puts into a container is owned, too."""

    @wraps(method)
    def first_checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.check()
        return method(self, *args, **kwargs)

    return first_checked


# -- containers --------------------------------------------------------------------------------------------------------


class _OwnedDict(dict[Any, Any]):
    def __init__(self, check: Check, entries: dict[Any, Any]) -> None:
        super().__init__({key: owned(value, check) for key, value in entries.items()})
        self.check = check

    def __setitem__(self, key: Any, value: Any) -> None:
        self.check()
        super().__setitem__(key, owned(value, self.check))

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        self.check()
        super().update({key: owned(value, self.check) for key, value in dict(*args, **kwargs).items()})

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    __delitem__ = _checked(dict.__delitem__)
    clear = _checked(dict.clear)
    pop = _checked(dict.pop)
    popitem = _checked(dict.popitem)


class _OwnedList(list[Any]):
    def __init__(self, check: Check, items: list[Any]) -> None:
        super().__init__(owned(item, check) for item in items)
        self.check = check

    def __setitem__(self, at: Any, value: Any) -> None:
        self.check()
        several = isinstance(at, slice)
        super().__setitem__(at, [owned(item, self.check) for item in value] if several else owned(value, self.check))

    def append(self, item: Any) -> None:
        self.check()
        super().append(owned(item, self.check))

    def extend(self, items: Any) -> None:
        self.check()
        super().extend(owned(item, self.check) for item in items)

    def insert(self, at: Any, item: Any) -> None:
        self.check()
        super().insert(at, owned(item, self.check))

    def __iadd__(self, items: Any) -> Any:  # type: ignore[misc]
        self.extend(items)
        return self

    __delitem__ = _checked(list.__delitem__)
    __imul__ = _checked(list.__imul__)
    clear = _checked(list.clear)
    pop = _checked(list.pop)
    remove = _checked(list.remove)
    reverse = _checked(list.reverse)
    sort = _checked(list.sort)


class _OwnedSet(set[Any]):
    def __init__(self, check: Check, items: set[Any]) -> None:
        super().__init__(items)
        self.check = check

    __iand__ = _checked(set.__iand__)
    __ior__ = _checked(set.__ior__)
    __isub__ = _checked(set.__isub__)
    __ixor__ = _checked(set.__ixor__)
    add = _checked(set.add)
    clear = _checked(set.clear)
    difference_update = _checked(set.difference_update)
    discard = _checked(set.discard)
    intersection_update = _checked(set.intersection_update)
    pop = _checked(set.pop)
    remove = _checked(set.remove)
    symmetric_difference_update = _checked(set.symmetric_difference_update)
    update = _checked(set.update)


class _OwnedArray(array):  # type: ignore[type-arg]
    check: Check

    def __new__(cls, check: Check, items: array[int]) -> _OwnedArray:
        made = super().__new__(cls, items.typecode, items)
        made.check = check
        return made

    __delitem__ = _checked(array.__delitem__)
    __iadd__ = _checked(array.__iadd__)
    __imul__ = _checked(array.__imul__)
    __setitem__ = _checked(array.__setitem__)
    append = _checked(array.append)
    byteswap = _checked(array.byteswap)
    extend = _checked(array.extend)
    frombytes = _checked(array.frombytes)
    fromfile = _checked(array.fromfile)
    fromlist = _checked(array.fromlist)
    fromunicode = _checked(array.fromunicode)
    insert = _checked(array.insert)
    pop = _checked(array.pop)
    remove = _checked(array.remove)
    reverse = _checked(array.reverse)


# -- objects -----------------------------------------------------------------------------------------------------------


class _Owned:
    """Checks before each attribute is set, and owns what is set.  Comes before the class that it makes owned."""

    check: Check

    def __init__(self, *args: Any, check: Check) -> None:
        object.__setattr__(self, "check", check)
        super().__init__(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        self.check()
        super().__setattr__(name, owned(value, self.check))

    def __delattr__(self, name: str) -> None:
        self.check()
        super().__delattr__(name)


class _OwnedTopic(_Owned, Topic):
    pass


class _OwnedDebt(_Owned, Debt):
    pass


class _OwnedInterner(_Owned, Interner[Any]):
    pass


class _OwnedBrokenPartitions(_Owned, BrokenPartitions):
    pass


class _OwnedTable(_Owned, PartitionTable):
    def _new_topic(self, number: int, name: str, topic_id: bytes) -> Topic:
        return _OwnedTopic(number, name, topic_id, check=self.check)


class _OwnedLedger(_Owned, Ledger):
    def _new_debt(self, broker: int, topic: str, topic_id: bytes, partition: int) -> Debt:
        return _OwnedDebt(broker, topic, topic_id, partition, check=self.check)


class _OwnedContext(_Owned, ControllerContext):
    pass


_EMPTY_PARTS = {
    PartitionTable: _OwnedTable,
    Ledger: _OwnedLedger,
    Interner: _OwnedInterner,
    BrokenPartitions: _OwnedBrokenPartitions,
}
"""Parts that are made empty, and so are replaced by an empty owned one."""
_IMMUTABLE = frozenset((bool, int, float, str, bytes, type(None), frozenset))
_OWNED = (_Owned, _OwnedDict, _OwnedList, _OwnedSet, _OwnedArray)
_CONTAINERS: dict[Any, Any] = {dict: _OwnedDict, list: _OwnedList, set: _OwnedSet, array: _OwnedArray}


def owned(part: Any, check: Check) -> Any:
    """The part itself if it cannot change or is owned already, else an owned copy; TypeError for other types."""
    kind = type(part)
    if kind in _IMMUTABLE:
        return part
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](check, part)
    if kind in _EMPTY_PARTS:
        assert not len(part), part
        return _EMPTY_PARTS[kind](check=check)
    if _may_change_unseen(part):
        raise TypeError(f"a context holds a {kind.__name__}, expected an immutable value or a type of ownership.py")
    return part


def _may_change_unseen(value: Any) -> bool:
    """Whether the value is neither immutable nor owned.

    Named tuples and frozen structs compare by their values, and so have a hash of their own; containers that may change
    have none, and other objects that of ``object``.
    """
    if isinstance(value, _OWNED) or type(value) in _IMMUTABLE:
        return False
    if isinstance(value, tuple):
        return any(map(_may_change_unseen, value))
    hashed: Any = type(value).__hash__
    return hashed is None or hashed is object.__hash__
