"""``python -m aiocontroller.analytics``: ``aiocontroller analyze`` for ``spark-submit``; prints JSON."""

from __future__ import annotations

import argparse
import json
import sys

from aiocontroller.analytics.job import Job, perform
from aiocontroller.core.errors import AioControllerError


def main(arguments: list[str] | None = None) -> int:
    """Run the job and print its summary as JSON.  Returns 0, or 1 after printing an error to standard error."""
    parser = argparse.ArgumentParser(prog="python -m aiocontroller.analytics", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files, folders or globs on any Hadoop file system")
    parser.add_argument("--out", required=True, help="folder for the tables")
    parser.add_argument("--manifest", help="facts that the files do not contain (TOML or JSON)")
    parser.add_argument("--incremental", action="store_true", help="add only what is new")
    parser.add_argument(
        "--max-quarantined", type=float, default=0.01, help="largest share of lines that may be rejected; default 0.01"
    )
    parser.add_argument("--report", help="also write an HTML page to this file")
    job = parser.parse_args(arguments)
    try:
        summary = perform(
            Job(
                tuple(job.paths),
                job.out,
                manifest=job.manifest,
                incremental=job.incremental,
                most_quarantined=job.max_quarantined,
                report=job.report,
            ),
            lambda words: print(words, file=sys.stderr, flush=True),
        )
    except (AioControllerError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(summary, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
