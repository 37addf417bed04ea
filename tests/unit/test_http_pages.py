"""HTTP over TLS: who gets in with which certificate, what stays on this machine, and which properties are refused."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from aiocontroller.config import ConfigError, load_config
from aiocontroller.controller.kafka_controller import KafkaController
from aiocontroller.http_pages import HttpPages
from aiocontroller.metrics import Metrics
from aiocontroller.net.real import real_world
from aiocontroller.net.tasks import LooseTasks
from aiocontroller.security import Security
from aiocontroller.server import reader_check
from aiocontroller.server.actor_check import HttpPeer
from aiocontroller.server.http import HttpServer, Limits, serve
from aiocontroller.server.overview_pages import Overview


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``NAME.pem``, a key and a self-signed certificate, for four; ``readers.pem`` trusts alice's alone."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("page", "renewed", "alice", "stranger"):
        command = (
            f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /O=Acme/CN={name} "
            f"-addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key -out {folder}/{name}.crt"
        )
        subprocess.run(command.split(), check=True, capture_output=True)
        (folder / f"{name}.pem").write_bytes((folder / "key").read_bytes() + (folder / f"{name}.crt").read_bytes())
    shutil.copy(folder / "alice.crt", folder / "readers.pem")
    return folder


def properties(stores: Path, **more: str) -> dict[str, str]:
    return {
        "aiocontroller.http.security.protocol": "SSL",
        "listener.name.http.ssl.keystore.location": str(stores / "page.pem"),
        "listener.name.http.ssl.truststore.location": str(stores / "readers.pem"),
    } | {key.replace("__", "."): value for key, value in more.items()}


AUTH = "listener__name__http__ssl__client__auth"


PEERS: list[HttpPeer] = []


async def remembered(peer: HttpPeer, body: bytes) -> Mapping[str, Any]:
    PEERS.append(peer)
    return {}


async def question(query: Mapping[str, str]) -> Mapping[str, Any]:
    return {"answer": 42}


@asynccontextmanager
async def served(given: Mapping[str, str], password: str = "") -> AsyncIterator[tuple[HttpServer, Security]]:
    config, _ = load_config(overrides=given)
    security = Security(config)

    def now() -> ssl.SSLContext:
        context = security.server(config.http_endpoint).server_tls
        assert context is not None
        return context

    server = await serve(
        real_world(),
        "127.0.0.1",
        0,
        metrics=Metrics(),
        ready=lambda: (True, "active"),
        status=dict,
        questions={"overview": question},
        streams={"events": Overview({"answer": lambda: 42}, cast(KafkaController, None), real_world().clock, 9).stream},
        page_posts={"confirm": remembered},
        password=password,
        limits=Limits(timeout_s=1.0),
        tls=now,
    )
    yield server, security
    await server.close()


def client(stores: Path, own: str | None = None, trusted: str = "page") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(stores / f"{trusted}.crt"))
    if own is not None:
        context.load_cert_chain(stores / f"{own}.pem")
    return context


async def status(server: HttpServer, context: ssl.SSLContext, **options: Any) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/overview", ssl=context, **options) as answer:
        return answer.status


@pytest.fixture
def from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_check, "is_this_machines", lambda address: False)


async def test_this_machine_reads_by_both(stores: Path) -> None:
    async with served(properties(stores)) as (server, _):
        assert server.url.startswith("https://127.0.0.1:")
        assert await status(server, client(stores)) == 200
        assert server.local_url.startswith("http://127.0.0.1:")
        async with aiohttp.ClientSession() as http, http.get(f"{server.local_url}/overview") as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await status(server, client(stores, trusted="stranger"))


@pytest.mark.usefixtures("from_elsewhere")
async def test_a_certificate_or_the_password_lets_in(stores: Path) -> None:
    async with served(properties(stores, **{AUTH: "requested"}), "sesame") as (server, _):
        assert await status(server, client(stores, "alice")) == 200
        assert await status(server, client(stores)) == 401
        assert (
            await status(server, client(stores), headers={"Authorization": aiohttp.encode_basic_auth("x", "sesame")})
            == 200
        )
        with pytest.raises(aiohttp.ClientError):
            await status(server, client(stores, "stranger"))
    async with served(properties(stores, **{AUTH: "required"})) as (server, _):
        assert await status(server, client(stores, "alice")) == 200
        with pytest.raises(aiohttp.ClientError):
            await status(server, client(stores))


@pytest.mark.usefixtures("from_elsewhere")
async def test_a_certificate_that_nobody_asked_for_counts_for_nothing(stores: Path) -> None:
    general = properties(stores, ssl__client__auth="required", ssl__truststore__location=str(stores / "readers.pem"))
    async with served(general) as (server, _):
        assert await status(server, client(stores, "alice")) == 403


async def test_an_action_knows_who_asks(stores: Path) -> None:
    async with served(properties(stores, **{AUTH: "requested"})) as (server, _), aiohttp.ClientSession() as http:
        for url, context in (
            (server.url, client(stores, "alice")),
            (server.url, client(stores)),
            (server.local_url, None),
        ):
            ours = {"Origin": url, "Content-Type": "application/json"}
            ssl_ = True if context is None else context
            async with http.post(f"{url}/confirm", data=b"{}", headers=ours, ssl=ssl_) as answer:
                assert answer.status == 200
    alice = ssl.PEM_cert_to_DER_cert((stores / "alice.crt").read_text())
    assert [
        HttpPeer("127.0.0.1", True, alice),
        HttpPeer("127.0.0.1", True, None),
        HttpPeer("127.0.0.1", False, None),
    ] == PEERS
    PEERS.clear()


async def test_who_does_not_speak_tls_is_dropped(stores: Path) -> None:
    async with served(properties(stores)) as (server, _):
        for request in (b"GET /overview HTTP/1.1\r\nHost: localhost\r\n\r\n", b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request)
            async with asyncio.timeout(30):
                assert b"42" not in await reader.read()
            writer.close()
        assert await status(server, client(stores)) == 200


async def test_certificates_are_renewed(stores: Path, tmp_path: Path) -> None:
    own = shutil.copy(stores / "page.pem", tmp_path / "own.pem")
    async with served(properties(stores) | {"listener.name.http.ssl.keystore.location": str(own)}) as (
        server,
        security,
    ):
        assert await status(server, client(stores)) == 200
        shutil.copy(stores / "renewed.pem", own)
        security.read_again()
        assert await status(server, client(stores, trusted="renewed")) == 200


@pytest.mark.usefixtures("from_elsewhere")
async def test_who_is_no_longer_trusted_loses_the_connections_that_they_have(stores: Path, tmp_path: Path) -> None:
    trusted = shutil.copy(stores / "alice.crt", tmp_path / "trusted.pem")
    given = properties(stores, **{AUTH: "requested"}) | {"listener.name.http.ssl.truststore.location": str(trusted)}
    async with served(given) as (server, security), aiohttp.ClientSession() as http:
        alice = client(stores, "alice")
        ours = {"Origin": server.url, "Content-Type": "application/json"}

        async def confirmed() -> int:
            """Post, and retry as browsers do; return how many connections had ended before, as idle ones may."""
            for ended in range(9):
                try:
                    async with http.post(f"{server.url}/confirm", data=b"{}", headers=ours, ssl=alice) as answer:
                        assert answer.status == 200
                        return ended
                except aiohttp.ServerDisconnectedError:
                    pass
            raise AssertionError("each of them ended")

        async with http.get(f"{server.url}/events", ssl=alice) as stream:
            assert b"42" in await stream.content.readline()
            assert (await confirmed(), len(PEERS)) == (0, 1)
            security.read_again()
            async with asyncio.timeout(30):
                await stream.read()  # it ends, and a page would reconnect
        assert await confirmed() in (1, 2)
        assert (await confirmed(), len(PEERS)) == (0, 3)
        shutil.copy(stores / "stranger.crt", trusted)
        security.read_again()
        with pytest.raises(aiohttp.ClientError):
            await confirmed()
        assert len(PEERS) == 3
        PEERS.clear()


@pytest.mark.parametrize("broken", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "key", None])
async def test_what_cannot_be_read_changes_nothing(stores: Path, tmp_path: Path, broken: str | None) -> None:
    own = shutil.copy(stores / "page.pem", tmp_path / "own.pem")
    given = properties(stores) | {"listener.name.http.ssl.keystore.location": str(own)}
    async with served(given) as (server, security), aiohttp.ClientSession() as http:
        context = client(stores)
        async with http.get(f"{server.url}/overview", ssl=context) as answer:
            assert answer.status == 200
        if broken is None:
            own.unlink()
        else:  # "key": a certificate with another one's key
            key, _, _ = (stores / "page.pem").read_text().partition("-----BEGIN C")
            own.write_text(key + (stores / "renewed.crt").read_text() if broken == "key" else broken)
        with pytest.raises(ConfigError, match=r"ssl.keystore.location"):
            security.read_again()
        for each in (http, aiohttp.ClientSession()):
            async with each.get(f"{server.url}/overview", ssl=context) as answer:
                assert answer.status == 200
        await each.close()


# -- properties --------------------------------------------------------------------------------------------------------


def pages(given: Mapping[str, str]) -> HttpPages:
    config, _ = load_config(overrides=given)
    shell = SimpleNamespace(security=Security(config), world=real_world(), settings=None)
    controller = cast(KafkaController, SimpleNamespace(shell=shell, status=dict))
    return HttpPages(config, controller, Metrics(), token="t", stop=lambda: None, debug={}, tasks=LooseTasks())


@pytest.mark.parametrize(
    "change,problem",
    [
        (lambda given: given.pop("listener.name.http.ssl.keystore.location"), "ssl.keystore.location: found nothing"),
        (
            lambda given: given.update({"listener.name.http.ssl.keystore.location": "/no/such.pem"}),
            "ssl.keystore.location: found '/no/such.pem'",
        ),
        (
            lambda given: (
                given.update({"listener.name.http.ssl.client.auth": "requested"}),
                given.pop("listener.name.http.ssl.truststore.location"),
            ),
            "listener.name.http.ssl.truststore.location: found nothing",
        ),
        (
            lambda given: given.update({"listeners": "http://127.0.0.1:9092"}),
            "aiocontroller.http.security.protocol: found SSL, expected PLAINTEXT",
        ),
        (
            lambda given: given.update(
                {"aiocontroller.http.security.protocol": "PLAINTEXT", "aiocontroller.http.actors": "User:CN=ops"}
            ),
            "aiocontroller.http.security.protocol: found PLAINTEXT, expected SSL",
        ),
        (
            lambda given: given.update({"aiocontroller.http.actors": "ops"}),
            "aiocontroller.http.actors (the command line): found 'ops'",
        ),
        (
            lambda given: given.update(
                {"aiocontroller.http.password": "sesame", "aiocontroller.http.actor.password": "sesame"}
            ),
            "aiocontroller.http.actor.password: found the value of aiocontroller.http.password",
        ),
        (
            lambda given: given.update({"aiocontroller.http.security.protocol": "SASL_SSL"}),
            "aiocontroller.http.security.protocol",
        ),
    ],
)
async def test_what_is_wrong_is_named_before_anything_listens(
    stores: Path, change: Callable[[dict[str, str]], object], problem: str
) -> None:
    given = properties(stores)
    change(given)
    with pytest.raises(ConfigError) as refused:
        await pages(given).open()
    assert problem in str(refused.value)


async def test_the_whole_of_it_opens(stores: Path) -> None:
    made = pages(properties(stores, aiocontroller__http__port="0"))
    await made.open()
    try:
        assert made.url == f"https://127.0.0.1:{made.port}"
        assert made.local_url != made.url
    finally:
        await made.close()
