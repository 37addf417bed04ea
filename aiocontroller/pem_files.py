"""Reads the files of certificates and keys that properties name.

The event loop reads them itself, at the start and at SIGHUP, so only regular files are opened: a pipe or a device may
hold it up for ever.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from aiocontroller.config import ConfigError


def load_pem(key: str, path: str, expected: str, load: Callable[[], object]) -> None:
    """Have ``load`` read the file; ConfigError with the property ``key``, what was found and what was expected."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError(f"{key}: found {path!r} (not a regular file), expected {expected}")
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"{key}: found {path!r} ({error}), expected {expected}") from error
