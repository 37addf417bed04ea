"""Made-up answers, requests on the wire and partitions without leaders; see ``made_up``."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from types import ModuleType
from typing import Any

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.core.request_content import ElectionType, TopicResult
from aiocontroller.zookeeper import paths
from tests.unit.lab.checkers.history_story import Case

ANSWERS: list[Case] = []
UNCLEAN: list[Case] = []
WIRE: list[Case] = []
LEADERLESS: list[Case] = []

PREFERRED, FORCED = ElectionType.PREFERRED, ElectionType.UNCLEAN
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE, TIMED_OUT, UNKNOWN, EXISTS, NOT_NEEDED = 0, 7, 3, 36, 84


class Ear:
    """Collects complaints."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.now_s = 100.0

    def complain(self, invariant: str, subject: Any, detail: str) -> None:
        assert subject
        assert detail
        self.heard.append(invariant)

    def later(self, seconds: float) -> None:
        self.now_s += seconds


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


def case(
    cases: list[Case], story: Callable[[ModuleType], Any], violated: str = ""
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    def add(tell: Callable[[Any], None]) -> Callable[[Any], None]:
        def play(module: ModuleType) -> list[str]:
            ear = story(module)
            tell(ear)
            return list(ear.heard)

        cases.append(Case(tell.__name__, play, violated.split()))
        return tell

    return add


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


# -- on the wire -------------------------------------------------------------------------------------------------------


class Wire(Ear):
    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self.read = module.read_control_request
        self.observer = module.WireObserver(self.complain, lambda: 5)

    def send(
        self,
        broker_epoch: int,
        epoch: int = 5,
        *,
        broker: int = 2,
        connection: int = 1,
        pieces: int = 1,
        who: str = "c",
    ) -> None:
        data = framed(request(4, 7, epoch, broker_epoch)) * 2
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            self.observer.sent(who, broker, connection, data[start : start + size])


def request(api: int, version: int, epoch: int, broker_epoch: int, client: bytes | None = b"1000001") -> bytes:
    """As in Kafka's message definitions."""
    flexible = version >= {4: 4, 5: 2, 6: 6}[api]
    kraft = version >= {4: 7, 5: 4, 6: 8}[api]
    named = pack(">h", -1) if client is None else pack(">h", len(client)) + client
    head = pack(">hhi", api, version, 9) + named + b"\0" * flexible
    body = pack(">i", 1_000_001) + b"\0" * kraft + pack(">i", epoch)
    if version >= {4: 2, 5: 1, 6: 5}[api]:
        body += pack(">q", broker_epoch)
    return head + body + b"\7" * 20


def framed(one: bytes) -> bytes:
    return pack(">i", len(one)) + one


def on_wire(violated: str = "") -> Callable[[Callable[[Wire], None]], Callable[[Wire], None]]:
    return case(WIRE, Wire, violated)


@on_wire()
def all_versions_are_read(w: Wire) -> None:
    for api, versions, since in ((4, 8, 2), (5, 5, 1), (6, 9, 5)):
        for version in range(versions):
            for client in (b"", b"some client", None):
                expected = (api, 1_000_001, 5, 77 if version >= since else -1)
                assert w.read(request(api, version, 5, 77, client)) == expected
    assert w.read(pack(">hhih", 18, 0, 1, -1)) is None


@on_wire()
def incarnations_in_order(w: Wire) -> None:
    for broker_epoch in (0, 10, 10, 12):
        w.send(broker_epoch, pieces=3)
    assert w.observer.requests == 8
    w.send(5, broker=3)  # another broker
    w.send(5, epoch=4)  # another term
    w.send(5, who="d")  # another controller
    w.observer.sent("c", 2, 1, framed(pack(">hhih", 18, 0, 1, -1)))
    w.observer.sent("c", 2, 1, framed(request(4, 0, 5, 0)))  # without a broker epoch
    w.send(12)


@on_wire("I7 I7 I7 I7")
def an_incarnation_that_is_over(w: Wire) -> None:
    w.send(12)
    w.send(10, connection=2, pieces=40)
    w.send(0, connection=2)


@on_wire("I2 I2")
def an_epoch_that_was_not_won(w: Wire) -> None:
    w.send(12, epoch=6)


# -- partitions without a leader ---------------------------------------------------------------------------------------


class Waiting(Ear):
    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self.leaderless = module.Leaderless(self.complain)

    def look(
        self,
        after_s: float,
        leader: int,
        isr: tuple[int, ...] = (1, 2),
        *,
        able: bool = True,
        damaged: tuple[int, ...] = (),
    ) -> None:
        self.later(after_s)
        states = {("t", 0): LeaderAndIsr(leader, 0, isr, 1, 0), ("t", 1): LeaderAndIsr(2, 0, isr, 1, 0)}
        self.leaderless.look(self.now_s, states, {2, 3}, damaged, able=able)


def waited(violated: str = "") -> Callable[[Callable[[Waiting], None]], Callable[[Waiting], None]]:
    return case(LEADERLESS, Waiting, violated)


@waited("leaderless")
def no_leader_for_long(w: Waiting) -> None:
    w.look(0, -1)
    w.look(5, -1)
    w.look(0.5, -1)


@waited("leaderless")
def a_dead_leader_for_long(w: Waiting) -> None:
    w.look(0, 1)
    w.look(5.5, 1)


@waited()
def a_leader_is_elected_that_has_just_died(w: Waiting) -> None:
    w.look(0, 1)
    w.look(3.5, 1)
    w.look(0, 4)
    w.look(3.5, 4)


@waited("leaderless")
def none_is_elected_after_a_dead_leader(w: Waiting) -> None:
    w.look(0, 1)
    w.look(3, 1)
    w.look(0, -1)
    w.look(2.5, -1)


@waited("leaderless")
def a_dead_leader_is_elected_and_stays(w: Waiting) -> None:
    w.look(0, 1)
    w.look(1, 1)
    w.look(0, 4)
    w.look(5.5, 4)


@waited()
def no_replica_in_sync_is_alive(w: Waiting) -> None:
    w.look(0, -1, (1, 4))
    w.look(11, -1, (1, 4))


@waited()
def a_damaged_broker_leads_or_cannot_lead(w: Waiting) -> None:
    w.look(0, 3, damaged=(3,))
    w.look(11, 3, damaged=(3,))
    w.look(0, -1, damaged=(2,))
    w.look(11, -1, damaged=(2,))


@waited()
def a_leader_in_time(w: Waiting) -> None:
    w.look(0, -1)
    w.look(5, 2)
    w.look(9, -1)
    w.look(0.5, -1)


@waited("leaderless")
def no_leader_now_and_then(w: Waiting) -> None:
    for _ in range(4):
        w.look(100, 2)
        w.look(50, -1)
        w.look(3.5, -1)


@waited("leaderless")
def each_of_two_losses_of_a_broker_handled_late(w: Waiting) -> None:
    for _ in range(2):
        w.look(100, 2)
        w.look(50, -1)
        w.look(5, -1)


@waited()
def no_leader_for_as_long_as_may_be(w: Waiting) -> None:
    for _ in range(2):
        w.look(100, 2)
        w.look(50, -1)
        w.look(2, -1)
        w.look(50, -1, able=False)
        w.look(50, -1)
        w.look(1.5, -1)


@waited()
def a_controller_that_could_not_elect(w: Waiting) -> None:
    w.look(0, -1)
    w.look(9, -1, able=False)
    w.look(9, -1)
    w.look(5, -1)
