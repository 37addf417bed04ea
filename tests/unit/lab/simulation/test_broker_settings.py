"""Brokers whose settings differ, change, or contradict a controller's: what it does about them, and would we tell?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from aiocontroller.controller import cluster_settings, controller_eligibility, obeying
from aiocontroller.lab.scenarios.fleet import Version
from aiocontroller.lab.scenarios.plan import DELETION, DRAWN, SETTING_CHANGES, UNCLEAN, Plan, draw
from aiocontroller.lab.scenarios.scenario import format_scenario, parse_scenario
from aiocontroller.lab.simulation.broker_settings import BrokerSettings
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.lab.virtual_loop import run
from aiocontroller.lab.zookeeper.zookeeper_tree import ZNode

SEEDS = range(400)
REBALANCING = "auto.leader.rebalance.enable"

DIFFERENT = f"""
cluster brokers=3 controllers=2 broker-settings=1/{REBALANCING}:true,2/{REBALANCING}:false,3/{REBALANCING}:false
create-topic orders 1,2,3
kill-controller active then=5
expect leader orders-0 1
"""
CONTRADICTED = f"""
cluster brokers=2 controllers=2 settings={DELETION}:false controller-settings=2/{DELETION}:true
create-topic orders 1,2
kill-controller 2 then=5          # perhaps it was elected before there were brokers
start-controller 2 then=5
kill-controller 1 then=40
expect controller none
start-controller 1 then=5
expect controller 1
"""
CHANGED = f"""
cluster brokers=2 controllers=1 settings={UNCLEAN}:false,{REBALANCING}:true
create-topic orders 1,2
kill-broker 2 then=8
start-broker 2 then=0
kill-broker 1 then=8
expect leader orders-0 none
alter-broker-configs <default> {UNCLEAN}:true
expect leader orders-0 2
alter-broker-configs <default> {UNCLEAN}:
configure-broker 2 {REBALANCING}:false then=8
start-broker 1 then=8
configure-broker 1 {REBALANCING}:false then=8
expect leader orders-0 any
"""


def played(text: str) -> tuple[SimulationReport, Simulation]:
    made = Simulation(parse_scenario(text))
    return run(made.run()), made


@pytest.mark.parametrize("text", [DIFFERENT, CONTRADICTED, CHANGED], ids=["different", "contradicted", "changed"])
def test_controllers_make_of_the_brokers_settings_what_they_have_to(text: str) -> None:
    report, _ = played(text)
    assert report.violations == []


def test_a_starting_broker_reads_what_is_changed_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that finds no broker to restart trusts the one that starts to read the new file, or to be the new release
    (seed 1803000001548)."""
    made = Simulation(parse_scenario(f"cluster brokers=1 controllers=1 settings={REBALANCING}:true"))
    start = made.start_broker

    def start_and_change(broker: int) -> None:
        start(broker)
        made.settings.files[broker][REBALANCING] = "false"
        made.fleet.brokers[broker] = Version("3.7", "3.7")

    monkeypatch.setattr(made, "start_broker", start_and_change)
    run(made.run())
    config = made.brokers[1][0].config
    assert (config.settings[REBALANCING], config.release, config.inter_broker_protocol_version) == (
        "false",
        "3.7",
        "3.7",
    )


def test_settings_changed_while_active_are_in_the_journal() -> None:
    _, made = played(CHANGED)
    details = [record.detail for journal in made.journals for record in journal.records if record.kind == "setting"]
    assert [detail for detail in details if detail and detail.startswith((UNCLEAN, REBALANCING))] == [
        f"{UNCLEAN}: false -> true",
        f"{UNCLEAN}: true -> false",
        f"{REBALANCING}: true -> false",
    ]


# -- would it tell? ----------------------------------------------------------------------------------------------------


def the_first(name: str, votes: dict[int, Any]) -> Any:
    return next(iter(votes.values()))


def nothing(*_: Any) -> tuple[()]:
    return ()


@pytest.mark.parametrize(
    "text, module, name, bug, complaint",
    [
        (DIFFERENT, cluster_settings, "settle", the_first, f"settings: {REBALANCING} is true here"),
        (
            CONTRADICTED,
            controller_eligibility,
            "RULES",
            tuple(rule for rule in controller_eligibility.RULES if rule is not controller_eligibility._settings),
            f"settings: controller 2 has taken the role with {DELETION} true",
        ),
        (CHANGED, obeying, "dynamic_of", lambda _: obeying.Dynamic(), "orders-0"),
    ],
    ids=["the first broker counts", "contradictions are not looked at", "dynamic settings are not read"],
)
def test_a_controller_that_does_otherwise_is_found(
    monkeypatch: pytest.MonkeyPatch, text: str, module: Any, name: str, bug: Any, complaint: str
) -> None:
    monkeypatch.setattr(module, name, bug)
    report, _ = played(text)
    assert any(complaint in violation for violation in report.violations), report.violations


def test_a_setting_that_is_reported_to_be_alike_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active controller obeys it, and no message says that brokers differ."""
    monkeypatch.setattr(cluster_settings.EffectiveSetting, "differs", False)
    report, _ = played(DIFFERENT)
    assert any(f"settings: {REBALANCING} is to be alike" in violation for violation in report.violations)


# -- what counts, and what is drawn ------------------------------------------------------------------------------------


def settings(nodes: dict[str, ZNode] | None = None, **changes: Any) -> BrokerSettings:
    plan = Plan(1, brokers=4, controllers=2, shared_id=False, takeover=False, steps=(), **changes)
    return BrokerSettings(plan, lambda: nodes or {})


def of_brokers(name: str, *values: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{broker}/{name}", value) for broker, value in enumerate(values, 1))


@pytest.mark.parametrize(
    "name, values, expected",
    [
        (UNCLEAN, ("true", "true", "true", "false"), "true"),
        (UNCLEAN, ("true", "true", "false", "false"), "false"),
        (DELETION, ("true", "false", "true", "false"), "false"),
        ("leader.imbalance.per.broker.percentage", ("0", "10", "10", "0"), "10"),
        ("leader.imbalance.per.broker.percentage", ("0", "10", "50", "0"), "0"),
        ("num.partitions", ("3", "3", "1", "1"), "1"),
    ],
)
def test_value_of_most_brokers_counts_then_what_does_least_harm(
    name: str, values: tuple[str, ...], expected: str
) -> None:
    assert settings(broker_settings=of_brokers(name, *values)).counts(name) == expected


def test_dynamic_settings_go_before_the_files() -> None:
    of_all, of_one = (
        ZNode(b'{"version":1,"config":{"unclean.leader.election.enable":"%s"}}' % value, (), 0, 0, 0)
        for value in (b"true", b"false")
    )
    nodes = {"/config/brokers/<default>": of_all}
    assert settings({}).counts(UNCLEAN) == "false"
    assert settings(nodes).counts(UNCLEAN) == "true"
    assert settings(nodes | {"/config/brokers/1": of_one, "/config/brokers/2": of_one}).counts(UNCLEAN) == "false"


def test_seeds_draw_every_setting_that_differs_contradicts_and_changes() -> None:
    differing: Counter[str] = Counter()
    contradicting: Counter[str] = Counter()
    for seed in SEEDS:
        plan = draw(seed)
        assert parse_scenario(format_scenario(plan)) == plan
        differing.update({name.partition("/")[2] for name, _ in plan.broker_settings})
        made = BrokerSettings(plan, dict)
        for name in {name.partition("/")[2] for name, _ in plan.broker_settings}:
            assert len(made.ever(name)) > 1, f"seed {seed}: {name}"
        contradicting.update(line for number in made.controllers for line in made.forbidden(number))
    assert differing.keys() == DRAWN.keys()
    assert {line.partition(" ")[0] for line in contradicting} == DRAWN.keys()
    changing = {step.kind for seed in SEEDS for step in draw(seed).steps} & set(SETTING_CHANGES)
    assert changing == set(SETTING_CHANGES)
