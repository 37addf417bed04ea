"""Errors in received bytes.  Each error closes its own connection and does not affect others."""

from __future__ import annotations

from aiocontroller.core.errors import BadInputError


class FrameError(BadInputError):
    """The bytes are not a valid message; the text names the subject, what was found and what was expected.

    ``frames`` are the frames that the same piece of input completed before the damage.
    """

    def __init__(self, message: str, frames: tuple[bytes, ...] = ()) -> None:
        super().__init__(message)
        self.frames = frames


class UnsupportedApiError(FrameError):
    """The API key is unknown or the version is not supported; the text names both."""

    def __init__(self, api_key: int, version: int, message: str) -> None:
        super().__init__(message)
        self.api_key = api_key
        self.version = version
