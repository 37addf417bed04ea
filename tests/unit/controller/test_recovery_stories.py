"""Random stories of one partition: whatever happens meanwhile, no member of the ISR that started uncleanly leads before
every other live replica was asked, as it runs now; and in peace somebody leads, and moves end."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import NO_LEADER, Broker, LeaderAndIsr, TopicPartition
from aiocontroller.core.log_evidence import NOT_IN_TIME, Evidence, LogEnd, Question
from aiocontroller.core.request_content import AlterPartition, ElectionType, PartitionRecovery
from tests.unit.controller.leaderless import T0, Asking, change
from tests.unit.controller.pure_cluster import cluster, run

BROKERS = (1, 2, 3, 4)
STEPS = 30
MOST_ROUNDS = 60


class Story:
    """Draws what happens, and judges each election."""

    def __init__(self, seed: int, strategy: str) -> None:
        self.random = random.Random(f"{strategy} {seed}")
        self.it = it = cluster(*BROKERS, t=[[1, 2, 3]])
        it.shell.config = msgspec.structs.replace(it.shell.config, aiocontroller_unclean_recovery_strategy=strategy)
        it.znodes.configs["t"] = {"min.insync.replicas": str(self.random.choice([1, 2]))}
        it.znodes.unclean_by_request = True
        it.failover()
        self.asking = Asking(it)
        self.asked: dict[int, int] = {}
        """Of the last round: broker -> the epoch of its incarnation."""
        self.demanded = self.peace = False
        self.history: list[str] = []
        it.shell.log_questions.start(self.asking, self.gather)
        self._check, it.znodes.check = it.znodes.check, self.judge  # type: ignore[method-assign]
        self.acts: list[tuple[Callable[[], None], int]] = [
            (self.registration, 10),
            (self.isr_changes, 4),
            (self.answer, 4),
            (self.move, 2),
            *((act, 1) for act in (self.cancel, self.elect_preferred, self.fail_disk, self.recover)),
            *((act, 1) for act in (it.failover, it.reload)),
            *((lambda event=event: it.queue.append(event), 1) for event in (ev.OfflinePartitionsSweep(), BALANCE)),
        ]

    # -- what is judged --------------------------------------------------------------------------------------------

    def judge(self, tp: TopicPartition, old: LeaderAndIsr | None, new: LeaderAndIsr) -> None:
        self._check(tp, old, new)
        context, leader = self.it.shell.context, new.leader
        if old is None or old.leader != NO_LEADER or leader not in old.isr or self.demanded:
            return
        others = [b for b in self.replicas if b != leader and context.is_replica_online(context.table.row(*tp), b)]
        if leader in context.started_uncleanly() and others:
            left_out = [b for b in (leader, *others) if self.asked.get(b) != context.brokers[b].epoch]
            assert not left_out, f"{leader} leads, and {left_out} were not asked: {self.history[-12:]}"

    def play(self) -> None:
        for _ in range(STEPS):
            act = self.random.choices([act for act, _ in self.acts], [weight for _, weight in self.acts])[0]
            self.history.append(getattr(act, "__name__", "event"))
            act()
            if self.random.random() < 0.8:
                self.it.step()
        self.peace = True
        for broker in BROKERS:
            if broker in self.it.znodes.brokers:
                self.it.unregister(broker)
            self.it.register(broker)
            self.it.views[broker].failed_dirs.clear()
            change(self.it)
            self.answer()
        for _ in range(6):
            self.it.queue.append(ev.OfflinePartitionsSweep())
            self.answer()
        state, assignment = self.it.znodes.states[T0], self.it.znodes.topics["t"].partitions[0]
        assert state.leader != NO_LEADER, self.history
        assert not (assignment.being_reassigned and set(assignment.target) <= set(state.isr)), self.history

    # -- what happens ----------------------------------------------------------------------------------------------

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.it.znodes.topics["t"].partitions[0].replicas

    async def gather(
        self, brokers: Mapping[int, Broker], questions: Sequence[Question], within_s: float
    ) -> dict[TopicPartition, Evidence]:
        [question] = questions
        self.asked = dict(zip(question.brokers, question.epochs, strict=True))
        found = Evidence({}, {})
        for broker, epoch in self.asked.items():
            log = random.Random(f"{broker} {epoch}")
            if not self.peace and self.random.random() < 0.15:
                found.silent[broker] = self.random.choice([NOT_IN_TIME, "it answers KAFKA_STORAGE_ERROR"])  # type: ignore[index]
            else:
                found.ends[broker] = LogEnd(log.choice([1, 2, 3]), log.randrange(1, 9))  # type: ignore[index]
        if not self.peace and self.random.random() < 0.3:
            self.registration()
        return {question.partition: found}

    def answer(self) -> None:
        """All rounds that have begun end, and those that follow."""
        self.it.step()
        for _ in range(MOST_ROUNDS):
            if not self.asking.waits:
                return
            run(self.asking._begun.pop(0)())
            self.it.step()
        raise AssertionError(f"it asks for ever: {self.history}")

    def registration(self) -> None:
        """A broker starts, dies, bounces or stops."""
        broker = self.random.choice(BROKERS)
        if broker not in self.it.znodes.brokers:
            self.it.register(broker)
        else:
            how = self.random.choice(["dies", "bounces", "stops"])
            if how == "stops" and not self.it.queue:
                self.it.ask(ev.ControlledShutdown, broker=broker, broker_epoch=self.it.znodes.brokers[broker].epoch)
            self.it.unregister(broker)
            if how == "bounces":
                self.it.register(broker)
        self.it.queue.append(ev.BrokerChange())

    def isr_changes(self) -> None:
        """The leader asks for another ISR."""
        self.it.step()
        state, live = self.it.znodes.states[T0], self.it.shell.context.live
        if state.leader in live:
            isr = [b for b in self.replicas if b == state.leader or (b in live and self.random.random() < 0.6)]
            wanted = AlterPartition("t", 0, state.leader_epoch, tuple(isr), state.partition_epoch, 0)
            epoch = self.it.znodes.brokers[state.leader].epoch
            self.it.ask(
                ev.AlterPartitionReceived, broker=state.leader, broker_epoch=epoch, version=3, partitions=(wanted,)
            )

    def move(self) -> None:
        self.it.znodes.reassignment = {T0: tuple(self.random.sample(BROKERS, self.random.randrange(1, 4)))}
        self.it.queue.append(ev.ZkPartitionReassignment())

    def cancel(self) -> None:
        self.it.queue.append(ev.ApiPartitionReassignment(reply=Reply(lambda _: None), targets={T0: None}))

    def elect_preferred(self) -> None:
        wanted = ev.ReplicaLeaderElection(
            reply=Reply(lambda _: None), partitions=(T0,), election_type=ElectionType.PREFERRED
        )
        self.it.queue.append(wanted)

    def fail_disk(self) -> None:
        broker, row = self.random.choice(BROKERS), self.it.shell.context.table.row("t", 0)
        known = self.it.znodes.brokers.get(broker)
        if known is not None and broker in self.it.shell.context.table.replicas(row):
            self.it.views[broker].failed_dirs.add(T0)
            failed = ((self.it.znodes.topics["t"].topic_id, 0, 56),)
            self.it.queue.append(ev.LeaderAndIsrResponseReceived(broker, known.epoch, 0, failed, (row,)))

    def recover(self) -> None:
        """An operator looks, or elects, and is answered."""
        answers: list[list[PartitionRecovery]] = []
        dry_run = self.random.random() < 0.7
        self.demanded = not dry_run
        wanted = self.random.choice([None, 1, 2])
        reply = Reply(answers.append)
        self.it.queue.append(ev.RecoverPartitions(reply=reply, topic="t", leader=wanted, dry_run=dry_run))
        self.answer()
        assert len(answers) == 1, self.history
        self.demanded = False


BALANCE = ev.AutoPreferredReplicaLeaderElection()


@pytest.mark.parametrize("strategy", ["None", "Balanced"])
@pytest.mark.parametrize("seed", range(30))
def test_no_unproven_member_leads_before_all_live_replicas_were_asked(seed: int, strategy: str) -> None:
    Story(seed, strategy).play()
