"""The summary as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.analytics.report.gather import Cluster, Content, Row
from aiocontroller.analytics.summary import duration, known_duration, moment, since_onset
from aiocontroller.core.text import plural

NAMED = 12
"""The number of brokers that a sentence names."""

SURE = 5
"""A figure must be this many times its error bound to appear in the headline."""

_HOW = {
    "killed": "was killed",
    "stopped": "stopped",
    "hung": "hung",
    "restarted": "restarted",
    "shut down": "shut down",
    "expired": "lost its ZooKeeper session",
    "unknown": "was lost",
}
"""Values of the table ``incidents`` as verbs."""

_WHY = {
    "broker_death": "the broker's process ended, or was paused",
    "unclean": "the broker's process ended; then a replica from outside the ISR was elected (unclean election)",
    "controlled_shutdown": "the broker was shut down in a controlled way",
    "controller_failover": "it happened while there was no controller",
    "zookeeper": (
        "several brokers heard nothing from ZooKeeper at the same time: it, or the network to it, had stopped; "
        "brokers went on serving until the next controller considered them dead"
    ),
}

_WHY_CONTROLLER = {
    "killed": "its journal ends without a resignation: the process was killed or crashed, or the journal is incomplete",
    "expired": "it was paused or cut off from ZooKeeper: it resigned only after another one was elected",
}

CERTAINTY = {
    "certain": "Several independent records agree.",
    "likely": "One record shows it, and none contradicts it.",
    "unknown": "No record shows the cause.",
}
ONSET = {
    "peers": "when another broker lost its connection to it",
    "own session": "when its own process last heard from ZooKeeper",
    "brokers' sessions": "when brokers last heard from ZooKeeper",
    "session": "from the end of its ZooKeeper session, a time-out after its last sign of life",
    "controller": "when the controller noticed",
}
"""The evidence of the onset, by ``onset_evidence``."""


def headline(content: Content) -> str:
    """Return one sentence about all clusters, for the page's title and the terminal."""
    if not content.clusters:
        return "Nothing is known: no record mentions a partition."
    violations = sum(row["count"] for cluster in content.clusters for row in cluster.violated)
    incidents = sum(cluster.incidents_count for cluster in content.clusters)
    first = content.clusters[0]
    share = first.onset_availability if onsets_are_known(first) else first.availability
    what = "availability unknown" if share is None else f"available {percent(share)}"
    if len(content.clusters) > 1:
        what = f"{len(content.clusters) + content.more_clusters} clusters, the worst ({first.name}) {what}"
    none = "no incident known" if any(cluster.availability is None for cluster in content.clusters) else "no incident"
    parts = [plural(incidents, "incident") if incidents else none, what]
    problems = sum(cluster.problems_count for cluster in content.clusters)
    if problems:
        parts.append(plural(problems, "known problem"))
    if violations:
        parts.append(f"{plural(violations, 'violation')} of invariants")
    sentence = "; ".join(parts)
    return sentence[0].upper() + sentence[1:]


def onsets_are_known(cluster: Cluster) -> bool:
    """Return whether the onsets are precise enough for the headline: if only the ends of sessions show them, the error
    may exceed the figure."""
    lost_us, error_us = cluster.onset_unavailable_us, cluster.onset_error_us
    known = cluster.onset_availability is not None and lost_us is not None
    return known and (error_us or 0) * SURE <= (lost_us or 0)


# -- incidents ---------------------------------------------------------------------------------------------------------


def incident_title(row: Row) -> str:
    """Return what failed, in a few words."""
    if row["what"] == "zookeeper":
        return "ZooKeeper did not answer brokers, and sessions ended"
    if row["what"] == "partitions":
        return f"{plural(row['partitions'], 'partition')} without a leader"
    verb = _HOW.get(row["how"], row["how"])
    if row["what"] == "controller":
        return f"Controller {row['controller_before']} {verb}; {row['controller_after']} took over"
    if row["what"] == "broker and controller":
        return f"Broker {row['broker']}, the controller, {verb}"
    return f"Broker {row['broker']} {verb}"


def impact(row: Row) -> str:
    """Return what was affected, and for how long."""
    if row["what"] == "controller":
        long = since_onset(row, row["elected_us"] + (row["onset_error_us"] or 0))
        no_controller = "for an unknown time" if long == "unknown" else f"for up to {long}"
        return (
            f"there was no controller {no_controller}: partitions kept their leaders, but no "
            "leader could be elected; partitions that needed one are listed with the broker that died"
        )
    if not row["partitions"]:
        under = row["under_replicated"]
        return (
            f"no partition lost its leader; {plural(under, 'partition')} had too few replicas in sync"
            if under
            else ("no partition was affected")
        )
    text = f"{plural(row['partitions'], 'partition')} of {plural(row['topics'], 'topic')} without a leader"
    text += ", for an unknown time" if row["longest_us"] is None else f", each for up to {duration(row['longest_us'])}"
    if row["still_open"]:
        text += f"; {row['still_open']:,} still without one when the records end"
    return text


def why(row: Row) -> str:
    """Return the cause of an incident in words; a cause without its own text keeps gold's name, without underscores."""
    if row["what"] == "controller":
        return _WHY_CONTROLLER.get(row["how"], "unknown")
    cause = row["cause"] or "unknown"
    return _WHY.get(cause, cause.replace("_", " "))


def lasted(row: Row) -> str:
    """Return the time from the onset until the last partition was led again."""
    if row["still_open"]:
        return "not over"  # as far as the records go
    ends = [us for us in (row["led_again_us"], row["noticed_us"]) if us is not None]
    return since_onset(row, max(ends)) if ends else "–"


def how_long(row: Row) -> str:
    """Return the length of an incident and what ended it."""
    if row["still_open"]:
        return "not over when the records end"
    if lasted(row) == "unknown":
        return "unknown: it lasted across an hour that the logs' clocks may have skipped"
    if row["what"] == "controller":
        return f"{lasted(row)} until the next controller was elected"
    if row["what"] == "zookeeper":
        return f"{lasted(row)} until brokers had sessions again and every partition was led"
    if row["led_again_us"] is None:
        return f"{lasted(row)} until the controller noticed"
    return f"{lasted(row)} until the last partition was led again"


def onset(row: Row) -> str:
    """Return when a failure began, UTC, with its error after ``±`` if there is one."""
    error_us = row["onset_error_us"]
    bound = f" ± {duration(error_us)}" if error_us else ""
    return f"{moment(row['onset_us'])}{bound}"


# -- a cluster ---------------------------------------------------------------------------------------------------------


def story(cluster: Cluster) -> list[str]:
    """Return what happened to one cluster in a few sentences, the most important first."""
    sentences = [_availability(cluster)]
    sentences += _worst(cluster) + _brokers(cluster) + _controllers(cluster) + _violations(cluster)
    return sentences


def watched(cluster: Cluster) -> str:
    """Return the time and the partitions that the records cover."""
    long = duration(cluster.to_us - cluster.from_us)
    return (
        f"From {moment(cluster.from_us)} to {moment(cluster.to_us)} UTC ({long}), "
        f"{plural(cluster.partitions, 'partition')} in {plural(cluster.topics_seen, 'topic')}"
    )


def _availability(cluster: Cluster) -> str:
    seen = watched(cluster)
    if cluster.availability is None:
        return f"{seen}: how available they were is unknown. {missing(cluster)}"
    text = f"{seen} were available {percent(cluster.availability)} of the time, as the controller saw it"
    if cluster.onset_availability is not None and cluster.onset_unavailable_us != cluster.unavailable_us:
        text += f"; counted from when brokers failed, {percent(cluster.onset_availability)}"
    if not cluster.unavailable_us:
        return f"{text}. No partition was seen without a leader."
    lost_us = cluster.onset_unavailable_us or cluster.unavailable_us
    return f"{text}. Partitions were without a leader for {duration(lost_us)}, summed over all of them."


def missing(cluster: Cluster) -> str:
    """Return what the records lack; empty if they are not known to lack anything."""
    lacking = [row["words"] for row in cluster.completeness if not row["known"] and row["what"] != "availability"]
    if not lacking:
        return next((f"{row['words']}." for row in cluster.completeness if not row["known"]), "")
    more = f"; and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    return f"Missing: {'; '.join(lacking[:3])}{more}."


def _worst(cluster: Cluster) -> list[str]:
    if not cluster.windows:
        return []
    row = cluster.windows[0]
    cause = row["cause"].replace("_", " ")
    who = "" if row["broker"] is None else f" of broker {row['broker']}"
    still = ", and was still open when the records end" if row["end_us"] is None else ""
    return [
        f"The longest time without a leader: {row['topic']}-{row['partition']}, "
        f"{known_duration(row['duration_us'])} from {moment(row['start_us'])}{still}. Cause: {cause}{who}."
    ]


_VERBS = {"died": "died", "shutdown": "shut down in a controlled way", "bounced": "restarted"}


def _brokers(cluster: Cluster) -> list[str]:
    sentences = []
    for event, verb in _VERBS.items():
        number = cluster.turns.get(event, 0)
        if number:
            rows = [row for row in cluster.life if row["event"] == event]
            brokers = list(dict.fromkeys(row["broker"] for row in rows))
            named = [_turns([row for row in rows if row["broker"] == broker]) for broker in brokers[:NAMED]]
            more = " and others" if len(brokers) > NAMED or number > len(rows) else ""
            sentences.append(f"Brokers {verb} {_times(number)}: {'; '.join(named)}{more}.")
    none = "No broker came or went." if cluster.availability is not None else "No broker is known to have come or gone."
    return sentences or [none]


def _turns(rows: Sequence[Row]) -> str:
    """Return the events of one broker as text."""
    when = f" at {moment(rows[0]['ts_us'])[11:]}" if len(rows) == 1 else f", {_times(len(rows))}"
    parts = [f"broker {rows[0]['broker']}{when}"]
    led = [row["partitions_led"] for row in rows if row["partitions_led"] is not None]
    longest = [row["longest_window_us"] for row in rows if row["longest_window_us"] is not None]
    if led:
        parts.append(f"led {led[0]:,}" if len(led) == 1 else f"led up to {max(led):,}")
    if longest:
        parts.append(f"longest without a leader {duration(max(longest))}")
    return ", ".join(parts)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _controllers(cluster: Cluster) -> list[str]:
    if not cluster.elections:
        return []
    timed = [row for row in cluster.failovers if row["duration_us"] is not None]
    text = f"A controller was elected {_times(cluster.elections)}"
    if timed:
        slowest = max(timed, key=lambda row: row["duration_us"])
        text += f"; the slowest failover took {duration(slowest['duration_us'])} (epoch {slowest['epoch']})"
    return [text + "."]


def _violations(cluster: Cluster) -> list[str]:
    if not cluster.violated:
        return ["No invariant was violated, as far as the records can prove it."]
    each = ", ".join(f"{row['invariant']} {row['count']:,}" for row in cluster.violated)
    return [f"Invariants were violated: {each} times. The evidence is below."]


# -- data --------------------------------------------------------------------------------------------------------------


def quality(content: Content) -> str:
    """Return how much was read, and how much of it could not be."""
    text = f"{plural(content.records, 'record')} from {plural(content.files, 'file')}"
    if content.quarantined:
        text += f"; {plural(content.quarantined, 'line')} could not be read"
    broken = content.files - content.whole_files
    if broken:
        return f"{text}; {plural(broken, 'file')} not whole. Figures that rest on them may be too small."
    return f"{text}; every file is whole."


def percent(share: float | None) -> str:
    """Return the share with enough digits to distinguish it from 100 %."""
    if share is None:
        return "unknown"
    if share >= 1:
        return "100 %"
    digits = 2
    while digits < 7 and round(share * 100, digits) >= 100:
        digits += 1
    return f"{share * 100:.{digits}f} %"
