"""The summary in sentences."""

from __future__ import annotations

from collections import Counter

from aiocontroller.analytics.report.gather import Cluster, Content
from aiocontroller.analytics.summary import duration, moment

NAMED = 5
"""Brokers that a sentence names one by one."""


def headline(content: Content) -> str:
    if not content.clusters:
        return "Nothing is known: no record tells of a partition."
    violations = sum(row["count"] for cluster in content.clusters for row in cluster.violated)
    worst = content.clusters[0]
    what = f"Available {percent(worst.availability)}"
    if len(content.clusters) > 1:
        what = f"{len(content.clusters) + content.more_clusters} clusters, the worst ({worst.name}) {what.lower()}"
    return f"{what}; {count(violations, 'violation')} of invariants" if violations else f"{what}; no invariant violated"


def story(cluster: Cluster) -> list[str]:
    """What happened to one cluster: a few sentences, the most important first."""
    long = duration(cluster.to_us - cluster.from_us)
    told = [
        f"From {moment(cluster.from_us)} to {moment(cluster.to_us)} UTC ({long}), "
        f"{count(cluster.partitions, 'partition')} in {count(cluster.topics_seen, 'topic')} were available "
        f"{percent(cluster.availability)} of the time: "
        + (
            f"without a leader for {duration(cluster.unavailable_us)} in all."
            if cluster.unavailable_us
            else "none was ever seen without a leader."
        )
    ]
    told += _worst(cluster) + _brokers(cluster) + _controllers(cluster) + _violations(cluster)
    return told


def _worst(cluster: Cluster) -> list[str]:
    if not cluster.windows:
        return []
    row = cluster.windows[0]
    cause = row["cause"].replace("_", " ")
    who = "" if row["broker"] is None else f" of broker {row['broker']}"
    still = " and had not ended when the records did" if row["end_us"] is None else ""
    return [
        f"The longest gap: {row['topic']}-{row['partition']}, {duration(row['duration_us'])} from "
        f"{moment(row['start_us'])}{still}; cause: {cause}{who}."
    ]


_WORDS = {"died": "died", "shutdown": "shut down in an orderly way", "bounced": "bounced", "came_back": "came back"}


def _brokers(cluster: Cluster) -> list[str]:
    events = Counter(row["event"] for row in cluster.life)
    if not events:
        return ["No broker came or went."]
    told = []
    for event, verb in _WORDS.items():
        rows = [row for row in cluster.life if row["event"] == event]
        if not rows or event == "came_back":
            continue
        named = [_turn(row) for row in rows[:NAMED]]
        more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        times = "once" if len(rows) == 1 else f"{len(rows)} times"
        told.append(f"Brokers {verb} {times}: {'; '.join(named)}{more}.")
    return told


def _turn(row: dict[str, object]) -> str:
    led = row.get("partitions_led")
    longest = row.get("longest_window_us")
    parts = [f"broker {row['broker']} at {moment(int(str(row['ts_us'])))[11:]}"]
    if led is not None:
        parts.append(f"led {led:,}")
    if longest is not None:
        parts.append(f"longest gap {duration(int(str(longest)))}")
    return ", ".join(parts)


def _controllers(cluster: Cluster) -> list[str]:
    if not cluster.elections:
        return []
    timed = [row for row in cluster.failovers if row["duration_us"] is not None]
    told = f"A controller was elected {'once' if cluster.elections == 1 else f'{cluster.elections} times'}"
    if timed:
        slowest = max(timed, key=lambda row: row["duration_us"])
        told += f"; the slowest needed {duration(slowest['duration_us'])} until all was said (epoch {slowest['epoch']})"
    return [told + "."]


def _violations(cluster: Cluster) -> list[str]:
    if not cluster.violated:
        return ["No invariant was violated, as far as the records can prove it."]
    each = ", ".join(f"{row['invariant']} {row['count']:,}" for row in cluster.violated)
    return [f"Invariants were violated: {each} times. The evidence is below."]


def quality(content: Content) -> str:
    told = f"{count(content.records, 'record')} out of {count(content.files, 'file')}"
    if content.quarantined:
        told += f"; {count(content.quarantined, 'line')} could not be understood"
    broken = content.files - content.whole_files
    if broken:
        return f"{told}; {count(broken, 'file')} not whole. Figures that rest on them may be too small."
    return f"{told}; every file is whole."


def percent(share: float) -> str:
    """As many digits as it takes to tell it from 100 %."""
    if share >= 1:
        return "100 %"
    digits = 2
    while digits < 7 and round(share * 100, digits) >= 100:
        digits += 1
    return f"{share * 100:.{digits}f} %"


def count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
