"""Which requests may be relayed to a broker: those that no handler of ours answers, from nobody we know."""

from __future__ import annotations

from collections.abc import Mapping

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey, VersionRange, api_name

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


def relayed(shell: ControllerShell) -> Mapping[int, VersionRange]:
    """What a broker offers that may be passed on to it; nothing while none could be reached.

    Out of office it is what was last known: clients that have not heard of a successor still come here.
    """
    offered = shell.channels.offered() if shell.channels is not None else shell.last_offered
    return {api: versions for api, versions in offered.items() if api not in NEVER_RELAYED}


def relay_or_refuse(shell: ControllerShell, request: KafkaRequest) -> None:
    context = request.context
    if context.api in NEVER_RELAYED:
        request.refuse(f"{api_name(context.api)} version {context.version} is not served here")
    elif not _may_be_relayed(shell, request):
        request.refuse(f"{api_name(context.api)}: {context.principal} would pass for this controller")
    else:
        request.relay()


def _may_be_relayed(shell: ControllerShell, request: KafkaRequest) -> bool:
    """What is relayed from an authenticated listener comes to a broker as *us*."""
    context = request.context
    if shell.security.trusts(context.principal):
        return True
    return not shell.security.server(context.listener).authenticated
