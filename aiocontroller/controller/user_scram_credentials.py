"""``AlterUserScramCredentials``: passwords of users, kept in their znodes as Kafka keeps them (KIP-554).

What is refused for one of a user's changes is refused for all of that user's; other users do not notice.
"""

from __future__ import annotations

from collections import Counter

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import AlterUserScramCredentials, ScramUpsertion
from aiocontroller.wire.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, credential
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.paths import sanitize
from aiocontroller.zookeeper.topic_rules import TopicError

MAX_USERS_PER_REQUEST = 1_000
"""Each costs some round trips, while brokers' events wait."""

Answer = tuple[KafkaErrorCode, str]


async def alter_user_scram_credentials(shell: ControllerShell, event: AlterUserScramCredentials) -> None:
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
    if any(mechanism not in MECHANISMS for mechanism, _ in changes):
        return KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if max(Counter(mechanism for mechanism, _ in changes).values()) > 1:
        return KafkaErrorCode.DUPLICATE_RESOURCE, "A mechanism of a user may be changed only once in a request"
    for _, upsertion in changes:
        if upsertion is not None and upsertion.iterations < MIN_ITERATIONS:
            return KafkaErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations: expected {MIN_ITERATIONS} at least"
        if upsertion is not None and upsertion.iterations > MAX_ITERATIONS:
            return KafkaErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations: expected {MAX_ITERATIONS} at most"
    return None


async def _change(admin: AdminZkClient, user: str, changes: list[tuple[int, ScramUpsertion | None]]) -> Answer:
    """Into the user's configuration, which holds its quotas too."""

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
