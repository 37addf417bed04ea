"""Who may read the cluster's state by HTTP: the page and the questions behind it.

Processes of this machine may, and whoever has a certificate that the server's TLS trusts, or knows the password (HTTP
Basic, which browsers ask their user for) or the token of commands.  Without a password nobody else may.  Counts for
monitoring (``/metrics``, ``/status``) are not concerned.
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
    """Whether a peer's address is a loopback one, also where it is written as one of IPv6."""
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
        return "found another machine, and no aiocontroller.http.password is set: read it from the controller's own"
    if _same(_given(headers.get("Authorization", "")), password):
        return None
    return "found no password or a wrong one, expected aiocontroller.http.password (HTTP Basic; any user name)"


def tried(headers: Mapping[str, str]) -> bool:
    """Whether a password or a token has come, as with a guess."""
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
