"""Who seems to be dead?  The rules of early detection, without a clock and without a socket.

Whoever watches peers (``controller.heartbeats``) reports what it sees, each time with the time in seconds, and then
asks for a judgement.  A *peer* is a broker, or the controller in office; its *epoch* is the incarnation that is
watched.

Evidence against a peer:
 * *refused*: it was there, its connection has ended, and connecting was refused ``REFUSALS`` times in a row.  Its
   operating system lives and says that nobody listens: the process is gone, or closes.
 * *silent* (where a limit for silence is set): for so long no heartbeat was answered.

Against who was never there, there is no evidence: a broker registers before it listens, and a newcomer leads nothing.
Only who was there before we were (``settled``) may be suspected unheard, after a grace.

What keeps evidence from becoming suspicion:
 * *ourselves*: time in which we ourselves stood still is nobody's silence; and when more peers than may be suspected at
   a time are late or gone together, it is our network that is in doubt, and nobody is suspected until fewer are;
 * *the limit*: no more than a share of the peers at a time, and so many a minute;
 * *flapping*: a suspicion ends when the peer has answered for a while without a break; this while doubles with every
   false alarm.  So a peer that comes and goes is suspected at once and trusted late.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

REFUSALS = 2
MAX_TRUST_S = 60.0
FORGET_FALSE_ALARMS_S = 600.0
"""A peer that was steady for so long begins anew."""
RATE_WINDOW_S = 60.0


class Limits(NamedTuple):
    silence_s: float | None = None
    """None: silence is no evidence."""
    stall_s: float = 1.0
    """Two judgements further apart than this: we stood still ourselves."""
    grace_s: float = 3.0
    """For a settled peer that has never answered us."""
    trust_s: float = 1.0
    """A suspect that answers for so long is trusted again; doubled for each false alarm before."""
    share: float = 0.34
    """Of the peers that may be suspected at a time; one of two or more always may."""
    per_minute: int = 10


class Suspicion(NamedTuple):
    peer: int
    epoch: int
    reason: str
    """``refused`` or ``silent``."""
    since_s: float
    quiet_s: float
    """Between the last answer and the suspicion."""


class Peer:
    """What was seen of one peer; times are None as long as there was none."""

    __slots__ = ("answered_s", "epoch", "refusals", "refused_since_s", "settled", "steady_s", "suspicion", "watched_s")

    def __init__(self, epoch: int, now_s: float, settled: bool) -> None:
        self.epoch = epoch
        self.settled = settled
        self.watched_s = now_s
        self.answered_s: float | None = None
        self.steady_s: float | None = None
        """Since when it has answered without a break."""
        self.refusals = 0
        """In a row."""
        self.refused_since_s = 0.0
        self.suspicion: Suspicion | None = None


class FailureDetector:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.peers: dict[int, Peer] = {}
        self.held = False
        """There is evidence that is not acted upon."""
        self.in_doubt = 0
        """Peers that seemed to be away at the last judgement."""
        self._judged_s: float | None = None
        self._forgiven_s = 0.0
        """Silence before this was our own."""
        self._alarms: deque[float] = deque()
        self._false_alarms: dict[int, tuple[int, float]] = {}
        """Peer -> (how many in a row, when the last was)."""

    # -- who is watched --------------------------------------------------------------------------------------------

    def watch(self, peer: int, epoch: int, now_s: float, *, settled: bool = False) -> None:
        self.peers[peer] = Peer(epoch, now_s, settled)

    def forget(self, peer: int) -> Suspicion | None:
        """Watch it no longer; returns the suspicion under which it stood."""
        known = self.peers.pop(peer, None)
        return known.suspicion if known is not None else None

    # -- what was seen ---------------------------------------------------------------------------------------------

    def connected(self, peer: int) -> None:
        """Somebody listens there, whether or not a heartbeat will be answered."""
        self.peers[peer].refusals = 0

    def answered(self, peer: int, now_s: float) -> None:
        known = self.peers[peer]
        late = self.limits.silence_s
        if known.steady_s is None or (
            late is not None and known.answered_s is not None and now_s - known.answered_s > late
        ):
            known.steady_s = now_s
        known.answered_s = now_s
        known.refusals = 0

    def lost(self, peer: int) -> None:
        """Its connection has ended, or none could be made, without anybody having refused one."""
        known = self.peers[peer]
        known.steady_s = None
        known.refusals = 0

    def refused(self, peer: int, now_s: float) -> None:
        known = self.peers[peer]
        known.steady_s = None
        if known.refusals == 0:
            known.refused_since_s = now_s
        known.refusals += 1

    # -- what follows ----------------------------------------------------------------------------------------------

    def suspects(self) -> dict[int, Suspicion]:
        return {peer: known.suspicion for peer, known in self.peers.items() if known.suspicion is not None}

    def refusing_s(self, peer: int, now_s: float) -> float:
        """For how long nobody has listened where somebody did, as the attempts in a row tell; 0 when somebody does."""
        known = self.peers.get(peer)
        if known is None or known.refusals < REFUSALS or known.answered_s is None:
            return 0.0
        return now_s - known.refused_since_s

    def allowed(self) -> int:
        """How many may be suspected at a time."""
        watched = len(self.peers)
        return max(int(watched * self.limits.share), 1 if watched > 1 or self.limits.share >= 1 else 0)

    def judge(self, now_s: float) -> bool:
        """Weigh everything anew; whether the suspects are others than before."""
        if self._judged_s is not None and now_s - self._judged_s > self.limits.stall_s:
            self._forgiven_s = now_s
        self._judged_s = now_s
        changed = False
        for peer, known in self.peers.items():
            if known.suspicion is not None and self._is_trusted_again(peer, known, now_s):
                known.suspicion = None
                changed = True
        evidence = {
            peer: reason
            for peer, known in self.peers.items()
            if known.suspicion is None and (reason := self._evidence(known, now_s))
        }
        self.in_doubt = self._in_doubt(now_s)
        self.held = bool(evidence) and self.in_doubt > self.allowed()
        if self.held:
            return changed
        for peer, reason in evidence.items():
            if not self._within_rate(now_s):
                self.held = True
                break
            known = self.peers[peer]
            known.suspicion = Suspicion(peer, known.epoch, reason, now_s, now_s - self._heard_s(known))
            changed = True
        return changed

    def _evidence(self, known: Peer, now_s: float) -> str:
        if self._is_new(known, now_s):
            return ""
        if known.refusals >= REFUSALS:
            return "refused"
        silence_s = self.limits.silence_s
        return "silent" if silence_s is not None and self._silent_s(known, now_s) > silence_s else ""

    def _is_new(self, known: Peer, now_s: float) -> bool:
        """It has never been there, as far as we know, or has not had its time."""
        return known.answered_s is None and not (known.settled and now_s - known.watched_s >= self.limits.grace_s)

    def _in_doubt(self, now_s: float) -> int:
        """How many seem to be away: suspected, refusing, or late by half of what would be silence."""
        late_s = float("inf") if self.limits.silence_s is None else self.limits.silence_s / 2
        return sum(
            known.suspicion is not None or known.refusals > 0 or self._silent_s(known, now_s) > late_s
            for known in self.peers.values()
            if not self._is_new(known, now_s)
        )

    def _silent_s(self, known: Peer, now_s: float) -> float:
        return now_s - max(self._heard_s(known), self._forgiven_s)

    def _heard_s(self, known: Peer) -> float:
        return known.watched_s if known.answered_s is None else known.answered_s

    def _within_rate(self, now_s: float) -> bool:
        while self._alarms and now_s - self._alarms[0] > RATE_WINDOW_S:
            self._alarms.popleft()
        if len(self._alarms) >= self.limits.per_minute:
            return False
        self._alarms.append(now_s)
        return True

    def _is_trusted_again(self, peer: int, known: Peer, now_s: float) -> bool:
        if known.steady_s is None or known.refusals or known.answered_s is None:
            return False
        count, last_s = self._false_alarms.get(peer, (0, now_s))
        if now_s - last_s > FORGET_FALSE_ALARMS_S:
            count = 0
        steady_s = known.answered_s - known.steady_s
        if steady_s < min(self.limits.trust_s * 2**count, MAX_TRUST_S):
            return False
        self._false_alarms[peer] = (count + 1, now_s)
        return True
