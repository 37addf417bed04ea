"""Requests that were refused because their sender may not make them: told once a minute, and shown while they go on.

A broker whose principal is not known here cannot shrink or extend an ISR, nor shut down in order, and tries again many
times a second.  That is a controller that does not do its work, and ``/readyz`` has to say so.  Only a registered
broker counts, known by its broker epoch: a client that is refused takes no readiness away.
"""

from __future__ import annotations

import logging

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.events import AllocateProducerIds, AlterPartitionReceived, ControlledShutdown, Request
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Clock
from aiocontroller.wire.apis import ApiKey, api_name

log = logging.getLogger(__name__)

GOES_ON_S = 30.0
"""How long after the last one a broker's trouble is taken to be over."""
TELL_AGAIN_S = 60.0
MOST_REMEMBERED = 1_000
"""Principals of which the last line in the log is remembered."""


class RefusedBrokers:
    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._told_s: dict[tuple[str, int], float] = {}
        self._refused: dict[int, tuple[float, str]] = {}
        """By broker: when for the last time, and what, in words."""
        metrics.gauge("aiocontroller", "Authorizer", "BrokersRefused", lambda: len(self.going_on()))

    def note(self, api: ApiKey, principal: str, host: str, event: Request, context: ControllerContext) -> None:
        """``event`` is refused to the principal."""
        now_s = self._clock.monotonic()
        self._metrics.counter("aiocontroller", "Authorizer", "RequestsRefused", tags={"api": api.name.lower()}).inc()
        if isinstance(event, AlterPartitionReceived | AllocateProducerIds | ControlledShutdown):
            known = context.brokers.get(event.broker)
            if known is not None and known.epoch == event.broker_epoch:
                what = f"{api.name} of broker {event.broker}, which comes as {principal} from {host}"
                self._refused[event.broker] = now_s, what
        self._tell(api, principal, host, now_s)

    def going_on(self) -> list[str]:
        """What is refused to brokers at present."""
        since_s = self._clock.monotonic() - GOES_ON_S
        self._refused = {broker: last for broker, last in self._refused.items() if last[0] >= since_s}
        return [what for _, (_, what) in sorted(self._refused.items())]

    def _tell(self, api: ApiKey, principal: str, host: str, now_s: float) -> None:
        key = principal, int(api)
        if now_s < self._told_s.get(key, -TELL_AGAIN_S) + TELL_AGAIN_S:
            return
        if len(self._told_s) >= MOST_REMEMBERED:
            self._told_s.clear()
        self._told_s[key] = now_s
        log.warning("%s from %s (%s) refused: not authorized", api_name(api), principal, host)
