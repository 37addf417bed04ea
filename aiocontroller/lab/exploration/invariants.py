"""The invariants: what must hold in every state of the specification, and at every step.

docs/chaos.md ("What is checked") has the rules: I1 to I6, one leader, I13 and I14.  In the specification

 * I3 includes that an ISR grows only as its leader requested, and that the answer to a leader is the state in
   ZooKeeper;
 * I4 has no exception, since unclean elections are off;
 * I6 means that the controller which ``/controller`` names knows that it is active;
 * I13 is asked of every member of the ISR, which may lead at any time.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiocontroller.lab.exploration.specification import (
    LEADER,
    Control,
    Data,
    Effect,
    Label,
    Request,
    State,
    ZNode,
    members,
)


class Invariants:
    """Finds the violations of a step of control, and of the data that a step leads to."""

    def step(self, before: Control, label: Label, after: Control, effect: Effect | None) -> Iterator[str]:
        if before.znode != after.znode:
            yield from _written(before, label[1][0], after)
        for message in after.messages[len(before.messages) :]:
            if message.state != after.znode:
                yield f"I5: brokers receive {shown(message.state)}, ZooKeeper holds {shown(after.znode)}"
        if effect and effect.asked:
            answer = ZNode(effect.broker, effect.epoch, effect.isr, effect.version)
            if _not_written(answer, after.znode):
                yield f"I3: broker {effect.broker} is answered what ZooKeeper does not hold: {shown(after.znode)}"
        if after.owner >= 0 and not after.controllers[after.owner].epoch:
            yield f"I6: controller {after.owner} owns the role but does not know it"

    def data(self, data: Data) -> Iterator[str]:
        safe = data.acknowledged
        leaders = [replica for replica in data.replicas if replica.role == LEADER]
        for replica in leaders:
            if replica.log[: replica.hw] != safe[: replica.hw]:
                where = f"{replica.log}, {safe}"
                yield f"I14: a leader of epoch {replica.epoch} diverges below its high watermark: {where}"
        if len({replica.epoch for replica in leaders}) < len(leaders):
            yield "one leader: two replicas lead in one epoch"

    def state(self, s: State) -> Iterator[str]:
        yield from self.data(s.data)
        for b in members(s.control.znode.isr & self.lacking(s.data)):
            log, safe = s.data.replicas[b].log, s.data.acknowledged
            yield f"I13: broker {b} is in sync but lacks acknowledged records: {log}, acknowledged {safe}"

    def lacking(self, data: Data) -> int:
        """Return the brokers that lack an acknowledged record, none of which may be in the ISR (I13)."""
        safe = data.acknowledged
        return sum(1 << b for b, replica in enumerate(data.replicas) if replica.log[: len(safe)] != safe)


def _not_written(sent: ZNode, znode: ZNode) -> bool:
    """Whether a sent state is not ZooKeeper's; older states count as written: a deposed controller may answer late."""
    ahead = (sent.epoch, sent.version) > (znode.epoch, znode.version)
    return ahead or ((sent.epoch, sent.version) == (znode.epoch, znode.version) and sent != znode)


def _written(before: Control, c: int, after: Control) -> Iterator[str]:
    old, new = before.znode, after.znode
    change = f"{shown(old)} becomes {shown(new)}"
    if before.owner != c:
        yield f"I1: controller {c} writes and is not active: {change}"
    if new.version != old.version + 1 or new.epoch < old.epoch:
        yield f"I2: {change}"
    if not new.isr or (new.leader >= 0 and not new.isr >> new.leader & 1):
        yield f"I3: {change}"
    if new.epoch == old.epoch:
        if new.leader != old.leader:
            yield f"one leader: {change}"
        if new.isr != old.isr and Request(old.leader, old.epoch, new.isr, old.version) not in before.requests:
            yield f"I3: no leader asked for this ISR: {change}"
    elif new.isr & ~old.isr:
        yield f"I3: no leader asked for this ISR: {change}"
    if new.leader not in (-1, old.leader) and not old.isr >> new.leader & 1:
        yield f"I4: the leader comes from outside the ISR: {change}"


def shown(z: ZNode) -> str:
    return f"(leader {z.leader}, epoch {z.epoch}, ISR {list(members(z.isr))}, version {z.version})"
