"""ZooKeeper behind TLS (a proxy that ends it)."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiocontroller.config import Config, ConfigError, load_config
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.zookeeper.fault_proxy import FaultProxy
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.zookeeper.securing import tls_context, zookeeper_client
from tests.integration.zookeeper.conftest import MakeClient


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def make_certificate(folder: Path) -> Path:
    """Key and self-signed certificate of 127.0.0.1 in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    subprocess.run(
        (
            f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
            f"-addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key.pem -out {folder}/cert.pem"
        ).split(),
        check=True,
        capture_output=True,
    )
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return both


@pytest.fixture
async def tls_proxy(zookeeper: EmbeddedZooKeeper, certificate: Path) -> AsyncIterator[FaultProxy]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    proxy = await FaultProxy(zookeeper.port, ssl=context).start()
    yield proxy
    await proxy.close()


async def test_everything_works_through_tls(make_client: MakeClient, tls_proxy: FaultProxy, certificate: Path) -> None:
    trust = ssl.create_default_context(cafile=str(certificate))
    client = await make_client(address=tls_proxy.address, ssl=trust)
    await client.create("/a", b"x" * 500_000)
    session_id = client.session_id
    tls_proxy.cut_all()
    assert (await client.get_many(["/a"], watch=True)).data == [b"x" * 500_000]
    assert client.session_id == session_id


async def test_a_server_that_is_not_trusted_gets_no_session(make_client: MakeClient, tls_proxy: FaultProxy) -> None:
    client = await make_client(address=tls_proxy.address, ssl=ssl.create_default_context(), start=False)
    with pytest.raises(TimeoutError, match=r"(?i)certificate"):
        await client.start(0.5)
    assert tls_proxy.connect_frames == []


def tls_config(connect: str, **properties: str) -> Config:
    overrides = {"zookeeper.connect": connect, "zookeeper.ssl.client.enable": "true"}
    overrides |= {f"zookeeper.ssl.{key.replace('_', '.')}": value for key, value in properties.items()}
    return load_config(overrides=overrides)[0]


async def test_kafkas_properties_open_a_session_with_a_server_that_wants_our_certificate(
    zookeeper: EmbeddedZooKeeper, certificate: Path, world: World
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    context.load_cert_chain(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    proxy = await FaultProxy(zookeeper.port, ssl=context).start()
    name, stores = f"localhost:{proxy.port}", {"truststore_location": str(certificate)}
    with_ours = stores | {"keystore_location": str(certificate)}
    try:
        for connect, properties, works in (
            (proxy.address, with_ours, True),
            (proxy.address, stores, False),
            (proxy.address, {"keystore_location": str(certificate)}, False),
            (name, with_ours, False),  # the certificate is 127.0.0.1's
            (name, with_ours | {"endpoint_identification_algorithm": ""}, True),
        ):
            client = zookeeper_client(tls_config(connect, **properties), world)
            try:
                await client.start(10 if works else 0.5)
                assert works
                await client.sync()
            except TimeoutError:
                assert not works
            finally:
                await client.close()
    finally:
        await proxy.close()


async def test_a_renewed_truststore_counts_for_the_next_connection(
    zookeeper: EmbeddedZooKeeper, certificate: Path, tmp_path: Path, world: World
) -> None:
    """ZooKeeper's certificate is another one after a lost connection, and our file knows it only later."""
    renewed = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    proxy = await FaultProxy(zookeeper.port, ssl=context).start()
    store = tmp_path / "trusted.pem"
    store.write_bytes(certificate.read_bytes())
    service = Service(tls_config(proxy.address, truststore_location=str(store)), world, with_http=False)
    client = service.client
    try:
        await client.start(20)
        session_id = client.session_id
        context.load_cert_chain(renewed)
        proxy.cut_all()
        async with asyncio.timeout(20):
            while "certificate" not in client.session.last_failure.lower():
                await asyncio.sleep(0.01)
        store.write_bytes(renewed.read_bytes())
        service.read_certificates()
        async with asyncio.timeout(20):
            await client.sync()
        assert client.session_id == session_id
    finally:
        await client.close()
        await proxy.close()


def test_a_store_that_cannot_be_read_is_named(certificate: Path, tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    (tmp_path / "only.pem").write_bytes((certificate.parent / "cert.pem").read_bytes())
    for properties, message in (
        ({"truststore_location": "/nowhere.pem"}, r"^zookeeper\.ssl\.truststore\.location: found '/nowhere\.pem' \("),
        ({"truststore_location": str(tmp_path / "junk.pem")}, "expected certificates in PEM"),
        ({"keystore_location": str(tmp_path / "only.pem")}, r"zookeeper\.ssl\.keystore\.location.*expected a certif"),
    ):
        with pytest.raises(ConfigError, match=message):
            tls_context(tls_config("h:1", **properties))
    assert tls_context(Config()) is None
