"""What a warm standby and ZooKeeper may do: an executable specification of the copy, and a visit to all its states.

There is one topic with one partition, which other clients create, change and delete, and one standby that copies them,
loses its connection and is elected.  ``core.mirror`` and ``controller.mirror`` do the same for a whole cluster, with
these rules:

 1. The server reports each write to a connection that has armed the watch, before the answer to any later request on
    that connection.  A lost connection loses reports and answers, and the watch.
 2. A report only marks.  Marked parts are read again; a part is unmarked when its read begins, so a report that arrives
    meanwhile marks it again.
 3. A task resumes some time after its answer has arrived: reports, and the loss of the connection, may come in between.
 4. After a loss everything is marked, and the watch is armed before anything is read.

When the copy is used at the election, its unmarked parts must not be older than the tree was when ZooKeeper applied the
election.  And at rest, with nothing in flight, the copy must equal the tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from aiocontroller.lab.exploration.exploration import Explored, Progress

TOPIC, TOPIC_GONE, STATE = "topic changed", "topic deleted", "state changed"
"""Reports."""
ARM, LIST, READ_TOPIC, READ_STATE, ELECT, OWNER = "arm", "list", "topic", "state", "elect", "who is the controller"
"""Requests."""
UNMARKED, MARKED, MARKED_GONE = range(3)


class Tree(NamedTuple):
    """What ZooKeeper holds, and the number of the last write to each part."""

    topic: bool = False
    topic_at: int = 0
    state: bool = False
    state_at: int = 0


class Answer(NamedTuple):
    request: str
    tree: Tree
    """The tree when the server answered."""


class Copy(NamedTuple):
    listed: bool = False
    topic: bool = False
    topic_at: int = -1
    """The number of the write that the copy of the topic comes from; -1 if it was never read."""
    state_at: int = -1
    topic_mark: int = UNMARKED
    state_mark: bool = False
    reading_topic: int = UNMARKED
    """While the topic is being read, the mark that it had before."""
    reading_state: bool = False


class Election(NamedTuple):
    asked: bool = False
    applied: Tree | None = None
    """The tree when ZooKeeper applied the election."""
    known: bool = False


class World(NamedTuple):
    tree: Tree = Tree()
    writes: int = 0
    losses: int = 0
    connected: bool = True
    watched: bool = False
    """Whether the server reports writes to this connection."""
    requests: tuple[str, ...] = ()
    under_way: tuple[str | Answer, ...] = ()
    """Reports and answers in flight from the server."""
    copy: Copy | None = None
    armed: bool = False
    suspended: bool = False
    """Whether the connection was lost since the copy's task asked for the watch."""
    asked: str = ""
    """The request whose answer the copy's task waits for."""
    arrived: Answer | None = None
    election: Election = Election()


class Bounds(NamedTuple):
    writes: int = 3
    losses: int = 1


class Standby:
    """The specification.  A planted bug is a subclass with one wrong method."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()

    def steps(self, w: World) -> Iterator[tuple[str, World]]:
        """Yield everything that may happen next, as (name, world)."""
        if w.writes < self.bounds.writes:
            yield from self._writes(w)
        if w.connected:
            yield from self._of_the_connection(w)
        else:
            yield from self._reconnect(w)
        if w.arrived is not None:
            yield f"the copy's task goes on: {w.arrived.request}", self.go_on(w, w.arrived)
        elif not w.asked and w.connected and (after := self._ask(w)) != w:
            yield f"the copy's task asks: {after.asked or 'nothing'}", after

    # -- ZooKeeper and the connection ------------------------------------------------------------------------------

    def _writes(self, w: World) -> Iterator[tuple[str, World]]:
        t, n = w.tree, w.writes + 1
        if not t.topic:
            yield "the topic is created", self.written(w, t._replace(topic=True, topic_at=n), TOPIC)
            return
        yield "the topic is changed", self.written(w, t._replace(topic_at=n), TOPIC)
        yield "the state is written", self.written(w, t._replace(state=True, state_at=n), STATE)
        if t.state:
            yield "the state is deleted", self.written(w, t._replace(state=False, state_at=n), STATE)
        else:
            yield "the topic is deleted", self.written(w, t._replace(topic=False, topic_at=n), TOPIC_GONE)

    def written(self, w: World, tree: Tree, report: str) -> World:
        """Apply a write, and report it to a connection that has armed the watch."""
        under_way = (*w.under_way, report) if w.connected and w.watched else w.under_way
        return w._replace(tree=tree, writes=w.writes + 1, under_way=under_way)

    def _of_the_connection(self, w: World) -> Iterator[tuple[str, World]]:
        if w.requests:
            yield f"the server answers: {w.requests[0]}", self._answer(w)
        if w.under_way:
            first = w.under_way[0]
            name = f"report: {first}" if isinstance(first, str) else f"the answer arrives: {first.request}"
            yield name, self._deliver(w._replace(under_way=w.under_way[1:]), first)
        if not w.election.asked:
            yield "the standby stands for election", self._send(w._replace(election=Election(asked=True)), ELECT)
        elif w.election.applied is not None and not w.election.known and not _is_asked(w, ELECT, OWNER):
            yield "the standby asks who is the controller", self._send(w, OWNER)
        if w.losses < self.bounds.losses:
            yield "the connection is lost", self._lose(w)

    def _send(self, w: World, request: str) -> World:
        return w._replace(requests=(*w.requests, request))

    def _answer(self, w: World) -> World:
        request = w.requests[0]
        if request == ELECT:
            w = w._replace(election=w.election._replace(applied=w.tree))
        if request == ARM:
            w = w._replace(watched=True)
        return w._replace(requests=w.requests[1:], under_way=(*w.under_way, Answer(request, w.tree)))

    def _deliver(self, w: World, message: str | Answer) -> World:
        if isinstance(message, str):
            return w if w.copy is None else w._replace(copy=self.reported(w.copy, message))
        if message.request in (ELECT, OWNER):
            return w._replace(election=w.election._replace(known=True))
        return w._replace(arrived=message)

    def _lose(self, w: World) -> World:
        election = Election() if w.election.applied is None else w.election
        return self.lost(
            w._replace(
                losses=w.losses + 1, connected=False, watched=False, requests=(), under_way=(), election=election
            )
        )

    def _reconnect(self, w: World) -> Iterator[tuple[str, World]]:
        again = self.lost(w._replace(connected=True))
        if not w.asked or w.arrived is not None:
            yield "the connection is there again", again
            return
        yield "the connection is there again, and the read is repeated", self._send(again, w.asked)
        yield "the connection is there again, and the read has failed", again._replace(copy=None, asked="")

    # -- the standby -----------------------------------------------------------------------------------------------

    def lost(self, w: World) -> World:
        """Mark everything, since the connection was lost or restored."""
        copy = None if w.copy is None else self.mark_all(w.copy)
        return w._replace(copy=copy, armed=False, suspended=True)

    def reported(self, copy: Copy, report: str) -> Copy:
        """Mark what a report names; the state of an unknown topic is read with the topic."""
        if report == STATE:
            return copy._replace(state_mark=True) if copy.topic else copy
        return copy._replace(topic_mark=max(copy.topic_mark, MARKED_GONE if report == TOPIC_GONE else MARKED))

    def mark_all(self, copy: Copy) -> Copy:
        """Mark everything to be read again."""
        return copy._replace(listed=False, state_mark=copy.topic)

    def _ask(self, w: World) -> World:
        """Send the next request of the copy's task; returns the same world if there is nothing to ask."""
        copy = w.copy
        if copy is None:
            w, copy = w._replace(copy=Copy(), armed=False), Copy()
        request = self.next_request(w, copy)
        if not request:
            return w
        if request == ARM:
            w = w._replace(suspended=False)
        return self._send(w._replace(copy=self.read_begins(copy, request), asked=request), request)

    def next_request(self, w: World, copy: Copy) -> str:
        """Return the next request: the watch comes first, then the list, topics, states; empty if all is read."""
        if not w.armed:
            return ARM
        if not copy.listed:
            return LIST
        if copy.topic_mark:
            return READ_TOPIC
        return READ_STATE if copy.state_mark else ""

    def read_begins(self, copy: Copy, request: str) -> Copy:
        """Unmark what is being read."""
        if request == READ_TOPIC:
            return copy._replace(topic_mark=UNMARKED, reading_topic=copy.topic_mark)
        return copy._replace(state_mark=False, reading_state=True) if request == READ_STATE else copy

    def go_on(self, w: World, answer: Answer) -> World:
        """Resume the copy's task, which takes in the answer."""
        w = w._replace(arrived=None, asked="")
        assert w.copy is not None
        if answer.request == ARM:
            return self.watch_is_armed(w, w.copy)
        take_in = {LIST: self.list_read, READ_TOPIC: self.topic_read, READ_STATE: self.state_read}
        return w._replace(copy=take_in[answer.request](w.copy, answer.tree))

    def watch_is_armed(self, w: World, copy: Copy) -> World:
        """Note that the watch is armed and mark everything, unless the connection was lost after the answer."""
        return w if w.suspended else w._replace(armed=True, copy=self.mark_all(copy))

    def list_read(self, copy: Copy, tree: Tree) -> Copy:
        """Take in the list: a topic that is not in it is gone, and one that is in it must be read."""
        copy = copy._replace(listed=True)
        if tree.topic:
            return copy._replace(topic_mark=max(copy.topic_mark, MARKED))
        return self._without_topic(copy, tree)

    def topic_read(self, copy: Copy, tree: Tree) -> Copy:
        """Take in the topic; if it was deleted in between, it is a new topic, and its state must be read, too."""
        was = copy.reading_topic
        copy = copy._replace(reading_topic=UNMARKED)
        if not tree.topic:
            return self._without_topic(copy, tree)
        if was == MARKED_GONE or not copy.topic:
            copy = copy._replace(state_at=-1, state_mark=True)
        return copy._replace(topic=True, topic_at=tree.topic_at)

    def state_read(self, copy: Copy, tree: Tree) -> Copy:
        """Take in the state, which may belong to a topic that is gone."""
        return copy._replace(reading_state=False, state_at=tree.state_at if copy.topic else -1)

    def _without_topic(self, copy: Copy, tree: Tree) -> Copy:
        return copy._replace(topic=False, topic_at=tree.topic_at, state_at=-1, state_mark=False)

    # -- what must hold --------------------------------------------------------------------------------------------

    def wrong(self, w: World) -> Iterator[str]:
        """Yield what is wrong in this state."""
        copy, elected = w.copy, w.election.applied
        if copy is None or not (w.armed and copy.listed):
            return
        if w.election.known and elected is not None:
            if not _is_current(copy, elected):
                yield f"the copy is older than the election, unmarked: {copy}, elected at {elected}"
        elif not (w.asked or w.requests or w.under_way or copy.topic_mark or copy.state_mark) and (
            copy.topic != w.tree.topic or not _is_current(copy, w.tree)
        ):
            yield f"at rest the copy differs from ZooKeeper: {copy}, {w.tree}"


def _is_asked(w: World, *requests: str) -> bool:
    answers = [message.request for message in w.under_way if isinstance(message, Answer)]
    return any(request in (*w.requests, *answers) for request in requests)


def _is_current(copy: Copy, tree: Tree) -> bool:
    """Whether everything that is neither marked nor being read is as new as in the tree, or newer."""
    if copy.topic_mark or copy.reading_topic:
        return True
    if copy.topic_at < tree.topic_at:
        return False
    return not copy.topic or copy.state_mark or copy.reading_state or copy.state_at >= tree.state_at


# -- bugs --------------------------------------------------------------------------------------------------------------


class ReportsAreDropped(Standby):
    def reported(self, copy: Copy, report: str) -> Copy:
        return copy if copy.reading_state and report == STATE else super().reported(copy, report)


class MarkedStateIsNotRead(Standby):
    def topic_read(self, copy: Copy, tree: Tree) -> Copy:
        return super().topic_read(copy, tree)._replace(state_mark=False)


class LossIsNotFollowedByARead(Standby):
    def lost(self, w: World) -> World:
        return w

    def watch_is_armed(self, w: World, copy: Copy) -> World:
        return w._replace(armed=True)


class ReadsBeforeTheWatchIsArmed(Standby):
    def next_request(self, w: World, copy: Copy) -> str:
        if not copy.listed:
            return LIST
        return super().next_request(w, copy)

    def watch_is_armed(self, w: World, copy: Copy) -> World:
        return w if w.suspended else w._replace(armed=True)


class LossAfterTheAnswerIsOverlooked(Standby):
    def watch_is_armed(self, w: World, copy: Copy) -> World:
        return w._replace(armed=True, copy=self.mark_all(copy))


class UnmarksWhenTheReadEnds(Standby):
    def state_read(self, copy: Copy, tree: Tree) -> Copy:
        return super().state_read(copy, tree)._replace(state_mark=False)


class DeletionIsForgotten(Standby):
    def topic_read(self, copy: Copy, tree: Tree) -> Copy:
        return super().topic_read(copy, tree)._replace(topic_mark=UNMARKED)


STANDBY_BUGS: dict[str, type[Standby]] = {
    "standby: notifications are dropped": ReportsAreDropped,
    "standby: a marked partition is not read": MarkedStateIsNotRead,
    "standby: a lost connection is not followed by a read": LossIsNotFollowedByARead,
    "standby: reads come before the watch": ReadsBeforeTheWatchIsArmed,
    "standby: a loss after the watch was confirmed is overlooked": LossAfterTheAnswerIsOverlooked,
    "standby: a partition is unmarked when its read ends": UnmarksWhenTheReadEnds,
    "standby: a topic is unmarked when its read ends": DeletionIsForgotten,
}
"""The first three are also bugs of the zoo."""


# -- the visit ---------------------------------------------------------------------------------------------------------


def explore_standby(specification: Standby, each: Callable[[Progress], None] = lambda progress: None) -> Explored:
    """Visit every state within the bounds, breadth-first, so no trace to a violation is shorter."""
    began_s = time.process_time()
    first = World()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    frontier, depth, taken = [first], 0, 0

    def progress() -> Progress:
        return Progress(depth, len(came_from), taken, len(frontier), round(time.process_time() - began_s, 2))

    while frontier:
        found: list[World] = []
        for now in frontier:
            for name, after in specification.steps(now):
                taken += 1
                if after in came_from:
                    continue
                came_from[after] = now, name
                if wrong := tuple(specification.wrong(after)):
                    depth += 1
                    return Explored(progress(), False, wrong, _trace(came_from, after))
                found.append(after)
        frontier = found
        depth += bool(found)
        each(progress())
    return Explored(progress(), True)


def _trace(came_from: dict[World, tuple[World, str] | None], last: World) -> tuple[str, ...]:
    names: list[str] = []
    while (step := came_from[last]) is not None:
        last, name = step
        names.append(name)
    return ("at first: no topic, connected", *reversed(names))
