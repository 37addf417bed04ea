"""The oracle, attacked: an answer of ours is changed by one field, and the table must not agree with it any more."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.admin_answers.explanations import explain
from tests.admin_answers.reading import BY_NATURE, differences
from tests.admin_answers.table import Found, Table
from tests.comparing_answers import kind_of


class Attack(NamedTuple):
    """What became of one field of an API, changed once in each scenario."""

    caught: Counter[tuple[str, str]]
    """(API, field) -> how often."""
    slipped: Counter[tuple[str, str]]


def unnoticed(attacks: Iterable[Attack]) -> list[tuple[str, str]]:
    """Fields that could be wrong everywhere; but texts for people, of which both sides have their own."""
    attacks = list(attacks)
    slipped = dict.fromkeys(field for made in attacks for field in made.slipped)
    wrong = [field for field in slipped if not any(field in made.caught for made in attacks)]
    return [(api, field) for api, field in wrong if not field.endswith("errorMessage")]


def attack(table: Table) -> Attack:
    made = Attack(Counter(), Counter())
    done: set[tuple[str, str]] = set()
    for scenario, answer, kafka, ours in table.compared:
        if not isinstance(ours, dict):
            continue
        before = set(differences(kafka, ours))
        for path, value in list(_fields(ours)):
            field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
            kind = kind_of(field)
            if (str(scenario), kind) in done or path[-1] in BY_NATURE:
                continue
            done.add((str(scenario), kind))
            changed = copy.deepcopy(ours)
            _put(changed, path, _other(value))
            new = [each for each in differences(kafka, changed) if each not in before]
            caught = any(explain(Found(table.stage.version, scenario, answer, each)) is None for each in new)
            (made.caught if caught else made.slipped)[answer.api.name, kind] += 1
    return made


def _fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Values that are no messages, by how they are reached; a list of messages by its elements, and as a whole."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _fields(each, (*path, name))
        return
    if isinstance(value, list):
        for at, each in enumerate(value):
            if isinstance(each, dict):
                yield from _fields(each, (*path, at))
    yield path, value


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value + "?"
    if isinstance(value, list):
        return value[1:] or ["?"]
    return "?"


def _put(message: Any, path: tuple[Any, ...], value: Any) -> None:
    for part in path[:-1]:
        message = message[part]
    message[path[-1]] = value
