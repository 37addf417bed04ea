"""One ZooKeeper, two real brokers with AclAuthorizer, and aiocontroller, with the same five listeners.

Broker 1 leads every partition and coordinates every group.  Broker 2 leads and coordinates nothing: it is asked what we
are asked.  It is the controller until ours takes over, so it answers also what only controllers do, before.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper, free_port
from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.scram import salt_password
from tests.authorization.client import Side
from tests.authorization.principals import (
    ACLS,
    LISTENERS,
    MAPPING_RULES,
    MTLS,
    PLAIN,
    PROTOCOLS,
    SASL_PLAINTEXT,
    SASL_SSL,
    SCRAM,
    SUBJECTS,
    SUPER_AT_BROKERS,
    SUPER_USERS,
    TOPICS,
    USERS,
    Way,
    password,
)

OUR_ID = 1_000_001
LEADER, ORACLE = 1, 2
WITHIN_S = 60.0
_POLL_S = 0.05
INTERNAL_TOPICS = {"__consumer_offsets": 5, "__transaction_state": 3}
_SCRAM_SHA_256 = 1


def make_stores(folder: Path) -> None:
    """``NAME.pem``, a key and a self-signed certificate for each user; ``all.pem`` trusts them all."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    all_of_them = b""
    for name, subject in SUBJECTS.items():
        command = (
            f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj {subject} "
            f"-addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key -out {folder}/certificate"
        )
        subprocess.run(command.split(), check=True, capture_output=True)
        certificate = (folder / "certificate").read_bytes()
        (folder / f"{name}.pem").write_bytes((folder / "key").read_bytes() + certificate)
        all_of_them += certificate
    (folder / "all.pem").write_bytes(all_of_them)


def properties(stores: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """Of brokers and of the controller: the same, but for the ports."""
    users = " ".join(f'user_{user}="{password(user)}"' for user in USERS)
    plain = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    found = {
        "listeners": ",".join(f"{listener}://127.0.0.1:{ports[listener]}" for listener in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{PROTOCOLS.get(name, name)}" for name in LISTENERS),
        "inter.broker.listener.name": MTLS,
        "listener.name.ssl.ssl.client.auth": "requested",
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores / "all.pem"),
        "ssl.principal.mapping.rules": MAPPING_RULES,
        "sasl.enabled.mechanisms": f"{SCRAM},{PLAIN}",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": SUPER_USERS,
        "delegation.token.secret.key": "a secret of the stage",
        "auto.leader.rebalance.enable": "false",
    }
    for listener in (SASL_PLAINTEXT, SASL_SSL):
        prefix = f"listener.name.{listener.lower()}"
        found[f"{prefix}.plain.sasl.jaas.config"] = plain
        found[f"{prefix}.{SCRAM.lower()}.sasl.jaas.config"] = scram
    return found


def free_ports() -> dict[str, int]:
    return {listener: free_port() for listener in LISTENERS}


class Failed(AssertionError):
    """The stage could not be set: the tests say nothing then."""


class SecuredCluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stores = folder / "stores"
        self.zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        self.brokers: dict[int, RealKafkaBroker] = {}
        self.sides: dict[int, Side] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.broker_epochs: dict[int, int] = {}
        self.token_hmac = b""
        self._ours: Child | None = None

    @property
    def oracle(self) -> Side:
        return self.sides[ORACLE]

    @property
    def ours(self) -> Side:
        return self.sides[OUR_ID]

    # -- before the takeover: broker 2 is the controller ---------------------------------------------------------------

    async def start(self) -> None:
        self.stores.mkdir()
        await asyncio.to_thread(make_stores, self.stores)
        await self.zookeeper.start_async()
        await self._let_brokers_be_brokers()
        for broker_id in (ORACLE, LEADER):
            ports = free_ports()
            broker = RealKafkaBroker(
                broker_id,
                self.zookeeper.address,
                self.folder / f"broker-{broker_id}",
                port=ports["PLAINTEXT"],
                overrides=properties(self.stores, ports),
            )
            self.brokers[broker_id] = broker
            self.sides[broker_id] = Side(f"broker {broker_id}", broker_id, ports, self.stores)
            await broker.start_async()
        await self._dress()

    async def _let_brokers_be_brokers(self) -> None:
        """The ACLs that have to be there before any broker: as kafka-acls writes them, straight into ZooKeeper.

        Brokers need ClusterAction; DescribeConfigs is for us, who come by the same name (docs/operating.md).
        """
        entries = [
            {"principal": "User:broker", "permissionType": "Allow", "operation": operation, "host": "*"}
            for operation in ("ClusterAction", "DescribeConfigs")
        ]
        znodes = {
            "/kafka-acl": b"",
            "/kafka-acl/Cluster": b"",
            "/kafka-acl/Cluster/kafka-cluster": msgspec.json.encode({"version": 1, "acls": entries}),
        }
        await asyncio.to_thread(create_znodes, self.zookeeper.address, znodes)

    async def _dress(self) -> None:
        """Users, topics, ACLs, a quota, a token, by Kafka's own protocol."""
        await until(self._brokers_are_known, "both brokers in the metadata of broker 2")
        salt = b"salt-of-the-stage"
        upsertions = [
            {
                "name": user,
                "mechanism": _SCRAM_SHA_256,
                "iterations": 4096,
                "salt": salt,
                "salted_password": salt_password("sha256", password(user), salt, 4096),
            }
            for user in USERS
        ]
        await self.request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=upsertions)
        await self.create_topics(dict.fromkeys(TOPICS, 1) | INTERNAL_TOPICS)
        await self.request(ApiKey.CREATE_ACLS, 3, creations=[acl.fields for acl in ACLS])
        quota = {
            "entity": [{"entity_type": "user", "entity_name": "allow"}],
            "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
        }
        await self.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota], validate_only=False)
        owner = Way("allow", SASL_PLAINTEXT, SCRAM)
        await until(lambda: self._logs_in(owner), "SCRAM users at the broker")
        renewers = [{"principal_type": "User", "principal_name": "prefix"}]
        token = await self.request(ApiKey.CREATE_DELEGATION_TOKEN, 3, way=owner, renewers=renewers, max_lifetime=-1)
        self.token_hmac = bytes(token.hmac)
        await until(self._acls_are_known, "ACLs at the brokers")
        self.broker_epochs = await asyncio.to_thread(registration_epochs, self.zookeeper.address, list(self.brokers))

    async def create_topics(
        self, partitions: Mapping[str, int], controller: Side | None = None, chunk: int = 400
    ) -> None:
        """All led by broker 1 alone; their ids are known afterwards."""
        names = list(partitions)
        for at in range(0, len(names), chunk):
            some = names[at : at + chunk]
            topics = [
                {
                    "name": name,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [
                        {"partition_index": index, "broker_ids": [LEADER]} for index in range(partitions[name])
                    ],
                }
                for name in some
            ]
            answer = await self.request(
                ApiKey.CREATE_TOPICS, 7, side=controller, topics=topics, timeout=30_000, validate_only=False
            )
            for topic in answer.topics:
                assert not int(topic.error_code), f"{topic.name}: {topic.error_code} {topic.error_message}"
                self.topic_ids[topic.name] = topic.topic_id.bytes

    # -- the takeover --------------------------------------------------------------------------------------------------

    async def take_over(self) -> None:
        """Our process takes the role from broker 2, and both know the same."""
        self.launch_ours()
        await until(self._ours_is_active, "every broker names aiocontroller as the controller", self._end_of_log)
        await until(self._has_producer_ids, "broker 2 has producer ids", self._end_of_log)

    def launch_ours(self, without: Iterable[str] = ()) -> Child:
        """Start our process, with all properties of the brokers but ``without``; it takes over if it may."""
        ports = free_ports()
        self.sides[OUR_ID] = Side("aiocontroller", OUR_ID, ports, self.stores)
        folder = self.our_log.parent
        folder.mkdir()
        # all that the brokers have, as an operator would hand it over
        settings = self.brokers[ORACLE].properties() | properties(self.stores, ports)
        settings |= {
            "log.dirs": str(folder / "no-logs"),
            "aiocontroller.id": str(OUR_ID),
            "aiocontroller.takeover.policy": "takeover",
        }
        for key in ("broker.id", *without):
            del settings[key]
        config = folder / "server.properties"
        config.write_text("".join(f"{key}={escaped(value)}\n" for key, value in settings.items()))
        command = [sys.executable, "-m", "aiocontroller", "run", "--config", config, "--data", folder]
        self._ours = Child("aiocontroller", [str(part) for part in command], log=self.our_log)
        return self._ours

    def holder_and_brokers(self) -> tuple[bytes | None, list[str]]:
        """What ``/controller`` says, None without one; and the ids of the brokers that are registered."""
        from kazoo.exceptions import NoNodeError

        with zookeeper(self.zookeeper.address) as client:
            try:
                holder: bytes | None = client.get("/controller")[0]
            except NoNodeError:
                holder = None
            return holder, client.get_children("/brokers/ids")

    @property
    def our_log(self) -> Path:
        return self.folder / "aiocontroller" / "log"

    @property
    def ours_runs(self) -> bool:
        return self._ours is not None and self._ours.running

    def _end_of_log(self) -> str:
        return self._ours.log_tail(40) if self._ours is not None else ""

    async def _ours_is_active(self) -> bool:
        if not self.ours_runs:
            raise Failed(f"aiocontroller ended:\n{self._end_of_log()}")
        for broker in (LEADER, ORACLE):
            seen = await self.metadata(self.sides[broker])
            if seen is None or seen.controller_id != OUR_ID:
                return False
        return True

    async def _has_producer_ids(self) -> bool:
        """It asks the controller for them when the first producer comes, and sends that away."""
        api, version = ApiKey.INIT_PRODUCER_ID, 4
        asked = cold.request(api, version, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1)
        outcome = await self.oracle.ask(SUPER_AT_BROKERS, api, version, cold.encode_request(api, version, asked))
        return outcome.what == "answered" and not int(cold.decode_response(api, version, outcome.body).error_code)

    async def stop(self) -> None:
        for side in self.sides.values():
            await side.close()
        if self._ours is not None:
            self._ours.kill()
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.kill()

    # -- asking as the super user --------------------------------------------------------------------------------------

    async def request(
        self, api: ApiKey, version: int, *, side: Side | None = None, way: Way = SUPER_AT_BROKERS, **fields: Any
    ) -> Any:
        """The answer; Failed when there is none, or when it has an error in it."""
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        outcome = await (side or self.oracle).ask(way, api, version, body)
        if outcome.what != "answered":
            raise Failed(f"{api.name} by {way}: {outcome.what} {outcome.detail}")
        answer = cold.decode_response(api, version, outcome.body)
        if errors := [each for each in _error_codes(answer) if each]:
            raise Failed(f"{api.name} by {way}: {errors} in {answer}")
        return answer

    async def metadata(self, side: Side) -> Any:
        api, version = ApiKey.METADATA, 12
        body = cold.encode_request(api, version, cold.request(api, version, topics=None))
        outcome = await side.ask(SUPER_AT_BROKERS, api, version, body)
        return cold.decode_response(api, version, outcome.body) if outcome.what == "answered" else None

    async def _brokers_are_known(self) -> bool:
        seen = await self.metadata(self.oracle)
        return seen is not None and {broker.node_id for broker in seen.brokers} == {LEADER, ORACLE}

    async def _logs_in(self, way: Way) -> bool:
        body = cold.encode_request(ApiKey.API_VERSIONS, 0, cold.request(ApiKey.API_VERSIONS, 0))
        return (await self.oracle.ask(way, ApiKey.API_VERSIONS, 0, body)).what == "answered"

    async def _acls_are_known(self) -> bool:
        """By all brokers, the last one that was made too."""
        any_acl = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        for broker in (LEADER, ORACLE):
            found = await self.request(ApiKey.DESCRIBE_ACLS, 3, side=self.sides[broker], **any_acl)
            if sum(len(resource.acls) for resource in found.resources) < len(ACLS):
                return False
        return True


def escaped(value: str) -> str:
    """As java.util.Properties wants it."""
    return value.replace("\\", "\\\\")


def _error_codes(answer: Any) -> Iterable[int]:
    for field in answer.__dataclass_fields__:
        value = getattr(answer, field)
        if field == "error_code":
            yield int(value)
        elif isinstance(value, tuple):
            for each in value:
                if hasattr(each, "__dataclass_fields__"):
                    yield from _error_codes(each)


async def until(
    condition: Callable[[], Awaitable[bool]],
    what: str,
    why_not: Callable[[], str] = lambda: "",
    within_s: float = WITHIN_S,
) -> None:
    deadline = time.monotonic() + within_s
    while not await condition():
        if time.monotonic() > deadline:
            raise Failed(f"not within {within_s:g} s: {what}\n{why_not()}")
        await asyncio.sleep(_POLL_S)


@contextmanager
def zookeeper(address: str) -> Iterator[Any]:
    """A client of its own kind; blocks."""
    from kazoo.client import KazooClient

    client = KazooClient(address)
    client.start(10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def create_znodes(address: str, znodes: Mapping[str, bytes]) -> None:
    with zookeeper(address) as client:
        for path, value in znodes.items():
            client.create(path, value)


def registration_epochs(address: str, brokers: Sequence[int]) -> dict[int, int]:
    """The epoch of each broker: when its registration was made."""
    with zookeeper(address) as client:
        return {broker: client.get(f"/brokers/ids/{broker}")[1].czxid for broker in brokers}
