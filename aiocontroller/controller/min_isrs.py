"""Reads ``min.insync.replicas`` of topics whose ISRs have become small, so that partitions below it can be named.

Only those topics are read, and only while nothing else waits: no decision depends on it, and when a broker dies
thousands of topics may need to be read while leaders are elected.
"""

from __future__ import annotations

from itertools import islice

from aiocontroller.controller.obeyed_settings import MIN_ISR, positive_int
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.apply import apply
from aiocontroller.core.broken_partitions import BY_DEFAULT
from aiocontroller.core.context_changes import DefaultMinIsr, MinIsrsRead
from aiocontroller.core.events import SmallIsrs

AFTER_S = 1.0
"""Pause before reading, as many ISRs are small only for a moment."""
NEXT_AFTER_S = 0.05
AT_ONCE = 200
"""Topics in one step, of a few milliseconds."""
TAG = "small ISRs"


def follow(shell: ControllerShell) -> None:
    """After each event: take in the brokers' own setting if it has changed, and schedule the reading of topics."""
    broken = shell.context.table.broken
    own = _number(shell.settings[MIN_ISR].value)
    if own != broken.min_isr:
        apply(shell.context, DefaultMinIsr(own))
    if broken.unread and not shell.queue.scheduled(TAG):
        shell.queue.schedule(TAG, AFTER_S, SmallIsrs())


async def small_isrs(shell: ControllerShell, event: SmallIsrs) -> None:
    """Read some of the topics, unless other events wait."""
    table = shell.context.table
    if len(shell.queue):
        shell.queue.schedule(TAG, AFTER_S, event)
        return
    known = {number: table.topics[number] for number in islice(table.broken.unread, AT_ONCE)}
    names = [topic.name for topic in known.values() if topic is not None]
    configs = await shell.zk.get_topic_configs(names) if names else {}
    found = {name: configs.get(name, {}).get(MIN_ISR) for name in names}
    read = {name: BY_DEFAULT if value is None else _number(value) for name, value in found.items()}
    apply(shell.context, MinIsrsRead(read, [number for number, topic in known.items() if topic is None]))
    if table.broken.unread:
        shell.queue.schedule(TAG, NEXT_AFTER_S, event)


def _number(text: str) -> int:
    """The setting's value; 1, its default, for text that brokers cannot read either."""
    return positive_int(text) or 1
