"""Reads the files of certificates and keys that properties name.

The event loop reads them itself, at startup and at SIGHUP, so only regular files are opened: a pipe or a device could
block it forever.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from aiocontroller.authorizer.certificates import not_after
from aiocontroller.config import Config, ConfigError

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def load_pem(key: str, path: str, expected: str, load: Callable[[], object]) -> None:
    """Have ``load`` read the file; ConfigError with the property ``key``, what was found and what was expected."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError(f"{key}: found {path!r} (not a regular file), expected {expected}")
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"{key}: found {path!r} ({error}), expected {expected}") from error


def ended_certificates(config: Config, now: datetime) -> Iterator[str]:
    """Yield a sentence on each of our own certificates that has expired: OpenSSL loads it, but peers refuse it."""
    key = "ssl.keystore.location"
    stores = {key: config.ssl_keystore_location, f"zookeeper.{key}": config.zookeeper_ssl_keystore_location}
    stores |= {
        f"listener.name.{name}.{what}": at for (name, what), at in config.listener_overrides.items() if what == key
    }
    for name, path in stores.items():
        ended = None if path is None or not os.path.isfile(path) else _not_after(Path(path))
        if ended is not None and ended <= now:
            yield f"{name}: the certificate in {path!r} ended on {ended:%Y-%m-%d at %H:%M:%S} UTC: others refuse it"


def _not_after(path: Path) -> datetime | None:
    """Return when the first certificate, which is our own, expires; None if there is none, as in Java's stores."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
        first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
        return not_after(ssl.PEM_cert_to_DER_cert(first))
    except (OSError, ValueError, IndexError):
        return None
