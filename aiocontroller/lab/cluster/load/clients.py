"""Load clients as child processes: Kafka's own Java clients, and librdkafka's.

Each client prints its acknowledgements to its own file (``tally.py`` has the format), which is read here on demand and
survives the run.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiocontroller.java import SMALL_JVM, find_java
from aiocontroller.lab.cluster.load.tally import LoadVerdict, Tally
from aiocontroller.lab.cluster.processes import Child, ChildFailedError
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, kafka_jars

KINDS = ("java", "librdkafka")
INTERVAL_MS = {"java": 10, "librdkafka": 40}
"""Interval between a partition's records; librdkafka sends one request per record, a noticeable load for two cores."""
RESENDS = frozenset({"librdkafka"})
"""Kinds of clients that raise their producer epoch and resend in-flight records when leaders move.  A broker that
already has the records cannot recognize them: the log has both copies, with the epochs n and n + 1."""
END_TIMEOUT_S = 240.0
"""In-flight records get their delivery timeout (120 s), then everything is read back."""
_POLL_S = 0.05

_LOG4J = """log4j.rootLogger=WARN, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={file}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def now_us() -> int:
    """Return the current time by the clock that the clients use."""
    return time.monotonic_ns() // 1000


class LoadClient:
    """One producer and two consumers of one topic; ``kind`` is one of ``KINDS``.  Each partition gets a record every
    ``interval_ms`` (``INTERVAL_MS`` of the kind when it is None)."""

    def __init__(
        self,
        kind: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        folder: Path,
        *,
        interval_ms: int | None = None,
        version: str = DEFAULT_VERSION,
    ) -> None:
        assert kind in KINDS, kind
        self.kind = kind
        self.topic = topic
        self.tally = Tally(partitions)
        self._folder = folder
        self._version = version
        self._arguments = [bootstrap, topic, str(partitions), str(interval_ms or INTERVAL_MS[kind])]
        self._child: Child | None = None
        self._read_to = 0

    @property
    def record(self) -> Path:
        return self._folder / f"{self.topic}.record"

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        command = self._java() if self.kind == "java" else self._librdkafka()
        self._child = Child(f"{self.kind} client", [*command, *self._arguments], log=self.record)

    def read(self) -> Tally:
        """Return the tally of the lines printed so far."""
        assert self._child is not None
        ended = not self._child.running
        with open(self.record, "rb") as record:
            record.seek(self._read_to)
            text = record.read()
        whole = text.rfind(b"\n") + 1
        self._read_to += whole
        self.tally.feed(text[:whole].decode("utf-8", "replace").splitlines())
        if ended and not self.tally.ended:
            raise ChildFailedError(f"the {self.kind} client ended by itself; {self.record}:\n{self._end_of_output()}")
        return self.tally

    def stop(self) -> None:
        """Make the client stop sending, wait for its records, and read them back; then ``ended`` is true."""
        if self._child is not None:
            self._child.ask_to_stop()

    @property
    def ended(self) -> bool:
        return self.read().ended

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _end_of_output(self) -> str:
        return "\n".join(self.tally.noise[-12:]) or "(no output)"

    def _java(self) -> list[str]:
        log4j = self._folder / f"{self.topic}.log4j.properties"
        log4j.write_text(_LOG4J.format(file=self._folder / f"{self.topic}.client.log"))
        source = Path(__file__).with_name("LoadClient.java")
        jars = f"{kafka_jars(self._version)}/*"
        options = [*SMALL_JVM, "-Xmx256m", f"-Dlog4j.configuration=file:{log4j.resolve()}", "-cp", jars]
        return [str(find_java()), *options, str(source)]

    def _librdkafka(self) -> list[str]:
        return [sys.executable, "-m", "aiocontroller.lab.cluster.load.librdkafka_client"]


class Load:
    """Several clients, each on its own topic.  A caller that starts them must kill them in the end."""

    def __init__(self, clients: Sequence[LoadClient]) -> None:
        self.clients = list(clients)

    async def start(self) -> None:
        """Start and wait until every partition has acknowledged a record."""
        for client in self.clients:
            client.start()
        await self.acknowledged_since(0, within_s=120)

    def kill(self) -> None:
        for client in self.clients:
            client.kill()

    def kinds(self) -> dict[str, str]:
        """Map each topic to the kind of its client."""
        return {client.topic: client.kind for client in self.clients}

    def tallies(self) -> dict[str, Tally]:
        """Map each topic to its client's tally so far."""
        return {client.topic: client.read() for client in self.clients}

    async def acknowledged_since(self, since_us: int, within_s: float = 60.0) -> None:
        """Wait until every partition has acknowledged a record sent after ``since_us``.  Raises TimeoutError."""
        deadline = time.monotonic() + within_s
        while silent := self._silent(since_us):
            if time.monotonic() > deadline:
                some = ", ".join(silent[:6])
                raise TimeoutError(f"{len(silent)} partitions acknowledged nothing within {within_s:g} s: {some}")
            await asyncio.sleep(_POLL_S)

    async def settled(self) -> None:
        """Wait until every partition has acknowledged a record sent from now on."""
        await self.acknowledged_since(now_us(), within_s=150)

    def longest_gaps_us(self, since_us: int, until_us: int) -> dict[tuple[str, int], int]:
        """Return ``Tally.longest_gap_us`` of each (topic, partition)."""
        return {
            (topic, partition): tally.longest_gap_us(partition, since_us, until_us)
            for topic, tally in self.tallies().items()
            for partition in range(tally.partitions)
        }

    def flows_after_us(self, since_us: int, until_us: int, gap_us: int) -> dict[tuple[str, int], int]:
        """Return ``Tally.flows_after_us`` of each (topic, partition)."""
        return {
            (topic, partition): tally.flows_after_us(partition, since_us, until_us, gap_us)
            for topic, tally in self.tallies().items()
            for partition in range(tally.partitions)
        }

    def errors_since(self, since_us: int) -> list[str]:
        """Return the errors that clients reported to their users."""
        found = ((t, e) for t, tally in self.tallies().items() for e in tally.errors if e.at_us >= since_us)
        return [f"{topic}: {error.who}: {error.message}" for topic, error in found]

    async def finish(self, within_s: float = END_TIMEOUT_S) -> dict[str, LoadVerdict]:
        """Stop, wait until all records have been read back, and return verdicts by kind of client.

        Raises TimeoutError.
        """
        for client in self.clients:
            client.stop()
        deadline = time.monotonic() + within_s
        while slow := [client for client in self.clients if not client.ended]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not read back within {within_s:g} s: {', '.join(c.topic for c in slow)}")
            await asyncio.sleep(_POLL_S)
        verdicts = {client.kind: client.tally.verdict() for client in self.clients}
        self.kill()  # they have printed everything and are about to exit
        self.clients.clear()
        return verdicts

    def _silent(self, since_us: int) -> list[str]:
        silent = []
        for topic, tally in self.tallies().items():
            heard = tally.acknowledged_since(since_us)
            silent += [f"{topic}-{p}" for p in range(tally.partitions) if p not in heard]
        return silent


def kept_its_word(verdicts: Mapping[str, LoadVerdict]) -> bool:
    """Whether the cluster lost, duplicated or reordered no record, except duplicates made by the clients themselves."""
    return not any(v.lost or v.reordered or (v.doubled and kind not in RESENDS) for kind, v in verdicts.items())
