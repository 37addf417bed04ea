"""The page's files: complete, and with headers that let a browser load nothing else."""

from __future__ import annotations

import re

import aiohttp
import pytest

from aiocontroller.metrics import Metrics
from aiocontroller.net.real import real_world
from aiocontroller.server.http import serve
from aiocontroller.server.static import FILES


@pytest.mark.parametrize("name", FILES)
async def test_each_file(name: str) -> None:
    server = await serve(real_world(), "127.0.0.1", 0, metrics=Metrics(), ready=lambda: (True, ""), status=dict)
    async with aiohttp.ClientSession(server.url) as http:
        async with http.get(f"/{name}") as answer:
            text = await answer.text()
            assert (answer.status, answer.content_type) == (200, FILES[name].content_type)
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; ")
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        async with http.get(f"/{name}", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 403
        for loaded in re.findall(r'(?:src|href)="([^"#]+)"', text) if not name else ():
            if loaded.startswith("/"):
                async with http.get(loaded, allow_redirects=False) as answer:
                    assert answer.status == 200 or loaded == "/overview", loaded
            else:
                assert loaded == "data:,"
    await server.close()
    assert "//" not in re.sub(r"(?m)^\s*//.*$|; //.*$", "", text), "an address of somebody else"
    assert "innerHTML" not in text
