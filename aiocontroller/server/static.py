"""The page for people: three files that the browser loads from here, and nothing else (``aiocontroller/pages``).

The headers forbid scripts and styles from elsewhere, framing by other pages, and referrers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

import aiocontroller

_PAGES = Path(aiocontroller.__file__).parent / "pages"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class File(NamedTuple):
    """Sources that are sent one after the other, and their type."""

    sources: tuple[str, ...]
    content_type: str


FILES = {
    "": File(("live.html",), "text/html"),
    "live.js": File(("live.js",), "text/javascript"),
    "live.css": File(("base.css", "live.css"), "text/css"),
}
"""Path below / -> file."""


def digest() -> str:
    """A digest of all files: two processes with the same one serve the same page."""
    sources = (_PAGES / source for file in FILES.values() for source in file.sources)
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def answer(file: File) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that sends the file; it is read once, at the start."""
    body = b"".join((_PAGES / source).read_bytes() for source in file.sources)

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=file.content_type, charset="utf-8", headers=HEADERS)

    return handle
