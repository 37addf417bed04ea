"""The *restarts* family of plans: the replicas of a few partitions die and return in every order.

The question is which of them still hold everything.

Random plans hardly ever raise it.  Two or three replicas must leave the ISR one after the other, within the seconds in
which a power cut still costs records, and must return before the others do.  So these plans are sequences of acts:
three replicas in sync that leave in a drawn order, by a clean stop, SIGKILL or a power cut, and return in another.
Controllers change in between; one of them may keep no eligible replicas, like Kafka's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

BROKERS = (1, 2, 3)
TOPICS = ("orders", "events")
EVERY, AT = 12, 1
"""Every twelfth seed is of this family: ``seed % EVERY == AT``."""
ACTS = (4, 5, 6)
MIN_ISRS = ("1", "2", "3")
STOP, KILL, CUT = "stop_broker", "kill_broker", "power_cut"
"""Ways in which a broker leaves."""
AWAY = ((STOP, STOP, KILL, CUT), (STOP, STOP, CUT, CUT), (STOP, KILL, CUT, CUT))
"""The ways of the first broker that leaves, of the second, and of the last."""
NOTICED_S = 3.4
"""Longer than a broker's session and than a leader waits for a follower; shorter than logs stay unflushed."""
AWAY_PAUSES_S = {
    STOP: (0.1, 0.5, 1.0),
    KILL: (0.1, 0.5, NOTICED_S, NOTICED_S),
    CUT: (0.1, NOTICED_S, NOTICED_S, NOTICED_S),
}
BACK_PAUSES_S = (0.0, 0.05, 0.2, 0.5, 1.0)
STOPPING_S = (0.02, 0.05, 0.1)
"""After this time, the controller has usually let a stopping broker go, and its logs are usually not flushed yet."""
BEGUN_S = 0.005
"""After this time, a broker that was started runs, and has not joined an ISR yet."""
UNSEEN = "unseen=1.5"
"""The controller is paused for longer than a broker takes to register, and for less than its own session."""


class Happening(NamedTuple):
    """A step of a plan: its kind, the time until the next one, and its arguments."""

    kind: str
    pause_s: float
    arguments: tuple[str, ...] = ()


class Restarts(NamedTuple):
    controllers: int
    forgetful: bool
    """The last controller keeps no eligible replicas, like Kafka's own."""
    steps: tuple[Happening, ...]


def is_of_restarts(seed: int) -> bool:
    """Whether the seed draws a plan of this family."""
    return seed % EVERY == AT


def next_of_restarts(seed: int) -> int:
    """Return the first seed of the family that is at least this one."""
    return seed + (AT - seed) % EVERY


def draw_restarts(seed: int) -> Restarts:
    """Draw the steps of a seed's plan, for three brokers that have ``min.insync.replicas=2``."""
    chance = random.Random(f"restarts {seed}")
    controllers = chance.choice((2, 2, 3))
    author = _Author(chance, controllers)
    return Restarts(controllers, chance.random() < 0.4, tuple(author.plan()))


class _Author:
    """Writes the acts of one plan."""

    def __init__(self, chance: random.Random, controllers: int) -> None:
        self._chance = chance
        self._controllers = controllers
        self._topics = TOPICS[: chance.choice((1, 1, 1, 2))]

    def plan(self) -> Iterator[Happening]:
        for topic in self._topics:
            placed = [",".join(map(str, self._order())) for _ in range(self._chance.choice((1, 1, 2)))]
            yield Happening("create_topic", 2.0, (topic, *placed))
        acts: dict[Callable[[], Iterator[Happening]], int] = {
            self._fall_and_return: 6,
            self._restart_unseen: 3,
            self._restart_at_once: 1,
            self._lose_a_disk: 2,
            self._reboot_and_stay_behind: 2,
            self._return_before_one_look: 2,
            self._lose_power_while_stopping: 2,
            self._change_min_isr: 1,
            self._roll: 1,
        }
        for act in self._chance.choices(list(acts), list(acts.values()), k=self._chance.choice(ACTS)):
            yield from act()
            if self._chance.random() < 0.8:
                yield from self._settle()

    def _order(self) -> list[int]:
        return self._chance.sample(BROKERS, len(BROKERS))

    # -- acts ------------------------------------------------------------------------------------------------------

    def _fall_and_return(self) -> Iterator[Happening]:
        """All brokers leave one after the other.  Usually the last one returns last; some leave again.

        Now and then no controller is active when they return.
        """
        gone = self._order()
        for broker, ways in zip(gone, AWAY, strict=True):
            yield self._leaves(broker, ways)
            yield from self._perhaps(0.07, self._another_controller)
        unseen = self._chance.random() < 0.2
        yield from self._no_controllers() if unseen else ()
        first = self._chance.sample(gone[:2], self._chance.choice((1, 2, 2)))
        for broker in (*first, gone[2]) if self._chance.random() < 0.75 else (gone[2], *first):
            yield self._returns(broker)
            yield from self._perhaps(0.07, self._another_controller)
            if self._chance.random() < 0.2:
                yield self._leaves(broker)
                yield self._returns(broker)
        if unseen:
            yield self._a_controller()

    def _restart_unseen(self) -> Iterator[Happening]:
        """Brokers leave and return while no controller is active."""
        yield from self._no_controllers()
        gone = self._order()[: self._chance.choice((1, 2))]
        for broker in gone:
            yield Happening(CUT, self._chance.choice((0.1, 1.0)), (str(broker),))
        yield Happening("wait", 0.0, (str(NOTICED_S),))
        for broker in gone:
            yield self._returns(broker)
        yield self._a_controller()

    def _restart_at_once(self) -> Iterator[Happening]:
        """One broker leaves; the others restart before the controller notices, and some of them have lost power."""
        first, *others = self._order()
        yield self._leaves(first)
        for broker in others:
            kind = self._chance.choice(("bounce_broker", "reboot_broker"))
            yield Happening(kind, 0.0, (str(broker), UNSEEN) if kind == "reboot_broker" else (str(broker),))
        yield Happening("wait", 0.0, (str(self._chance.choice(BACK_PAUSES_S)),))
        yield self._returns(first)

    def _roll(self) -> Iterator[Happening]:
        """A rolling restart that does not wait for brokers to catch up."""
        for broker in self._order():
            yield Happening(STOP, self._chance.choice((0.5, 1.0)), (str(broker),))
            yield self._returns(broker)

    def _lose_a_disk(self) -> Iterator[Happening]:
        """A broker returns, does not catch up, loses a log directory, and gets an empty one by a clean restart.

        The disk fails after the broker has registered: no controller learns of one that fails or is replaced earlier.
        """
        first, last, lost = self._order()
        yield Happening(STOP, 0.5, (str(first),))
        yield Happening(STOP, 0.5, (str(lost),))
        yield Happening("start_broker", BEGUN_S, (str(lost),))
        yield Happening("block", self._chance.choice((0.2, 0.5, 1.0)), (str(lost), str(last)))
        topic = self._chance.choice(self._topics)
        yield Happening("fail_log_dir", self._chance.choice((0.0, 0.5, 1.0)), (str(lost), f"{topic}-0"))
        yield Happening(STOP, 0.5, (str(lost),))
        yield self._leaves(last)
        yield self._returns(lost)

    def _reboot_and_stay_behind(self) -> Iterator[Happening]:
        """A broker loses power, returns before the controller notices, and does not catch up before its leader
        leaves."""
        first, last, behind = self._order()
        yield self._leaves(first, AWAY[0])
        yield Happening("reboot_broker", BEGUN_S, (str(behind), UNSEEN))
        yield Happening("block", self._chance.choice(BACK_PAUSES_S), (str(behind), str(last)))
        yield self._leaves(last)
        yield Happening("heal", 0.0)
        yield self._returns(last)

    def _return_before_one_look(self) -> Iterator[Happening]:
        """An eligible replica and the last ISR member, which lost power, both return before a controller is active.

        The eligible replica leads, and leaves before the other has caught up.
        """
        first, eligible, last = self._order()
        yield Happening(STOP, 0.5, (str(first),))
        yield Happening(STOP, 0.5, (str(eligible),))
        yield Happening(CUT, NOTICED_S, (str(last),))
        yield from self._no_controllers()
        for broker in self._chance.sample((eligible, last), 2):
            yield self._returns(broker)
        yield Happening("block", 0.0, (str(last), str(eligible)))
        yield self._a_controller()
        yield Happening("wait", 0.0, (str(self._chance.choice((2.0, 2.5, 3.0))),))  # until the role is vacant
        yield self._leaves(eligible)
        yield Happening("heal", 0.0)
        yield self._returns(eligible)

    def _lose_power_while_stopping(self) -> Iterator[Happening]:
        """An eligible replica loses power between the answer to its controlled shutdown and the flush of its logs.

        Usually the last ISR member leaves before the eligible replica's session expires, and returns last.
        """
        first, eligible, last = self._order()
        yield Happening(STOP, 0.5, (str(first),))
        yield Happening(STOP, self._chance.choice(STOPPING_S), (str(eligible),))
        yield Happening(CUT, self._chance.choice((0.1, NOTICED_S)), (str(eligible),))
        yield self._leaves(last)
        yield self._returns(eligible)
        yield Happening("wait", 0.0, (str(NOTICED_S),))
        yield self._returns(last)

    def _change_min_isr(self) -> Iterator[Happening]:
        """All brokers leave and return under another ``min.insync.replicas``, and then again under the usual one."""
        topic = self._chance.choice(self._topics)
        for number in (self._chance.choice(MIN_ISRS), "2"):
            change = f"min.insync.replicas:{number}"
            yield Happening("alter_topic_configs", self._chance.choice(BACK_PAUSES_S), (topic, change))
            yield from self._fall_and_return()

    def _settle(self) -> Iterator[Happening]:
        """Everything runs again, and replicas get in sync."""
        yield Happening("heal", 0.0)
        yield Happening("start_broker", 0.0, tuple(map(str, BROKERS)))
        for number in range(1, self._controllers + 1):
            yield Happening("start_controller", 0.0, (str(number),))
        yield Happening("wait", 0.0, (str(self._chance.choice((2.0, 4.0, 6.0))),))

    # -- parts of them ---------------------------------------------------------------------------------------------

    def _leaves(self, broker: int, ways: Sequence[str] = AWAY[-1]) -> Happening:
        kind = self._chance.choice(ways)
        return Happening(kind, self._chance.choice(AWAY_PAUSES_S[kind]), (str(broker),))

    def _returns(self, broker: int) -> Happening:
        return Happening("start_broker", self._chance.choice(BACK_PAUSES_S), (str(broker),))

    def _no_controllers(self) -> Iterator[Happening]:
        for number in range(1, self._controllers + 1):
            yield Happening("kill_controller", 0.0, (str(number),))

    def _a_controller(self) -> Happening:
        return Happening("start_controller", 1.0, (str(self._chance.randint(1, self._controllers)),))

    def _perhaps(self, share: float, part: Callable[[], Iterator[Happening]]) -> Iterator[Happening]:
        if self._chance.random() < share:
            yield from part()

    def _another_controller(self) -> Iterator[Happening]:
        """The active controller loses the role, in one of several ways, or is about to."""
        kind = self._chance.choice(
            ("kill_controller", "expire_controller", "stop_controller", "take_over", "delete_controller_znode", "trap")
        )
        pause_s = self._chance.choice(BACK_PAUSES_S)
        if kind == "take_over":
            yield Happening(kind, pause_s, (str(self._chance.randint(1, self._controllers)),))
        elif kind == "delete_controller_znode":
            yield Happening(kind, pause_s)
        elif kind == "trap":
            yield Happening("crash_at_await", pause_s, (str(self._chance.choice((1, 2, 3, 5, 8, 13, 21))),))
        else:
            yield Happening(kind, pause_s, ("active",))
            yield Happening("start_controller", 0.0)
