"""The check of the ``Host`` header of HTTP requests, against DNS rebinding.

A foreign page in an operator's browser can make its own host name resolve to this server's address, and then read our
answers as if they came from its own server.  Its requests carry that name.  So a request must name an IP address,
localhost, the host that we are configured to listen on, or one of ``aiocontroller.http.allowed.hosts``.  A request
without the header does not come from a browser.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit


def refusal(header: str | None, allowed: Collection[str]) -> str | None:
    """Why a request with this header is refused; None if it is accepted."""
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
    """Whether it is an IP address, which needs no name resolution."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
