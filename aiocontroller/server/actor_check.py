"""The check of who may act through the page; it takes more than reading the page does, on this machine too.

An actor shows a certificate whose principal is one of ``aiocontroller.http.actors``, or gives a name and
``aiocontroller.http.actor.password``.  From another machine both need TLS.  After a wrong password, the address that
sent it has to wait before its next attempt.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple

from aiocontroller.authorizer.principals import PrincipalError
from aiocontroller.core.errors import AioControllerError
from aiocontroller.net.ports import Clock
from aiocontroller.server.reader_check import is_this_machines

WAIT_S = 1.0
"""How long an address has to wait after a wrong password."""
REMEMBERED = 1_000
LONGEST_NAME = 60


class NotAllowedError(AioControllerError):
    """The peer may not act; the message says what is needed."""


class HttpPeer(NamedTuple):
    """The sender of a request; ``certificate``, in DER, was verified by TLS."""

    address: str
    encrypted: bool
    certificate: bytes | None


class Actors:
    """``principal_of`` derives the principal of a certificate; PrincipalError if it has none."""

    def __init__(
        self, password: str, principals: Collection[str], principal_of: Callable[[bytes], str], clock: Clock
    ) -> None:
        self._password = password
        self._principals = principals
        self._principal_of = principal_of
        self._clock = clock
        self._wrong: OrderedDict[str, float] = OrderedDict()

    @property
    def exist(self) -> bool:
        """Whether any actor is configured."""
        return bool(self._password or self._principals)

    def who(self, peer: HttpPeer, name: str, password: str) -> str:
        """The actor as the journal names them; NotAllowedError if the peer may not act."""
        if not self.exist:
            raise NotAllowedError("actions are disabled: neither aiocontroller.http.actor.password nor .actors is set")
        if not peer.encrypted and not is_this_machines(peer.address):
            raise NotAllowedError("actions from another machine need HTTPS (aiocontroller.http.security.protocol)")
        principal = self._principal(peer)
        if principal in self._principals:
            return f"{principal} by the page, from {peer.address}"
        if not self._password:
            shown = "no certificate" if principal is None else f"the certificate of {principal}"
            raise NotAllowedError(f"found {shown}, expected that of one of aiocontroller.http.actors")
        self._check(peer.address, password)
        if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
            raise NotAllowedError(f"your name: found {name[:LONGEST_NAME]!r}, expected a name for the journal")
        return f"{name.strip()!r} by the page with the actors' password, from {peer.address}"

    def _principal(self, peer: HttpPeer) -> str | None:
        if peer.certificate is None or not self._principals:
            return None
        try:
            return self._principal_of(peer.certificate)
        except PrincipalError:
            return None

    def _check(self, address: str, password: str) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._wrong.get(address, -WAIT_S) < WAIT_S:
            raise NotAllowedError("the last password was wrong: wait a second before the next one")
        given = password.encode(errors="surrogateescape")
        if not hmac.compare_digest(given, self._password.encode()):
            self._wrong[address] = now_s
            self._wrong.move_to_end(address)
            if len(self._wrong) > REMEMBERED:
                self._wrong.popitem(last=False)
            raise NotAllowedError("found no password or a wrong one, expected aiocontroller.http.actor.password")
