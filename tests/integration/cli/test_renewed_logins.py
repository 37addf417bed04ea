"""Kafka's own client on a listener whose logins end (KIP-368): it logs in again, on the same connection."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.integration.cli.test_status import put
from tests.java import java_program

PROGRAM = Path(__file__).parent / "java" / "RenewedLogins.java"
LIFETIME_MS = 2_000
FOR_S = 9
USERS = 'x required username="broker" password="broker-secret" user_broker="broker-secret" user_alice="alice-secret";'
PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.jaas.config": USERS,
    "connections.max.reauth.ms": str(LIFETIME_MS),
}
BROKER = {
    "version": 5, "host": "127.0.0.1", "port": -1, "jmx_port": -1, "timestamp": "1700000000000", "features": {},
    "endpoints": ["SASL_PLAINTEXT://127.0.0.1:1"],
    "listener_security_protocol_map": {"SASL_PLAINTEXT": "SASL_PLAINTEXT"},
}  # fmt: skip
"""Not there: from its listeners the controller knows by which names clients know its own."""


@pytest.fixture
def listener(tmp_path: Path, zk_connect: str, kazoo: KazooClient) -> Iterator[str]:
    """The address of a controller's SASL listener."""
    settings = tmp_path / "server.properties"
    properties = PROPERTIES | {"zookeeper.connect": zk_connect}
    settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    log = (tmp_path / "log").open("w")
    controller = subprocess.Popen(
        [sys.executable, "-m", "aiocontroller", "run", "--config", str(settings), "--data", str(tmp_path / "data")],
        stdout=log,
        stderr=log,
    )
    try:
        found = tmp_path / "data" / "controller.json"
        by_s = time.monotonic() + 150
        while not found.exists():
            logged = (tmp_path / "log").read_text()
            assert controller.poll() is None, logged
            assert time.monotonic() < by_s, logged
            time.sleep(0.1)
        put(kazoo, "/brokers/ids/1", BROKER)
        (listening,) = json.loads(found.read_text())["listeners"]
        yield str(listening).removeprefix("SASL_PLAINTEXT://")
    finally:
        controller.kill()
        controller.wait()
        log.close()


@pytest.mark.kafka
def test_javas_client_logs_in_again(listener: str) -> None:
    run = subprocess.run(
        [*java_program(PROGRAM), listener, str(FOR_S)], capture_output=True, text=True, timeout=55, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr[-3000:]
    counts = {name: int(count) for name, count in (line.split("\t") for line in run.stdout.splitlines())}
    assert counts["failed-authentication-total"] == counts["failed-reauthentication-total"] == 0
    assert counts["successful-reauthentication-total"] >= 2
    assert counts["successful-authentication-total"] <= 3, "a new connection for each login is none that is renewed"
    assert counts["answers"] >= 10
