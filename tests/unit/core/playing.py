"""Plays steps (``core/steps.py``) without an event loop, on a ZooKeeper that accepts every write unless a test says no.

The context changes as it would: each step is applied by the functions of ``core`` that the controller's driver uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core import steps as st
from aiocontroller.core.apply import apply
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import commit
from aiocontroller.core.effects import Effects
from aiocontroller.core.leadership_changes import LeadershipChange, LeadershipFacts, Written
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.reassignment import debts_of
from aiocontroller.core.request_batch import RequestBatch, Requests
from aiocontroller.core.states import PartitionState

R = TypeVar("R")
S = TypeVar("S", bound=st.Step[Any])

Answers = Mapping[type[st.Step[Any]], Callable[[Any], Any]]


class Played(Generic[R]):
    """What was played: the steps, the requests of each ``SendRequests``, and the result."""

    def __init__(self, context: ControllerContext, steps: st.Steps[R], answers: Answers | None = None) -> None:
        self._context = context
        self._batch: RequestBatch | None = None
        self.steps: list[st.Step[Any]] = []
        self.sent: list[Requests] = []
        came: Any = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration as end:
                self.result: R = end.value
                return
            self.steps.append(step)
            given = (answers or {}).get(type(step))
            came = given(step) if given is not None else self._play(step)

    @property
    def kinds(self) -> list[str]:
        return [type(step).__name__ for step in self.steps]

    def of(self, kind: type[S]) -> list[S]:
        return [step for step in self.steps if isinstance(step, kind)]

    @property
    def batch(self) -> RequestBatch:
        if self._batch is None:
            self._batch = RequestBatch(self._context)
        return self._batch

    def _play(self, step: st.Step[Any]) -> Any:
        context = self._context
        match step:
            case st.Apply(change):
                apply(context, change)
            case st.CarryOut(effects):
                self._take(effects)
            case st.HoldRequests():
                self.batch.held_back = True
            case st.SendRequests():
                self.sent.append(self.batch.take())
                self._batch = None
            case st.ElectLeaders(rows, strategy):
                return self._elect(rows, strategy)
            case st.MoveReplicas(replicas, state):
                valid = rsm.check_valid_previous_states(context.table, replicas, state).valid
                self._take(rsm.effects_of_transition(context.table, valid, state))
            case st.ShrinkIsrs(replicas):
                return self._change(rsm.IsrShrinking(replicas)).failed
            case st.RaiseLeaderEpochs(rows):
                return self._change(psm.EpochRise(rows)).done
            case st.WriteAssignments(_, removed):
                self._owe(removed)
                return {}
            case st.OweDeletions(removed):
                self._owe(removed)
            case _:
                return None

    def _elect(self, rows: Any, strategy: Any) -> frozenset[int]:
        table = self._context.table
        valid = psm.check_valid_previous_states(table, rows, PartitionState.OnlinePartition).valid
        first = [row for row in valid if table.state[row] == PartitionState.NewPartition]
        self._change(psm.Initialization(first))
        led = [row for row in valid if table.isr_of[row] != NO_ISR and row not in first]
        return frozenset(self._change(psm.LeaderElection(led, strategy)).done)

    def _change(self, change: LeadershipChange[Any]) -> LeadershipChange[Any]:
        plan = change.plan(self._context, change.undecided, LeadershipFacts())
        decisions = plan.decisions
        commit(self._context.table, decisions, [state.partition_epoch + 1 for state in decisions.leaderships])
        change.done += decisions.rows
        effects = plan.effects(self._context, Written(decisions))
        change.carried_out(plan, effects)
        self._take(effects)
        return change

    def _owe(self, removed: Any) -> None:
        for (broker, topic), partitions in debts_of(self._context, removed).wanted().items():
            self._context.debts.set(broker, topic, partitions, 0)

    def _take(self, effects: Effects) -> None:
        apply(self._context, effects)
        effects.add_to(self.batch, self._context.brokers)
        for request, answer in effects.answers:
            request.reply.answer(answer)
