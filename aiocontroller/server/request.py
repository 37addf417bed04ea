"""An incoming request: the interface between connections and API handlers (Kafka's ``RequestChannel``)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aiocontroller.core.ids import Endpoint


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """Header and origin of a request (Kafka's ``RequestContext``)."""

    api: int
    version: int
    correlation_id: int
    client_id: str | None
    principal: str
    """``User:alice``; ``User:ANONYMOUS`` for a client that has not authenticated."""
    host: str
    """The client's IP address in Java's notation, with which ACLs are compared."""
    listener: Endpoint
    """Our listener that received it."""

    authenticated: bool
    """Whether the client logged in, or has a verified certificate."""
    token_authenticated: bool = False
    """Whether the client logged in with a delegation token."""


class KafkaRequest:
    """A request with its completions: one of them has to be called, once; later calls do nothing.

    None of them blocks, and all may be called at any time, even when the connection is gone.
    """

    __slots__ = ("body", "context", "fail", "mute_ms", "refuse", "respond", "when_gone")

    def __init__(
        self,
        context: RequestContext,
        body: bytes,
        respond: Callable[[bytes], None],
        refuse: Callable[[str], None],
        fail: Callable[[str], None] | None = None,
    ) -> None:
        self.context = context
        self.body = body
        """The bytes after the header."""
        self.respond = respond
        """Answer with this body, in the request's version."""
        self.refuse = refuse
        """Close the connection and log the reason."""
        self.fail = refuse if fail is None else fail
        """Report an internal error, which is not the client's fault; this closes the connection too."""
        self.mute_ms = 0
        """How long to stop reading from the connection after the answer, when the client has exceeded a quota."""
        self.when_gone: Callable[[], object] | None = None
        """If set, called when the connection ends before the answer."""
