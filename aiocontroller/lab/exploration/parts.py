"""The steps of many states at once.

A state is two numbers, those of its ``Control`` and its ``Data``; there are few of each, and many pairs.  The effect of
a step on one part depends on little of the other, so the specification computes it once, and it is looked up for all
states that share it:

 * steps of control, for a control and the roles of the replicas;
 * a step's effect on replicas, for an effect and a data;
 * steps of data, for a data; and the sending of a request, for a control and a request;
 * the canonical names, for a control and the orders in which its brokers may be named.

Arrays of states are looked up at once.  The numbers of states are exact, not hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from aiocontroller.lab.exploration.canonical import (
    Order,
    arranged_control,
    arranged_data,
    canonical,
    normal_control,
    normal_data,
    requested,
)
from aiocontroller.lab.exploration.invariants import Invariants
from aiocontroller.lab.exploration.specification import (
    Control,
    Data,
    Effect,
    Request,
    Roles,
    Specification,
    State,
    affected,
    roles,
)

T = TypeVar("T", bound=Hashable)
Numbers = npt.NDArray[np.int32]
States = npt.NDArray[np.int64]
UNKNOWN, IMPOSSIBLE = -2, -1
LOW = (1 << 32) - 1


class Numbered(Generic[T]):
    """Numbers values; equal values have the same number."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        known = self._numbers.setdefault(value, len(self.values))
        if known == len(self.values):
            self.values.append(value)
        return known

    def __len__(self) -> int:
        return len(self.values)


class Column:
    """An array that grows."""

    def __init__(self) -> None:
        self._cells = np.zeros(64, np.int32)
        self._length = 0

    def extend(self, numbers: Iterable[int]) -> None:
        new = list(numbers)
        end = self._length + len(new)
        if end > len(self._cells):
            self._cells = np.concatenate([self._cells, np.zeros(max(end, len(self._cells)), np.int32)])
        self._cells[self._length : end] = new
        self._length = end

    def set(self, at: int, number: int) -> None:
        self._cells[at] = number

    def __len__(self) -> int:
        return self._length

    def __call__(self, at: Numbers) -> Numbers:
        return self._cells[at]


class Rows:
    """Lists of steps: each step is one number in each of some columns."""

    def __init__(self, columns: int) -> None:
        self._begin, self._size = Column(), Column()
        self._columns = [Column() for _ in range(columns)]

    def append(self, steps: Sequence[tuple[int, ...]]) -> int:
        self._begin.extend([len(self._columns[0])])
        self._size.extend([len(steps)])
        for i, column in enumerate(self._columns):
            column.extend(step[i] for step in steps)
        return len(self._begin) - 1

    def __call__(self, rows: Numbers) -> tuple[Numbers, list[Numbers]]:
        """Return for each step the index of its row in ``rows``, and its numbers."""
        sizes = self._size(rows)
        source = np.repeat(np.arange(len(rows), dtype=np.int32), sizes)
        first = np.cumsum(sizes) - sizes
        at = np.arange(len(source), dtype=np.int32) - np.repeat(first - self._begin(rows), sizes).astype(np.int32)
        return source, [column(at) for column in self._columns]


class Table:
    """A function of two numbers that is computed once for each pair."""

    def __init__(self, compute: Callable[[int, int], int]) -> None:
        self._compute = compute
        self._cells = np.full((16, 16), UNKNOWN, np.int32)

    def __call__(self, a: Numbers, b: Numbers) -> Numbers:
        if not len(a):
            return a
        self._fit(int(a.max()), int(b.max()))
        found: Numbers = self._cells[a, b]
        unknown = found == UNKNOWN
        if unknown.any():
            for pair in np.unique(a[unknown].astype(np.int64) << 32 | b[unknown]).tolist():
                self._cells[pair >> 32, pair & LOW] = self._compute(pair >> 32, pair & LOW)
            found = self._cells[a, b]
        return found

    def _fit(self, a: int, b: int) -> None:
        height, width = self._cells.shape
        if a >= height or b >= width:
            grown = np.full(
                (height if a < height else max(a + 1, height * 2), width if b < width else max(b + 1, width * 3 // 2)),
                UNKNOWN,
                np.int32,
            )
            grown[:height, :width] = self._cells
            self._cells = grown


class Steps(NamedTuple):
    """Steps of some states: the index of the state that each leaves, the state that it leads to, and whether any
    invariant is violated."""

    source: Numbers
    after: States
    wrong: npt.NDArray[np.bool_]


class Parts:
    def __init__(self, specification: Specification, invariants: Invariants) -> None:
        self._specification, self._invariants = specification, invariants
        self._controls: Numbered[Control] = Numbered()
        self._isr = Column()
        self._data: Numbered[Data] = Numbered()
        self._roles_of, self._lacking, self._bad, self._row_of = Column(), Column(), Column(), Column()
        self._roles: Numbered[Roles] = Numbered()
        self._orders: Numbered[tuple[Order, ...]] = Numbered()
        self._arrivals: Numbered[tuple[int, int]] = Numbered()
        self._arrival_data, self._arrival_orders = Column(), Column()
        self._effects: Numbered[tuple[Effect | None, int]] = Numbered()
        self._requests: Numbered[Request | None] = Numbered()
        self._requests.number(None)
        self._control_steps = Rows(3)
        self._data_steps = Rows(2)
        self._control_row = Table(self._new_control_row)
        self._arrive = Table(self._arrival)
        self._request = Table(self._requested)
        self._rename = Table(self._renamed)

    def first(self) -> States:
        control, data = canonical(self._specification, self._specification.first())
        return np.array([self._number(control) << 32 | self._number_data(data)], np.int64)

    def state(self, number: int) -> State:
        return State(self._controls.values[number >> 32], self._data.values[number & LOW])

    def steps(self, states: States) -> Steps:
        control, data = (states >> 32).astype(np.int32), (states & LOW).astype(np.int32)
        by_control = self._led_by_control(control, data)
        by_data = self._led_by_data(control, data)
        return Steps(
            np.concatenate((by_control.source, by_data.source)),
            np.concatenate((by_control.after, by_data.after)),
            np.concatenate((by_control.wrong, by_data.wrong)),
        )

    def _led_by_control(self, control: Numbers, data: Numbers) -> Steps:
        rows = self._control_row(control, self._roles_of(data))
        source, (after, effect, wrong) = self._control_steps(rows)
        arrival = self._arrive(effect, data[source])
        possible = arrival != IMPOSSIBLE
        source, after, wrong, arrival = (part[possible] for part in (source, after, wrong, arrival))
        return self._joined(source, after, arrival, wrong.astype(np.bool_))

    def _led_by_data(self, control: Numbers, data: Numbers) -> Steps:
        rows = self._row_of(data)
        if (rows < 0).any():
            for d in np.unique(data[rows < 0]).tolist():
                self._row_of.set(d, self._new_data_row(d))
            rows = self._row_of(data)
        source, (arrival, request) = self._data_steps(rows)
        after = self._request(control[source], request)
        return self._joined(source, after, arrival, np.zeros(len(source), np.bool_))

    def _joined(self, source: Numbers, control: Numbers, arrival: Numbers, wrong: npt.NDArray[np.bool_]) -> Steps:
        data = self._arrival_data(arrival)
        control = self._rename(control, self._arrival_orders(arrival))
        wrong = wrong | (self._bad(data) != 0) | (self._isr(control) & self._lacking(data) != 0)
        return Steps(source, control.astype(np.int64) << 32 | data, wrong)

    # -- what is looked up, computed -------------------------------------------------------------------------------

    def _new_control_row(self, control: int, roles: int) -> int:
        before, known = self._controls.values[control], self._roles.values[roles]
        steps = []
        for label, after, effect in self._specification.control_steps(before, known):
            wrong = any(self._invariants.step(before, label, after, effect))
            then = known
            if effect:
                then = (*known[: effect.broker], (effect.role, effect.epoch), *known[effect.broker + 1 :])
            after, zero = normal_control(self._specification, after, then)
            steps.append((self._number(after), self._effects.number((effect, zero)), int(wrong)))
        return self._control_steps.append(steps)

    def _new_data_row(self, data: int) -> int:
        steps = []
        for _, after, request in self._specification.data_steps(self._data.values[data]):
            arrival = self._arrived(normal_data(self._specification, after, 0))
            steps.append((arrival, self._requests.number(request)))
        return self._data_steps.append(steps)

    def _arrival(self, effect: int, data: int) -> int:
        what, zero = self._effects.values[effect]
        before = self._data.values[data]
        after = affected(before, what) if what else before
        return IMPOSSIBLE if after is None else self._arrived(normal_data(self._specification, after, zero))

    def _arrived(self, data: Data) -> int:
        data, orders = arranged_data(data)
        arrival = self._number_data(data), self._orders.number(orders)
        number = self._arrivals.number(arrival)
        if number == len(self._arrival_data):
            self._arrival_data.extend(arrival[:1])
            self._arrival_orders.extend(arrival[1:])
        return number

    def _requested(self, control: int, request: int) -> int:
        what = self._requests.values[request]
        if what is None:
            return control
        return self._number(requested(self._specification, self._controls.values[control], what))

    def _renamed(self, control: int, orders: int) -> int:
        return self._number(arranged_control(self._controls.values[control], self._orders.values[orders]))

    def _number(self, control: Control) -> int:
        number = self._controls.number(control)
        if number == len(self._isr):
            self._isr.extend([control.znode.isr])
        return number

    def _number_data(self, data: Data) -> int:
        number = self._data.number(data)
        if number == len(self._roles_of):
            self._roles_of.extend([self._roles.number(roles(data))])
            self._lacking.extend([self._invariants.lacking(data)])
            self._bad.extend([int(any(self._invariants.data(data)))])
            self._row_of.extend([-1])
        return number
