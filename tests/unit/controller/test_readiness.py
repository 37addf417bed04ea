"""What ``/readyz`` says of each state of a process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiocontroller.controller.controller_eligibility import Reason, ReasonKind
from aiocontroller.controller.readiness import Readiness, readiness

DIFFERS = Reason(ReasonKind.SETTINGS, "brokers have num.partitions 1")
SILENT = Reason(ReasonKind.UNANSWERED, "broker 2 has not answered")


def of(
    *reasons: Reason,
    active: bool = False,
    connected: bool = True,
    looked: bool = True,
    read: bool = True,
    failure: str = "",
    observing: bool = False,
    policy: str = "wait",
    refused: tuple[str, ...] = (),
) -> Readiness:
    shell: Any = SimpleNamespace(
        zk=SimpleNamespace(client=SimpleNamespace(connected=connected)),
        refused_brokers=SimpleNamespace(going_on=lambda: refused),
        config=SimpleNamespace(aiocontroller_takeover_policy=policy),
    )
    election: Any = SimpleNamespace(active=active, failure=failure, observing=observing, has_read_holder=read)
    guard: Any = SimpleNamespace(reasons=list(reasons), looked=looked)
    return readiness(shell, election, guard)


def test_a_process_without_problems() -> None:
    assert of(active=True) == Readiness(True, "active")
    assert of() == Readiness(True, "standing by")
    assert str(of()) == "standing by"


def test_a_missing_answer_keeps_a_standby_from_being_ready_and_not_the_controller() -> None:
    assert of(SILENT, active=True) == Readiness(True, "active", (SILENT.text,))
    assert of(SILENT) == Readiness(False, "not able to stand by", (SILENT.text,))


def test_problems_of_the_controller_come_before_what_is_unknown() -> None:
    found = of(SILENT, DIFFERS, active=True, connected=False, refused=("AlterPartition of broker 1",))
    assert found == Readiness(
        False,
        "cut off",
        ("no connection to ZooKeeper", "refused: AlterPartition of broker 1", DIFFERS.text, SILENT.text),
    )
    assert str(found).splitlines() == ["cut off", *found.reasons]


@pytest.mark.parametrize(
    "state, reason",
    [
        ({"failure": "the epoch cannot be raised"}, "the epoch cannot be raised"),
        ({"observing": True}, "the role was released"),
        ({"policy": "observe"}, "aiocontroller.takeover.policy is observe"),
        ({"read": False}, "/controller has not been read yet"),
        ({"looked": False}, "the cluster has not been checked yet"),
    ],
)
def test_what_keeps_a_process_from_standing_by(state: dict[str, Any], reason: str) -> None:
    found = of(DIFFERS, **state)
    assert not found.ready
    assert found.reasons[0] == DIFFERS.text
    assert cast(str, found.reasons[1]).startswith(reason)
    assert len(found.reasons) == 2


def test_without_a_session_nothing_else_counts() -> None:
    assert of(DIFFERS, connected=False, looked=False) == Readiness(
        False, "not able to stand by", ("no session with ZooKeeper",)
    )
