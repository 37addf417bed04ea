"""Journals of clusters with as many incidents as a page must bear, or with names that nobody should choose."""

from __future__ import annotations

from pathlib import Path

from tests.integration.analytics.gold.build import OFF, ON, Controller, lines

LONG = "a-topic-whose-name-is-as-long-as-kafka-allows-" * 5 + "249-characters-long"
RTL = "שלום-مرحبا"
MARKUP = '<img src=x onerror=document.title="broken"></td></table></script><h1>'
HIDING = "abc\u202edlrow\u2066\u200b\x07"
NAMES = (MARKUP, LONG, RTL, HIDING, "W" * 2_000, "{{ 7 * 7 }}", "&amp;", "a b", "−1")


def life(incidents: int, brokers: int = 3, names: tuple[str, ...] = ("orders", "payments")) -> Controller:
    """A cluster in which every 20 s a broker dies that leads a topic; the topic's other replica takes over.

    There is a topic for each broker; ``names`` are repeated with a number.
    """
    c = Controller(cluster="prod")
    c.elected(1, brokers=range(1, brokers + 1))
    topics = [names[n] if n < len(names) else f"{names[n % len(names)]}-{n}" for n in range(max(brokers, len(names)))]
    replicas = [[n % brokers + 1, (n + 1) % brokers + 1] for n in range(len(topics))]
    versions = [0] * len(topics)
    for topic, both in zip(topics, replicas, strict=True):
        c.created(topic, both[0], both)
    for number in range(incidents):
        of, at_ms = number % len(topics), 20_000 * (number + 1)
        topic, both, version = topics[of], replicas[of], versions[of]
        epoch = number // len(topics)
        dead, heir = both if epoch % 2 == 0 else both[::-1]
        c.say("broker", broker=dead, detail="dead", at_ms=at_ms)
        c.moved(topic, ON, OFF, dead, epoch, both, version, both)
        c.moved(topic, OFF, ON, heir, epoch + 1, [heir], version + 1, both, at_ms=at_ms + 400 + number % 700)
        c.say("broker", broker=dead, detail="added", at_ms=at_ms + 5_000)
        c.isr(topic, heir, epoch + 1, both, version + 2, at_ms=at_ms + 6_000, replicas=both)
        versions[of] += 2
    return c


def write(folder: Path, controller: Controller) -> None:
    folder.mkdir(parents=True)
    name = f"journal-{controller.node}-1-{controller.start_us}-000001.jsonl"
    (folder / name).write_bytes(b"".join(lines(controller.records)))
