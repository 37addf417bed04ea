"""Reads the brokers' own settings, and finds what is wrong with them.

A controller inside a broker obeys that broker's settings, so brokers with different settings behave differently as the
controller; aiocontroller obeys the value that most brokers have (``controller.obeyed_settings``, which decides here,
too).  Only the reading does I/O: DescribeConfigs, which changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from aiocontroller.check.findings import Hit
from aiocontroller.check.rules import MIN_ISR, UNCLEAN, is_true
from aiocontroller.config import Config, ConfigError
from aiocontroller.controller.broker_client import asking_at
from aiocontroller.controller.obeyed_settings import (
    CREATE_TOPIC_POLICY,
    NAMES,
    OBEYED,
    PROTOCOL,
    ReportedSettings,
    Source,
    Vote,
    by_value,
    comparable,
    dynamic_of,
    reported_by,
    settle,
    shown,
    vote,
)
from aiocontroller.controller.shell import inter_broker_listener
from aiocontroller.controller.survey import SettingsRefusedError, describe_broker
from aiocontroller.core.ids import Broker
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.wire.errors import FrameError
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.broker_configs import THREAD_COUNTS
from aiocontroller.zookeeper.cluster_tree import ClusterTree

WITHIN_S = 5.0
AUTHORIZER = "authorizer.class.name"
ASKED = (*(name for name in NAMES if name not in THREAD_COUNTS), AUTHORIZER)
"""Settings that should be the same on all brokers; the number of threads may differ."""


class Reported(NamedTuple):
    """The static and default values that brokers reported, and why the other brokers did not report theirs."""

    settings: dict[int, ReportedSettings]
    silent: dict[int, str]


NOTHING_REPORTED = Reported({}, {})


async def ask_brokers(world: World, config: Config, brokers: Iterable[Broker]) -> Reported:
    """Ask all of them at the same time; credentials and TLS come from ``config``.  Raises nothing."""
    known = sorted(brokers, key=lambda broker: broker.id)
    security, listener = Security(config), inter_broker_listener(config, known)

    async def ask(broker: Broker) -> ReportedSettings | str:
        at = broker.endpoint(listener)
        if at is None:
            return f"it has no listener {listener}"
        try:
            async with asking_at(world, security, at, WITHIN_S) as client:
                return reported_by(await describe_broker(client, await client.api_versions(), broker.id, ASKED))
        except (OSError, FrameError, ConfigError, SettingsRefusedError) as error:
            return str(error) or type(error).__name__

    async with asyncio.TaskGroup() as tasks:
        asking = {broker.id: tasks.create_task(ask(broker)) for broker in known}
    answers = {broker: task.result() for broker, task in asking.items()}
    return Reported(
        {broker: answer for broker, answer in answers.items() if not isinstance(answer, str)},
        {broker: answer for broker, answer in answers.items() if isinstance(answer, str)},
    )


# -- what follows from it ----------------------------------------------------------------------------------------------


def with_files(tree: ClusterTree, reported: Reported, names: Iterable[str] = (MIN_ISR, UNCLEAN)) -> ClusterTree:
    """Return the tree with the values of ``names`` from the brokers' files, which apply to topics without a setting of
    their own, added to the dynamic defaults, which take precedence."""
    found = {name: settle(name, votes).value for name in names if (votes := _votes(tree, reported, name))}
    if not found:
        return tree
    default = {**found, **tree.broker_configs.get(paths.DEFAULT_ENTITY, {})}
    return msgspec.structs.replace(tree, broker_configs={**tree.broker_configs, paths.DEFAULT_ENTITY: default})


def settings_hits(tree: ClusterTree, reported: Reported) -> Iterator[Hit]:
    """Yield brokers that differ or did not answer, and what changes if aiocontroller takes the role."""
    for broker, why in reported.silent.items():
        remedy = "name credentials in AIOCONTROLLER_…, as for a controller; look at its listener"
        yield Hit("settings-not-told", f"broker {broker}", paths.broker_id(broker), why, remedy)
    holder = None if tree.holder is None else tree.holder.controller_id
    for name in sorted(ASKED):
        votes = _votes(tree, reported, name)
        if not votes:
            continue
        values = {broker: each.value for broker, each in votes.items()}
        counts = settle(name, votes)
        path = paths.broker_id(min(votes))
        if len({comparable(name, value) for value in values.values()}) > 1:
            text = "; ".join(f"{shown(value)} on broker {who}" for value, who in by_value(values).items())
            yield Hit("settings-differ", name, path, text, "give all brokers one value, in their files or dynamically")
        if holder in votes and name in OBEYED and name != PROTOCOL:
            now = votes[holder].value
            if comparable(name, now) != comparable(name, counts.value):
                why = f"broker {holder}, the controller, obeys {shown(now)}; aiocontroller obeys {shown(counts.value)}"
                yield Hit("takeover-changes", name, path, why, "give all brokers one value before the takeover")
        if name in (CREATE_TOPIC_POLICY, AUTHORIZER) and counts.value:
            yield Hit("takeover-needs", name, path, f"brokers have {counts.value}", _NEEDS[name])
    yield from _unclean(_votes(tree, reported, UNCLEAN))


def _unclean(votes: Mapping[int, Vote]) -> Iterator[Hit]:
    """Yield brokers whose own settings allow unclean elections; ``rules.configs`` reports a dynamic default."""
    if not votes or not is_true({UNCLEAN: settle(UNCLEAN, votes).value}, UNCLEAN):
        return
    subject = "all topics without a setting of their own"
    by_source: dict[str, list[int]] = {}
    for broker, each in sorted(votes.items()):
        if is_true({UNCLEAN: each.value}, UNCLEAN):
            by_source.setdefault(each.source, []).append(broker)
    if files := by_source.get(Source.BROKERS):
        who = ", ".join(map(str, files))
        remedy = f"edit server.properties of broker {who}, where {UNCLEAN} is true, and restart (aiocontroller roll)"
        yield Hit("unclean-elections", subject, paths.broker_id(files[0]), f"by the files of broker {who}", remedy)
    for broker in by_source.get(Source.DYNAMIC, ()):
        path = paths.config_entity("brokers", str(broker))
        remedy = f"kafka-configs --entity-type brokers --entity-name {broker} --alter --delete-config {UNCLEAN}"
        yield Hit("unclean-elections", subject, path, f"by a dynamic setting of broker {broker}", remedy)


_NEEDS = {
    CREATE_TOPIC_POLICY: "its policy runs in brokers only: --keep-ours create.topic.policy.class.name, or leave it out",
    AUTHORIZER: "give aiocontroller the same authorizer and super users (docs/operating.md)",
}


def _votes(tree: ClusterTree, reported: Reported, name: str) -> dict[int, Vote]:
    dynamic = dynamic_of(tree.broker_configs)
    found = ((broker, vote(broker, settings, dynamic, name)) for broker, settings in reported.settings.items())
    return {broker: each for broker, each in found if each is not None}
