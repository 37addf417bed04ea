"""Decides whether a broker is sick: it is alive and answers, but slows others down.  Pure: no clock, no socket.

A dead broker interrupts its partitions for a moment.  A sick one (a slow disk, a lossy network, an overloaded
processor) stays leader and in every ISR, and each ``acks=all`` waits for it, on all brokers, as long as it is sick.

**Evidence.**  ``controller.sickness_probes`` reports what brokers answer, on several connections to each:
 * *stale as a follower*: every leader that it follows sees it stale beyond the limit, and either there are two such
   leaders, or the only one has another follower that keeps up;
 * *stale as a leader*: all of its followers are stale beyond the limit, and there are at least two;
 * *slow*: for ``SLOW_FOR_S`` without a break, the median of its answers during ``WINDOW_S`` takes longer than the limit
   and ``SLOWER`` times as long as that of the other brokers (a healthy broker on a busy machine is slow for a moment);
 * *stuck*: in ``PAUSES_S`` it has paused for longer than ``PAUSE_S`` at least ``PAUSES`` times, and for half of the
   time in all, as a broker does when all of its threads wait for its disk.
An AlterPartition by which a leader removes a follower is late, so it only confirms other evidence.

The kind of sickness is a guess, for people; the cure is always the same:
 * stale as a follower, and some of its answers are prompt: *disk*; none of them prompt: *network in*;
 * stale as a leader only: *network out*;
 * slow or stuck, and followers keep up with it: *cpu*.

**What the judge may assume**: brokers' answers are true, and the caller's clock does not go back.  It may not assume
that an answer comes, that answers come in order, or that this process runs without pauses.

**What it must never do**
 1. Judge by a missing answer: a broker that does not answer is dead or frozen, which early detection decides.
 2. Judge an idle cluster: where nothing is written nothing is stale, and response times are only compared.
 3. Judge a cluster that starts or changes: for ``CHANGE_S`` after a broker registered, left or began its shutdown.
 4. Believe observations from before a freeze.  A broker that has not answered for ``PAUSE_S`` may have been frozen, and
    removes its followers from ISRs when it wakes; it is not believed for ``WAKE_S``.  After our own process has slept,
    no broker is.
 5. Judge two brokers: while one is sick, no other is.  If several seem sick, and no single one explains the staleness
    of all pairs, our picture is wrong, or the fault is between them: none is judged (*held*).
 6. Judge with fewer than ``WITNESSES`` other brokers that answer: of two brokers, either may be at fault.
 7. Judge often: at most ``PER_HOUR`` times in an hour.

**The end.**  A broker is well again when it has looked well for ``SicknessLimits.healthy_s`` without a break: it
answers, not slowly, and is not stale anywhere, not even where it is out of the ISR.  The time doubles with each
relapse, up to ``MAX_HEALTHY_S``.  The sickness also ends when the broker's registration ends or is replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.staleness import MEMORY_S, SETTLE_S, Lag, Pair, Staleness, Watched

DISK, NETWORK_IN, NETWORK_OUT, CPU = "disk", "network in", "network out", "cpu"
WINDOW_S = 2.0
SLOWER = 4.0
PAUSE_S = 0.6
ASLEEP_S = 1.5
"""A broker that has not answered for this long is not slow but silent."""
WAKE_S = 1.0
CHANGE_S = 3.0
CONFIRMED_S = 0.3
"""Staleness has to last this long; it is observed five times a second."""
SLOW_FOR_S = 3.0
"""Slowness alone has to last this long."""
PAUSES = 3
PAUSES_S = 10.0
"""The time in which pauses are counted."""
WITNESSES = 2
FEWEST_ANSWERS = 4
PER_HOUR = 6
MAX_HEALTHY_S = 300.0
RELAPSE_WITHIN_S = 600.0
ACCUSED_S = 10.0
"""How long an AlterPartition counts as confirmation."""
LONG_AGO_S = float("-inf")


class SicknessLimits(NamedTuple):
    """When evidence counts; times in seconds."""

    staleness_s: float = 1.0
    latency_s: float = 0.1
    stall_s: float = 1.0
    """If two judgements are further apart than this, our own process slept."""
    healthy_s: float = 10.0


class Sickness(NamedTuple):
    """A broker that is sick, and why."""

    broker: int
    epoch: int
    kind: str
    """How it looks: DISK, NETWORK_IN, NETWORK_OUT or CPU."""
    since_s: float
    evidence: str
    """One line, for people."""


class Speed(NamedTuple):
    """How long a broker's answers took, in seconds."""

    median_s: float
    prompt_s: float
    """The lower quartile of the latest answers."""


class Finding(NamedTuple):
    """Evidence against one broker."""

    kind: str
    pairs: frozenset[Pair]
    """The pairs whose staleness it explains."""
    text: str
    lasts_s: float
    """How long it has to last before it counts."""


class _Observations:
    """Observations of one incarnation of a broker."""

    __slots__ = ("answered_s", "answers", "asked", "believed_s", "epoch", "evident_s", "pauses", "reports_log_ends")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.answered_s = LONG_AGO_S
        self.answers: deque[tuple[float, float]] = deque()
        """(time, seconds that it took) during ``WINDOW_S``."""
        self.asked: dict[int, float] = {}
        """Connection -> when the request that is still unanswered was sent."""
        self.believed_s = LONG_AGO_S
        """From when on its answers about logs count."""
        self.evident_s: float | None = None
        """Since when there is evidence against it without a break."""
        self.pauses: deque[tuple[float, float]] = deque()
        """(end, seconds) of the pauses between answers that ended in the last ``PAUSES_S``."""
        self.reports_log_ends = False
        """It has reported where logs end."""

    def speed(self, now_s: float) -> Speed | None:
        """How fast the broker answers; None while there are too few answers, or all within a moment."""
        while self.answers and now_s - self.answers[0][0] > WINDOW_S:
            self.answers.popleft()
        if len(self.answers) < FEWEST_ANSWERS or self.answers[-1][0] - self.answers[0][0] < WINDOW_S / 2:
            return None
        took = sorted(seconds for _, seconds in self.answers)
        late = sorted(seconds for at_s, seconds in self.answers if self.answers[-1][0] - at_s <= WINDOW_S / 2)
        return Speed(took[len(took) // 2], late[len(late) // 4])

    def stuck_s(self, now_s: float) -> float:
        """How long it answered nothing in the last ``PAUSES_S``; 0 if it is not *stuck*."""
        while self.pauses and now_s - self.pauses[0][0] > PAUSES_S:
            self.pauses.popleft()
        paused_s = sum(seconds for _, seconds in self.pauses)
        return paused_s if len(self.pauses) >= PAUSES and paused_s >= PAUSES_S / 2 else 0.0


class SicknessJudge:
    """Gathers evidence and judges it; the caller gives all times, in seconds of one monotonic clock."""

    def __init__(self, limits: SicknessLimits) -> None:
        self.limits = limits
        self.sick: Sickness | None = None
        self.held: tuple[int, ...] = ()
        """Brokers with evidence against them that does not suffice to judge one of them."""
        self.staleness = Staleness()
        self._observations: dict[int, _Observations] = {}
        self._judged_s = LONG_AGO_S
        self._believed_s = LONG_AGO_S
        self._well_s: float | None = None
        """Since when the sick broker has looked well."""
        self._unknown_until_s = LONG_AGO_S
        """Until when too little is known of the sick broker, because its partitions have new leaders."""
        self._ended: dict[int, tuple[int, float]] = {}
        """Broker -> (recoveries in a row, time of the last)."""
        self._verdicts: deque[float] = deque()
        self._accused: dict[Pair, float] = {}
        self._leaving: frozenset[int] = frozenset()

    # -- who is watched --------------------------------------------------------------------------------------------

    def watch(self, brokers: Mapping[int, int], leaving: Collection[int], now_s: float) -> None:
        """``brokers``: id -> epoch of those registered; ``leaving``: those that shut down or seem to be dead."""
        known = {broker: seen.epoch for broker, seen in self._observations.items()}
        if known == brokers and self._leaving == frozenset(leaving):
            return
        self._leaving = frozenset(leaving)
        for broker in [b for b, epoch in known.items() if brokers.get(b) != epoch]:
            del self._observations[broker]
            self.staleness.forget(broker)
        for broker, epoch in brokers.items():
            if broker not in self._observations:
                self._observations[broker] = _Observations(epoch)
        self._believed_s = max(self._believed_s, now_s + CHANGE_S)

    def watch_partitions(self, partitions: Mapping[TopicPartition, Watched], now_s: float) -> None:
        """Set the partitions whose replicas are observed from now on."""
        changed = self.staleness.watch(partitions, now_s)
        if self.sick is not None and any(self.sick.broker in (each.leader, *each.followers) for each in changed):
            self._unknown_until_s = now_s + SETTLE_S + MEMORY_S

    # -- observations ----------------------------------------------------------------------------------------------

    def asked(self, broker: int, connection: int, now_s: float) -> None:
        """Note a request sent to the broker on one of the connections."""
        seen = self._observations.get(broker)
        if seen is not None:
            seen.asked[connection] = now_s

    def lost(self, broker: int, connection: int) -> None:
        """Note that the connection has ended, and with it the unanswered request."""
        seen = self._observations.get(broker)
        if seen is not None:
            seen.asked.pop(connection, None)

    def answered(
        self, broker: int, connection: int, now_s: float, ends: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Note an answer of the broker; ``ends`` are the log end offsets of its replicas, if it reported them."""
        seen = self._observations.get(broker)
        asked_s = None if seen is None else seen.asked.pop(connection, None)
        if seen is None or asked_s is None:
            return
        if now_s - seen.answered_s > PAUSE_S:
            self.staleness.slept(broker)
            if seen.answered_s != LONG_AGO_S:
                seen.pauses.append((now_s, now_s - seen.answered_s))
            seen.believed_s = now_s + WAKE_S
        if now_s - seen.answered_s > ASLEEP_S:
            seen.answers.clear()
        seen.answered_s = now_s
        seen.answers.append((now_s, now_s - asked_s))
        seen.reports_log_ends = seen.reports_log_ends or bool(ends)
        if ends and now_s >= seen.believed_s and now_s >= self._believed_s:
            self.staleness.ended(broker, ends, now_s)

    def accused(self, leader: int, follower: int, now_s: float) -> None:
        """Note that the leader has asked to remove the follower from an ISR."""
        self._accused[leader, follower] = now_s

    def is_silent(self, broker: int, now_s: float) -> bool:
        """Whether the broker has answered nothing for ``ASLEEP_S`` while enough others answer."""
        awake = [b for b, seen in self._observations.items() if now_s - seen.answered_s <= PAUSE_S]
        seen = self._observations.get(broker)
        return (
            seen is not None
            and seen.answered_s != LONG_AGO_S
            and now_s - seen.answered_s > ASLEEP_S
            and len(awake) >= WITNESSES
        )

    # -- judgement -------------------------------------------------------------------------------------------------

    def judge(self, now_s: float) -> bool:
        """Judge all evidence again; returns whether ``sick`` has changed."""
        if now_s - self._judged_s > self.limits.stall_s:
            self._forget_before_sleep(now_s)
        self._judged_s = now_s
        sick = self.sick
        if sick is not None and self._is_over(sick, now_s):
            self.sick, self._well_s = None, None
        if now_s < self._believed_s:
            self._forget_evidence()
            return self.sick != sick
        findings = self._findings(now_s)
        confirmed = self._confirmed(findings, now_s)
        if self.sick is not None:
            self.held = tuple(broker for broker in confirmed if broker != self.sick.broker)
            self._check_recovery(self.sick, findings, now_s)
        else:
            self._judge_new(findings, confirmed, now_s)
        return self.sick != sick

    def _forget_before_sleep(self, now_s: float) -> None:
        """Forget all observations after our own process slept: brokers may have answered unnoticed."""
        self._believed_s = max(self._believed_s, now_s + WAKE_S)
        self.staleness.forget()
        for seen in self._observations.values():
            seen.answers.clear()
            seen.asked.clear()
            seen.pauses.clear()
            seen.answered_s = now_s

    def _forget_evidence(self) -> None:
        self.held, self._well_s = (), None
        for seen in self._observations.values():
            seen.evident_s = None

    def _is_over(self, sick: Sickness, now_s: float) -> bool:
        seen = self._observations.get(sick.broker)
        if seen is None or seen.epoch != sick.epoch:
            return True
        if self._well_s is None or now_s - self._well_s < self._healthy_s(sick.broker, now_s):
            return False
        self._ended[sick.broker] = (self._relapses(sick.broker, now_s) + 1, now_s)
        return True

    def _healthy_s(self, broker: int, now_s: float) -> float:
        doubled = self.limits.healthy_s * 2.0 ** min(self._relapses(broker, now_s), 30)
        return min(doubled, max(MAX_HEALTHY_S, self.limits.healthy_s))

    def _relapses(self, broker: int, now_s: float) -> int:
        count, last_s = self._ended.get(broker, (0, LONG_AGO_S))
        since_s = self.sick.since_s if self.sick is not None else now_s
        return count if since_s - last_s <= RELAPSE_WITHIN_S else 0

    def _confirmed(self, findings: Mapping[int, Finding], now_s: float) -> dict[int, Finding]:
        """The findings that have lasted long enough."""
        confirmed = {}
        for broker, seen in self._observations.items():
            if broker not in findings:
                seen.evident_s = None
                continue
            if seen.evident_s is None:
                seen.evident_s = now_s
            if now_s - seen.evident_s >= findings[broker].lasts_s:
                confirmed[broker] = findings[broker]
        return confirmed

    def _judge_new(self, findings: Mapping[int, Finding], confirmed: Mapping[int, Finding], now_s: float) -> None:
        guilty = _only_explanation(findings)
        while self._verdicts and now_s - self._verdicts[0] > 3600:
            self._verdicts.popleft()
        if guilty is None or len(self._verdicts) >= PER_HOUR:
            self.held = tuple(confirmed)
            return
        self.held = ()
        if guilty in confirmed and guilty not in self._leaving:
            found = confirmed[guilty]
            self.sick = Sickness(guilty, self._observations[guilty].epoch, found.kind, now_s, found.text)
            self._verdicts.append(now_s)

    def _check_recovery(self, sick: Sickness, findings: Mapping[int, Finding], now_s: float) -> None:
        seen = self._observations[sick.broker]
        speed = seen.speed(now_s)
        led = [lag for (leader, _), lag in self.staleness.pairs(now_s).items() if leader == sick.broker]
        well = (
            sick.broker not in findings
            and self._is_believed(seen, now_s)
            and now_s >= self._unknown_until_s
            and not (seen.reports_log_ends and self.staleness.is_unknown(sick.broker, now_s))
            and speed is not None
            and speed.median_s <= self.limits.latency_s
            and all(lag.seconds <= self.limits.staleness_s / 2 for lag in led)
            and self.staleness.worst_s(sick.broker, now_s) <= self.limits.staleness_s / 2
            and not any(sick.broker == follower for _, follower in self._accusations(now_s))
        )
        if not well:
            self._well_s = None
        elif self._well_s is None:
            self._well_s = now_s

    def _is_believed(self, seen: _Observations, now_s: float) -> bool:
        return now_s - seen.answered_s <= PAUSE_S and now_s >= seen.believed_s

    # -- evidence --------------------------------------------------------------------------------------------------

    def _findings(self, now_s: float) -> dict[int, Finding]:
        """The present evidence against each broker."""
        speeds = {
            broker: speed
            for broker, seen in self._observations.items()
            if now_s - seen.answered_s <= ASLEEP_S and (speed := seen.speed(now_s)) is not None
        }
        believed = {broker for broker, seen in self._observations.items() if self._is_believed(seen, now_s)}
        pairs = {
            pair: lag for pair, lag in self.staleness.pairs(now_s).items() if lag.in_sync and believed.issuperset(pair)
        }
        found = {}
        for broker in self._observations:
            finding = self._finding(broker, pairs, speeds, now_s)
            if finding is not None:
                found[broker] = finding
        return found

    def _finding(
        self, broker: int, pairs: Mapping[Pair, Lag], speeds: Mapping[int, Speed], now_s: float
    ) -> Finding | None:
        limits, speed = self.limits, speeds.get(broker)
        behind = self._stale_as_follower(broker, pairs)
        ahead = self._stale_as_leader(broker, pairs)
        others_s = sorted(other.median_s for each, other in speeds.items() if each != broker)
        stuck_s = self._observations[broker].stuck_s(now_s)
        if len(others_s) < WITNESSES or (speed is None and not stuck_s):
            return None  # too little is known of it, or of the brokers to compare it with
        usual_s = others_s[len(others_s) // 2]
        median_s, prompt_s = speed or Speed(stuck_s, stuck_s)
        slow = usual_s <= limits.latency_s < median_s and median_s > SLOWER * usual_s
        if not behind and not ahead and not slow and not stuck_s:
            return None
        explained = frozenset(pair for pair in pairs if broker in pair and pairs[pair].seconds > limits.staleness_s)
        if behind:
            kind = DISK if prompt_s <= limits.latency_s else NETWORK_IN
        else:
            kind = NETWORK_OUT if ahead else CPU
        parts = [f"answered nothing for {stuck_s:.1f} of {PAUSES_S:.0f} s"] if stuck_s else []
        parts += [f"{pairs[leader, broker].seconds:.1f} s behind {leader}" for leader in behind]
        parts += [f"{follower} is {pairs[broker, follower].seconds:.1f} s behind it" for follower in ahead]
        if speed is not None:
            parts.append(f"answers in {median_s * 1000:.0f} ms, others in {usual_s * 1000:.0f} ms")
        parts += [f"{leader} asked to remove it" for leader, of in self._accusations(now_s) if of == broker]
        lasts_s = CONFIRMED_S if explained or stuck_s else SLOW_FOR_S
        return Finding(kind, explained, ", ".join(parts), lasts_s)

    def _stale_as_follower(self, broker: int, pairs: Mapping[Pair, Lag]) -> list[int]:
        """The leaders that see it stale, if all do, and neither a single leader nor the link to it can be at fault."""
        limit_s = self.limits.staleness_s
        leaders = [leader for leader, follower in pairs if follower == broker]
        if not leaders or any(pairs[leader, broker].seconds <= limit_s for leader in leaders):
            return []
        keeps_up = any(
            leader == leaders[0] and follower != broker and lag.seconds <= limit_s / 2
            for (leader, follower), lag in pairs.items()
        )
        return leaders if len(leaders) > 1 or keeps_up else []

    def _stale_as_leader(self, broker: int, pairs: Mapping[Pair, Lag]) -> list[int]:
        """Its followers, if there are at least two and all are stale."""
        followers = [follower for leader, follower in pairs if leader == broker]
        if len(followers) < WITNESSES or any(pairs[broker, f].seconds <= self.limits.staleness_s for f in followers):
            return []
        return followers

    def _accusations(self, now_s: float) -> Iterable[Pair]:
        """The accusations of the last ``ACCUSED_S``, oldest first."""
        self._accused = {pair: at_s for pair, at_s in self._accused.items() if now_s - at_s <= ACCUSED_S}
        return tuple(self._accused)


def _only_explanation(findings: Mapping[int, Finding]) -> int | None:
    """The one broker whose sickness explains all stale pairs; None if there is none, or more than one."""
    explained = frozenset[Pair]().union(*(finding.pairs for finding in findings.values()))
    explaining = [broker for broker, finding in findings.items() if finding.pairs == explained]
    return explaining[0] if len(explaining) == 1 and (explained or len(findings) == 1) else None
