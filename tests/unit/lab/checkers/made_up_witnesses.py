"""Made-up suspicions: who heard the broker, who was told, and what the active controller made of it."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from types import ModuleType

from aiocontroller.lab.checkers import witnesses
from tests.unit.lab.checkers.history_story import Case

WITNESSES: list[Case] = []
EPOCH = 70


class Story:
    """Broker 1 is silent to the active controller ``a``; the standby ``s`` has a connection to the broker."""

    def __init__(self, module: ModuleType) -> None:
        self.found: list[str] = []
        self.now_s = 100.0
        self.check = module.Witnesses(self.complain, 0.5)
        self.word: witnesses.Word | None = None

    def complain(self, invariant: str, subject: str, detail: str) -> None:
        assert subject == "broker 1"
        assert detail == "a takes it for dead, and s hears it"
        self.found.append(invariant)

    def answers(self, broker: int = 1, *, after_s: float = 0.1) -> None:
        """The broker answers the standby."""
        self.now_s += after_s
        self.check.answered("s", f"connection to {broker}", broker, self.now_s)

    def heartbeat(self, named: dict[int, int], *, after_s: float = 0.1, way_s: float = 0.01) -> None:
        """The standby tells the active controller which brokers it hears."""
        self.now_s += after_s
        word = self.check.says("s", named, self.now_s)
        self.now_s += way_s
        self.check.received("a", "s", word, self.now_s)

    def suspects(self, broker: int = 1, epoch: int = EPOCH, *, after_s: float = 0.1, moves: bool = True) -> None:
        self.now_s += after_s
        self.check.suspected("a", broker, epoch, self.now_s)
        if moves:
            self.moves_leaders(broker, epoch, after_s=0)

    def handles_an_event(self, *, after_s: float = 0.1) -> None:
        self.now_s += after_s
        self.check.handled("a", self.now_s)

    def moves_leaders(self, broker: int = 1, epoch: int = EPOCH, *, after_s: float = 0.1) -> None:
        self.now_s += after_s
        self.check.alarmed("a", broker, epoch, self.now_s)


def case(violated: str = "") -> Callable[[Callable[[Story], None]], Callable[[Story], None]]:
    def add(scenario: Callable[[Story], None]) -> Callable[[Story], None]:
        def play(module: ModuleType) -> list[str]:
            story = Story(module)
            scenario(story)
            return story.found

        WITNESSES.append(Case(scenario.__name__, play, [violated] if violated else []))
        return scenario

    return add


@case("witness")
def a_broker_that_the_standby_heard_and_named_loses_its_leaders(it: Story) -> None:
    it.answers(after_s=0)
    it.heartbeat({1: EPOCH}, after_s=0.5, way_s=2.0)
    it.suspects(after_s=0.5)


@case("witness")
def a_standby_hears_a_broker_and_does_not_say_so(it: Story) -> None:
    it.answers(after_s=0)
    it.heartbeat({2: 71}, after_s=0.5)
    it.suspects()


@case("witness")
def a_standby_is_believed_without_proof(it: Story) -> None:
    it.heartbeat({1: EPOCH})
    it.suspects()


@case()
def nobody_has_heard_it_of_late(it: Story) -> None:
    it.answers()
    it.heartbeat({}, after_s=0.625)
    it.suspects()


@case()
def a_word_that_is_old(it: Story) -> None:
    it.answers()
    it.heartbeat({1: EPOCH})
    it.suspects(after_s=0.625)


@case()
def a_word_or_an_answer_of_the_same_moment_may_not_have_been_read(it: Story) -> None:
    it.answers()
    it.heartbeat({}, after_s=0)
    it.suspects()
    it.heartbeat({1: EPOCH})
    it.suspects(after_s=0)


@case()
def only_the_last_word_counts(it: Story) -> None:
    it.answers()
    it.heartbeat({1: EPOCH}, after_s=0.3)
    it.heartbeat({}, after_s=0.3)
    it.suspects()


@case()
def another_broker_or_another_incarnation_was_heard(it: Story) -> None:
    it.answers(2)
    it.heartbeat({2: EPOCH})
    it.suspects()
    it.answers()
    it.heartbeat({1: EPOCH - 1})
    it.suspects()


@case()
def the_standbys_own_connection_has_ended(it: Story) -> None:
    it.answers()
    it.check.ended("s", "connection to 1")
    it.check.ended("s", "another")
    it.heartbeat({})
    it.suspects()


@case("witness")
def the_standby_speaks_between_suspicion_and_move(it: Story) -> None:
    it.suspects(moves=False)
    it.answers()
    it.heartbeat({1: EPOCH})
    it.handles_an_event()
    it.moves_leaders()


@case()
def the_standby_may_have_spoken_only_when_the_move_had_begun(it: Story) -> None:
    it.handles_an_event()
    it.suspects(moves=False)
    it.answers()
    it.heartbeat({1: EPOCH})
    it.moves_leaders()
    it.suspects(moves=False, after_s=1)
    it.answers()
    it.heartbeat({1: EPOCH})
    it.handles_an_event(after_s=0)
    it.moves_leaders()


@case()
def the_standbys_word_is_old_when_leaders_are_moved(it: Story) -> None:
    it.suspects(moves=False)
    it.answers()
    it.heartbeat({1: EPOCH})
    it.handles_an_event()
    it.moves_leaders(after_s=0.5)


@case()
def a_suspicion_that_was_wrong_is_withdrawn_and_a_later_one_is_right(it: Story) -> None:
    it.answers()
    it.heartbeat({1: EPOCH})
    it.suspects(moves=False)
    it.suspects(after_s=1)


@case()
def a_suspicion_moves_nothing(it: Story) -> None:
    it.answers()
    it.heartbeat({1: EPOCH})
    it.suspects(moves=False)


@case("witness")
def leaders_are_moved_later(it: Story) -> None:
    it.answers()
    it.heartbeat({1: EPOCH})
    it.suspects(moves=False)
    it.moves_leaders(epoch=EPOCH + 1, after_s=5)
    it.moves_leaders()
    it.moves_leaders()


# -- the wire ----------------------------------------------------------------------------------------------------------


def request(client_id: str, *, api: int = 18, version: int = 0) -> bytes:
    head = pack(">hhih", api, version, 7, len(client_id)) + client_id.encode()
    return pack(">i", len(head)) + head


def read(frame: bytes, expected: dict[int, int] | None) -> None:
    def play(module: ModuleType) -> list[str]:
        return [] if module.read_heartbeat(frame) == expected else ["read"]

    WITNESSES.append(Case(f"read_{len(WITNESSES)}", play, []))


read(request("aiocontroller-heartbeat hears 1:70 2:8589934592"), {1: 70, 2: 8589934592})
read(request("aiocontroller-heartbeat"), {})
read(request("aiocontroller-heartbeat", version=1), None)
read(request("aiocontroller-heartbeat", api=3), None)
read(request("somebody hears 1:70"), None)
