"""What an analysis says beside the truth: windows found and invented, causes, deaths, and whether its bounds hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]

NOT_AN_OUTAGE = ("creation", "deletion")
READS_US = 1_500_000
"""A new controller reads the brokers' registrations within this time."""
CLOCKS_US = 250_000
"""Between the end of a session and what logs say of it, beside what a look shows."""
SETTLES_US = 1_500_000
"""Between a leader that ZooKeeper has and the same leader in a log, on a busy machine with 20 ms between looks."""
NOTICES_US = 2_500_000
"""The most that a controller, starved by other programs, takes to notice a registration's end: 1.6 s were seen."""


class Silence(NamedTuple):
    """ZooKeeper stood still, or was cut off, for so long that sessions ended."""

    from_us: int
    to_us: int
    expired: list[Row]
    """As ``deaths``: brokers whose registrations were gone, from when until when.  Their processes went on."""


class Outage(NamedTuple):
    topic: str
    partition: int
    start_us: int
    """When its leader died, or it had no leader any more: at the earliest."""
    start_latest_us: int
    end_us: int
    """The earliest at which ZooKeeper can have named the next leader."""
    latest_us: int
    broker: int
    """The process that died, or lost its session."""
    gone_us: int
    """When it did."""
    causes: tuple[str, ...]
    """``unclean`` (unless the leader's log was proven to be complete), ``controller_failover`` (its registration ended
    while there was no controller) or ``broker_death``; the last two where a controller was just reading the
    registrations."""


def silences(truth: Row) -> list[Silence]:
    """Of what was done to ZooKeeper, that which cost a process its session."""
    found = []
    registered = truth.get("registered", ())
    for stall in (*truth.get("stalls", ()), *truth.get("cuts", ())):
        until_us = stall["to_us"] + truth["session_us"]
        expired = [
            {
                "broker": broker,
                "at_us": at_us,
                "back_us": next((b[1] for b in registered if b[2] == broker and b[3] and b[1] > at_us), None),
            }
            for _, at_us, broker, made in registered
            if made is None and stall["from_us"] < at_us <= until_us
        ]
        lost_role = any(stall["from_us"] < c[1] <= until_us and c[2] is None for c in truth.get("controllers", ()))
        if expired or lost_role:
            found.append(Silence(stall["from_us"], stall["to_us"], expired))
    return found


def true_outages(truth: Row) -> list[Outage]:
    """Of each partition the times in which it had no leader or a dead one: by deaths, and by what ZooKeeper showed."""
    found = []
    vacant = vacancies(truth)
    deaths = [*truth["deaths"], *(each for silence in silences(truth) for each in silence.expired)]
    deaths.sort(key=lambda death: death["at_us"])
    by_partition: dict[tuple[str, int], list[Sequence[Any]]] = {}
    for change in truth["changes"]:
        by_partition.setdefault((change[2], change[3]), []).append(change)
    for (topic, partition), changes in sorted(by_partition.items()):
        opened: tuple[int, int, int, int] | None = None
        in_sync: list[int] = []
        led_us, before = 0, -1
        for now, after in zip(changes, [*changes[1:], None], strict=True):
            earliest_us, latest_us, _, _, leader, isr = now
            if leader is None:  # deleted
                opened = None
                continue
            if leader >= 0 and opened is not None:
                clean = leader in in_sync or _is_complete(truth, (topic, partition, leader), earliest_us, latest_us)
                causes = _causes(truth, vacant, *opened[2:]) if clean else ("unclean",)
                found.append(Outage(topic, partition, *opened[:2], earliest_us, latest_us, *opened[2:], causes))
                opened = None
            in_sync = isr
            led_us = led_us if leader == before else latest_us
            before = leader
            until_us = after[1] if after is not None else None
            death = _death_of(deaths, leader, led_us, latest_us, until_us)
            if death is not None and opened is None and (after is None or after[4] != leader):
                served = "how" not in death and after is not None  # until its partition was taken from it
                since = tuple(after[:2]) if served and after else (death["at_us"], death["at_us"])
                opened = (*since, leader, death["at_us"])
    return found


def _is_complete(truth: Row, elected: tuple[str, int, int], earliest_us: int, latest_us: int) -> bool:
    """Whether, by the logs' ends that its controller recorded, this leader had everything when it was elected."""
    return any(
        (*of,) == elected and earliest_us - SETTLES_US <= at_us <= latest_us + SETTLES_US
        for at_us, *of in truth.get("complete", ())
    )


def vacancies(truth: Row) -> list[tuple[int, int]]:
    """From when until when there was no controller, or a dead one, or one that heard nothing from ZooKeeper."""
    found = [(c["at_us"], c["successor_us"]) for c in truth.get("controllers_killed", ())]
    changes = truth.get("controllers", ())
    for now, after in zip(changes, [*changes[1:], None], strict=False):
        if now[2] is None:
            held = [each["from_us"] for each in (*truth["stalls"], *truth["cuts"])
                    if each["from_us"] < now[1] <= each["to_us"] + truth["session_us"]]  # fmt: skip
            found.append((min([now[0], *held]), after[1] if after else truth["steps"][-1]["to_us"]))
    for death in truth["deaths"]:
        if death["was_controller"]:
            later = [c[1] for c in changes if c[2] is not None and c[0] > death["at_us"]]
            # An older recording does not hold the controllers; the role ends with the registration.
            later = later or [
                c[1] for c in truth["registrations"] if c[1] > death["at_us"] and death["broker"] not in c[2]
            ]
            found.append((death["at_us"], later[0] if later else death["at_us"]))
    return found


def _causes(truth: Row, vacant: Iterable[tuple[int, int]], broker: int, gone_us: int) -> tuple[str, ...]:
    ended = [c[:2] for c in truth["registrations"] if c[1] >= gone_us and broker not in c[2]]
    first_us, last_us = ended[0] if ended else (gone_us, gone_us)
    if any(from_us <= last_us and first_us <= to_us for from_us, to_us in vacant):
        return ("controller_failover",)
    if any(to_us < first_us <= to_us + READS_US for _, to_us in vacant):
        return ("controller_failover", "broker_death")
    return ("broker_death",)


def _death_of(deaths: Iterable[Row], leader: int, led_us: int, from_us: int, until_us: int | None) -> Row | None:
    """The death that ended this leadership, since ``led_us``; its last state is of ``from_us``.

    A controller may take the leader's partition from it when it is just back.
    """
    within = [d for d in deaths if d["broker"] == leader and (until_us is None or d["at_us"] <= until_us)]
    for death in reversed(within):
        back_us = death["back_us"] or 0
        just_back = death["at_us"] >= led_us and until_us is not None and until_us <= back_us + SETTLES_US
        if death["at_us"] >= from_us or back_us > from_us or just_back:
            return death
    return None


COLUMNS = (
    "release", "controller", "recall", "precision", "causes", "deaths", "controllers", "ZooKeeper", "bounds",
    "onset off by (median)", "(most)",
)  # fmt: skip


class Figures(NamedTuple):
    outages: int
    found: int
    invented: list[Any]
    missed: list[Outage]
    causes: int
    """Of those found, how many have exactly the true cause and broker."""
    deaths: int
    deaths_found: int
    controllers: int
    """That were killed, and were no brokers."""
    controllers_found: int
    silences: int
    """Of ZooKeeper, that ended sessions."""
    silences_found: int
    onsets_us: list[int]
    """How far from the truth the onset of each incident that is a death."""
    bounds: int
    bounds_held: int
    false_incidents: list[Any]
    wrong: list[str]
    """Other columns of incidents that are not as it was, and topics whose creation or deletion counts as an outage."""
    felt: int
    """Of the outages, how many a client felt that wrote to the partition all the time."""

    def words(self, name: str) -> str:
        reported = self.found + len(self.invented)
        onsets = sorted(self.onsets_us)
        return (
            f"{name}: recall {self.found}/{self.outages}, precision {self.found}/{reported}, "
            f"causes {self.causes}/{self.found}, deaths {self.deaths_found}/{self.deaths}, "
            f"controllers {self.controllers_found}/{self.controllers}, "
            f"ZooKeeper {self.silences_found}/{self.silences}, "
            f"bounds held {self.bounds_held}/{self.bounds}, "
            f"onset off by {onsets[len(onsets) // 2] / 1000 if onsets else 0:.0f} ms (median), "
            f"{onsets[-1] / 1000 if onsets else 0:.0f} ms (most), "
            f"incidents that were none: {len(self.false_incidents)}; a client felt {self.felt} of the outages"
        )

    def row(self, release: str, controller: str) -> tuple[str, ...]:
        """Of ``COLUMNS``: found of all."""
        onsets = [f"{us / 1000:.0f} ms" for us in sorted(self.onsets_us)] or ["-"]
        return (
            release, controller, f"{self.found}/{self.outages}", f"{self.found}/{self.found + len(self.invented)}",
            f"{self.causes}/{self.found}", f"{self.deaths_found}/{self.deaths}",
            f"{self.controllers_found}/{self.controllers}", f"{self.silences_found}/{self.silences}",
            f"{self.bounds_held}/{self.bounds}", onsets[len(onsets) // 2], onsets[-1],
        )  # fmt: skip

    def failures(self) -> list[str]:
        wanted = {
            "recall below 1.0": not self.missed,
            "precision below 1.0": not self.invented,
            "causes below 95 %": self.causes >= 0.95 * self.found,
            "deaths missing": self.deaths_found == self.deaths,
            "controllers' deaths missing": self.controllers_found == self.controllers,
            "ZooKeeper's silences missing": self.silences_found == self.silences,
            "bounds hold for less than 99 %": self.bounds_held >= 0.99 * self.bounds,
            "incidents that were none": not self.false_incidents,
            "columns that are wrong": not self.wrong,
        }
        return [words for words, holds in wanted.items() if not holds]


def compared(truth: Row, windows: Iterable[Row], incidents: Iterable[Row]) -> Figures:
    """``windows`` and ``incidents`` are rows of gold, of one cluster."""
    expected = true_outages(truth)
    every = [w for w in windows if w["kind"] != "under_replicated"]
    counted = [w for w in every if w["cause"] not in NOT_AN_OUTAGE]
    wrong = [words for w in every if w["cause"] in NOT_AN_OUTAGE and (words := _not_as_planned(truth, w))]
    left, invented, causes, bounds, held = list(expected), [], 0, 0, 0
    for window in sorted(counted, key=lambda w: w["start_us"]):
        match = next((outage for outage in left if _same(outage, window)), None)
        if match is None:
            invented.append(window)
            continue
        left.remove(match)
        causes += window["cause"] in match.causes and window["broker"] == match.broker
        bounds += 1
        error_us = window["onset_error_us"]
        held += match.start_us - error_us <= window["onset_us"] <= match.start_latest_us + error_us
    left_of: dict[str, list[Any]] = {
        "broker": list(truth["deaths"]),
        "controller": list(truth.get("controllers_killed", ())),
        "zookeeper": [{"at_us": silence.from_us, "to_us": silence.to_us} for silence in silences(truth)],
    }
    wanted = {what: len(rows) for what, rows in left_of.items()}
    onsets, false_incidents = [], []
    for row in incidents:
        what = row["what"] if row["what"] in left_of else "broker"
        death = next((d for d in left_of[what] if _IS[what](d, row)), None)
        if death is None:
            false_incidents.append(row)
            continue
        left_of[what].remove(death)
        off_us = abs(row["onset_us"] - death["at_us"])
        onsets.append(off_us)
        bounds += 1
        held += off_us <= row["onset_error_us"]
        wrong += _wrong_columns(truth, expected, what, death, row)
    return Figures(
        len(expected), len(expected) - len(left), invented, left, causes,
        *(each for what in wanted for each in (wanted[what], wanted[what] - len(left_of[what]))),
        onsets, bounds, held, false_incidents, wrong,
        sum(any(_felt(outage, gap) for gap in truth["felt"]) for outage in expected),
    )  # fmt: skip


def _not_as_planned(truth: Row, window: Row) -> str:
    """Say what is wrong of a window that shall be a topic's creation or deletion; empty if it is one."""
    name = f"{window['topic']}-{window['partition']}, {window['cause']} at {window['start_us']}"
    changes = [c for c in truth["changes"] if (c[2], c[3]) == (window["topic"], window["partition"])]
    if window["cause"] == "creation":
        # The first look at a topic is some time after its creation.
        at = [(c[0] if before else 0, c[1]) for before, c in zip([None, *changes], changes, strict=False)
              if c[4] is not None and (before is None or before[4] is None)]  # fmt: skip
    else:
        at = [c[:2] for c in changes if c[4] is None]
    if window["end_us"] is None:
        return f"{name}: it has no end"
    if any(c[0] - SETTLES_US <= window["end_us"] <= c[1] + SETTLES_US for c in at):
        return ""
    return f"{name}: no such thing happened when it ended, at {window['end_us']}"


def _wrong_columns(truth: Row, outages: Sequence[Outage], what: str, death: Row, row: Row) -> list[str]:
    """Compare an incident with its ``death`` (of a controller, or the silence of ZooKeeper)."""
    if what == "zookeeper":
        (silence,) = [each for each in silences(truth) if each.from_us == death["at_us"]]
        of_it = {(expired["broker"], expired["at_us"]) for expired in silence.expired}
    else:
        of_it = {(death["broker"], death["at_us"])} if what == "broker" else set()
    own = [outage for outage in outages if (outage.broker, outage.gone_us) in of_it]
    name = f"{row['what']} {row['broker']} at {death['at_us']}"
    wrong = []

    def check(column: str, expected: object, holds: bool) -> None:
        if not holds:
            wrong.append(f"{name}: {column} is {row[column]}, expected {expected}")

    check("partitions", len(own), row["partitions"] == len({outage[:2] for outage in own}))
    check("topics", len({outage.topic for outage in own}), row["topics"] == len({outage.topic for outage in own}))
    check("still_open", 0, row["still_open"] == 0)
    if own:
        first, last = max(outage.end_us for outage in own), max(outage.latest_us for outage in own)
        close = row["led_again_us"] is not None and first - SETTLES_US <= row["led_again_us"] <= last + SETTLES_US
        check("led_again_us", (first, last), close)
    if row["in_sync_us"] is not None:
        times = _whole_again(truth)
        check("in_sync_us", "a time when a partition was in sync again or led again", any(
            from_us - SETTLES_US <= row["in_sync_us"] <= to_us + SETTLES_US
            for from_us, to_us in [*times, *((outage.end_us, outage.latest_us) for outage in own)]))  # fmt: skip
    if what == "broker":
        ended = [c[:2] for c in truth["registrations"] if c[1] > death["at_us"] and death["broker"] not in c[2]]
        if ended:
            elected_us = min((outage.latest_us for outage in own), default=0)
            noticed_us = ended[0][1] + SETTLES_US
            if elected_us > noticed_us:  # a controller notices before it elects
                noticed_us = min(elected_us, ended[0][1] + NOTICES_US)
            from_us, to_us = ended[0][0] - CLOCKS_US, noticed_us
            check("session_end_us", (from_us, to_us), from_us <= row["session_end_us"] <= to_us)
    _check_controller(truth, what, death, row, check)
    return wrong


def _check_controller(truth: Row, what: str, death: Row, row: Row, check: Any) -> None:
    holders = [c for c in truth.get("controllers", ()) if c[2] is not None]
    before = [c[2] for c in holders if c[1] <= death["at_us"]]
    after = [c for c in holders if c[0] > death["at_us"]]
    if not holders:  # an older recording: only the controller at the beginning of each step
        after = [(0, 0, s["controller"]) for s in truth["steps"] if s["from_us"] > death["at_us"]]
    if before:
        check("controller_before", before[-1], row["controller_before"] == before[-1])
    if after and (what == "controller" or death.get("was_controller")):
        check("controller_after", after[0][2], row["controller_after"] == after[0][2])
    elif row["controller_after"] is not None and holders:
        elected = [c[2] for c in after if c[0] - SETTLES_US <= row["elected_us"] <= c[1] + SETTLES_US]
        check("controller_after", elected, row["controller_after"] in elected)


def _whole_again(truth: Row) -> list[tuple[int, int]]:
    """When partitions had all their replicas in sync again."""
    copies: dict[tuple[str, int], int] = {}
    for change in truth["changes"]:
        if change[4] is not None:
            copies.setdefault((change[2], change[3]), len(change[5]))  # all are in sync when a topic is created
    return [(c[0], c[1]) for c in truth["changes"] if c[4] is not None and len(c[5]) >= copies[c[2], c[3]]]


def _felt(outage: Outage, gap: Sequence[Any]) -> bool:
    from_us, to_us, topic, partition = gap
    return (topic, partition) == outage[:2] and from_us < outage.end_us and to_us > outage.start_us


def _same(outage: Outage, window: Row) -> bool:
    if (outage.topic, outage.partition) != (window["topic"], window["partition"]) or window["end_us"] is None:
        return False
    ends = outage.end_us - SETTLES_US <= window["end_us"] <= outage.latest_us + SETTLES_US
    return ends and window["start_us"] >= outage.gone_us - window["error_us"] - SETTLES_US


def _is(death: Row, row: Row) -> bool:
    """By what is surely known of both: who, and that it was noticed while the broker was away."""
    away_until_us = (death["back_us"] or row["noticed_us"]) + SETTLES_US
    return bool(row["broker"] == death["broker"] and death["at_us"] <= row["noticed_us"] <= away_until_us)


def _is_controllers(death: Row, row: Row) -> bool:
    elected = death["at_us"] <= row["elected_us"] <= death["successor_us"] + SETTLES_US
    return bool(row["controller_before"] == death["controller"] and elected)


def _is_silence(silence: Row, row: Row) -> bool:
    return bool(silence["at_us"] - row["onset_error_us"] <= row["onset_us"] <= silence["to_us"])


_IS = {"broker": _is, "controller": _is_controllers, "zookeeper": _is_silence}
