"""The failure detector over every short history, beside rules that are read off the history itself.

One step is half a second, and silence and trust are limits of one second.  In each step a watched peer answers,
says nothing, loses its connection or refuses twice, or says nothing to us and answers another controller, which tells
us; other peers answer always.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise, product
from typing import NamedTuple

import pytest

from aiocontroller.core.failure_detector import DetectionLimits, FailureDetector

STEP_S = 0.5
SILENCE_S = 1.0
TRUST_S = 1.0
ANSWER, NOTHING, LOST, REFUSE, ELSEWHERE = "answer", "nothing", "lost", "refuse", "elsewhere"
ACTIONS = (ANSWER, NOTHING, LOST, REFUSE)
WITNESSED = (*ACTIONS, ELSEWHERE)
STEADY = 3

Step = tuple[str, ...]
"""One action for each free peer."""


class Verdicts(NamedTuple):
    suspected: dict[int, str]
    """Peers under suspicion after the step -> the reason."""
    held: bool


def _copied(detector: FailureDetector) -> FailureDetector:
    other = copy.copy(detector)
    other.peers = {peer: copy.copy(known) for peer, known in detector.peers.items()}
    other._alarms = copy.copy(detector._alarms)
    other._false_alarms = dict(detector._false_alarms)
    return other


def _play(detector: FailureDetector, step: Step, now_s: float) -> Verdicts:
    for peer, action in enumerate(step, start=1):
        if action == ANSWER:
            detector.answered(peer, now_s)
        elif action == LOST:
            detector.lost(peer)
        elif action == REFUSE:
            detector.refused(peer, now_s)
            detector.refused(peer, now_s)
        elif action == ELSEWHERE:
            detector.vouched(peer, 1, now_s)
            detector.vouched(peer, 2, now_s)  # another incarnation, which says nothing
            detector.vouched(99, 1, now_s)
    for peer in range(len(step) + 1, len(detector.peers) + 1):
        detector.answered(peer, now_s)
    before = detector.suspects()
    changed = detector.judge(now_s)
    assert changed == (before != detector.suspects())
    return Verdicts({peer: found.reason for peer, found in detector.suspects().items()}, detector.held)


def _watching(limits: DetectionLimits, free: int = 1) -> FailureDetector:
    detector = FailureDetector(limits)
    for peer in range(1, free + STEADY + 1):
        detector.watch(peer, 1, 0.0)
        detector.answered(peer, 0.0)
    return detector


def _histories(
    limits: DetectionLimits, free: int, length: int, kinds: tuple[str, ...]
) -> Iterator[tuple[list[Step], list[Verdicts]]]:
    """Every history, each once; of two with the same beginning, that is played once."""
    detector = _watching(limits, free)
    steps: list[Step] = []
    verdicts: list[Verdicts] = []

    def go_on(detector: FailureDetector) -> Iterator[tuple[list[Step], list[Verdicts]]]:
        if len(steps) == length:
            return
        for step in product(kinds, repeat=free):
            other = _copied(detector)
            steps.append(step)
            verdicts.append(_play(other, step, len(steps) * STEP_S))
            yield steps, verdicts
            yield from go_on(other)
            steps.pop()
            verdicts.pop()

    return go_on(detector)


def _answers_for_s(actions: list[str], silence_s: float | None) -> float:
    """Length of the unbroken run of answers at the end; -1 if it is broken now."""
    first = last = None
    for at, action in enumerate(actions):
        if action in (LOST, REFUSE):
            first = last = None
        elif action == ANSWER:
            if first is None or (silence_s is not None and (at - last) * STEP_S > silence_s):
                first = at
            last = at
    if first is None or (silence_s is not None and (len(actions) - 1 - last) * STEP_S > silence_s):
        return -1.0
    return (last - first) * STEP_S


def _evidence(actions: list[str], silence_s: float | None) -> str:
    """Why the peer, which had answered before, seems to be dead at the end; empty if it does not."""
    since_answer = next((n for n, action in enumerate(reversed(actions)) if action == ANSWER), len(actions))
    signs = [action for action in actions if action not in (NOTHING, ELSEWHERE)]
    if signs and signs[-1] == REFUSE:
        return "refused"
    elsewhere = next((n for n, action in enumerate(reversed(actions)) if action == ELSEWHERE), len(actions))
    if silence_s is None or since_answer * STEP_S <= silence_s or (_is_recent(elsewhere, actions, silence_s)):
        return ""
    return "silent"


def _is_recent(steps_ago: int, actions: list[str], silence_s: float) -> bool:
    return steps_ago < len(actions) and steps_ago * STEP_S <= silence_s / 2


def _check(steps: list[Step], verdicts: list[Verdicts], limits: DetectionLimits) -> None:
    """The last verdict follows from the history."""
    before = verdicts[-2].suspected if len(verdicts) > 1 else {}
    after, held = verdicts[-1]
    allowed = max(1, int((len(steps[0]) + STEADY) * limits.share))
    for reason in ("refused", "silent"):
        assert list(after.values()).count(reason) <= allowed
    assert set(after) <= set(range(1, len(steps[0]) + 1)), "peers that answer always"
    for peer in range(1, len(steps[0]) + 1):
        actions = [step[peer - 1] for step in steps]
        suspected = [peer in verdict.suspected for verdict in verdicts]
        if peer in before:
            alarmed = max(n for n, is_so in enumerate(suspected[:-1]) if is_so and (n == 0 or not suspected[n - 1]))
            earlier = sum(was and not is_so for was, is_so in pairwise(suspected[:-1]))
            run_s = _answers_for_s(actions[alarmed + 1 :], limits.silence_s)
            assert (peer not in after) == (run_s >= TRUST_S * 2**earlier), (
                "trusted when, and only when, it has answered"
            )
        elif peer in after:
            assert after[peer] == _evidence(actions, limits.silence_s)
    waiting = {
        peer: evidence
        for peer in range(1, len(steps[0]) + 1)
        if peer not in after and (evidence := _evidence([step[peer - 1] for step in steps], limits.silence_s))
    }
    assert held == bool(waiting), "what seems to be dead is suspected, unless a limit holds it back"
    if "refused" in waiting.values():
        signs = [
            [step[peer] for step in steps if step[peer] not in (NOTHING, ELSEWHERE)] for peer in range(len(steps[0]))
        ]
        latest = [actions[-1:] for actions in signs]
        refusing = sum(actions == [REFUSE] or after.get(n) == "refused" for n, actions in enumerate(latest, 1))
        assert refusing > allowed, "only other refusals hold back the alarm of one that refuses"


@pytest.mark.parametrize("silence_s", [None, SILENCE_S])
@pytest.mark.parametrize(
    "free, length, kinds", [(1, 7, ACTIONS), (2, 4, ACTIONS), (1, 6, WITNESSED), (2, 3, WITNESSED)]
)
def test_every_short_history(silence_s: float | None, free: int, length: int, kinds: tuple[str, ...]) -> None:
    limits = DetectionLimits(silence_s=silence_s, trust_s=TRUST_S)
    histories = 0
    for steps, verdicts in _histories(limits, free, length, kinds):
        histories += 1
        _check(steps, verdicts, limits)
    assert histories == sum((len(kinds) ** free) ** n for n in range(1, length + 1))


@pytest.mark.parametrize("length", [6])
def test_a_witness_that_speaks_for_the_living_never_delays_an_alarm(length: int) -> None:
    """Two controllers, each over every short history of one peer; the second tells the first what it hears.

    From the last answer to either of them, the first suspects the peer as soon as without a witness.
    """
    limits = DetectionLimits(silence_s=SILENCE_S, trust_s=TRUST_S)
    alarms = 0
    for heard in product((True, False), repeat=length):
        for heard_elsewhere in product((True, False), repeat=length):
            ours, other, alone = (_watching(limits) for _ in range(3))
            for step, answers in enumerate(zip(heard, heard_elsewhere, strict=True), 1):
                now_s = step * STEP_S
                for peer in range(2, STEADY + 2):
                    for detector in (ours, other, alone):
                        detector.answered(peer, now_s)
                if answers[0]:
                    ours.answered(1, now_s)
                if answers[1]:
                    other.answered(1, now_s)
                if any(answers):
                    alone.answered(1, now_s)  # what one would see that hears what either hears
                for peer, epoch in other.hears(now_s):
                    ours.vouched(peer, epoch, now_s)
                for detector in (ours, other, alone):
                    detector.judge(now_s)
                if 1 in alone.suspects():
                    assert 1 in ours.suspects(), "silent to both"
                    alarms += 1
                    break
                if all(heard_elsewhere[:step]):
                    assert 1 not in ours.suspects(), "only our own link is cut"
    assert alarms > 0
