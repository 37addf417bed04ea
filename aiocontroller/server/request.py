"""One request that came in: the seam between connections and what requests ask for (Kafka's ``RequestChannel``)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aiocontroller.core.ids import Endpoint


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for what, from where (Kafka's ``RequestContext``)."""

    api: int
    version: int
    correlation_id: int
    client_id: str | None
    principal: str
    """``User:alice``; ``User:ANONYMOUS`` for a client that did not have to say who it is, or did not."""
    host: str
    """The client's IP address, as Java writes it: ACLs are compared with that."""
    listener: Endpoint
    """The listener of ours that it came to."""

    authenticated: bool
    """It logged in, or showed a certificate that was verified."""
    token_authenticated: bool = False
    """It logged in with a delegation token."""


class KafkaRequest:
    """A request and its ways out; exactly one of them is taken, once: later calls do nothing.

    None of them blocks, and all may be called at any time, also when the connection is gone.
    """

    __slots__ = ("body", "context", "refuse", "respond", "when_gone")

    def __init__(
        self,
        context: RequestContext,
        body: bytes,
        respond: Callable[[bytes], None],
        refuse: Callable[[str], None],
    ) -> None:
        self.context = context
        self.body = body
        """What stands behind its header."""
        self.respond = respond
        """Answer with this body, in the version in which the request came."""
        self.refuse = refuse
        """Close the connection, for a reason that the log tells."""
        self.when_gone: Callable[[], object] | None = None
        """Called when the connection ends first, if somebody sets it: nobody waits for the answer any more."""
