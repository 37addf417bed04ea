"""Unmodified Kafka brokers in ZooKeeper mode, as child processes on loopback.

The jars come from ``scripts/kafka-jars``; the same class path holds Kafka's command line tools and Java clients.
Settings keep a broker small and its shutdown quick; all of them can be overridden.  A broker keeps its folder, so one
that was killed comes back with its logs, as a new incarnation (a new registration, and thus a new broker epoch).
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiocontroller.core.errors import AioControllerError
from aiocontroller.java import SMALL_JVM, find_java
from aiocontroller.lab.cluster.embedded_zookeeper import LOOPBACK, EmbeddedZooKeeper, free_port
from aiocontroller.lab.cluster.processes import Child, launched
from aiocontroller.lab.cluster.slowness import Slowness

DEFAULT_VERSION = "3.9.1"
LATEST_PATCH = {
    "2.2": "2.2.2",
    "2.4": "2.4.1",
    "2.6": "2.6.3",
    "2.8": "2.8.2",
    "3.0": "3.0.2",
    "3.3": "3.3.2",
    "3.4": "3.4.1",
    "3.6": "3.6.2",
    "3.7": "3.7.2",
    "3.9": DEFAULT_VERSION,
}
"""Releases by their short names; any other version must be named in full."""
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
_CLASSES = "classes.jsa"
_SCRIPT = Path(__file__).parents[3] / "scripts" / "kafka-jars"

INTERNAL_TOPICS = {"__consumer_offsets": 5, "__transaction_state": 3}
"""Partitions of the internal topics, as set by the properties below."""
INTERNAL_TOPIC_CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
"""Configs that brokers give to an internal topic."""

_SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": str(INTERNAL_TOPICS["__consumer_offsets"]),
    "transaction.state.log.num.partitions": str(INTERNAL_TOPICS["__transaction_state"]),
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",  # the default allocates 128 MiB of heap at once
    "log.index.size.max.bytes": "65536",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "1000",
    "replica.lag.time.max.ms": "3000",
    "controller.socket.timeout.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "100",
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "30000",
}

LOG4J = """log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
"""


class KafkaMissingError(AioControllerError):
    """Kafka's jars are missing and could not be fetched; the message names the cause."""


def kafka_jars(version: str = DEFAULT_VERSION) -> Path:
    """Return the folder with the release's jars; Maven fetches them on first use (takes several seconds)."""
    return _fetched(version)


def kafka_tools_jars(version: str = DEFAULT_VERSION) -> Path:
    """Return the folder with jars that the command line tools need besides ``kafka_jars``, for releases since 3.7."""
    return _fetched("--tools", version)


def _fetched(*arguments: str) -> Path:
    version = arguments[-1]
    if not _SCRIPT.is_file():
        raise KafkaMissingError(f"{_SCRIPT} is not there: real Kafka brokers need a checkout, not an installed package")
    # All users of the checkout share the fetched jars, so this process's umask must not restrict them.
    run = subprocess.run(launched([_SCRIPT, *arguments]), capture_output=True, text=True, check=False, umask=0o022)
    if run.returncode != 0:
        raise KafkaMissingError(f"no jars of Kafka {version}: {run.stderr.strip()[-2000:]}")
    return Path(run.stdout.strip())


def release(version: str) -> str:
    """Return the full version: ``3.9.1`` for ``3.9``, a full version unchanged.  Raises KafkaMissingError otherwise."""
    if version in LATEST_PATCH:
        return LATEST_PATCH[version]
    if re.fullmatch(r"[23]\.\d+\.\d+", version):
        return version
    raise KafkaMissingError(
        f"Kafka version: found {version!r}, expected one of {', '.join(LATEST_PATCH)}, or a full one such as 3.7.2"
    )


def kafka_missing(version: str = DEFAULT_VERSION) -> str | None:
    """Return why no real broker can run here, without fetching anything; None if one can."""
    if (_SCRIPT.parent.parent / ".cache" / "kafka" / version / ".complete").is_file():
        return None
    return None if shutil.which("mvn") else f"no jars of Kafka {version} and no 'mvn' on PATH to fetch them"


class RealKafkaBroker:
    """One broker.  ``zookeeper`` is ``host:port/chroot``; ``port`` 0 takes a free port, kept across restarts.

    ``replication_factor`` is that of the internal topics.  ``overrides`` are Kafka properties that take precedence.
    ``jvm`` are the JVM's options except for the heap: by default it starts fast rather than runs fast.  ``log4j`` is
    the contents of its ``log4j.properties``, where ``${kafka.logs.dir}`` is the broker's folder.
    """

    def __init__(
        self,
        broker_id: int,
        zookeeper: str,
        data_dir: Path | str,
        *,
        version: str = DEFAULT_VERSION,
        port: int = 0,
        replication_factor: int = 1,
        overrides: Mapping[str, str] | None = None,
        heap_mb: int = 256,
        jvm: Sequence[str] = SMALL_JVM,
        log4j: str = LOG4J,
    ) -> None:
        self.id = broker_id
        self.zookeeper = zookeeper
        self.data_dir = Path(data_dir)
        self.version = version
        self.port = port
        self.replication_factor = replication_factor
        self.overrides = dict(overrides or {})
        self.heap_mb = heap_mb
        self.jvm = jvm
        self.log4j = log4j
        self.slowness: Slowness | None = None
        """Must be set before the broker starts, if it is to become slow later."""
        self._child: Child | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return self.data_dir / "broker.log"

    @property
    def pid_file(self) -> Path:
        """The file with the broker's pid, for fence commands."""
        return self.data_dir / "pid"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int | None:
        return self._child.pid if self.running and self._child else None

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start and wait until it answers requests."""
        self.launch().wait_until(self.answers, timeout_s)

    async def start_async(self, timeout_s: float = START_TIMEOUT_S) -> None:
        await self.launch().wait_until_async(self.answers, timeout_s)

    def launch(self) -> Child:
        """Start without waiting for the broker to answer."""
        assert not self.running, f"broker {self.id} runs already"
        if self.port == 0:
            self.port = free_port()
        self._child = Child(f"Kafka broker {self.id}", self._command(), log=self.log)
        self.pid_file.write_text(str(self._child.pid))
        return self._child

    def answers(self) -> bool:
        """Whether the broker answers ApiVersions, which it does only once it is registered in ZooKeeper."""
        request = struct.pack(">hhih", 18, 0, 1, -1)
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1) as connection:
                connection.settimeout(2)
                connection.sendall(struct.pack(">i", len(request)) + request)
                return len(connection.recv(4)) == 4
        except OSError:
            return False

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end; the broker's registration lives until its session expires."""
        if self._child is not None:
            self._child.kill()

    def terminate(self) -> None:
        """Send SIGTERM, which begins a controlled shutdown; does not wait."""
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send SIGTERM, then SIGKILL after ``timeout_s``."""
        if self._child is not None:
            self._child.stop(timeout_s)

    async def stop_async(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        if self._child is not None:
            await self._child.stop_async(timeout_s)

    async def ended(self, timeout_s: float) -> bool:
        """Wait until the process ends, for ``timeout_s`` at most; returns whether it has."""
        return self._child is None or await self._child.ended(timeout_s)

    def suspend(self) -> None:
        """Send SIGSTOP; the broker's session expires unless it is resumed within half the session timeout."""
        if self._child is not None:
            self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGCONT)

    def properties(self) -> dict[str, str]:
        """Return the contents of the broker's ``server.properties``."""
        factor = str(self.replication_factor)
        return {
            "broker.id": str(self.id),
            "listeners": f"PLAINTEXT://{self.address}",
            "zookeeper.connect": self.zookeeper,
            "log.dirs": str((self.data_dir / "logs").resolve()),
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": str(min(2, self.replication_factor)),
            **_SETTINGS,
            **self.overrides,
        }

    @property
    def settings(self) -> Path:
        return self.data_dir / "server.properties"

    def write_settings(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.settings.write_text("".join(f"{key}={value}\n" for key, value in self.properties().items()))

    def _command(self) -> list[str]:
        self.write_settings()
        log4j = self.data_dir / "log4j.properties"
        log4j.write_text(self.log4j)
        jars = kafka_jars(self.version)
        return [
            *([] if self.slowness is None else self.slowness.prefix()),
            str(find_java()),
            *self.jvm,
            *([f"-XX:SharedArchiveFile={archive}"] if (archive := jars / _CLASSES).is_file() else []),
            "-Xms64m",
            f"-Xmx{self.heap_mb}m",
            f"-Dlog4j.configuration=file:{log4j.resolve()}",
            f"-Dkafka.logs.dir={self.data_dir.resolve()}",
            "-cp",
            f"{jars}/*",
            "kafka.Kafka",
            str(self.settings),
        ]


class RealKafkaCluster:
    """Several real brokers with ids from 1; internal topics on ``min(3, size)`` of them."""

    def __init__(
        self,
        size: int,
        zookeeper: str,
        data_dir: Path | str,
        *,
        version: str = DEFAULT_VERSION,
        overrides: Mapping[str, str] | None = None,
        log4j: str = LOG4J,
    ) -> None:
        self.brokers = {
            broker_id: RealKafkaBroker(
                broker_id,
                zookeeper,
                Path(data_dir) / f"broker-{broker_id}",
                version=version,
                replication_factor=min(3, size),
                overrides=overrides,
                log4j=log4j,
            )
            for broker_id in range(1, size + 1)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all and wait until each answers.  The first goes ahead: it creates ZooKeeper's top-level paths."""
        first, *others = self.brokers.values()
        first.start(timeout_s)
        _wait_for_all(others, [broker.launch() for broker in others], timeout_s)

    async def start_async(self, timeout_s: float = START_TIMEOUT_S) -> None:
        first, *others = self.brokers.values()
        await first.start_async(timeout_s)
        children = [broker.launch() for broker in others]
        await asyncio.to_thread(_wait_for_all, others, children, timeout_s)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        for broker in self.brokers.values():
            broker.terminate()
        for broker in self.brokers.values():
            broker.stop(timeout_s)

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()


def _wait_for_all(brokers: Sequence[RealKafkaBroker], children: Sequence[Child], timeout_s: float) -> None:
    for broker, child in zip(brokers, children, strict=True):
        child.wait_until(broker.answers, timeout_s)


def archive_classes(version: str = DEFAULT_VERSION) -> None:
    """Create the release's class data archive, with which brokers start twice as fast, unless it exists.

    A broker is started and stopped for this; the archive is kept beside the jars.  A Java that cannot write the
    archive, or did not write it, runs without one.
    """
    jars = kafka_jars(version)
    if (jars / _CLASSES).exists():
        return
    with tempfile.TemporaryDirectory(dir=jars) as folder:
        made = Path(folder) / _CLASSES
        options = ("-XX:+IgnoreUnrecognizedVMOptions", f"-XX:ArchiveClassesAtExit={made}")
        zookeeper = EmbeddedZooKeeper(Path(folder) / "zookeeper")
        zookeeper.start()
        broker = RealKafkaBroker(
            1, zookeeper.address, Path(folder) / "broker", version=version, jvm=(*SMALL_JVM, *options)
        )
        try:
            broker.start()
            broker.stop(START_TIMEOUT_S)
        finally:
            broker.kill()
            zookeeper.kill()
        if made.is_file():
            made.rename(jars / _CLASSES)  # atomically, since other processes may make one too
