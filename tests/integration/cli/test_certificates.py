"""SIGHUP without a terminal: certificates are read again, and a broken file changes nothing."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.test_stopping import program


def make_certificate(folder: Path, name: str) -> bytes:
    """A key and its certificate for 127.0.0.1, in PEM."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make certificates with")
    command = (
        f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key -out {folder}/{name}.crt"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return (folder / "key").read_bytes() + (folder / f"{name}.crt").read_bytes()


class Controller:
    """``aiocontroller run`` with a TLS listener, in a session of its own, so that no terminal controls it."""

    def __init__(self, folder: Path, zk_connect: str, pem: Path, terminal: int | None = None, *more: str) -> None:
        self._data, self._log = folder / "data", folder / "log"
        listener = ["--property", "listeners=SSL://127.0.0.1:0", "--property", f"ssl.keystore.location={pem}"]
        command = ["run", "--zookeeper", zk_connect, "--http-port", "0", "--data", str(self._data), *listener, *more]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "aiocontroller", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=None if terminal is None else lambda: _controlled_by(terminal),  # noqa: PLW1509 - no threads
            )
        self.until(lambda: (self._data / "controller.json").exists())

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 150
        while not condition():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.02)

    def says(self, words: str) -> int:
        """How often."""
        return self._log.read_text().count(words)

    def ready(self) -> dict[str, Any]:
        """The content of ``controller.json``."""
        found: dict[str, Any] = json.loads((self._data / "controller.json").read_bytes())
        return found

    def certificate(self, at: str = "") -> str:
        """What it shows to who connects to its listener, or to another address, in PEM."""
        port = int((at or self.ready()["listeners"][0]).rpartition(":")[2])
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=20)

    def hang_up(self, words: str) -> None:
        """Until it says what became of it."""
        before = self.says(words)
        self.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.says(words) > before)


def _controlled_by(terminal: int) -> None:
    """Of a process that leads a session."""
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


Start = Callable[..., Controller]


@pytest.fixture
def start(tmp_path: Path, zk_connect: str) -> Iterator[Start]:
    running: list[Controller] = []

    def begin(pem: Path, terminal: int | None = None, *more: str) -> Controller:
        running.append(Controller(tmp_path, zk_connect, pem, terminal, *more))
        return running[-1]

    yield begin
    for controller in running:
        controller.process.kill()
        controller.process.wait()


def certificate_in(pem: bytes) -> str:
    text = pem.decode()
    return text[text.index("-----BEGIN CERTIFICATE") :]


def test_a_changed_certificate_is_shown_and_a_broken_one_is_refused(start: Start, tmp_path: Path) -> None:
    first, second = make_certificate(tmp_path, "first"), make_certificate(tmp_path, "second")
    pem = tmp_path / "own.pem"
    pem.write_bytes(first)
    controller = start(pem)
    assert controller.certificate() == certificate_in(first)

    pem.write_bytes(second)
    assert controller.certificate() == certificate_in(first)
    controller.hang_up("Reloaded the certificates")
    assert controller.certificate() == certificate_in(second)

    for broken in (b"", first[:200], first[: first.index(b"-----END")], second[:1000] + certificate_in(first).encode()):
        pem.write_bytes(broken)
        controller.hang_up(f"Keeping the old certificates: ssl.keystore.location: found '{pem}' (")
        assert controller.certificate() == certificate_in(second)
    pem.unlink()
    controller.hang_up("No such file or directory), expected a certificate and its key in PEM")
    assert controller.certificate() == certificate_in(second)
    os.mkfifo(pem)  # the loop waited for ever for somebody to write to it
    controller.hang_up("(not a regular file), expected a certificate and its key in PEM")
    assert controller.certificate() == certificate_in(second)
    pem.unlink()

    pem.write_bytes(first)
    controller.hang_up("Reloaded the certificates")
    assert controller.certificate() == certificate_in(first)

    controller.process.send_signal(signal.SIGTERM)
    controller.process.send_signal(signal.SIGHUP)
    assert controller.process.wait(20) == 0, "SIGHUP counted as a second signal to end"
    assert controller.says("Traceback") == 0


def test_https_shows_the_changed_one_too_and_commands_need_none(start: Start, tmp_path: Path) -> None:
    first, second = make_certificate(tmp_path, "first"), make_certificate(tmp_path, "second")
    pem = tmp_path / "own.pem"
    pem.write_bytes(first)
    controller = start(pem, None, "--property", "aiocontroller.http.security.protocol=SSL")
    page = controller.ready()["page"]
    assert page.startswith("https://127.0.0.1:")
    assert controller.certificate(page) == certificate_in(first)
    pem.write_bytes(second)
    controller.hang_up("Reloaded the certificates")
    assert controller.certificate(page) == certificate_in(second)
    command = [sys.executable, "-m", "aiocontroller", "settings", "--json", "--data", str(tmp_path / "data")]
    assert json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["id"] == 1_000_001


def test_a_closed_terminal_still_ends_it_in_order(start: Start, tmp_path: Path) -> None:
    """SIGHUP was as good as SIGKILL: the role was vacant until the session had expired."""
    pem = tmp_path / "own.pem"
    pem.write_bytes(make_certificate(tmp_path, "first"))
    ours, its = pty.openpty()
    controller = start(pem, its)
    os.close(its)
    controller.until(lambda: controller.says("successfully elected as the controller") > 0)
    os.close(ours)  # the kernel sends SIGHUP to who leads the session
    assert controller.process.wait(20) == 0
    assert controller.says("SIGHUP: ending")
    assert controller.says("Resigned")


def test_a_hangup_during_the_imports_ends_nothing(tmp_path: Path) -> None:
    """Nothing has been read yet; it ended the process with 129."""
    hang_up = "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)"
    command = [*program(hang_up, tmp_path / "mark"), "run", "--zookeeper", "127.0.0.1:1", "--http-port", "0"]
    log = tmp_path / "log"
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors, start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 150
            while "Waiting for ZooKeeper" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
