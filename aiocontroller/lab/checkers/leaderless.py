"""Liveness during faults: how long a partition may have no live leader while a controller could elect one.

The simulation looks every ``EVERY_S``.  The time counts while an in-sync replica is alive, and a controller is active
whose links, brokers and ZooKeeper work (``able``).  Any hindrance restarts the time, and so does an election.  There is
a budget for each such time, and one for all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from aiocontroller.core.ids import NO_LEADER, LeaderAndIsr
from aiocontroller.zookeeper import paths

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.simulation import Simulation

EVERY_S = 0.5
BUDGET_S = 5.0
"""Sessions end after 3 s.  In 300 seeds no wait was longer than 3.5 s."""
BUDGET_IN_ALL_S = 7.0
"""For all times in which any partition waits, in a run.  Of 300 seeds, 287 had none, and the others at most 5 s."""
DEATHS = ("kill_broker", "power_cut")
BUDGET_OF_A_DEATH_S = 3.5
"""A session and an election: added for each broker that a plan kills by name, as plans of restarts do ten times."""

Partition = tuple[str, int]


class Leaderless:
    """``complain`` takes an invariant, its subject and what is wrong."""

    def __init__(self, complain: Callable[[str, Partition, str], None], in_all_s: float = BUDGET_IN_ALL_S) -> None:
        self._complain = complain
        self._in_all_s = in_all_s
        self._since_s: dict[Partition, float] = {}
        self._leaders: dict[Partition, int] = {}
        """The leaders of the partitions that waited at the last look."""
        self._looked_s = 0.0
        self.spent_s = 0.0
        """The time in which some partition waited, and had waited at the look before."""

    def look(
        self,
        now_s: float,
        states: Mapping[Partition, LeaderAndIsr],
        alive: Collection[int],
        damaged: Collection[int],
        *,
        able: bool,
    ) -> None:
        """Take in the partitions' states, and which brokers are alive; those in ``damaged`` cannot lead every
        partition."""
        waiting = {
            partition: state.leader
            for partition, state in states.items()
            if able
            and state.leader not in alive
            and any(broker in alive and broker not in damaged for broker in state.isr)
        }
        within = self.spent_s <= self._in_all_s
        if any(partition in self._since_s for partition in waiting):
            self.spent_s += now_s - self._looked_s
        if within and self.spent_s > self._in_all_s:
            self._complain("leaderless", next(iter(waiting)), f"and others, for {self.spent_s:.0f} s in all")
        self._looked_s = now_s
        self._since_s = {
            partition: self._since_s.get(partition, now_s) if self._waits_on(partition, leader) else now_s
            for partition, leader in waiting.items()
        }
        self._leaders = waiting
        for partition, since_s in self._since_s.items():
            if now_s - since_s > BUDGET_S:
                self._complain("leaderless", partition, f"for {now_s - since_s:.0f} s: {states[partition]}")

    def _waits_on(self, partition: Partition, leader: int) -> bool:
        """Whether there was no election since the last look; a new leader may have died again at once."""
        return leader in (NO_LEADER, self._leaders.get(partition))


class LeaderWatch:
    """Looks at a simulation from its start to its end."""

    def __init__(self, simulation: Simulation, deaths: int | None = None) -> None:
        """``deaths`` is the number of broker deaths that are certain; None: as many as the plan names."""
        self._simulation = simulation
        if deaths is None:
            deaths = sum(step.kind in DEATHS and bool(step.arguments) for step in simulation.plan.steps)
        self._leaderless = Leaderless(simulation.history.complain, BUDGET_IN_ALL_S + deaths * BUDGET_OF_A_DEATH_S)

    @property
    def spent_s(self) -> float:
        return self._leaderless.spent_s

    def start(self) -> None:
        simulation = self._simulation
        simulation.clock.call_later(EVERY_S, self.start)
        history, nodes = simulation.history, simulation.model.tree.nodes
        denied = {path.split("/")[3] for path in simulation.denied if path.startswith(f"{paths.TOPICS}/")}
        states = {
            partition: state
            for partition, state in history.states.items()
            if partition[0] not in history.written_by_hand
            and partition[0] not in denied
            and paths.delete_topics_topic(partition[0]) not in nodes
        }
        failed = {number for number, (broker, _) in simulation.brokers.items() if broker.replicas.failed}
        alive = self._alive()
        if simulation.plan.recovery != "None":
            # without a live replica known to have lost nothing, logs decide, and a sick broker may not report its own
            steady = simulation.history.data.eligible.steady
            states = {tp: state for tp, state in states.items() if not steady(tp).isdisjoint(alive - failed)}
        self._leaderless.look(simulation.clock.monotonic(), states, alive, failed, able=self._able())

    def _alive(self) -> set[int]:
        """Return the brokers that run and are registered; membership only."""
        simulation = self._simulation
        return {
            number
            for number, (_, process) in simulation.brokers.items()
            if number in simulation.history.registered and not process.host.paused
        }

    def _able(self) -> bool:
        """Return whether nothing keeps the active controller from electing leaders."""
        simulation = self._simulation
        hindered = {"links", "followers lag", "paused", "ZooKeeper down", "ZooKeeper refuses"}
        return simulation.holding() is not None and hindered.isdisjoint(simulation.faults())
