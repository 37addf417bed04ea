"""Token buckets: what Kafka's ControllerMutationQuotaManagerTest says of them, and what it does not."""

from __future__ import annotations

import pytest

from aiocontroller.core.mutation_quotas import (
    MAX_THROTTLE_MS,
    PermissiveQuota,
    StrictQuota,
    ThrottlingQuotaExceededError,
    TokenBucket,
)


class Now:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def test_strict_quota_refuses_what_comes_after_the_one_that_overdraws_it() -> None:
    now = Now()
    quota = StrictQuota(TokenBucket(10, 10, now.s), now)
    for _ in range(2):  # 10 tokens are left, then -80
        quota.record(90)
        assert quota.throttle_time_ms() == 0
    with pytest.raises(ThrottlingQuotaExceededError):
        quota.record(90)
    assert quota.throttle_time_ms() == 8000
    now.s += 5
    assert quota.throttle_time_ms() == 3000


def test_permissive_quota_refuses_nothing_and_throttles() -> None:
    now = Now()
    quota = PermissiveQuota(TokenBucket(10, 10, now.s), now)
    throttled = []
    for _ in range(3):
        quota.record(90)
        throttled.append(quota.throttle_time_ms())
    assert throttled == [0, 8000, 17000]
    now.s += 5
    assert quota.throttle_time_ms() == 12000


@pytest.mark.parametrize("overdrawn, throttle_ms", [(0, 0), (5, 500), (10, 1000), (0.004, 0), (0.005, 1)])
def test_throttle_time(overdrawn: float, throttle_ms: int) -> None:
    bucket = TokenBucket(10, 1, 0)
    bucket.take(10 + overdrawn, 0)
    assert bucket.throttle_ms(0) == throttle_ms


def test_spike_is_taken_and_the_next_one_waits() -> None:
    now = Now()
    bucket = TokenBucket(10, 10, now.s)
    for _ in range(10):
        StrictQuota(bucket, now).record(10)
        now.s += 1
    assert bucket.tokens(now.s) == 100
    StrictQuota(bucket, now).record(110)
    spike = StrictQuota(bucket, now)
    with pytest.raises(ThrottlingQuotaExceededError):
        spike.record(110)
    assert spike.throttle_time_ms() == 1000
    now.s += 1
    StrictQuota(bucket, now).record(110)


def test_unused_tokens_are_saved_up_for_the_window_only() -> None:
    bucket = TokenBucket(2, 10, 0)
    assert (bucket.tokens(0), bucket.tokens(1e9)) == (20, 20)
    bucket.take(20, 1e9)
    assert bucket.tokens(1e9 + 3) == 6


def test_changed_rate_counts_at_once_and_caps_what_was_saved() -> None:
    bucket = TokenBucket(10, 10, 0)
    bucket.limit = 1
    assert bucket.tokens(0) == 10
    bucket.take(15, 0)
    assert bucket.throttle_ms(0) == 5000
    bucket.limit = 5
    assert bucket.throttle_ms(0) == 1000


@pytest.mark.parametrize("limit", [0.0, 1e-300])
def test_rate_of_nothing_lets_one_topic_through_and_throttles_for_ever(limit: float) -> None:
    now = Now()
    bucket = TokenBucket(limit, 11, now.s)
    StrictQuota(bucket, now).record(1)
    quota = StrictQuota(bucket, now)
    with pytest.raises(ThrottlingQuotaExceededError):
        quota.record(1)
    assert quota.throttle_time_ms() == MAX_THROTTLE_MS
