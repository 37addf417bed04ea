"""Looks at a migration repeatedly, and reports what has changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime

import msgspec

from aiocontroller.check.findings import Hit, lasting
from aiocontroller.migration.asking import Asker
from aiocontroller.migration.kinds import KINDS
from aiocontroller.migration.report import Bootstrap, look
from aiocontroller.migration.rules import NEXT, faults
from aiocontroller.migration.view import DUAL_WRITES, MigrationPhase, MigrationView
from aiocontroller.net.ports import Clock
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

SUBJECTS_SHOWN = 3


class Seen(msgspec.Struct, frozen=True):
    """One look, and what is new in it."""

    at: str
    """UTC, ISO 8601."""
    phase: MigrationPhase
    behind_records: int | None
    """Records of the metadata log that ZooKeeper lacks; None if it is unknown."""
    migrating: tuple[int, ...]
    """Brokers in migration mode."""
    kraft: tuple[int, ...]
    """Brokers in KRaft mode."""
    found: tuple[str, ...]
    """What both this look and the one before show: kinds of findings, with their subjects."""
    news: tuple[str, ...]


async def looks(
    zk: KafkaZkClient, asker: Asker, clock: Clock, bootstrap: Bootstrap, every_s: float
) -> AsyncIterator[Seen]:
    """Look every ``every_s``, without end; AioControllerError if ZooKeeper does not answer."""
    before: MigrationView | None = None
    earlier: tuple[Hit, ...] = ()
    seen: Seen | None = None
    while True:
        view = await look(zk, asker, bootstrap)
        hits = tuple(faults(view, NEXT[view.phase]))
        now = lasting(earlier, hits) if before is not None else []
        seen = _seen(view, now, seen, clock)
        yield seen
        before, earlier = view, hits
        await clock.sleep(every_s)


def _seen(view: MigrationView, hits: Iterable[Hit], before: Seen | None, clock: Clock) -> Seen:
    found = _by_kind(hits)
    migrating, kraft = tuple(sorted(view.migrating_brokers)), tuple(sorted(view.kraft_brokers))
    news = []
    if before is None or before.phase is not view.phase:
        news.append(f"phase: {view.phase.value}")
    if before is None or (before.migrating, before.kraft) != (migrating, kraft):
        news.append(f"brokers in migration mode: {_names(migrating)}; in KRaft mode: {_names(kraft)}")
    known = set(() if before is None else before.found)
    news += [f"found: {each}" for each in found if each not in known]
    news += [f"gone: {each}" for each in (() if before is None else before.found) if each not in found]
    if view.phase in DUAL_WRITES and (before is None or before.phase not in DUAL_WRITES):
        news.append("a rollback is possible from here: aiocontroller migration rollback")
    return Seen(
        at=datetime.fromtimestamp(clock.wall_time_us() / 1e6, UTC).isoformat(timespec="seconds"),
        phase=view.phase,
        behind_records=view.behind_records,
        migrating=migrating,
        kraft=kraft,
        found=found,
        news=tuple(news),
    )


def _by_kind(hits: Iterable[Hit]) -> tuple[str, ...]:
    subjects: dict[str, list[str]] = {}
    for hit in hits:
        subjects.setdefault(hit.kind, []).append(hit.subject)
    lines = []
    for kind, found in subjects.items():
        names = list(dict.fromkeys(found))
        more = f" and {len(names) - SUBJECTS_SHOWN:,} more" if len(names) > SUBJECTS_SHOWN else ""
        lines.append(f"{KINDS[kind].title}: {', '.join(names[:SUBJECTS_SHOWN])}{more} [{kind}]")
    return tuple(lines)


def _names(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
