"""What one simulated run comes to."""

from __future__ import annotations

import msgspec

from aiocontroller.lab.scenarios.forks import recipe


class SimulationReport(msgspec.Struct, frozen=True):
    seed: int
    violations: list[str]
    virtual_s: float
    events: int
    """Controller events that all controllers processed."""
    znode_writes: int
    controller_writes: int
    """Write requests of the controllers to ZooKeeper; traps count the same."""
    awaits: int
    """Await points that the controllers' handlers reached."""
    steps: dict[str, int]
    marks: dict[str, int]
    """See ``coverage``."""
    digest: str
    """Over all journals and all znode writes."""
    forks: str = ""
    """Those that took place; see ``scenarios.forks``."""
    rare: dict[str, int] = {}
    """See ``Chance``."""

    @property
    def recipe(self) -> str:
        return recipe(self.seed, self.forks)

    def same(self, other: SimulationReport) -> bool:
        """Return whether the runs were the same.

        ``rare`` depends on the campaign.  ``marks`` count pieces that overtook others, whose number is not quite the
        same in each run of a seed.
        """
        return msgspec.structs.replace(self, rare=other.rare, marks=other.marks) == other

    @property
    def ok(self) -> bool:
        return not self.violations
