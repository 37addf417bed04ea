"""Checks conditional writes, creates, ephemerals and watches on a real ZooKeeper under faults.

Only the *writer* writes, and it learns the result of every write, so it always knows what ZooKeeper must hold.  The
*reader* reads (and so watches) again only what an event names.  Each connects to the servers through its own proxies.
At the end of each segment of the schedule, these violations are looked for:

  lost          a write that was reported as applied is missing.
  doubled       a znode's version, or the number of sequential znodes, shows that a write was applied twice.
  misreported   a write got an impossible code, or one that was reported as not applied was applied.
  torn          an atomic multi was applied in part.
  watch lost    the reader does not learn of the last change of a znode without a further change.
  watch for nothing   an event for a counter whose version the reader already knew.
  back in time  a session read an older version than before.
  ephemeral     it vanished while its session lived, belongs to another session, or outlived its session.
  given up      a client began a new session although no server had reported that the old one is gone.
  hung          a call did not end.

The operations (kinds, znodes, wrong versions) depend only on the seed and the number of the round; the number of rounds
depends on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from aiocontroller.lab.cluster.embedded_zookeeper import ZooKeeperEnsemble
from aiocontroller.lab.zookeeper.zookeeper_faults import Schedule, Servers, Side
from aiocontroller.net.ports import World
from aiocontroller.net.real import RealClock, RealNetwork
from aiocontroller.zookeeper.client import Create, Delete, SessionEvent, SetData, ZooKeeperClient
from aiocontroller.zookeeper.codec import BAD_VERSION, NO_NODE, NODE_EXISTS, OK
from aiocontroller.zookeeper.errors import MaybeAppliedError, NotSentError, SessionExpiredError
from aiocontroller.zookeeper.writes import WriteOp

CHECKS = (
    "lost",
    "doubled",
    "misreported",
    "torn",
    "watch lost",
    "watch for nothing",
    "back in time",
    "ephemeral",
    "given up",
    "hung",
)
COUNTERS, NODES, EPHEMERALS = 300, 80, 40
WRONG = 0.02
"""The share of writes that must fail, for instance by a wrong version."""
KINDS, KIND_WEIGHTS = ("raise", "toggle", "pair", "append"), (5, 4, 2, 3)
CALL_BOUND_S = 30.0
KNOWLEDGE_BOUND_S = 15.0
PAIR = ("/pair-a", "/pair-b")
LOG = "/log"
MAX_EXAMPLES = 5


class Finding(msgspec.Struct):
    """One kind of violation: the number of checks, the number of violations, and the first few of them."""

    check: str
    examined: int = 0
    violations: int = 0
    examples: list[str] = msgspec.field(default_factory=list)


class HistoryVerdict(msgspec.Struct):
    seed: int
    schedule: str
    segments: int
    seconds: float
    rounds: int = 0
    writes: dict[str, int] = msgspec.field(default_factory=dict)
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    suspensions: int = 0
    lost_answers: int = 0
    watch_events: int = 0
    sessions_expired_by_server: int = 0
    findings: list[Finding] = msgspec.field(default_factory=lambda: [Finding(check) for check in CHECKS])

    @property
    def ok(self) -> bool:
        return not any(finding.violations for finding in self.findings)

    def examine(self, check: str, count: int = 1) -> None:
        self._finding(check).examined += count

    def violate(self, check: str, example: str) -> None:
        finding = self._finding(check)
        finding.violations += 1
        if len(finding.examples) < MAX_EXAMPLES:
            finding.examples.append(example)

    def expect(self, check: str, holds: bool, example: str) -> None:
        self.examine(check)
        if not holds:
            self.violate(check, example)

    def _finding(self, check: str) -> Finding:
        return next(finding for finding in self.findings if finding.check == check)


class Writer:
    """Writes what the seed draws and records what ZooKeeper must hold."""

    def __init__(self, client: ZooKeeperClient, seed: int, verdict: HistoryVerdict) -> None:
        self.client = client
        self.seed = seed
        self.verdict = verdict
        self.versions = {f"/c{i:03}": 0 for i in range(COUNTERS)}
        self.datas = dict.fromkeys(self.versions, b"")
        self.present: dict[str, bytes] = {}
        """The data of the existing nodes and ephemerals."""
        self.pair = 0
        self.appended: Counter[str] = Counter()
        """How often each result of a sequential create occurred."""
        self.pools = (
            [f"/n{i:02}" for i in range(NODES)],
            [f"/e{i:02}" for i in range(EPHEMERALS)],
        )
        self.log: dict[str, str] = {}
        self.unsure: set[str] = set()
        """Paths whose write was in flight when the session expired."""

    async def set_up(self) -> None:
        await self.client.create("/controller_epoch", b"")
        paths = [*self.versions, *PAIR, LOG]
        assert (await self.client.write_many([Create(path) for path in paths], fence=0)).ok

    async def round(self, number: int) -> None:
        """Perform one drawn operation.  A call that does not end is a violation and ends the history."""
        chance = random.Random(f"round/{self.seed}/{number}")
        kind = chance.choices(KINDS, KIND_WEIGHTS)[0]
        work = {"raise": self._raise_counters, "toggle": self._toggle, "pair": self._pair, "append": self._append}[kind]
        self.verdict.examine("hung")
        try:
            async with asyncio.timeout(CALL_BOUND_S):
                try:
                    await work(chance, number)
                except (SessionExpiredError, MaybeAppliedError):
                    await self.resolve()
        except TimeoutError:
            self.verdict.violate("hung", f"{kind} of round {number} did not end within {CALL_BOUND_S:.0f} s")
            raise

    async def _raise_counters(self, chance: random.Random, number: int) -> None:
        """Write counters conditionally in bulk."""
        chosen = sorted(chance.sample(list(self.versions), chance.randrange(1, COUNTERS)))
        wrong = {path for path in chosen if chance.random() < WRONG}
        datas = [b"%d" % number for _ in chosen]
        self.unsure = set(chosen) - wrong
        writes = await self.client.set_many(
            chosen, datas, [self.versions[path] + (5 if path in wrong else 0) for path in chosen], fence=0
        )
        self.unsure = set()
        for path, data, code, version in zip(chosen, datas, writes.code, writes.version, strict=True):
            self._judge(path, code, BAD_VERSION if path in wrong else OK, number)
            if code == OK:
                self.versions[path], self.datas[path] = self.versions[path] + 1, data
                self.verdict.expect(
                    "doubled",
                    version == self.versions[path],
                    f"{path} got version {version}, expected {self.versions[path]}",
                )

    async def _toggle(self, chance: random.Random, number: int) -> None:
        """Delete what exists and create what does not; sometimes attempt the opposite, which must fail."""
        pool = [*self.pools[0], *self.pools[1]]
        ops: list[WriteOp] = []
        expected: list[int] = []
        for path in chance.sample(pool, chance.randrange(1, len(pool))):
            exists = path in self.present
            delete = exists != (chance.random() < WRONG)
            expected.append(OK if delete == exists else NO_NODE if delete else NODE_EXISTS)
            create = Create(path, b"%d" % number, ephemeral=path.startswith("/e"))
            ops.append(Delete(path) if delete else create)
        self.unsure = {op.path for op in ops}
        lost_answers = self.client.statistics().lost_answers
        writes = await self.client.write_many(ops, fence=0)
        self.unsure = set()
        answers_lost = self.client.statistics().lost_answers > lost_answers
        for op, code, right in zip(ops, writes.code, expected, strict=True):
            # After a lost answer, the client cannot know whether the deletion found the znode.
            unknowable = answers_lost and isinstance(op, Delete) and {code, right} == {OK, NO_NODE}
            self._judge(op.path, code, code if unknowable else right, number)
            if code == OK and isinstance(op, Create):
                self.present[op.path] = op.data or b""
            elif code == OK:
                self.present.pop(op.path, None)

    def _judge(self, path: str, code: int, right: int, number: int) -> None:
        fate = "applied" if code == OK else "refused"
        self.verdict.writes[fate] = self.verdict.writes.get(fate, 0) + 1
        self.verdict.expect("misreported", code == right, f"round {number}, {path}: code {code}, expected {right}")

    async def _pair(self, _chance: random.Random, number: int) -> None:
        """Write two znodes in one atomic multi, which the client never repeats."""
        try:
            results = await self.client.multi([SetData(path, b"%d" % number, self.pair) for path in PAIR])
        except NotSentError:
            await self._settle_pair((self.pair,))
        except MaybeAppliedError:
            await self._settle_pair((self.pair, self.pair + 1))
        else:
            self._judge(PAIR[0], results[0].code, OK, number)
            self.pair += results[0].code == OK

    async def _settle_pair(self, possible: Sequence[int]) -> None:
        await self.client.sync()
        first, second = (await self.client.get_many(PAIR)).version
        self.verdict.expect("torn", first == second, f"{PAIR}: versions {first} and {second}")
        self.verdict.expect(
            "misreported", first in possible, f"{PAIR[0]} has version {first}, expected one of {possible}"
        )
        self.pair = first

    async def _append(self, _chance: random.Random, number: int) -> None:
        """Create a sequential znode that contains the round's number."""
        name = f"{number}"
        self.log[name] = "maybe"
        try:
            [result] = await self.client.multi([Create(f"{LOG}/e-", name.encode(), sequential=True)])
        except NotSentError:
            self.log[name] = "not"
        except MaybeAppliedError:
            pass
        else:
            self.log[name] = "applied"
            self._judge(LOG, result.code, OK, number)

    # -- after an expiry -----------------------------------------------------------------------------------------------

    def session_expired(self) -> None:
        """Forget the ephemerals, which have ended with their session."""
        for path in self.pools[1]:
            self.present.pop(path, None)

    async def resolve(self) -> None:
        """Read what ZooKeeper holds after a write was cut off; its data shows whether the write was applied.

        Only paths whose write was in flight may have changed, and each only once.
        """
        unsure, self.unsure = sorted(self.unsure), set()
        if not unsure:
            await self._settle_pair((self.pair, self.pair + 1))
            return
        await self.client.sync()
        reads = await self.client.get_many(unsure)
        for path, data, version in zip(unsure, reads.data, reads.version, strict=True):
            if path in self.versions:
                before = self.versions[path]
                self.verdict.expect(
                    "doubled",
                    version in (before, before + 1),
                    f"{path} has version {version} after an expiry",
                )
                self.versions[path], self.datas[path] = version, data or b""
            elif version < 0:
                self.present.pop(path, None)
            else:
                self.present[path] = data or b""

    # -- checks --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Compare what ZooKeeper holds with what it must hold."""
        await self.client.sync()
        await self._check_counters()
        await self._check_nodes()
        await self._check_log()
        await self._settle_pair((self.pair,))

    async def _check_counters(self) -> None:
        paths = list(self.versions)
        reads = await self.client.get_many(paths)
        for path, version, data in zip(paths, reads.version, reads.data, strict=True):
            right = self.versions[path]
            self.verdict.expect(
                "lost",
                version >= right and (version != right or data == self.datas[path]),
                f"{path}: version {version}, {data!r}; expected {right}",
            )
            self.verdict.expect(
                "doubled",
                version <= right,
                f"{path}: version {version}; expected {right}",
            )

    async def _check_nodes(self) -> None:
        for pool, check in zip(self.pools, ("lost", "ephemeral"), strict=True):
            reads = await self.client.get_many(pool)
            for i, path in enumerate(pool):
                found, right = (reads.data[i] if reads.code[i] == OK else None), self.present.get(path)
                self.verdict.expect(
                    check,
                    found == right,
                    f"{path}: found {found!r}, expected {right!r}",
                )
                if check == "ephemeral" and found is not None:
                    owner = reads.ephemeral_owner(i)
                    self.verdict.expect(
                        check,
                        owner == self.client.session_id,
                        f"{path} belongs to session 0x{owner:x}",
                    )

    async def _check_log(self) -> None:
        names = (await self.client.children_many([LOG])).names[0] or []
        reads = await self.client.get_many([f"{LOG}/{name}" for name in names])
        counts = Counter((data or b"").decode() for data in reads.data)
        for name, fate in self.log.items():
            count = counts.pop(name, 0)
            self.verdict.expect("doubled", count <= 1, f"{LOG}: {name} is there {count} times")
            if fate == "applied":
                self.verdict.expect("lost", count >= 1, f"{LOG}: {name} is not there")
            elif fate == "not":
                self.verdict.expect("misreported", count == 0, f"{LOG}: {name} is there, reported as not sent")
        self.verdict.expect("misreported", not counts, f"{LOG}: never written: {sorted(counts)[:5]}")


class Reader:
    """Learns each znode's version from watches alone; -1 if the znode does not exist."""

    def __init__(self, client: ZooKeeperClient, paths: Sequence[str], verdict: HistoryVerdict) -> None:
        self.client = client
        self.paths = list(paths)
        self.known: dict[str, tuple[int, bytes | None]] = {}
        self.verdict = verdict
        self._dirty = dict.fromkeys(paths)
        self._named: set[str] = set()
        self._wake = asyncio.Event()
        self.learned = asyncio.Event()
        client.on_watch = self._on_watch

    def _on_watch(self, _kind: int, path: str) -> None:
        self.verdict.watch_events += 1
        self._dirty[path] = None
        self._named.add(path)
        self._wake.set()

    def session_expired(self) -> None:
        """Read everything again: the watches are gone with their session."""
        self._dirty = dict.fromkeys(self.paths)
        self._named.clear()
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            paths, self._dirty = list(self._dirty), {}
            named, self._named = self._named, set()
            try:
                reads = await self.client.get_many(paths, watch=True)
            except SessionExpiredError:
                self.session_expired()
                continue
            for path, data, version in zip(paths, reads.data, reads.version, strict=True):
                self._learn(path, version, data, path in named)
            self.learned.set()
            if not self._dirty:
                await self._wake.wait()

    def _learn(self, path: str, version: int, data: bytes | None, named: bool) -> None:
        before = self.known.get(path, (-1, None))[0]
        if path.startswith("/c"):  # the others are created and deleted, and their versions start at 0 again
            self.verdict.expect("back in time", version >= before, f"{path}: read version {version} after {before}")
            if named:
                self.verdict.expect(
                    "watch for nothing", version != before, f"{path}: event, but still version {version}"
                )
        self.known[path] = (version, data)

    async def check(self, right: dict[str, tuple[int, bytes | None]]) -> None:
        """Check that the reader knows every znode's last state, or learns it within KNOWLEDGE_BOUND_S."""
        deadline = time.monotonic() + KNOWLEDGE_BOUND_S
        while self.known != right and time.monotonic() < deadline:
            self.learned.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self.learned.wait()
        self.verdict.examine("watch lost", len(right))
        for path, value in right.items():
            if (found := self.known.get(path)) != value:
                self.verdict.violate("watch lost", f"{path}: the reader knows {found}, there is {value}")


class Storm:
    """One run: the clients, their proxies, and the verdict."""

    def __init__(
        self,
        schedule: Schedule,
        ports: Sequence[int],
        *,
        chroot: str,
        session_timeout_s: float,
        ensemble: ZooKeeperEnsemble | None = None,
        progress: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.schedule = schedule
        self.verdict = HistoryVerdict(schedule.seed, schedule.digest, len(schedule.segments), 0.0)
        self._chroot = chroot
        self._session_timeout_s = session_timeout_s
        self._sides = {name: Side(name, ports, schedule.seed) for name in ("writer", "reader")}
        self._servers = Servers(ensemble) if ensemble is not None else None
        self._progress = progress

    async def run(self) -> HistoryVerdict:
        """Play the schedule.  Violations go to the verdict; only unforeseen errors are raised."""
        started = time.monotonic()
        for side in self._sides.values():
            await side.start()
        clients = [self._client(name) for name in self._sides]
        try:
            for client in clients:
                await client.start(30)
            await self._play(*clients)
        finally:
            self.verdict.seconds = round(time.monotonic() - started, 1)
            for client in clients:
                await client.close()
            for side in self._sides.values():
                await side.close()
        return self.verdict

    def _client(self, name: str) -> ZooKeeperClient:
        world = World(RealNetwork(), RealClock(), random.Random(f"client/{self.schedule.seed}/{name}"))
        address = self._sides[name].address + self._chroot
        return ZooKeeperClient(address, world=world, session_timeout_s=self._session_timeout_s)

    async def _play(self, first: ZooKeeperClient, second: ZooKeeperClient) -> None:
        writer = Writer(first, self.schedule.seed, self.verdict)
        await writer.set_up()
        reader = Reader(second, [*writer.versions, *writer.pools[0], *writer.pools[1]], self.verdict)
        for client, owner in ((first, writer), (second, reader)):
            client.on_session = _on_expiry(owner.session_expired)
        watching = asyncio.create_task(reader.run())
        try:
            for number, faults in enumerate(self.schedule.segments):
                doing = asyncio.create_task(self._disturb(number))
                try:
                    await self._write(writer, self.schedule.lengths_s[number])
                finally:
                    doing.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await doing
                    await self._calm()
                await self._check(writer, reader, watching)
                self._count(first, second)
                self._progress(self._line(number, len(faults)))
        except TimeoutError:
            pass  # in the verdict as "hung"
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self._count(first, second)

    async def _disturb(self, number: int) -> None:
        started = time.monotonic()
        for fault in self.schedule.segments[number]:
            await asyncio.sleep(max(0.0, started + fault.at_s - time.monotonic()))
            target = self._sides.get(fault.side) or self._servers
            if target is not None:
                await target.do(fault)

    async def _write(self, writer: Writer, length_s: float) -> None:
        end = time.monotonic() + length_s
        while time.monotonic() < end:
            await writer.round(self.verdict.rounds)
            self.verdict.rounds += 1
            # leave time for other processes: the timing of faults and writes matters, not their number
            await asyncio.sleep(0.005)

    async def _calm(self) -> None:
        for side in self._sides.values():
            await side.calm()
        if self._servers is not None:
            await self._servers.calm()

    async def _check(self, writer: Writer, reader: Reader, watching: asyncio.Task[None]) -> None:
        try:
            async with asyncio.timeout(CALL_BOUND_S):
                await writer.check()
        except TimeoutError:
            self.verdict.violate("hung", "reading everything back did not end")
            raise
        right: dict[str, tuple[int, bytes | None]] = {
            path: (version, writer.datas[path]) for path, version in writer.versions.items()
        }
        for path in (*writer.pools[0], *writer.pools[1]):
            data = writer.present.get(path)
            right[path] = (-1, None) if data is None else (0, data)
        if watching.done():
            watching.result()
        await reader.check(right)
        for client, side in ((writer.client, self._sides["writer"]), (reader.client, self._sides["reader"])):
            self.verdict.expect(
                "given up",
                client.session_epoch - 1 <= side.expired_by_server,
                f"the {side.name} opened {client.session_epoch} sessions, servers ended {side.expired_by_server}",
            )

    def _count(self, *clients: ZooKeeperClient) -> None:
        happened: Counter[str] = Counter()
        for side in self._sides.values():
            happened += side.happened
        if self._servers is not None:
            happened += self._servers.happened
        self.verdict.faults = dict(sorted(happened.items()))
        statistics = [client.statistics() for client in clients]
        self.verdict.suspensions = sum(one.suspensions for one in statistics)
        self.verdict.lost_answers = sum(one.lost_answers for one in statistics)
        self.verdict.sessions_expired_by_server = sum(side.expired_by_server for side in self._sides.values())

    def _line(self, number: int, drawn: int) -> str:
        verdict = self.verdict
        violations = sum(finding.violations for finding in verdict.findings)
        return (
            f"segment {number + 1} of {verdict.segments}: {drawn} faults drawn, {verdict.suspensions} connections "
            f"lost so far, {verdict.rounds} rounds, {verdict.watch_events} watch events, {violations} violations"
        )


def _on_expiry(action: Callable[[], None]) -> Callable[[SessionEvent], None]:
    def on_session(event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            action()

    return on_session
