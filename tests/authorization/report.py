"""What a person reads: the size of the table, what differs grouped by API and field, and what explains it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from tests.authorization.allowances import ALLOWANCES, Allowance, explain
from tests.authorization.asking import name_of
from tests.authorization.compare import BY_NATURE
from tests.authorization.principals import PLAIN
from tests.authorization.table import Found, Table

EXAMPLES = 4
MAX_VALUES = 8


class Verdict:
    """A table, judged."""

    def __init__(self, table: Table, short: bool) -> None:
        self.table = table
        self.short = short
        self.explained: Counter[Allowance] = Counter()
        self.unexplained: list[Found] = []
        for found in table.found:
            allowance = explain(found)
            if allowance is None:
                self.unexplained.append(found)
            else:
                self.explained[allowance] += 1

    @property
    def unused(self) -> list[Allowance]:
        """Explanations of what does not differ, or no longer."""
        if not self.table.whole:
            return []
        return [each for each in ALLOWANCES if not self.explained[each] and not (self.short and each.only_in_full)]

    def summary(self) -> str:
        cells = len({found.place.number for found in self.table.found})
        lines = [
            f"{self.table}",
            f"{len(self.table.found)} differences in {cells} cells: {self.explained.total()} explained by "
            f"{len(self.explained)} of {len(ALLOWANCES)} explanations, {len(self.unexplained)} unexplained",
        ]
        lines += [f"  {count:5} x {allowance}" for allowance, count in self.explained.most_common()]
        lines += [f"  unused: {allowance}" for allowance in self.unused]
        return "\n".join(lines)

    def dump(self) -> str:
        """All that is not explained, for developers."""
        by_api = unexplained_by_api(self.unexplained)
        unanswered = dict.fromkeys(f"{each.ask} v{each.version}" for each in self.table.unanswered)
        worst = sorted(by_api.items(), key=lambda each: -len(each[1]))
        lines = [self.summary(), "", "not compared: " + "; ".join(f"{k} ({why})" for k, why in BY_NATURE.items()), ""]
        lines += ["closed by the broker, for some: " + ", ".join(unanswered), ""]
        lines += [f"{len(found):6} {name_of(api)}" for api, found in worst]
        for api, found in by_api.items():
            lines += ["", f"== {name_of(api)} ({api}): {len(found)}", *of_api(found)]
        return "\n".join(lines) + "\n"


def unexplained_by_api(unexplained: Iterable[Found]) -> Mapping[int, list[Found]]:
    by_api: dict[int, list[Found]] = defaultdict(list)
    for found in unexplained:
        by_api[found.place.ask.api].append(found)
    return dict(sorted(by_api.items()))


def of_api(unexplained: Iterable[Found]) -> list[str]:
    """By request and field, then by values: in which versions, for whom, with examples."""
    fields: dict[tuple[str, str], dict[tuple[str, str], list[Found]]] = defaultdict(lambda: defaultdict(list))
    for found in unexplained:
        difference = found.difference
        fields[str(found.place.ask), difference.kind][difference.kafka, difference.ours].append(found)
    lines = []
    for (request, kind), values in fields.items():
        lines.append(f"{request}: {kind or 'whole answer'}")
        for (kafka, ours), members in list(values.items())[:MAX_VALUES]:
            lines.append(f"    Kafka {kafka} ≠ ours {ours}   ({len(members)})")
            versions = ", ".join(str(v) for v in sorted({found.place.version for found in members}))
            lines.append(f"        versions {versions}; {_ways(members)}")
            where = list(dict.fromkeys(found.difference.field for found in members))
            if where != [kind]:
                more = f" … {len(where) - EXAMPLES} more" if len(where) > EXAMPLES else ""
                lines.append(f"        at {', '.join(where[:EXAMPLES])}{more}")
        if len(values) > MAX_VALUES:
            rest = sum(len(members) for members in list(values.values())[MAX_VALUES:])
            lines.append(f"    … {len(values) - MAX_VALUES} more pairs of values ({rest})")
    return lines


def _ways(members: Iterable[Found]) -> str:
    """``allow (SSL, MTLS), none (SSL)``."""
    listeners: dict[str, list[str]] = defaultdict(list)
    for found in members:
        way = found.place.way
        at = way.listener + ("/PLAIN" if way.proof == PLAIN else "")
        if at not in listeners[way.who]:
            listeners[way.who].append(at)
    return ", ".join(f"{who} ({', '.join(at)})" for who, at in listeners.items())
