"""Which partitions may get a leader from outside their ISR at this moment (I4).

A controller reads a topic's settings before it decides, and may write seconds later.  So a permission counts for
``REMEMBERED_S`` after its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from aiocontroller.core.ids import NO_LEADER
from aiocontroller.lab.checkers.timeline import Timeline

Partition = tuple[str, int]

SETTING = "unclean.leader.election.enable"
REMEMBERED_S = 15.0
"""Longer than a controller acts on what it read: without new reads its session ends, and the fence stops it."""


class _Settings(msgspec.Struct):
    config: dict[str, str] = {}


class UncleanElections:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.by_default = False
        """Brokers allow unclean elections for every topic without a setting of its own."""
        self._settings: defaultdict[str, Timeline[str | None]] = defaultdict(lambda: Timeline(None))
        """Topic -> the values of its own setting; None: it has none."""
        self._requested: dict[Partition, float] = {}
        """Partition -> when a client last asked for an unclean election."""
        self._requested_for_all_s = float("-inf")
        self.after_s = float("inf")
        """How long a partition must have no leader before any reported log may lead (``Aggressive``)."""
        self._leaderless_since_s: dict[Partition, float] = {}

    def configured(self, topic: str, data: bytes | None) -> None:
        """Take in the topic's znode of settings; None: it is gone."""
        try:
            settings = msgspec.json.decode(data or b"{}", type=_Settings).config
        except msgspec.MsgspecError:
            settings = {}  # a foreign client has damaged it
        self._settings[topic].put(self._now_s(), settings.get(SETTING))

    def requested(self, partitions: Iterable[Partition] | None) -> None:
        """A client has asked for an unclean election of these partitions; None: of all."""
        if partitions is None:
            self._requested_for_all_s = self._now_s()
        else:
            self._requested.update(dict.fromkeys(partitions, self._now_s()))

    def allowed(self, partition: Partition) -> bool:
        since_s = self._now_s() - REMEMBERED_S
        requested_s = max(self._requested.get(partition, float("-inf")), self._requested_for_all_s)
        own = self._settings[partition[0]].since(since_s)
        return requested_s >= since_s or any(self.by_default if value is None else value == "true" for value in own)

    def led(self, partition: Partition, leader: int) -> None:
        """Take in a state's leader, or NO_LEADER."""
        if leader == NO_LEADER:
            self._leaderless_since_s.setdefault(partition, self._now_s())
        else:
            self._leaderless_since_s.pop(partition, None)

    def overdue(self, partition: Partition) -> bool:
        """Whether the partition has waited for its in-sync replicas as long as it must."""
        return self._now_s() - self._leaderless_since_s.get(partition, float("inf")) >= self.after_s
