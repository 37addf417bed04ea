"""Clients that change settings, credentials, quotas, features and ACLs; each answer is judged by what happened.

Each request asks for a value that no other request asks for.
"""

from __future__ import annotations

from typing import Any

from aiocontroller.lab.checkers.config_answers import Wanted
from aiocontroller.lab.scenarios.arguments import NAMES
from aiocontroller.lab.simulation.steps.asking import AskingSteps
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths

TOPIC = 2
SET, DELETE = 0, 1
USERS = ("alice", "bob")
SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
FEWEST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
READ, ALLOW, LITERAL = 3, 3, 3
RATE = "producer_byte_rate"


class ConfigRequestSteps(AskingSteps):
    """Steps of clients whose requests change znodes below ``/config``, or are always refused."""

    def step_request_configs(self) -> None:
        """Ask for another setting of a topic, which may be unknown; the value may be wrong."""
        chance, asked_s = self.chance, self.simulation.clock.monotonic()
        name = chance.choice(NAMES)
        key = chance.choice(("retention.ms", "segment.ms"))
        drawn = str(10_000_000 + chance.randrange(1 << 40))
        value = chance.choice((drawn, drawn, drawn, f"-{drawn}", None))
        operation = SET if value is not None else DELETE
        config = {"name": key, "value": value, "config_operation": operation}
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": [config]}
        wanted = Wanted(paths.config_entity("topics", name), key, value)
        self._ask_for(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked_s, wanted, resources=[resource], validate_only=False)

    def step_request_credentials(self) -> None:
        """Ask for a user's SCRAM credential, or for its deletion; iterations may be too few."""
        chance, asked_s = self.chance, self.simulation.clock.monotonic()
        user, mechanism = chance.choice(USERS), chance.choice((1, 2))
        drawn = chance.randint(FEWEST_ITERATIONS, MOST_ITERATIONS)
        iterations = chance.choice((drawn, drawn, FEWEST_ITERATIONS - chance.randint(1, 4_000)))
        path, key = paths.config_entity("users", user), SCRAM[mechanism]
        if chance.random() < 0.25:
            asked: dict[str, Any] = {"deletions": [{"name": user, "mechanism": mechanism}], "upsertions": []}
            wanted = Wanted(path, key, None)
        else:
            password = chance.randbytes(32 * mechanism)
            put = {"name": user, "mechanism": mechanism, "iterations": iterations}
            asked = {"deletions": [], "upsertions": [put | {"salt": b"salt", "salted_password": password}]}
            wanted = Wanted(path, key, f"iterations={iterations}")
        self._ask_for(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, asked_s, wanted, **asked)

    def step_request_quotas(self) -> None:
        """Ask for the quota of a client id, or for its removal; the quota may be one that does not exist."""
        chance, asked_s = self.chance, self.simulation.clock.monotonic()
        client, key = chance.choice(("c1", "c2")), chance.choice((RATE, RATE, "no_such_rate"))
        value, remove = float(chance.randrange(1, 10_000_000)), chance.random() < 0.25
        entity = [{"entity_type": "client-id", "entity_name": client}]
        entry = {"entity": entity, "ops": [{"key": key, "value": value, "remove": remove}]}
        wanted = Wanted(paths.config_entity("clients", client), key, None if remove else str(int(value)))
        self._ask_for(ApiKey.ALTER_CLIENT_QUOTAS, asked_s, wanted, entries=[entry], validate_only=False)

    def _ask_for(self, api: ApiKey, asked_s: float, wanted: Wanted, **fields: Any) -> None:
        history = self.simulation.history

        def answered(answer: Any) -> None:
            for each in _results(answer):
                history.probe(f"{api.name} answered with {int(each.error_code)}")
                history.config_answers.answered(asked_s, wanted, int(each.error_code))

        self._ask(api, answered, **fields)

    def step_request_features(self) -> None:
        """Ask for a feature's level; no feature exists in ZooKeeper mode."""
        update = {"feature": "metadata.version", "max_version_level": 1 + self.chance.randrange(20), "upgrade_type": 1}
        fields = {"feature_updates": [update | {"allow_downgrade": False}], "timeout": 10_000}
        self._must_be_refused(ApiKey.UPDATE_FEATURES, **fields)

    def step_request_acls(self) -> None:
        """Ask for an ACL, which is refused where brokers have no authorizer."""
        simulation, asked_s = self.simulation, self.simulation.clock.monotonic()
        name, principal = self.chance.choice(NAMES), f"User:c{self.chance.randrange(1 << 40)}"
        acl = {"resource_type": TOPIC, "resource_name": name, "resource_pattern_type": LITERAL}
        whom = {"principal": principal, "host": "*", "operation": READ, "permission_type": ALLOW}
        if simulation.plan.authorizer:
            wanted = Wanted(paths.acl("LITERAL", "Topic", name), principal, "Read")
            self._ask_for(ApiKey.CREATE_ACLS, asked_s, wanted, creations=[acl | whom])
        else:
            self._must_be_refused(ApiKey.CREATE_ACLS, creations=[acl | whom])

    def _must_be_refused(self, api: ApiKey, **fields: Any) -> None:
        history = self.simulation.history

        def answered(answer: Any) -> None:
            for each in _results(answer):
                history.probe(f"{api.name} answered with {int(each.error_code)}")
                if not each.error_code:
                    history.complain("answers", api.name, "is said to be done, and cannot be")

        self._ask(api, answered, **fields)


def _results(answer: Any) -> tuple[Any, ...]:
    """Return the results in an answer, under whatever name its API has for them."""
    names = ("responses", "results", "entries")
    return next((tuple(found) for name in names if (found := getattr(answer, name, None)) is not None), ())
