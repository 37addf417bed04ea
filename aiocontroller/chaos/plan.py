"""What a seed draws before anything runs: the cluster's size, which faults exist and how often, and every step.

A step carries its own seed, so that a step can be left out without changing what the others do: that is what makes a
failing plan shrinkable, and what a scenario file holds.
"""

from __future__ import annotations

import random

import msgspec

from aiocontroller.config import Detection


class Step(msgspec.Struct, frozen=True):
    kind: str
    seed: int
    pause_s: float
    """Time until the next step."""
    words: tuple[str, ...] = ()
    """Whom and what, where that is not drawn from the seed."""

    def __str__(self) -> str:
        """As a line of a scenario file."""
        words = (self.kind.replace("_", "-"), *self.words, f"seed={self.seed}", f"then={self.pause_s:g}")
        return " ".join(words)


class Plan(msgspec.Struct, frozen=True):
    seed: int
    brokers: int
    controllers: int
    shared_id: bool
    """All controllers have the same id, as instances of one service may."""
    takeover: bool
    """A starting controller deposes the one in office."""
    steps: tuple[Step, ...]
    crash_at: int = 0
    """The number of the controllers' write at which its writer is killed, once; 0: at none."""
    crash_before: bool = False
    broker_detection: Detection = "off"
    controller_detection: Detection = "off"
    fast_bounce: bool = False
    crash_await: int = 0
    """As ``crash_at``, for the number of an await point in a controller's handlers."""
    followers: int = 0
    """ZooKeeper servers beside the leader, whose answers may be old."""
    drift_percent: int = 0
    """How much faster or slower a process's clock may run."""

    def crashing_at(self, number: int, *, before: bool) -> Plan:
        """The operator's work alone, and one crash at a write."""
        return msgspec.structs.replace(self, steps=self._work(), crash_at=number, crash_before=before)

    def crashing_at_await(self, number: int) -> Plan:
        """The operator's work alone, and one crash at an await point."""
        return msgspec.structs.replace(self, steps=self._work(), crash_await=number)

    def _work(self) -> tuple[Step, ...]:
        return tuple(msgspec.structs.replace(s, pause_s=1.0) for s in self.steps if s.kind in WORKLOAD)

    def without(self, start: int, end: int) -> Plan:
        return msgspec.structs.replace(self, steps=self.steps[:start] + self.steps[end:])


WORKLOAD = (
    "create_topic",
    "delete_topic",
    "add_partitions",
    "reassign",
    "cancel_reassignment",
    "delete_while_moving",
    "move_and_fail",
    "undo_under_another",
    "ask_much",
    "reassign_by_znode",
    "elect_preferred",
    "elect_by_znode",
    "allow_unclean",
    "notify_isr_change",
    "allocate_producer_ids",
    "list_reassignments",
    "auto_create_topic",
)
FAULTS = (
    "kill_broker",
    "stop_broker",
    "bounce_broker",
    "fail_log_dir",
    "expire_broker",
    "pause_broker",
    "cut_broker",
    "kill_controller",
    "stop_controller",
    "expire_controller",
    "pause_controller",
    "cut_controller",
    "delete_controller_znode",
    "rewrite_controller_epoch",
    "trap_controller",
    "trap_broker",
    "block",
    "block_brokers",
    "lag",
    "repeat_late",
    "restart_zookeeper",
    "pause_zookeeper",
    "lag_followers",
    "slow_disk",
    "jump_clock",
    "crash_at_await",
    "win_again",
    "expire_in_failover",
    "elect_zookeeper_leader",
)
DETECTION_FAULTS = (
    "deafen_broker",
    "hush_broker",
    "freeze_leader",
    "freeze_all_brokers",
    "flap_broker",
    "hush_controller",
    "kill_controller_and_broker",
)
"""Drawn where early detection is on: what it must not be fooled by."""
REPAIRS = ("start_broker", "start_controller", "heal", "wait")
KINDS = (*WORKLOAD, *FAULTS, *REPAIRS)
MODES: tuple[Detection, ...] = ("off", "refused", "full", "full")
ALWAYS = frozenset({*REPAIRS, "create_topic", "reassign", "delete_topic"})

PAUSES_S = (0.0, 0.01, 0.05, 0.2, 1.0, 3.0)


def draw(seed: int) -> Plan:
    """The whole plan of a seed."""
    chance = random.Random(f"plan {seed}")
    detection = random.Random(f"detection {seed}")  # its own: with it off, a seed's plan is what it was without
    modes = detection.choice(MODES), detection.choice(MODES)
    known = KINDS if modes == ("off", "off") else (*KINDS, *DETECTION_FAULTS)
    kinds = [kind for kind in known if kind in ALWAYS or chance.random() < 0.5]
    weights = [chance.choice((1, 2, 4, 8)) + (4 if kind in REPAIRS else 0) for kind in kinds]
    steps = tuple(
        Step(chance.choices(kinds, weights)[0], chance.randrange(1 << 32), chance.choice(PAUSES_S))
        for _ in range(chance.choice((30, 50, 80)))
    )
    return Plan(
        seed,
        brokers=chance.choice((2, 3, 3, 3, 4)),
        controllers=chance.choice((1, 2, 2, 2, 3)),
        shared_id=chance.random() < 0.25,
        takeover=chance.random() < 0.2,
        steps=steps,
        broker_detection=modes[0],
        controller_detection=modes[1],
        fast_bounce=detection.random() < 0.3,
        followers=chance.choice((0, 0, 2)),
        drift_percent=chance.choice((0, 0, 2, 10)),
    )
