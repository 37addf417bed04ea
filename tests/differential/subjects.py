"""The two that are compared: Kafka's own controller, in two brokers that hold no partitions, and ours."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiocontroller.config import load_config
from aiocontroller.lab.cluster.generations import NEWEST, Protocol
from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker
from aiocontroller.lab.scenarios.fleet import PROTOCOLS
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from tests.differential.fleet import SECOND

START_TIMEOUT_S = 120.0
_SETTINGS = {
    "auto.leader.rebalance.enable": "false",  # elections are the scenario's
    "zookeeper.session.timeout.ms": "30000",  # a busy machine must not cost a failover
}

_PROTOCOL = "inter.broker.protocol.version"
OLDER_PROTOCOLS = {f"protocol {name}": name for name in PROTOCOLS if Protocol.of(name)[:2] < Protocol.of(NEWEST)[:2]}
OLD_PROTOCOL, RESTLESS, CONTROL_PLANE = "protocol 2.6", "restless", "control plane"
"""Of the old protocol leaders write ISRs themselves, and topics have no ids."""
VARIANTS: dict[str, dict[str, str]] = {
    "": {},
    **{name: {_PROTOCOL: protocol} for name, protocol in OLDER_PROTOCOLS.items()},
    RESTLESS: {
        "auto.leader.rebalance.enable": "true",
        "leader.imbalance.check.interval.seconds": "1",
        "leader.imbalance.per.broker.percentage": "0",
        "delete.topic.enable": "false",
    },
    CONTROL_PLANE: {
        "control.plane.listener.name": "PLAINTEXT",
        "inter.broker.listener.name": SECOND,
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{SECOND}:PLAINTEXT",
    },
}
"""Settings of both subjects, by the name that scenarios give them."""


def variant_with(settings: Mapping[str, str], protocol: str) -> str:
    """The name of the one variant that has these settings, or this protocol; ValueError if there is no such one."""
    wanted = dict(settings) or ({_PROTOCOL: protocol} if protocol else {})
    if not wanted:
        return ""
    found = [name for name, its in VARIANTS.items() if wanted.items() <= its.items()]
    if len(found) != 1:
        raise ValueError(f"settings: found {wanted}, expected those of one of {', '.join(filter(None, VARIANTS))}")
    return found[0]


def protocol_of(variant: str) -> str:
    """Which ``inter.broker.protocol.version`` the subjects have."""
    return VARIANTS[variant].get(_PROTOCOL, NEWEST)


def listeners_of(variant: str) -> dict[str, str | None]:
    """The settings of listeners that controllers and brokers must have in common."""
    return {name: value for name, value in VARIANTS[variant].items() if name.endswith("listener.name")}


class Subject:
    """Something that can be the controller of the cluster in ``zookeeper`` (``host:port/chroot``)."""

    name: str
    protocol = NEWEST
    """inter.broker.protocol.version."""
    listeners: Mapping[str, str | None]
    """What the brokers must say of theirs, or it would not serve them."""
    registered: frozenset[int]
    """Ids under which it registers as brokers."""

    async def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def address(self, controller: int) -> tuple[str, int]:
        """Where the instance with this id takes requests."""
        raise NotImplementedError

    async def could_take_over(self) -> bool:
        """Whether a candidate is as ready as it can be for a vacancy."""
        return True

    @property
    def ids(self) -> frozenset[int]:
        """Every id under which it may appear in requests."""
        raise NotImplementedError


class _OnTwoListeners(RealKafkaBroker):
    def properties(self) -> dict[str, str]:
        found = super().properties()
        return found | {"listeners": f"{found['listeners']},{SECOND}://127.0.0.1:0"}


class KafkasOwn(Subject):
    """Two, so that one can take over from the other."""

    name = "Kafka"
    registered = frozenset((1001, 1002))
    ids = registered

    def __init__(self, zookeeper: str, folder: Path, variant: str = "") -> None:
        settings = {
            **_SETTINGS,
            **VARIANTS[variant],
            "reserved.broker.max.id": "2000",
            "auto.create.topics.enable": "false",
            "broker.rack": "own",  # replicas are not placed where only some brokers have one
            "zookeeper.connection.timeout.ms": "60000",
        }
        self.protocol = protocol_of(variant)
        self.listeners = listeners_of(variant)
        kind = _OnTwoListeners if variant == CONTROL_PLANE else RealKafkaBroker
        self._brokers = {
            n: kind(n, zookeeper, folder / f"kafka-{n}", overrides=settings, heap_mb=384)
            for n in sorted(self.registered)
        }

    async def start(self) -> None:
        children = [broker.launch() for broker in self._brokers.values()]
        waits = zip(self._brokers.values(), children, strict=True)
        await asyncio.gather(*(child.wait_until_async(broker.answers, START_TIMEOUT_S) for broker, child in waits))

    def stop(self) -> None:
        for broker in self._brokers.values():
            broker.kill()

    def address(self, controller: int) -> tuple[str, int]:
        return "127.0.0.1", self._brokers[controller].port


class Ours(Subject):
    """One, without a copy of the cluster: it stands again when ``/controller`` goes, and reads everything."""

    name = "aiocontroller"
    standby = "cold"
    program = ("-m", "aiocontroller")
    """What Python runs."""
    registered: frozenset[int] = frozenset()
    ids = frozenset((1_000_001,))

    def __init__(self, zookeeper: str, folder: Path, variant: str = "") -> None:
        self._zookeeper = zookeeper
        self.protocol = protocol_of(variant)
        self.listeners = listeners_of(variant)
        self._settings = _SETTINGS | VARIANTS[variant] | {"aiocontroller.standby": self.standby}
        self._folders = {identity: folder / f"{self.name}-{identity}" for identity in sorted(self.ids)}
        self._children: list[Child] = []

    async def start(self) -> None:
        for identity, folder in self._folders.items():
            command = [sys.executable, *self.program, "run", "--zookeeper", self._zookeeper]
            command += ["--id", str(identity), "--http-port", "0", "--data", str(folder)]
            for key, value in self._settings.items():
                command += ["--property", f"{key}={value}"]
            self._children.append(child := Child(f"aiocontroller {identity}", command, log=folder / "log"))
            await child.wait_until_async((folder / "controller.json").exists, START_TIMEOUT_S)

    def stop(self) -> None:
        for child in self._children:
            child.kill()

    def address(self, controller: int) -> tuple[str, int]:
        (listener,) = self._ready_file(controller)["listeners"]
        host, port = listener.rsplit("/", 1)[1].rsplit(":", 1)
        return host, int(port)

    def _ready_file(self, controller: int) -> Any:
        return json.loads((self._folders[controller] / "controller.json").read_text())


class OursWarm(Ours):
    """Two: the one that stands by keeps a copy of the cluster, and goes on with it."""

    name = "aiocontroller-warm"
    standby = "warm"
    program = (
        "-c",
        "from aiocontroller.controller import warm_failover; warm_failover.FRESH_S = 0.0;"
        "from aiocontroller.cli import main; main()",
    )
    """No broker counts as fresh, although all have started a moment ago: then less would be left for later."""
    ids = frozenset((1_000_001, 1_000_002))

    async def could_take_over(self) -> bool:
        return any(await asyncio.gather(*(asyncio.to_thread(self._is_warm, each) for each in self._folders)))

    def _is_warm(self, identity: int) -> bool:
        with urllib.request.urlopen(f"{self._ready_file(identity)['http']}/status", timeout=10) as answer:
            standby = json.loads(answer.read())["standby"]
        return bool(standby["state"] == "warm" and not standby["behind"])


class OursHere(Ours):
    """The same in this process, for tests that change the program."""

    def __init__(self, zookeeper: str, world: World, variant: str = "") -> None:
        (identity,) = self.ids
        settings = {"zookeeper.connect": zookeeper, "aiocontroller.id": str(identity), **_SETTINGS}
        settings["aiocontroller.standby"] = self.standby
        self.protocol = protocol_of(variant)
        self.listeners = listeners_of(variant)
        settings |= VARIANTS[variant]
        config, _ = load_config(overrides=settings)
        self._service = Service(config, world, with_http=False)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        opened = asyncio.Event()
        self._running = asyncio.create_task(self._service.run(lambda _: opened.set()))
        await asyncio.wait_for(opened.wait(), START_TIMEOUT_S)

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def ended(self) -> None:
        """After ``stop``: a connection that is open when the loop closes is an error, blamed on a later test."""
        if self._running is not None:
            await asyncio.wait([self._running])

    def address(self, controller: int) -> tuple[str, int]:
        assert controller in self.ids
        (endpoint,) = self._service.endpoints
        return endpoint.host, endpoint.port
