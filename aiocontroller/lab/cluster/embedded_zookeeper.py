"""A real ZooKeeper 3.9 on loopback, as a child process: one server, or an ensemble of three.

For tests, benchmarks and ``aiocontroller up``.  Data survive a stop and a SIGKILL of the server.  They need not survive
a crash of the machine, so by default writes do not wait for the disk (``forceSync=no``).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from aiocontroller.java import SMALL_JVM, find_java, zookeeper_class_path
from aiocontroller.lab.cluster.processes import Child, ChildFailedError
from aiocontroller.net.taken_ports import refuse_a_taken_port

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
_PORT_ATTEMPTS = 5
_PORTS = range(20_000, 32_768)
"""Below the ephemeral port range of common kernels: an outgoing connection could take a port before its server does."""
_given: set[int] = set()


def free_port() -> int:
    """Return a port on loopback that was free a moment ago.  Raises OSError if none is free.

    It never returns the same port twice, since callers request several before they bind the first.
    """
    ports = [port for port in _PORTS if port not in _given]
    random.SystemRandom().shuffle(ports)
    for port in ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: ignore TIME_WAIT
            probe.bind((LOOPBACK, port))
            _given.add(port)
            return port
    raise OSError(errno.EADDRINUSE, f"no free port between {_PORTS.start} and {_PORTS.stop - 1}")


class EmbeddedZooKeeper:
    """One ZooKeeper server.  ``port`` 0 takes a free port, which is kept across restarts.

    ``tick_ms`` is the granularity of session expiry; session timeouts range from ``2 * tick_ms`` to
    ``max_session_timeout_ms``.
    ``heap_mb``: about 100 per 100,000 partitions is ample (a state znode takes 0.5 KB).
    ``jvm`` are the JVM's options except for the heap: by default it starts fast and stays small.
    ``ensemble`` is (own number, the ``server.N=`` lines) for a member of an ensemble.
    Raises ``JavaMissingError`` without Java or jars, ``ChildFailedError`` when the server does not come up.
    """

    def __init__(
        self,
        data_dir: Path | str,
        port: int = 0,
        *,
        tick_ms: int = 500,
        max_session_timeout_ms: int = 60_000,
        heap_mb: int = 512,
        force_sync: bool = False,
        jvm: Sequence[str] = SMALL_JVM,
        ensemble: tuple[int, Sequence[str]] | None = None,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.port = port
        self.tick_ms = tick_ms
        self.max_session_timeout_ms = max_session_timeout_ms
        self.heap_mb = heap_mb
        self.force_sync = force_sync
        self.jvm = jvm
        self._choose_port = port == 0
        self._ensemble = ensemble
        self._child: Child | None = None

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._child.pid if self.running and self._child else None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def log(self) -> Path:
        return self.data_dir / "zookeeper.log"

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start and wait until it serves."""
        for attempt in range(_PORT_ATTEMPTS):
            child = self.launch()
            try:
                child.wait_until(self.serves, timeout_s)
            except ChildFailedError:
                if not self._worth_another_port(attempt):
                    raise
            else:
                self._choose_port = False
                return

    async def start_async(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Like ``start``, for use in an event loop."""
        for attempt in range(_PORT_ATTEMPTS):
            child = self.launch()
            try:
                await child.wait_until_async(self.serves, timeout_s)
            except ChildFailedError:
                if not self._worth_another_port(attempt):
                    raise
            except asyncio.CancelledError:
                child.kill()
                raise
            else:
                self._choose_port = False
                return

    def launch(self) -> Child:
        """Start without waiting, for callers that start several at once."""
        assert not self.running, f"ZooKeeper {self.address} runs already"
        if self._choose_port and self.port == 0:
            self.port = free_port()
        self._refuse_a_taken_port()
        self._child = Child("ZooKeeper", self._command(), log=self.log)
        return self._child

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM, then SIGKILL; does nothing when it is not running."""
        if self._child is not None:
            self._child.stop(timeout_s)

    async def stop_async(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        if self._child is not None:
            await self._child.stop_async(timeout_s)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def suspend(self) -> None:
        """SIGSTOP: the kernel still accepts connections, but they get no answers."""
        if self._child is not None:
            self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGCONT)

    def mode(self) -> str | None:
        """``standalone``, ``leader`` or ``follower``; None while it does not serve.  Blocks for at most 2 s."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                connection.settimeout(1)
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return None
        lines = answer.decode("ascii", "replace").splitlines()
        return next((line[len("Mode: ") :] for line in lines if line.startswith("Mode: ")), None)

    def serves(self) -> bool:
        return self.mode() is not None

    def _worth_another_port(self, attempt: int) -> bool:
        """After a failure, whether another process has taken the port since ``free_port`` chose it."""
        assert self._child is not None
        self._child.kill()
        taken = "BindException" in self._child.log_tail(60)
        if not (taken and self._choose_port) or attempt == _PORT_ATTEMPTS - 1:
            return False
        self.port = 0
        return True

    def _refuse_a_taken_port(self) -> None:
        """Fail if the port is taken: otherwise its owner would answer the readiness check."""
        try:
            refuse_a_taken_port(LOOPBACK, self.port)
        except OSError as error:
            raise ChildFailedError(f"ZooKeeper: {error.strerror}") from error

    def _command(self) -> list[str]:
        java, class_path = find_java(), zookeeper_class_path()
        config = self._write_config()
        properties = {
            "zookeeper.admin.enableServer": "false",
            "zookeeper.4lw.commands.whitelist": "srvr",
            "zookeeper.forceSync": "yes" if self.force_sync else "no",
            "zookeeper.preAllocSize": "4096",
            "zookeeper.nio.numSelectorThreads": "1",
            "zookeeper.nio.numWorkerThreads": "2",
            "zookeeper.jmx.log4j.disable": "true",
            # log4j-api's own small logger to standard error: log4j-core would double the startup time
            "log4j2.loggerContextFactory": "org.apache.logging.log4j.simple.SimpleLoggerContextFactory",
            "org.apache.logging.log4j.simplelog.level": "INFO",
            "org.apache.logging.log4j.simplelog.showdatetime": "true",
            "org.apache.logging.log4j.simplelog.showlogname": "true",
        }
        main = "ZooKeeperServerMain" if self._ensemble is None else "quorum.QuorumPeerMain"
        return [
            str(java),
            *self.jvm,
            f"-Xmx{self.heap_mb}m",
            *(f"-D{key}={value}" for key, value in properties.items()),
            "-cp",
            class_path,
            f"org.apache.zookeeper.server.{main}",
            str(config),
        ]

    def _write_config(self) -> Path:
        data = self.data_dir / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            f"dataDir={data.resolve()}",
            f"clientPort={self.port}",
            f"clientPortAddress={LOOPBACK}",
            f"tickTime={self.tick_ms}",
            f"minSessionTimeout={2 * self.tick_ms}",
            f"maxSessionTimeout={self.max_session_timeout_ms}",
            "maxClientCnxns=0",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
        ]
        if self._ensemble is not None:
            number, servers = self._ensemble
            (data / "myid").write_text(f"{number}\n")
            lines += ["initLimit=10", "syncLimit=6", *servers]
        config = self.data_dir / "zoo.cfg"
        config.write_text("\n".join(lines) + "\n")
        return config


class ZooKeeperEnsemble:
    """Several servers (three by default) that elect a leader; each can be killed, suspended and restarted."""

    def __init__(self, data_dir: Path | str, size: int = 3, *, tick_ms: int = 500, heap_mb: int = 300) -> None:
        self.data_dir = Path(data_dir)
        self.servers: list[EmbeddedZooKeeper] = []
        self._size, self._tick_ms, self._heap_mb = size, tick_ms, heap_mb

    @property
    def address(self) -> str:
        """``host:port,host:port,…``."""
        return ",".join(server.address for server in self.servers)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all servers and wait until each is a leader or a follower."""
        for attempt in range(_PORT_ATTEMPTS):
            self._choose_ports()
            children = [server.launch() for server in self.servers]
            try:
                for server, child in zip(self.servers, children, strict=True):
                    child.wait_until(server.serves, timeout_s)
                return
            except ChildFailedError:
                tails = [child.log_tail(60) for child in children]
                self.stop()
                if not any("BindException" in tail for tail in tails) or attempt == _PORT_ATTEMPTS - 1:
                    raise
                shutil.rmtree(self.data_dir)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def leader(self) -> EmbeddedZooKeeper | None:
        return next((server for server in self.servers if server.running and server.mode() == "leader"), None)

    def _choose_ports(self) -> None:
        ports = [(free_port(), free_port(), free_port()) for _ in range(self._size)]
        lines = [f"server.{n}={LOOPBACK}:{peer}:{election}" for n, (_, peer, election) in enumerate(ports, start=1)]
        self.servers = [
            EmbeddedZooKeeper(
                self.data_dir / f"server-{n}",
                client,
                tick_ms=self._tick_ms,
                heap_mb=self._heap_mb,
                ensemble=(n, lines),
            )
            for n, (client, _, _) in enumerate(ports, start=1)
        ]
