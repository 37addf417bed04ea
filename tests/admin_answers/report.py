"""What a person reads: the size of the table, what differs, and what explains it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.admin_answers.explanations import EXPLANATIONS, Explanation, explain
from tests.admin_answers.slips import Attack, attack, unnoticed
from tests.admin_answers.table import Found, Table

EXAMPLES = 3


class Counts(NamedTuple):
    """Of one table."""

    requests: int
    """With their refusals."""
    apis: int
    versions: int
    answers: int
    differences: int
    unexplained: int


class Verdict:
    """The tables of all releases, judged."""

    def __init__(self, tables: Sequence[Table], short: bool) -> None:
        self.tables = tables
        self.short = short
        self.attacks: dict[str, Attack] = {table.name: attack(table) for table in tables}
        self.explained: Counter[Explanation] = Counter()
        self.unexplained: list[Found] = []
        for table in tables:
            for found in table.found:
                explanation = explain(found)
                if explanation is None:
                    self.unexplained.append(found)
                else:
                    self.explained[explanation] += 1

    @property
    def failed(self) -> list[str]:
        """Scenarios that did not come to their end."""
        return [each for table in self.tables for each in table.failed]

    @property
    def unused(self) -> list[Explanation]:
        """Explanations of what does not differ, or no longer."""
        played = [table.stage.version for table in self.tables]
        return [
            each for each in EXPLANATIONS if not self.explained[each] and each.is_expected(played, short=self.short)
        ]

    def summary(self) -> str:
        """A line for each release, then what explains the differences."""
        lines = [f"{'Kafka':32}{'  '.join(f'{name:>11}' for name in Counts._fields)}"]
        for table in self.tables:
            lines.append(f"{table.name:32}{'  '.join(f'{count:11}' for count in self.counts(table))}")
        lines.append(
            f"{self.explained.total()} differences explained by {len(self.explained)} of {len(EXPLANATIONS)} "
            f"explanations, {len(self.unexplained)} unexplained"
        )
        caught, slipped = (sum(made[side].total() for made in self.attacks.values()) for side in (0, 1))
        lines.append(
            f"Fields of ours, changed one at a time: {caught} changes are differences, {slipped} are explained"
        )
        lines += [f"  {count:5} x {explanation.reason}" for explanation, count in self.explained.most_common()]
        lines += [f"  unused: {explanation.reason}" for explanation in self.unused]
        return "\n".join(lines)

    def counts(self, table: Table) -> Counts:
        unexplained = sum(explain(found) is None for found in table.found)
        apis = len({api for api, _ in table.versions})
        return Counts(len(table.played), apis, len(table.versions), len(table.compared), len(table.found), unexplained)

    def as_text(self) -> str:
        return "\n".join([self.summary(), "", *self.failed, *listed(self.unexplained)]) + "\n"

    def as_json(self) -> str:
        """The counts by release, and each difference with what explains it."""
        found = {
            "releases": {table.name: self.counts(table)._asdict() for table in self.tables},
            "explanations": [
                {"place": each.place, "field": each.field, "reason": each.reason, "times": self.explained[each]}
                for each in EXPLANATIONS
            ],
            "attacks": {
                name: {"caught": made.caught.total(), "slipped": made.slipped.total()}
                for name, made in self.attacks.items()
            },
            "unnoticed": unnoticed(self.attacks.values()),
            "failed": self.failed,
            "differences": [
                {
                    "release": found.release,
                    "place": found.answer.place,
                    "field": found.difference.field,
                    "kafka": found.difference.kafka,
                    "ours": found.difference.ours,
                    "explained": None if (why := explain(found)) is None else why.reason,
                }
                for table in self.tables
                for found in table.found
            ],
        }
        return json.dumps(found, indent=1) + "\n"


def listed(unexplained: Iterable[Found]) -> list[str]:
    """By scenario and field, then by values, with the versions and releases in which it was so."""
    fields: dict[tuple[str, str], dict[tuple[str, str], list[Found]]] = defaultdict(lambda: defaultdict(list))
    for found in unexplained:
        place = found.answer.place.replace(f" v{found.answer.version}", "")
        fields[place, found.difference.kind][found.difference.kafka, found.difference.ours].append(found)
    lines = []
    for (place, kind), values in fields.items():
        lines.append(f"{place}: {kind or 'whole answer'}")
        for (kafka, ours), members in list(values.items())[:EXAMPLES]:
            lines.append(f"    Kafka {kafka[:400]}")
            lines.append(f"    ours  {ours[:400]}   ({len(members)})")
            where = sorted({f"{each.release} v{each.answer.version}" for each in members})
            lines.append(f"        {', '.join(where)}")
            at = list(dict.fromkeys(each.difference.field for each in members))
            if at != [kind]:
                lines.append(f"        at {', '.join(at[:EXAMPLES])}")
        if len(values) > EXAMPLES:
            lines.append(f"    … {len(values) - EXAMPLES} more pairs of values")
    return lines
