"""The network and the clock in memory keep what the rest of the program takes for granted about real ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from aiocontroller.lab import virtual_loop
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_loop import DeadlockError
from aiocontroller.lab.virtual_time import virtual_time

HOST = "127.0.0.1"


class Recorder(asyncio.Protocol):
    """Keeps what happens to it; a server's may echo."""

    def __init__(self, log: list[str], name: str, *, echo: bool = False) -> None:
        self.log = log
        self.name = name
        self.echo = echo
        self.received = b""
        self.transport: asyncio.Transport | None = None
        self.after: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.log.append(f"{self.name} made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.log.append(f"{self.name} {data.decode()} @{asyncio.get_running_loop().time():.4f}")
        if self.echo:
            assert self.transport is not None
            self.transport.write(data.upper())
        self.after()

    def connection_lost(self, exc: Exception | None) -> None:
        self.log.append(f"{self.name} lost")


class Pair:
    """One connection, both ends."""

    def __init__(self, network: SimulatedNetwork | None = None) -> None:
        self.network = network or SimulatedNetwork()
        self.log: list[str] = []
        self.servers: list[Recorder] = []

    def _accept(self) -> Recorder:
        self.servers.append(Recorder(self.log, f"server{len(self.servers) or ''}"))
        return self.servers[-1]

    async def open(self) -> tuple[asyncio.Transport, Recorder, Recorder]:
        listener = await self.network.serve(self._accept, HOST, 0)
        transport, client = await self.network.connect(
            lambda: Recorder(self.log, "client"), HOST, listener.port, timeout_s=1
        )
        return transport, client, self.servers[-1]


@virtual_time
async def test_bytes_arrive_in_order_though_their_deadlines_are_equal() -> None:
    transport, _, server = await Pair().open()
    sent = [f"{i}," for i in range(200)]
    for piece in sent:
        transport.write(piece.encode())
    await asyncio.sleep(0.01)
    assert server.received == "".join(sent).encode()


@virtual_time
async def test_nothing_arrives_in_the_step_in_which_it_was_sent() -> None:
    transport, _, server = await Pair(SimulatedNetwork(delay_s=0.5)).open()
    transport.writelines([b"a", memoryview(b"b"), bytearray(b"c")])
    await asyncio.sleep(0.4)
    assert server.received == b""
    await asyncio.sleep(0.2)
    assert server.received == b"abc"


@virtual_time
async def test_what_was_sent_before_the_close_arrives_before_the_end() -> None:
    pair = Pair()
    transport, _, _ = await pair.open()
    transport.write(b"last words")
    transport.close()
    transport.write(b"too late")
    await asyncio.sleep(1)
    assert [entry.split(" @")[0] for entry in pair.log] == [
        "server made",
        "client made",
        "client lost",
        "server last words",
        "server lost",
    ]


@virtual_time
async def test_data_that_overtakes_is_counted_and_the_end_of_a_connection_is_not() -> None:
    """Connections may end in another order in each run, and counts must not."""
    delays_s = iter((0.0,) * 2)
    network = SimulatedNetwork(jitter_s=lambda: next(delays_s, 0.0))
    pair = Pair(network)
    late, _, _ = await pair.open()
    early, _, _ = await pair.open()
    delays_s = iter((0.5, 0.0, 0.6, 0.0, 0.0))
    late.write(b"late")
    early.write(b"early")
    assert network.reordered == 1
    late.close()
    early.close()
    assert network.reordered == 1


@virtual_time
async def test_paused_reader_gets_everything_in_order_when_it_resumes() -> None:
    transport, _, server = await Pair().open()
    assert server.transport is not None
    server.transport.pause_reading()
    assert not server.transport.is_reading()
    transport.write(b"one ")
    transport.write(b"two ")
    await asyncio.sleep(1)
    assert server.received == b""
    server.transport.resume_reading()
    transport.write(b"three")
    await asyncio.sleep(1)
    assert server.received == b"one two three"


@virtual_time
async def test_end_that_arrives_while_paused_comes_after_the_data() -> None:
    pair = Pair()
    transport, _, server = await pair.open()
    assert server.transport is not None
    server.transport.pause_reading()
    transport.write(b"data")
    transport.close()
    await asyncio.sleep(1)
    assert pair.log[-1] == "client lost"
    server.transport.resume_reading()
    await asyncio.sleep(0)
    assert [entry.split(" @")[0] for entry in pair.log[-2:]] == ["server data", "server lost"]


@virtual_time
async def test_reader_that_pauses_again_on_the_first_piece_gets_one() -> None:
    transport, _, server = await Pair().open()
    end = server.transport
    assert end is not None
    end.pause_reading()
    transport.write(b"a")
    transport.write(b"b")
    await asyncio.sleep(1)
    server.after = end.pause_reading
    end.resume_reading()
    await asyncio.sleep(0)
    assert server.received == b"a"
    end.resume_reading()
    await asyncio.sleep(0)
    assert server.received == b"ab"


@virtual_time
async def test_cut_breaks_both_ends_of_every_connection_to_the_port() -> None:
    pair = Pair()
    first, _, _ = await pair.open()
    second, _, _ = await pair.open()
    port = first.get_extra_info("peername")[1]
    other = second.get_extra_info("peername")[1]
    assert port != other
    assert pair.network.cut(port) == 1
    assert pair.network.cut(port) == 0
    await asyncio.sleep(1)
    assert sorted(pair.log[-2:]) == ["client lost", "server lost"]
    assert first.is_closing()
    assert not second.is_closing()
    second.write(b"still here")
    await asyncio.sleep(1)
    assert pair.servers[1].received == b"still here"


@virtual_time
async def test_closed_listener_refuses_and_its_connections_go_on() -> None:
    network = SimulatedNetwork()
    served: list[str] = []
    listener = await network.serve(lambda: Recorder(served, "server", echo=True), HOST, 0)
    transport, client = await network.connect(lambda: Recorder([], "client"), HOST, listener.port, timeout_s=1)
    listener.close()
    listener.close()
    with pytest.raises(ConnectionRefusedError, match=f"{HOST}:{listener.port}"):
        await network.connect(lambda: Recorder([], "late"), HOST, listener.port, timeout_s=1)
    transport.write(b"hello")
    await asyncio.sleep(1)
    assert client.received == b"HELLO"


@virtual_time
async def test_port_is_taken_once_and_free_again_after_the_close() -> None:
    network = SimulatedNetwork()
    listener = await network.serve(lambda: Recorder([], "server"), HOST, 9092)
    assert listener.port == 9092
    with pytest.raises(OSError, match="9092 is in use"):
        await network.serve(lambda: Recorder([], "server"), HOST, 9092)
    listener.close()
    assert (await network.serve(lambda: Recorder([], "server"), HOST, 9092)).port == 9092
    free = [(await network.serve(lambda: Recorder([], "server"), HOST, 0)).port for _ in range(3)]
    assert len(set(free)) == 3


@virtual_time
async def test_idle_day_costs_nothing() -> None:
    world = simulated_world(SimulatedNetwork())
    before_us = world.clock.wall_time_us()
    fired: list[float] = []
    world.clock.call_later(3600, lambda: fired.append(world.clock.monotonic()))
    world.clock.call_later(7200, lambda: fired.append(-1)).cancel()
    await world.clock.sleep(86_400)
    assert fired == [3600]
    assert world.clock.monotonic() == 86_400
    assert world.clock.wall_time_us() - before_us == 86_400_000_000


def test_a_deadlock_is_reported() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="no timer is set"):
        virtual_loop.run(forever())


def _history(seed: int) -> list[str]:
    """Some traffic whose pauses are drawn from the seed."""
    pair = Pair()

    async def main() -> None:
        world = simulated_world(pair.network, seed)
        ends = [await pair.open() for _ in range(4)]

        async def talk(number: int, transport: asyncio.Transport) -> None:
            for i in range(20):
                await world.clock.sleep(world.random.randrange(5) / 1000)
                transport.write(f"{number}.{i}".encode())

        await asyncio.gather(*(talk(i, transport) for i, (transport, _, _) in enumerate(ends)))
        await world.clock.sleep(1)

    virtual_loop.run(main())
    return pair.log


def test_two_runs_of_one_seed_are_alike() -> None:
    assert _history(7) == _history(7)
    assert _history(7) != _history(8)


def _order(seed: int | None) -> list[int]:
    """The order in which ten tasks run that get ready together, thrice."""
    ran: list[int] = []

    async def work(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            ran.append(number)

    async def main() -> None:
        virtual_loop.running_loop().task_order = None if seed is None else random.Random(seed)
        await asyncio.gather(*map(work, range(10)))

    virtual_loop.run(main())
    return ran


def test_tasks_run_in_the_order_in_which_they_got_ready_or_in_a_drawn_one() -> None:
    assert _order(None) == [*range(10)] * 3
    drawn = _order(1)
    assert [sorted(drawn[at : at + 10]) for at in (0, 10, 20)] == [[*range(10)]] * 3, "each round has each task once"
    assert drawn not in (_order(None), _order(2))
    assert drawn[:10] != drawn[10:20]
    assert drawn == _order(1)


def test_callbacks_keep_their_order_among_drawn_tasks() -> None:
    called: list[int] = []

    async def main() -> None:
        loop = virtual_loop.running_loop()
        loop.task_order = random.Random(1)
        tasks = []
        for number in range(20):
            loop.call_soon(called.append, number)
            tasks.append(asyncio.ensure_future(asyncio.sleep(0)))
        await asyncio.gather(*tasks)

    virtual_loop.run(main())
    assert called == [*range(20)]
