"""A port that is taken is named, and so is its process."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from aiocontroller.net.real import RealNetwork
from aiocontroller.net.taken_ports import holder_of_port, refuse_a_taken_port


def test_free_port_and_any_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    refuse_a_taken_port("127.0.0.1", port)
    refuse_a_taken_port("127.0.0.1", 0)
    assert holder_of_port(port) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the process of a port")
def test_descriptor_that_was_closed_since_it_was_listed() -> None:
    lower = os.open(os.devnull, os.O_RDONLY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.close(lower)  # the listing of our descriptors takes its number, and comes before the socket
        assert holder_of_port(server.getsockname()[1]).startswith(f"process {os.getpid()} (")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the process of a port")
async def test_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        message = rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use by process {os.getpid()} \("
        with pytest.raises(OSError, match=message):
            refuse_a_taken_port("127.0.0.1", port)
        with pytest.raises(OSError, match=message):
            await RealNetwork().serve(lambda: pytest.fail("no connection expected"), "127.0.0.1", port)
