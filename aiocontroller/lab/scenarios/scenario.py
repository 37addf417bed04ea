"""Scenario files: a plan as readable text, one step per line.

    # Lines that begin with # are comments.
    cluster brokers=3 controllers=2 seed=1
    create-topic orders 1,2,3 2,3,1
    kill-broker 1
    expect leader orders-0 2
    kill-controller active then=5
    pause-broker seed=77 then=0.05

A line consists of a verb (``verbs``), its words, and optionally ``seed=`` (for drawing the words that the line does not
give) and ``then=`` (seconds until the next step; 1 by default).  After the last step the simulation heals everything,
and the cluster must become whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.scenarios.plan import Plan, ScenarioStep
from aiocontroller.lab.scenarios.verbs import VERBS

THEN_S = 1.0
ALWAYS_SHOWN = ("brokers", "controllers", "seed")
BEGINNING = Plan(seed=1, brokers=3, controllers=2, shared_id=False, takeover=False, steps=())
"""The plan that ``cluster`` changes.  The options are the plan's fields, with ``-`` for ``_``; flags have no value."""
OPTIONS = {
    name.replace("_", "-"): value for name, value in msgspec.structs.asdict(BEGINNING).items() if name != "steps"
}


class ScenarioError(BadInputError):
    """A line of a scenario file is invalid; the message names it."""


def parse_scenario(text: str, name: str = "scenario") -> Plan:
    """Return the plan for a file's text.  Raises ScenarioError, which names the line."""
    plan, steps = BEGINNING, list[ScenarioStep]()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if words[0] == "cluster":
                plan = msgspec.convert(msgspec.structs.asdict(plan) | dict(map(_option, words[1:])), Plan)
            else:
                steps.append(_step(words, number))
        except (ValueError, msgspec.ValidationError) as error:
            raise ScenarioError(f"{name}, line {number}: {error}") from None
    return msgspec.structs.replace(plan, steps=tuple(steps))


def read_scenario(path: Path) -> Plan:
    return parse_scenario(path.read_text(encoding="utf-8"), str(path))


def _option(word: str) -> tuple[str, object]:
    """Return a field of the plan and its value."""
    key, equals, value = word.partition("=")
    default = OPTIONS.get(key)
    field = key.replace("-", "_")
    if isinstance(default, bool) and not equals:
        return field, True
    if isinstance(default, tuple) and equals:
        return field, [tuple(setting.split(":", 1)) for setting in value.split(",")]
    if isinstance(default, str) and equals:
        return field, value
    if isinstance(default, int) and not isinstance(default, bool) and value.isdecimal():
        return field, int(value)
    known = [key if isinstance(v, bool) else f"{key}={v}" for key, v in OPTIONS.items()]
    raise ValueError(f"found {word!r}, expected such as {', '.join(known)}")


def _step(words: Sequence[str], line: int) -> ScenarioStep:
    if words[0] not in VERBS:
        raise ValueError(f"found {words[0]!r}, expected a verb (docs/scenarios.md lists them)")
    kind = words[0].replace("-", "_")
    options = dict(word.split("=", 1) for word in words[1:] if word.startswith(("seed=", "then=")))
    arguments = tuple(word for word in words[1:] if not word.startswith(("seed=", "then=")))
    then_s = 0.0 if kind == "expect" else THEN_S
    try:
        return ScenarioStep(kind, int(options.get("seed", line)), float(options.get("then", then_s)), arguments)
    except ValueError:
        raise ValueError(f"found {' '.join(words)!r}, expected numbers in seed= and then=") from None


def format_scenario(plan: Plan, remarks: Sequence[str] = ()) -> str:
    """Return the plan as the text of a scenario file; ``parse_scenario`` gives the same plan back."""
    cluster = ["cluster"]
    for key, default in OPTIONS.items():
        value = getattr(plan, key.replace("-", "_"))
        if key in ALWAYS_SHOWN or value != default:
            if isinstance(value, tuple):
                value = ",".join(f"{name}:{text}" for name, text in value)
            cluster.append(key if value is True else f"{key}={value}")
    return "\n".join([*(f"# {remark}" for remark in remarks), " ".join(cluster), *map(str, plan.steps)]) + "\n"
