"""SASL DIGEST-MD5 against a server that knows one user.  Fault 21 of the table in docs/zookeeper.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiozk import ACL, exc

from aiocontroller.java import JavaMissingError, find_java, zookeeper_class_path
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.client import ZooKeeperClient

pytestmark = pytest.mark.zookeeper


class SaslZooKeeper(EmbeddedZooKeeper):
    def _command(self) -> list[str]:
        jaas = self.data_dir / "jaas.conf"
        jaas.write_text(
            'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="se\\"cret"; };\n'
        )
        java, *rest = super()._command()
        provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        return [
            java,
            f"-Djava.security.auth.login.config={jaas}",
            f"-Dzookeeper.authProvider.1={provider}",
            *rest,
        ]


@pytest.fixture(scope="module")
def sasl_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    try:
        find_java()
        zookeeper_class_path()
    except JavaMissingError as error:
        pytest.skip(str(error))
    folder: Path = tmp_path_factory.mktemp("sasl")
    server = SaslZooKeeper(folder)
    server.start()
    yield server
    server.stop()


async def test_an_authenticated_user_owns_its_znodes(sasl_server: EmbeddedZooKeeper, world: World) -> None:
    metrics = Metrics()
    client = ZooKeeperClient(
        sasl_server.address,
        world=world,
        session_timeout_s=4,
        sasl_digest=("kafka", 'se"cret'),
        default_acl=[ACL.make("sasl", "kafka", read=True, write=True, create=True, delete=True, admin=True)],
        metrics=metrics,
    )
    stranger = ZooKeeperClient(sasl_server.address, world=world, session_timeout_s=4)
    try:
        await client.start(10)
        await stranger.start(10)
        await client.create("/mine", b"secret")
        client.session.conn.abort("test")
        assert (await client.get_many(["/mine"])).data == [b"secret"]
        with pytest.raises(exc.NoAuth):
            await stranger.get("/mine")
        listener = "kafka_server_sessionexpirelistener_zookeeper"
        rendered = metrics.render().splitlines()
        assert f"{listener}saslauthentications_total 2.0" in rendered
        assert f"{listener}disconnects_total 1.0" in rendered
        assert f"{listener}expires_total 0.0" in rendered
        gauges = "kafka_server_zookeeperclientmetrics_"
        shown = {line.split()[0]: float(line.split()[1]) for line in rendered if line.startswith(gauges)}
        assert shown[f"{gauges}bytessent"] > shown[f"{gauges}bytesinflight"] == 0
        assert shown[f"{gauges}bytesreceived"] > 0
        assert shown[f"{gauges}failedattempts"] == 0
    finally:
        await client.close()
        await stranger.close()


async def test_a_wrong_password_gets_nowhere_and_is_named(sasl_server: EmbeddedZooKeeper, world: World) -> None:
    client = ZooKeeperClient(sasl_server.address, world=world, session_timeout_s=4, sasl_digest=("kafka", "wrong"))
    with pytest.raises(TimeoutError, match="SASL authentication of 'kafka' failed"):
        await client.start(0.5)
    await client.close()
