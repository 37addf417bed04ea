"""What each request asks for, and who answers it (Kafka's ``KafkaApis``).

The requests that only the active controller answers become events; what clients ask of each node for itself is answered
for ourselves (``own_answers``); the rest is relayed to a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import Reply, Request
from aiocontroller.server.controller_apis import OFFERED, SERVED, ControllerApi
from aiocontroller.server.own_answers import ANSWERED_FOR_ITSELF, own_answer
from aiocontroller.server.request import KafkaRequest, RequestContext
from aiocontroller.wire.apis import ApiKey, VersionRange, api_name, check_supported

log = logging.getLogger(__name__)

NEVER_RELAYED = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
)
"""What only controllers and brokers say to each other, and what concerns this connection alone."""
OF_BROKERS = frozenset({ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.CONTROLLED_SHUTDOWN})


class KafkaApis:
    def __init__(self, shell: ControllerShell) -> None:
        self.shell = shell

    def offered(self) -> Mapping[int, VersionRange]:
        """What ApiVersions tells: what is served here, and what a broker offers that may be relayed to it."""
        return {**self._relayed(), **OFFERED}

    def handle(self, request: KafkaRequest) -> None:
        """FrameError and UnsupportedApiError cost the sender its connection."""
        context = request.context
        if context.api in SERVED:
            check_supported(context.api, context.version, OFFERED)
            self._submit(request, SERVED[context.api])
        elif (own := self._own_answer(request)) is not None:
            request.respond(own)
        else:
            self._pass_on(request)

    def _relayed(self) -> Mapping[int, VersionRange]:
        """What a broker offers that may be passed on to it; nothing while none could be reached.

        Out of office it is what was last known: clients that have not heard of a successor still come here.
        """
        channels = self.shell.channels
        offered = channels.offered() if channels is not None else self.shell.last_offered
        return {api: versions for api, versions in offered.items() if api not in NEVER_RELAYED}

    def _may(self, context: RequestContext) -> bool:
        """Where brokers have an authorizer, what we do as ourselves only super users may ask for.

        Brokers on a listener without authentication are nobody in particular, to brokers too; and what is relayed from
        there comes to a broker as nobody again, which authorizes it.  What is relayed from elsewhere comes as *us*.
        """
        if self.shell.security.trusts(context.principal):
            return True
        authenticates = self.shell.security.server(context.listener).authenticated
        return not authenticates and (context.api in OF_BROKERS or context.api not in SERVED)

    def _own_answer(self, request: KafkaRequest) -> bytes | None:
        if request.context.api not in ANSWERED_FOR_ITSELF:
            return None
        return own_answer(request.context.api, request.context.version, request.body, self.shell.id)

    def _pass_on(self, request: KafkaRequest) -> None:
        context = request.context
        if context.api in NEVER_RELAYED:
            request.refuse(f"{api_name(context.api)} version {context.version} is not served here")
        elif not self._may(context):
            request.refuse(
                f"{api_name(context.api)}: {context.principal} is no super user, and would pass for this one"
            )
        else:
            request.relay()

    def _submit(self, request: KafkaRequest, api: ControllerApi) -> None:
        context = request.context

        def answer(result: Any) -> None:
            request.respond(api.encode(context.version, result))

        event: Request = api.event(context.version, request.body, Reply(answer))
        if self._may(context):
            self.shell.queue.append(event)
        else:
            log.warning(
                "%s is no super user: %s from %s refused", context.principal, api_name(context.api), context.host
            )
            event.reply.answer(KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED)
