"""Maps all states that cannot be distinguished to one canonical state, so that the exploration visits them once.

Outdated facts are forgotten where the fence makes them harmless (``Specification.fenced``):

 1. Requests that every controller would refuse, and the memory of a deposed controller.  Because of the fence, that
    controller can no longer write.  It may still answer a leader, but the leader could have had the same answer
    earlier, when the state was written.
 2. That no controller is active.  The controller that lost its session last counts as active but slow: the next one
    elected deposes it in both cases, and until then a slow controller may do nothing as well.  (This applies only with
    more than one controller.)
 3. How often anything has happened.  Versions are counted relative to ZooKeeper's (and to the version that the active
    controller believes to be ZooKeeper's).  All lower versions are equal: an AlterPartition with them is refused.
    Controller epochs are not counted at all.
 4. That a leader which ZooKeeper has superseded has asked to remove a member: it never gets an answer, and waits for
    that member in both cases.

These are indistinguishable even without the fence:

 5. Messages that every broker would ignore.  From the others a follower takes only the leader epoch.
 6. Whether a controller knows the current incarnation of a broker that it believes dead.
 7. Brokers, and controllers, with exchanged names.

Each part of a state has its own canonical form: that of ``Data`` comes with all orders of brokers that lead to it, and
that of ``Control`` is the least under these orders.
"""

from __future__ import annotations

from itertools import chain, permutations, product

from aiocontroller.lab.exploration.specification import (
    LEADER,
    NO_ID,
    Control,
    Controller,
    Data,
    Message,
    Replica,
    Request,
    Roles,
    Specification,
    State,
    ZNode,
    members,
    roles,
)

Order = tuple[int, ...]
"""The broker ``order[i]`` gets the name i."""


def canonical(specification: Specification, s: State) -> State:
    control, zero = normal_control(specification, s.control, roles(s.data))
    data, orders = arranged_data(normal_data(specification, s.data, zero))
    return State(arranged_control(control, orders), data)


# -- forgetting --------------------------------------------------------------------------------------------------------


def normal_control(specification: Specification, s: Control, roles: Roles) -> tuple[Control, int]:
    """Return the normal form, and the version that counts as 0 in it."""
    zero = 0
    if specification.fenced:
        s, zero = _counted_anew(_without_the_past(s))
    controllers = tuple([c._replace(current=c.current & c.live) for c in s.controllers])
    s = s._replace(messages=_offers(s, roles), requests=tuple(sorted(set(s.requests))), controllers=controllers)
    return s, zero


def _offers(s: Control, roles: Roles) -> tuple[Message, ...]:
    under_way: dict[ZNode, int] = {}
    for state, to in s.messages:
        for b in members(to):
            role, epoch = roles[b]
            if role and epoch < state.epoch:
                taken = state if state.leader == b else ZNode(NO_ID, state.epoch, 0, -1)
                under_way[taken] = under_way.get(taken, 0) | 1 << b
    return tuple(sorted([Message(state, to) for state, to in under_way.items()]))


def _without_the_past(s: Control) -> Control:
    owner = s.owner
    if owner == NO_ID and len(s.controllers) > 1:
        owner = next((c for c, one in enumerate(s.controllers) if s.epoch == one.epoch > 0), NO_ID)
    controllers = [one._replace(epoch=1) if c == owner else Controller() for c, one in enumerate(s.controllers)]
    requests = tuple([r for r in s.requests if _current(s, r)])
    return s._replace(owner=owner, epoch=int(owner >= 0), controllers=tuple(controllers), requests=requests)


def _current(s: Control, request: Request) -> bool:
    return (request.epoch, request.version) == (s.znode.epoch, s.znode.version)


def requested(specification: Specification, s: Control, request: Request) -> Control:
    """Return the normal form after a request has been sent to the controllers."""
    if specification.fenced and not _current(s, request):
        return s
    return s._replace(requests=tuple(sorted({*s.requests, request})))


def _counted_anew(s: Control) -> tuple[Control, int]:
    zero = s.znode.version
    if s.owner >= 0:
        zero = min(zero, s.controllers[s.owner].seen.version)

    def counted(z: ZNode) -> ZNode:
        return z._replace(version=max(z.version - zero, -1))

    controllers = [c._replace(seen=counted(c.seen)) if c.epoch else c for c in s.controllers]
    messages = tuple([Message(counted(m.state), m.to) for m in s.messages])
    requests = tuple([r._replace(version=max(r.version - zero, -1)) for r in s.requests])
    after = s._replace(znode=counted(s.znode), controllers=tuple(controllers), messages=messages, requests=requests)
    return after, zero


def normal_data(specification: Specification, s: Data, zero: int) -> Data:
    if not specification.fenced or all(replica.role != LEADER for replica in s.replicas):
        return s
    return s._replace(replicas=tuple([_leader(r, zero) if r.role == LEADER else r for r in s.replicas]))


def _leader(r: Replica, zero: int) -> Replica:
    version = max(r.version - zero, -1)
    stays = version >= 0 or r.asked & r.isr == r.isr
    return r._replace(version=version, asked=r.asked if stays else 0)


# -- names -------------------------------------------------------------------------------------------------------------


def arranged_data(s: Data) -> tuple[Data, tuple[Order, ...]]:
    """Order brokers by their traits, and rename them; return all orders that lead to the same result."""
    traits = [_traits(s, b) for b in range(len(s.replicas))]
    alike: dict[object, list[int]] = {}
    for b in sorted(range(len(traits)), key=traits.__getitem__):
        alike.setdefault(traits[b], []).append(b)
    orders = [tuple(chain(*parts)) for parts in product(*map(permutations, alike.values()))]
    if len(orders) == 1:
        return _data(s, orders[0]), (orders[0],)
    named = [(_data(s, order), order) for order in orders]
    least = min(data for data, _ in named)
    return least, tuple([order for data, order in named if data == least])


def _traits(s: Data, b: int) -> tuple[object, ...]:
    """Return what is true of a broker, without using its own or the other brokers' names."""
    r = s.replicas[b]
    seen = [(o.epoch, o.isr >> b & 1, o.asked >> b & 1, o.ends[b]) for o in s.replicas if o.role == LEADER]
    return (r.role, r.epoch, r.log, r.version, r.hw, r.start, r.isr.bit_count(), tuple(sorted(seen)))


def _data(s: Data, order: Order) -> Data:
    masks = _masks(order)
    replicas = []
    for b in order:
        r = s.replicas[b]
        if r.role == LEADER:
            r = r._replace(isr=masks[r.isr], asked=masks[r.asked], ends=tuple([r.ends[b] for b in order]))
        replicas.append(r)
    return s._replace(replicas=tuple(replicas))


def arranged_control(s: Control, orders: tuple[Order, ...]) -> Control:
    return min([_control(s, order) for order in orders])


def _control(s: Control, order: Order) -> Control:
    name = [*sorted(range(len(order)), key=order.__getitem__), NO_ID]  # its last place is that of NO_ID
    masks = _masks(order)

    def znode(z: ZNode) -> ZNode:
        return ZNode(name[z.leader], z.epoch, masks[z.isr], z.version)

    controllers = [
        c._replace(seen=znode(c.seen), live=masks[c.live], current=masks[c.current], suspected=masks[c.suspected])
        for c in s.controllers
    ]
    ranks = sorted(range(len(controllers)), key=controllers.__getitem__)
    return Control(
        znode(s.znode),
        ranks.index(s.owner) if s.owner >= 0 else NO_ID,
        s.epoch,
        masks[s.registered],
        tuple([controllers[c] for c in ranks]),
        tuple(sorted([Message(znode(m.state), masks[m.to]) for m in s.messages])),
        tuple(sorted([Request(name[r.leader], r.epoch, masks[r.isr], r.version) for r in s.requests])),
        s.faults,
    )


def _masks(order: Order) -> list[int]:
    """Return for each set of brokers the same set with the new names."""
    masks = [0]
    for b in range(len(order)):
        masks += [mask | 1 << order.index(b) for mask in masks]
    return masks
