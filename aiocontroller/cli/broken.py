"""Which partitions are broken, why, and since when: ``topics list --offline`` and the like.

A controller that is in charge is asked as the page asks it, and also knows since when.  Without one, the same functions
judge what ZooKeeper holds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import click

from aiocontroller.cli.finding import ControllerNotFoundError, find_controller
from aiocontroller.cli.output import iso_time, print_json, print_text, table
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from aiocontroller.cli.run import ControllerReady
    from aiocontroller.core.broken_partitions import BrokenKind

AT_ONCE = 250
SHOWN = 100
MOST = 200_000
TITLES = {"offline": "offline", "under-replicated": "under-replicated", "under-min-isr": "below min.insync.replicas"}

F = TypeVar("F", bound=Callable[..., Any])


def broken_options(function: F) -> F:
    """``--offline``, ``--under-replicated``, ``--under-min-isr`` and ``--limit``."""
    for option, text in (
        ("--under-min-isr", "List partitions whose ISR is smaller than min.insync.replicas."),
        ("--under-replicated", "List partitions whose ISR is smaller than their assignment."),
        ("--offline", "List partitions without a leader."),
    ):
        function = click.option(option, is_flag=True, help=text)(function)
    limit = click.option(
        "--limit", type=click.IntRange(1), help=f"Partitions to list [default: {SHOWN}; with --json all]."
    )
    return limit(function)


def kind_asked_for(offline: bool, under_replicated: bool, under_min_isr: bool) -> BrokenKind | None:
    """The kind whose option was given; UsageError for several."""
    from aiocontroller.core.broken_partitions import BrokenKind

    given = [kind for kind, asked in zip(BrokenKind, (offline, under_replicated, under_min_isr), strict=True) if asked]
    if len(given) > 1:
        raise click.UsageError(
            "--offline, --under-replicated and --under-min-isr list different things: give one of them"
        )
    return given[0] if given else None


def list_broken(kind: BrokenKind, limit: int | None, data: Path | None, zookeeper: str | None, as_json: bool) -> None:
    """Print the partitions of a kind, at most ``limit``: a table, or JSON."""
    most = limit if limit is not None else MOST if as_json else SHOWN
    found = _from_controller(kind, most, data) if zookeeper is None else None
    if found is None:
        found = _from_zookeeper(kind, most, data, zookeeper)
    if as_json:
        print_json(found)
    else:
        print_text(as_text(found))


def as_text(found: dict[str, Any]) -> str:
    """The partitions as text."""
    title = f"{plural(found['count'], 'partition')} {TITLES[found['state']]}"
    if not found["partitions"]:
        return f"{title}."
    rows = [
        (f"{each['topic']}-{each['partition']}", since(each), reason_in_words(each["reason"]))
        for each in found["partitions"]
    ]
    lines = [f"{title}:", "", table(("partition", "since", "reason"), rows)]
    left = found["count"] - len(rows)
    if left > 0:
        lines.append(f"… and {plural(left, 'more partition')}; --limit shows more, --json all")
    if found["from"] == "zookeeper":
        lines.append("\nRead from ZooKeeper, which does not know since when; an active aiocontroller does.")
    if not found["complete"]:
        lines.append("\nSome topics' min.insync.replicas are being read: there may be more.")
    return "\n".join(lines)


def since(each: dict[str, Any]) -> str | None:
    """A time, with ``<`` before it if the partition was broken when the cluster was read; None: not known."""
    if each["since_us"] is None:
        return None
    return ("< " if each["at_least"] else "") + iso_time(each["since_us"] // 1000)


def reason_in_words(reason: list[dict[str, Any]]) -> str:
    """``broker 2 dead since 2024-05-01T12:00:00.123Z; broker 3 alive, not caught up``."""
    return "; ".join(clause["text"] + _since_when(clause["since_us"]) for clause in reason)


def _since_when(since_us: int | None) -> str:
    return "" if since_us is None else f" since {iso_time(since_us // 1000)}"


def _from_controller(kind: BrokenKind, most: int, data: Path | None) -> dict[str, Any] | None:
    """The controller's answer; None if no controller runs here, or if it is not in charge."""
    from aiocontroller.cli.role import RefusedError

    try:
        ready = find_controller(data)
    except ControllerNotFoundError:
        return None
    try:
        return {"from": f"controller {ready.id}", **_all_pages(ready, kind, most)}
    except RefusedError as error:
        if error.status == 503:
            return None
        raise


def _all_pages(ready: ControllerReady, kind: BrokenKind, most: int) -> dict[str, Any]:
    from aiocontroller.cli.role import get_page

    found: dict[str, Any] = {"partitions": []}
    while len(found["partitions"]) < most:
        start = len(found["partitions"])
        query = urlencode({"state": kind.value, "start": start, "limit": min(AT_ONCE, most - start)})
        page = get_page(ready, f"partitions?{query}")
        found |= {**page, "start": 0, "partitions": found["partitions"] + page["partitions"]}
        if not page["partitions"]:
            break
    return found


def _from_zookeeper(kind: BrokenKind, most: int, data: Path | None, zookeeper: str | None) -> dict[str, Any]:
    import msgspec

    from aiocontroller.check.cluster_context import context_of
    from aiocontroller.cli.trees import read_any, result_of
    from aiocontroller.core.broken_view import broken_partitions

    context = context_of(result_of(read_any(None, data, zookeeper)).tree)
    found = broken_partitions(context, kind, 0, most)
    return {
        "from": "zookeeper",
        "state": kind.value,
        "topic": None,
        "start": 0,
        "count": len(context.table.broken.of_kind(kind)),
        "complete": True,
        "partitions": msgspec.to_builtins(found),
    }
