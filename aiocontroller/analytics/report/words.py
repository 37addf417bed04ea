"""The summary in sentences."""

from __future__ import annotations

from collections import Counter
from typing import Any

from aiocontroller.analytics.report.gather import Cluster, Content
from aiocontroller.analytics.summary import duration, moment

NAMED = 12
"""Brokers that a sentence names."""


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
        brokers = list(dict.fromkeys(row["broker"] for row in rows))
        named = [_turns([row for row in rows if row["broker"] == broker]) for broker in brokers[:NAMED]]
        more = f" and {len(brokers) - NAMED} more" if len(brokers) > NAMED else ""
        told.append(f"Brokers {verb} {_times(len(rows))}: {'; '.join(named)}{more}.")
    if events["died"]:
        told.append(
            "A death counts from when the controller learns of it; the broker's ZooKeeper session ran out before that, "
            "unrecorded."
        )
    return told


def _turns(rows: list[dict[str, Any]]) -> str:
    """Those of one broker."""
    when = f" at {moment(rows[0]['ts_us'])[11:]}" if len(rows) == 1 else f", {_times(len(rows))}"
    parts = [f"broker {rows[0]['broker']}{when}"]
    led = [row["partitions_led"] for row in rows if row["partitions_led"] is not None]
    gaps = [row["longest_window_us"] for row in rows if row["longest_window_us"] is not None]
    if led:
        parts.append(f"led {led[0]:,}" if len(led) == 1 else f"led up to {max(led):,}")
    if gaps:
        parts.append(f"longest gap {duration(max(gaps))}")
    return ", ".join(parts)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _controllers(cluster: Cluster) -> list[str]:
    if not cluster.elections:
        return []
    timed = [row for row in cluster.failovers if row["duration_us"] is not None]
    told = f"A controller was elected {_times(cluster.elections)}"
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
