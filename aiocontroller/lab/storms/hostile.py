"""``aiocontroller storm hostile``: hostile and careless clients at a controller's ports, while its brokers die.

The storm starts a whole cluster (``aiocontroller up`` without its view) whose controller has a PLAINTEXT, an SSL and a
SASL_PLAINTEXT listener and 512 file descriptors.  It runs attacks drawn from the seed, several at once
(``lab/hostile``), and meanwhile kills and restarts a broker.  It is a violation unless the controller keeps its role,
always answers ``/healthz`` and a broker's AlterPartition within a second, keeps its memory below the bound, and elects
new leaders for the dead broker's partitions in time.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from aiocontroller.core.ids import Broker, LeaderAndIsr
from aiocontroller.lab.cluster.embedded_zookeeper import free_port
from aiocontroller.lab.cluster.supervisor import ClusterOptions, ClusterSupervisor
from aiocontroller.lab.hostile.attacks import ATTACKS, Tally, Target, Task
from aiocontroller.lab.hostile.probes import (
    Leadership,
    Process,
    Samples,
    controller_epoch,
    probe_alter_partition,
    probe_health,
    watch_process,
)
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient

MAX_RSS_MIB = 600
"""The controller's resident memory: 120 MiB of its own, unfinished requests, and what malloc keeps."""
SESSION_TIMEOUT_S = 6.0
LED_WITHIN_S = SESSION_TIMEOUT_S + 4.0
"""From a broker's death to new leaders for all partitions that it led."""
ROUND_S = 6.0
DESCRIPTORS = 512
PROBE_TOPIC = "probe"


class Options(NamedTuple):
    seed: int
    seconds: float
    within_s: float
    """The bound for each answer to a probe."""
    only: Sequence[str]
    """Names of attacks; empty for all."""
    keep: Path | None
    """The cluster's folder is copied there after a violation."""


class Round(msgspec.Struct, kw_only=True):
    """Some simultaneous attacks, and their effect on other clients."""

    attacks: list[str]
    tally: Tally
    health: Samples
    alter: Samples
    max_rss_mib: float
    role_kept: bool
    led_again_s: float | None
    """None if no broker was killed."""


class Verdict(msgspec.Struct, kw_only=True):
    seed: int
    within_s: float
    rounds: list[Round]
    max_rss_mib: float
    rss_at_the_end_mib: float
    violations: list[str]

    @property
    def ok(self) -> bool:
        return not self.violations


class BesiegedCluster(ClusterSupervisor):
    """A cluster whose controller has three kinds of listeners and few file descriptors."""

    def __init__(self, options: ClusterOptions, certificate: Path | None) -> None:
        super().__init__(options)
        self.targets = [Target("PLAINTEXT", free_port()), Target("LOGIN", free_port(), sasl=True)]
        if certificate is not None:
            self.targets.append(Target("TLS", free_port(), tls=True))
        self._certificate = certificate

    def controller_command(self) -> list[str]:
        command = super().controller_command()
        at = command.index("--listen")
        del command[at : at + 2]
        properties = {
            "listeners": ",".join(f"{target.name}://127.0.0.1:{target.port}" for target in self.targets),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.login.plain.sasl.jaas.config": 'PlainLoginModule required user_admin="secret";',
        }
        if self._certificate is not None:
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._certificate)}
        command += [part for key, value in properties.items() for part in ("--property", f"{key}={value}")]
        return ["/bin/sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *command]

    @property
    def http_port(self) -> int:
        return self._ports["http"]


def certificate_in(folder: Path) -> Path | None:
    """Create a key and its certificate in PEM; return None without openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        return None
    key, certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    command = (
        f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -keyout {key} -out {certificate}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


class HostileStorm:
    def __init__(self, options: Options, cluster: BesiegedCluster, console: Console) -> None:
        self._options = options
        self._cluster = cluster
        self._console = console
        self._random = random.Random(options.seed)
        self._health, self._alter, self._process = Samples(), Samples(), Process()
        self._role: tuple[int, int] = (-1, -1)

    async def run(self) -> Verdict:
        cluster = self._cluster
        leadership = await self._prepare()
        self._role = await controller_epoch(cluster.zk)
        pid = cluster.snapshot().controller.pid
        probes = [
            asyncio.create_task(probe_health(cluster.http_port, self._health)),
            asyncio.create_task(probe_alter_partition(cluster.targets[0].port, leadership, self._alter)),
            asyncio.create_task(watch_process(pid, self._process)),
        ]
        ends_s = time.monotonic() + self._options.seconds
        rounds: list[Round] = []
        try:
            waiting = self._drawn()
            while time.monotonic() < ends_s:
                waiting = waiting or self._drawn()
                together = [waiting.pop() for _ in range(min(len(waiting), self._random.choice((1, 2, 3))))]
                rounds.append(await self._round(together, kill=len(rounds) % 3 == 1))
                self._say(rounds[-1])
            await asyncio.sleep(1.0)
        finally:
            for probe in probes:
                probe.cancel()
            await asyncio.gather(*probes, return_exceptions=True)
        return self._verdict(rounds)

    async def _prepare(self) -> Leadership:
        """Create a topic on broker 1 alone; since that broker is never killed, its partition's state never changes."""
        zk = self._cluster.zk
        topic_id = self._random.randbytes(16)
        await AdminZkClient(zk).create_topic(PROBE_TOPIC, {0: (1,)}, topic_id)
        await self._cluster.wait_until_led()
        (state,) = await zk.get_topic_partition_states([PROBE_TOPIC], [0])
        broker = await zk.get_broker(1, watch=False)
        assert isinstance(state, LeaderAndIsr) and isinstance(broker, Broker)
        return Leadership(topic_id, state, 1, broker.epoch)

    def _drawn(self) -> list[str]:
        attacks = list(self._options.only or ATTACKS)
        self._random.shuffle(attacks)
        return attacks

    async def _round(self, attacks: list[str], *, kill: bool) -> Round:
        before = len(self._health.seconds), len(self._alter.seconds)
        self._process.max_rss_mib = 0.0
        running = [asyncio.create_task(self._attack(name)) for name in attacks]
        led_again_s = await self._kill_and_restart() if kill else None
        tallies = await asyncio.gather(*running)
        return Round(
            attacks=attacks,
            tally=Tally(*(sum(column) for column in zip(*map(msgspec.structs.astuple, tallies), strict=True))),
            health=self._health.taken_since(before[0]),
            alter=self._alter.taken_since(before[1]),
            max_rss_mib=self._process.max_rss_mib,
            role_kept=await controller_epoch(self._cluster.zk) == self._role,
            led_again_s=led_again_s,
        )

    async def _attack(self, name: str) -> Tally:
        cluster = self._cluster
        seed = self._random.randrange(1 << 32)
        task = Task(name, seed, ROUND_S, cluster.targets, cluster.http_port, "topic-0")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "aiocontroller.lab.hostile.attacks",
            msgspec.json.encode(task).decode(),
            stdout=subprocess.PIPE,
        )
        try:
            out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise RuntimeError(f"the attack {name!r} ended with exit code {process.returncode}")
        return msgspec.json.decode(out, type=Tally)

    async def _kill_and_restart(self) -> float:
        """Kill and restart a broker; return the seconds from its death until all its partitions are led elsewhere."""
        cluster, victim = self._cluster, 2
        began_s = time.monotonic()
        await cluster.execute("kill-broker", victim)
        while await self._leads(victim) and time.monotonic() < began_s + 3 * LED_WITHIN_S:  # noqa: ASYNC110 - polled
            await asyncio.sleep(0.1)
        led_again_s = time.monotonic() - began_s
        await cluster.execute("start-broker", victim)
        return led_again_s

    async def _leads(self, broker: int) -> bool:
        zk, options = self._cluster.zk, self._cluster.options
        names = [f"topic-{n}" for n in range(options.topics) for _ in range(options.partitions)]
        numbers = [*range(options.partitions)] * options.topics
        states = await zk.get_topic_partition_states(names, numbers)
        return any(isinstance(state, LeaderAndIsr) and state.leader == broker for state in states)

    def _say(self, done: Round) -> None:
        self._console.print(
            f"{', '.join(done.attacks)}: /healthz {done.health.quantile(1):.3f} s at most, AlterPartition "
            f"{done.alter.quantile(1):.3f} s, {done.max_rss_mib:.0f} MiB"
        )

    def _verdict(self, rounds: list[Round]) -> Verdict:
        violations = []
        for each in rounds:
            name = " + ".join(each.attacks)
            for what, samples in (("/healthz", each.health), ("AlterPartition", each.alter)):
                if not samples.seconds:
                    violations.append(f"{name}: {what} was never answered")
                elif samples.quantile(1) > self._options.within_s:
                    violations.append(
                        f"{name}: {what} took {samples.quantile(1):.2f} s, expected {self._options.within_s:g}"
                    )
            if not each.role_kept:
                violations.append(f"{name}: the role changed hands")
            if each.max_rss_mib > MAX_RSS_MIB:
                violations.append(f"{name}: {each.max_rss_mib:.0f} MiB resident, expected at most {MAX_RSS_MIB}")
            if each.led_again_s is not None and each.led_again_s > LED_WITHIN_S:
                violations.append(f"{name}: partitions had a dead leader for {each.led_again_s:.1f} s")
        for failure in dict.fromkeys(self._health.failures + self._alter.failures):
            violations.append(failure)
        if not self._cluster.snapshot().controller.running:
            violations.append("the controller's process ended")
        return Verdict(
            seed=self._options.seed,
            within_s=self._options.within_s,
            rounds=rounds,
            max_rss_mib=max((each.max_rss_mib for each in rounds), default=0.0),
            rss_at_the_end_mib=self._process.rss_mib,
            violations=violations,
        )


def show(verdict: Verdict, console: Console) -> None:
    table = Table(title=f"Hostile clients, seed {verdict.seed}; bounds: {verdict.within_s:g} s, {MAX_RSS_MIB} MiB")
    table.add_column("attacks")
    for heading in ("connections", "refused", "closed", "requests", "sent MiB", "/healthz p50, max ms"):
        table.add_column(heading, justify="right")
    for heading in ("AlterPartition p50, max ms", "RSS MiB", "dead leader s"):
        table.add_column(heading, justify="right")
    table.add_column("role")
    for each in verdict.rounds:
        tally = each.tally
        table.add_row(
            ", ".join(each.attacks),
            *(
                f"{n:,}"
                for n in (tally.connections, tally.refused, tally.closed, tally.requests, tally.sent_bytes >> 20)
            ),
            *(f"{s.quantile(0.5) * 1000:.0f}, {s.quantile(1) * 1000:.0f}" for s in (each.health, each.alter)),
            f"{each.max_rss_mib:.0f}",
            "" if each.led_again_s is None else f"{each.led_again_s:.1f}",
            "kept" if each.role_kept else "LOST",
        )
    console.print(table)
    console.print(
        f"resident memory: {verdict.max_rss_mib:.0f} MiB at most, {verdict.rss_at_the_end_mib:.0f} at the end"
    )
    for violation in verdict.violations:
        console.print(f"VIOLATED {violation}", style="red", markup=False)
    console.print("The controller held." if not verdict.violations else f"{len(verdict.violations)} violations.")


async def storm(options: Options, console: Console) -> Verdict:
    """Play attacks until the time is up; returns the verdict, which is shown on the console too."""
    with tempfile.TemporaryDirectory(prefix="storm-hostile-") as folder:
        certificate = certificate_in(Path(folder))
        if certificate is None:
            console.print("no openssl on PATH: the SSL listener is left out")
        shape = ClusterOptions(data_dir=Path(folder) / "data", topics=4, partitions=8, brokers=3)
        cluster = BesiegedCluster(shape, certificate)
        async with cluster:
            verdict = await HostileStorm(options, cluster, console).run()
            if verdict.violations and options.keep:
                shutil.copytree(Path(folder), options.keep, dirs_exist_ok=True)
    show(verdict, console)
    return verdict
