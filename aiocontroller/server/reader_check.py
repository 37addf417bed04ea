"""The check of who may read the cluster's state by HTTP: the page and the questions behind it.

Processes on this machine may, and clients with a certificate that the server's TLS trusts, with the password (HTTP
Basic, for which browsers prompt their user) or with the token for commands.  If no password is configured, no other
client may.  Counts for monitoring (``/metrics``, ``/status``) are not checked.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address

TOKEN_HEADER = "X-Aiocontroller-Token"
GUESS_S = 1.0
"""How long the answer to a wrong password is held back."""
CHALLENGE = {"WWW-Authenticate": 'Basic realm="aiocontroller", charset="UTF-8"'}


def is_this_machines(address: str) -> bool:
    """Whether a peer's address is a loopback address, even an IPv4 one in IPv6 notation."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped.is_loopback
    return found.is_loopback


def refusal(
    address: str, headers: Mapping[str, str], password: str, token: str, *, certified: bool = False
) -> str | None:
    """Why the peer at this address may not read; None: it may.  ``certified``: TLS has verified its certificate."""
    if certified or is_this_machines(address) or _same(headers.get(TOKEN_HEADER, ""), token):
        return None
    if not password:
        return "found another machine, expected the controller's own, since no aiocontroller.http.password is set"
    if _same(_given(headers.get("Authorization", "")), password):
        return None
    return "found no password or a wrong one, expected aiocontroller.http.password (HTTP Basic; any user name)"


def tried(headers: Mapping[str, str]) -> bool:
    """Whether the request has a password or a token, which may be a guess."""
    return bool(_given(headers.get("Authorization", "")) or headers.get(TOKEN_HEADER))


def _given(authorization: str) -> str:
    """The password of the header; empty if there is none."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(encoded.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def _same(given: str, secret: str) -> bool:
    return bool(secret) and hmac.compare_digest(given.encode(errors="surrogateescape"), secret.encode())
