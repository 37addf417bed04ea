"""The plan that a seed draws before anything runs: the size of the cluster, the kinds of faults, and every step.

Each step carries its own seed, so leaving a step out does not change the others.  This makes a failing plan shrinkable,
and lets a scenario file hold its steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from aiocontroller.config import Detection
from aiocontroller.core.unclean_recovery import RecoveryStrategy
from aiocontroller.lab.scenarios.fleet import Drawn, draw_fleet
from aiocontroller.lab.scenarios.limits import Limits, draw_limits
from aiocontroller.lab.scenarios.restarts import BROKERS, Happening, draw_restarts, is_of_restarts
from aiocontroller.lab.scenarios.sick_brokers import draw_passages

Sickness = Literal["off", "advise", "act"]


class ScenarioStep(msgspec.Struct, frozen=True):
    kind: str
    seed: int
    pause_s: float
    """Time until the next step."""
    arguments: tuple[str, ...] = ()
    """Targets and arguments; empty if they are drawn from the seed."""

    def __str__(self) -> str:
        """Return the step as a line of a scenario file."""
        words = (self.kind.replace("_", "-"), *self.arguments, f"seed={self.seed}", f"then={self.pause_s:g}")
        return " ".join(words)


class Plan(msgspec.Struct, frozen=True):
    seed: int
    brokers: int
    controllers: int
    shared_id: bool
    """All controllers have the same id, as instances of one service may."""
    takeover: bool
    """A starting controller deposes the active one."""
    steps: tuple[ScenarioStep, ...]
    crash_at: int = 0
    """The number of the write at which the controller that makes it is killed, once; 0: no crash."""
    crash_before: bool = False
    broker_detection: Detection = "off"
    controller_detection: Detection = "off"
    fast_bounce: bool = False
    crash_await: int = 0
    """The same, for the number of an await point in a controller's handlers."""
    followers: int = 0
    """ZooKeeper servers beside the leader, whose answers may be stale."""
    drift_percent: int = 0
    """How much faster or slower the clock of a process may run."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings in the files of all brokers, which controllers must obey."""
    broker_settings: tuple[tuple[str, str], ...] = ()
    """In one broker's file: ``2/delete.topic.enable`` and its value."""
    controller_settings: tuple[tuple[str, str], ...] = ()
    """In one controller's own file; if no broker agrees, that controller must not take the role."""
    releases: str = ""
    """The brokers' releases in the order of their ids, separated by commas: ``2.8,3.9``; the other brokers have the
    newest."""
    protocol: str = ""
    """``inter.broker.protocol.version`` of all brokers; empty: each broker uses that of its release."""
    limits: Limits = ()
    """Size limits of the program that are smaller than usual; see ``limits``."""
    data: bool = False
    """Brokers keep logs."""
    retained: int = -1
    """How many records each log keeps; older ones are deleted.  -1: all."""
    task_order: bool = False
    """Tasks that are ready at the same time run in a drawn order."""
    clients: int = 0
    """Clients that produce to all partitions and read, if brokers keep logs."""
    warm: bool = False
    """Standbys keep a copy of the cluster."""
    authorizer: bool = False
    """Brokers and controllers have an authorizer, which allows everything."""
    forks: str = ""
    """The points from which delays, order and steps are drawn again; see ``forks``."""
    steps_stay: bool = False
    """Forks keep the plan's steps."""

    avoided: int = 0
    """A broker that should not lead, by the controllers' files (``aiocontroller.leader.avoid.brokers``); 0: none."""
    login: bool = False
    """Controllers log in to ZooKeeper by SASL."""

    fence: bool = False
    """An operator's command, which may fail, kills brokers that hang."""
    sickness: Sickness = "off"
    """Whether sick brokers are detected, and whether they are treated."""
    recovery: RecoveryStrategy = "None"
    """Which replicas are awaited before one leads whose log may have lost its end
    (``aiocontroller.unclean.recovery.strategy``)."""

    def crashing_at(self, number: int, *, before: bool) -> Plan:
        """Return the plan with only the operator's work and one crash at a write."""
        return msgspec.structs.replace(self, steps=self._work(), crash_at=number, crash_before=before)

    def crashing_at_await(self, number: int) -> Plan:
        """Return the plan with only the operator's work and one crash at an await point."""
        return msgspec.structs.replace(self, steps=self._work(), crash_await=number)

    def _work(self) -> tuple[ScenarioStep, ...]:
        return tuple(msgspec.structs.replace(s, pause_s=1.0) for s in self.steps if s.kind in (*WORKLOAD, *ROLLS))

    def with_data(self) -> Plan:
        """Return the same plan with logs and clients; in half of the seeds acks=all needs two replicas in sync."""
        min_isr = random.Random(f"min isr {self.seed}").choice(("1", "2"))
        settings = tuple(setting for setting in self.settings if setting[0] != MIN_ISR)
        return msgspec.structs.replace(self, data=True, clients=2, settings=(*settings, (MIN_ISR, min_isr)))

    def redrawn(self, start: int, lineage: str) -> Plan:
        """Return the plan with other steps from ``start`` on, of the kinds that it has; those with arguments stay."""
        chance = random.Random(f"plan {lineage}")
        kinds = [step.kind for step in self.steps if not step.arguments]
        drawn = (
            step
            if step.arguments
            else ScenarioStep(chance.choice(kinds), chance.randrange(1 << 32), chance.choice(PAUSES_S))
            for step in self.steps[start:]
        )
        return msgspec.structs.replace(self, steps=(*self.steps[:start], *drawn))

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
    "elect_everywhere",
    "elect_by_znode",
    "allow_unclean",
    "notify_isr_change",
    "allocate_producer_ids",
    "list_reassignments",
    "auto_create_topic",
    "request_topics",
    "request_partitions",
    "request_deletion",
)
UNCLEAN = "unclean.leader.election.enable"
DELETION = "delete.topic.enable"
DRAWN: dict[str, tuple[str, ...]] = {
    UNCLEAN: ("false", "true"),
    "auto.leader.rebalance.enable": ("false", "true"),
    "leader.imbalance.per.broker.percentage": ("50", "10", "0"),
    "num.partitions": ("1", "3"),
    DELETION: ("false", "true"),
    "auto.create.topics.enable": ("false", "true"),
    "default.replication.factor": ("2", "1"),
    "leader.imbalance.check.interval.seconds": ("60", "20", "5"),
    "controller.quota.window.num": ("11", "2"),
}
"""Settings that controllers obey, and their values, the least harmful first."""
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
"""Drawn if early detection is on: faults that must not mislead it."""
CONFIG_REQUESTS = ("request_configs", "request_credentials", "request_quotas", "request_features", "request_acls")
"""Drawn in two fifths of the seeds: clients' requests that do not concern topics."""
ROLE_CHANGES = ("release_controller", "take_over")
"""Drawn in a quarter of the seeds: an operator gives the role back, and takes it."""
HOSTILE = ("send_garbage",)
"""Drawn in a fifth of the seeds."""
BY_HAND = ("write_state", "delete_state", "write_assignment", "make_topic_anew", "damage_znode")
"""Drawn in a fifth of the seeds: foreign writes to znodes that only the controller may write."""
REFUSALS = ("refuse_connections", "refuse_login", "deny_znode")
"""Drawn in a quarter of the seeds; in half of those, controllers log in."""
REFUSAL_SHARE = 0.25
SETTING_CHANGES = ("configure_broker", "alter_broker_configs")
"""Drawn in a quarter of the seeds."""
OPTIONAL = (
    ("setting changes", SETTING_CHANGES, 0.25),
    ("config requests", CONFIG_REQUESTS, 0.4),
    ("role changes", ROLE_CHANGES, 0.25),
    ("hostile", HOSTILE, 0.2),
    ("refusals", REFUSALS, REFUSAL_SHARE),
)
"""Kinds of steps that a share of the seeds has: (name, kinds, share)."""
DATA_FAULTS = ("power_cut",)
"""Drawn if brokers keep logs."""
DATA_SHARE = 0.25
RECOVER_SHARE = 0.5
"""The share of the seeds with logs in which an operator recovers partitions by their logs."""
SICKNESS = ("sick_disk", "sick_disk", "lag", "block_brokers", "wait")
"""Added to the other kinds, and so drawn more often, where sickness is judged."""
SICKNESS_SHARES = {False: 0.1, True: 0.6}
"""The share of seeds in which sickness is judged, without logs and with them: most of it shows only in logs."""
RETAINED = (0, 3, 20)
"""How many records logs keep where retention deletes any."""
RETENTION_SHARE = 1 / 3
"""The share of seeds with logs in which it does."""
MIN_ISR = "min.insync.replicas"
ELIGIBLE = "aiocontroller.eligible.leader.replicas"
ROLLS = ("upgrade_broker",)
"""The steps of a rolling upgrade, in order; see ``fleet``."""
REPAIRS = ("start_broker", "start_controller", "heal", "wait")
KINDS = (*WORKLOAD, *FAULTS, *REPAIRS)
MODES: tuple[Detection, ...] = ("off", "refused", "full", "full")
ALWAYS = frozenset({*REPAIRS, "create_topic", "reassign", "delete_topic"})
STRATEGIES: tuple[RecoveryStrategy, ...] = ("None", "None", "Balanced", "Aggressive")

PAUSES_S = (0.0, 0.01, 0.05, 0.2, 1.0, 3.0)


def draw(seed: int) -> Plan:
    """Draw the whole plan of a seed; every twelfth is one of restarts."""
    return restarts(seed) if is_of_restarts(seed) else _anything(seed)


def restarts(seed: int) -> Plan:
    """Draw a plan of the family ``restarts``; any seed has one."""
    chance = random.Random(f"restarts plan {seed}")
    drawn = draw_restarts(seed)
    detection: Detection = chance.choice(MODES) if chance.random() < 0.25 else "off"
    values = {UNCLEAN: "false", "auto.leader.rebalance.enable": chance.choice(("true", "false")), MIN_ISR: "2"}
    return Plan(
        seed,
        brokers=len(BROKERS),
        controllers=drawn.controllers,
        shared_id=False,
        takeover=chance.random() < 0.2,
        steps=_steps(drawn.steps, chance),
        broker_detection=detection,
        controller_detection=detection,
        settings=tuple(values.items()),
        controller_settings=((f"{drawn.controllers}/{ELIGIBLE}", "false"),) if drawn.forgetful else (),
        releases=",".join([chance.choice(("3.9", "3.9", "3.7"))] * len(BROKERS)),
        limits=draw_limits(seed),
        data=True,
        retained=_retained(seed),
        task_order=chance.random() < 0.5,
        clients=2,
        warm=chance.random() < 2 / 3,
        recovery=_strategy(seed),
    )


def _anything(seed: int) -> Plan:
    chance = random.Random(f"plan {seed}")
    # a generator of its own, so that without detection a seed's plan stays the same
    detection = random.Random(f"detection {seed}")
    modes = detection.choice(MODES), detection.choice(MODES)
    known = KINDS if modes == ("off", "off") else (*KINDS, *DETECTION_FAULTS)
    by_hand = random.Random(f"by hand {seed}").random() < 0.2
    if by_hand:
        known = (*known, *BY_HAND)
    for what, kinds_of_it, share in OPTIONAL:
        if random.Random(f"{what} {seed}").random() < share:
            known = (*known, *kinds_of_it)
    data = not by_hand and random.Random(f"data {seed}").random() < DATA_SHARE
    if data:
        known = (*known, *DATA_FAULTS)
        if random.Random(f"recover {seed}").random() < RECOVER_SHARE:
            known = (*known, "recover")
    sickness = random.Random(f"sickness {seed}")
    modes_of_sickness: tuple[Sickness, ...] = ("advise", "act", "act", "act")
    sick: Sickness = sickness.choice(modes_of_sickness) if sickness.random() < SICKNESS_SHARES[data] else "off"
    if sick != "off":
        known = (*known, *SICKNESS)
    kinds = [kind for kind in known if kind in ALWAYS or chance.random() < 0.5]
    weights = [chance.choice((1, 2, 4, 8)) + (4 if kind in REPAIRS else 0) for kind in kinds]
    steps = tuple(
        ScenarioStep(chance.choices(kinds, weights)[0], chance.randrange(1 << 32), chance.choice(PAUSES_S))
        for _ in range(chance.choice((30, 50, 80)))
    )
    brokers, controllers = chance.choice((2, 3, 3, 3, 4)), chance.choice((1, 2, 2, 2, 3))
    # if leaders write states as well, foreign writes cannot be distinguished
    fleet = Drawn() if by_hand else draw_fleet(seed, brokers)
    rolls = [(ScenarioStep(roll.kind, n, 1.0, roll.arguments),) for n, roll in enumerate(fleet.rolls)]
    steps = _among(steps, rolls, random.Random(f"rolls {seed}"))
    if sick != "off":
        passages = draw_passages(seed, brokers, controllers, data=data)
        steps = _among(steps, [_steps(passage, sickness) for passage in passages], sickness)
    drawn = Plan(
        seed,
        brokers=brokers,
        controllers=controllers,
        shared_id=chance.random() < 0.25,
        takeover=chance.random() < 0.2,
        steps=steps,
        broker_detection=modes[0],
        controller_detection=modes[1],
        fast_bounce=detection.random() < 0.3,
        followers=chance.choice((0, 0, 2)),
        drift_percent=chance.choice((0, 0, 2, 10)),
        settings=_settings(seed),
        broker_settings=_differing(seed, brokers),
        controller_settings=_contradicting(seed, controllers),
        releases=fleet.releases,
        protocol=fleet.protocol,
        limits=draw_limits(seed),
        task_order=random.Random(f"task order {seed}").random() < 0.5,
        warm=controllers > 1 and random.Random(f"warm {seed}").random() < 2 / 3,
        authorizer=random.Random(f"authorizer {seed}").random() < 0.125,
        fence=modes[0] == "full" and random.Random(f"fence {seed}").random() < 0.5,
        avoided=max(0, random.Random(f"avoided {seed}").randint(-4 * brokers, brokers)),
        sickness=sick,
        login="refuse_login" in known and random.Random(f"login {seed}").random() < 0.5,
    )
    if not data:
        return drawn
    return msgspec.structs.replace(drawn.with_data(), recovery=_strategy(seed), retained=_retained(seed))


def _retained(seed: int) -> int:
    """Draw how many records logs keep from a generator of its own, so that the rest of a seed's plan stays the same."""
    chance = random.Random(f"retention {seed}")
    return chance.choice(RETAINED) if chance.random() < RETENTION_SHARE else -1


def _strategy(seed: int) -> RecoveryStrategy:
    return random.Random(f"recovery {seed}").choice(STRATEGIES)


def _settings(seed: int) -> tuple[tuple[str, str], ...]:
    """Draw the brokers' settings from a generator of their own, so that the rest of a seed's plan stays the same."""
    chance = random.Random(f"settings {seed}")
    drawn = {
        UNCLEAN: "true" if chance.random() < 0.125 else "false",
        "auto.leader.rebalance.enable": chance.choice(("true", "true", "false")),
        "leader.imbalance.per.broker.percentage": chance.choice(("0", "10", "50")),
        "num.partitions": chance.choice(("1", "3")),
        DELETION: "false" if chance.random() < 0.125 else "true",
        "auto.create.topics.enable": chance.choice(("true", "true", "false")),
        "default.replication.factor": chance.choice(("1", "2")),
        "leader.imbalance.check.interval.seconds": chance.choice(("5", "20", "20", "60")),
        "controller.quota.window.num": chance.choice(("11", "2")),
    }
    return tuple(drawn.items())


def _differing(seed: int, brokers: int) -> tuple[tuple[str, str], ...]:
    """Draw one or two settings in which brokers differ, in a third of the seeds."""
    chance = random.Random(f"differing settings {seed}")
    if chance.random() >= 1 / 3:
        return ()
    values_of: list[tuple[str, str]] = []
    for name in chance.sample(list(DRAWN), chance.choice((1, 2))):
        values = chance.sample(DRAWN[name], 2)
        first, *others, last = chance.sample(range(1, brokers + 1), brokers)
        values_of += [(f"{first}/{name}", values[0]), (f"{last}/{name}", values[1])]
        values_of += [(f"{broker}/{name}", chance.choice(values)) for broker in others]
    return tuple(sorted(values_of))


def _contradicting(seed: int, controllers: int) -> tuple[tuple[str, str], ...]:
    """Draw a setting for the last of several controllers, perhaps unlike the brokers', in a fifth of the seeds."""
    chance = random.Random(f"contradicting settings {seed}")
    if controllers == 1 or chance.random() >= 0.2:
        return ()
    name = chance.choice(list(DRAWN))
    return ((f"{controllers}/{name}", chance.choice(DRAWN[name])),)


def _steps(happenings: Iterable[Happening], chance: random.Random) -> tuple[ScenarioStep, ...]:
    return tuple(
        ScenarioStep(kind, chance.randrange(1 << 32), pause_s, arguments) for kind, pause_s, arguments in happenings
    )


def _among(
    steps: tuple[ScenarioStep, ...], parts: Sequence[tuple[ScenarioStep, ...]], chance: random.Random
) -> tuple[ScenarioStep, ...]:
    """Put the parts between the steps at random places; both keep their order."""
    merged = list(steps)
    places = sorted(chance.randint(0, len(steps)) for _ in parts)
    for place, part in reversed(list(zip(places, parts, strict=True))):
        merged[place:place] = part
    return tuple(merged)
