"""Made-up answers to admin requests; see ``made_up``."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.core.request_content import ElectionType, TopicResult
from aiocontroller.zookeeper import paths
from tests.unit.lab.checkers.complaints import Ear, case
from tests.unit.lab.checkers.history_story import Case

ANSWERS: list[Case] = []

PREFERRED, FORCED = ElectionType.PREFERRED, ElectionType.UNCLEAN
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE, TIMED_OUT, UNKNOWN, EXISTS, NOT_NEEDED = 0, 7, 3, 36, 84


class Asked(Ear):
    """Topic t has two partitions: t-0, led by its preferred leader 1, and t-1, led by 2 instead of 1."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self.answers = module.Answers(lambda: self.now_s, self.complain)
        self.topic('"0":[1,2],"1":[1,2]')
        self.leads(0, 1)
        self.leads(1, 2)
        self.later(60)

    def topic(self, partitions: str, name: str = "t", more: str = "") -> None:
        self.answers.topic(name, f'{{"version":3{more},"partitions":{{{partitions}}}}}'.encode())

    def move(self) -> ReplicaAssignment:
        """Move t-0 from 2 to 3."""
        self.topic('"0":[1,3,2],"1":[1,2]', more=',"adding_replicas":{"0":[3]},"removing_replicas":{"0":[2]}')
        return ReplicaAssignment((1, 3, 2), (3,), (2,))

    def leads(self, number: int, leader: int) -> None:
        self.answers.state(("t", number), LeaderAndIsr(leader, 0, (1, 2), 1, 0))

    def block(self, broker: int, first: int, last: int) -> None:
        text = f'{{"version":1,"broker":{broker},"block_start":"{first}","block_end":"{last}"}}'
        self.answers.changed(paths.LATEST_PRODUCER_ID_BLOCK, text.encode())

    def mark(self, name: str = "t") -> None:
        self.answers.changed(paths.delete_topics_topic(name), None)

    def elected(self, code: int, kind: ElectionType = PREFERRED, of: TopicPartition = T0, **more: Any) -> None:
        self.answers.elected(kind, self.now_s, {of: (code, "")}, more.get("unknown", ()))

    def listed(self, listed: dict[TopicPartition, ReplicaAssignment], asked: Any = None, unknown: Any = ()) -> None:
        self.answers.listed(self.now_s, asked, listed, unknown)


def answered(wrong: int = 0) -> Callable[[Callable[[Asked], None]], Callable[[Asked], None]]:
    return case(ANSWERS, Asked, "answers " * wrong)


@answered(2)
def a_broker_that_should_not_lead(a: Asked) -> None:
    """Not needed where the next replica leads, or the broker is the only one."""
    a.answers.avoided = 1
    a.elected(NOT_NEEDED, of=T1)
    a.elected(NOT_NEEDED)
    a.elected(NOT_NEEDED)
    a.topic('"0":[1],"1":[1,2]')
    a.later(16)
    a.elected(NOT_NEEDED)


@answered(1)
def a_sick_broker_is_the_last_to_lead(a: Asked) -> None:
    """Also where the operator wants it to lead rather than another."""
    a.answers.term(1)
    a.elected(NOT_NEEDED, of=T1)
    a.answers.sick(1, 1)
    a.elected(NOT_NEEDED, of=T1)
    a.later(60)
    a.answers.avoided = 2
    a.elected(NOT_NEEDED, of=T1)


@answered()
def a_sick_broker_may_have_registered_again(a: Asked) -> None:
    a.answers.term(1)
    a.answers.sick(1, 1)
    a.later(60)
    a.elected(NOT_NEEDED)


@answered(1)
def a_broker_that_is_well_again(a: Asked) -> None:
    """The controller may not have heard of it for a while."""
    a.answers.term(1)
    a.answers.sick(1, 1)
    a.answers.sick(1, 0)
    a.later(14)
    a.elected(NOT_NEEDED, of=T1)
    a.later(2)
    a.elected(NOT_NEEDED, of=T1)


@answered(2)
def a_verdict_of_another_term(a: Asked) -> None:
    """It ends with its term; a controller that was deposed without knowing it goes on for a while."""
    a.answers.sick(1, 1)
    a.elected(NOT_NEEDED, of=T1)
    a.answers.term(1)
    a.elected(NOT_NEEDED, of=T1)
    a.answers.term(2)
    a.later(14)
    a.elected(NOT_NEEDED, of=T1)
    a.later(2)
    a.elected(NOT_NEEDED, of=T1)


# -- producer ids ------------------------------------------------------------------------------------------------------


@answered()
def blocks_of_producer_ids(a: Asked) -> None:
    a.block(1, 0, 999)
    a.answers.allocated(1, 0, 1000)
    a.block(2, 1000, 1999)
    a.answers.allocated(2, 1000, 1000)


@answered(1)
def a_block_that_was_not_written(a: Asked) -> None:
    a.answers.allocated(1, 0, 1000)


@answered(3)
def a_block_that_was_written_otherwise(a: Asked) -> None:
    a.block(1, 0, 999)
    a.answers.allocated(2, 0, 1000)
    a.block(1, 1000, 1999)
    a.answers.allocated(1, 1000, 1001)
    a.block(1, 2000, 2999)
    a.answers.allocated(1, 2001, 1000)


@answered(1)
def a_block_that_is_given_away_twice(a: Asked) -> None:
    a.block(1, 0, 999)
    a.answers.allocated(1, 0, 1000)
    a.answers.allocated(1, 0, 1000)


@answered(2)
def blocks_that_overlap(a: Asked) -> None:
    a.block(1, 0, 999)
    a.block(2, 999, 1998)
    a.block(2, 500, 600)
    a.block(2, 1999, 2000)


@answered()
def a_block_that_cannot_be_read(a: Asked) -> None:
    a.answers.changed(paths.LATEST_PRODUCER_ID_BLOCK, b"{")
    a.answers.changed("/another", b"{")
    a.answers.deleted("/another")


# -- reassignments -----------------------------------------------------------------------------------------------------


@answered()
def reassignments(a: Asked) -> None:
    a.listed({})
    moving = a.move()
    a.listed({})
    a.listed({T0: moving})
    a.later(16)
    a.listed({T0: moving})
    a.listed({T0: moving}, asked=[T0])
    a.listed({}, asked=[T1])
    a.topic('"0":[1,3],"1":[1,2]')
    a.listed({T0: moving})
    a.later(14)
    a.listed({T0: moving})


@answered(2)
def reassignments_that_were_not(a: Asked) -> None:
    a.listed({T0: ReplicaAssignment((1, 3, 2), (3,), (2,))})
    moving = a.move()
    a.listed({T1: moving})


@answered(1)
def a_reassignment_that_has_long_ended(a: Asked) -> None:
    moving = a.move()
    a.topic('"0":[1,3],"1":[1,2]')
    a.later(16)
    a.listed({T0: moving})


@answered(1)
def a_reassignment_without_a_request(a: Asked) -> None:
    a.listed({T0: a.move()}, asked=[T1])


@answered(2)
def a_reassignment_that_is_left_out(a: Asked) -> None:
    a.move()
    a.later(16)
    a.listed({})
    a.listed({}, asked=[T0])


@answered()
def a_reassignment_of_a_topic_that_goes(a: Asked) -> None:
    a.move()
    a.later(16)
    a.mark()
    a.listed({})
    a.answers.deleted(paths.delete_topics_topic("t"))
    a.later(1)
    a.listed({})
    a.answers.topic("t", None)
    a.listed({})


@answered()
def reassignments_of_uncertain_topics(a: Asked) -> None:
    moving = a.move()
    a.later(16)
    a.listed({}, unknown=["t"])
    a.listed({T1: moving}, unknown=["t"])


@answered(1)
def a_reassignment_beside_an_uncertain_one(a: Asked) -> None:
    moving = a.move()
    a.listed({TopicPartition("u", 0): moving, T1: moving}, unknown=["u"])


@answered(1)
def a_reassignment_that_is_left_out_beside_a_new_one(a: Asked) -> None:
    a.move()
    a.later(16)
    a.topic('"0":[1,3]', name="u", more=',"adding_replicas":{"0":[3]}')
    a.listed({})


# -- elections ---------------------------------------------------------------------------------------------------------


@answered()
def elections(a: Asked) -> None:
    a.elected(NONE)
    a.elected(NOT_NEEDED)
    a.elected(NONE, FORCED, T1)
    a.elected(80, of=T1)
    a.leads(1, 1)
    a.elected(NONE, of=T1)
    a.leads(1, 2)
    a.later(14)
    a.elected(NONE, of=T1)


@answered(4)
def elections_that_did_not_happen(a: Asked) -> None:
    a.elected(NONE, of=T1)
    a.elected(NOT_NEEDED, of=T1)
    a.leads(1, 1)
    a.leads(1, 2)
    a.later(16)
    a.elected(NONE, of=T1)
    a.leads(1, -1)
    a.later(16)
    a.elected(NONE, FORCED, T1)


@answered()
def an_election_of_broker_0(a: Asked) -> None:
    a.leads(1, 0)
    a.later(16)
    a.elected(NONE, FORCED, T1)


@answered(1)
def an_election_of_a_replica_that_is_not_preferred(a: Asked) -> None:
    a.topic('"0":[2,1],"1":[1,2]')
    a.elected(NONE)
    a.later(16)
    a.elected(NONE)


@answered(1)
def a_partition_that_is_said_not_to_exist(a: Asked) -> None:
    a.elected(UNKNOWN)


@answered()
def partitions_that_do_not_exist(a: Asked) -> None:
    a.elected(UNKNOWN, of=TopicPartition("t", 2))
    a.elected(UNKNOWN, of=TopicPartition("u", 0))
    a.topic('"0":[1]', name="u")
    a.elected(UNKNOWN, of=TopicPartition("u", 0))
    a.answers.state(("t", 0), None)
    a.answers.topic("t", None)
    a.later(16)
    a.elected(UNKNOWN)


@answered(1)
def an_election_beside_an_uncertain_one(a: Asked) -> None:
    answers = {TopicPartition("u", 0): (NONE, ""), T1: (NONE, "")}
    a.answers.elected(PREFERRED, a.now_s, answers, ["u"])
    a.elected(NONE, of=T1, unknown=["t"])


# -- topics ------------------------------------------------------------------------------------------------------------


@answered()
def topics_that_were_created(a: Asked) -> None:
    asked_s = a.now_s
    a.topic('"0":[1],"1":[1]', name="u")
    a.later(1)
    a.answers.created(asked_s, {"u": TopicResult(NONE, partitions=2)})
    a.answers.created(asked_s, {"u": TopicResult(TIMED_OUT)})
    a.topic('"0":[1]', name="w")
    a.answers.created(asked_s, {"w": TopicResult(NONE)})  # before version 5 without a number
    a.answers.created(asked_s, {"t": TopicResult(EXISTS), "v": TopicResult(42)})
    a.answers.topic("u", None)
    a.later(14)
    a.answers.created(a.now_s, {"u": TopicResult(EXISTS)})


@answered(7)
def topics_that_were_not_created(a: Asked) -> None:
    a.answers.created(a.now_s, {"u": TopicResult(NONE)})
    a.answers.created(a.now_s, {"t": TopicResult(NONE, partitions=0)})
    a.answers.created(a.now_s, {"u": TopicResult(NONE, partitions=2)})
    a.answers.created(a.now_s, {"u": TopicResult(TIMED_OUT)})
    a.answers.created(a.now_s, {"u": TopicResult(EXISTS)})
    a.topic('"0":[1]', name="u")
    a.answers.created(a.now_s, {"u": TopicResult(NONE, partitions=2)})
    a.answers.topic("u", None)
    a.later(16)
    a.answers.created(a.now_s, {"u": TopicResult(EXISTS)})


@answered()
def topics_that_have_grown(a: Asked) -> None:
    asked_s = a.now_s
    a.answers.grown(asked_s, {"t": 3}, {"t": TopicResult(37)})
    a.topic('"0":[1,2],"1":[1,2],"2":[1,2]')
    a.answers.grown(asked_s, {"t": 3}, {"t": TopicResult(NONE)})
    a.answers.grown(asked_s, {"t": 3}, {"t": TopicResult(TIMED_OUT)})
    a.answers.grown(asked_s, {"t": 2}, {"t": TopicResult(TIMED_OUT)})


@answered(4)
def topics_that_have_not_grown(a: Asked) -> None:
    a.answers.grown(a.now_s, {"t": 3}, {"t": TopicResult(NONE)})
    a.answers.grown(a.now_s, {"t": 3}, {"t": TopicResult(TIMED_OUT)})
    a.answers.grown(a.now_s, {"u": 1}, {"u": TopicResult(NONE)})
    a.topic('"0":[1,2],"1":[1,2],"2":[1,2]')
    a.answers.topic("t", None)
    a.later(1)
    a.answers.grown(a.now_s, {"t": 3}, {"t": TopicResult(NONE)})


@answered()
def topics_that_were_deleted(a: Asked) -> None:
    asked_s = a.now_s
    a.answers.removed(asked_s, {"u": TopicResult(UNKNOWN), "t": TopicResult(73)})
    a.later(1)
    a.mark()
    a.answers.removed(asked_s, {"t": TopicResult(TIMED_OUT)})
    a.answers.removed(asked_s, {"t": TopicResult(NONE)})
    a.answers.removed(asked_s, {"t": TopicResult(UNKNOWN)})
    a.answers.topic("t", None)
    a.answers.deleted(paths.delete_topics_topic("t"))
    a.later(1)
    a.answers.removed(asked_s, {"t": TopicResult(NONE)})
    a.answers.removed(a.now_s, {"t": TopicResult(TIMED_OUT)})
    a.later(13)
    a.topic('"0":[1]')
    a.later(1)
    a.answers.removed(a.now_s, {"t": TopicResult(UNKNOWN)})


@answered()
def a_topic_that_was_unknown_for_a_moment(a: Asked) -> None:
    a.answers.topic("t", None)
    a.topic('"0":[1]')
    a.later(14)
    a.answers.removed(a.now_s, {"t": TopicResult(UNKNOWN)})
    a.later(16)
    a.mark()
    a.answers.deleted(paths.delete_topics_topic("t"))
    a.later(14)
    a.answers.removed(a.now_s, {"t": TopicResult(UNKNOWN)})


@answered(6)
def topics_that_were_not_deleted(a: Asked) -> None:
    a.answers.removed(a.now_s, {"t": TopicResult(NONE)})
    a.answers.removed(a.now_s, {"t": TopicResult(TIMED_OUT)})
    a.answers.removed(a.now_s, {"t": TopicResult(UNKNOWN)})
    a.mark()
    a.answers.removed(a.now_s, {"t": TopicResult(NONE)})
    a.answers.deleted(paths.delete_topics_topic("t"))
    a.later(1)
    a.answers.removed(a.now_s, {"t": TopicResult(TIMED_OUT)})
    a.mark("u")
    a.answers.removed(a.now_s, {"t": TopicResult(TIMED_OUT)})
    a.later(16)
    a.answers.removed(a.now_s, {"t": TopicResult(UNKNOWN)})


@answered(1)
def a_topic_that_was_deleted_before(a: Asked) -> None:
    a.answers.topic("t", None)
    a.later(1)
    a.topic('"0":[1]')
    a.later(1)
    a.answers.removed(a.now_s, {"t": TopicResult(NONE)})
