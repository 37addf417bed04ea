"""Ways to get eligible replicas wrong: each elects a replica whose log has lost acknowledged records (I13, I14).

One leaves replicas in the ISR that are not in sync; it costs records only if the new leader dies within milliseconds,
so any check may find it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from aiocontroller.controller import broker_starts as kept_starts
from aiocontroller.core import broker_starts, election, eligible_replicas, unclean_recovery
from aiocontroller.core.broker_starts import Incarnation, Observed
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Spare
from aiocontroller.core.ids import Eligible, MinIsr
from aiocontroller.lab.simulation.zoo import Bug, Patch


def _no_start_is_unclean() -> list[Patch]:
    original = broker_starts.observed

    def observed(starts: Any, registered: Any, registrations: int, unreadable: Any = (), closed: Any = ()) -> Observed:
        look = original(starts, registered, registrations, unreadable, closed)
        brokers = {broker: known._replace(clean_from=0) for broker, known in look.starts.brokers.items()}
        return Observed(replace(look.starts, brokers=brokers), [])

    return [(broker_starts, "observed", observed)]


def _a_start_is_clean_if_the_broker_ever_stopped_cleanly() -> list[Patch]:
    original = broker_starts.observed

    def observed(starts: Any, registered: Any, registrations: int, unreadable: Any = (), closed: Any = ()) -> Observed:
        look = original(starts, registered, registrations, unreadable, closed)
        stopped = {broker for broker, known in starts.brokers.items() if known.stopping}
        brokers = {
            broker: Incarnation(known.epoch, starts.brokers[broker].clean_from, stopping=True)
            if broker in stopped
            else known
            for broker, known in look.starts.brokers.items()
        }
        unclean = [broker for broker in look.unclean if broker not in stopped]
        return Observed(replace(look.starts, brokers=brokers), unclean)

    return [(broker_starts, "observed", observed)]


def _a_stop_is_clean_however_it_ends() -> list[Patch]:
    def closed(shell: Any, starts: Any) -> list[int]:
        return list(starts.brokers)

    return [(kept_starts, "_closed", closed)]


def _what_is_registered_leads_on() -> list[Patch]:
    async def take_over(shell: Any, registered: Any, registrations: int, found: Any) -> Any:
        await original(shell, registered, registrations, found)
        return registered

    original = kept_starts.take_over
    return [(kept_starts, "take_over", take_over)]


def _one_more_is_needed_than_brokers_need() -> list[Patch]:
    def more(min_isr: MinIsr) -> MinIsr:
        return min_isr._replace(value=min_isr.value + 1)

    def enter(context: Any, decisions: Any, positions: Any, min_isrs: Mapping[bytes, MinIsr]) -> None:
        entered(context, decisions, positions, {topic: more(min_isr) for topic, min_isr in min_isrs.items()})

    def eligible(context: Any, row: int, min_isr: MinIsr | None) -> tuple[int, ...]:
        return counted(context, row, None if min_isr is None else more(min_isr))

    entered, counted = eligible_replicas.enter, eligible_replicas.eligible_replicas
    return [(eligible_replicas, "enter", enter), (election, "eligible_replicas", eligible)]


def _eligible_with_any_log() -> list[Patch]:
    return [(eligible_replicas, "_has_lost_nothing_since", lambda context, broker, epoch: True)]


def _entered_after_an_unclean_start() -> list[Patch]:
    original = eligible_replicas.eligible_after

    def after(context: ControllerContext, *args: Any) -> Eligible | None:
        """Treat what a broker's earlier incarnation had as what its present one has."""
        starts, last_epochs = context.starts, context.last_epochs
        if starts is None:
            return original(context, *args)
        known = {broker: each._replace(clean_from=0) for broker, each in starts.brokers.items()}
        context.starts = replace(starts, brokers=known)
        context.last_epochs = {broker: known[broker].epoch for broker in last_epochs if broker in known}
        try:
            return original(context, *args)
        finally:
            context.starts, context.last_epochs = starts, last_epochs

    return [(eligible_replicas, "eligible_after", after)]


def _eligible_as_long_as_it_is_written() -> list[Patch]:
    def still(context: ControllerContext, row: int, min_isr: Any) -> list[tuple[int, int]]:
        written = context.table.eligible.get(row)
        return [] if written is None else list(written.replicas)

    return [(eligible_replicas, "_still_eligible", still)]


def _the_isr_stays_with_an_eligible_leader() -> list[Patch]:
    return [(Spare, "isr", lambda self, leader, isr: (leader, *(r for r in isr if r != leader)))]


def _a_failed_disk_costs_nothing() -> list[Patch]:
    return [(broker_starts, "disk_failed", lambda starts, broker: starts)]


def _all_replicas_are_eligible() -> list[Patch]:
    def eligible(context: ControllerContext, row: int, min_isr: Any) -> tuple[int, ...]:
        return context.table.replicas(row)

    return [(election, "eligible_replicas", eligible)]


def _an_unproven_member_leads_unasked() -> list[Patch]:
    return [(unclean_recovery, "unproven_replicas", lambda context, row, unclean: eligible_replicas.NONE_UNPROVEN)]


def _new(name: str, patches: Callable[[], list[Patch]], source: str = "design") -> Bug:
    return Bug(f"data: {name}", source, patches, data=True, restarts=True)


ELIGIBLE_BUGS = [
    _new("an unclean start costs no eligibility", _no_start_is_unclean, "KIP-966"),
    _new("one clean stop is good for all later starts", _a_start_is_clean_if_the_broker_ever_stopped_cleanly),
    _new("a broker that loses power while it stops has stopped cleanly", _a_stop_is_clean_however_it_ends),
    _new("a leader that restarted uncleanly between two terms leads on", _what_is_registered_leads_on),
    _new(
        "a replica that leaves an ISR that is large enough is eligible",
        _one_more_is_needed_than_brokers_need,
        "KIP-966",
    ),
    _new("eligible replicas are not judged by their brokers' starts", _eligible_with_any_log),
    _new("replicas are entered as eligible after an unclean start", _entered_after_an_unclean_start),
    _new("what a state says of eligible replicas counts as it stands", _eligible_as_long_as_it_is_written),
    Bug(
        "the ISR stays when an eligible replica leads", "KIP-966", _the_isr_stays_with_an_eligible_leader, restarts=True
    ),
    _new("a failed disk costs no eligibility", _a_failed_disk_costs_nothing),
    _new("a partition with an eligible replica may be led by any", _all_replicas_are_eligible),
    _new("an unproven member of the ISR leads although a better log lives", _an_unproven_member_leads_unasked),
]
