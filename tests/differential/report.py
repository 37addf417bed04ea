"""What a person reads: the disagreements of one scenario side by side, and the rules of a whole run."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from rich.console import Console
from rich.table import Table

from tests.differential.agreement import Disagreement, Ledger
from tests.differential.allowances import DEPARTURES
from tests.differential.observed_cluster import Scenario

WIDTH = 200
SHOWN = 12


def side_by_side(scenario: Scenario, found: Sequence[Disagreement]) -> str:
    """The script with the steps marked in which the two differ, then each difference."""
    odd = {d.step for d in found}
    lines = [f"Kafka's controller and ours disagree {len(found)} times in: {scenario.name}", ""]
    lines += [f"{'>' if n in odd else ' '} {n}. {step.text}" for n, step in enumerate(scenario.steps, 1)]
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, color_system=None)
    for number, one in enumerate(found[:SHOWN], 1):
        title = f"{number}. step {one.step} ({one.text}): {one.where}"
        table = Table("", "Kafka", "aiocontroller", title=title, title_justify="left", title_style="", expand=True)
        for left, right in zip_longest(one.kafka, one.ours, fillvalue=""):
            table.add_row("" if left == right else "≠", *map(_wrapped, (left, right)))
        console.print(table)
    if len(found) > SHOWN:
        console.print(f"… and {len(found) - SHOWN} more")
    return "\n".join(lines) + "\n\n" + out.getvalue()


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, (WIDTH - 12) // 2))


def of_a_run(ledger: Ledger) -> str:
    """How much was compared, which rules made the two agree, and which never did."""
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, color_system=None)
    console.print(f"{ledger.scenarios} scenarios, {ledger.compared} sequences of what a broker was sent of a partition")
    table = Table("rule", "fired", "row of docs/departures.md")
    for name, departure in DEPARTURES.items():
        table.add_row(name, str(ledger.fired[name]) if ledger.fired[name] else "never", departure)
    console.print(table)
    if ledger.unused:
        console.print(f"Never fired in this run: {', '.join(ledger.unused)}")
    return out.getvalue()
