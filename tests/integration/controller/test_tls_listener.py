"""Our listener with TLS that wants certificates: who comes is who the certificate names."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from aiocontroller.config import Config, load_config
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.service import Service
from aiocontroller.wire import admin_messages
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_response_header, encode_request_header
from tests.integration.controller.harness import running


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``NAME.pem``, a key and a self-signed certificate, for three; ``all.pem`` trusts two of them."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("root", "alice", "stranger"):
        command = (
            f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /O=Acme/CN={name} "
            f"-addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key -out {folder}/{name}.crt"
        )
        subprocess.run(command.split(), check=True, capture_output=True)
        (folder / f"{name}.pem").write_bytes((folder / "key").read_bytes() + (folder / f"{name}.crt").read_bytes())
    (folder / "all.pem").write_bytes((folder / "root.crt").read_bytes() + (folder / "alice.crt").read_bytes())
    return folder


def configured(stores: Path, name: str) -> Config:
    told = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "required",
        "ssl.keystore.location": str(stores / f"{name}.pem"),
        "ssl.truststore.location": str(stores / "all.pem"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:CN=root,O=Acme",
    }
    return load_config(overrides=told)[0]


async def elect_all(world: World, stores: Path, name: str, service: Service) -> int:
    """The error code of ElectLeaders, asked under this name's certificate."""
    at = Endpoint("SSL", "127.0.0.1", service.endpoints[0].port, "SSL")
    connection = await connect_to_broker(world, Security(configured(stores, name)), at, timeout_s=5)
    body = admin_messages.encode_elect_leaders_request(2, None)
    frame = await connection.request([encode_request_header(ApiKey.ELECT_LEADERS, 2, 1, name), body])
    connection.close()
    _, answer = decode_response_header(ApiKey.ELECT_LEADERS, 2, frame)
    return admin_messages.decode_elect_leaders_response(2, answer).error_code


async def test_certificates_say_who_comes(world: World, zk_connect: str, stores: Path) -> None:
    ours = configured(stores, "root")
    settings = {name: getattr(ours, name) for name in Config.__struct_fields__ if not name.startswith("zookeeper")}
    async with running(world, zk_connect) as cluster:
        service = await cluster.add_controller(**settings)
        await cluster.active()
        assert await elect_all(world, stores, "root", service) == 0
        assert await elect_all(world, stores, "alice", service) == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await elect_all(world, stores, "stranger", service)
