"""The rules of early detection, which decide which peers seem to be dead; without a clock and without a socket.

The watcher (``controller.heartbeats``) reports what it observes, each time with the time in seconds, and then asks for
a judgement.  A *peer* is a broker or the active controller; its *epoch* is the incarnation that is watched.

Evidence against a peer:
 * *refused*: it was connected, the connection ended, and ``REFUSALS`` connection attempts in a row were refused.  Its
   operating system runs and no process listens: the broker is gone or closing.
 * *silent* (if a limit for silence is set): it answered no heartbeat for that long.

Silence does not count while another controller hears the peer (``core.witness``): then only our own link to it is cut.
A suspicion from before its word is withdrawn if nobody has acted on it (``confirm``).  That never delays an alarm: a
witness speaks for a peer until half of the limit after the peer's last answer, and is believed for the other half.

There is no evidence against a peer that never connected: a broker registers before it listens, and a new one leads
nothing.  Only a peer that registered before we started watching (``settled``) may be suspected without ever having
answered, after a grace period.

Three things keep evidence from becoming suspicion:
 * *ourselves*: a pause of our own process does not count as a peer's silence; and while more peers are late or gone
   together than may be suspected at a time, our own network is in doubt, and silence is held against none.  A refusal
   has come through the network, so only other refusals put it in doubt: the silence of one peer never delays the alarm
   of another one that dies;
 * *the limit*: of each kind of evidence, at most a share of the peers is suspected at a time, and at most so many a
   minute.  Half of a minute's alarms are for peers that have had none in it, so peers that come and go never delay the
   alarm of one that dies;
 * *flapping*: a suspicion ends when the peer has answered without a break for a certain time, which doubles with every
   false alarm.  So a peer that comes and goes is suspected at once and trusted late.  Only answers after the suspicion
   count, so one pause of a peer is one alarm.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

REFUSALS = 2
MAX_TRUST_S = 60.0
FORGET_FALSE_ALARMS_S = 600.0
"""After this long without an alarm, a peer's false alarms are forgotten."""
RATE_WINDOW_S = 60.0
"""The minute of ``DetectionLimits.per_minute``."""


class DetectionLimits(NamedTuple):
    """When evidence counts, and how much may be suspected; times in seconds."""

    silence_s: float | None = None
    """None: silence does not count as evidence."""
    stall_s: float = 1.0
    """If two judgements are further apart than this, our own process was paused."""
    grace_s: float = 3.0
    """For a settled peer that has never answered us."""
    trust_s: float = 1.0
    """A suspect that answers for this long is trusted again; doubled for each earlier false alarm."""
    share: float = 0.34
    """The share of the peers that may be suspected at a time by each kind of evidence; with two or more peers, one
    always may."""
    per_minute: int = 10
    """Alarms; from half of them on, only a peer's first alarm of the minute is raised."""


class Suspicion(NamedTuple):
    """A peer that seems to be dead, and why; times in seconds of the same clock."""

    peer: int
    epoch: int
    reason: str
    """``refused`` or ``silent``."""
    since_s: float
    quiet_s: float
    """Time between the last answer and the suspicion."""


class Peer:
    """Observations of one peer; a time is None until its event has occurred."""

    __slots__ = (
        "answered_s",
        "epoch",
        "refusals",
        "refused_since_s",
        "settled",
        "steady_s",
        "suspicion",
        "vouched_s",
        "watched_s",
    )

    def __init__(self, epoch: int, now_s: float, settled: bool) -> None:
        self.epoch = epoch
        self.settled = settled
        self.watched_s = now_s
        self.answered_s: float | None = None
        self.steady_s: float | None = None
        """Start of the present unbroken run of answers."""
        self.refusals = 0
        """In a row."""
        self.refused_since_s = 0.0
        self.vouched_s: float | None = None
        """When another controller last said that it hears the peer."""
        self.suspicion: Suspicion | None = None


class FailureDetector:
    """Gathers evidence, and judges it; all times are given by the caller, in seconds."""

    def __init__(self, limits: DetectionLimits) -> None:
        self.limits = limits
        self.peers: dict[int, Peer] = {}
        self.held = False
        """There is evidence that the limits keep from becoming a suspicion."""
        self.in_doubt = 0
        """Number of peers that seemed to be away at the last judgement."""
        self.refusing = 0
        """Number of those that refused connections, or are suspected for it."""
        self.heard_elsewhere: frozenset[int] = frozenset()
        """Peers whose silence did not count at the last judgement, because another controller hears them."""
        self._judged_s: float | None = None
        self._forgiven_s = 0.0
        """Silence before this time was caused by our own pause."""
        self._alarms: deque[Suspicion] = deque()
        """Alarms of the last ``RATE_WINDOW_S``, the oldest first."""
        self._false_alarms: dict[int, tuple[int, float]] = {}
        """Peer -> (number in a row, time of the last)."""

    # -- watched peers ---------------------------------------------------------------------------------------------

    def watch(self, peer: int, epoch: int, now_s: float, *, settled: bool = False) -> None:
        """Begin to watch the incarnation with this epoch; ``settled``: it registered before this process watched."""
        self.peers[peer] = Peer(epoch, now_s, settled)

    def forget(self, peer: int) -> Suspicion | None:
        """Stop watching the peer; returns its suspicion, if any."""
        known = self.peers.pop(peer, None)
        return known.suspicion if known is not None else None

    # -- observations ----------------------------------------------------------------------------------------------

    def connected(self, peer: int) -> None:
        """A connection was made, whether or not a heartbeat will be answered."""
        self.peers[peer].refusals = 0

    def answered(self, peer: int, now_s: float) -> None:
        """The peer has answered a heartbeat."""
        known = self.peers[peer]
        late = self.limits.silence_s
        if known.steady_s is None or (
            late is not None and known.answered_s is not None and now_s - known.answered_s > late
        ):
            known.steady_s = now_s
        known.answered_s = now_s
        known.refusals = 0

    def lost(self, peer: int) -> None:
        """Its connection ended, or an attempt to connect failed without being refused."""
        known = self.peers[peer]
        known.steady_s = None
        known.refusals = 0

    def refused(self, peer: int, now_s: float) -> None:
        """The peer has refused a connection."""
        known = self.peers[peer]
        known.steady_s = None
        if known.refusals == 0:
            known.refused_since_s = now_s
        known.refusals += 1

    def gave_up(self, peer: int, now_s: float) -> None:
        """The peer has answered that it cannot go on, which counts like a refusal by its operating system."""
        self.refused(peer, now_s)
        self.peers[peer].refusals = REFUSALS

    def vouched(self, peer: int, epoch: int, now_s: float) -> None:
        """Another controller has just said that it hears this incarnation; one that is not watched does not count."""
        known = self.peers.get(peer)
        if known is not None and known.epoch == epoch:
            known.vouched_s = now_s

    def hears(self, now_s: float) -> list[tuple[int, int]]:
        """(peer, epoch) of those for which we can vouch: they have answered within half of the limit for silence.
        Empty without such a limit, since peers are not asked regularly then."""
        late_s = self._late_s()
        return (
            [
                (peer, known.epoch)
                for peer, known in self.peers.items()
                if known.answered_s is not None and known.steady_s is not None and now_s - known.answered_s <= late_s
            ]
            if self.limits.silence_s is not None
            else []
        )

    # -- judgement -------------------------------------------------------------------------------------------------

    def suspects(self) -> dict[int, Suspicion]:
        """Peer -> the suspicion, of those that are suspected."""
        return {peer: known.suspicion for peer, known in self.peers.items() if known.suspicion is not None}

    def confirm(self, peer: int, now_s: float) -> bool:
        """Whether the peer is suspected, to be asked before anybody acts on it: a suspicion of silence is withdrawn if
        another controller hears the peer by now."""
        known = self.peers.get(peer)
        if known is None or known.suspicion is None:
            return False
        if known.suspicion.reason == "silent" and self._is_vouched_for(known, now_s):
            known.suspicion = None
        return known.suspicion is not None

    def answers_again(self, peer: int, now_s: float) -> bool:
        """Whether a suspect answers us again, without present evidence against it, or answers another controller; it
        need not be trusted yet."""
        known = self.peers[peer]
        answers_us = known.steady_s is not None and not self._evidence(known, now_s)
        return answers_us or self._is_vouched_for(known, now_s)

    def refusing_s(self, peer: int, now_s: float) -> float:
        """How long connection attempts to a peer that once listened have been refused in a row; 0 if it listens."""
        known = self.peers.get(peer)
        if known is None or known.refusals < REFUSALS or known.answered_s is None:
            return 0.0
        return now_s - known.refused_since_s

    def allowed(self) -> int:
        """The number of peers that may be suspected at a time by one kind of evidence."""
        watched = len(self.peers)
        return max(int(watched * self.limits.share), 1 if watched > 1 or self.limits.share >= 1 else 0)

    @property
    def suspects_own_network(self) -> bool:
        """Whether more peers seem to be away than may be suspected, so that our own network may be at fault."""
        return self.in_doubt > self.allowed()

    def judge(self, now_s: float) -> bool:
        """Judge all evidence again; returns whether the set of suspects changed."""
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
        self.heard_elsewhere = self._heard_elsewhere(now_s)
        self.refusing = sum(self._refuses(known, now_s) for known in self.peers.values())
        self.held = False
        for peer, reason in evidence.items():
            together = self.refusing if reason == "refused" else self.in_doubt
            if together > self.allowed() or not self._is_within_rate(peer, now_s):
                self.held = True
                continue
            known = self.peers[peer]
            known.suspicion = Suspicion(peer, known.epoch, reason, now_s, now_s - self._heard_s(known))
            known.steady_s = None  # what it answered before says nothing about now
            self._alarms.append(known.suspicion)
            changed = True
        return changed

    def _evidence(self, known: Peer, now_s: float) -> str:
        if self._is_new(known, now_s):
            return ""
        if known.refusals >= REFUSALS:
            return "refused"
        return "silent" if self._is_silent(known, now_s) and not self._is_vouched_for(known, now_s) else ""

    def _is_silent(self, known: Peer, now_s: float) -> bool:
        silence_s = self.limits.silence_s
        return silence_s is not None and self._silent_s(known, now_s) > silence_s

    def _heard_elsewhere(self, now_s: float) -> frozenset[int]:
        return frozenset(
            peer
            for peer, known in self.peers.items()
            if known.suspicion is None
            and not self._is_new(known, now_s)
            and self._is_silent(known, now_s)
            and self._is_vouched_for(known, now_s)
        )

    def _is_vouched_for(self, known: Peer, now_s: float) -> bool:
        return known.vouched_s is not None and now_s - known.vouched_s <= self._late_s()

    def _late_s(self) -> float:
        """Half of the limit for silence; infinity without one."""
        return float("inf") if self.limits.silence_s is None else self.limits.silence_s / 2

    def _is_new(self, known: Peer, now_s: float) -> bool:
        """Whether the peer has never connected or is still within its grace period."""
        return known.answered_s is None and not (known.settled and now_s - known.watched_s >= self.limits.grace_s)

    def _in_doubt(self, now_s: float) -> int:
        """The number of peers that seem to be away: suspected, refusing, or late by half the limit for silence without
        another controller that hears them."""
        late_s = self._late_s()
        return sum(
            known.suspicion is not None
            or known.refusals > 0
            or (self._silent_s(known, now_s) > late_s and not self._is_vouched_for(known, now_s))
            for known in self.peers.values()
            if not self._is_new(known, now_s)
        )

    def _refuses(self, known: Peer, now_s: float) -> bool:
        """Whether it refuses connections, or is suspected for that; a new peer does not count."""
        if self._is_new(known, now_s):
            return False
        return known.refusals > 0 or (known.suspicion is not None and known.suspicion.reason == "refused")

    def _silent_s(self, known: Peer, now_s: float) -> float:
        return now_s - max(self._heard_s(known), self._forgiven_s)

    def _heard_s(self, known: Peer) -> float:
        return known.watched_s if known.answered_s is None else known.answered_s

    def _is_within_rate(self, peer: int, now_s: float) -> bool:
        while self._alarms and now_s - self._alarms[0].since_s > RATE_WINDOW_S:
            self._alarms.popleft()
        repeated = any(alarm.peer == peer for alarm in self._alarms)
        return len(self._alarms) < (self.limits.per_minute // 2 if repeated else self.limits.per_minute)

    def _is_trusted_again(self, peer: int, known: Peer, now_s: float) -> bool:
        if known.steady_s is None or known.refusals or known.answered_s is None:
            return False
        count, last_s = self._false_alarms.get(peer, (0, now_s))
        if now_s - last_s > FORGET_FALSE_ALARMS_S:
            count = 0
        steady_s = known.answered_s - known.steady_s
        if steady_s < min(self.limits.trust_s * 2.0 ** min(count, 30), MAX_TRUST_S):
            return False
        self._false_alarms[peer] = (count + 1, now_s)
        return True
