"""Whom a request by HTTP was meant for: the check of the ``Host`` header, against DNS rebinding.

A page of somebody else's, open in an operator's browser, can have its own name resolve to this server's address, and
then read answers as if they were its own.  Its requests carry that name.  So a request must name an address, localhost,
the host that we were told to listen on, or one of ``aiocontroller.http.allowed.hosts``.  A request without the header
comes from no browser.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit


def refusal(header: str | None, allowed: Collection[str]) -> str | None:
    """Why a request with this header is refused; None: it is not."""
    if header is None:
        return None
    try:
        name = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        name = ""
    if name == "localhost" or name.endswith(".localhost") or is_address(name) or name in map(str.lower, allowed):
        return None
    return f"Host: found {header!r}, expected an address, localhost, or one of aiocontroller.http.allowed.hosts"


def is_loopback(host: str) -> bool:
    """Whether a server that listens on this host is reached from its own machine only."""
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)


def is_address(name: str) -> bool:
    """Whether it is an IP address, and so nobody's to resolve."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
