"""The past as the page and the terminal show it: events in words, incidents, failovers; bounded, and in memory."""

from __future__ import annotations

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.broken_view import counts
from aiocontroller.core.incidents import Incidents
from aiocontroller.journal.chronicle import Chronicle


class RecentStory:
    """Listens to the journal, and looks at what is broken after each event."""

    def __init__(self, shell: ControllerShell) -> None:
        self._shell = shell
        self.chronicle = Chronicle()
        self.incidents = Incidents()
        shell.journal.listener = self.chronicle

    def event_ended(self, took_us: int, detail: str, asked: str) -> None:
        """An event has been handled; ``asked``: who asked for what.  O(1)."""
        shell = self._shell
        now_us = shell.world.clock.wall_time_us()
        causes = self.chronicle.event_ended(now_us, took_us, detail, asked)
        if shell.is_active and shell.context.loaded:
            self.chronicle.reassignments.left(now_us, len(shell.context.partitions_being_reassigned))
            self.chronicle.deletions.left(now_us, len(shell.context.topics_to_be_deleted))
            found_so = self.incidents.open is None and bool(causes) and any("took the role" in text for text in causes)
            self.incidents.observe(now_us, counts(shell.context), causes, found_so=found_so)
        elif not shell.is_active:
            self.chronicle.reassignments.left(now_us, 0)
            self.chronicle.deletions.left(now_us, 0)
            self.incidents.cut(now_us, "this controller lost the role")
