"""What an orchestrator sees: the table in docs/operating.md, where other tests do not play it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.integration.cli.program import aiocontroller

NOBODY = ("--zookeeper", "127.0.0.1:1")


@pytest.mark.parametrize(
    "words,named",
    [
        (("--no-such-option",), "--no-such-option"),
        (("--property", "zookeeper.session.timeout.ms=soon"), "zookeeper.session.timeout.ms"),
        (("--http-port", "99999"), "aiocontroller.http.port"),
        (("--property", "listeners=SSL://127.0.0.1:0"), "ssl.keystore.location: found nothing"),
        (
            ("--property", "listeners=SSL://127.0.0.1:0", "--property", "ssl.keystore.location=/no/such/file"),
            "ssl.keystore.location: found '/no/such/file'",
        ),
        (
            (
                *("--property", "zookeeper.ssl.client.enable=true"),
                *("--property", "zookeeper.ssl.truststore.location=/no/such/file"),
            ),
            "zookeeper.ssl.truststore.location: found '/no/such/file'",
        ),
    ],
)
def test_what_no_restart_mends_is_2(words: tuple[str, ...], named: str) -> None:
    done = aiocontroller("run", *NOBODY, "--http-port", "0", *words, code=2)
    assert named in done.stderr


def test_an_address_that_is_taken_is_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = aiocontroller("run", *NOBODY, "--http-port", "0", "--listen", f"127.0.0.1:{port}", code=1)
    assert str(port) in done.stderr


def asked(port: int, path: str) -> tuple[int, str]:
    """Status and text; (0, "") while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_without_zookeeper_it_is_alive_and_not_ready(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["run", *NOBODY, "--http-port", str(port), "--listen", "127.0.0.1:0", "--data", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-m", "aiocontroller", *command], stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 150
            while asked(port, "/healthz")[0] == 0:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert asked(port, "/healthz") == (200, "ok\n")
            status, reasons = asked(port, "/readyz")
            assert status == 503
            assert reasons.splitlines()[:2] == ["not able to stand by", "no session with ZooKeeper"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
