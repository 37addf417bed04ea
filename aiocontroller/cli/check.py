"""``aiocontroller check``: what is wrong with a cluster, from ZooKeeper and brokers' settings; it writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiocontroller.cli.finding import connected, find_zookeeper
from aiocontroller.cli.output import JSON, print_json, print_nothing_more, print_text, reading_progress
from aiocontroller.cli.trees import read_tree, refuse_two_sources, result_of, tree_options
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from aiocontroller.check.check import CheckReport, Difference, Examined
    from aiocontroller.check.findings import CheckFinding
    from aiocontroller.zookeeper.cluster_tree import ClusterTree

EXIT_CODES = {None: 0, "NOTICE": 0, "WARNING": 3, "CRITICAL": 4}
"""For cron.  1: the check itself failed; 2: an option is wrong."""
SUBJECTS_SHOWN = 6
SHOWN_OF_A_KIND = 5


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the evidence to this file.")
@click.option(
    "--since",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An earlier evidence file: show what is new and what is gone.",
)
@click.option(
    "--save-tree",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write what ZooKeeper holds to this file, without credentials, for --tree and for rehearsals.",
)
@click.option("--hash-names", is_flag=True, help="In that file hash the names of topics, hosts, racks and the cluster.")
@click.option("--no-brokers", is_flag=True, help="Ask no broker for its settings; read ZooKeeper alone.")
@tree_options
@JSON
def check(
    out: Path | None,
    since: Path | None,
    save_tree: Path | None,
    hash_names: bool,
    no_brokers: bool,
    tree: Path | None,
    data: Path | None,
    zookeeper: str | None,
    as_json: bool,
) -> None:
    """Report what is wrong with a cluster, or one failure away from it; write nothing to it.

    Works on any cluster in ZooKeeper mode, whatever its controller. Exit code 0: nothing worse than notices, 3:
    warnings, 4: critical findings.
    """
    from aiocontroller.check.check import Examined, compare, judge, parse_report
    from aiocontroller.check.findings import worst

    refuse_two_sources(tree, data, zookeeper)
    if hash_names and save_tree is None:
        raise click.UsageError("--hash-names is for a file: give --save-tree, too")
    earlier = None if since is None else parse_report(since.read_bytes(), str(since))
    if tree is None:
        report, found = result_of(_check(find_zookeeper(data, zookeeper), ask=not no_brokers))
    else:
        recorded = read_tree(tree)
        report, found = Examined(judge(recorded.tree, recorded.at), recorded.tree)
    difference = None if earlier is None else compare(earlier, report)
    if out is not None:
        _write("--out", out, _as_json(report))
    if save_tree is not None:
        _write("--save-tree", save_tree, _as_snapshot(found, hash_names))
    try:
        _print(report, difference, as_json)
    except BrokenPipeError:
        print_nothing_more()  # the exit code still tells what was found
    severity = worst(report.findings)
    raise click.exceptions.Exit(EXIT_CODES[None if severity is None else severity.name])


def _print(report: CheckReport, difference: Difference | None, as_json: bool) -> None:
    if as_json:
        print_json(report if difference is None else {"report": report, "difference": difference})
        return
    print_text(as_text(report))
    if difference is not None:
        print_text("\n" + _as_text_of_difference(difference))


async def _check(zookeeper: str, *, ask: bool) -> Examined:
    import os
    from functools import partial

    from aiocontroller.check.broker_settings import ask_brokers
    from aiocontroller.check.check import examine
    from aiocontroller.config import load_config
    from aiocontroller.net.real import real_world

    world, config = real_world(), load_config(None, os.environ)[0]
    asking = partial(ask_brokers, world, config) if ask else None
    async with connected(zookeeper) as zk:
        return await examine(zk, world.clock, progress=reading_progress(), ask=asking)


def _as_json(report: CheckReport) -> bytes:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(report)) + b"\n"


def _as_snapshot(tree: ClusterTree, hash_names: bool) -> bytes:
    import secrets
    import time

    from aiocontroller.check.snapshot import encode_snapshot

    return encode_snapshot(tree, time.time_ns() // 1000, secrets.token_bytes(32) if hash_names else None)


def _write(option: str, out: Path, content: bytes) -> None:
    try:
        out.write_bytes(content)
    except OSError as error:
        raise BadInputError(f"{option} {out}: {error.strerror}") from None


def as_text(report: CheckReport) -> str:
    """The report as text: the worst findings first, each with its reason, consequence and remedy."""
    who = "no controller" if report.controller is None else f"controller {report.controller}"
    looked = f"{plural(len(report.brokers), 'broker')}, {plural(report.topics, 'topic')}"
    head = f"{looked}, {plural(report.partitions, 'partition')}; {who}, epoch {report.controller_epoch}."
    return "\n".join([head, *findings_as_text(report.findings)])


def findings_as_text(findings: Sequence[CheckFinding]) -> list[str]:
    """Lines with the findings by severity, and their numbers."""
    lines = []
    for severity in ("critical", "warning", "notice"):
        own = [finding for finding in findings if finding.severity == severity]
        if own:
            lines += ["", f"{severity.upper()}"]
        for kind in dict.fromkeys(finding.kind for finding in own):
            lines += _of_kind([finding for finding in own if finding.kind == kind])
    return [*lines, "", _summary(findings)]


def _of_kind(found: list[CheckFinding]) -> list[str]:
    subjects = sum(len(finding.subjects) for finding in found)
    lines = [f"  {found[0].title} ({subjects:,}) [{found[0].kind}]", f"    {found[0].consequence}"]
    for finding in found[:SHOWN_OF_A_KIND]:
        some = ", ".join(finding.subjects[:SUBJECTS_SHOWN])
        more = f" and {len(finding.subjects) - SUBJECTS_SHOWN:,} more" if len(finding.subjects) > SUBJECTS_SHOWN else ""
        lines.append(f"    - {some}{more}: {finding.why}")
        lines.append(f"      do: {finding.remedy}")
        if finding.evidence:
            path, zxid, value = finding.evidence[0]
            lines.append(f"      see: {path} (zxid {zxid:#x}) {value}")
    if len(found) > SHOWN_OF_A_KIND:
        lines.append(f"    … {plural(len(found) - SHOWN_OF_A_KIND, 'more reason')}; --json shows all")
    return lines


def _summary(findings: Sequence[CheckFinding]) -> str:
    nouns = {"critical": "critical finding", "warning": "warning", "notice": "notice"}
    counts = [plural(sum(f.severity == severity for f in findings), noun) for severity, noun in nouns.items()]
    return f"{', '.join(counts)}. Nothing was written."


def _as_text_of_difference(difference: Difference) -> str:
    lines = [f"Since {difference.since}:"]
    for word, found in (("new", difference.new), ("gone", difference.gone)):
        lines += [f"  {word}: {f.title} ({len(f.subjects):,}): {f.why}" for f in found]
    lines += [f"  changed: {f.title} ({before:,} -> {len(f.subjects):,}): {f.why}" for f, before in difference.changed]
    return "\n".join(lines if len(lines) > 1 else [*lines, "  nothing has changed."])
