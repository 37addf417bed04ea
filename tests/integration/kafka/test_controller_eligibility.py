"""Real brokers with AclAuthorizer: a controller does not take the role unless it knows the brokers' principals."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.config import Config, load_config
from aiocontroller.core.events import TakeOver
from aiocontroller.lab.cluster.embedded_zookeeper import free_port
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker, kafka_missing
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from tests.integration.controller.harness import Cluster, running, until
from tests.integration.controller.test_reassignment import ask

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
RULES = "RULE:^CN=(.*?),.*$/$1/,DEFAULT"


@asynccontextmanager
async def brokers(zk_connect: str, folder: Path, *each: dict[str, str]) -> AsyncIterator[dict[int, RealKafkaBroker]]:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    started = {}
    try:
        for number, properties in enumerate(each, 1):
            started[number] = RealKafkaBroker(
                number, zk_connect, folder / str(number), port=free_port(), overrides=properties
            )
            if "listeners" in properties:
                port = started[number].port
                internal = f"CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:{free_port()}"
                started[number].overrides["listeners"] = internal
            await started[number].start_async()
        yield started
    finally:
        for broker in started.values():
            broker.kill()


async def take_over(service: Service) -> list[str]:
    found: list[str] = await ask(service, lambda reply: TakeOver(reply=reply))
    return found


async def test_controller_without_authorizer_is_kept_out_when_all_brokers_are_dead(
    world: World, zk_connect: str, tmp_path: Path
) -> None:
    """Finding 8."""
    properties = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    async with running(world, zk_connect) as cluster, brokers(zk_connect, tmp_path, properties, properties) as both:
        service = await cluster.add_controller()
        await until(lambda: service.controller.election.holder)
        (reason,) = await take_over(service)
        assert f"brokers have an authorizer ({AUTHORIZER})" in reason
        for broker in both.values():
            broker.kill()

        async def vacant() -> bool:
            registered, _ = await cluster.zk.get_all_brokers_in_cluster(watch=False)
            return await cluster.zk.get_controller(watch=False) is None and not registered

        await until(vacant, "the brokers' sessions end", 60)
        fresh = await cluster.add_controller(aiocontroller_id=1_000_002)
        await until(lambda: "/kafka-acl exists" in " ".join(fresh.controller.election.refusals))
        await until(lambda: any("/kafka-acl exists" in each for each in service.controller.readiness().reasons))
        for each in (service, fresh):
            assert not each.controller.election.active
            assert not each.controller.readiness().ready
        assert await cluster.zk.get_controller(watch=False) is None


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a key and its certificate, for 127.0.0.1, of ``CN=broker,O=us``."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        (
            f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /O=us/CN=broker "
            f"-addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key.pem -out {folder}/cert.pem"
        ).split(),
        check=True,
        capture_output=True,
    )
    (folder / "both.pem").write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return folder


def secured(store: Path, **changes: str) -> dict[str, str]:
    """Return the properties that brokers and controller share."""
    return {
        "listeners": "INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store / "both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(store / "cert.pem"),
        "ssl.principal.mapping.rules": RULES,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:broker",
    } | changes


def settings(properties: dict[str, str]) -> dict[str, Any]:
    found, warnings = load_config(overrides=properties)
    assert warnings == []
    return {name: getattr(found, name) for name in Config.__struct_fields__ if not name.startswith("zookeeper")}


async def isr(cluster: Cluster) -> tuple[int, ...]:
    (state,) = await cluster.states("t", 1)
    return () if state is None else state.isr


async def test_principals_of_brokers_are_known_before_the_role_is_taken(
    world: World, zk_connect: str, tmp_path: Path, store: Path
) -> None:
    """Finding 9: otherwise the next restart of a broker would leave every ISR with one member."""
    properties = secured(store)
    async with running(world, zk_connect) as cluster, brokers(zk_connect, tmp_path, properties, properties) as both:
        wrong = await cluster.add_controller(**settings({**properties, "ssl.principal.mapping.rules": "DEFAULT"}))
        await until(lambda: wrong.controller.election.holder)
        reasons = await take_over(wrong)
        assert f"ssl.principal.mapping.rules {RULES}, and ours, for listener INTERNAL, are DEFAULT" in reasons[0]
        assert "broker 1 authenticates as User:CN=broker,O=us, who lacks ClusterAction here" in reasons[1]
        assert not wrong.controller.readiness().ready

        service = await cluster.add_controller(**settings({**properties, "aiocontroller.id": "1000002"}))
        await until(lambda: service.controller.election.holder)
        assert await take_over(service) == []
        await cluster.create_topic("t", {0: [1, 2]})
        await cluster.until_leaders("t", [1])
        await both[2].stop_async()

        async def shrunk() -> bool:
            return await isr(cluster) == (1,)

        async def whole() -> bool:
            return sorted(await isr(cluster)) == [1, 2]

        await until(shrunk, "the ISR without the broker that is away", 60)
        await both[2].start_async()
        await until(whole, "a full ISR, by AlterPartition", 60)
        assert str(service.controller.readiness()) == "active"
