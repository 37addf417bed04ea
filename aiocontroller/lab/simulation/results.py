"""The results of a campaign in a file, one line for each seed as it arrives, so that an interrupted one loses nothing.

The first line states the seeds of the campaign.  A line that was cut off is dropped; its seed runs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.scenarios.restarts import EVERY, next_of_restarts
from aiocontroller.lab.simulation.report import SimulationReport

SEEDS = 100


class Campaign(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    first: int
    seeds: int
    branch: int = 0
    steer: int = 0
    restarts: bool = False
    """``branch``, ``steer`` and ``restarts`` are the options of ``simulate``, here and in ``Results``."""

    def numbers(self) -> range:
        """Return its seeds."""
        if self.restarts:
            return range(self.first, self.first + EVERY * self.seeds, EVERY)
        return range(self.first, self.first + self.seeds)


class Results:
    """The seeds of a campaign, and the results in its file; without a path nothing is kept.

    An existing file keeps its first seed, and its number of seeds unless ``seeds`` is given.  Raises BadInputError if
    the file has other options, or another first seed although the user asked for this one (``asked``).
    """

    def __init__(
        self,
        path: Path | None,
        first: int,
        seeds: int | None,
        *,
        asked: bool = False,
        branch: int = 0,
        steer: int = 0,
        restarts: bool = False,
    ) -> None:
        self.reports: Sequence[SimulationReport] = ()
        if restarts:
            first = next_of_restarts(first)
        campaign, size = Campaign(first, seeds or SEEDS, branch, steer, restarts), 0
        if path is not None and path.exists() and (found := read(path)) is not None:
            campaign, self.reports, size = found
        if asked and campaign.first != first:
            raise BadInputError(f"{path}: found results from seed {campaign.first} on, expected {first}")
        if (campaign.branch, campaign.steer) != (branch, steer):
            raise BadInputError(
                f"{path}: found results with --branch {campaign.branch} and --steer {campaign.steer}, "
                f"expected {branch} and {steer}"
            )
        if campaign.restarts != restarts:
            kept, asked_for = (("without", "with")[each] for each in (campaign.restarts, restarts))
            raise BadInputError(f"{path}: found results {kept} --restarts, expected them {asked_for} it")
        self.campaign = msgspec.structs.replace(campaign, seeds=seeds or campaign.seeds)
        self._file = None if path is None else open(path, "ab", buffering=0)  # noqa: SIM115 - closed by __exit__
        if self._file is not None:
            self._file.truncate(size)
        if not size:
            self._write(campaign)

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def missing(self) -> list[int]:
        """Return the seeds of the campaign without a result."""
        done = {report.recipe for report in self.reports}  # membership only
        return [seed for seed in self.campaign.numbers() if str(seed) not in done]

    def add(self, report: SimulationReport) -> None:
        self._write(report)

    def _write(self, line: Campaign | SimulationReport) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(line) + b"\n")


def read(path: Path) -> tuple[Campaign, list[SimulationReport], int] | None:
    """Return the campaign, the results and the bytes of whole lines; None if there is no whole line."""
    whole = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    if not whole:
        return None
    try:
        campaign = msgspec.json.decode(whole[0], type=Campaign)
        reports = [msgspec.json.decode(line, type=SimulationReport) for line in whole[1:]]
    except msgspec.MsgspecError as error:
        raise BadInputError(f"{path}: found no results of a campaign: {error}") from None
    return campaign, reports, sum(map(len, whole))


class Merged(NamedTuple):
    seeds: int
    """Seeds of all campaigns together, with and without results."""
    reports: list[SimulationReport]
    """One for each seed that has one, and for each run with forks, by seed."""


def merge(paths: Sequence[Path]) -> Merged:
    """Read the results of several campaigns; BadInputError if two files have different results of one seed."""
    seeds: set[int] = set()  # only counted
    reports: dict[tuple[int, str], tuple[Path, SimulationReport]] = {}
    for path in paths:
        found = read(path)
        if found is None:
            raise BadInputError(f"{path}: found no whole line, expected the results of a campaign")
        campaign, here, _ = found
        seeds.update(campaign.numbers())
        for report in here:
            before, known = reports.setdefault((report.seed, report.forks), (path, report))
            if not known.same(report):
                raise BadInputError(
                    f"seed {report.recipe}: {before} has digest {known.digest}, {path} has {report.digest}: "
                    "found results of two versions of the program"
                )
    return Merged(len(seeds), [report for _, (_, report) in sorted(reports.items())])
