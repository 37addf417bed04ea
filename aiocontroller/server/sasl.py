"""The server side of SASL: PLAIN from the configuration, SCRAM from the znodes of users and tokens.

A nonexistent user is challenged like an existing one and refused at the last step; Kafka refuses it at the first,
which reveals which users exist.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiocontroller.core.errors import BadInputError
from aiocontroller.security import PLAIN, ListenerSecurity
from aiocontroller.wire.scram import ScramCredential, ScramError, ScramServer

FindCredential = Callable[[str, str], Awaitable[ScramCredential | None]]
"""(user, mechanism) -> the stored credential."""


class TokenCredential(NamedTuple):
    """The credential of a delegation token."""

    credential: ScramCredential
    owner: str
    """The token's owner, such as ``User:alice``."""
    expiry_timestamp_ms: int


FindToken = Callable[[str, str], Awaitable[TokenCredential | None]]
"""(token id, mechanism) -> the token's credential; None if it does not exist or has expired."""
MakeUp = Callable[[str, str], ScramCredential]
"""(user, mechanism) -> a made-up credential for a nonexistent user."""
LONGEST_MS = 1 << 42
"""140 years.  Kafka's Java clients convert the lifetime to nanoseconds in 64 bits, which overflow after 292 years."""
REFUSED = "Authentication failed: invalid credentials"
"""The same for a wrong user and a wrong password, so that it does not reveal which users exist."""


class SaslError(BadInputError):
    """The login failed; the message is for the client."""


class SaslLogin:
    """A login on one connection: ``choose`` a mechanism, then ``take`` tokens until there is a ``principal``."""

    def __init__(
        self,
        security: ListenerSecurity,
        find: FindCredential,
        find_token: FindToken,
        made_up: MakeUp,
        nonce: str,
        renews: SaslLogin | None = None,
    ) -> None:
        """``renews``: the login that this one renews (KIP-368), with the same mechanism and principal."""
        self._security = security
        self._former_mechanism = None if renews is None else renews._mechanism
        self._former_principal = None if renews is None else renews.principal
        self._find = find
        self._find_token = find_token
        self._made_up = made_up
        self._nonce = nonce
        self._mechanism: str = ""
        self._scram: ScramServer | None = None
        self._challenged = False
        self._token: TokenCredential | None = None
        self.principal: str | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms of the listener."""
        return self._security.mechanisms

    @property
    def has_begun(self) -> bool:
        """Whether a mechanism has been chosen."""
        return bool(self._mechanism)

    @property
    def is_renewal(self) -> bool:
        """Whether it renews an earlier login (KIP-368)."""
        return self._former_principal is not None

    @property
    def changes_mechanism(self) -> bool:
        """Whether a renewal uses another mechanism than the first login."""
        return self._former_mechanism not in (None, self._mechanism)

    @property
    def by_token(self) -> bool:
        """Whether the login is by a delegation token."""
        return self._token is not None

    def lifetime_ms(self, wall_time_ms: int) -> int | None:
        """The session's lifetime, limited by its token and ``connections.max.reauth.ms``; None: unlimited."""
        limits = [] if self._token is None else [self._token.expiry_timestamp_ms - wall_time_ms]
        limits += [ms for ms in (self._security.max_reauth_ms.get(self._mechanism, 0),) if ms > 0]
        return max(0, min(*limits, LONGEST_MS)) if limits else None

    def choose(self, mechanism: str) -> bool:
        """Take the client's mechanism; False if the listener lacks it."""
        if mechanism not in self.mechanisms:
            return False
        self._mechanism = mechanism
        return True

    async def take(self, token: bytes) -> bytes:
        """Return the answer to a SASL token; SaslError when the login is refused."""
        if not self._mechanism or self.principal is not None:
            raise SaslError("Authentication failed: expected SaslHandshake first")
        try:
            answer = self._plain(token) if self._mechanism == PLAIN else await self._scram_step(token)
        except ScramError:
            raise SaslError(REFUSED) from None
        self._check_renewal()
        return answer

    def _check_renewal(self) -> None:
        former, found = self._former_principal, self.principal
        if former is not None and found is not None and found != former:
            self.principal = None
            raise SaslError(f"Authentication failed: found {found} at a login again, expected {former}")

    def _plain(self, token: bytes) -> bytes:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise SaslError("Authentication failed: found a PLAIN token of another form")
        if parts[0] not in (b"", parts[1]):
            raise SaslError("Authentication failed: found an authorization id that is different from the user's name")
        user, password = parts[1].decode("utf-8", "replace"), parts[2]
        known = self._security.plain_users.get(user)
        if known is None or not hmac.compare_digest(known.value.encode(), password):
            raise SaslError(REFUSED)
        self.principal = f"User:{user}"
        return b""

    async def _scram_step(self, token: bytes) -> bytes:
        if self._scram is None:
            scram = self._scram = ScramServer(self._mechanism, self._nonce)
            scram.receive(token)
            if scram.by_token:
                self._token = await self._find_token(scram.user, self._mechanism)
                known = None if self._token is None else self._token.credential
            else:
                known = await self._find(scram.user, self._mechanism)
            if known is None:
                known = self._made_up(scram.user, self._mechanism)
            self._challenged = True
            return scram.challenge(known)
        if not self._challenged:
            raise SaslError(REFUSED)
        answer = self._scram.verify(token)
        if self._token is not None:
            self.principal = self._token.owner
        else:
            self.principal = f"User:{self._scram.user}"
        return answer
