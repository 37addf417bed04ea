"""Made-up histories of clients' operations on topics; see ``made_up``."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.request_content import TopicResult
from tests.unit.lab.checkers.complaints import Ear, case
from tests.unit.lab.checkers.history_story import Case
from tests.unit.lab.checkers.made_up_answers import ANSWERS, NONE, Asked

OPERATIONS: list[Case] = []
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Operating(Ear):
    """Topic t was created with two partitions a second ago."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self.operations = module.Operations(lambda: self.now_s, self.complain)
        self.asked_s = self.now_s
        self.topic(2)
        self.later(1)

    def topic(self, count: int, *, name: str = "t", on: tuple[int, ...] = (1, 2)) -> None:
        self.operations.topic(name, {number: ReplicaAssignment(on) for number in range(count)})

    def move(self, target: tuple[int, ...]) -> None:
        """Begin to move t-0; it has a second partition that stays."""
        moving = ReplicaAssignment((1, 2)).reassign_to(target)
        self.operations.topic("t", {0: moving, 1: ReplicaAssignment((1, 2))})


def done(violated: str = "") -> Callable[[Callable[[Operating], None]], Callable[[Operating], None]]:
    return case(OPERATIONS, Operating, violated)


@done()
def operations_that_had_effects(o: Operating) -> None:
    o.operations.created(o.asked_s, "t")
    o.topic(4)
    o.topic(4)
    o.operations.grown(o.asked_s, "t", 4)
    o.topic(0)
    o.topic(1)
    o.operations.created(o.asked_s, "t")


@done()
def the_first_has_the_first_effect(o: Operating) -> None:
    between_s = o.now_s
    o.topic(0)
    o.topic(2)
    o.operations.created(o.asked_s, "t")
    o.operations.created(between_s, "t")


@done("operations")
def two_creations_of_one_topic(o: Operating) -> None:
    o.operations.created(o.asked_s, "t")
    o.operations.created(o.asked_s, "t")


@done("operations")
def a_creation_before_the_question(o: Operating) -> None:
    o.operations.created(o.now_s, "t")


@done("operations")
def a_topic_that_is_written_again_does_not_grow(o: Operating) -> None:
    o.topic(4)
    o.topic(4)
    o.operations.grown(o.asked_s, "t", 4)
    o.operations.grown(o.asked_s, "t", 4)


@done("operations operations operations operations")
def growth_that_was_no_ones(o: Operating) -> None:
    o.operations.grown(o.asked_s, "t", 2)
    o.topic(1)
    o.operations.grown(o.asked_s, "t", 1)
    o.topic(3)
    o.operations.grown(o.asked_s, "t", 2)
    o.operations.grown(o.asked_s, "t", 3)
    o.operations.grown(o.asked_s, "t", 3)


@done("operations")
def a_topic_of_one_partition_grows_once(o: Operating) -> None:
    o.topic(1, name="u")
    o.operations.created(o.asked_s, "u")
    o.topic(2, name="u")
    o.operations.grown(o.asked_s, "u", 2)
    o.operations.created(o.asked_s, "u")


@done()
def moves(o: Operating) -> None:
    o.operations.moved(o.now_s, T0, (1, 2))
    o.move((2, 3))
    o.operations.moved(o.now_s, T0, (2, 3))
    o.later(1)
    o.operations.moved(o.now_s - 1, T0, (2, 3))
    o.move((3, 4))
    o.operations.moved(o.now_s - 1, T0, (2, 3))
    o.operations.moved(o.now_s, T0, (3, 4))


@done("operations operations operations operations")
def moves_that_did_not_begin(o: Operating) -> None:
    o.operations.moved(o.asked_s, T0, (2, 3))
    o.move((2, 3))
    o.operations.moved(o.asked_s, T1, (2, 3))
    o.operations.moved(o.asked_s, T0, (3, 2))
    o.later(1)
    o.topic(2)
    o.later(1)
    o.operations.moved(o.now_s, T0, (2, 3))


# -- as answers tell them ----------------------------------------------------------------------------------------------


@case(ANSWERS, Asked, "operations operations")
def what_two_clients_are_answered_of_one_change(a: Asked) -> None:
    asked_s = a.now_s
    a.topic('"0":[1]', name="u")
    for _ in range(2):
        a.answers.created(asked_s, {"u": TopicResult(NONE, partitions=1)})
    a.topic('"0":[1],"1":[1]', name="u")
    for _ in range(2):
        a.answers.grown(asked_s, {"u": 2}, {"u": TopicResult(NONE)})


@case(ANSWERS, Asked)
def what_two_clients_are_answered_of_two_changes(a: Asked) -> None:
    asked_s = a.now_s
    for _ in range(2):
        a.topic('"0":[1]', name="u")
        a.answers.created(asked_s, {"u": TopicResult(NONE, partitions=1)})
        a.answers.topic("u", None)
