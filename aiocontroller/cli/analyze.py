"""``aiocontroller analyze``: journals and Kafka's logs into tables of what happened to availability."""

from __future__ import annotations

import click

from aiocontroller.cli.output import JSON, print_json, say, table
from aiocontroller.cli.parameters import Finite
from aiocontroller.core.errors import BadInputError


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--out", default="analysis", show_default=True, metavar="DIR", help="Folder for the tables.")
@click.option("--manifest", metavar="FILE", help="Time zones, brokers and clusters of the files (TOML or JSON).")
@click.option("--in-progress", is_flag=True, help="Also read journal segments that are still being written.")
@click.option("--incremental", is_flag=True, help="Add new files to the existing tables.")
@click.option("--follow", is_flag=True, help="Update the tables while the journals grow, until Ctrl-C.")
@click.option(
    "--max-quarantined",
    type=Finite(0, 1),
    default=0.01,
    show_default=True,
    metavar="SHARE",
    help="Fail if a larger share of the lines cannot be understood.",
)
@click.option("--report", metavar="FILE", help="Also write the report as one HTML file.")
@click.option("--master", metavar="URL", help="Master of a Spark cluster.  [default: this machine]")
@click.option(
    "--engine",
    type=click.Choice(["auto", "duckdb", "spark"]),
    default="auto",
    show_default=True,
    help="DuckDB computes in this process, without Java. auto takes Spark from 2 GB on, with --master and --follow.",
)
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
    engine: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Report incidents and availability from journals and Kafka's logs.

    PATHs are files, folders or globs, on this machine or on any Hadoop file system: journals of aiocontroller, and
    controller.log, state-change.log and server.log of Kafka 0.10 to 3.9, plain, compressed, or wrapped by containers.

    The report shows incidents with cause and evidence, partitions without a leader, failovers step by step, latencies,
    churn and violated invariants. The tables are Parquet folders in DIR/gold; docs/pipeline.md explains them.
    """
    if follow and (incremental or manifest or in_progress):
        raise BadInputError(
            "--follow reads journals as they grow; it takes no --incremental, --manifest, --in-progress"
        )
    from aiocontroller.analytics.job import Job, perform

    job = Job(paths, out, manifest, master, incremental, follow, in_progress, max_quarantined, report, engine)
    summary = perform(job, lambda words: click.echo(words, err=True))
    if as_json:
        print_json(summary)
        return
    from aiocontroller.analytics.summary import sections

    for section in sections(summary):
        say(section if isinstance(section, str) else table(*section))
    say(f"\nTables: {out}/gold")
