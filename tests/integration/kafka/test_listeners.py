"""Brokers that use SASL_SSL among themselves and have another listener for clients, under our control."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from aiocontroller.config import Config, load_config
from aiocontroller.core.events import TakeOver
from aiocontroller.lab.cluster.embedded_zookeeper import free_port
from aiocontroller.lab.cluster.load.clients import Load, LoadClient, kept_its_word
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker, kafka_missing
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire.scram import credential, salt_password
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.cli.program import aiocontroller
from tests.integration.controller.harness import Cluster, running, until
from tests.integration.controller.test_reassignment import ask

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
US = 1_000_001
JAAS = {
    "plain": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret";',
    "scram-sha-512": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" '
    'password="broker-secret";',
}

OUR_TOOLS = {
    "AIOCONTROLLER_INTER_BROKER_LISTENER_NAME": "INTERNAL",
    "AIOCONTROLLER_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "SCRAM-SHA-512",
    "AIOCONTROLLER_SASL_JAAS_CONFIG": JAAS["scram-sha-512"],
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make ``both.pem``, a key and its certificate for 127.0.0.1, and ``cert.pem``, the certificate."""
    missing, openssl = kafka_missing(), shutil.which("openssl")
    if missing or openssl is None:
        pytest.skip(missing or "no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        (
            f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
            f"-addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key.pem -out {folder}/cert.pem"
        ).split(),
        check=True,
        capture_output=True,
    )
    (folder / "both.pem").write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return folder


def properties(stores: Path, listeners: str) -> dict[str, str]:
    """Return the properties that brokers and controller share."""
    return {
        "listeners": listeners,
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        **{f"listener.name.internal.{mechanism}.sasl.jaas.config": jaas for mechanism, jaas in JAAS.items()},
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores / "both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores / "cert.pem"),
    }


def settings(stores: Path, **changes: str) -> dict[str, Any]:
    found, warnings = load_config(overrides=properties(stores, "INTERNAL://127.0.0.1:0") | changes)
    assert warnings == []
    return {name: getattr(found, name) for name in Config.__struct_fields__ if not name.startswith("zookeeper")}


async def start_brokers(cluster: Cluster, zk_connect: str, folder: Path, stores: Path) -> dict[int, RealKafkaBroker]:
    salt = b"some salt"
    kept = credential("sha512", salt, salt_password("sha512", "broker-secret", salt, 4096), 4096)
    await AdminZkClient(cluster.zk).change_entity_configs("users", "broker", {"SCRAM-SHA-512": str(kept)})
    brokers = {}
    for number in (1, 2):
        port = free_port()
        listeners = f"CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:{free_port()}"
        brokers[number] = RealKafkaBroker(
            number, zk_connect, folder / str(number), port=port, overrides=properties(stores, listeners)
        )
        await brokers[number].start_async()
    return brokers


def administer(service: Service, stores: Path, password: str) -> None:
    """Administer topics through our own listener, as operators' tools do."""
    address = service.endpoints[0]
    admin = AdminClient(
        {
            "bootstrap.servers": f"{address.host}:{address.port}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": password,
            "ssl.ca.location": str(stores / "cert.pem"),
        }
    )
    admin.create_topics([NewTopic("by-admin", 1, 2)], request_timeout=20)["by-admin"].result(30)
    assert sorted(admin.list_topics(timeout=20).brokers) == [1, 2, US]


def create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 2)], request_timeout=20)[name].result(30)


async def test_sasl_ssl_between_brokers_and_a_listener_for_clients(
    world: World, zk_connect: str, tmp_path: Path, stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(world, zk_connect) as cluster:
        brokers = await start_brokers(cluster, zk_connect, tmp_path, stores)
        try:
            wrong = await cluster.add_controller(**settings(stores, **{"inter.broker.listener.name": "CLIENT"}))
            await until(lambda: wrong.controller.election.holder)
            reason, _ = await ask(wrong, lambda reply: TakeOver(reply=reply))
            assert "brokers speak PLAINTEXT on their listener CLIENT, and ours, INTERNAL, speaks SASL_SSL" in reason

            service = await cluster.add_controller(**settings(stores))
            await until(lambda: service.controller.election.holder)
            assert await ask(service, lambda reply: TakeOver(reply=reply)) == []
            await until(lambda: len(service.shell.context.live) == 2)
            await asyncio.to_thread(administer, service, stores, "admin-secret")

            for key, value in OUR_TOOLS.items():
                monkeypatch.setenv(key, value)
            monkeypatch.setenv("AIOCONTROLLER_SSL_TRUSTSTORE_LOCATION", str(stores / "cert.pem"))
            elect = ("elect", "--preferred", "--all", "--json", "--zookeeper", zk_connect)
            assert (await asyncio.to_thread(aiocontroller, *elect)).stdout

            bootstrap = ",".join(broker.address for broker in brokers.values())
            metadata = await asyncio.to_thread(AdminClient({"bootstrap.servers": bootstrap}).list_topics, timeout=20)
            shadow = metadata.brokers[US]
            assert f"{shadow.host}:{shadow.port}" == brokers[1].address  # clients are never sent to us
            with pytest.raises(KafkaException, match="NOT_CONTROLLER"):
                await asyncio.to_thread(create_topic, brokers[1].address, "by-client")

            load = Load([LoadClient("librdkafka", bootstrap, "by-admin", 1, tmp_path / "load")])
            try:
                await load.start()
                (state,) = await cluster.states("by-admin", 1)
                assert state is not None
                follower = next(b for b in (1, 2) if b != state.leader)
                await brokers[follower].stop_async()
                assert "Controlled shutdown request returned successfully" in brokers[follower].log.read_text()
                await brokers[follower].start_async()

                async def whole() -> bool:
                    (now,) = await cluster.states("by-admin", 1)
                    return now is not None and len(now.isr) == 2

                await until(whole, "a full ISR, by AlterPartition over SASL_SSL", 60)
                await load.settled()
                verdicts = await load.finish()
            finally:
                load.kill()
            assert kept_its_word(verdicts)
            assert verdicts["librdkafka"].acknowledged > 0
            assert not verdicts["librdkafka"].errors
        finally:
            for broker in brokers.values():
                broker.kill()
