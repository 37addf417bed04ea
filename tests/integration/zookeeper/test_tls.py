"""ZooKeeper behind TLS (a proxy that ends it)."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiocontroller.cluster.embedded_zookeeper import EmbeddedZooKeeper
from tests.faults import FaultProxy
from tests.integration.zookeeper.conftest import MakeClient


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and self-signed certificate of 127.0.0.1 in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
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
