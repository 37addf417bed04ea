"""``aiocontroller brokers`` and ``incidents``, and ``status --watch``: what the page shows, as text.

All ask a running controller for ``/overview``, as the page does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from aiocontroller.cli.broken import TITLES, reason_in_words, since
from aiocontroller.cli.finding import find_controller
from aiocontroller.cli.output import JSON, fitted, iso_time, print_json, print_text, say, table
from aiocontroller.cli.role import controller_data, get_page
from aiocontroller.core.errors import AioControllerError
from aiocontroller.core.text import on_one_line, plural

EVERY_S = 1.0
SHOWN = 15
CLEAR = "\x1b[H\x1b[2J"


@click.command()
@controller_data
@JSON
def brokers(data: Path | None, as_json: bool) -> None:
    """Show each broker: leaders, replicas, waiting requests, last answer, and problems."""
    found = get_page(find_controller(data), "overview")
    if as_json:
        print_json({"controller": found["controller"], "brokers": found["brokers"]})
    else:
        print_text(_whose(found["controller"]) + brokers_as_text(found["brokers"]))


@click.command()
@controller_data
@JSON
def incidents(data: Path | None, as_json: bool) -> None:
    """Show incidents with their causes and phases, and failovers with their steps."""
    found = get_page(find_controller(data), "overview")
    if as_json:
        print_json({name: found[name] for name in ("controller", "incidents", "failovers")})
    else:
        print_text("\n".join(incidents_as_text(found)))


def watch(data: Path | None, as_json: bool) -> None:
    """Print the overview again and again until it is stopped: on a terminal in place, else one after the other."""
    find_controller(data)  # a wrong folder ends it at once
    while True:
        try:
            found = get_page(find_controller(data), "overview")
        except AioControllerError as error:  # another process may take the place of this one
            found = {"error": str(error)}
        if as_json:
            print_json(found)
        else:
            say((CLEAR if sys.stdout.isatty() else "") + fitted(overview_as_text(found)))
        time.sleep(EVERY_S)


def overview_as_text(found: Mapping[str, Any]) -> str:
    """The overview, as much as fits on a screen."""
    if "error" in found:
        return str(found["error"])
    lines = [_headline(found["controller"]), verdict(found), *standbys(found["instances"])]
    for kind, title in TITLES.items():
        broken = found["broken"][kind]
        if broken:
            lines += ["", f"{plural(found['counts'][kind], 'partition')} {title}:"]
            rows = [(f"{p['topic']}-{p['partition']}", since(p), reason_in_words(p["reason"])) for p in broken[:SHOWN]]
            lines.append(table(("partition", "since", "reason"), rows))
    if found["broken"]["unreadable"]:
        lines.append("")
        lines += [f"Unreadable: {z['path']}: found {z['found']}" for z in found["broken"]["unreadable"][:SHOWN]]
    lines += ["", brokers_as_text(_worth_a_look(found["brokers"]))]
    if len(found["brokers"]) > SHOWN:
        lines.append(f"Of {plural(len(found['brokers']), 'broker')}; aiocontroller brokers shows all.")
    lines += _moves(found["reassignments"]) + _deletions(found["deletions"])
    if found["events"]:
        lines += ["", *(f"{iso_time(e['at_us'] // 1000)}  {on_one_line(e['text'])}" for e in found["events"][:SHOWN])]
    return "\n".join(lines)


def standbys(found: Mapping[str, Any]) -> Iterator[str]:
    """Lines with each other instance of this program, and whether it could take the role."""
    others = [each for each in found["instances"] if not each["active"]]
    if found["problem"]:
        yield f"Standbys: not known: {found['problem']}"
    elif len(others) == len(found["instances"]):
        return  # none of ours is the controller
    elif not others:
        yield "No standby runs."
    for each in others:
        lag = f", {each['lag_s']:,} s behind" if each["lag_s"] else ""
        reason = f" ({each['reason']})" if each["reason"] else ""
        copy = f"; its copy is {each['standby']}{lag}" if each["standby"] else ""
        yield f"Controller {each['id']} on {each['host']}: {each['state']}{reason}{copy}."


def _moves(found: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            f"{each['topic']}-{each['partition']}",
            f"{len(each['in_sync'])} of {len(each['adding'])}",
            each["adding"],
            each["waits_for"] or None,
        )
        for each in found["partitions"][:SHOWN]
    ]
    return _work(found, "reassignment", ("partition", "caught up", "adding", "waits for brokers"), rows)


def _deletions(found: Mapping[str, Any]) -> list[str]:
    rows = [(d["topic"], d["state"], d["replicas_left"], d["waits_for"] or None) for d in found["topics"][:SHOWN]]
    return _work(found, "deletion", ("topic", "state", "replicas left", "waits for"), rows)


def _work(found: Mapping[str, Any], noun: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    if not found["count"]:
        return []
    pace = found["pace"]
    by = pace["expected_us"]
    end = "" if by is None else f"; at this pace the rest by about {iso_time(by // 1000)}"
    lines = ["", f"{plural(found['count'], noun)} in progress, {pace['ended']:,} done{end}:", table(headings, rows)]
    left = found["count"] - len(rows)
    return [*lines, f"… and {left:,} more"] if left else lines


def verdict(found: Mapping[str, Any]) -> str:
    """One line that says whether anything is wrong."""
    if not found["controller"]["active"]:
        return "Only the active controller knows what is broken."
    counts = [f"{found['counts'][kind]:,} {title}" for kind, title in TITLES.items() if found["counts"][kind]]
    away = sum(each["state"] != "live" for each in found["brokers"])
    words = [f"Partitions: {', '.join(counts)}."] if counts else []
    words += [f"Brokers not live: {away}."] if away else []
    unreadable = found["counts"]["unreadable"]
    words += [f"Unreadable znodes: {unreadable:,}."] if unreadable else []
    return " ".join(words) or "All is well."


def brokers_as_text(found: Sequence[Mapping[str, Any]]) -> str:
    """A table of the brokers."""
    rows = []
    for each in found:
        state = each["state"]
        if each["since_us"] is not None:
            state += f" since {iso_time(each['since_us'] // 1000)}"
        waiting = None if each["queued"] is None else each["queued"] + each["in_flight"]
        answered = None if each["answered_us"] is None else iso_time(each["answered_us"] // 1000)
        rows.append(
            (each["id"], state, each["leaders"], each["replicas"], waiting, answered, "; ".join(_remarks(each)))
        )
    return table(("broker", "state", "leaders", "replicas", "waiting requests", "last answer", "remarks"), rows)


def _worth_a_look(brokers: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """As many brokers as a screen holds; those that are not live or have remarks come first."""
    if len(brokers) <= SHOWN:
        return brokers
    return sorted(brokers, key=lambda each: (each["state"] == "live", not any(_remarks(each))))[:SHOWN]


def _remarks(broker: Mapping[str, Any]) -> Iterator[str]:
    yield from broker["evidence"]
    if broker["failed_replicas"]:
        yield f"{plural(broker['failed_replicas'], 'replica')} on failed log directories"
    if broker["owed"]:
        yield f"{plural(broker['owed'], 'replica')} to delete, of {', '.join(broker['owed_topics'])}"


def incidents_as_text(found: Mapping[str, Any]) -> list[str]:
    """Lines with the incidents, the latest first, and the failovers."""
    lines = [] if found["incidents"] else ["No incident since this controller took the role."]
    for each in found["incidents"]:
        ended = "ongoing" if each["ended_us"] is None else f"ended {iso_time(each['ended_us'] // 1000)}"
        before = "before " if each["found_so"] else ""
        worst = ", ".join(f"{n:,} {TITLES[kind]}" for kind, n in each["worst"].items())
        lines.append(f"Incident from {before}{iso_time(each['began_us'] // 1000)}, {ended}; at worst {worst}")
        lines += [f"  {iso_time(phase['at_us'] // 1000)}  {on_one_line(phase['text'])}" for phase in each["phases"]]
        if each["more_phases"]:
            lines.append(f"  … and {plural(each['more_phases'], 'more phase')}")
    for each in found["failovers"]:
        total_us = sum(step["duration_us"] for step in each["steps"])
        lines.append(
            f"Failover to epoch {each['epoch']} at {iso_time(each['at_us'] // 1000)}: {total_us / 1000:,.1f} ms"
        )
        lines += [f"  {step['duration_us'] / 1000:8,.1f} ms  {step['step']}" for step in each["steps"]]
    return lines


def _headline(controller: Mapping[str, Any]) -> str:
    if controller["active"]:
        since_us = controller["since_us"]
        in_office = "" if since_us is None else f", active since {iso_time(since_us // 1000)}"
        return f"Controller {controller['id']}, epoch {controller['epoch']}{in_office}."
    holder = "the role is vacant" if controller["holder"] is None else f"{controller['holder']} holds the role"
    standby = controller["standby"]
    lag = f", {standby['lag_ms']:,.0f} ms behind" if standby["state"] == "warm" else ""
    return f"Controller {controller['id']}: {controller['state']}; {holder}; its copy is {standby['state']}{lag}."


def _whose(controller: Mapping[str, Any]) -> str:
    return "" if controller["active"] else _headline(controller) + "\n\n"
