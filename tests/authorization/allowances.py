"""Where the two may differ, line by line, each with its reason.  Nothing else is forgiven.

An allowance that explains nothing in a whole run fails the test: either the difference or its reason is gone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.authorization.table import Found


class Allowance(NamedTuple):
    """Patterns must match the whole: ``request`` as ``METADATA (all)``, ``field`` as ``topics[].error_code``."""

    request: str
    field: str
    reason: str
    kafka: str = ".*"
    ours: str = ".*"
    ways: str = ".*"
    versions: range = range(-1, 1000)
    only_in_full: bool = False
    """The short form may have no cell for it."""

    def explains(self, found: Found) -> bool:
        place, difference = found
        return (
            place.version in self.versions
            and re.fullmatch(self.request, str(place.ask)) is not None
            and re.fullmatch(self.field, difference.kind) is not None
            and re.fullmatch(self.kafka, difference.kafka, re.DOTALL) is not None
            and re.fullmatch(self.ours, difference.ours, re.DOTALL) is not None
            and re.fullmatch(self.ways, str(place.way)) is not None
        )

    def __str__(self) -> str:
        return f"{self.request} / {self.field or 'whole answer'}: {self.reason}"


ALLOWANCES: tuple[Allowance, ...] = ()


def explain(found: Found) -> Allowance | None:
    """The first that does."""
    return next((allowance for allowance in ALLOWANCES if allowance.explains(found)), None)
