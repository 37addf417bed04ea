"""Made-up histories for the checker of settings: what clients asked for, what they were answered, what was there."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from aiocontroller.core.errors import KafkaErrorCode
from tests.unit.lab.checkers.history_story import Case

CONFIGS: list[Case] = []
PATH = "/config/topics/t"


class Story:
    """``t`` has had ``a=1`` since second 5; a client asks for ``a=2`` at second 10, and is answered at second 12."""

    def __init__(self, module: ModuleType) -> None:
        self.now_s = 5.0
        self.violated: list[str] = []
        self.checker = module.ConfigAnswers(lambda: self.now_s, self._complain)
        self.wanted = module.Wanted(PATH, "a", "2")
        self.gone = module.Wanted(PATH, "a", None)
        self.put("a", "1")

    def _complain(self, invariant: str, subject: str, detail: str) -> None:
        assert subject == PATH
        self.violated.append(invariant)

    def put(self, key: str, value: str, path: str = PATH) -> None:
        self.checker.changed(path, f'{{"version":1,"config":{{"{key}":"{value}"}}}}'.encode())

    def answered(self, code: int = KafkaErrorCode.NONE, wanted: Any = None) -> None:
        self.now_s = 12.0
        self.checker.answered(10.0, wanted or self.wanted, code)


def case(violations: int = 0, story: type[Any] = Story) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    def add(scenario: Callable[[Any], None]) -> Callable[[Any], None]:
        def play(module: ModuleType) -> list[str]:
            played = story(module)
            scenario(played)
            return list(played.violated)

        CONFIGS.append(Case(scenario.__name__, play, ["answers"] * violations))
        return scenario

    return add


@case()
def done_as_answered(s: Story) -> None:
    s.now_s = 11.0
    s.put("a", "2")
    s.answered()


ACL_PATH = "/kafka-acl/Topic/t"


class OfAcls(Story):
    """A client asks at second 10 for an ACL of alice, and is answered at second 12; bob has one."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        self.wanted = module.Wanted(ACL_PATH, "User:alice", "Read")
        self.have("bob")

    def _complain(self, invariant: str, subject: str, detail: str) -> None:
        assert subject == ACL_PATH
        self.violated.append(invariant)

    def have(self, *users: str) -> None:
        acls = ",".join(f'{{"principal":"User:{user}","operation":"Read"}}' for user in users)
        self.checker.changed(ACL_PATH, f'{{"version":1,"acls":[{acls}]}}'.encode())


@case(story=OfAcls)
def an_acl_that_was_made(s: OfAcls) -> None:
    s.now_s = 11.0
    s.have("bob", "alice")
    s.checker.changed(ACL_PATH, None)
    s.answered()


@case(2, story=OfAcls)
def an_acl_that_was_not_made(s: OfAcls) -> None:
    s.answered()
    s.answered(KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    s.have("bob", "alice")


@case()
def part_of_a_value(s: Story) -> None:
    s.now_s = 11.0
    s.put("a", "salt=x,2,iterations=3")
    s.answered()


@case()
def done_and_undone_before_the_answer(s: Story) -> None:
    s.now_s = 10.0
    s.put("a", "2")
    s.now_s = 11.0
    s.put("a", "3")
    s.answered()


@case()
def there_already(s: Story) -> None:
    s.put("a", "2")
    s.answered()


@case(1)
def never_done(s: Story) -> None:
    s.answered()


@case(1)
def a_longer_value(s: Story) -> None:
    s.put("a", "22")
    s.answered()


@case(1)
def another_key(s: Story) -> None:
    s.now_s = 11.0
    s.put("b", "2")
    s.answered()


@case(1)
def another_znode(s: Story) -> None:
    s.now_s = 11.0
    s.put("a", "2", "/config/topics/u")
    s.answered()


@case(1)
def undone_before_the_question(s: Story) -> None:
    s.put("a", "2")
    s.now_s = 9.0
    s.put("a", "1")
    s.answered()


@case()
def refused(s: Story) -> None:
    s.answered(KafkaErrorCode.INVALID_CONFIG)
    s.put("a", "3")
    s.put("b", "2")
    s.checker.changed(PATH, None)


@case(1)
def refused_and_done_before(s: Story) -> None:
    s.now_s = 11.0
    s.put("a", "2")
    s.answered(KafkaErrorCode.INVALID_CONFIG)


@case(1)
def refused_and_done_later(s: Story) -> None:
    s.answered(KafkaErrorCode.INVALID_CONFIG)
    s.put("a", "2")


@case()
def uncertain(s: Story) -> None:
    for code in (KafkaErrorCode.REQUEST_TIMED_OUT, KafkaErrorCode.UNKNOWN_SERVER_ERROR, KafkaErrorCode.NOT_CONTROLLER):
        s.answered(code)
    s.put("a", "2")
    s.answered(KafkaErrorCode.NOT_CONTROLLER)


@case()
def removed(s: Story) -> None:
    s.now_s = 11.0
    s.put("b", "1")
    s.answered(wanted=s.gone)


@case()
def removed_with_its_znode(s: Story) -> None:
    s.now_s = 11.0
    s.checker.changed(PATH, None)
    s.answered(wanted=s.gone)


@case(1)
def not_removed(s: Story) -> None:
    s.answered(wanted=s.gone)


@case()
def a_refused_removal(s: Story) -> None:
    s.answered(KafkaErrorCode.RESOURCE_NOT_FOUND, s.gone)
    s.put("b", "1")
    s.answered(KafkaErrorCode.RESOURCE_NOT_FOUND, s.gone)


@case(1)
def damaged(s: Story) -> None:
    for damage in (b"", b"\xff", b"[]", b'{"config":{}}'):
        s.checker.changed(PATH, damage)
    s.answered()


@case()
def damaged_is_gone(s: Story) -> None:
    s.now_s = 11.0
    s.checker.changed(PATH, b"[]")
    s.answered(wanted=s.gone)
