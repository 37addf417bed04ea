"""The check in a process of its own: one at a time, bounded in time and size, and what is said when it fails."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from aiocontroller.config import Config
from aiocontroller.metrics import Metrics
from aiocontroller.net.real import real_world
from aiocontroller.net.tasks import LooseTasks
from aiocontroller.property_values import Secret
from aiocontroller.server import check_page
from aiocontroller.server.actor_check import HttpPeer
from aiocontroller.server.check_page import Checks
from aiocontroller.server.http import HttpServer, serve

PEER = HttpPeer("127.0.0.1", False, None)
FOUND = '{"count":3,"findings":[{"severity":"critical"},{"severity":"notice"},{"severity":"notice"}]}'


Make = Callable[..., Checks]


@pytest.fixture
async def checks() -> AsyncIterator[Make]:
    tasks = LooseTasks()
    yield lambda program, *command: Checks(
        Config(), real_world().clock, tasks, command or (sys.executable, "-c", program)
    )
    tasks.cancel()
    while tasks._running:
        await asyncio.sleep(0.01)


async def result(one: Checks) -> dict[str, Any]:
    await one.start(PEER, b"{}")
    async with asyncio.timeout(60):
        while one.summary()["running_since_us"] is not None:
            await asyncio.sleep(0.01)
    return dict(await one.findings({}))


async def test_the_result_is_kept_with_its_time(checks: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = checks(f"print('{FOUND}')")
    assert one.summary() == {
        "at_us": None,
        "took_ms": None,
        "error": "",
        "running_since_us": None,
        "progress": None,
        "counts": None,
    }
    found = await result(one)
    assert (found["error"], found["count"], found["at_us"] > 0) == ("", 3, True)
    assert one.summary()["counts"] == {"critical": 1, "warning": 0, "notice": 2}
    assert one.summary()["at_us"] == found["at_us"]
    assert "findings" not in one.summary()
    assert (await one.start(PEER, b""))["running_since_us"] is None, "it has just ended"
    monkeypatch.setattr(check_page, "PAUSE_S", 0.0)
    assert (await one.start(PEER, b""))["running_since_us"] is not None


async def test_how_far_it_has_come_is_told_while_it_runs(checks: Make) -> None:
    lines = ('{"read":7,"of":9,"again":false}', '{"read":2,"of":9,"again":true}')
    one = checks(f"import time; print('{lines[0]}'); print('{lines[1]}', flush=True); time.sleep(60)")
    await one.start(PEER, b"{}")
    async with asyncio.timeout(60):
        while one.summary()["progress"] != {"read": 2, "of": 9, "again": True}:
            await asyncio.sleep(0.01)
    both = checks(f"print('{lines[0]}'); print('{lines[1]}'); print('{FOUND}')")
    assert (await result(both))["count"] == 3
    assert both.summary()["progress"] is None


async def test_the_child_has_the_whole_configuration_and_nobody_else_sees_it(checks: Make) -> None:
    program = (
        "import pickle, sys; c = pickle.load(sys.stdin.buffer); "
        'print(\'{"findings":[],"said":"%s %s"}\' % (c.zookeeper_connect, len(sys.argv)))'
    )
    assert (await result(checks(program)))["said"] == f"{Config().zookeeper_connect} 1"
    secret = pickle.loads(pickle.dumps(Config(aiocontroller_http_password=Secret("sesame"))))
    assert secret.aiocontroller_http_password.value == "sesame"
    assert "sesame" not in repr(secret)


async def test_there_is_one_at_a_time_and_none_after_the_end(tmp_path: Path) -> None:
    program = f"import os, time; open({str(tmp_path)!r} + '/' + str(os.getpid()), 'w'); time.sleep(600)"
    async with anyio.create_task_group() as tasks:
        one = Checks(Config(), real_world().clock, tasks, (sys.executable, "-c", program))
        began = [await one.start(PEER, b"") for _ in range(20)]
        assert len({each["running_since_us"] for each in began}) == 1
        async with asyncio.timeout(60):
            while not list(tmp_path.iterdir()):
                await asyncio.sleep(0.01)
        tasks.cancel_scope.cancel()
    [child] = tmp_path.iterdir()
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.name), 0)
    assert one.summary()["running_since_us"] is None


@pytest.mark.parametrize(
    "program, error",
    [
        ("", "exit code 0"),
        ("import sys; sys.exit(7)", "exit code 7"),
        ("print('[1]')", "exit code 0"),
        ("print('{}')", "findings"),
        ('print(\'{"error":"no ZooKeeper"}\')', "no ZooKeeper"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", "ended by signal 40"),  # of real time, without a name
        ("import os, sys; os.close(1); sys.exit(0)", "exit code 0"),
        ("import signal, time; signal.alarm(1); time.sleep(60)", "took too long"),
        ("while True: print('x' * 1000)", "bytes"),
    ],
)
async def test_a_child_that_fails(checks: Make, program: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_page, "MOST_BYTES", 100_000)
    one = checks(program)
    found = await result(one)
    assert error in found["error"]
    assert one.summary()["error"] == found["error"]
    assert one.summary()["counts"] is None


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(600)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import os, time; os.close(1); time.sleep(600)",
    ],
)
async def test_a_child_that_hangs_is_killed(checks: Make, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_page, "WITHIN_S", 0.2)
    assert "did not end" in (await result(checks(program)))["error"]


async def test_a_child_that_cannot_be_started(checks: Make) -> None:
    one = checks("", "/no/such/program")
    assert "/no/such/program" in (await result(one))["error"]


# -- by HTTP -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def serving() -> AsyncIterator[Callable[[], tuple[HttpServer, list[bytes]]]]:
    bodies: list[bytes] = []

    async def post(peer: HttpPeer, body: bytes) -> dict[str, Any]:
        assert peer == HttpPeer("127.0.0.1", False, None)
        bodies.append(body)
        return {"done": True}

    server = await serve(
        real_world(),
        "127.0.0.1",
        0,
        metrics=Metrics(),
        ready=lambda: (True, ""),
        status=dict,
        page_posts={"check": post},
    )
    yield lambda: (server, bodies)
    await server.close()


async def test_only_our_own_page_may_ask(serving: Callable[[], tuple[HttpServer, list[bytes]]]) -> None:
    server, bodies = serving()
    ours = {"Origin": server.url, "Content-Type": "application/json"}
    async with aiohttp.ClientSession(server.url) as http:
        async with http.post("/check", data=b"{}", headers=ours) as answer:
            assert (answer.status, await answer.json()) == (200, {"done": True})
        for wrong in (
            {"Origin": "http://evil.example"},
            {"Content-Type": "text/plain"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Host": "evil.example"},
        ):
            async with http.post("/check", data=b"{}", headers={**ours, **wrong}) as answer:
                assert answer.status == 403, wrong
        async with http.get("/check") as answer:
            assert answer.status == 405
    assert bodies == [b"{}"]
