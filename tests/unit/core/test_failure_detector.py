"""The rules of early detection, observation by observation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.failure_detector import FORGET_FALSE_ALARMS_S, DetectionLimits, FailureDetector

FULL = DetectionLimits(silence_s=1.5)
REFUSED = DetectionLimits()


class Watching:
    """A detector over peers that answer every 0.2 s, except for those in ``quiet``."""

    def __init__(self, limits: DetectionLimits, peers: int = 3) -> None:
        self.detector = FailureDetector(limits)
        self.now_s = 100.0
        self.quiet: set[int] = set()
        for peer in range(1, peers + 1):
            self.detector.watch(peer, 70 + peer, self.now_s)
            self.detector.answered(peer, self.now_s)
        self.detector.judge(self.now_s)

    def run(self, seconds: float) -> list[float]:
        """Times at which the suspects changed."""
        changes = []
        for _ in range(round(seconds / 0.2)):
            self.now_s += 0.2
            for peer in sorted(self.detector.peers.keys() - self.quiet):
                self.detector.answered(peer, self.now_s)
            if self.detector.judge(self.now_s):
                changes.append(self.now_s)
        return changes

    def refuse(self, peer: int, times: int = 2) -> bool:
        """Its connection ends, and its port is closed; whether the suspects changed."""
        self.quiet.add(peer)
        self.detector.lost(peer)
        changed = False
        for _ in range(times):
            self.detector.refused(peer, self.now_s)
            changed |= self.detector.judge(self.now_s)
            self.now_s += 0.05
        return changed

    @property
    def suspects(self) -> dict[int, str]:
        return {peer: suspicion.reason for peer, suspicion in self.detector.suspects().items()}


@pytest.mark.parametrize("limits", [REFUSED, FULL])
def test_a_peer_that_refuses_twice_is_suspected_at_once(limits: DetectionLimits) -> None:
    it = Watching(limits)
    it.refuse(2, times=1)
    assert it.suspects == {}
    it.refuse(2, times=2)
    assert it.suspects == {2: "refused"}
    (suspicion,) = it.detector.suspects().values()
    assert suspicion.epoch == 72
    assert suspicion.quiet_s < 0.2


def test_one_refusal_puts_a_peer_in_doubt() -> None:
    """Several of them at once are our own network's fault, before any has refused often enough to be suspected."""
    it = Watching(REFUSED)
    assert it.detector.in_doubt == 0
    it.refuse(2, times=1)
    assert (it.detector.in_doubt, it.suspects) == (1, {})
    it.detector.answered(2, it.now_s)
    it.detector.judge(it.now_s)
    assert it.detector.in_doubt == 0


def test_one_refusal_between_two_connections_is_none() -> None:
    it = Watching(REFUSED)
    for _ in range(5):
        it.refuse(2, times=1)
        it.detector.answered(2, it.now_s)
        it.detector.judge(it.now_s)
    assert it.suspects == {}


def test_an_end_of_stream_alone_is_none() -> None:
    """Brokers close idle connections."""
    it = Watching(REFUSED)
    it.detector.lost(2)
    it.detector.judge(it.now_s)
    it.detector.answered(2, it.now_s + 0.001)
    assert not it.detector.judge(it.now_s + 0.001)
    assert it.suspects == {}


def test_silence_counts_where_it_is_watched_for_and_from_its_limit_on() -> None:
    for limits, expected in ((FULL, {3: "silent"}), (REFUSED, {})):
        it = Watching(limits)
        it.quiet.add(3)
        it.run(1.4)
        assert it.suspects == {}
        it.run(0.4)
        assert it.suspects == expected


def test_when_most_fall_silent_together_it_is_our_own_network() -> None:
    it = Watching(FULL)
    it.quiet |= {1, 2}
    it.run(30)
    assert it.suspects == {}
    assert it.detector.held
    assert it.detector.in_doubt == 2
    it.quiet.discard(1)
    it.run(1)
    assert it.suspects == {2: "silent"}
    assert not it.detector.held


def test_others_that_fall_silent_after_a_suspicion_put_it_in_doubt() -> None:
    it = Watching(FULL)
    it.quiet.add(1)
    it.run(10)
    assert (it.suspects, it.detector.suspects_own_network) == ({1: "silent"}, False)
    it.quiet |= {2, 3}
    it.run(10)
    assert (it.suspects, it.detector.suspects_own_network) == ({1: "silent"}, True)


def test_the_first_of_many_to_fall_silent_is_not_taken_for_the_only_one() -> None:
    """They do not fall silent in the same moment: their last answers are some time apart."""
    it = Watching(FULL)
    it.quiet.add(1)
    it.run(0.6)
    it.quiet |= {2, 3}
    it.run(10)
    assert it.suspects == {}


def test_two_that_refuse_together_are_too_many_of_three_and_not_of_six() -> None:
    for peers, expected in ((3, {}), (6, {1: "refused", 2: "refused"})):
        it = Watching(REFUSED, peers)
        it.detector.lost(1)
        it.detector.lost(2)
        for _ in range(3):
            it.detector.refused(1, it.now_s)
            it.detector.refused(2, it.now_s)
            it.detector.judge(it.now_s)
        assert it.suspects == expected


@pytest.mark.parametrize("silent_for_s", [0.2, 1.0, 3.0])
def test_the_silence_of_one_never_delays_the_alarm_of_another_that_dies(silent_for_s: float) -> None:
    """Its refusal has come through the network, so that is not at fault."""
    it = Watching(FULL)
    it.quiet.add(1)
    it.run(silent_for_s)
    it.refuse(2)
    assert it.suspects.get(2) == "refused"
    assert not it.detector.held


def test_the_death_of_one_puts_the_silence_of_another_in_doubt() -> None:
    it = Watching(FULL)
    it.refuse(2)
    it.quiet.add(1)
    it.run(10)
    assert (it.suspects, it.detector.held) == ({2: "refused"}, True)


def test_two_of_three_that_die_one_after_the_other_are_too_many() -> None:
    it = Watching(FULL)
    it.refuse(2)
    it.run(5)
    it.refuse(1)
    assert (it.suspects, it.detector.held) == ({2: "refused"}, True)


@pytest.mark.parametrize("settled", [False, True])
def test_new_peers_that_do_not_listen_do_not_delay_the_alarm_of_one_that_dies(settled: bool) -> None:
    """Brokers register before they listen; one that was registered before us may have been dead already."""
    it = Watching(FULL)
    for peer in (7, 8, 9):
        it.detector.watch(peer, 1, it.now_s, settled=settled)
        it.refuse(peer)
    it.refuse(2)
    assert it.suspects == {2: "refused"}


def test_of_two_peers_one_may_be_suspected_and_of_one_none() -> None:
    for peers, expected in ((2, {1: "refused"}), (1, {})):
        it = Watching(REFUSED, peers)
        it.refuse(1)
        assert it.suspects == expected


def test_our_own_pause_does_not_count_as_silence_of_peers() -> None:
    it = Watching(FULL)
    it.now_s += 60
    assert not it.detector.judge(it.now_s)
    it.run(1)
    assert it.suspects == {}
    it.quiet.add(1)
    it.run(2)
    assert it.suspects == {1: "silent"}


def test_peers_known_at_start_get_a_grace_period() -> None:
    it = Watching(FULL)
    it.detector.watch(4, 74, it.now_s, settled=True)
    it.quiet.add(4)
    it.refuse(4)
    it.run(2.4)
    assert it.suspects == {}
    it.run(1)
    it.refuse(4)
    assert set(it.suspects) == {4}


def test_a_peer_never_seen_is_neither_suspected_nor_in_the_way() -> None:
    it = Watching(FULL)
    it.detector.watch(9, 1, it.now_s)
    it.quiet.add(9)
    it.run(100)
    it.refuse(9)
    assert it.suspects == {}
    assert it.detector.refusing_s(9, it.now_s) == 0
    it.refuse(2)
    assert it.suspects == {2: "refused"}


def test_how_long_a_peer_has_refused() -> None:
    it = Watching(REFUSED)
    it.refuse(2, times=1)
    assert it.detector.refusing_s(2, it.now_s) == 0
    it.refuse(2)
    since_s = it.now_s - 0.1
    it.now_s += 5
    assert it.detector.refusing_s(2, it.now_s) == pytest.approx(it.now_s - since_s)
    it.detector.connected(2)
    assert it.detector.refusing_s(2, it.now_s) == 0, "slow to answer, perhaps, and there"
    assert it.suspects == {2: "refused"}, "to be there is not to answer"


def test_a_suspect_is_trusted_after_it_has_answered_for_a_while() -> None:
    it = Watching(FULL)
    it.quiet.add(2)
    it.run(3)
    assert it.suspects == {2: "silent"}
    it.quiet.clear()
    it.run(0.8)
    assert it.suspects == {2: "silent"}
    it.run(0.6)
    assert it.suspects == {}


def test_a_break_begins_the_while_anew() -> None:
    it = Watching(REFUSED)
    it.refuse(2)
    it.quiet.clear()
    it.run(0.8)
    it.detector.lost(2)
    it.run(0.8)
    assert it.suspects == {2: "refused"}
    it.run(0.4)
    assert it.suspects == {}


def test_a_flapping_peer_is_trusted_later_each_time() -> None:
    it = Watching(REFUSED)
    waits = []
    for _ in range(8):
        it.refuse(2)
        assert it.suspects == {2: "refused"}
        it.quiet.clear()
        began_s = it.now_s
        (trusted_s,) = it.run(70)
        waits.append(round(trusted_s - began_s))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_false_alarms_are_forgotten_after_ten_minutes_without_another() -> None:
    it = Watching(REFUSED)
    trusted_s = 104.0
    it.refuse(2)
    it.detector.answered(2, trusted_s - 1)
    it.detector.answered(2, trusted_s)
    assert it.detector.judge(trusted_s)
    for later_s, forgotten in ((FORGET_FALSE_ALARMS_S, False), (FORGET_FALSE_ALARMS_S + 0.1, True)):
        it.now_s = trusted_s + 300
        it.refuse(2)
        it.detector.answered(2, trusted_s + later_s - 1)  # of the two seconds that it takes after one false alarm
        it.detector.answered(2, trusted_s + later_s)
        it.detector.judge(trusted_s + later_s)
        assert it.suspects == ({} if forgotten else {2: "refused"})


def test_so_many_alarms_a_minute_and_no_more() -> None:
    it = Watching(DetectionLimits(per_minute=3, share=1.0), peers=5)
    for peer in range(1, 6):
        it.refuse(peer)
    assert list(it.suspects) == [1, 2, 3]
    assert it.detector.held
    it.now_s += 61
    it.detector.judge(it.now_s)
    assert list(it.suspects) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("uptime_s", [2, 10, 120])
def test_one_silence_is_one_alarm_however_long_the_peer_answered_before(uptime_s: float) -> None:
    """Only answers after the suspicion count: those before it do not make a silent peer trusted again."""
    it = Watching(FULL)
    it.run(uptime_s)
    it.quiet.add(3)
    assert len(it.run(3)) == 1
    it.quiet.clear()
    it.run(0.8)
    assert it.suspects == {3: "silent"}
    it.run(0.6)
    assert it.suspects == {}, "a first false alarm costs a second"


def test_a_suspect_that_answered_once_and_fell_silent_again_stays_suspected() -> None:
    it = Watching(FULL)
    it.quiet.add(3)
    it.run(3)
    it.quiet.clear()
    it.run(0.8)
    it.quiet.add(3)
    it.run(60)
    assert it.suspects == {3: "silent"}


def test_flapping_peers_leave_room_for_the_alarm_of_another() -> None:
    """Half of the alarms of a minute are for peers that have had none in it."""
    it = Watching(DetectionLimits(per_minute=4), peers=9)
    for _ in range(3):
        for peer in (1, 2):
            it.refuse(peer)
            it.quiet.clear()
            it.run(5)
    assert it.suspects == {}, "their third alarms are beyond half of the limit"
    it.refuse(1)
    assert (it.suspects, it.detector.held) == ({}, True)
    it.refuse(3)
    assert it.suspects == {3: "refused"}


def test_to_be_forgotten_under_suspicion_is_reported() -> None:
    it = Watching(REFUSED)
    it.refuse(2)
    suspicion = it.detector.forget(2)
    assert suspicion is not None
    assert suspicion.peer == 2
    assert it.detector.forget(2) is None
    it.detector.watch(2, 99, it.now_s)
    assert not it.detector.judge(it.now_s)
    assert it.suspects == {}


_OBSERVATIONS = st.lists(
    st.tuples(
        st.sampled_from(["answered", "lost", "refused", "watch", "forget"]),
        st.integers(1, 5),
        st.floats(0, 2, allow_nan=False),
    ),
    max_size=200,
)


@given(_OBSERVATIONS, st.sampled_from([REFUSED, FULL]))
def test_never_more_than_allowed_whatever_is_seen(
    observations: list[tuple[str, int, float]], limits: DetectionLimits
) -> None:
    detector, now_s = FailureDetector(limits), 0.0
    for peer in range(1, 6):
        detector.watch(peer, peer, now_s)
    for what, peer, passed_s in observations:
        now_s += passed_s
        if what == "watch" and peer not in detector.peers:
            detector.watch(peer, peer, now_s)
        elif what == "forget":
            detector.forget(peer)
        elif peer in detector.peers and what == "lost":
            detector.lost(peer)
        elif peer in detector.peers and what in ("answered", "refused"):
            getattr(detector, what)(peer, now_s)
        before = detector.suspects()
        changed = detector.judge(now_s)
        after = detector.suspects()
        assert changed == (before != after)
        for reason in {after[peer].reason for peer in set(after) - set(before)}:
            # a peer that goes may leave the others too many, but none is added then
            assert sum(suspicion.reason == reason for suspicion in after.values()) <= detector.allowed()


def test_a_peer_that_flaps_for_a_day_is_judged_still() -> None:
    """Twice as long for each false alarm: two to the power of 1,024 is no float."""
    it = Watching(REFUSED)
    for _ in range(1_100):
        it.refuse(2)
        it.quiet.clear()
        it.run(61)
        assert it.suspects == {}


def test_we_speak_for_those_that_have_answered_lately_on_a_connection_that_is_open() -> None:
    it = Watching(FULL)
    assert it.detector.hears(it.now_s) == [(1, 71), (2, 72), (3, 73)]
    it.detector.lost(1)
    assert it.detector.hears(it.now_s) == [(2, 72), (3, 73)]
    it.quiet.add(2)
    it.run(0.8)
    assert it.detector.hears(it.now_s) == [(1, 71), (3, 73)]
    assert Watching(REFUSED).detector.hears(100.0) == []


def test_a_refusal_counts_whomever_another_controller_hears() -> None:
    it = Watching(FULL)
    it.detector.vouched(2, 72, it.now_s)
    it.refuse(2)
    assert it.suspects == {2: "refused"}


def test_a_suspect_that_another_controller_hears_answers_again_and_stays_suspected() -> None:
    """It must not be ended by a fence command; it cannot hear from us, though."""
    it = Watching(FULL)
    it.quiet.add(2)
    it.run(2)
    assert it.suspects == {2: "silent"}
    for _ in range(10):
        it.detector.vouched(2, 72, it.now_s)
        it.run(0.2)
        assert it.detector.answers_again(2, it.now_s)
    assert it.suspects == {2: "silent"}
    it.run(1)
    assert not it.detector.answers_again(2, it.now_s)


@pytest.mark.parametrize("word_s, stands", [(0.0, False), (0.7, False), (0.8, True)])
def test_a_suspicion_of_silence_is_withdrawn_before_it_moves_anything_if_another_controller_hears_the_peer(
    word_s: float, stands: bool
) -> None:
    it = Watching(FULL)
    it.quiet.add(2)
    it.run(2)
    assert it.detector.confirm(2, it.now_s)
    it.detector.vouched(2, 72, it.now_s)
    assert it.detector.confirm(2, it.now_s + word_s) is stands
    assert it.suspects == ({2: "silent"} if stands else {})
    it.run(1)
    assert it.suspects == {2: "silent"}, "nobody hears it any longer"
    assert not it.detector.confirm(1, it.now_s), "not suspected"
    assert not it.detector.confirm(99, it.now_s), "not watched"


def test_a_suspicion_of_refusal_stands_whomever_another_controller_hears() -> None:
    it = Watching(FULL)
    it.refuse(2)
    it.detector.vouched(2, 72, it.now_s)
    assert it.detector.confirm(2, it.now_s)
    assert it.suspects == {2: "refused"}


def test_a_suspect_that_answers_again_is_told_from_one_that_has_done_so_once() -> None:
    it = Watching(FULL)
    it.quiet.add(2)
    it.run(2)
    assert it.suspects == {2: "silent"}
    assert not it.detector.answers_again(2, it.now_s)
    it.detector.answered(2, it.now_s)
    assert it.detector.answers_again(2, it.now_s)
    it.run(2)
    assert not it.detector.answers_again(2, it.now_s)
    it.quiet.clear()
    it.run(0.4)
    assert it.suspects == {2: "silent"}, "not yet trusted"
    assert it.detector.answers_again(2, it.now_s)
    it.detector.lost(2)
    assert not it.detector.answers_again(2, it.now_s)
