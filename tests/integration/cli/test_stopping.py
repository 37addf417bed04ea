"""A signal ends the controller within 5 s, whatever it waits for and whatever hangs.

The bound is 5 s; tests allow 8, because other processes share the machine's cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from aiocontroller.cli.run import READY_FILE
from aiocontroller.java import JavaMissingError, find_java
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from tests.integration.cli.test_status import register_broker

BOUND_S = 8.0
HANG = "import threading; hang = lambda *_, **__: threading.Event().wait()"
SILENT_NAME_SERVER = f"""
import socket, sys
{HANG}
sys.modules["uvloop"] = None  # it asks for names in C
known, socket.getaddrinfo = socket.getaddrinfo, lambda host, *more, **named: (
    hang() if host == "zookeeper.example" else known(host, *more, **named)
)
"""
HUNG_SYNC = f"""
import os
{HANG}
os.fdatasync = hang
"""
HUNG_OPEN = f"""
import os
{HANG}
known, os.open = os.open, lambda path, *more, **named: (
    hang() if "journal-" in str(path) else known(path, *more, **named)
)
"""
LONG_FAILOVER = """
import asyncio
from aiocontroller.controller import controller_election
async def failover(shell):
    open(MARK, "w").close()
    while True:
        sum(range(NUMBERS))
        await asyncio.sleep(0)
controller_election.on_controller_failover = failover
"""
BLOCKED_LOOP = """
import time
from aiocontroller.controller import controller_election
async def failover(shell):
    open(MARK, "w").close()
    time.sleep(100)
controller_election.on_controller_failover = failover
"""


def program(prelude: str, mark: Path) -> list[str]:
    """``aiocontroller``, with ``prelude`` carried out when signals are listened to, before libraries start threads."""
    return [
        sys.executable,
        "-c",
        "from aiocontroller.cli.long_running import LongRunning\n"
        "def begin(self, *how, begin=LongRunning.__init__, **named):\n"
        "    begin(self, *how, **named)\n"
        f"    exec({prelude!r}, {{'MARK': {str(mark)!r}}})\n"
        "LongRunning.__init__ = begin\n"
        "from aiocontroller.cli import main\n"
        "main()\n",
    ]


class Controller:
    """``aiocontroller run`` in a process of its own, after ``prelude``; what it prints goes to a file."""

    def __init__(self, folder: Path, prelude: str, *arguments: str) -> None:
        self.data, self.mark = folder / "data", folder / "mark"
        self.log = folder / "log"
        command = ["run", "--listen", "127.0.0.1:0", "--http-port", "0", "--data", str(self.data), *arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*program(prelude, self.mark), *command], stderr=log, stdout=log)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 150
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def says(self, words: str) -> bool:
        return words in self.log.read_text()

    def is_active(self) -> bool:
        return self.says("successfully elected as the controller")

    @property
    def http(self) -> str:
        return str(json.loads((self.data / "controller.json").read_text())["http"])

    def ends(self, number: signal.Signals = signal.SIGTERM, within_s: float = BOUND_S) -> int:
        """Its exit code after the signal, in time."""
        began_s = time.monotonic()
        self.process.send_signal(number)
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it goes on {time.monotonic() - began_s:.1f} s after {number.name}: {self.log.read_text()}")
        assert not self.says("Traceback"), self.log.read_text()
        return code


Start = Callable[..., Controller]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Controller] = []

    def begin(*arguments: str, prelude: str = "") -> Controller:
        running.append(Controller(tmp_path, prelude, *arguments))
        return running[-1]

    yield begin
    for controller in running:
        controller.process.kill()
        controller.process.wait()


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address(server: socket.socket) -> str:
    return "{}:{}".format(*server.getsockname())


# -- before it is active --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_no_zookeeper(start: Start, number: signal.Signals) -> None:
    """Finding 5: three SIGTERMs and two SIGINTs did not end it."""
    controller = start("--zookeeper", "127.0.0.1:1")
    controller.until(lambda: controller.says("Waiting for ZooKeeper"))
    assert controller.ends(number) == 0
    assert list(controller.data.glob("*.lock")) == []


def test_zookeeper_that_never_answers(start: Start, silent: socket.socket) -> None:
    controller = start("--zookeeper", address(silent))
    controller.until(lambda: controller.says("Waiting for ZooKeeper"))
    connection, _ = silent.accept()
    assert controller.ends() == 0
    connection.close()


def test_name_server_that_never_answers(start: Start) -> None:
    controller = start("--zookeeper", "zookeeper.example:2181", prelude=SILENT_NAME_SERVER)
    controller.until(lambda: controller.says("Waiting for ZooKeeper"))
    assert controller.ends() == 0


def test_name_server_that_never_answers_and_a_bound_for_the_start(start: Start) -> None:
    bound = "zookeeper.connection.timeout.ms=500"
    controller = start("--zookeeper", "zookeeper.example:2181", "--property", bound, prelude=SILENT_NAME_SERVER)
    assert controller.process.wait(30) == 1
    assert controller.says("Error: no session with ZooKeeper at zookeeper.example:2181 within 0.5 s")


def test_signal_during_the_imports_ends_at_once(start: Start) -> None:
    slow = (
        "import sys, time, types\n"
        "class Slow:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'aiocontroller.service':\n"
        "            open(MARK, 'w').close()\n"
        "            time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())"
    )
    controller = start("--zookeeper", "127.0.0.1:1", prelude=slow)
    controller.until(controller.mark.exists)
    assert controller.ends() == 128 + signal.SIGTERM


def test_what_a_killed_process_left_is_not_taken_for_this_one(start: Start, tmp_path: Path) -> None:
    """Its id may be the same: in a container each is process 1."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / READY_FILE).write_text("{}")
    controller = start("--zookeeper", "127.0.0.1:1")
    controller.until(lambda: controller.says("Waiting for ZooKeeper"))
    assert not (tmp_path / "data" / READY_FILE).exists()


# -- disks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hangs", [HUNG_SYNC, HUNG_OPEN], ids=["sync", "open"])
def test_hung_journal_disk(start: Start, zk_connect: str, hangs: str) -> None:
    """Finding 5: 68 s."""
    controller = start("--zookeeper", zk_connect, prelude=hangs)
    controller.until(controller.is_active)
    assert controller.ends() == 0
    assert re.search(
        r"closed with \d+ records that could not be written: the disk did not answer within", log(controller)
    )


def test_disk_that_hangs_before_the_journal_is_open(start: Start, tmp_path: Path) -> None:
    prelude = f"{HANG}\nfrom aiocontroller.journal import segments\nsegments.adopt_leftovers = hang"
    controller = start("--zookeeper", "127.0.0.1:1", prelude=prelude)
    controller.until(lambda: (controller.data / "journal").exists())
    assert controller.ends() in (0, 128 + signal.SIGTERM)


# -- active ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [1_000, 20_000, 100_000, 1_000_000])
def test_in_the_middle_of_a_failover(start: Start, zk_connect: str, numbers: int) -> None:
    """Turns of the loop of 20 us to 20 ms: those between 0.2 and 5 ms starved the thread that hears signals."""
    controller = start("--zookeeper", zk_connect, prelude=LONG_FAILOVER.replace("NUMBERS", str(numbers)))
    controller.until(controller.mark.exists)
    assert controller.ends() == 0
    assert controller.says("Ending while handling Startup")
    assert role_is_free(zk_connect)


def test_loop_that_is_blocked(start: Start, zk_connect: str) -> None:
    """Nothing on the loop runs any more: the thread says what was going on and ends the process."""
    controller = start("--zookeeper", zk_connect, prelude=BLOCKED_LOOP)
    controller.until(controller.mark.exists)
    assert controller.ends() == 1
    assert re.search(r"Ending 4\.\d s after SIGTERM, while handling Startup \(at <string>:\d+\)", log(controller))
    records = [
        json.loads(line) for path in (controller.data / "journal").glob("*") for line in path.read_text().splitlines()
    ]
    assert "elected" in {record["kind"] for record in records}


def test_second_signal_ends_at_once(start: Start, zk_connect: str) -> None:
    controller = start("--zookeeper", zk_connect, prelude=BLOCKED_LOOP)
    controller.until(controller.mark.exists)
    controller.process.send_signal(signal.SIGTERM)
    controller.until(lambda: controller.says("SIGTERM: ending within 5 s"))
    assert controller.ends(signal.SIGINT, within_s=2) == 128 + signal.SIGINT
    assert controller.says("SIGINT once more: ending at once, while handling Startup")


def test_the_same_signal_twice_at_once_counts_once(start: Start, zk_connect: str) -> None:
    """``timeout`` sends it to the process and to its group: the end was none in order, with 143."""
    controller = start("--zookeeper", zk_connect)
    controller.until(lambda: controller.is_active() and (controller.data / "controller.json").exists())
    send_twice(controller.process.pid, signal.SIGTERM)
    assert controller.process.wait(BOUND_S) == 0
    assert controller.says("Resigned")


def send_twice(pid: int, number: signal.Signals) -> None:
    """Again as soon as the first one was taken: two that wait at once are one."""
    bit = 1 << (number - 1)
    os.kill(pid, number)
    while int(re.search(r"ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[1], 16) & bit:  # type: ignore[index]
        pass  # bounded by the test's own time
    os.kill(pid, number)


def test_under_nohup_a_closed_terminal_ends_nothing(start: Start, zk_connect: str) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        controller = start("--zookeeper", zk_connect)
    finally:
        signal.signal(signal.SIGHUP, before)
    controller.until(lambda: controller.is_active() and (controller.data / "controller.json").exists())
    controller.process.send_signal(signal.SIGHUP)
    assert controller.ends() == 0
    assert controller.says("SIGTERM: ending")
    assert not controller.says("SIGHUP")


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_closed_output_hinders_nothing(tmp_path: Path, zk_connect: str, closed: tuple[int, ...]) -> None:
    """``>&-`` was a traceback; a socket in the place of standard output would have got what is printed."""
    data = tmp_path / "data"
    command = ["run", "--listen", "127.0.0.1:0", "--http-port", "0", "--data", str(data), "--zookeeper", zk_connect]
    closing = " ".join(f"{number}>&-" for number in closed)
    shell = ["sh", "-c", f'exec "$@" {closing}', "sh", *program("", tmp_path / "mark"), *command]
    process = subprocess.Popen(shell)
    try:
        deadline = time.monotonic() + 150
        while not (data / "controller.json").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert all(os.readlink(f"/proc/{process.pid}/fd/{number}") == os.devnull for number in closed)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 0
    finally:
        process.kill()


def test_brokers_that_never_answer(start: Start, zk_connect: str, silent: socket.socket) -> None:
    """A release waits for them; so does a takeover, which asks them what they are."""
    client = KazooClient(zk_connect)
    client.start(timeout=20)
    try:
        controller = start("--zookeeper", zk_connect)
        controller.until(lambda: controller.is_active() and (controller.data / "controller.json").exists())
        register_broker(client, 1, silent.getsockname()[1])
        controller.until(lambda: json.loads(get(f"{controller.http}/status"))["live_brokers"] == [1])
        assert controller.ends() == 0
        assert client.exists("/controller") is None
        client.create("/controller", b'{"version":1,"brokerid":1,"timestamp":"0"}')
        controller = start("--zookeeper", zk_connect, "--property", "aiocontroller.takeover.policy=takeover")
        controller.until(lambda: controller.says("Controller 1 is active"))
        assert controller.ends() == 0
    finally:
        client.stop()
        client.close()


def test_open_connections(start: Start, zk_connect: str) -> None:
    controller = start("--zookeeper", zk_connect)
    controller.until(lambda: controller.is_active() and (controller.data / "controller.json").exists())
    ready = json.loads((controller.data / "controller.json").read_text())
    half_a_request = b"POST /takeover HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    with contextlib.ExitStack() as opened:
        for url in [ready["http"], *ready["listeners"]] * 3:
            host, port = url.rpartition("/")[2].split(":")
            connection = opened.enter_context(socket.create_connection((host, int(port)), timeout=10))
            connection.sendall(half_a_request if url == ready["http"] else b"\0")
        assert get(f"{ready['http']}/healthz") == b"ok\n"
        assert controller.ends() == 0


@pytest.mark.zookeeper
def test_suspended_zookeeper(start: Start, tmp_path: Path) -> None:
    try:
        find_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    server = EmbeddedZooKeeper(tmp_path / "zookeeper")
    server.start()
    try:
        controller = start("--zookeeper", server.address)
        controller.until(controller.is_active)
        server.suspend()
        assert controller.ends() in (0, 1)
    finally:
        server.resume()
        server.stop()


# -- its output is not read ---------------------------------------------------------------------------------------


def test_blocked_output_blocks_nothing(zk_connect: str, tmp_path: Path) -> None:
    """Finding 5: the controller froze and lost its role."""
    prelude = (
        "import logging\n"
        "from aiocontroller import service\n"
        "watch = service.Service._watch_loop_lag\n"
        "async def much(self):\n"
        "    for _ in range(20_000):\n"
        "        logging.getLogger('much').debug('x' * 500)\n"
        "        await self.world.clock.sleep(0)\n"
        "    open(MARK, 'w').close()\n"
        "    await watch(self)\n"
        "service.Service._watch_loop_lag = much\n"
    )
    mark, data = tmp_path / "mark", tmp_path / "data"
    command = [*program(prelude, mark), "run", "--zookeeper", zk_connect, "--listen", "127.0.0.1:0"]
    command += ["--http-port", "0", "--data", str(data), "--log-level", "debug", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + 150
            while not (mark.exists() and (data / "controller.json").exists()):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            http = json.loads((data / "controller.json").read_text())["http"]
            assert get(f"{http}/healthz") == b"ok\n"
            status = json.loads(get(f"{http}/status"))
            assert (status["active"], status["epoch"]) == (True, 1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(BOUND_S) == 0
        finally:
            process.kill()
            process.communicate()


# -- others that run for long ------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets processes die with their parent")
def test_simulation_ends_with_its_workers() -> None:
    command = [sys.executable, "-m", "aiocontroller", "simulate", "--seeds", "100000", "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "of 100,000 seeds" in process.stderr.readline()
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(workers) >= 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == -signal.SIGTERM
    deadline = time.monotonic() + BOUND_S
    while any(Path("/proc", worker).exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def log(controller: Controller) -> str:
    return controller.log.read_text()


def role_is_free(zk_connect: str) -> bool:
    client = KazooClient(zk_connect)
    client.start(timeout=20)
    try:
        return client.exists("/controller") is None
    finally:
        client.stop()
        client.close()
