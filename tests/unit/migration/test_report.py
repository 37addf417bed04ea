"""Looks at a modelled cluster: nothing is written, brokers are asked, and what both looks show is reported."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker, _encode
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.migration.answers import VOTERS
from aiocontroller.migration.asking import Asker
from aiocontroller.migration.report import Bootstrap, examine, look, summary
from aiocontroller.migration.rules import MigrationStep
from aiocontroller.migration.watching import looks
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode, encode_migration
from tests.unit.controller.virtual_cluster import Stage, add_silent_broker, stage

PROVISIONED = encode_migration(MigrationZNode(-1, -1, -1, -1))
CLAIMED = encode_migration(MigrationZNode(3000, 52, 100, 52))


def migrate(broker: RecordingBroker) -> None:
    """It answers as in migration mode from now on."""

    def respond(api: ApiKey, version: int, request: Any) -> bytes:
        if api is ApiKey.API_VERSIONS and version >= 3:
            keys = [{"api_key": k, "min_version": lo, "max_version": hi} for k, (lo, hi) in broker.served.items()]
            return _encode(api, version, api_keys=keys, zk_migration_ready=True)
        return RecordingBroker.respond(broker, api, version, request)

    broker.respond = respond  # type: ignore[method-assign]


async def provisioned(it: Stage) -> None:
    await it.make_broker_controller()
    await it.create("/controller_epoch", b"7")
    await it.create("/migration", PROVISIONED)


@virtual_time
async def test_it_finds_what_the_claim_waits_for_and_writes_nothing() -> None:
    async with stage() as it:
        await provisioned(it)
        migrate(await it.add_broker(1, **{VOTERS: "3000@nowhere:1"}))
        await it.add_broker(2, inter_broker_protocol_version="3.8")
        await add_silent_broker(it, 3)
        before = {path: (node.data, node.mzxid) for path, node in it.zookeeper.model.tree.nodes.items()}
        report = await examine(it.zk, Asker(it.world), it.world.clock, Bootstrap())
        after = {path: (node.data, node.mzxid) for path, node in it.zookeeper.model.tree.nodes.items()}
        assert after == before
        assert (report.phase, report.before) == ("provisioned, waiting for the brokers", "migration-mode")
        assert [(b.id, b.registered, b.mode) for b in report.brokers] == [
            (1, True, "migration"),
            (2, True, "zookeeper"),
            (3, True, "?"),
        ]
        assert {(f.kind, f.subjects) for f in report.findings} == {
            ("not-in-migration-mode", ("broker 2",)),
            ("protocol-version", ("broker 2",)),
            ("does-not-answer", ("broker 3",)),
            ("controller-does-not-answer", ("controller 3000",)),
            ("one-controller", ("controller 3000",)),
        }
        assert all(finding.evidence for finding in report.findings)
        for steps in (report.next, report.way_back):
            assert steps


@virtual_time
async def test_what_moves_between_two_looks_is_no_finding() -> None:
    async with stage() as it:
        await provisioned(it)
        broker = await it.add_broker(1)
        it.world.clock.call_later(1, lambda: migrate(broker))
        report = await examine(it.zk, Asker(it.world), it.world.clock, Bootstrap())
        assert report.findings == ()


@pytest.mark.parametrize("step", list(MigrationStep))
@virtual_time
async def test_each_step_can_be_checked_for_in_any_phase(step: MigrationStep) -> None:
    async with stage() as it:
        migrate(await it.add_broker(1))
        report = await examine(it.zk, Asker(it.world), it.world.clock, Bootstrap(), before=step)
        assert report.before == step.value
        assert ("no-controller", "critical") in {(f.kind, f.severity) for f in report.findings}


@virtual_time
async def test_a_look_without_brokers_tells_what_zookeeper_holds() -> None:
    async with stage() as it:
        await it.create("/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":52}')
        await it.create("/controller_epoch", b"7")
        await it.create("/migration", CLAIMED)
        seen = await look(it.zk, Asker(it.world), Bootstrap(servers=[("nowhere", 1)], controllers=[("nowhere", 2)]))
        assert set(seen.answers.silent) == {"bootstrap server nowhere:1", "bootstrap controller nowhere:2"}
        assert seen.reported == {}
        report = summary(seen, it.world.clock)
        assert (report.phase, report.controller, report.kraft_controller_epoch, report.controller_epoch) == (
            "dual write, all brokers in KRaft mode",
            3000,
            52,
            7,
        )


@virtual_time
async def test_watching_says_what_is_new_and_what_is_gone() -> None:
    async with stage() as it:
        await provisioned(it)
        broker = await it.add_broker(1)
        heard: list[tuple[str, ...]] = []
        async for seen in looks(it.zk, Asker(it.world), it.world.clock, Bootstrap(), 2.0):
            heard.append(seen.news)
            if len(heard) == 3:
                migrate(broker)
            if len(heard) == 6:
                break
        assert heard[0] == (
            "phase: provisioned, waiting for the brokers",
            "brokers in migration mode: none; in KRaft mode: none",
        )
        waiting = "Brokers that are not in migration mode: broker 1 [not-in-migration-mode]"
        assert heard[1] == (f"found: {waiting}",)
        assert heard[2] == ()
        assert heard[3] == ("brokers in migration mode: 1; in KRaft mode: none", f"gone: {waiting}")
        assert heard[4:] == [(), ()]
