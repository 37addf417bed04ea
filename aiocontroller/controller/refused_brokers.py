"""Brokers' requests that fail authorization: logged once a minute, and shown while they continue.

A broker whose principal is not known here can neither change an ISR nor shut down in a controlled way, and retries many
times a second.  The controller then fails to do its work, so ``/readyz`` reports it.  Only a registered broker counts,
identified by its broker epoch: an unauthorized client does not affect readiness.
"""

from __future__ import annotations

import logging

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.event_kinds import Request
from aiocontroller.core.events import AllocateProducerIds, AlterPartitionReceived, ControlledShutdown
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Clock
from aiocontroller.wire.apis import ApiKey, api_name

log = logging.getLogger(__name__)

GOES_ON_S = 30.0
"""A broker's refusals count as over this long after the last one."""
LOG_AGAIN_S = 60.0
MOST_REMEMBERED = 1_000
"""Principals whose last log line is remembered."""


class RefusedBrokers:
    """Brokers whose requests were refused, and why; each is logged now and then."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._logged_s: dict[tuple[str, int], float] = {}
        self._refused: dict[int, tuple[float, str]] = {}
        """By broker: the time of the last refusal, and its description."""
        metrics.gauge("aiocontroller", "Authorizer", "BrokersRefused", lambda: len(self.going_on()))

    def note(self, api: ApiKey, principal: str, host: str, event: Request, context: ControllerContext) -> None:
        """The principal was refused ``event``."""
        now_s = self._clock.monotonic()
        self._metrics.counter("aiocontroller", "Authorizer", "RequestsRefused", tags={"api": api.name.lower()}).inc()
        if isinstance(event, AlterPartitionReceived | AllocateProducerIds | ControlledShutdown):
            known = context.brokers.get(event.broker)
            if known is not None and known.epoch == event.broker_epoch:
                what = f"{api.name} of broker {event.broker}, which comes as {principal} from {host}"
                self._refused[event.broker] = now_s, what
        self._log(api, principal, host, now_s)

    def going_on(self) -> list[str]:
        """Descriptions of the refusals that continue."""
        since_s = self._clock.monotonic() - GOES_ON_S
        self._refused = {broker: last for broker, last in self._refused.items() if last[0] >= since_s}
        return [what for _, (_, what) in sorted(self._refused.items())]

    def _log(self, api: ApiKey, principal: str, host: str, now_s: float) -> None:
        key = principal, int(api)
        if now_s < self._logged_s.get(key, -LOG_AGAIN_S) + LOG_AGAIN_S:
            return
        if len(self._logged_s) >= MOST_REMEMBERED:
            self._logged_s.clear()
        self._logged_s[key] = now_s
        log.warning("%s from %s (%s) refused: not authorized", api_name(api), principal, host)
