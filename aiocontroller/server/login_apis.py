"""SASL requests while no login is in progress: on a listener without SASL, or after the login.

The login itself is handled by the connection (``kafka_channel``).
"""

from __future__ import annotations

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.server.apis import Apis, all_versions, decoded, respond
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey


def apis(shell: ControllerShell) -> Apis:
    """SaslHandshake and SaslAuthenticate on a connection without a login under way."""
    return {
        ApiKey.SASL_HANDSHAKE: all_versions(ApiKey.SASL_HANDSHAKE, _too_late),
        ApiKey.SASL_AUTHENTICATE: all_versions(ApiKey.SASL_AUTHENTICATE, _too_late),
    }


def _too_late(request: KafkaRequest) -> None:
    decoded(request)
    fields: dict[str, object] = {"error_code": KafkaErrorCode.ILLEGAL_SASL_STATE}
    if request.context.api == ApiKey.SASL_AUTHENTICATE:
        fields["error_message"] = "no login is under way on this connection"
    respond(request, fields)
