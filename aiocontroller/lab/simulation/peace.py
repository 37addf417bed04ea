"""The end of a simulation: all faults are healed, and the cluster must become whole again (``recovery_checks``).

Peace repairs links, restarts dead processes, and repairs what only an operator can: brokers and assignments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.lab.checkers.inspection import inspect
from aiocontroller.lab.checkers.mirrored import stale_parts
from aiocontroller.lab.checkers.recovery_checks import what_is_missing
from aiocontroller.lab.cluster.partition import Partition as Replica
from aiocontroller.lab.cluster.simulated_broker import SimulatedBroker
from aiocontroller.lab.simulation.sickness import still_sick
from aiocontroller.lab.simulation.steps.base import Targets
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.errors import SessionExpiredError
from aiocontroller.zookeeper.znode_json import topic_id_to_text

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.simulation import Simulation

HEAL_WITHIN_S = 300.0
"""The virtual time within which a healed cluster must be whole."""
POLL_S = 2.0
WHOLE_POLLS = 2
"""The number of successive polls that must find the cluster whole, without writes in between."""


class Peace:
    """Makes peace; what is missing then is added to the simulation's problems."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    async def make(self) -> None:
        """Heal everything, and wait until the cluster is whole, a rule is violated, or the time is over."""
        self._heal_everything()
        simulation, history = self._simulation, self._simulation.history
        deadline = simulation.clock.monotonic() + HEAL_WITHIN_S
        whole, writes = 0, -1
        while whole < WHOLE_POLLS:
            await simulation.clock.sleep(POLL_S)
            self._raise_the_dead()
            if simulation.violations():
                return
            missing = await self._what_is_missing()
            if not missing and history.writes != writes:
                missing = [f"I9: {history.writes - writes} states were written in a cluster that is whole"]
                whole, writes = 1, history.writes
            else:
                whole = 0 if missing else whole + 1
            if simulation.clock.monotonic() > deadline:
                simulation.problems += [f"after {HEAL_WITHIN_S:.0f} s of peace: {problem}" for problem in missing[:10]]
                return
        for observer in simulation.requests.values():
            simulation.problems += observer.unanswered()
        if simulation.data is not None:
            simulation.data.check_end()

    def _heal_everything(self) -> None:
        simulation = self._simulation
        simulation.model.traps = []
        simulation.heard = lambda broker, api: None
        for _, process in [*simulation.controllers.values(), *simulation.brokers.values()]:
            process.host.resume()
        simulation.zookeeper_host.resume()
        simulation.followers_lag_s, simulation.crash_in = 0.0, 0
        for broker, _ in simulation.brokers.values():
            broker.disk_delay_s = 0.0
        simulation.network.heal()
        for repair in reversed(simulation.repairs):  # each restores what it found
            repair()
        self._restart(lambda number, broker: bool(broker.replicas.failed))  # a failed disk is replaced
        if simulation.data is not None:
            simulation.data.stop_clients()
        self._raise_the_dead()

    def _restart(self, needs_it: Callable[[int, SimulatedBroker], bool], probe: str = "") -> None:
        """Kill the brokers that need it; ``_raise_the_dead`` starts them again."""
        simulation = self._simulation
        for number in [number for number, (broker, _) in simulation.brokers.items() if needs_it(number, broker)]:
            if probe:
                simulation.history.probe(probe)
            simulation.kill(simulation.brokers.pop(number)[1])

    def _raise_the_dead(self) -> None:
        simulation = self._simulation
        if simulation.foreign_writes:
            self._restart(self._knows_what_is_lost, "started anew after a write by hand")
        self._restart(self._has_lost_its_registration, "registration removed")
        self._restart(self._has_lost_an_answer, "started anew after a lost answer")
        for number in range(1, simulation.plan.brokers + 1):
            if number not in simulation.brokers or simulation.brokers[number][1].task.done():
                simulation.start_broker(number)
        for number in range(1, simulation.plan.controllers + 1):
            if number not in simulation.controllers or simulation.controllers[number][1].task.done():
                simulation.start_controller(number)
        self._end_the_vacancy()
        self._assign_who_was_left_out()

    def _end_the_vacancy(self) -> None:
        """Have a controller that has given the role up for good take it again, if no other one does."""
        simulation = self._simulation
        observing = [n for n, (service, _) in simulation.controllers.items() if service.controller.election.observing]
        if observing and paths.CONTROLLER not in simulation.model.tree.nodes:
            simulation.take_over(min(observing))

    def _assign_who_was_left_out(self) -> None:
        """Move partitions back to their ISR if an assignment written by hand contains no member of it.

        A controller loads such an assignment.  Once the leader has died, no controller lets it lead again, and no
        replica of the assignment is in sync.
        """
        history = self._simulation.history
        left: Targets = {
            TopicPartition(*partition): state.isr
            for partition, state in history.states.items()
            if partition[0] in history.written_by_hand and partition in history.assigned
            if not history.assigned[partition] & set(state.isr)
        }
        if left:
            history.probe("moved back to the ISR that an assignment leaves out")
            self._simulation.steps.reassign(left)

    def _has_lost_its_registration(self, number: int, broker: SimulatedBroker) -> bool:
        """Return whether a fast bounce has removed the registration of a broker that is alive and has its session.

        Such a broker does not register again by itself.
        """
        simulation = self._simulation
        return (
            simulation.plan.fast_bounce
            and broker.status().epoch > 0
            and broker.session_id in simulation.model.sessions
            and paths.broker_id(number) not in simulation.model.tree.nodes
        )

    def _has_lost_an_answer(self, number: int, broker: SimulatedBroker) -> bool:
        """Return whether a leader does not know the ISR that it has written, because its session expired meanwhile.

        Then it can no longer change that ISR (KAFKA-2729): each write expects an earlier version of the znode.  The
        controller cannot know this, and writes the state only with another leader epoch.
        """
        states = self._simulation.history.states
        return not broker.protocol.isr_by_alter_partition and any(
            replica.is_leader
            and replica.pending_isr is None
            and (state := states.get((replica.topic, replica.partition))) is not None
            and (state.leader, state.leader_epoch) == (number, replica.leader_epoch)
            and state.partition_epoch > replica.partition_epoch
            for replica in broker.replicas.partitions()
        )

    def _knows_what_is_lost(self, number: int, broker: SimulatedBroker) -> bool:
        """Return whether a broker knows more of a foreign write than the present controller can know.

        A foreign client wrote a topic, and the controller that knew of it is gone: the broker holds a higher epoch,
        another topic id, another replica, or, in the same epoch, another leadership.  Kafka's brokers then ignore what
        they are sent, and Kafka's controller does not notice.  An operator would restart this broker.
        """
        history = self._simulation.history
        for replica in broker.replicas.partitions():
            partition = (replica.topic, replica.partition)
            state = history.states.get(partition)
            same = topic_id_to_text(replica.topic_id) == history.topic_ids.get(replica.topic)
            assigned = history.assigned.get(partition, frozenset())
            known = same and number in assigned
            lost = state is None or not known or _knows_otherwise(replica, state, assigned)
            if lost and history.cannot_be_repaired(replica.topic):
                return True
        return False

    async def _what_is_missing(self) -> list[str]:
        simulation = self._simulation
        try:
            missing = await what_is_missing(
                simulation.zk,
                [inspect(service) for service, _ in simulation.controllers.values()],
                {number: broker.status() for number, (broker, _) in simulation.brokers.items()},
                simulation.targets,
                simulation.history,
            )
        except SessionExpiredError:  # the observer's own session also suffers the faults
            return ["the observer's session has expired"]
        for (topic, number), state in simulation.history.states.items():
            if state.leader > 0 and state.leader == simulation.plan.avoided and len(state.isr) > 1:
                missing.append(f"leader: broker {state.leader} leads {topic}-{number}, and others could: {state.isr}")
        for service, _ in simulation.controllers.values():
            if service.controller.election.active:
                missing += simulation.settings.wrong(service.shell.settings)
                missing += still_sick(service.shell)
            elif (mirror := service.controller.election.mirror) is not None and mirror.copy is not None:
                stale = stale_parts(mirror.copy, simulation.model.tree.nodes, at_rest=True)
                missing += [f"I18: controller {service.shell.id}: {each}" for each in stale]
        return missing


def _knows_otherwise(replica: Replica, state: LeaderAndIsr, assigned: frozenset[int]) -> bool:
    """Return whether the replica's knowledge differs from this state, and no LeaderAndIsr with the state corrects it.

    The ISR and the assigned replicas matter only for a leader; followers are not sent every change.
    """
    if replica.partition_epoch > state.partition_epoch:
        return True  # since 3.3 a broker ignores older ones, whatever the leader epoch
    if replica.leader_epoch != state.leader_epoch:
        return replica.leader_epoch > state.leader_epoch
    if replica.leader != state.leader:
        return True
    known = (frozenset(replica.replicas), replica.isr, replica.partition_epoch)
    return replica.is_leader and known != (assigned, state.isr, state.partition_epoch)
