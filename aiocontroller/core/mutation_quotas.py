"""Limits the rate at which a client may create and delete partitions (KIP-599): a token bucket for each client.

Source: Kafka 3.9, ``ControllerMutationQuotaManager.scala`` and ``TokenBucket.java``.  A bucket fills with ``limit``
tokens a second, up to ``limit * window_s``.  Each created or deleted partition takes one, and a request may take
more than there are.  The bucket is then overdrawn, and until it is refilled to zero
 * the *strict* quota refuses each further topic,
 * the *permissive* quota refuses none; it is for clients too old to understand the refusal, whose connections are muted
   instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from aiocontroller.core.errors import BadInputError, KafkaErrorCode

MAX_THROTTLE_MS = 2**31 - 1


class ThrottlingQuotaExceededError(BadInputError):
    """The quota refuses a topic; ``code`` is the error code for the client."""

    code = KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED

    def __init__(self) -> None:
        super().__init__("The throttling quota has been exceeded.")


class TokenBucket:
    """Starts full.  Times are seconds of one monotonic clock."""

    def __init__(self, limit: float, window_s: float, now_s: float) -> None:
        self.limit = limit
        """Tokens a second; may change while the bucket is in use."""
        self.window_s = window_s
        """A full bucket has the tokens of this time."""
        self._tokens = limit * window_s
        self._counted_s = now_s

    def tokens(self, now_s: float) -> float:
        """The tokens at a time, at most those of a full bucket; below zero: overdrawn."""
        return min(self.limit * self.window_s, self._tokens + self.limit * (now_s - self._counted_s))

    def take(self, permits: float, now_s: float) -> None:
        """Take so many tokens, also more than there are; ``now_s`` never goes back."""
        self._tokens = self.tokens(now_s) - permits
        self._counted_s = now_s

    def throttle_ms(self, now_s: float) -> int:
        """Time until the bucket is refilled to zero, at most MAX_THROTTLE_MS; 0 if it is not overdrawn."""
        tokens = self.tokens(now_s)
        if tokens >= 0:
            return 0
        if self.limit <= 0:
            return MAX_THROTTLE_MS
        return math.floor(min(-tokens / self.limit * 1000 + 0.5, MAX_THROTTLE_MS))


class MutationQuota:
    """One request's quota.  This base class limits nothing: the client has no quota."""

    def record(self, partitions: int) -> None:
        """Count partitions about to be created or deleted; raises ThrottlingQuotaExceededError if they must not be."""

    def throttle_time_ms(self) -> int:
        """How long the client has to wait from now on."""
        return 0


UNBOUNDED = MutationQuota()


class _Throttling(MutationQuota):
    def __init__(self, bucket: TokenBucket, now_s: Callable[[], float]) -> None:
        self._bucket = bucket
        self._now_s = now_s
        self._throttle_ms, self._recorded_s = 0, now_s()

    def throttle_time_ms(self) -> int:
        """The rest of the throttle time: the request may have waited since the quota was found to be exceeded."""
        waited_ms = int((self._now_s() - self._recorded_s) * 1000)
        return max(0, self._throttle_ms - waited_ms)

    def _note(self) -> bool:
        """Whether the bucket is overdrawn now."""
        now_s = self._now_s()
        throttle_ms = self._bucket.throttle_ms(now_s)
        if not throttle_ms:
            return False
        self._throttle_ms, self._recorded_s = throttle_ms, now_s
        return True


class StrictQuota(_Throttling):
    """Takes what overdraws the bucket; while it is overdrawn, ``record`` raises ThrottlingQuotaExceededError."""

    def record(self, partitions: int) -> None:
        """Take so many tokens, or raise ThrottlingQuotaExceededError and take none."""
        if self._note():
            raise ThrottlingQuotaExceededError
        self._bucket.take(partitions, self._now_s())


class PermissiveQuota(_Throttling):
    """Takes everything, as for old versions of requests; the client waits until the bucket is not overdrawn."""

    def record(self, partitions: int) -> None:
        """Take so many tokens, in any case; note how long the client then has to wait."""
        self._bucket.take(partitions, self._now_s())
        self._note()
