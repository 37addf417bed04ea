"""Bugs of the zoo that the specification can express, each as one wrong method.

The names are those of ``zoo_bugs``.  The other bugs concern what the specification leaves out: topics that come and go,
reassignments, watches and queues, or a cluster that never becomes whole again.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiocontroller.lab.exploration.specification import (
    NEVER_READ,
    NO_ID,
    Control,
    Controller,
    Request,
    Specification,
    ZNode,
    alteration,
    elections,
    members,
    with_controller,
)


class NoFence(Specification):
    fenced = False

    def fence(self, s: Control, c: int) -> bool:
        return True


class FenceReadLate(Specification):
    fenced = False

    def fence(self, s: Control, c: int) -> bool:
        return s.owner == c or s.controllers[c].epoch < s.epoch  # a deposed controller's session still lives


class FenceOutlivesSession(Specification):
    fenced = False

    def fence(self, s: Control, c: int) -> bool:
        return s.controllers[c].epoch == s.epoch


class ElectionLostWithItsAnswer(Specification):
    def resolve(self, s: Control, c: int) -> Control:
        return with_controller(s, c, Controller())


class EmptiedIsr(Specification):
    def elections(self, seen: ZNode, live: int, suspected: int) -> Iterator[ZNode]:
        yield from elections(seen, live, suspected)
        if not seen.isr & live:
            yield ZNode(NO_ID, seen.epoch + 1, 0, seen.version + 1)


class ShrinksWithinEpoch(Specification):
    def elections(self, seen: ZNode, live: int, suspected: int) -> Iterator[ZNode]:
        for after in elections(seen, live, suspected):
            yield after if after.leader != seen.leader else after._replace(epoch=seen.epoch)


class ElectsAnyLiveReplica(Specification):
    def elections(self, seen: ZNode, live: int, suspected: int) -> Iterator[ZNode]:
        yield from elections(seen, live, suspected)
        online = live & ~suspected
        if seen.leader < 0 or not online >> seen.leader & 1:
            for leader in members(online):
                yield ZNode(leader, seen.epoch + 1, seen.isr & online | 1 << leader, seen.version + 1)


class AlwaysUnclean(Specification):
    def elections(self, seen: ZNode, live: int, suspected: int) -> Iterator[ZNode]:
        yield from elections(seen, live, suspected)
        if not seen.isr & live:
            for leader in members(live & ~suspected):
                yield ZNode(leader, seen.epoch + 1, 1 << leader, seen.version + 1)


class KeepsLeaderEpoch(Specification):
    def elections(self, seen: ZNode, live: int, suspected: int) -> Iterator[ZNode]:
        for after in elections(seen, live, suspected):
            yield after if after.leader == seen.leader else after._replace(epoch=seen.epoch)


class PartitionEpochIgnored(Specification):
    fenced = False

    def alteration(self, seen: ZNode, request: Request, online: int) -> ZNode | None:
        return alteration(seen, request._replace(version=seen.version), online)


class BothEpochsIgnored(Specification):
    fenced = False

    def alteration(self, seen: ZNode, request: Request, online: int) -> ZNode | None:
        return alteration(seen, request._replace(version=seen.version, epoch=seen.epoch), online)


class AcknowledgedUnwritten(Specification):
    def write_alteration(self, s: Control, c: int, after: ZNode) -> Control:
        return with_controller(s, c, s.controllers[c]._replace(seen=after))


class LostAnswerIsSuccess(Specification):
    """The connection breaks before ZooKeeper has the write, and the controller believes that it was applied."""

    def write(self, s: Control, c: int, after: ZNode, send_to: int = 0) -> Control:
        written = super().write(s, c, after, send_to)
        if s.owner != c or after.epoch == s.znode.epoch or s.controllers[c].seen == NEVER_READ:
            return written
        return self.send(with_controller(s, c, s.controllers[c]._replace(seen=after)), c, send_to)


PLANTED: dict[str, type[Specification]] = {
    "writes carry no fence": NoFence,
    "the fence is read just before the write": FenceReadLate,
    "the fence outlives its session": FenceOutlivesSession,
    "an election whose answer is lost counts as lost": ElectionLostWithItsAnswer,
    "the ISR is emptied": EmptiedIsr,
    "an ISR shrinks within its leader epoch": ShrinksWithinEpoch,
    "a leader is elected from outside the ISR": ElectsAnyLiveReplica,
    "unclean elections happen although they are off": AlwaysUnclean,
    "an election does not raise the leader epoch": KeepsLeaderEpoch,
    "AlterPartition: partition epoch ignored": PartitionEpochIgnored,
    "AlterPartition: both epochs ignored": BothEpochsIgnored,
    "AlterPartition: answered but not written": AcknowledgedUnwritten,
    "a lost answer is mistaken for success": LostAnswerIsSuccess,
}
