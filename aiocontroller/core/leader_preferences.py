"""Which brokers should not lead: ``aiocontroller.leader.*`` (as in KIP-491 and KIP-1066), and one that is sick.

A partition's candidates are considered in the order of its assignment.  With preferences, that order is changed: first
the replicas in a preferred rack, then the others, then the brokers to avoid, last a sick one.  So every election
honours them unless no other replica can lead, and the preferred leader is the first in the new order.  The assignment
stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from aiocontroller.core.ids import Broker

Replicas = tuple[int, ...]
_PREFERRED, _ORDINARY, _AVOIDED, _SICK = range(4)


def unchanged(replicas: Replicas) -> Replicas:
    """The order without preferences: the assignment's own."""
    return replicas


class LeaderPreferences(NamedTuple):
    """What an operator prefers; empty by default."""

    avoided: frozenset[int] = frozenset()
    """Ids of brokers that lead only what no other replica can lead."""
    racks: frozenset[str] = frozenset()
    """Racks whose brokers lead before others do."""
    sick: int | None = None
    """The broker that is sick; this is not the operator's choice, and counts for more than any preference."""

    @property
    def any(self) -> bool:
        """Whether anything is preferred at all."""
        return bool(self.avoided or self.racks) or self.sick is not None

    def order(self, brokers: Mapping[int, Broker]) -> Callable[[Replicas], Replicas]:
        """A function that puts replicas in the order in which they should lead.  A broker that is not registered has no
        rack."""
        if not self.any:
            return unchanged

        def rank(replica: int) -> int:
            return _SICK if replica == self.sick else self._wanted(replica, brokers)

        return lambda replicas: tuple(sorted(replicas, key=rank))

    def is_lower(self, one: int, other: int, brokers: Mapping[int, Broker]) -> bool:
        """Whether the operator prefers ``other`` to ``one`` as a leader; sickness does not count."""
        return self._wanted(one, brokers) > self._wanted(other, brokers)

    def _wanted(self, replica: int, brokers: Mapping[int, Broker]) -> int:
        if replica in self.avoided:
            return _AVOIDED
        broker = brokers.get(replica)
        return _PREFERRED if broker is not None and broker.rack in self.racks else _ORDINARY


NO_PREFERENCES = LeaderPreferences()
