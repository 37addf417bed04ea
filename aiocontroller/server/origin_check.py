"""Which page a request that does something was made by: the check against other sites' pages in a reader's browser.

A browser sends what it knows of its user, a password or a certificate, with every request to this server, also with
those of somebody else's page.  But it says whose page it is: ``Origin``, and today ``Sec-Fetch-Site``.  So only
requests of our own page are taken, which name the host that they are sent to.  JSON as the content's type keeps plain
forms of other sites out even in a browser that says neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def refusal(headers: Mapping[str, str]) -> str | None:
    """Why a request with these headers is refused; None: our own page has sent it.  ``Host`` is checked elsewhere."""
    origin, host = headers.get("Origin", ""), headers.get("Host", "")
    site = headers.get("Sec-Fetch-Site", "same-origin")
    if site != "same-origin":
        return f"Sec-Fetch-Site: found {site[:50]!r}, expected same-origin: another site's page has sent this"
    try:
        parts = urlsplit(origin)
        own = parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower() != ""
    except ValueError:
        own = False
    if not own:
        return f"Origin: found {origin[:100]!r}, expected that of this page, with the host {host[:100]!r}"
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return f"Content-Type: found {headers.get('Content-Type', '')[:50]!r}, expected application/json"
    return None
