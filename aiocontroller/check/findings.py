"""Findings: what is wrong with a cluster, how bad that is, what follows from it, and what an operator can do.

A rule yields a ``Hit`` for each subject; ``findings`` combines the hits of one kind and one reason into a finding.
``kinds`` describes the kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

import msgspec

MOST_EVIDENCE = 5
"""Znodes quoted for each finding; JSON output names all its subjects."""


class Severity(IntEnum):
    """How urgent a finding is.

    ``CRITICAL``: clients are cut off or data is at risk now.  ``WARNING``: one more failure would do that, or something
    will never end by itself.  ``NOTICE``: worth knowing.
    """

    NOTICE = 1
    WARNING = 2
    CRITICAL = 3


class FindingKind(NamedTuple):
    """``title`` and ``consequence`` are sentences for people."""

    name: str
    severity: Severity
    title: str
    consequence: str


class Hit(NamedTuple):
    """One subject (a partition, topic, broker or path) to which a kind applies, and why."""

    kind: str
    subject: str
    path: str
    """The znode that shows it."""
    why: str
    remedy: str
    """A command, or a sentence where no command helps."""


class CheckFinding(msgspec.Struct, frozen=True):
    """All subjects of one kind with one reason."""

    kind: str
    severity: str
    title: str
    why: str
    consequence: str
    remedy: str
    subjects: tuple[str, ...]
    evidence: tuple[tuple[str, int, str], ...] = ()
    """(path, zxid of the last change, content) of the first subjects' znodes."""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the same problem in an earlier or later report."""
        return self.kind, self.why


def lasting(before: Iterable[Hit], now: Iterable[Hit]) -> list[Hit]:
    """Return the hits of the second look whose kind and subject the first look hit, too: passing states are dropped."""
    known = {(hit.kind, hit.subject) for hit in before}
    return [hit for hit in now if (hit.kind, hit.subject) in known]


def findings(hits: Iterable[Hit], kinds: Mapping[str, FindingKind]) -> tuple[list[CheckFinding], list[list[str]]]:
    """Return the findings, the worst and then the largest first, and for each the paths of its evidence."""
    groups: dict[tuple[str, str], list[Hit]] = {}
    for hit in hits:
        groups.setdefault((hit.kind, hit.why), []).append(hit)
    order = list(kinds)
    ordered = sorted(
        groups.values(),
        key=lambda group: (-kinds[group[0].kind].severity, order.index(group[0].kind), -len(group), group[0].why),
    )
    found = []
    for group in ordered:
        kind, first = kinds[group[0].kind], group[0]
        found.append(
            CheckFinding(
                kind=kind.name,
                severity=kind.severity.name.lower(),
                title=kind.title,
                why=first.why,
                consequence=kind.consequence,
                remedy=_remedy(group),
                subjects=tuple(hit.subject for hit in group),
            )
        )
    return found, [list(dict.fromkeys(hit.path for hit in group))[:MOST_EVIDENCE] for group in ordered]


def _remedy(group: list[Hit]) -> str:
    """Return the first remedy, marked as an example if others differ: most name their topic."""
    first = group[0].remedy
    return first if all(hit.remedy == first for hit in group) else f"{first}; likewise for the others"


def worst(found: Iterable[CheckFinding]) -> Severity | None:
    """Return the highest severity; None without findings."""
    return max((Severity[finding.severity.upper()] for finding in found), default=None)
