"""``AlterUserScramCredentials``: users' passwords, stored in their znodes in Kafka's format (KIP-554).

If one of a user's changes is refused, all of that user's changes are; other users are not affected.
"""

from __future__ import annotations

from collections import Counter

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import AlterUserScramCredentials
from aiocontroller.core.request_content import ScramUpsertion
from aiocontroller.wire.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, credential
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.paths import NO_ZNODE_NAMES, sanitize
from aiocontroller.zookeeper.topic_rules import TopicError

MAX_USERS_PER_REQUEST = 1_000
"""Each user costs some round trips, while brokers' events wait."""

Answer = tuple[KafkaErrorCode, str]


async def alter_user_scram_credentials(shell: ControllerShell, event: AlterUserScramCredentials) -> None:
    """AlterUserScramCredentials: each user gets a result of its own."""
    changes: dict[str, list[tuple[int, ScramUpsertion | None]]] = {}
    for user, mechanism in event.deletions:
        changes.setdefault(user, []).append((mechanism, None))
    for upsertion in event.upsertions:
        changes.setdefault(upsertion.user, []).append((upsertion.mechanism, upsertion))
    if len(changes) > MAX_USERS_PER_REQUEST:
        found = f"found {len(changes)} users in one request, expected {MAX_USERS_PER_REQUEST} at most"
        event.reply.answer(dict.fromkeys(changes, (KafkaErrorCode.POLICY_VIOLATION, found)))
        return
    admin = AdminZkClient(shell.zk, fence=shell.context.epoch_zk_version)
    answers: dict[str, Answer] = {}
    for user, of_user in changes.items():
        answers[user] = _refusal(user, of_user) or await _change(admin, user, of_user)
    event.reply.answer(answers)


def _refusal(user: str, changes: list[tuple[int, ScramUpsertion | None]]) -> Answer | None:
    if not user:
        return KafkaErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if user in NO_ZNODE_NAMES:  # URL encoding leaves dots, and ZooKeeper refuses such a path
        return KafkaErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username must not be '{user}'"
    illegal = [found for change in changes if (found := _illegal(*change)) is not None]
    if illegal:
        return illegal[-1]  # the last one is reported, as in Kafka; deletions come before upsertions
    if max(Counter(mechanism for mechanism, _ in changes).values()) > 1:
        return KafkaErrorCode.DUPLICATE_RESOURCE, "A mechanism of a user may be changed only once in a request"
    return None


def _illegal(mechanism: int, upsertion: ScramUpsertion | None) -> Answer | None:
    if mechanism not in MECHANISMS:
        return KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if upsertion is not None and upsertion.iterations < MIN_ITERATIONS:
        return KafkaErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations: expected {MIN_ITERATIONS} at least"
    if upsertion is not None and upsertion.iterations > MAX_ITERATIONS:
        return KafkaErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations: expected {MAX_ITERATIONS} at most"
    if upsertion is not None and not upsertion.salted_password:
        return KafkaErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty"
    return None


async def _change(admin: AdminZkClient, user: str, changes: list[tuple[int, ScramUpsertion | None]]) -> Answer:
    """Change the user's configuration, which also holds its quotas."""

    def change(configs: dict[str, str]) -> dict[str, str]:
        for number, upsertion in changes:
            mechanism = MECHANISMS[number]
            if upsertion is not None:
                configs[mechanism.name] = str(
                    credential(mechanism.digest, upsertion.salt, upsertion.salted_password, upsertion.iterations)
                )
            elif configs.pop(mechanism.name, None) is None:
                raise TopicError(
                    KafkaErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
        return configs

    try:
        await admin.update_entity_configs("users", sanitize(user), change)
    except TopicError as error:
        return error.code, str(error)
    return KafkaErrorCode.NONE, ""
