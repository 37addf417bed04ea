"""HTTP: what each page answers, and that looking never breaks anything."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.metrics import Metrics
from aiocontroller.net.real import real_world
from aiocontroller.server.http import HttpServer, serve
from aiocontroller.server.partition_pages import NotInChargeError, UnknownTopicError


class Service:
    def __init__(self) -> None:
        self.alive = True
        self.ready = (True, "standing by")
        self.metrics = Metrics()
        self.status: dict[str, Any] = {"id": 1, "events": [{"event": "Startup"}]}


async def answer() -> object:
    return {"answer": 42}


async def broken() -> object:
    raise RuntimeError("bug")


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def server(service: Service) -> AsyncIterator[HttpServer]:
    server = await serve(
        real_world(),
        "127.0.0.1",
        0,
        metrics=service.metrics,
        ready=lambda: service.ready,
        alive=lambda: service.alive,
        status=lambda: service.status,
        debug={"answer": answer, "broken": broken},
    )
    yield server
    await server.close()
    await server.close()


@pytest.fixture
async def http(server: HttpServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session


async def test_metrics(service: Service, http: aiohttp.ClientSession) -> None:
    service.metrics.gauge("kafka.controller", "KafkaController", "ActiveControllerCount", 1)
    async with http.get("/metrics") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "kafka_controller_kafkacontroller_activecontrollercount 1.0\n" in await answer.text()


@pytest.mark.parametrize(
    "accept, content_type",
    [
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
        ("text/html, application/openmetrics-text", "application/openmetrics-text"),
        ("application/openmetrics-text; version=one", "text/plain"),
        ("application/openmetrics-text; version=1.0.0.é", "text/plain"),
    ],
)
async def test_metrics_in_the_format_that_the_scraper_accepts(
    service: Service, http: aiohttp.ClientSession, accept: str, content_type: str
) -> None:
    async with http.get("/metrics", headers={"Accept": accept}) as answer:
        assert (answer.status, answer.content_type) == (200, content_type)
        assert (await answer.text()).endswith("# EOF\n") is (content_type != "text/plain")


async def test_liveness(service: Service, http: aiohttp.ClientSession) -> None:
    async with http.get("/healthz") as answer:
        assert (answer.status, await answer.text()) == (200, "ok\n")
    service.alive = False
    async with http.get("/healthz") as answer:
        assert (answer.status, await answer.text()) == (503, "not ok\n")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_may_ask_by_a_name_of_their_own(service: Service, http: aiohttp.ClientSession, path: str) -> None:
    """The hostile storm's did, and was told 403."""
    async with http.get(path, headers={"Host": "probe"}) as answer:
        assert answer.status != 403
    async with http.get("/status", headers={"Host": "probe"}) as answer:
        assert answer.status == 403


async def test_readiness_says_what_it_is_or_why_not(service: Service, http: aiohttp.ClientSession) -> None:
    async with http.get("/readyz") as answer:
        assert (answer.status, await answer.text()) == (200, "standing by\n")
    service.ready = False, "not able to stand by\nno session with ZooKeeper"
    async with http.get("/readyz") as answer:
        assert (answer.status, await answer.text()) == (
            503,
            "not able to stand by\nno session with ZooKeeper\n",
        )


async def test_status_is_json_whatever_it_holds(service: Service, http: aiohttp.ClientSession) -> None:
    service.status["odd"] = KeyError("x")
    async with http.get("/status") as answer:
        assert answer.content_type == "application/json"
        assert await answer.json() == {"id": 1, "events": [{"event": "Startup"}], "odd": "KeyError('x')"}


async def test_debug_handlers_answer_to_post_only(http: aiohttp.ClientSession) -> None:
    async with http.post("/debug/answer") as answer:
        assert await answer.json() == {"answer": 42}
    async with http.post("/debug/broken") as answer:
        assert answer.status == 500
    async with http.get("/debug/answer") as answer:
        assert answer.status == 405
    async with http.post("/debug/none") as answer:
        assert answer.status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/partitions", "/none"])
async def test_a_request_to_another_host_is_refused(http: aiohttp.ClientSession, path: str, host: str) -> None:
    async with http.get(path, headers={"Host": host}) as answer:
        assert answer.status == 403
        assert host in await answer.text()


async def asked(query: Mapping[str, str]) -> Mapping[str, Any]:
    errors = {"bad": BadInputError, "unknown": UnknownTopicError, "standby": NotInChargeError}
    if query["say"] in errors:
        raise errors[query["say"]]("no")
    return dict(query)


@pytest.mark.parametrize("listening, of_scraper", [("127.0.0.1", 403), ("0.0.0.0", 200)])
async def test_scrapers_may_come_by_a_name_where_browsers_must_not(listening: str, of_scraper: int) -> None:
    ready = Service().ready
    made = await serve(
        real_world(),
        listening,
        0,
        metrics=Metrics(),
        ready=lambda: ready,
        status=dict,
        questions={"partitions": asked},
        allowed_hosts=["ours.example"],
    )
    async with aiohttp.ClientSession(made.url) as session:
        for path, status in (("/metrics", of_scraper), ("/partitions?say=hello", 403)):
            async with session.get(path, headers={"Host": "other.example"}) as answer:
                assert answer.status == status
            async with session.get(path, headers={"Host": "ours.example:9090"}) as answer:
                assert answer.status == 200
        for say, status in (("bad", 400), ("unknown", 404), ("standby", 503)):
            async with session.get(f"/partitions?say={say}") as answer:
                assert (answer.status, await answer.json()) == (status, {"error": "no"})
    await made.close()


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ready = Service().ready
        with pytest.raises(OSError, match=str(port)):
            await serve(real_world(), "127.0.0.1", port, metrics=Metrics(), ready=lambda: ready, status=dict)


async def test_closed_means_closed(server: HttpServer) -> None:
    port = server.port
    await server.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
