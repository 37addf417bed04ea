"""The server's side of a login by SASL: PLAIN from the configuration, SCRAM from the znodes of users and tokens.

A user that does not exist is challenged like one that does, and refused at the last step; Kafka refuses it at the
first, which tells everybody which users there are.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiocontroller.core.errors import BadInputError
from aiocontroller.security import PLAIN, ListenerSecurity
from aiocontroller.wire.scram import ScramCredential, ScramError, ScramServer

FindCredential = Callable[[str, str], Awaitable[ScramCredential | None]]
"""(user, mechanism) -> what is kept of the password."""


class TokenCredential(NamedTuple):
    """What stands for a delegation token."""

    credential: ScramCredential
    owner: str
    """``User:alice``: who comes with it."""
    expiry_timestamp_ms: int


FindToken = Callable[[str, str], Awaitable[TokenCredential | None]]
"""(token id, mechanism) -> what is kept of the token; None for one that is not there, or not any more."""
MakeUp = Callable[[str, str], ScramCredential]
"""The same of a user that does not exist."""
REFUSED = "Authentication failed: invalid credentials"
"""The same whether user or password is wrong: nobody learns which users there are."""


class SaslError(BadInputError):
    """The login failed; the message is for whoever tried."""


class SaslLogin:
    """Of one connection: ``choose`` a mechanism, then ``take`` tokens until there is a ``principal``."""

    def __init__(
        self, security: ListenerSecurity, find: FindCredential, find_token: FindToken, made_up: MakeUp, nonce: str
    ) -> None:
        self._security = security
        self._find = find
        self._find_token = find_token
        self._made_up = made_up
        self._nonce = nonce
        self._mechanism = ""
        self._scram: ScramServer | None = None
        self._challenged = False
        self._token: TokenCredential | None = None
        self.principal: str | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self._security.mechanisms

    @property
    def has_begun(self) -> bool:
        return bool(self._mechanism)

    @property
    def expiry_timestamp_ms(self) -> int | None:
        """When the token that was shown ends; None without one."""
        return None if self._token is None else self._token.expiry_timestamp_ms

    def choose(self, mechanism: str) -> bool:
        if mechanism not in self.mechanisms:
            return False
        self._mechanism = mechanism
        return True

    async def take(self, token: bytes) -> bytes:
        """The answer to a token; SaslError when it is refused."""
        if not self._mechanism or self.principal is not None:
            raise SaslError("Authentication failed: expected SaslHandshake first")
        try:
            return self._plain(token) if self._mechanism == PLAIN else await self._scram_step(token)
        except ScramError:
            raise SaslError(REFUSED) from None

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
