"""Sends one request to a controller's or a broker's listener, on a new connection, and decodes the answer with kio."""

from __future__ import annotations

import asyncio
from typing import Any

from aiocontroller.net.ports import Network
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import FrameReader, decode_response_header, request_frame

WITHIN_S = 60.0
CLIENT_ID = "laboratory"


async def ask(network: Network, host: str, port: int, api: ApiKey, version: int, **fields: Any) -> Any:
    """Return the answer.  Raises OSError if the connection fails or ends, TimeoutError after 60 s without an answer."""
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    transport, _ = await network.connect(lambda: _Asking(answered), host, port, timeout_s=WITHIN_S)
    try:
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        transport.writelines(request_frame(api, version, 1, CLIENT_ID, body))
        frame = await asyncio.wait_for(answered, WITHIN_S)
    finally:
        transport.close()
    _, answer = decode_response_header(api, version, frame)
    return cold.decode_response(api, version, answer)


class _Asking(asyncio.Protocol):
    def __init__(self, answered: asyncio.Future[bytes]) -> None:
        self._answered = answered
        self._reader = FrameReader()

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if not self._answered.done():
                self._answered.set_result(bytes(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(ConnectionError("the connection was closed before the answer"))
