"""Bugs of standbys: copies that differ from ZooKeeper without being marked, and heartbeats that are ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiocontroller.controller.mirror import Mirror
from aiocontroller.core.failure_detector import FailureDetector
from aiocontroller.core.mirror import MirroredCluster
from aiocontroller.lab.simulation.zoo import Bug, Patch


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _some_notifications_are_dropped() -> list[Patch]:
    original, heard = Mirror.state_changed, 0

    def state_changed(self: Mirror, topic: str, partition: int) -> None:
        nonlocal heard
        heard += 1
        if heard % 7:
            original(self, topic, partition)

    return [(Mirror, "state_changed", state_changed)]


def _a_marked_row_is_not_read() -> list[Patch]:
    original = MirroredCluster.take_rows

    def take_rows(self: MirroredCluster, at_most: int) -> Sequence[int]:
        rows = original(self, at_most)
        if len(rows) > 1:
            self._rows_being_read = rows = rows[:-1]
        return rows

    return [(MirroredCluster, "take_rows", take_rows)]


def _lost_connections_are_not_followed_by_a_read() -> list[Patch]:
    return [(MirroredCluster, "mark_all", _nothing)]


def _what_a_standby_hears_does_not_count() -> list[Patch]:
    return [(FailureDetector, "vouched", _nothing)]


STANDBY_BUGS = (
    Bug("standby: notifications are dropped", "design", _some_notifications_are_dropped, warm=True),
    Bug("standby: a marked partition is not read", "design", _a_marked_row_is_not_read, warm=True),
    Bug(
        "standby: a lost connection is not followed by a read",
        "design",
        _lost_connections_are_not_followed_by_a_read,
        warm=True,
    ),
    Bug("standby: what it hears does not count", "design", _what_a_standby_hears_does_not_count),
)
