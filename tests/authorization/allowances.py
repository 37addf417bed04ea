"""Where the two may differ, line by line, each with its reason.  Nothing else is forgiven.

An allowance that explains nothing in a whole run fails the test: either the difference or its reason is gone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.authorization.table import Found


class Allowance(NamedTuple):
    """Patterns must match the whole: ``request`` as ``METADATA (all)``, ``field`` as ``topics[].error_code``."""

    request: str
    field: str
    reason: str
    kafka: str = ".*"
    ours: str = ".*"
    ways: str = ".*"
    versions: range = range(-1, 1000)
    only_in_full: bool = False
    """The short form may have no cell for it."""

    def explains(self, found: Found) -> bool:
        place, difference = found
        return (
            place.version in self.versions
            and re.fullmatch(self.request, str(place.ask)) is not None
            and re.fullmatch(self.field, difference.kind) is not None
            and re.fullmatch(self.kafka, difference.kafka, re.DOTALL) is not None
            and re.fullmatch(self.ours, difference.ours, re.DOTALL) is not None
            and re.fullmatch(self.ways, str(place.way)) is not None
        )

    def __str__(self) -> str:
        return f"{self.request} / {self.field or 'whole answer'}: {self.reason}"


_OF_REPLICAS = "(LEADER_AND_ISR|STOP_REPLICA|UPDATE_METADATA)"

ALLOWANCES: tuple[Allowance, ...] = (
    Allowance(
        ".*",
        r"(.*\.)?error_message",
        "ours has words where Kafka leaves it to the code",
        kafka=r"\(none\)",
        ours=r"\(text\)",
    ),
    # -- what it is not: a node with replicas, in a cluster with a controller beside it
    Allowance(
        f"{_OF_REPLICAS}( .*)?",
        "",
        "what a controller tells brokers: this one is the controller, keeps no replicas, and does not offer it",
        ours=r"\(closed\)",
    ),
    Allowance(
        "ENVELOPE( .*)?",
        "",
        "a broker that is not set up for the migration to KRaft closes the connection; ours answers",
        kafka=r"\(closed\)",
        only_in_full=True,
    ),
    Allowance(
        "API_VERSIONS( .*)?",
        r"api_keys\[\]",
        "LeaderAndIsr, StopReplica and UpdateMetadata are for nodes that a controller sends requests to",
        kafka=r"\{'api_key': (4|5|6),.*",
        ours=r"\(missing\)",
    ),
    Allowance(
        "API_VERSIONS( .*)?",
        r"api_keys\[\]",
        "consumer groups of the new protocol need KRaft: a broker in ZooKeeper mode refuses what it offers of them",
        kafka=r"\{'api_key': (68|69),.*",
        ours=r"\(missing\)",
    ),
    Allowance(
        "API_VERSIONS( .*)?",
        r"api_keys\[\]\.min_version",
        "version 0 of OffsetCommit and OffsetFetch keeps offsets in ZooKeeper, and SaslHandshake 0 is followed by "
        "tokens without headers: no client since Kafka 1.0 uses them",
        kafka="0",
        ours="1",
    ),
    Allowance(
        "API_VERSIONS( .*)?",
        "finalized_features_epoch",
        "it finalizes no features, so it has no epoch of them",
        kafka="0",
        ours="-1",
    ),
    Allowance(
        r"DESCRIBE_LOG_DIRS .*",
        r"results\[\]\.(log_dir|total_bytes|usable_bytes)",
        "it keeps no logs, and says so in the place of a path",
    ),
    Allowance(
        r"DESCRIBE_CONFIGS \(own broker\)",
        r"results\[\]\.configs\[\]",
        "it is no broker: it has none of a broker's settings",
        ours=r"\(missing\)",
    ),
    Allowance(
        r"(INCREMENTAL_)?ALTER_CONFIGS \(own broker\)",
        r"responses\[\]\.error_code",
        "it is no broker: there is nothing to set, only to take away",
        kafka=r"none\(0\)",
        ours=r"invalid_request\(42\)",
    ),
    Allowance(
        "(OFFSET_COMMIT|OFFSET_FETCH) .*|OFFSET_FETCH",
        "",
        "version 0 keeps offsets in ZooKeeper, where any broker writes and reads them: not offered, see ApiVersions",
        ours=r"\(closed\)",
        versions=range(1),
        only_in_full=True,
    ),
    # -- where a broker's handler fails
    Allowance(
        r"CONTROLLED_SHUTDOWN \(of an unknown broker\)",
        "error_code",
        "Kafka's BrokerNotAvailableException is not the one that has a code",
        kafka=r"unknown_server_error\(-1\)",
        ours=r"broker_not_available\(8\)",
    ),
    Allowance(
        r"DESCRIBE_USER_SCRAM_CREDENTIALS \(all\)",
        "",
        "a broker's handler fails over the refusal to describe all users, and never answers",
        kafka=r"\(silent\)",
        ours=r".*cluster_authorization_failed\(31\).*",
    ),
)


def explain(found: Found) -> Allowance | None:
    """The first that does."""
    return next((allowance for allowance in ALLOWANCES if allowance.explains(found)), None)
