"""``aiocontroller explain PARTITION``: what has happened to one partition, in words, from the journals of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from aiocontroller.cli.output import JSON, iso_time, print_json, print_text, say
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.text import on_one_line, plural
from aiocontroller.data_folder import DEFAULT_DATA
from aiocontroller.journal.reading import decoded, journal_files, lines
from aiocontroller.journal.records import Record
from aiocontroller.journal.story import Chapter, PartitionStory

SHOWN = 100
CLUSTERS_OWN = (b'"kind":"elected"', b'"kind":"broker"')
"""Marks of records that concern every partition."""
END_OF_TIME_US = 253_402_300_800_000_000
"""The year 10000, in microseconds since 1970: a damaged record may have a later time, which cannot be formatted."""


@click.command()
@click.argument("partition")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with journals ('run --data DIR', or several below one; default: .aiocontroller here or above).",
)
@click.option("--last", type=click.IntRange(1), help=f"Changes to show [default: {SHOWN}; with --json all].")
@JSON
def explain(partition: str, data: Path | None, last: int | None, as_json: bool) -> None:
    """Show what has happened to a partition, such as orders-7: leaders, in-sync replicas, moves, and why.

    It reads the journals, so it works while no controller runs, and for topics that are gone.
    """
    topic, number = parsed(partition)
    folder = data if data is not None else _found()
    files = journal_files(folder)
    if not files:
        raise BadInputError(f"{folder}: found no journal, expected the data folder of a controller")
    chapters = sorted(chapters_of(files, topic, number), key=lambda each: each.at_us)
    if as_json:
        print_json({"topic": topic, "partition": number, "story": chapters[-last:] if last else chapters})
        return
    if not chapters:
        print_text(on_one_line(f"The journals in {folder} have no record of {partition}."))
        return
    shown = chapters[-(last or SHOWN) :]
    if len(shown) < len(chapters):
        say(f"… {plural(len(chapters) - len(shown), 'earlier change')}; --last shows more")
    for each in shown:
        print_text(on_one_line(f"{iso_time(each.at_us // 1000)}  {each.text}"))


def parsed(partition: str) -> tuple[str, int]:
    """``orders-7`` -> its topic and number; BadInputError for anything else."""
    topic, _, number = partition.rpartition("-")
    if not (topic and number.isascii() and number.isdigit() and len(number) < 10):
        raise BadInputError(f"found {partition!r}, expected TOPIC-NUMBER such as orders-7")
    return topic, int(number)


def chapters_of(files: list[Path], topic: str, partition: int) -> Iterator[Chapter]:
    """The chapters of each journal; an election of a controller only before a change of the partition."""
    stories: dict[int, PartitionStory] = {}
    waiting: dict[int, list[Chapter]] = {}
    for record in _records(files, topic):
        story = stories.setdefault(record.node, PartitionStory(topic, partition))
        chapter = story.chapter_of(record)
        if chapter is None:
            continue
        if record.kind == "elected":
            waiting[record.node] = [chapter]
        else:
            yield from waiting.pop(record.node, ())
            yield chapter


def _records(files: list[Path], topic: str) -> Iterator[Record]:
    """Decode the lines that may matter only: a journal has millions."""
    mark = topic.encode(errors="surrogateescape")
    for line in lines(files):
        if mark in line or any(each in line for each in CLUSTERS_OWN):
            record = decoded(line)
            if record is not None and 0 <= record.ts < END_OF_TIME_US:
                yield record


def _found() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / DEFAULT_DATA).is_dir():
            return folder / DEFAULT_DATA
    raise BadInputError(
        f"found no {DEFAULT_DATA} in {here} or above it, expected --data DIR with a controller's journals"
    )
