"""All scenarios in all versions, played on both sides, and where the answers differ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from aiocontroller.wire.apis import ApiKey, VersionRange
from tests.admin_answers.player import Answer, Player, Scenario
from tests.admin_answers.reading import differences, read
from tests.admin_answers.two_clusters import FIRST, NOWHERE, SINCE_2_7, THROTTLED, Cluster, NotOfferedError, TwoClusters
from tests.authorization.secured_cluster import Failed, until
from tests.comparing_answers import Difference

INTERNAL_TOPICS = {"__consumer_offsets": [[FIRST]] * 5, "__transaction_state": [[FIRST]] * 3}
AT_ONCE = 100
"""Topics that are made by one request."""


class Found(NamedTuple):
    release: str
    scenario: Scenario
    answer: Answer
    difference: Difference


class Table:
    def __init__(self, stage: TwoClusters, scenarios: Iterable[Scenario], only_highest: bool) -> None:
        self.stage = stage
        self.name = stage.version + (f" ({', '.join(stage.more)})" if stage.more else "")
        self.found: list[Found] = []
        self.compared: list[tuple[Scenario, Answer, Any, Any]] = []
        """Each with Kafka's answer and ours."""
        self.failed: list[str] = []
        """Scenarios that did not come to their end."""
        self.versions: set[tuple[ApiKey, int]] = set()
        self.played: dict[str, None] = {}
        self._pairs: list[tuple[Player, Player]] = []
        for number, scenario in enumerate(scenarios):
            if scenario.releases is not None and stage.version not in scenario.releases:
                continue
            for version in self._versions_of(scenario, only_highest):
                self._pairs.append(
                    (
                        Player(stage.kafka, scenario, number, version),
                        Player(stage.ours, scenario, number, version),
                    )
                )

    def _versions_of(self, scenario: Scenario, only_highest: bool) -> list[int]:
        """Those that both sides offer."""
        both = self.stage.kafka.common.get(scenario.api, VersionRange(0, -1))
        found = list(range(max(both.min, scenario.since), min(both.max, scenario.until) + 1))
        return found[-1:] if only_highest else found

    async def play(self) -> None:
        await asyncio.gather(*(self._prepare(side) for side in (0, 1)))
        offered = []
        for pair in self._pairs:
            if all(await asyncio.gather(*(self._play(player) for player in pair))):
                offered.append(pair)
        self._pairs = offered
        self._judge(await asyncio.to_thread(read, [list(self._answers(side)) for side in (0, 1)]))

    async def _play(self, player: Player) -> bool:
        """Whether the release has all that it needs.

        A side on which a scenario comes to no end is listed apart; the others are still played.
        """
        try:
            await player.scenario.play(player)
        except NotOfferedError:
            return False
        except Failed as failed:
            self.failed.append(str(failed))
        return True

    def _answers(self, side: int) -> Iterator[tuple[Player, Answer]]:
        for pair in self._pairs:
            yield from ((pair[side], answer) for answer in pair[side].answers)

    async def _prepare(self, side: int) -> None:
        """The topics of all scenarios, and those that coordinators keep, which would be placed by chance."""
        wanted = dict(INTERNAL_TOPICS)
        wanted |= {name: replicas for pair in self._pairs for name, replicas in pair[side].topics.items()}
        cluster = self._pairs[0][side].cluster
        if self.stage.version in SINCE_2_7:
            await limit_mutations(cluster)
        for at in range(0, len(wanted), AT_ONCE):
            await make_topics(cluster, {name: wanted[name] for name in list(wanted)[at : at + AT_ONCE]})

    def _judge(self, answers: tuple[list[object], list[object]]) -> None:
        kafka = {(player.number, answer.place): at for at, (player, answer) in enumerate(self._answers(0))}
        for at, (player, answer) in enumerate(self._answers(1)):
            asked = kafka.get((player.number, answer.place))
            if asked is None:
                continue  # one of the sides did not come so far: see ``failed``
            theirs, own = answers[0][asked], answers[1][at]
            self.compared.append((player.scenario, answer, theirs, own))
            self.versions.add((answer.api, answer.version))
            self.found += [
                Found(self.stage.version, player.scenario, answer, each) for each in differences(theirs, own)
            ]
        self.played = dict.fromkeys(str(pair[0].scenario) for pair in self._pairs)


async def limit_mutations(cluster: Cluster) -> None:
    """Of those whose scenarios come much later: nothing tells when a broker has heard of a quota."""
    quota = {"key": "controller_mutation_rate", "value": 1.0, "remove": False}
    entries = [
        {"entity": [{"entity_type": "user", "entity_name": user}], "ops": [quota]} for user in THROTTLED.values()
    ]
    answer = await cluster.ask(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=entries, validate_only=False)
    assert not any(int(entry.error_code) for entry in answer.entries), answer


async def make_topics(cluster: Cluster, wanted: dict[str, list[list[int]]]) -> None:
    """Their ids are known afterwards, if topics have ids, and if they have a leader: brokers do not hear of others."""
    topics = [
        {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": index, "broker_ids": list(brokers)} for index, brokers in enumerate(replicas)
            ],
        }
        for name, replicas in wanted.items()
    ]
    version = cluster.highest(ApiKey.CREATE_TOPICS)
    answer = await cluster.ask(ApiKey.CREATE_TOPICS, version, topics=topics, timeout=2000, validate_only=False)
    refused = {t.name: t.error_code for t in answer.topics if int(t.error_code) not in (0, 7)}  # 7: no leader in time
    assert not refused, f"{cluster.name}: {refused}"
    version = cluster.highest(ApiKey.METADATA)
    if version < 10:
        return

    led = [name for name, replicas in wanted.items() if any(broker != NOWHERE for broker in replicas[0])]
    missing: list[str] = []

    async def all_have_ids() -> bool:
        seen = await cluster.ask(ApiKey.METADATA, version, topics=[{"name": name} for name in led])
        found = {topic.topic_id.bytes: topic.name for topic in seen.topics if topic.topic_id is not None}
        cluster.topic_ids |= found
        missing[:] = [f"{topic.name}: {topic}" for topic in seen.topics if topic.topic_id is None]
        return not missing

    await until(all_have_ids, f"the ids of topics in the metadata of {cluster.name}", lambda: "\n".join(missing))
