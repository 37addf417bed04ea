"""What is wrong with bytes that came in.  Each error closes one connection; the others do not notice."""

from __future__ import annotations

from aiocontroller.core.errors import BadInputError


class FrameError(BadInputError):
    """Bytes that are no message: names the subject, what was found and what was expected.

    ``frames`` are those that the same piece of input completed before the damage.
    """

    def __init__(self, message: str, frames: tuple[bytes, ...] = ()) -> None:
        super().__init__(message)
        self.frames = frames


class UnsupportedApiError(FrameError):
    """An API key that nobody knows, or a version that this side does not speak; names both."""

    def __init__(self, api_key: int, version: int, message: str) -> None:
        super().__init__(message)
        self.api_key = api_key
        self.version = version
