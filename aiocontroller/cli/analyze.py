"""``aiocontroller analyze``: journals and Kafka's logs into tables of what happened to availability."""

from __future__ import annotations

import click

from aiocontroller.cli.output import JSON, print_json, say, table
from aiocontroller.core.errors import BadInputError


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--out", default="analysis", show_default=True, metavar="DIR", help="Folder for the tables.")
@click.option("--manifest", metavar="FILE", help="Time zones, brokers, clusters of files (TOML or JSON).")
@click.option("--in-progress", is_flag=True, help="Read journal segments too that are still being written.")
@click.option("--incremental", is_flag=True, help="Add what is new to the tables that are there.")
@click.option("--follow", is_flag=True, help="Keep the tables up to date while the journals grow; until Ctrl-C.")
@click.option(
    "--max-quarantined",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    metavar="SHARE",
    help="Fail when more of the lines than this cannot be understood.",
)
@click.option("--report", metavar="FILE", help="Write a page to look at, too: one HTML file.")
@click.option("--master", metavar="URL", help="Of a Spark cluster.  [default: this machine]")
@JSON
def analyze(
    paths: tuple[str, ...],
    out: str,
    manifest: str | None,
    in_progress: bool,
    incremental: bool,
    follow: bool,
    max_quarantined: float,
    report: str | None,
    master: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Say from journals and Kafka's logs what happened to availability.

    PATHs are files, folders or globs, on this machine or any Hadoop file system: journals of aiocontroller, and
    controller.log, state-change.log, server.log of Kafka 0.10 to 3.9, plain or gz, as containers wrap them.

    Which partition had no leader when, why and by which records; failovers step by step; latencies; churn; violated
    invariants.  The tables are Parquet folders in DIR/gold; docs/pipeline.md explains them.
    """
    if follow and (incremental or manifest or in_progress):
        raise BadInputError(
            "--follow reads journals as they grow; it takes no --incremental, --manifest, --in-progress"
        )
    from aiocontroller.analytics.job import Job, perform

    job = Job(paths, out, manifest, master, incremental, follow, in_progress, max_quarantined, report)
    summary = perform(job, lambda words: click.echo(words, err=True))
    if as_json:
        print_json(summary)
        return
    from aiocontroller.analytics.summary import sections

    for section in sections(summary):
        say(section if isinstance(section, str) else table(*section))
    say(f"\nTables: {out}/gold")
