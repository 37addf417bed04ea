"""When the operator's command against a broker that hangs is run, for whom, and what is recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from aiocontroller.config import Config
from aiocontroller.controller.broker_fencing import (
    LOOK_AGAIN_S,
    SICK_LOOK_AGAIN_S,
    schedule_fencing,
    schedule_fencing_of_sick,
)
from aiocontroller.controller.fence_command import FenceCommand
from aiocontroller.core.apply import apply
from aiocontroller.core.context import SickBroker
from aiocontroller.core.context_changes import BrokerSick, BrokersSuspected, BrokersTrusted
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.events import FenceBroker
from aiocontroller.core.failure_detector import Suspicion
from aiocontroller.core.ids import TopicPartition
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.metrics import Metrics
from aiocontroller.net.commands import CommandResult
from tests.unit.controller.pure_cluster import PureCluster, cluster, run

COMMAND = ("ssh", "{host}", "kill-kafka", "--broker={broker}")


class Hook:
    """Broker 2 of three is suspected, and has lost its leaders and its place in ISRs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.it: PureCluster = cluster(1, 2, 3, t=[[1, 2]], u=[[3, 1]])
        shell = self.it.shell
        self.journal = MemoryJournal(1, shell.world.clock)
        self.asked: list[tuple[list[str], dict[str, str], float]] = []
        self.ends = CommandResult(0, "done\n")
        self.waiting: list[Any] = []
        self.again = False
        self.refusing_s = 0.0
        self.doubts: list[int] = []
        in_doubt = property(lambda channels: bool(self.doubts))
        monkeypatch.setattr(type(shell.channels), "suspects_own_network", in_doubt, raising=False)
        tasks: Any = SimpleNamespace(start_soon=lambda work, *given, name: self.waiting.append(work(*given)))
        config = Config(aiocontroller_fence_command=COMMAND, **settings)
        shell.fence_command = FenceCommand(config, tasks, self._run, shell.world.clock, self.journal, Metrics())
        assert shell.channels is not None
        monkeypatch.setattr(shell.channels, "answers_again", lambda broker: self.again, raising=False)
        monkeypatch.setattr(shell.channels, "refusing_s", lambda broker: self.refusing_s, raising=False)
        self.scheduled: list[tuple[str, float, Any]] = []
        monkeypatch.setattr(self.it.queue, "schedule", lambda *given: self.scheduled.append(given))
        apply(shell.context, BrokersSuspected([2]))
        t0 = TopicPartition("t", 0)
        self.row = shell.context.table.row(*t0)
        self.leads(1, (1,))

    def leads(self, leader: int, isr: tuple[int, ...]) -> None:
        table = self.it.shell.context.table
        state = table.leadership(self.row)
        assert state is not None
        table.set_leadership(self.row, msgspec.structs.replace(state, leader=leader, isr=isr))

    async def _run(self, command: list[str], variables: dict[str, str], *, timeout_s: float) -> CommandResult:
        self.asked.append((command, variables, timeout_s))
        return self.ends

    def due(self, broker: int = 2, epoch: int | None = None) -> None:
        known = self.it.shell.context.brokers[broker].epoch
        self.it.queue.append(FenceBroker(broker, known if epoch is None else epoch))
        self.it.step()

    def end(self) -> None:
        run(self.waiting.pop())

    @property
    def recorded(self) -> list[tuple[str | None, str | None, int | None]]:
        return [(record.event, record.detail, record.count) for record in self.journal.of_kind("fence")]


def test_only_silence_sets_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch, aiocontroller_fence_after_ms=700)
    for reason in ("refused", "silent"):
        schedule_fencing(hook.it.shell, Suspicion(2, 5, reason, 0.0, 1.5))
    assert hook.scheduled == [("fence command for 2", 0.7, FenceBroker(2, 5))]
    hook.it.shell.fence_command = None
    schedule_fencing(hook.it.shell, Suspicion(2, 5, "silent", 0.0, 1.5))
    assert len(hook.scheduled) == 1


def test_the_command_runs_beside_the_consumer_and_both_ends_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch, aiocontroller_fence_timeout_ms=4_000)
    known = hook.it.shell.context.brokers[2]
    endpoint = hook.it.shell.endpoint_of(known)
    assert endpoint is not None
    hook.due()
    command = ["ssh", endpoint.host, "kill-kafka", "--broker=2"]
    assert hook.recorded == [("begins", " ".join(command), None)]
    hook.end()
    variables = {
        "AIOCONTROLLER_FENCED_BROKER": "2",
        "AIOCONTROLLER_FENCED_BROKER_EPOCH": str(known.epoch),
        "AIOCONTROLLER_FENCED_HOST": endpoint.host,
    }
    assert hook.asked == [(command, variables, 4.0)]
    assert hook.recorded[1:] == [("ended", "done\n", 0)]
    assert hook.scheduled == []  # once for each suspicion


@pytest.mark.parametrize("leader, isr", [(2, (2,)), (1, (1, 2))])
def test_a_broker_that_leads_or_is_in_sync_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, leader: int, isr: tuple[int, ...]
) -> None:
    hook = Hook(monkeypatch)
    hook.leads(leader, isr)
    hook.due()
    assert hook.waiting == []
    assert hook.scheduled == [
        ("fence command for 2", LOOK_AGAIN_S, FenceBroker(2, hook.it.shell.context.brokers[2].epoch))
    ]


def test_a_broker_that_answers_again_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch)
    hook.again = True
    hook.due()
    assert hook.waiting == []
    assert hook.scheduled


def test_nobody_is_fenced_while_our_own_network_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch)
    hook.doubts.append(2)
    hook.due()
    assert hook.waiting == []
    assert hook.scheduled
    hook.doubts.clear()
    hook.due()
    hook.end()
    assert len(hook.asked) == 1


def test_a_broker_that_has_ended_by_now_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host may be starting it again: a power switch would end that."""
    hook = Hook(monkeypatch)
    hook.refusing_s = 0.1
    hook.due()
    assert hook.waiting == []
    assert hook.scheduled  # in case that it listens again and hangs


def test_a_broker_that_is_trusted_again_or_another_incarnation_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch)
    hook.due(epoch=-1)
    apply(hook.it.shell.context, BrokersTrusted([2]))
    hook.due()
    assert hook.waiting == hook.scheduled == hook.recorded == []


def test_one_broker_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch)
    hook.due()
    hook.due()
    assert len(hook.waiting) == len(hook.scheduled) == 1
    hook.end()
    hook.due()
    hook.end()
    assert len(hook.asked) == 2


def test_a_deposed_controller_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch)

    async def moved(*, fence: int) -> None:
        raise ControllerMovedError("another controller")

    monkeypatch.setattr(hook.it.znodes, "check_controller_epoch", moved, raising=False)
    hook.due()
    assert hook.waiting == hook.recorded == []


@pytest.mark.parametrize("silent, epoch_differs, runs", [(True, False, 1), (False, False, 0), (True, True, 0)])
def test_a_sick_broker_is_ended_only_when_it_answers_nothing(
    monkeypatch: pytest.MonkeyPatch, silent: bool, epoch_differs: bool, runs: int
) -> None:
    hook = Hook(monkeypatch)
    shell = hook.it.shell
    apply(shell.context, BrokersTrusted([2]))
    epoch = shell.context.brokers[2].epoch
    apply(shell.context, BrokerSick(SickBroker(2, epoch + epoch_differs)))
    monkeypatch.setattr(shell, "sickness", SimpleNamespace(is_silent=lambda broker: silent))
    schedule_fencing_of_sick(shell, 2, epoch)
    hook.due()
    assert len(hook.waiting) == runs
    for work in hook.waiting:
        work.close()
    assert [(tag, delay_s) for tag, delay_s, _ in hook.scheduled] == [("fence command for 2", SICK_LOOK_AGAIN_S)] * (
        1 + (not runs and not epoch_differs)
    )


def test_a_sick_broker_in_an_isr_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(monkeypatch)
    shell = hook.it.shell
    apply(shell.context, BrokersTrusted([2]))
    apply(shell.context, BrokerSick(SickBroker(2, shell.context.brokers[2].epoch)))
    monkeypatch.setattr(shell, "sickness", SimpleNamespace(is_silent=lambda broker: True))
    hook.leads(1, (1, 2))
    hook.due()
    assert hook.waiting == []
