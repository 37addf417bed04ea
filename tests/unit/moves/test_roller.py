"""A rolling restart in memory: gates, failing commands, and a crash after any call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.moving import MoveView, Now
from aiocontroller.core.rolling import RestartGate, resumed
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.moves.roller import Roller, RollResult, Seen
from aiocontroller.net.commands import CommandResult
from tests.unit.moves.memory import Killed, VirtualClock

T = TopicPartition("t", 0)
REPLICAS = (1, 2, 3)
BACK_S, SYNC_S = 5.0, 9.0


class Memory:
    """Three brokers that return ``BACK_S`` after a restart, and are in sync at ``SYNC_S``."""

    def __init__(self) -> None:
        self.epochs = dict.fromkeys(REPLICAS, 1)
        self.restarted_s: dict[int, float] = {}
        self.restarts: list[int] = []
        self.records: list[dict[str, Any]] = []
        self.code: int | None = 0
        self.output = "said"
        self.without_gate = RestartGate((), (), ())
        self.behind = False
        self.elections = 0
        self.calls_left: int | None = None

    def _call(self) -> None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise Killed

    def write(self, what: str, **fields: Any) -> None:
        if self.calls_left is not None and self.calls_left <= 0:
            raise Killed
        self.records.append({"what": what, **fields})

    async def look(self) -> Seen:
        self._call()
        now_s = asyncio.get_running_loop().time()
        live = {b for b in REPLICAS if now_s - self.restarted_s.get(b, -99) >= BACK_S}
        isr = tuple(b for b in REPLICAS if now_s - self.restarted_s.get(b, -99) >= SYNC_S)
        isr = isr[:-1] if self.behind else isr
        assert len(isr) >= 2 or self.behind, "two brokers were down at the same time"
        nows = {T: Now(ReplicaAssignment(REPLICAS), isr[0], isr)}
        epochs = {b: self.epochs[b] for b in sorted(live)}
        return Seen(MoveView(nows, frozenset(live)), epochs, {b: (f"host{b}", 9092) for b in sorted(live)}, 1)

    async def without(self, broker: int) -> RestartGate:
        self._call()
        return self.without_gate

    async def elect_preferred(self) -> None:
        self.elections += 1

    async def run(self, broker: int) -> CommandResult:
        self._call()
        self.restarts.append(broker)
        if self.code == 0:
            self.epochs[broker] += 1
            self.restarted_s[broker] = asyncio.get_running_loop().time()
        return CommandResult(self.code, self.output)

    async def roll(self, wanted: list[int] | None = None, **options: Any) -> RollResult:
        roller = Roller(self, self, VirtualClock(), self.run, wait_s=30, **options)
        return await roller.roll(wanted, resumed(self.records))


@virtual_time
async def test_brokers_go_one_after_the_other_and_the_controller_last() -> None:
    memory, shown = Memory(), list[str]()
    assert await memory.roll(show=shown.append, elect=True) == RollResult("rolled", (), (2, 3, 1), ())
    assert memory.restarts == [2, 3, 1]
    assert memory.elections == 3
    assert shown[:2] == ["broker 2: restarting", "broker 2: back, and in sync"]
    assert memory.records[0]["addresses"] == [(1, "host1", 9092), (2, "host2", 9092), (3, "host3", 9092)]
    assert await memory.roll([3]) == RollResult("rolled", (), (3,), ())


@virtual_time
async def test_a_gate_that_does_not_open_ends_the_roll() -> None:
    memory = Memory()
    memory.behind = True
    found = await memory.roll()
    assert found == RollResult("held", ("1 partitions with replicas that are not in sync (t-0)",), (), (2, 3, 1))
    memory.behind = False
    memory.without_gate = RestartGate((), (), (), (T,))
    assert (await memory.roll()).reasons == ("1 partitions that would have no leader (t-0)",)
    assert memory.restarts == []


@pytest.mark.parametrize("code, problem", [(7, "ended with code 7: sa id"), (None, "took too long: sa id")])
@virtual_time
async def test_a_command_that_fails_ends_the_roll_and_is_run_again_later(code: int | None, problem: str) -> None:
    memory = Memory()
    memory.code, memory.output = code, "\n sa\n\n id\n"
    assert await memory.roll() == RollResult("failed", (f"the command for broker 2 {problem}",), (), (2, 3, 1))
    memory.code = 0
    assert (await memory.roll()).restarted == (2, 3, 1)
    assert memory.restarts == [2, 2, 3, 1]


@virtual_time
async def test_a_command_that_restarts_nothing_is_noticed() -> None:
    memory = Memory()

    async def nothing(broker: int) -> CommandResult:
        return CommandResult(0, "")

    memory.run = nothing  # type: ignore[method-assign]
    found = await memory.roll()
    assert (found.result, found.reasons) == ("held", ("broker 2 has not registered anew",))


@virtual_time
async def test_who_is_asked_to_stop_ends_before_the_next_broker() -> None:
    memory = Memory()
    shown: list[str] = []

    def stop(line: str) -> None:
        shown.append(line)
        roller.stopping.set()

    roller = Roller(memory, memory, VirtualClock(), memory.run, wait_s=30, show=stop)
    assert await roller.roll(None, None) == RollResult("stopped", (), (2,), (3, 1))
    assert shown == ["broker 2: restarting", "broker 2: stopping once it is back", "broker 2: back, and in sync"]
    shown_again: list[str] = []
    assert await memory.roll(show=shown_again.append) == RollResult("rolled", (), (2, 3, 1), ())
    assert shown_again[0] == "going on: restarted already: 2 (another --audit begins anew)", "it may be an old record"


@virtual_time
async def test_after_a_kill_at_any_point_each_broker_is_restarted_and_hardly_any_twice() -> None:
    calls, killed = 0, True
    while killed:
        memory, killed = Memory(), False
        memory.calls_left = calls
        try:
            await memory.roll()
        except Killed:
            killed = True
        memory.calls_left = None
        assert (await memory.roll()).result == "rolled"
        assert set(memory.restarts) == {1, 2, 3}
        if killed:
            assert len(memory.restarts) == 3, calls
        calls += 1
    assert calls > 20
