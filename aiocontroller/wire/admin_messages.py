"""UpdateFeatures and AlterUserScramCredentials, both sides of each; cold messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.long_requests import DEFAULT_TIMEOUT_MS, CodeAndMessage
from aiocontroller.wire.primitives import Buffer


def _message(outcome: CodeAndMessage) -> str | None:
    return outcome[1] or None


# -- UpdateFeatures ----------------------------------------------------------------------------------------------------


def encode_update_features_request(version: int, updates: Mapping[str, int]) -> bytes:
    """``updates``: feature -> requested level."""
    features = [{"feature": name, "max_version_level": level} for name, level in updates.items()]
    message = cold.request(ApiKey.UPDATE_FEATURES, version, timeout=DEFAULT_TIMEOUT_MS, feature_updates=features)
    return cold.encode_request(ApiKey.UPDATE_FEATURES, version, message)


def decode_update_features_request(version: int, body: Buffer) -> dict[str, int]:
    """Feature -> requested level."""
    message = cold.decode_request(ApiKey.UPDATE_FEATURES, version, body)
    return {update.feature: update.max_version_level for update in message.feature_updates}


def encode_update_features_response(
    version: int, error_code: int, results: Mapping[str, CodeAndMessage], *, error_message: str = ""
) -> bytes:
    """``results``: feature -> outcome; ``error_code`` is that of the whole request."""
    fields: list[dict[str, Any]] = [
        {"feature": name, "error_code": outcome[0], "error_message": _message(outcome)}
        for name, outcome in results.items()
    ]
    message = cold.response(
        ApiKey.UPDATE_FEATURES, version, error_code=error_code, error_message=error_message or None, results=fields
    )
    return cold.encode_response(ApiKey.UPDATE_FEATURES, version, message)


def decode_update_features_response(version: int, body: Buffer) -> tuple[int, dict[str, CodeAndMessage]]:
    """Returns the top-level error code and feature -> outcome.  Raises FrameError for a malformed body."""
    message = cold.decode_response(ApiKey.UPDATE_FEATURES, version, body)
    return int(message.error_code), {r.feature: (int(r.error_code), r.error_message or "") for r in message.results}


# -- AlterUserScramCredentials -----------------------------------------------------------------------------------------


class ScramChange(NamedTuple):
    """A credential to be stored; ``mechanism`` is its number in the protocol."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


def encode_alter_user_scram_credentials_request(
    version: int, deletions: Sequence[tuple[str, int]], upsertions: Sequence[ScramChange]
) -> bytes:
    """``deletions`` are (user, number of the mechanism); salted passwords are sent as they are (KIP-554)."""
    message = cold.request(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        version,
        deletions=[{"name": user, "mechanism": mechanism} for user, mechanism in deletions],
        upsertions=[
            {
                "name": each.user,
                "mechanism": each.mechanism,
                "iterations": each.iterations,
                "salt": each.salt,
                "salted_password": each.salted_password,
            }
            for each in upsertions
        ],
    )
    return cold.encode_request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, message)


def decode_alter_user_scram_credentials_request(
    version: int, body: Buffer
) -> tuple[list[tuple[str, int]], list[ScramChange]]:
    """(user, mechanism) of each deletion, and the upsertions."""
    message = cold.decode_request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, body)
    return [(d.name, int(d.mechanism)) for d in message.deletions], [
        ScramChange(u.name, int(u.mechanism), int(u.iterations), bytes(u.salt), bytes(u.salted_password))
        for u in message.upsertions
    ]


def encode_alter_user_scram_credentials_response(version: int, results: Mapping[str, CodeAndMessage]) -> bytes:
    """``results``: user -> outcome."""
    listed = [
        {"user": user, "error_code": outcome[0], "error_message": _message(outcome) if outcome[0] else ""}
        for user, outcome in results.items()
    ]
    message = cold.response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, results=listed)
    return cold.encode_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, message)


def decode_alter_user_scram_credentials_response(version: int, body: Buffer) -> dict[str, CodeAndMessage]:
    """Returns user -> outcome. Raises FrameError for a malformed body."""
    message = cold.decode_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, body)
    return {each.user: (int(each.error_code), each.error_message or "") for each in message.results}
