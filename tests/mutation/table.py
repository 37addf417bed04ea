"""What a person reads: mutants, the suites that kill them, and why the others survive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from tests.mutation.mutants import Mutant
from tests.mutation.running import Result


class Judged(NamedTuple):
    mutant: Mutant
    result: Result
    reason: str | None

    @property
    def unexplained(self) -> bool:
        return not self.result.killers and self.reason is None

    def cell(self, suite: str) -> str:
        """``kills``, how many tests of those that run the line have been asked in vain, – where none runs it, or ·
        where the suite has not been asked, since another had killed the mutant."""
        verdict = self.result.suites.get(suite)
        if verdict is None:
            return "·"
        if verdict.killed_by:
            return "kills"
        if not verdict.covering:
            return "–"
        return str(verdict.asked) if verdict.asked == verdict.covering else f"{verdict.asked} of {verdict.covering}"


def show(judged: Sequence[Judged], drawn: int, suites: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        for one in judged:
            kills = {suite: verdict.killed_by for suite, verdict in one.result.suites.items() if verdict.killed_by}
            row = {"mutant": one.mutant.key, "line": one.result.line, "killed_by": kills, "reason": one.reason}
            print(json.dumps(row))
        return
    width = max([len(suite) for suite in suites] + [len(one.cell(suite)) for one in judged for suite in suites]) + 2
    print("".join(f"{suite:<{width}}" for suite in suites) + "mutant")
    for one in sorted(judged, key=lambda one: (bool(one.result.killers), one.mutant.key)):
        cells = "".join(f"{one.cell(suite):<{width}}" for suite in suites)
        print(f"{cells}{one.mutant.key}  (line {one.result.line})")
        if not one.result.killers:
            print(f"{' ' * width}survives: {one.reason or 'WITHOUT A REASON'}")
        elif one.reason is not None:
            print(f"{' ' * width}is killed, and has a reason to survive: take that away")
    _sums(judged, drawn, suites)


def _sums(judged: Sequence[Judged], drawn: int, suites: Sequence[str]) -> None:
    killed = [one for one in judged if one.result.killers]
    print(f"\n{len(judged)} mutants judged of {drawn} drawn: {len(killed)} killed{_percent(len(killed), len(judged))}")
    for suite in suites:
        asked = [one for one in judged if suite in one.result.suites]
        reached = [one for one in asked if one.result.suites[suite].covering]
        by_it = [one for one in reached if suite in one.result.killers]
        share = f"{len(by_it)} of the {len(reached)} whose line they run{_percent(len(by_it), len(reached))}"
        alone = [one for one in by_it if one.result.killers == [suite] and len(one.result.suites) == len(suites)]
        print(f"  {suite + ' tests kill':<26} {share}; asked about {len(asked)}, alone with {len(alone)}")
    unexplained = sum(one.unexplained for one in judged)
    survivors = len(judged) - len(killed)
    print(f"  {survivors} survive, {survivors - unexplained} with a reason")


def _percent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.0f} %)" if whole else ""
