"""An executable specification of what controllers and brokers may do with one partition.

A ``State`` has everything that matters about a cluster, in two parts: ``Control`` is ZooKeeper, the controllers and the
messages in flight between them and brokers; ``Data`` is the replicas with their logs.  The parts interact little: a
step of control changes a replica by an ``Effect``, and sees only the ``Roles`` of replicas; replicas only send requests
to control.  So the steps of each part can be computed without the other (``parts``).

``Specification.steps`` yields every step that is possible in a state.  Steps take no time, so brokers, messages and
processes may be delayed arbitrarily.

Sets of brokers are bit masks, and everything is a tuple: equal states are equal keys.

 1. A write is atomic and conditional on the version and on the controller epoch (the fence).
 2. A controller knows brokers by their incarnations, and handles one event after another.
 3. A LeaderAndIsr is in flight until its broker receives it or the incarnation that it was sent to ends.  It may be
    late, and later ones may overtake it.
 4. An AlterPartition may arrive at any controller, late and more than once; its answer may be lost.  A refusal has no
    effect: a leader that withdraws its request is in the same state as if it had never sent it.
 5. A replica's log outlives its process.  A follower's high watermark decides nothing, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DEAD, STARTED, FOLLOWER, LEADER = range(4)
"""Roles of a replica.  STARTED: it has not yet received anything from a controller."""
NO_ID = -1


class ZNode(NamedTuple):
    """The partition's state in ZooKeeper."""

    leader: int
    epoch: int
    isr: int
    version: int


NEVER_READ = ZNode(NO_ID, -1, 0, -1)


class Controller(NamedTuple):
    epoch: int = 0
    """The controller epoch that it won; 0 for a standby."""
    seen: ZNode = NEVER_READ
    """Its memory of the partition's state."""
    live: int = 0
    """Brokers that it believes to be registered."""
    current: int = 0
    """Brokers whose current incarnation it knows."""
    suspected: int = 0


class Replica(NamedTuple):
    role: int
    epoch: int
    """The leader epoch; -1 before the replica receives one."""
    log: tuple[int, ...]
    """The leader epoch of each record, as in Kafka's epoch cache."""
    isr: int = 0
    version: int = 0
    hw: int = 0
    """A leader's high watermark."""
    asked: int = 0
    """The ISR that a leader has requested, until the answer arrives."""
    start: int = 0
    """The end of the log when its replica became the leader."""
    ends: tuple[int, ...] = ()
    """The ends of the followers' logs as known to the leader; -1 for followers that have not fetched."""


class Message(NamedTuple):
    """A LeaderAndIsr, and the brokers that have not received it yet."""

    state: ZNode
    to: int


class Request(NamedTuple):
    """An AlterPartition."""

    leader: int
    epoch: int
    isr: int
    version: int


class Control(NamedTuple):
    znode: ZNode
    owner: int
    """The active controller: ``/controller`` names it, and its session lives."""
    epoch: int
    """The controller epoch in ZooKeeper."""
    registered: int
    controllers: tuple[Controller, ...]
    messages: tuple[Message, ...] = ()
    requests: tuple[Request, ...] = ()
    faults: int = 0


class Data(NamedTuple):
    replicas: tuple[Replica, ...]
    acknowledged: tuple[int, ...] = ()
    """The records that were acknowledged to producers with acks=all: the log up to the highest high watermark."""


class State(NamedTuple):
    control: Control
    data: Data


Roles = tuple[tuple[int, int], ...]
"""(role, leader epoch) of each replica."""


class Effect(NamedTuple):
    """The effect of a step of control on a replica."""

    broker: int
    role: int
    epoch: int = -1
    isr: int = 0
    version: int = 0
    asked: int = 0
    """For an answer, the ISR that the leader has requested; 0 if the replica becomes the leader."""


class Bounds(NamedTuple):
    replicas: int = 3
    controllers: int = 2
    records: int = 3
    """The longest log."""
    elections: int = 1
    """The highest leader epoch."""
    faults: int = 1
    """The number of faults in total: a broker dies, loses its session or is suspected."""
    terms: int = 3
    """The highest controller epoch, and ..."""
    changes: int = 5
    """... the highest version.  Both matter only if a planted bug depends on the past: see ``canonical``."""


Label = tuple[str, tuple[int, ...]]
"""The name of a step, and the controller or brokers concerned."""
Step = tuple[Label, State]
ControlStep = tuple[Label, Control, Effect | None]
DataStep = tuple[Label, Data, Request | None]


def members(mask: int) -> Iterator[int]:
    """Yield the brokers in a set, in ascending order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# -- decisions, also used to check journals ----------------------------------------------------------------------------


def elections(seen: ZNode, live: int, suspected: int = 0) -> Iterator[ZNode]:
    """Yield the states that a controller may write when it knows these brokers.

    The leader is live and in sync, and the ISR has no dead brokers.  But the ISR never becomes empty, and a suspicion
    never removes the only possible leader.
    """
    online = live & ~suspected
    in_sync = seen.isr & online
    epoch, version = seen.epoch + 1, seen.version + 1
    if in_sync:
        stays = seen.leader >= 0 and in_sync >> seen.leader & 1
        if not stays or in_sync != seen.isr:
            for leader in (seen.leader,) if stays else members(in_sync):
                yield ZNode(leader, epoch, in_sync, version)
    else:
        leader = seen.leader if seen.leader >= 0 and live >> seen.leader & 1 else NO_ID
        isr = seen.isr & live or seen.isr
        if (leader, isr) != (seen.leader, seen.isr):
            yield ZNode(leader, epoch, isr, version)


def alteration(seen: ZNode, request: Request, online: int) -> ZNode | None:
    """Return the state that an AlterPartition leads to: the same if it is repeated, None if it is refused."""
    if request.epoch != seen.epoch or request.version > seen.version:
        return None
    if request.isr == seen.isr:
        return seen
    if request.version != seen.version or request.leader != seen.leader or request.isr & ~online:
        return None
    return ZNode(seen.leader, seen.epoch, request.isr, seen.version + 1)


# -- steps -------------------------------------------------------------------------------------------------------------


class Specification:
    """The protocol.  A planted bug is a subclass with one wrong method (``planted``)."""

    fenced = True
    """Whether outdated facts are harmless, so that the exploration may forget them."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds = bounds or Bounds()
        self.brokers = range(bounds.replicas)
        self.unknown = (-1,) * bounds.replicas

    def first(self) -> State:
        """Return the first state: all brokers run, no record is written, and broker 0 leads."""
        everybody = (1 << self.bounds.replicas) - 1
        replicas = [Replica(FOLLOWER, 0, ()) for _ in self.brokers]
        replicas[0] = Replica(LEADER, 0, (), isr=everybody, ends=self.unknown)
        controllers = (Controller(),) * self.bounds.controllers
        return State(Control(ZNode(0, 0, everybody, 0), NO_ID, 0, everybody, controllers), Data(tuple(replicas)))

    def steps(self, s: State) -> Iterator[Step]:
        for label, control, effect in self.control_steps(s.control, roles(s.data)):
            data = affected(s.data, effect) if effect else s.data
            if data is not None:
                yield label, State(control, data)
        for label, data, request in self.data_steps(s.data):
            yield label, State(with_request(s.control, request) if request else s.control, data)

    def control_steps(self, s: Control, roles: Roles) -> Iterator[ControlStep]:
        """Yield the steps of controllers and of brokers' lives.

        A step is impossible if the replica does not accept its effect.
        """
        for c in range(self.bounds.controllers):
            for label, after in self.controller_role(s, c):
                yield label, after, None
            if s.controllers[c].epoch:
                for label, after in (*self.knowledge(s, c), *self.decides(s, c)):
                    yield label, after, None
                for request in s.requests:
                    yield from self.alters(s, c, request)
        for b in self.brokers:
            yield from self.lives(s, b, roles[b][0])
            if roles[b][0]:
                yield from self.receives(s, b, roles[b][1])

    def data_steps(self, s: Data) -> Iterator[DataStep]:
        """Yield the steps of leaders and their followers."""
        for b in self.brokers:
            if s.replicas[b].role == LEADER:
                yield from self.leads(s, b)

    # -- the role of the controller --------------------------------------------------------------------------------

    def controller_role(self, s: Control, c: int) -> Iterator[tuple[Label, Control]]:
        if not s.controllers[c].epoch and s.epoch < self.bounds.terms:
            # If another controller is active, early detection suspects it, perhaps wrongly, and deposes it.
            won = s._replace(owner=c, epoch=s.epoch + 1)
            yield ("is elected", (c,)), self.load(won, c)
            yield ("is elected, without an answer", (c,)), self.resolve(won, c)
        if s.owner == c:
            yield ("loses its session", (c,)), s._replace(owner=NO_ID)
        elif s.controllers[c].epoch:
            yield ("learns that it is not active", (c,)), with_controller(s, c, Controller())

    def load(self, s: Control, c: int) -> Control:
        """Read the cluster and send its state to all brokers.  (No other controller can write in between.)"""
        me = Controller(s.epoch, s.znode, s.registered, s.registered)
        return self.send(with_controller(s, c, me), c, s.registered)

    def resolve(self, s: Control, c: int) -> Control:
        """Read which controller was elected, since the answer was lost."""
        return self.load(s, c)

    # -- what a controller knows of brokers ------------------------------------------------------------------------

    def knowledge(self, s: Control, c: int) -> Iterator[tuple[Label, Control]]:
        me = s.controllers[c]
        if s.owner != c:
            return  # a deposed controller learns of the new election before any other news
        gone = me.live & ~(s.registered & me.current)
        new = s.registered & ~me.live
        if gone:
            known = me._replace(live=me.live & ~gone, suspected=me.suspected & ~gone)
            yield ("sees brokers end", (c, *members(gone))), with_controller(s, c, known)
        elif new:
            known = me._replace(live=me.live | new, current=me.current | new)
            yield ("sees brokers start", (c, *members(new))), self.send(with_controller(s, c, known), c, new)
        for b in members(me.live):
            bit = 1 << b
            if me.suspected & bit:
                trusts = with_controller(s, c, me._replace(suspected=me.suspected & ~bit))
                yield ("trusts", (c, b)), self.send(trusts, c, bit)
            elif s.faults < self.bounds.faults:
                doubts = with_controller(s, c, me._replace(suspected=me.suspected | bit))
                yield ("suspects", (c, b)), doubts._replace(faults=s.faults + 1)

    # -- what a controller writes ----------------------------------------------------------------------------------

    def fence(self, s: Control, c: int) -> bool:
        """Whether ZooKeeper accepts this controller's writes."""
        return s.owner == c

    def elections(self, seen: ZNode, live: int, suspected: int) -> Iterator[ZNode]:
        return elections(seen, live, suspected)

    def alteration(self, seen: ZNode, request: Request, online: int) -> ZNode | None:
        return alteration(seen, request, online)

    def decides(self, s: Control, c: int) -> Iterator[tuple[Label, Control]]:
        me = s.controllers[c]
        for after in self.elections(me.seen, me.live, me.suspected):
            if self.is_within_bounds(after):
                label = ("elects", (c, after.leader))
                yield label, self.write(s, c, after, send_to=me.live & me.current)

    def is_within_bounds(self, znode: ZNode) -> bool:
        return znode.epoch <= self.bounds.elections and znode.version <= self.bounds.changes

    def write(self, s: Control, c: int, after: ZNode, send_to: int = 0) -> Control:
        """Write and commit, or learn from the refusal that another controller is active."""
        if not self.fence(s, c):
            return with_controller(s, c, Controller())
        me = s.controllers[c]
        if me.seen.version != s.znode.version:
            return with_controller(s, c, me._replace(seen=s.znode))
        written = with_controller(s._replace(znode=after), c, me._replace(seen=after))
        return self.send(written, c, send_to)

    def send(self, s: Control, c: int, to: int) -> Control:
        me = s.controllers[c]
        return s._replace(messages=(*s.messages, Message(me.seen, to))) if to else s

    def alters(self, s: Control, c: int, request: Request) -> Iterator[ControlStep]:
        me = s.controllers[c]
        after = self.alteration(me.seen, request, me.live & ~me.suspected)
        if after is None or (s.owner == c and not (me.live & me.current) >> request.leader & 1):
            return  # in the second case the answer is STALE_BROKER_EPOCH
        who = (c, request.leader)
        if after != me.seen:
            if not self.is_within_bounds(after):
                return
            s = self.write_alteration(s, c, after)
            if s.controllers[c].seen != after:
                yield ("cannot alter the ISR of", who), s, None
                return
            yield ("alters, without an answer, the ISR of", who), s, None
        answer = Effect(request.leader, LEADER, request.epoch, after.isr, after.version, asked=request.isr)
        yield ("alters the ISR of", who), s, answer

    def write_alteration(self, s: Control, c: int, after: ZNode) -> Control:
        return self.write(s, c, after)

    # -- brokers ---------------------------------------------------------------------------------------------------

    def lives(self, s: Control, b: int, role: int) -> Iterator[ControlStep]:
        bit = 1 << b
        fault = s._replace(faults=s.faults + 1) if s.faults < self.bounds.faults else None
        if role:
            if fault:
                yield ("dies", (b,)), fault, Effect(b, DEAD)
            if not s.registered & bit:
                yield ("registers again", (b,)), incarnate(s, b), None
        elif not s.registered & bit:
            started = incarnate(s, b)._replace(requests=tuple(r for r in s.requests if r.leader != b))
            yield ("starts", (b,)), started, Effect(b, STARTED)
        if s.registered & bit and (fault or not role):
            lost = fault if fault and role else s
            yield ("is no longer registered", (b,)), lost._replace(registered=s.registered & ~bit), None

    def receives(self, s: Control, b: int, epoch: int) -> Iterator[ControlStep]:
        for state, to in s.messages:
            if to >> b & 1 and state.epoch > epoch:
                if state.leader == b:
                    leads = Effect(b, LEADER, state.epoch, state.isr, state.version)
                    yield ("becomes leader", (b, state.epoch)), s, leads
                else:
                    yield ("becomes follower", (b, state.epoch)), s, Effect(b, FOLLOWER, state.epoch)

    def leads(self, s: Data, b: int) -> Iterator[DataStep]:
        me = s.replicas[b]
        if len(me.log) < self.bounds.records:
            yield ("appends a record", (b,)), advance(s, b, me._replace(log=(*me.log, me.epoch))), None
        for f in self.brokers:
            other = s.replicas[f]
            if other.role == FOLLOWER and other.epoch == me.epoch:
                yield ("fetches from", (f, b)), fetch(s, f, b), None
        if not me.asked:
            for f in self.brokers:
                bit = 1 << f
                if f != b and (me.isr & bit or me.ends[f] >= max(me.hw, me.start)):
                    request = Request(b, me.epoch, me.isr ^ bit, me.version)
                    name = "asks to remove" if me.isr & bit else "asks to add"
                    yield (name, (b, f)), with_replica(s, b, me._replace(asked=request.isr)), request


def with_controller(s: Control, c: int, controller: Controller) -> Control:
    return s._replace(controllers=(*s.controllers[:c], controller, *s.controllers[c + 1 :]))


def with_replica(s: Data, b: int, replica: Replica) -> Data:
    return s._replace(replicas=(*s.replicas[:b], replica, *s.replicas[b + 1 :]))


def roles(s: Data) -> Roles:
    return tuple([(replica.role, replica.epoch) for replica in s.replicas])


def with_request(s: Control, request: Request) -> Control:
    return s._replace(requests=(*s.requests, request))


def affected(s: Data, effect: Effect) -> Data | None:
    """Return the replicas after a step of control; None if the leader does not accept the answer.

    It does not if it does not wait for this answer or knows a later version: a deposed controller may answer an old
    request for the same ISR.
    """
    b, me = effect.broker, s.replicas[effect.broker]
    if effect.role != LEADER:
        return with_replica(s, b, Replica(effect.role, effect.epoch, me.log))
    if effect.asked:
        if (me.role, me.epoch, me.asked) != (LEADER, effect.epoch, effect.asked) or effect.version < me.version:
            return None
        return advance(s, b, me._replace(isr=effect.isr, version=effect.version, asked=0))
    unknown = (-1,) * len(s.replicas)
    leads = Replica(LEADER, effect.epoch, me.log, effect.isr, effect.version, start=len(me.log), ends=unknown)
    return advance(s, b, leads)


def advance(s: Data, b: int, leader: Replica) -> Data:
    """Put the leader into the state, with its high watermark raised as far as the required replicas have records."""
    needed = leader.isr | leader.asked if leader.asked & leader.isr == leader.isr else leader.isr
    end = min([len(leader.log), *(leader.ends[f] for f in members(needed & ~(1 << b)))])
    if end > leader.hw:
        leader = leader._replace(hw=end)
        if end > len(s.acknowledged):
            s = s._replace(acknowledged=leader.log[:end])
    return with_replica(s, b, leader)


def fetch(s: Data, f: int, b: int) -> Data:
    """Let a follower truncate to what its leader has, report its log's end, and receive all further records."""
    leader, follower = s.replicas[b], s.replicas[f]
    end = 0
    for ours, theirs in zip(follower.log, leader.log, strict=False):
        if ours != theirs:
            break
        end += 1
    s = advance(s, b, leader._replace(ends=(*leader.ends[:f], end, *leader.ends[f + 1 :])))
    return with_replica(s, f, follower._replace(log=leader.log))


def incarnate(s: Control, b: int) -> Control:
    """Register a broker: no controller knows the new incarnation, and messages to the previous one are lost."""
    bit = 1 << b
    return s._replace(
        registered=s.registered | bit,
        controllers=tuple(c._replace(current=c.current & ~bit) for c in s.controllers),
        messages=tuple(m._replace(to=m.to & ~bit) for m in s.messages),
    )
