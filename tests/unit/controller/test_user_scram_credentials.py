"""Users' credentials: which changes are refused, which users they take with them, and what their znodes hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aiocontroller.controller.user_scram_credentials import MAX_USERS_PER_REQUEST, alter_user_scram_credentials
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.errors import KafkaErrorCode as Code
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import AlterUserScramCredentials
from aiocontroller.core.request_content import ScramUpsertion
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire.scram import parse_credential
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.unit.zookeeper.test_client import connected

SHA_256, SHA_512 = 1, 2


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, b"salt", b"salted password")


class Users:
    def __init__(self, client: ZooKeeperClient) -> None:
        self.client = client
        self.zk = KafkaZkClient(client)
        self.fence = 0

    async def alter(
        self, *upsertions: ScramUpsertion, deletions: Sequence[tuple[str, int]] = ()
    ) -> dict[str, tuple[Code, str]]:
        answers: list[Any] = []
        shell = SimpleNamespace(zk=self.zk, context=SimpleNamespace(epoch_zk_version=self.fence))
        event = AlterUserScramCredentials(
            deletions=tuple(deletions), upsertions=upsertions, reply=Reply(answers.append)
        )
        await alter_user_scram_credentials(cast(Any, shell), event)
        assert len(answers) == 1
        return cast(dict[str, tuple[Code, str]], answers[0])

    async def codes(self, *upsertions: ScramUpsertion, deletions: Sequence[tuple[str, int]] = ()) -> dict[str, Code]:
        return {user: code for user, (code, _) in (await self.alter(*upsertions, deletions=deletions)).items()}

    async def configs(self, user: str) -> dict[str, str] | None:
        if not await self.client.exists(f"/config/users/{user}"):
            return None
        [data] = (await self.client.get_many([f"/config/users/{user}"])).data
        return cast(dict[str, str], msgspec.json.decode(data)["config"])


@asynccontextmanager
async def users() -> AsyncIterator[Users]:
    async with connected() as client:
        made = Users(client)
        await made.zk.create_top_level_paths()
        await client.create("/controller_epoch", data=b"1")
        yield made


@virtual_time
async def test_a_credential_is_stored_beside_the_others_and_the_users_quotas() -> None:
    async with users() as it:
        await it.client.create("/config/users/alice", data=b'{"version":1,"config":{"producer_byte_rate":"1"}}')
        assert await it.alter(upsertion("alice"), upsertion("alice", SHA_512, 16384)) == {"alice": (Code.NONE, "")}
        configs = await it.configs("alice")
        assert configs is not None
        assert configs.keys() == {"producer_byte_rate", "SCRAM-SHA-256", "SCRAM-SHA-512"}
        found = parse_credential(configs["SCRAM-SHA-512"])
        assert (found.salt, found.iterations) == (b"salt", 16384)
        assert await it.zk.get_all_config_changes(watch=False) != []
        assert await it.codes(deletions=[("alice", SHA_256)]) == {"alice": Code.NONE}
        assert (await it.configs("alice") or {}).keys() == {"producer_byte_rate", "SCRAM-SHA-512"}


@virtual_time
async def test_of_a_user_all_changes_are_refused_or_none_and_others_are_not_concerned() -> None:
    async with users() as it:
        await it.alter(upsertion("alice"))
        before = await it.configs("alice")
        answers = await it.codes(upsertion("alice", SHA_256, 8192), upsertion("bob"), deletions=[("alice", SHA_512)])
        assert answers == {"alice": Code.RESOURCE_NOT_FOUND, "bob": Code.NONE}
        assert await it.configs("alice") == before
        assert await it.configs("bob") is not None


@virtual_time
@pytest.mark.parametrize(
    "change, code",
    [
        (upsertion(""), Code.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", mechanism=0), Code.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("u", mechanism=3), Code.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("u", iterations=4095), Code.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", iterations=4096), Code.NONE),
        (upsertion("u", iterations=16384), Code.NONE),
        (upsertion("u", iterations=16385), Code.UNACCEPTABLE_CREDENTIAL),
    ],
)
async def test_what_makes_no_credential_is_refused(change: ScramUpsertion, code: Code) -> None:
    async with users() as it:
        answers = await it.alter(change)
        assert {user: found for user, (found, _) in answers.items()} == {change.user: code}
        assert (await it.configs("u") is not None) == (code is Code.NONE)
        assert bool(answers[change.user][1]) == (code is not Code.NONE)


@virtual_time
async def test_deletions_are_checked_too_and_of_several_errors_the_last_is_answered() -> None:
    """Kafka's order: deletions, then upsertions."""
    async with users() as it:
        assert await it.codes(deletions=[("u", 7)]) == {"u": Code.UNSUPPORTED_SASL_MECHANISM}
        assert await it.codes(deletions=[("u", SHA_256)]) == {"u": Code.RESOURCE_NOT_FOUND}
        answers = await it.codes(upsertion("u", SHA_512, 1), deletions=[("u", 7)])
        assert answers == {"u": Code.UNACCEPTABLE_CREDENTIAL}


@virtual_time
async def test_a_mechanism_is_changed_once_in_a_request() -> None:
    async with users() as it:
        await it.alter(upsertion("u"))
        before = await it.configs("u")
        for answers in (
            await it.codes(upsertion("u"), deletions=[("u", SHA_256)]),
            await it.codes(upsertion("u"), upsertion("u")),
            await it.codes(deletions=[("u", SHA_256), ("u", SHA_256)]),
        ):
            assert answers == {"u": Code.DUPLICATE_RESOURCE}
        assert await it.configs("u") == before


@virtual_time
@pytest.mark.parametrize("more, code", [(0, Code.RESOURCE_NOT_FOUND), (1, Code.POLICY_VIOLATION)])
async def test_too_many_users_in_one_request_are_refused_together(more: int, code: Code) -> None:
    async with users() as it:
        names = [f"u{n}" for n in range(MAX_USERS_PER_REQUEST + more)]
        answers = await it.alter(deletions=[(name, SHA_256) for name in names])
        assert list(answers) == names
        assert {found for found, _ in answers.values()} == {code}


@virtual_time
async def test_a_deposed_controller_changes_no_credential() -> None:
    async with users() as it:
        it.fence = 1
        with pytest.raises(ControllerMovedError):
            await it.alter(upsertion("u"))
        assert await it.configs("u") is None
