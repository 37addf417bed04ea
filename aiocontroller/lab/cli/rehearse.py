"""``aiocontroller rehearse``: what a cluster would go through, played in the simulation over many seeds."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiocontroller.cli.output import JSON, print_json, print_text, say, table
from aiocontroller.cli.trees import read_any, refuse_two_sources, result_of, tree_options
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.text import not_registered, plural

if TYPE_CHECKING:
    from aiocontroller.lab.rehearsal.meter import Went
    from aiocontroller.lab.rehearsal.rehearsal import Moves, Rehearsed
    from aiocontroller.lab.rehearsal.seeds import Row, Summary
    from aiocontroller.lab.rehearsal.stage import Stage

SEEDS, PARTITIONS = 5, 200
HEADINGS = ("event", "leaders moved", "no leader", "s", "under min ISR", "s", "one copy", "s", "at risk", "worst seed")
MOST_SHOWN = 5
"""Violations."""


@click.command()
@click.option("--seeds", type=click.IntRange(1, 10_000), default=SEEDS, show_default=True, help="Number of seeds.")
@click.option("--seed", type=click.IntRange(1), help="Play only this seed.")
@click.option("--plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The reassignment to play.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 5_000),
    default=PARTITIONS,
    show_default=True,
    help="Maximum number of partitions; of more, one of each assignment, leader, ISR and settings.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("rehearsal.html"),
    show_default=True,
    help="Where to write the page.",
)
@click.option("--jobs", type=click.IntRange(1), help="Number of processes.  [default: one for each core]")
@tree_options
@JSON
def rehearse(
    seeds: int,
    seed: int | None,
    plan: Path | None,
    partitions: int,
    report: Path,
    jobs: int | None,
    tree: Path | None,
    data: Path | None,
    zookeeper: str | None,
    as_json: bool,
) -> None:
    """Rehearse a cluster's failures and operations in the simulation; write nothing to the cluster.

    Every seed plays, on a copy of the cluster in memory: the controller's death, each broker's death and return, a
    rolling restart, a reassignment, the release of the role to a broker with the takeover from it, and a migration to
    KRaft with its rollback. A page shows the effect on clients. The same tree and seed give the same run. Exit code 1:
    a violation.
    """
    from aiocontroller.lab.rehearsal.page import page
    from aiocontroller.lab.rehearsal.seeds import as_json as shown_as_json
    from aiocontroller.lab.rehearsal.seeds import summary
    from aiocontroller.lab.rehearsal.stage import stage

    refuse_two_sources(tree, data, zookeeper)
    if not report.parent.is_dir():
        raise BadInputError(f"--report {report}: there is no folder {report.parent}")
    named = None if plan is None else _read_plan(plan)
    recorded = result_of(read_any(tree, data, zookeeper))
    staged = stage(recorded.tree, partitions, needed=tuple(named or ()))
    moves = {} if named is None else _numbered(named, staged, plan)
    chosen = range(1, seeds + 1) if seed is None else range(seed, seed + 1)
    found = summary(staged, moves, _play(staged, moves, chosen, jobs or os.cpu_count() or 1))
    source = None if tree is None else shlex.quote(str(tree))

    def again(number: int) -> str:
        parts = ["aiocontroller rehearse", f"--tree {source or 'TREE'}", f"--seed {number}"]
        parts += [f"--plan {shlex.quote(str(plan))}"] if plan is not None else []
        parts += [f"--partitions {partitions}"] if partitions != PARTITIONS else []
        return " ".join(parts)

    try:
        report.write_text(page(found, at=recorded.at, headline="Rehearsal", again=again), encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"--report {report}: {error.strerror}") from None
    if as_json:
        print_json({**shown_as_json(found), "report": str(report)})
    else:
        print_text(as_text(found))
        line = f"Again, the worst seed: {again(found.worst_seed)}"
        print_text(line if tree is not None else f"{line}, with a file of aiocontroller check --save-tree")
        say(f"The page: {report}")
    if found.violations:
        sys.exit(1)


def _read_plan(plan: Path) -> Mapping[TopicPartition, tuple[int, ...]]:
    from aiocontroller.cli.reassign import read_plan

    return read_plan(plan).targets


def _numbered(named: Mapping[TopicPartition, tuple[int, ...]], staged: Stage, plan: Path | None) -> Moves:
    """Return the targets with the simulation's numbers; BadInputError for partitions or brokers that do not exist."""
    known = {each.name for each in staged.partitions}
    number = {staged.id_of(at): at for at in sorted(staged.alive)}
    for tp, target in named.items():
        if tp not in known:
            raise BadInputError(f"{plan}: found {tp}, expected a partition that can be rehearsed")
        if not target or len(set(target)) < len(target):
            raise BadInputError(f"{plan}: {tp}: found replicas {list(target)}, expected some, each once")
        if strangers := [broker for broker in target if broker not in number]:
            there = ", ".join(map(str, number))
            raise BadInputError(f"{plan}: {tp}: found broker {strangers[0]}, expected one that is registered: {there}")
    return {tp: tuple(number[broker] for broker in target) for tp, target in named.items()}


def _play(staged: Stage, moves: Moves, chosen: range, jobs: int) -> list[Rehearsed]:
    from aiocontroller.lab.rehearsal.seeds import rehearse_seeds

    done = []
    for one in rehearse_seeds(staged, moves, chosen, jobs):
        done.append(one)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(done)} of {plural(len(chosen), 'seed')}" + "\n" * (len(done) == len(chosen)))
            sys.stderr.flush()
    return done


def as_text(found: Summary) -> str:
    """Return the summary as text for people."""
    from aiocontroller.lab.rehearsal.rehearsal import SESSION_S

    headings = (
        "event",
        "leaders moved",
        "no leader",
        "s",
        "under min ISR",
        "s",
        "one copy",
        "s",
        "at risk",
        "worst seed",
    )
    lines = [*_head(found.stage), "", table(headings, [_cells(row) for row in found.rows]), ""]
    lines.append(
        f"Each figure is the worst of {plural(len(found.rehearsed), 'seed')}: partitions, the longest time in seconds "
        "of any partition, and records acknowledged while only one live replica had them. Sessions last "
        f"{SESSION_S:g} s here."
    )
    wrong = [(one.seed, each) for one in found.rehearsed for each in one.violations]
    lines += [f"  seed {seed}: {each}" for seed, each in wrong[:MOST_SHOWN]]
    if len(wrong) > MOST_SHOWN:
        lines.append(f"  … and {len(wrong) - MOST_SHOWN:,} more; the page has all")
    lines.append(f"Verdict: {plural(len(wrong), 'violation') if wrong else 'no violation'}. Nothing was written.")
    return "\n".join(lines)


def _head(stage: Stage) -> list[str]:
    brokers = f"{plural(len(stage.brokers), 'broker')}, {len(stage.alive)} registered"
    lines = [f"{brokers}; {plural(stage.found, 'partition')}."]
    if stage.sampled:
        line = f"Rehearsed: {len(stage.partitions):,}, one of each shape; they stand for {stage.stood_for:,}"
        lines.append(f"{line}; the shapes of {stage.rare:,} are too rare." if stage.rare else f"{line}.")
    if stage.left_out:
        why = "topics being deleted or sharing an id, or with damaged znodes; see check"
        lines.append(f"Left out: {stage.left_out:,} of {why}.")
    if stage.missing:
        lines.append(f"No migration to KRaft: {not_registered(stage.missing)}, which blocks the claim.")
    return lines


def _cells(row: Row) -> tuple[object, ...]:
    worst: Went = row.worst
    return (
        row.name,
        worst.leaders_moved,
        worst.leaderless,
        worst.leaderless_s,
        worst.under_min_isr,
        worst.under_min_isr_s,
        worst.last_copy,
        worst.last_copy_s,
        worst.at_risk,
        row.worst_seed,
    )
