"""Our TLS listener that requires certificates: the client's principal is in its certificate."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.authorizer.acls import AccessControlEntry, ResourcePattern
from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, AclPermissionType, ResourceType
from aiocontroller.config import Config, load_config
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.service import Service
from aiocontroller.wire import elect_leaders
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


def configured(stores: Path, name: str | None, **more: str) -> Config:
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(stores / "all.pem"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:CN=root,O=Acme",
    }
    if name is not None:
        properties["ssl.keystore.location"] = str(stores / f"{name}.pem")
    return load_config(overrides=properties | more)[0]


def settings(config: Config) -> dict[str, Any]:
    return {name: getattr(config, name) for name in Config.__struct_fields__ if not name.startswith("zookeeper")}


async def elect_all(world: World, stores: Path, name: str | None, service: Service) -> int:
    """Return the error code of ElectLeaders, asked with this name's certificate; None: without one."""
    at = Endpoint("SSL", "127.0.0.1", service.endpoints[0].port, "SSL")
    connection = await connect_to_broker(world, Security(configured(stores, name)), at, timeout_s=5)
    body = elect_leaders.encode_elect_leaders_request(2, None)
    frame = await connection.request([encode_request_header(ApiKey.ELECT_LEADERS, 2, 1, "me"), body])
    connection.close()
    _, answer = decode_response_header(ApiKey.ELECT_LEADERS, 2, frame)
    return elect_leaders.decode_elect_leaders_response(2, answer).error_code


async def test_certificates_name_the_principal(world: World, zk_connect: str, stores: Path) -> None:
    async with running(world, zk_connect) as cluster:
        service = await cluster.add_controller(**settings(configured(stores, "root")))
        await cluster.active()
        assert await elect_all(world, stores, "root", service) == 0
        assert await elect_all(world, stores, "alice", service) == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for unknown in ("stranger", None):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await elect_all(world, stores, unknown, service)


async def test_certificates_are_read_where_they_are_only_requested(world: World, zk_connect: str, stores: Path) -> None:
    """Finding 7: they were not, so a super user was refused.  Without a certificate a client is ANONYMOUS."""
    requested = configured(stores, "root", **{"ssl.client.auth": "requested"})
    async with running(world, zk_connect) as cluster:
        service = await cluster.add_controller(**settings(requested))
        await cluster.active()
        assert await elect_all(world, stores, "root", service) == 0
        denied = KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert [await elect_all(world, stores, who, service) for who in ("alice", None)] == [denied] * 2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await elect_all(world, stores, "stranger", service)
        cluster_acls = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
        alter = AccessControlEntry("User:ANONYMOUS", "127.0.0.1", AclOperation.ALTER, AclPermissionType.ALLOW)
        assert service.shell.acls is not None
        await service.shell.acls.update(cluster_acls, lambda _: [alter])
        assert [await elect_all(world, stores, who, service) for who in ("alice", None)] == [denied, 0]


async def test_rules_name_the_principal(world: World, zk_connect: str, stores: Path) -> None:
    """The listener's own rules, and subjects without a rule."""
    mapped = configured(
        stores,
        "root",
        **{
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(root|.*bob),.*$/$1/U",
            "ssl.principal.mapping.rules": "DEFAULT",
            "super.users": "User:ROOT",
        },
    )
    async with running(world, zk_connect) as cluster:
        service = await cluster.add_controller(**settings(mapped))
        await cluster.active()
        assert await elect_all(world, stores, "root", service) == 0
        with pytest.raises(ConnectionError):
            await elect_all(world, stores, "alice", service)
