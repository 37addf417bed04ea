"""Whether this process is the controller or could become it, and why not: the content of ``/readyz``."""

from __future__ import annotations

import msgspec

from aiocontroller.controller.controller_election import ControllerElection
from aiocontroller.controller.controller_eligibility import ReasonKind
from aiocontroller.controller.guard import Guard
from aiocontroller.controller.shell import ControllerShell


class Readiness(msgspec.Struct, frozen=True):
    """The answer of ``/readyz``."""

    ready: bool
    state: str
    """``active``, ``cut off``, ``standing by``, or ``not able to stand by``."""
    reasons: tuple[str, ...] = ()
    """Problems; while active, also missing answers, which do not affect readiness."""

    def __str__(self) -> str:
        return "\n".join([self.state, *self.reasons])


def readiness(shell: ControllerShell, election: ControllerElection, guard: Guard) -> Readiness:
    """Judge readiness.  A broker that has not answered makes a standby unready; an active controller only shows it."""
    connected = shell.zk.client.connected
    if election.active:
        wrong = [] if connected else ["no connection to ZooKeeper"]
        wrong += [f"refused: {what}" for what in shell.refused_brokers.going_on()]
        wrong += [reason.text for reason in guard.reasons if reason.kind is not ReasonKind.UNANSWERED]
        unknown = [reason.text for reason in guard.reasons if reason.kind is ReasonKind.UNANSWERED]
        return Readiness(not wrong, "active" if connected else "cut off", tuple(wrong + unknown))
    reasons = ["no session with ZooKeeper"] if not connected else _against_standing_by(shell, election, guard)
    return Readiness(not reasons, "not able to stand by" if reasons else "standing by", tuple(reasons))


def _against_standing_by(shell: ControllerShell, election: ControllerElection, guard: Guard) -> list[str]:
    reasons = [reason.text for reason in guard.reasons]
    if election.failure:
        reasons.append(election.failure)
    if election.observing:
        reasons.append("the role was released: 'aiocontroller takeover' asks for it again")
    elif shell.config.aiocontroller_takeover_policy == "observe":
        reasons.append("aiocontroller.takeover.policy is observe: 'aiocontroller takeover' asks for the role")
    if not election.has_read_holder:
        reasons.append("/controller has not been read yet")
    if not guard.looked:
        reasons.append("the cluster has not been checked yet")
    return reasons
