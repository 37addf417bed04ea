"""When a dead broker's registration is removed before its session expires: ``aiocontroller.early.fast.bounce.ms``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from aiocontroller.controller.fast_bounce import LOOK_AGAIN_S, schedule_removal
from aiocontroller.core import events as ev
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import BrokersSuspected, BrokersTrusted
from aiocontroller.core.events import StaleRegistration
from aiocontroller.journal.journal import MemoryJournal
from tests.unit.controller.pure_cluster import PureCluster, cluster

AFTER_MS = 1_500


class Bounce:
    """Broker 1 is suspected, and its listener has refused for ``refusing_s`` seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after_ms: int = AFTER_MS) -> None:
        self.it: PureCluster = cluster(1, 2, t=[[1, 2]])
        shell = self.it.shell
        shell.config = msgspec.structs.replace(shell.config, aiocontroller_early_fast_bounce_ms=after_ms)
        shell.journal = self.journal = MemoryJournal(1, shell.world.clock)
        self.refusing_s = after_ms / 1000
        self.removed: list[tuple[int, int]] = []
        self.scheduled: list[tuple[str, float, Any]] = []
        assert shell.channels is not None
        monkeypatch.setattr(shell.channels, "refusing_s", lambda broker: self.refusing_s, raising=False)
        monkeypatch.setattr(self.it.znodes, "delete_broker_registration", self._delete, raising=False)
        monkeypatch.setattr(self.it.queue, "schedule", lambda *given: self.scheduled.append(given))
        apply(shell.context, BrokersSuspected([1]))
        self.epoch = shell.context.brokers[1].epoch

    async def _delete(self, broker: int, epoch: int, *, fence: int) -> bool:
        self.it.znodes.fence(fence)
        self.removed.append((broker, epoch))
        return self.it.znodes.brokers[broker].epoch == epoch

    def due(self, epoch: int | None = None) -> None:
        self.it.queue.append(StaleRegistration(1, self.epoch if epoch is None else epoch))
        self.it.step()


def test_a_suspicion_sets_a_timer_only_where_the_setting_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    on, off = Bounce(monkeypatch), Bounce(monkeypatch, after_ms=0)
    for bounce in (on, off):
        schedule_removal(bounce.it.shell, 1)
    assert on.scheduled == [("stale registration of 1", 1.5, StaleRegistration(1, on.epoch))]
    assert off.scheduled == []


def test_a_broker_that_has_refused_for_that_long_is_removed_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    bounce = Bounce(monkeypatch)
    bounce.due()
    assert bounce.removed == [(1, bounce.epoch)]
    assert bounce.scheduled == []
    [record] = bounce.journal.of_kind("suspicion")
    assert (record.event, record.broker, record.broker_epoch) == ("registration removed", 1, bounce.epoch)


@pytest.mark.parametrize("refusing_s, wait_s", [(0.0, 1.5), (1.0, 0.5), (1.45, LOOK_AGAIN_S)])
def test_a_broker_that_has_not_refused_for_long_enough_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, refusing_s: float, wait_s: float
) -> None:
    bounce = Bounce(monkeypatch)
    bounce.refusing_s = refusing_s
    bounce.due()
    assert bounce.removed == []
    [(_, delay_s, event)] = bounce.scheduled
    assert (pytest.approx(delay_s), event) == (wait_s, StaleRegistration(1, bounce.epoch))


def test_another_incarnation_and_one_that_answers_again_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bounce = Bounce(monkeypatch)
    bounce.due(epoch=bounce.epoch - 1)
    apply(bounce.it.shell.context, BrokersTrusted([1]))
    bounce.due()
    apply(bounce.it.shell.context, BrokersSuspected([1]))
    del bounce.it.shell.context.brokers[1]
    bounce.due()
    assert (bounce.removed, bounce.scheduled) == ([], [])


def test_a_broker_that_stops_may_not_have_flushed_its_logs_when_it_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was suspected before it asked for its shutdown; it would seem to have closed its session in time."""
    bounce = Bounce(monkeypatch)
    bounce.it.ask(ev.ControlledShutdown, broker=1, broker_epoch=bounce.epoch)
    starts = bounce.it.znodes.starts
    assert starts is not None
    assert starts.brokers[1].stopping
    bounce.due()
    starts = bounce.it.znodes.starts
    assert starts is not None
    assert (bounce.removed, starts.brokers[1].stopping) == ([(1, bounce.epoch)], False)


def test_a_registration_that_has_gone_meanwhile_is_not_recorded_as_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    bounce = Bounce(monkeypatch)
    bounce.it.znodes.brokers[1] = SimpleNamespace(epoch=bounce.epoch + 1)  # type: ignore[assignment]
    bounce.due()
    assert bounce.removed == [(1, bounce.epoch)]
    assert bounce.journal.of_kind("suspicion") == []
