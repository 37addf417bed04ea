"""A hypothesis machine drives topics, brokers, reassignments, deletions and elections; all must hold after every step.

The invariants' names are those of docs/chaos.md: I2 to I4 are checked at every write (``pure_cluster``), I16 and the
context's own (``core.invariants``) after every step, I17 at the end, when everything is healed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import RECOVERED, ReplicaAssignment, TopicPartition
from aiocontroller.core.invariants import violations
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.request_content import AlterPartition, ElectionType
from tests.unit.controller.pure_cluster import PureCluster

BROKERS = (1, 2, 3, 4)
NAMES = ("a", "b", "c")
replica_lists = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)
numbers = st.integers(0, 1 << 16)


class RandomCluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.it = PureCluster()
        self.topics: dict[str, int] = {}
        """The dumb model: how many partitions each topic has that are not to be deleted."""
        for broker in BROKERS[:3]:
            self.it.register(broker)
        self.brokers_changed()

    # -- helpers -----------------------------------------------------------------------------------------------------

    @property
    def context(self):  # type: ignore[no-untyped-def]
        return self.it.shell.context

    def brokers_changed(self) -> None:
        self.it.queue.append(ev.BrokerChange())
        self.it.step()

    def rows(self) -> list[int]:
        return [row for row in self.context.table.rows() if not self.context.table.topic(row).deleting]

    def pick(self, number: int) -> int | None:
        rows = self.rows()
        return rows[number % len(rows)] if rows else None

    def name_of(self, row: int) -> TopicPartition:
        return self.context.table.topic_partition(row)

    # -- brokers -----------------------------------------------------------------------------------------------------

    @rule(broker=st.sampled_from(BROKERS))
    def start_or_bounce(self, broker: int) -> None:
        self.it.register(broker)
        self.brokers_changed()

    @rule(brokers=st.sets(st.sampled_from(BROKERS), min_size=1, max_size=4))
    def brokers_die(self, brokers: set[int]) -> None:
        for broker in sorted(brokers & self.it.znodes.brokers.keys()):
            self.it.unregister(broker)
        self.brokers_changed()

    @rule(broker=st.sampled_from(BROKERS))
    def controlled_shutdown(self, broker: int) -> None:
        known = self.it.znodes.brokers.get(broker)
        if known is not None:
            answers: list[object] = []
            reply = Reply(answers.append)
            self.it.queue.append(ev.ControlledShutdown(broker=broker, broker_epoch=known.epoch, reply=reply))
            self.it.step()
            assert answers

    @rule(broker=st.sampled_from(BROKERS), number=numbers)
    def directory_fails(self, broker: int, number: int) -> None:
        view = self.it.views.get(broker)
        hosted = sorted(view.hosted) if view is not None else []
        if view is not None and hosted and broker in self.it.znodes.brokers:
            failed = hosted[number % len(hosted)]
            view.failed_dirs.add(failed)
            topic = self.context.table.topic_by_name.get(failed.topic)
            if topic is not None:
                error = (topic.id, failed.partition, int(KafkaErrorCode.KAFKA_STORAGE_ERROR))
                self.it.queue.append(ev.LeaderAndIsrResponseReceived(broker, view.epoch, 0, (error,), ()))
                self.it.step()

    @rule(broker=st.sampled_from(BROKERS))
    def refuses_to_delete(self, broker: int) -> None:
        if broker in self.it.views:
            self.it.views[broker].refuses_to_delete ^= True

    # -- topics ------------------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES), partitions=st.lists(replica_lists, min_size=1, max_size=3), unclean=st.booleans()
    )
    def create_topic(self, name: str, partitions: list[list[int]], unclean: bool) -> None:
        if name not in self.it.znodes.topics:
            self.it.znodes.configs[name] = {"unclean.leader.election.enable": str(unclean).lower()}
            self.it.create_topic(name, partitions)
            self.it.step()
            self.topics[name] = len(partitions)

    @rule(name=st.sampled_from(NAMES), replicas=replica_lists)
    def add_partition(self, name: str, replicas: list[int]) -> None:
        found = self.it.znodes.topics.get(name)
        if found is not None and len(found.partitions) < 4:
            grown = found.partitions | {len(found.partitions): ReplicaAssignment(tuple(replicas))}
            changed = msgspec.structs.replace(found, partitions=grown, version=found.version + 1)
            self.it.znodes.topics[name] = changed
            self.it.queue.append(ev.PartitionModifications(name))
            self.it.step()
            if name in self.topics:
                self.topics[name] = len(grown)

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name: str) -> None:
        self.it.znodes.deletions[name] = None
        self.it.queue.append(ev.TopicDeletion())
        self.it.step()
        self.topics.pop(name, None)

    # -- leaders and ISRs --------------------------------------------------------------------------------------------

    @rule(number=numbers, members=st.sets(st.sampled_from(BROKERS)), recovered=st.booleans())
    def leader_asks_for_an_isr(self, number: int, members: set[int], recovered: bool) -> None:
        row = self.pick(number)
        table = self.context.table
        if row is None or table.isr_of[row] == NO_ISR or table.leader[row] not in self.context.brokers:
            return
        leader = table.leader[row]
        isr = tuple(r for r in table.replicas(row) if r in members or r == leader)
        change = AlterPartition(
            *self.name_of(row),
            table.leader_epoch[row],
            isr,
            table.partition_epoch[row],
            RECOVERED if recovered else table.recovery_state[row],
        )
        epoch = self.context.brokers[leader].epoch
        self.it.ask(ev.AlterPartitionReceived, broker=leader, broker_epoch=epoch, version=1, partitions=(change,))

    @rule(number=numbers, dies=st.sampled_from(BROKERS))
    def leader_writes_an_isr_and_a_broker_dies(self, number: int, dies: int) -> None:
        """As brokers of old protocols do: the controller meets the new state by a conflict."""
        row = self.pick(number)
        if row is None:
            return
        tp = self.name_of(row)
        state = self.it.znodes.states.get(tp)
        if state is None or state.leader < 0:
            return
        shrunk = msgspec.structs.replace(state, isr=(state.leader,), partition_epoch=state.partition_epoch + 1)
        self.it.znodes.states[tp] = shrunk
        self.it.znodes.isr_changes.append(tp)
        if dies in self.it.znodes.brokers:
            self.it.unregister(dies)
        self.it.queue.append(ev.BrokerChange())
        self.it.queue.append(ev.IsrChangeNotification())
        self.it.step()

    @rule(number=numbers, kind=st.sampled_from(ElectionType), all_=st.booleans())
    def elect(self, number: int, kind: ElectionType, all_: bool) -> None:
        row = self.pick(number)
        if row is not None:
            self.it.znodes.unclean_by_request = kind is ElectionType.UNCLEAN
            partitions = None if all_ else (self.name_of(row),)
            self.it.ask(ev.ReplicaLeaderElection, partitions=partitions, election_type=kind)
            self.it.znodes.unclean_by_request = False

    @rule(number=numbers)
    def elect_by_znode(self, number: int) -> None:
        row = self.pick(number)
        if row is not None:
            self.it.znodes.election = [self.name_of(row), TopicPartition("absent", 0)]
            self.it.queue.append(ev.ZkPreferredReplicaElection())
            self.it.step()
            assert self.it.znodes.election is None or self.it.znodes.crash_after is not None

    @rule()
    def rebalance(self) -> None:
        self.it.queue.append(ev.AutoPreferredReplicaLeaderElection())
        self.it.step()

    # -- reassignment ------------------------------------------------------------------------------------------------

    @rule(number=numbers, wished=st.none() | replica_lists)
    def reassign(self, number: int, wished: list[int] | None) -> None:
        row = self.pick(number)
        if row is not None:
            wanted = None if wished is None else tuple(wished)
            self.it.ask(ev.ApiPartitionReassignment, targets={self.name_of(row): wanted})

    @rule(number=numbers, wished=replica_lists)
    def reassign_by_znode(self, number: int, wished: list[int]) -> None:
        row = self.pick(number)
        if row is not None and self.it.znodes.reassignment is None:
            self.it.znodes.reassignment = {self.name_of(row): tuple(wished), TopicPartition("absent", 0): (1,)}
            self.it.queue.append(ev.ZkPartitionReassignment())
            self.it.step()

    @rule()
    def every_replica_catches_up(self) -> None:
        self.catch_up()

    def catch_up(self) -> None:
        """Each leader reports all replicas that could be in sync."""
        table = self.context.table
        for tp in [self.name_of(row) for row in table.rows()]:
            row = table.row(*tp)
            if row < 0 or self.context.table is not table or table.isr_of[row] == NO_ISR:
                continue
            leader = table.leader[row]
            if leader not in self.context.live:
                continue
            isr = tuple(r for r in table.replicas(row) if r == leader or self.context.is_replica_online(row, r))
            change = AlterPartition(*tp, table.leader_epoch[row], isr, table.partition_epoch[row], RECOVERED)
            epoch = self.context.brokers[leader].epoch
            self.it.ask(ev.AlterPartitionReceived, broker=leader, broker_epoch=epoch, version=1, partitions=(change,))
            table = self.context.table

    # -- terms -------------------------------------------------------------------------------------------------------

    @rule()
    def another_controller(self) -> None:
        self.it.failover()
        self.it.step()

    @precondition(lambda self: self.it.znodes.crash_after is None)
    @rule(writes=st.integers(0, 8))
    def term_ends_at_a_write(self, writes: int) -> None:
        """The next write but so many is refused: whatever is being done then is the next controller's to finish."""
        self.it.znodes.crash_after = writes

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def context_makes_sense(self) -> None:
        assert violations(self.context) == []

    @invariant()
    def context_is_what_zookeeper_holds(self) -> None:
        table = self.context.table
        assert set(table.topic_by_name) == set(self.it.znodes.topics)
        for row in table.rows():
            tp = self.name_of(row)
            assert table.leadership(row) == self.it.znodes.states.get(tp), tp
            held = self.it.znodes.topics[tp.topic].partitions[tp.partition]
            assert table.assignment(row) == held, tp
        owed = {key: set(partitions) for key, (partitions, _) in self.it.znodes.debts.held.items()}
        known: dict[tuple[int, str], set[int]] = {}
        for debt in self.context.debts:
            known.setdefault((debt.broker, debt.topic), set()).add(debt.partition)
        assert known == owed

    @invariant()
    def every_electable_partition_has_a_leader(self) -> None:
        """I16: no leaderless partition with a live member of its ISR, no new one with a live replica."""
        table = self.context.table
        for row in self.rows():
            online = [r for r in table.replicas(row) if self.context.is_replica_online(row, r)]
            if table.isr_of[row] == NO_ISR:
                assert not online, f"{self.name_of(row)} has never been led, {online} could"
            elif not self.context.is_replica_online(row, table.leader[row], include_shutting_down=True):
                assert not set(online) & set(table.isr(row)), f"{self.name_of(row)}: {table.leadership(row)}, {online}"

    @invariant()
    def brokers_know_what_zookeeper_holds(self) -> None:
        """I16: every registered broker's metadata, and what replicas received of their partitions."""
        table = self.context.table
        for broker, registered in self.context.brokers.items():
            view = self.it.views[broker]
            assert view.epoch == registered.epoch
            expected = {self.name_of(row): table.leadership(row) for row in self.rows() if table.isr_of[row] != NO_ISR}
            metadata = {tp: (s.leader, s.leader_epoch, s.isr, s.partition_epoch) for tp, s in view.metadata.items()}
            for tp, state in expected.items():
                assert metadata.get(tp) == (state.leader, state.leader_epoch, state.isr, state.partition_epoch), (
                    broker,
                    tp,
                )
            for tp, state in expected.items():
                row = table.row(*tp)
                if broker in table.replicas(row) and self.context.is_replica_online(row, broker):
                    known = view.hosted.get(tp)
                    assert known is not None, f"broker {broker} never received {tp}"
                    assert known.leader_epoch == state.leader_epoch, (broker, tp, known, state)

    @invariant()
    def no_broker_loses_a_topic(self) -> None:
        for name, partitions in self.topics.items():
            assert len(self.it.znodes.topics[name].partitions) == partitions

    # -- healing -----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """I17: with every broker back and able, all that was begun ends."""
        self.it.znodes.crash_after = None
        for broker in BROKERS:
            self.it.register(broker)
            self.it.views[broker].refuses_to_delete = False
        self.brokers_changed()
        for _ in range(4):
            self.catch_up()
        left = list(self.unfinished())
        assert left == []
        for check in (
            self.context_makes_sense,
            self.context_is_what_zookeeper_holds,
            self.every_electable_partition_has_a_leader,
        ):
            check()

    def unfinished(self) -> Iterator[str]:
        znodes, context = self.it.znodes, self.context
        yield from (f"topic {name} is still to be deleted" for name in znodes.deletions)
        yield from (f"{self.name_of(row)} is still being moved" for row in context.partitions_being_reassigned)
        if znodes.reassignment:
            yield f"the request to reassign is still there: {znodes.reassignment}"
        if set(znodes.topics) != set(self.topics):
            yield f"topics {sorted(znodes.topics)}, expected {sorted(self.topics)}"
        yield from (f"{debt!r} is still to be deleted" for debt in context.debts)
        assigned = {b: {self.name_of(row) for row in context.table.partitions_on_broker(b)} for b in BROKERS}
        yield from (
            f"broker {b} hosts {sorted(view.hosted)}, expected none but {sorted(assigned[b])}"
            for b, view in self.it.views.items()
            if not set(view.hosted) <= assigned[b]
        )
        for row in self.rows():
            if context.table.leader[row] not in context.live:
                yield f"{self.name_of(row)} is not led: {context.table.leadership(row)}"


RandomCluster.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRandomCluster = RandomCluster.TestCase
