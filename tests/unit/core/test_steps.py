"""Steps as values: a generator yields them, and gets back what came of each."""

from __future__ import annotations

import pytest

from aiocontroller.core.steps import Breathe, RaiseLeaderEpochs, SendMetadata, ShrinkIsrs, Steps, WriteToLog


def raising(rows: list[int]) -> Steps[str]:
    yield Breathe()
    raised = yield from RaiseLeaderEpochs(rows)
    stay = yield from ShrinkIsrs({1: raised})
    return f"{raised} raised, {stay}"


def test_what_came_of_a_step_goes_back_to_where_it_was_decided() -> None:
    steps = raising([3, 4])
    assert next(steps) == Breathe()
    assert steps.send(None) == RaiseLeaderEpochs([3, 4])
    assert steps.send([4]) == ShrinkIsrs({1: [4]})
    with pytest.raises(StopIteration) as ended:
        steps.send({4: "its state znode is gone"})
    assert ended.value.value == "[4] raised, {4: 'its state znode is gone'}"


def test_steps_within_steps_come_in_one_row() -> None:
    def outer() -> Steps[None]:
        text = yield from raising([1])
        yield WriteToLog("info", text)

    steps = outer()
    assert [next(steps), steps.send(None), steps.send([1]), steps.send({})] == [
        Breathe(),
        RaiseLeaderEpochs([1]),
        ShrinkIsrs({1: [1]}),
        WriteToLog("info", "[1] raised, {}"),
    ]


def test_a_step_is_a_value() -> None:
    assert SendMetadata([1, 2]) == SendMetadata([1, 2], ())
    assert SendMetadata([1, 2]) != SendMetadata([1, 2], [0])
    assert RaiseLeaderEpochs([]) != Breathe()
    with pytest.raises(AttributeError):
        SendMetadata([1]).brokers = [2]  # type: ignore[misc]
