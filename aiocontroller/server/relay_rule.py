"""Which requests may be relayed to a broker: those that no handler of ours answers, and that come from nobody.

The controller never asks a broker for anything under its own identity on behalf of another client, and a relay has no
other identity to lend.  So three things must hold: brokers have no authorizer, the client has not said who it is, and
the way to the broker carries no identity of ours (no SASL, no certificate; ``SocketServer.upstream`` chooses it).
"""

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
    if shell.config.authorizer_class_name is not None:
        return {}
    offered = shell.channels.offered() if shell.channels is not None else shell.last_offered
    return {api: versions for api, versions in offered.items() if api not in NEVER_RELAYED}


def relay_or_refuse(shell: ControllerShell, request: KafkaRequest) -> None:
    context = request.context
    if context.api in NEVER_RELAYED:
        request.refuse(f"{api_name(context.api)} version {context.version} is not served here")
    elif shell.config.authorizer_class_name is not None or context.authenticated:
        request.refuse(f"{api_name(context.api)}: {context.principal} would pass for this controller")
    else:
        request.relay()
