"""Enforces a single owner: in debug mode, a context and its table raise when a task other than the owner's changes

them. All decisions rely on this: the context changes between two reads only through the consumer itself, even if the
consumer let other tasks run in between.  Outside debug mode nothing here costs anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, TypeVar

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.partitions import PartitionTable

K = TypeVar("K")
V = TypeVar("V")
Check = Callable[[], None]
"""Raises when the running task is not the owner's."""


class NotTheOwnerError(AssertionError):
    """A task that does not own the context changed it; this is always a bug."""


def owned_context(epoch: int, epoch_zk_version: int, check: Check) -> ControllerContext:
    """An empty context that calls ``check`` before each change."""
    return _OwnedContext(epoch, epoch_zk_version, check)


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def first_checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.check()
        return method(self, *args, **kwargs)

    return first_checked


class _OwnedDict(dict[K, V]):
    def __init__(self, check: Check, entries: dict[K, V]) -> None:
        super().__init__(entries)
        self.check = check

    __setitem__ = _checked(dict.__setitem__)
    __delitem__ = _checked(dict.__delitem__)
    __ior__ = _checked(dict.__ior__)
    clear = _checked(dict.clear)
    pop = _checked(dict.pop)
    popitem = _checked(dict.popitem)
    setdefault = _checked(dict.setdefault)
    update = _checked(dict.update)


class _OwnedTable(PartitionTable):
    CHANGES: ClassVar[tuple[str, ...]] = (
        "add_topic",
        "set_topic_id",
        "remove_topic",
        "set_topic_deleting",
        "add_partitions_of",
        "set_assignment",
        "set_leaderships",
        "set_state",
        "set_replica_states",
    )

    def __init__(self, check: Check) -> None:
        super().__init__()
        self.check = check


for _name in _OwnedTable.CHANGES:
    setattr(_OwnedTable, _name, _checked(getattr(PartitionTable, _name)))


class _OwnedContext(ControllerContext):
    check: Check

    def __init__(self, epoch: int, epoch_zk_version: int, check: Check) -> None:
        object.__setattr__(self, "check", check)
        super().__init__(epoch, epoch_zk_version)
        self.table = _OwnedTable(check)

    def __setattr__(self, name: str, value: Any) -> None:
        self.check()
        super().__setattr__(name, _OwnedDict(self.check, value) if type(value) is dict else value)
