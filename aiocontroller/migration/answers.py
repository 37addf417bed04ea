"""What brokers and KRaft controllers say about themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from aiocontroller.core.ids import Endpoint
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.messages import MetadataResponse
from aiocontroller.wire.quorum import DescribedQuorum

METADATA_VERSION = "metadata.version"
VOTERS = "controller.quorum.voters"
IBP = "inter.broker.protocol.version"
AUTHORIZER = "authorizer.class.name"
SETTINGS_ASKED = (
    IBP,
    VOTERS,
    AUTHORIZER,
    "control.plane.listener.name",
    "controller.listener.names",
    "listener.security.protocol.map",
    "log.dirs",
    "zookeeper.metadata.migration.enable",
)


class Node(msgspec.Struct, frozen=True):
    """The answers of one broker or KRaft controller."""

    id: int
    at: Endpoint
    versions: Mapping[int, VersionRange]
    ready: bool
    """Whether it takes part in a migration (``ZkMigrationReady`` in its ApiVersions)."""
    features: Mapping[str, int]
    """Finalized features, with their levels."""
    settings: Mapping[str, str | None]
    """The values of ``SETTINGS_ASKED``; empty if it does not report them."""
    metadata: MetadataResponse | None = None
    quorum: DescribedQuorum | None = None

    @property
    def in_kraft_mode(self) -> bool:
        """Whether it is a broker or controller in KRaft mode: it does not support LeaderAndIsr."""
        return ApiKey.LEADER_AND_ISR not in self.versions

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """The KRaft controllers in its configuration: id -> (host, port)."""
        return parse_voters(self.settings.get(VOTERS) or "")


class MigrationAnswers(NamedTuple):
    """The answers of all nodes that were asked, by their ids."""

    brokers: Mapping[int, Node]
    controllers: Mapping[int, Node]
    silent: Mapping[str, str]
    """Node that did not answer (``broker 3``, ``controller 3000``) -> why."""


def parse_voters(text: str) -> dict[int, tuple[str, int]]:
    """Parse ``3000@host:9093,…`` into addresses by id; entries of another form are left out."""
    found = {}
    for each in text.split(","):
        number, _, address = each.strip().partition("@")
        host, _, port = address.rpartition(":")
        if number.isdecimal() and port.isdecimal() and host:
            found[int(number)] = (host.strip("[]"), int(port))
    return found


def protocol_of(listener: str, mapping: str | None) -> str:
    """Return a listener's protocol by ``listener.security.protocol.map``; PLAINTEXT if the map does not have it."""
    pairs = (each.strip().partition(":") for each in (mapping or "").split(","))
    return next((protocol for name, _, protocol in pairs if name.upper() == listener.upper()), "PLAINTEXT")
