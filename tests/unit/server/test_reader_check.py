"""Who may read the page and the cluster's state: this machine, the token's and the password's owners; nobody else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from aiocontroller.metrics import Metrics
from aiocontroller.net.real import real_world
from aiocontroller.server import reader_check, static
from aiocontroller.server.http import HttpServer, serve
from aiocontroller.server.reader_check import TOKEN_HEADER, is_this_machines, refusal

PASSWORD, TOKEN = "zwölf Bären: :", "0123abcd"


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1", "::1%lo"])
def test_this_machine_may(address: str) -> None:
    assert is_this_machines(address)
    assert refusal(address, {}, "", "") is None


@pytest.mark.parametrize("address", ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "0.0.0.0", "", "localhost", "?"])
def test_others_need_the_password_or_the_token(address: str) -> None:
    assert not is_this_machines(address)
    assert "aiocontroller.http.password is set" in (refusal(address, {}, "", "") or "")
    assert "no aiocontroller.http.password" in (refusal(address, basic("", ""), "", "") or "")
    assert refusal(address, {TOKEN_HEADER: TOKEN}, "", TOKEN) is None
    assert refusal(address, {TOKEN_HEADER: ""}, "", "") is not None
    assert refusal(address, basic("anybody", PASSWORD), PASSWORD, TOKEN) is None
    assert refusal(address, {"Authorization": basic("", PASSWORD)["Authorization"].replace("Basic", "bASIC")},
                   PASSWORD, TOKEN) is None  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("", ""),
        basic(PASSWORD, ""),
        basic("", PASSWORD + " "),
        basic("", TOKEN),
        {"Authorization": f"Bearer {PASSWORD}"},
        {"Authorization": "Basic"},
        {"Authorization": "Basic ====="},
        {"Authorization": "Basic /w=="},
        {"Authorization": "Basic " + "A" * 7000},
        {"Authorization": "Basic \udcff"},
        {TOKEN_HEADER: PASSWORD},
        {TOKEN_HEADER: "\udcff"},
    ],
)
def test_what_is_no_password(headers: Mapping[str, str]) -> None:
    assert "wrong one" in (refusal("10.0.0.1", headers, PASSWORD, TOKEN) or "")


async def question(query: Mapping[str, str]) -> Mapping[str, Any]:
    return {"answer": 42}


async def stream(request: web.Request) -> web.StreamResponse:
    return web.Response(text="told")


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncIterator[HttpServer]:
    """One for which this machine is another one; the parameter is its password."""
    monkeypatch.setattr(reader_check, "is_this_machines", lambda address: False)
    server = await serve(
        real_world(),
        "127.0.0.1",
        0,
        metrics=Metrics(),
        ready=lambda: (True, "active"),
        status=lambda: {"id": 1},
        questions={"overview": question},
        streams={"events": stream},
        token=TOKEN,
        password=request.param,
    )
    yield server
    await server.close()


TELLING = ["/overview", "/events", *(f"/{name}" for name in static.FILES)]
COUNTS = ["/metrics", "/healthz", "/readyz", "/status", "/settings"]


@pytest.mark.parametrize("server", [PASSWORD], indirect=True)
async def test_guesses_are_slow_and_in_the_log(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        async with http.get("/overview") as answer:  # a browser asks before it asks its user
            assert answer.status == 401
        assert caplog.messages == []
        monkeypatch.setattr(reader_check, "GUESS_S", 0.3)
        began_s = asyncio.get_running_loop().time()
        for guess in (basic("", "sesam"), {TOKEN_HEADER: "guessed"}):
            async with http.get("/overview", headers=guess) as answer:
                assert answer.status == 401
        assert asyncio.get_running_loop().time() - began_s >= 0.6
        assert caplog.messages == ["HTTP request from 127.0.0.1 refused: found a wrong password for /overview"]


@pytest.mark.parametrize("server", [PASSWORD], indirect=True)
async def test_all_that_tells_names_asks_for_the_password(server: HttpServer) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        for path in TELLING:
            for method in ("GET", "HEAD"):
                async with http.request(method, path) as answer:
                    assert answer.status == 401, path
                    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
            async with http.get(path, headers=basic("", PASSWORD)) as answer:
                assert answer.status == 200, path
            async with http.get(path, headers={TOKEN_HEADER: TOKEN}) as answer:
                assert answer.status == 200, path
        for path in COUNTS:
            async with http.get(path) as answer:
                assert answer.status == 200, path


@pytest.mark.parametrize("server", [""], indirect=True)
async def test_without_a_password_other_machines_are_refused(server: HttpServer) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        for path in TELLING:
            async with http.get(path, headers=basic("", "")) as answer:
                assert answer.status == 403, path
                assert "no aiocontroller.http.password is set" in await answer.text()
                assert "WWW-Authenticate" not in answer.headers
            async with http.get(path, headers={TOKEN_HEADER: TOKEN}) as answer:
                assert answer.status == 200, path
        for path in ("/overview/", "/%6Fverview", "/x/../overview", "/overview?q=1", "/OVERVIEW"):
            async with http.get(path) as answer:
                assert "42" not in await answer.text(), path
