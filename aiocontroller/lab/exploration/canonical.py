"""One state for all those that cannot be distinguished: the exploration visits each of these once.

* What is out of date is forgotten: requests that every controller would refuse, messages that every broker would
  ignore, and what a deposed controller knows.  By the fence it writes nothing any more.  It may still answer a leader,
  but the leader could have had the same answer earlier, when it was written.
* Versions are counted anew in each leader epoch, without gaps, and controller epochs not at all: how many changes and
  elections of a controller there were before makes no difference.
* Brokers, and controllers, are the same under other names.
"""

from __future__ import annotations

from collections.abc import Hashable

from aiocontroller.lab.exploration.specification import (
    LEADER,
    NO_ID,
    Controller,
    Message,
    Replica,
    Request,
    Specification,
    State,
    ZNode,
    members,
)


def canonical(specification: Specification, s: State) -> State:
    s = _without_the_past(s) if specification.fenced else _without_dead_letters(s)
    return _renamed(s)


def _without_dead_letters(s: State) -> State:
    under_way: dict[ZNode, int] = {}
    for state, to in s.messages:
        for b in members(to):
            replica = s.replicas[b]
            if replica.role and replica.epoch < state.epoch:
                under_way[state] = under_way.get(state, 0) | 1 << b
    messages = tuple(sorted(Message(state, to) for state, to in under_way.items()))
    return s._replace(messages=messages, requests=tuple(sorted(set(s.requests))))


def _without_the_past(s: State) -> State:
    s = _without_dead_letters(s)
    requests = tuple(r for r in s.requests if (r.epoch, r.version) == (s.znode.epoch, s.znode.version))
    controllers = tuple(
        controller._replace(epoch=1) if c == s.owner else Controller() for c, controller in enumerate(s.controllers)
    )
    s = s._replace(epoch=int(s.owner >= 0), controllers=controllers, requests=requests)
    return _counted_anew(s)


def _counted_anew(s: State) -> State:
    used = {(z.epoch, z.version) for z in (s.znode, *(m.state for m in s.messages), *(c.seen for c in s.controllers))}
    used |= {(r.epoch, r.version) for r in s.replicas if r.role == LEADER}
    rank: dict[tuple[int, int], int] = {}
    number = last = -1
    for epoch, version in sorted(used):
        number = number + 1 if epoch == last else 0
        rank[epoch, version] = number if version >= 0 else version
        last = epoch
    if all(version == number for (_, version), number in rank.items()):
        return s

    def znode(z: ZNode) -> ZNode:
        return z._replace(version=rank[z.epoch, z.version])

    return s._replace(
        znode=znode(s.znode),
        controllers=tuple(c._replace(seen=znode(c.seen)) for c in s.controllers),
        replicas=tuple(r._replace(version=rank[r.epoch, r.version]) if r.role == LEADER else r for r in s.replicas),
        messages=tuple(Message(znode(m.state), m.to) for m in s.messages),
        requests=tuple(r._replace(version=rank[r.epoch, r.version]) for r in s.requests),
    )


def _renamed(s: State) -> State:
    """Put controllers and brokers into an order by what is true of them.  (Of several with the same, any may come
    first; the states that differ by that are then visited more than once.)"""
    order = sorted(range(len(s.controllers)), key=s.controllers.__getitem__)
    if order != list(range(len(order))):
        owner = order.index(s.owner) if s.owner >= 0 else NO_ID
        s = s._replace(controllers=tuple(s.controllers[c] for c in order), owner=owner)
    traits = [_traits(s, b) for b in range(len(s.replicas))]
    order = sorted(range(len(traits)), key=traits.__getitem__)
    return s if order == list(range(len(order))) else _with_brokers(s, order)


def _traits(s: State, b: int) -> tuple[tuple[Hashable, ...], list[tuple[int, ...]]]:
    """All that is true of a broker, without its name and the others' names."""
    r = s.replicas[b]
    z = s.znode
    about: list[tuple[int, ...]] = [(z.leader == b, z.isr >> b & 1, s.registered >> b & 1)]
    for c in s.controllers:
        about.append(
            (c.seen.leader == b, c.seen.isr >> b & 1, c.live >> b & 1, c.current >> b & 1, c.suspected >> b & 1)
        )
    about += [(m.state.leader == b, m.to >> b & 1, m.state.isr >> b & 1) for m in s.messages]
    about += [(q.leader == b, q.isr >> b & 1) for q in s.requests]
    about += sorted(
        (o.epoch, o.version, o.hw, o.isr >> b & 1, o.asked >> b & 1, o.ends[b]) for o in s.replicas if o.role == LEADER
    )
    return (r.role, r.epoch, r.log, r.version, r.hw, r.start, sum(e >= 0 for e in r.ends)), about


def _with_brokers(s: State, order: list[int]) -> State:
    """The same state where broker ``order[i]`` is called i."""
    name = [*sorted(range(len(order)), key=order.__getitem__), NO_ID]  # its last place is that of NO_ID
    masks = [sum(1 << name[b] for b in members(mask)) for mask in range(1 << len(order))]

    def znode(z: ZNode) -> ZNode:
        return ZNode(name[z.leader], z.epoch, masks[z.isr], z.version)

    def replica(r: Replica) -> Replica:
        ends = tuple(r.ends[b] for b in order) if r.ends else ()
        return r._replace(isr=masks[r.isr], asked=masks[r.asked], ends=ends)

    return s._replace(
        znode=znode(s.znode),
        registered=masks[s.registered],
        controllers=tuple(
            c._replace(seen=znode(c.seen), live=masks[c.live], current=masks[c.current], suspected=masks[c.suspected])
            for c in s.controllers
        ),
        replicas=tuple(replica(s.replicas[b]) for b in order),
        messages=tuple(sorted(Message(znode(m.state), masks[m.to]) for m in s.messages)),
        requests=tuple(sorted(Request(name[r.leader], r.epoch, masks[r.isr], r.version) for r in s.requests)),
    )
