"""The check that a request to do something comes from our own page, not from another site's in a reader's browser.

A browser adds its user's password or certificate to every request to this server, even to those of another site's page.
But it also names the page's origin: in ``Origin`` and, today, in ``Sec-Fetch-Site``.  So only requests are accepted
whose origin is the host that they are sent to.  Requiring JSON as the content type keeps out plain forms of other sites
even in a browser that sends neither header.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def refusal(headers: Mapping[str, str]) -> str | None:
    """Why a request with these headers is refused; None: our own page sent it.  ``Host`` is checked elsewhere."""
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
