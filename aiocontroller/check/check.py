"""Looks at a cluster twice and reports what both looks show, with the znodes that show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from aiocontroller.check.broker_settings import NOTHING_REPORTED, Reported, settings_hits, with_files
from aiocontroller.check.findings import CheckFinding, Hit, findings, lasting
from aiocontroller.check.kinds import KINDS
from aiocontroller.check.rules import MIN_ISR, all_hits
from aiocontroller.check.snapshot import time_text
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Broker
from aiocontroller.core.unreadable_json import UNREADABLE_JSON
from aiocontroller.net.ports import Clock
from aiocontroller.zookeeper.cluster_tree import ClusterTree, OnProgress, read_cluster_tree, read_evidence
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

FORMAT = 1
BETWEEN_S = 2.0
"""Between the two looks: long enough for an election to end.  One look alone may mix states of different moments."""


class CheckReport(msgspec.Struct, frozen=True):
    """The findings, the worst first, and what was examined.  Also the content of an evidence file."""

    format: int
    at: str
    """UTC, ISO 8601."""
    controller: int | None
    controller_epoch: int
    brokers: tuple[int, ...]
    topics: int
    partitions: int
    findings: tuple[CheckFinding, ...]
    cluster_id: str | None = None
    """None if the cluster has no id, or if an older release wrote the file."""


class Examined(NamedTuple):
    """The report, and the tree of the second look."""

    report: CheckReport
    tree: ClusterTree


async def examine(
    zk: KafkaZkClient,
    clock: Clock,
    *,
    between_s: float = BETWEEN_S,
    progress: OnProgress | None = None,
    ask: Callable[[Collection[Broker]], Awaitable[Reported]] | None = None,
) -> Examined:
    """Look twice, and report what both looks show; AioControllerError if ZooKeeper does not answer.

    ``ask`` asks the registered brokers for their settings; None: they are not asked.  Writes nothing.
    """
    first = await read_cluster_tree(zk, progress)
    reported = NOTHING_REPORTED if ask is None else await ask(first.brokers.values())
    before = _hits(first, reported)
    await clock.sleep(between_s)
    again = await read_cluster_tree(zk, progress)
    tree = with_files(again, reported)
    hits = [*lasting(before, _hits(again, reported)), *settings_hits(again, reported)]
    found, shown_by = findings(hits, KINDS)
    read = await read_evidence(zk, [path for some in shown_by for path in some])
    evidence = iter(read)
    with_evidence = [
        msgspec.structs.replace(finding, evidence=tuple(tuple(next(evidence)) for _ in some))
        for finding, some in zip(found, shown_by, strict=True)
    ]
    return Examined(_report(tree, with_evidence, time_text(clock.wall_time_us())), tree)


def _hits(tree: ClusterTree, reported: Reported) -> list[Hit]:
    """What the rules hit, with ``min.insync.replicas`` from the brokers' files.

    Unclean elections that the files allow are left to ``settings_hits``: the rules would report a dynamic default.
    """
    return all_hits(with_files(tree, reported, (MIN_ISR,)))


def judge(tree: ClusterTree, at: str) -> CheckReport:
    """Return the report on a recorded tree, which shows one look at time ``at``; it has no evidence."""
    found, _ = findings(all_hits(tree), KINDS)
    return _report(tree, found, at)


def _report(tree: ClusterTree, found: Sequence[CheckFinding], at: str) -> CheckReport:
    return CheckReport(
        format=FORMAT,
        at=at,
        controller=None if tree.holder is None else tree.holder.controller_id,
        controller_epoch=tree.controller_epoch,
        brokers=tuple(sorted(tree.live)),
        topics=len(tree.topics),
        partitions=len(tree.partitions),
        findings=tuple(found),
        cluster_id=tree.cluster_id,
    )


def parse_report(data: bytes, where: str) -> CheckReport:
    """Parse an evidence file; BadInputError naming ``where`` if it is not one."""
    try:
        report = msgspec.json.decode(data, type=CheckReport)
    except UNREADABLE_JSON as error:
        raise BadInputError(f"{where}: found {error}, expected what aiocontroller check --json prints") from None
    if report.format != FORMAT:
        raise BadInputError(f"{where}: found format {report.format}, expected {FORMAT}")
    return report


class Difference(msgspec.Struct, frozen=True):
    """What is new, gone or changed since an earlier report."""

    since: str
    new: tuple[CheckFinding, ...]
    gone: tuple[CheckFinding, ...]
    changed: tuple[tuple[CheckFinding, int], ...]
    """Findings whose subjects have changed, with the earlier number of subjects."""


def compare(earlier: CheckReport, now: CheckReport) -> Difference:
    """Compare findings by kind and reason; BadInputError if both reports name a cluster, and not the same one."""
    if None not in (earlier.cluster_id, now.cluster_id) and earlier.cluster_id != now.cluster_id:
        raise BadInputError(
            f"found a report of cluster {earlier.cluster_id}, of {earlier.at}, expected one of cluster {now.cluster_id}"
        )
    was = {finding.key: finding for finding in earlier.findings}
    present = {finding.key: finding for finding in now.findings}
    return Difference(
        since=earlier.at,
        new=_only(now.findings, was),
        gone=_only(earlier.findings, present),
        changed=tuple(
            (finding, len(was[key].subjects))
            for key, finding in present.items()
            if key in was and set(was[key].subjects) != set(finding.subjects)
        ),
    )


def _only(found: Sequence[CheckFinding], others: object) -> tuple[CheckFinding, ...]:
    return tuple(finding for finding in found if finding.key not in others)  # type: ignore[operator]
