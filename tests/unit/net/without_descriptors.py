"""Three clients of a process that has no file descriptor left: ``python -m … asyncio`` or ``uvloop``."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import sys
import time

from aiocontroller.net.real import RealNetwork
from tests.unit.net.test_real import LOOPS, Doorkeeper, until


async def main() -> None:
    door = Doorkeeper()
    listener = await RealNetwork().serve_through(door, "127.0.0.1", 0)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = [socket.socket() for _ in range(3)]
    lowest_free = clients[-1].fileno() + 1
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))
        for client in clients:
            client.connect(("127.0.0.1", listener.port))
        began_s = time.process_time()
        await asyncio.sleep(0.5)
        assert time.process_time() - began_s < 0.25, "the loop spins"
        assert not any(served.made for served in door.inside)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    await until(lambda: len(door.inside) == 3 and all(served.made for served in door.inside))
    listener.close()
    for client in clients:
        client.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    with asyncio.Runner(loop_factory=LOOPS[sys.argv[1]]) as runner:
        runner.run(main())
